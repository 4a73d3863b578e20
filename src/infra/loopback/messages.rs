//! The Anthropic Messages API, as the Claude Code CLI uses it: streamed, and whole as its fall-back.

use std::io;

use serde_json::{Value, json};

use super::http::{Answer, Request};
use super::script::{SeenRequest, Step, text_of, tool_names};
use super::{GoesOn, Shared, common};

/// Answers a question for the number of tokens.
pub(super) fn count(request: &Request, answer: &mut Answer<'_>) -> io::Result<GoesOn> {
    answer.json(200, &[], &json!({"input_tokens": request.body.to_string().len() / 4}))
}

/// Answers one request for a message. What offers no tools is the CLI's own small talk (titles,
/// probes): it gets a fixed answer and uses no step.
pub(super) fn answer(request: &Request, shared: &Shared, answer: &mut Answer<'_>) -> io::Result<GoesOn> {
    let seen = seen(request);
    if seen.tools.is_empty() {
        return send(request, answer, &json!({"type": "text", "text": "ok"}), "end_turn");
    }
    let call_id = format!("toolu_loopback{:04}", seen.tool_outputs.len() + 1);
    let step = shared.take_step(seen);
    if let Some(goes_on) = common(&step, shared, answer)? {
        return Ok(goes_on);
    }
    let tool = |name: &str, input: &Value| json!({"type": "tool_use", "id": call_id, "name": name, "input": input});
    match &step {
        Step::UsageLimit { resets_at } => usage_limit(*resets_at, answer),
        Step::RateLimited => error(answer, 429, "rate_limit_error", &[("retry-after", "1".to_owned())]),
        Step::LoginRefused => error(answer, 401, "authentication_error", &[]),
        Step::Say(text) => send(request, answer, &json!({"type": "text", "text": text}), "end_turn"),
        Step::Shell(command) => {
            let input = json!({"command": command, "description": "a step of the script"});
            send(request, answer, &tool("Bash", &input), "tool_use")
        }
        Step::Tool { name, input } => send(request, answer, &tool(name, input), "tool_use"),
        Step::Cut(text) => cut(request, answer, text),
        Step::ServerError | Step::Silence => Ok(false),
    }
}

fn seen(request: &Request) -> SeenRequest {
    let messages = request.body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut prompt = Vec::new();
    let mut tool_outputs = Vec::new();
    for message in messages.iter().filter(|message| message.get("role").and_then(Value::as_str) == Some("user")) {
        match message.get("content") {
            Some(Value::Array(blocks)) => {
                for block in blocks {
                    let is_result = block.get("type").and_then(Value::as_str) == Some("tool_result");
                    if is_result { &mut tool_outputs } else { &mut prompt }.push(text_of(block));
                }
            }
            Some(content) => prompt.push(text_of(content)),
            None => {}
        }
    }
    SeenRequest {
        path: request.path.clone(),
        model: request.text("/model"),
        effort: request.text("/output_config/effort"),
        tools: tool_names(request.body.get("tools")),
        prompt: prompt.join("\n"),
        tool_outputs,
        has_login: request.has_login(),
    }
}

fn error(answer: &mut Answer<'_>, status: u16, kind: &str, headers: &[(&str, String)]) -> io::Result<GoesOn> {
    let body = json!({"type": "error", "error": {"type": kind, "message": "the script says so"},
        "request_id": "req_loopback"});
    answer.json(status, headers, &body)
}

/// The headers of a subscription whose five-hour window is used up.
fn usage_limit(resets_at: i64, answer: &mut Answer<'_>) -> io::Result<GoesOn> {
    let header = |suffix: &str| format!("anthropic-ratelimit-unified-{suffix}");
    let values = [
        (header("status"), "rejected".to_owned()),
        (header("reset"), resets_at.to_string()),
        (header("representative-claim"), "five_hour".to_owned()),
        (header("5h-utilization"), "1.0".to_owned()),
        (header("5h-reset"), resets_at.to_string()),
        (header("5h-status"), "rejected".to_owned()),
        (header("overage-status"), "rejected".to_owned()),
        (header("overage-disabled-reason"), "org_level_disabled".to_owned()),
    ];
    let headers: Vec<(&str, String)> = values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    error(answer, 429, "rate_limit_error", &headers)
}

fn is_streamed(request: &Request) -> bool {
    request.body.get("stream").and_then(Value::as_bool) == Some(true)
}

fn head(request: &Request, content: &[&Value], stop_reason: Option<&str>, output_tokens: u64) -> Value {
    json!({"id": "msg_loopback", "type": "message", "role": "assistant", "model": request.text("/model"),
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3000,
            "output_tokens": output_tokens, "service_tier": "standard"}})
}

fn begin(request: &Request, answer: &mut Answer<'_>, block: &Value) -> io::Result<()> {
    answer.open_events()?;
    answer.event(&json!({"type": "message_start", "message": head(request, &[], None, 1)}))?;
    let is_tool = block.get("type").and_then(Value::as_str) == Some("tool_use");
    let (empty, delta) = if is_tool {
        let mut empty = block.clone();
        if let Some(map) = empty.as_object_mut() {
            map.insert("input".to_owned(), json!({}));
        }
        let input = block.get("input").map(Value::to_string).unwrap_or_default();
        (empty, json!({"type": "input_json_delta", "partial_json": input}))
    } else {
        (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block.get("text")}))
    };
    answer.event(&json!({"type": "content_block_start", "index": 0, "content_block": empty}))?;
    answer.event(&json!({"type": "content_block_delta", "index": 0, "delta": delta}))
}

fn send(request: &Request, answer: &mut Answer<'_>, block: &Value, stop_reason: &str) -> io::Result<GoesOn> {
    if !is_streamed(request) {
        return answer.json(200, &[], &head(request, &[block], Some(stop_reason), 50));
    }
    begin(request, answer, block)?;
    answer.event(&json!({"type": "content_block_stop", "index": 0}))?;
    answer.event(&json!({"type": "message_delta", "usage": {"output_tokens": 50},
        "delta": {"stop_reason": stop_reason, "stop_sequence": null}}))?;
    answer.event(&json!({"type": "message_stop"}))?;
    Ok(false)
}

fn cut(request: &Request, answer: &mut Answer<'_>, text: &str) -> io::Result<GoesOn> {
    if is_streamed(request) {
        begin(request, answer, &json!({"type": "text", "text": text}))?;
    }
    Ok(false)
}
