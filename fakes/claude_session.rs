//! What the stand-in for Claude Code writes: its stream of events and its transcript.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::machine;

/// Everything that both the script and the signal thread write to.
pub struct Session {
    /// The session's id.
    pub id: String,
    /// The model that answers.
    pub model: String,
    /// Whether a subscription login is used, which alone brings readings of the limit.
    pub subscription: bool,
    /// Whether the last line is to be cut.
    pub cut_last_line: bool,
    /// Denied tool calls, for the result.
    pub denials: Vec<Value>,
    /// The last reading of the limit, so that an equal one is not repeated.
    pub last_limit: Option<Value>,
    transcript: Option<File>,
    requests: u64,
    turn_requests: u64,
    results: u64,
    last_text: String,
}

/// How a turn ended.
pub struct End<'a> {
    /// `subtype` of the result.
    pub subtype: &'a str,
    /// `is_error`.
    pub is_error: bool,
    /// `terminal_reason`.
    pub reason: &'a str,
    /// More members of the result.
    pub more: Value,
}

impl Session {
    /// Opens the session's transcript (none when `folder` is `None`).
    pub fn open(id: String, model: String, subscription: bool, folder: Option<PathBuf>) -> Self {
        let transcript = folder.and_then(|folder| {
            std::fs::create_dir_all(&folder).ok()?;
            let path = folder.join(format!("{id}.jsonl"));
            OpenOptions::new().create(true).append(true).mode(0o600).open(path).ok()
        });
        Self {
            id,
            model,
            subscription,
            cut_last_line: false,
            denials: Vec::new(),
            last_limit: None,
            transcript,
            requests: 0,
            turn_requests: 0,
            results: 0,
            last_text: String::new(),
        }
    }

    /// Writes a line as it is. The CLI goes on when nobody reads.
    pub fn raw(&self, line: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    }

    /// Writes an event: its members, then what every event carries.
    pub fn event(&self, event: Value) {
        self.raw(&machine::json(self.complete(event)));
    }

    fn complete(&self, mut event: Value) -> Value {
        if let Some(map) = event.as_object_mut() {
            map.insert("session_id".to_owned(), json!(self.id));
            map.insert("uuid".to_owned(), json!(machine::uuid()));
        }
        event
    }

    /// Writes one record of the transcript.
    pub fn record(&mut self, mut record: Value) {
        if let Some(map) = record.as_object_mut() {
            map.insert("sessionId".to_owned(), json!(self.id));
            map.insert("timestamp".to_owned(), json!(machine::stamp(machine::now())));
            map.insert("uuid".to_owned(), json!(machine::uuid()));
            map.insert("version".to_owned(), json!("2.1.332"));
        }
        if let Some(file) = &mut self.transcript {
            let _ = file.write_all(format!("{}\n", machine::json(record)).as_bytes());
        }
    }

    /// The first event of a turn.
    pub fn init(&self, directory: &Path, tools: &[&str], mode: &str) {
        let key = if machine::variable("ANTHROPIC_API_KEY").is_some() { "ANTHROPIC_API_KEY" } else { "none" };
        self.event(json!({"type": "system", "subtype": "init", "cwd": directory, "tools": tools, "mcp_servers": [],
            "model": self.model, "permissionMode": mode, "slash_commands": [], "apiKeySource": key,
            "claude_code_version": "2.1.332", "output_style": "default", "agents": [], "skills": [], "plugins": [],
            "sandbox_enabled": false, "original_cwd": directory, "additional_directories": [],
            "served_by_anthropic": false, "fast_mode_state": "off"}));
    }

    /// Counts one request to the model and returns the id of its message.
    pub fn request(&mut self) -> String {
        self.requests += 1;
        self.turn_requests += 1;
        format!("msg_{}", machine::short_id())
    }

    /// One block of an assistant message: one event each, and the usage is the stream's first value.
    pub fn block(&mut self, message_id: &str, block: Value) {
        let message = |output: u64| {
            json!({"id": message_id, "type": "message", "role": "assistant", "model": self.model, "content": [block],
                "stop_reason": null, "stop_sequence": null, "context_management": null,
                "usage": {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3000,
                    "output_tokens": output, "service_tier": "standard"}})
        };
        let (shown, kept) = (message(1), message(50));
        self.event(json!({"type": "assistant", "message": shown, "parent_tool_use_id": null,
            "timestamp": machine::stamp(machine::now()), "request_id": "req_fake"}));
        self.record(json!({"type": "assistant", "message": kept, "isSidechain": false}));
    }

    /// A message that is text alone.
    pub fn text(&mut self, text: &str) {
        let id = self.request();
        self.block(&id, json!({"type": "text", "text": text}));
        text.clone_into(&mut self.last_text);
    }

    /// A message that calls a tool; returns the call's id.
    pub fn call(&mut self, tool: &str, input: &Value) -> String {
        let id = self.request();
        let call_id = format!("toolu_{}", machine::short_id());
        self.block(&id, json!({"type": "tool_use", "id": call_id, "name": tool, "input": input}));
        call_id
    }

    /// The answer to a tool call.
    pub fn answer(&mut self, call_id: &str, content: &str, error: bool, detail: Value) {
        let content = json!({"tool_use_id": call_id, "type": "tool_result", "content": content, "is_error": error});
        let message = json!({"role": "user", "content": [content]});
        self.event(json!({"type": "user", "message": message, "parent_tool_use_id": null,
            "timestamp": machine::stamp(machine::now()), "tool_use_result": detail}));
        self.record(json!({"type": "user", "message": message, "isSidechain": false}));
    }

    /// A call that is denied: the notice, the answer, and the entry of the result.
    pub fn deny(&mut self, call_id: &str, tool: &str, input: &Value) {
        let text =
            format!("Permission to use {tool} has been denied because Claude Code is running in don't ask mode.");
        self.event(json!({"type": "system", "subtype": "permission_denied", "tool_name": tool,
            "tool_use_id": call_id, "decision_reason_type": "mode", "message": text}));
        self.answer(call_id, &text, true, json!(format!("Error: {text}")));
        self.denials.push(json!({"tool_name": tool, "tool_use_id": call_id, "tool_input": input}));
    }

    /// A reading of the limit: only with a subscription, and only when it changed.
    pub fn limit(&mut self, used: f64, status: &str) {
        let info = json!({"status": status, "resetsAt": 1_893_456_000, "rateLimitType": "five_hour",
            "overageStatus": "rejected", "overageDisabledReason": "org_level_disabled", "isUsingOverage": false,
            "unifiedWindows": {"five_hour": {"utilization": used / 100.0, "resetsAt": 1_893_456_000, "status": status}}});
        if self.subscription && self.last_limit.as_ref() != Some(&info) {
            self.event(json!({"type": "rate_limit_event", "rate_limit_info": info}));
            self.last_limit = Some(info);
        }
    }

    /// The assistant event that the CLI makes up when the API failed.
    pub fn api_error(&mut self, text: &str, error: &str, more: Value) {
        let mut event = json!({"type": "assistant", "message": {"id": machine::uuid(), "model": "<synthetic>",
                "role": "assistant", "stop_reason": "stop_sequence", "stop_sequence": "", "type": "message",
                "usage": {"input_tokens": 0, "output_tokens": 0},
                "content": [{"type": "text", "text": text}]},
            "parent_tool_use_id": null, "error": error, "is_api_error_message": true,
            "timestamp": machine::stamp(machine::now())});
        merge(&mut event, more);
        self.event(event);
        text.clone_into(&mut self.last_text);
    }

    /// The result of a turn. Its first member is not `type`.
    pub fn result(&mut self, end: End<'_>) {
        let usage = |n: u64| {
            json!({"input_tokens": 100 * n, "cache_creation_input_tokens": 20 * n, "output_tokens": 50 * n,
            "cache_read_input_tokens": 3000 * n, "output_tokens_details": {"thinking_tokens": 0},
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}, "service_tier": "standard"})
        };
        let n = self.requests;
        let models = if n == 0 { json!({}) } else { json!({&self.model: self.model_usage()}) };
        let text = if self.last_text.is_empty() { " " } else { &self.last_text };
        let mut result = json!({"duration_api_ms": 1, "duration_ms": 1, "stop_reason": "end_turn",
            "total_cost_usd": self.cost(), "usage": usage(self.turn_requests), "modelUsage": models,
            "permission_denials": self.denials, "terminal_reason": end.reason, "is_error": end.is_error,
            "num_turns": self.turn_requests + 1, "subtype": end.subtype, "api_error_status": null, "type": "result",
            "queued_turn_count": 0, "result_index": self.results});
        if end.subtype == "success" {
            merge(&mut result, json!({"result": text}));
        }
        merge(&mut result, end.more);
        self.results += 1;
        self.turn_requests = 0;
        let line = machine::json(self.complete(result));
        if self.cut_last_line {
            let _ = io::stdout().write_all(line.get(..line.len() / 2).unwrap_or_default().as_bytes());
            let _ = io::stdout().flush();
        } else {
            self.raw(&line);
        }
    }

    /// The record that a session ends with, unless KILL ended it.
    pub fn close(&mut self) {
        let models = json!({&self.model: self.model_usage()});
        self.record(json!({"type": "cost-state", "totalCostUSD": self.cost(), "modelUsage": models}));
    }

    fn cost(&self) -> f64 {
        let requests = u32::try_from(self.requests).unwrap_or(u32::MAX);
        (f64::from(requests) * 0.0021 * 10_000.0).round() / 10_000.0
    }

    fn model_usage(&self) -> Value {
        let n = self.requests;
        json!({"inputTokens": 100 * n, "outputTokens": 50 * n, "cacheReadInputTokens": 3000 * n,
            "cacheCreationInputTokens": 20 * n, "webSearchRequests": 0, "costUSD": self.cost(),
            "contextWindow": 1_000_000, "maxOutputTokens": 128_000, "thinkingTokens": 0, "costBasis": "list",
            "canonicalModel": self.model, "provider": "firstParty"})
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(map), Value::Object(more)) = (into.as_object_mut(), more) {
        map.extend(more);
    }
}
