//! The OpenAI Responses API, as the Codex CLI uses it.

use std::io;

use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::script::{SeenRequest, Step, text_of, tool_names};
use super::{GoesOn, Shared, common};

/// Answers one request for a response.
pub(super) fn answer(request: &Request, shared: &Shared, answer: &mut Answer<'_>) -> io::Result<GoesOn> {
    let seen = seen(request);
    // Models in code mode offer one tool that takes JavaScript, in an item of the input.
    let code_mode =
        !seen.tools.iter().any(|name| name == "exec_command") && seen.tools.iter().any(|name| name == "exec");
    let outputs = seen.tool_outputs.len();
    let step = shared.take_step(seen);
    if let Some(goes_on) = common(&step, shared, answer)? {
        return Ok(goes_on);
    }
    let call_id = format!("call_{}", outputs + 1);
    match &step {
        Step::UsageLimit { resets_at } => return usage_limit(*resets_at, answer),
        Step::RateLimited => {
            let body = json!({"error": {"type": "rate_limit_exceeded", "code": "rate_limit_exceeded", "message": "slow down"}});
            return answer.json(429, &[("retry-after", "1".to_owned())], &body);
        }
        Step::LoginRefused => {
            let body = json!({"error": {"message": "Incorrect API key provided: dummy.", "param": null,
                "type": "invalid_request_error", "code": "invalid_api_key"}});
            return answer.json(401, &[], &body);
        }
        Step::Say(text) => whole(answer, &[message(text)])?,
        Step::Shell(command) if code_mode => whole(answer, &[code_call(&call_id, command)])?,
        Step::Shell(command) => whole(answer, &[call(&call_id, "exec_command", &json!({"cmd": command}))])?,
        Step::Tool { name, input } => whole(answer, &[call(&call_id, name, input)])?,
        Step::Cut(text) => begin(answer, &[message(text)])?,
        Step::ServerError | Step::Silence => {}
    }
    Ok(false)
}

fn seen(request: &Request) -> SeenRequest {
    let input = request.body.get("input").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let kind = |item: &Value, wanted: &str| item.get("type").and_then(Value::as_str) == Some(wanted);
    let mut tools = tool_names(request.body.get("tools"));
    for item in input.iter().filter(|item| kind(item, "additional_tools")) {
        tools.extend(tool_names(item.get("tools")));
    }
    let user = input.iter().filter(|item| item.get("role").and_then(Value::as_str) == Some("user"));
    let prompt: Vec<String> = user.filter_map(|item| item.get("content")).map(text_of).collect();
    let is_output = |item: &&Value| kind(item, "function_call_output") || kind(item, "custom_tool_call_output");
    let outputs = input.iter().filter(is_output).filter_map(|item| item.get("output"));
    SeenRequest {
        path: request.path.clone(),
        model: request.text("/model"),
        effort: request.text("/reasoning/effort"),
        tools,
        prompt: prompt.join("\n"),
        tool_outputs: outputs.map(text_of).collect(),
        has_login: request.has_login(),
    }
}

fn usage_limit(resets_at: i64, answer: &mut Answer<'_>) -> io::Result<GoesOn> {
    let headers = [
        ("x-codex-primary-used-percent", "100".to_owned()),
        ("x-codex-primary-window-minutes", "300".to_owned()),
        ("x-codex-primary-reset-at", resets_at.to_string()),
    ];
    let body = json!({"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_at": resets_at}});
    answer.json(429, &headers, &body)
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(call_id: &str, name: &str, arguments: &Value) -> Value {
    json!({"type": "function_call", "id": format!("fc_{call_id}"), "call_id": call_id, "name": name,
        "arguments": arguments.to_string(), "status": "completed"})
}

fn code_call(call_id: &str, command: &str) -> Value {
    let input = format!("const r = await tools.exec_command({{cmd: {}}}); text(r);", json!(command));
    json!({"type": "custom_tool_call", "id": format!("ctc_{call_id}"), "call_id": call_id, "name": "exec",
        "input": input, "status": "completed"})
}

fn begin(answer: &mut Answer<'_>, items: &[Value]) -> io::Result<()> {
    answer.open_events()?;
    answer.event(&json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}))?;
    for (index, item) in items.iter().enumerate() {
        answer.event(&json!({"type": "response.output_item.added", "output_index": index, "item": item}))?;
        answer.event(&json!({"type": "response.output_item.done", "output_index": index, "item": item}))?;
    }
    Ok(())
}

fn whole(answer: &mut Answer<'_>, items: &[Value]) -> io::Result<()> {
    begin(answer, items)?;
    answer.event(&json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed",
        "usage": {"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 1000}, "output_tokens": 34,
            "output_tokens_details": {"reasoning_tokens": 10}, "total_tokens": 1234}}}))
}
