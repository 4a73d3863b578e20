//! The rollout file that the stand-in for Codex leaves, record by record as the real one does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::machine;

/// What the header records tell.
pub struct Header<'a> {
    /// The working directory.
    pub directory: &'a Path,
    /// The model that answers.
    pub model: &'a str,
    /// `model_reasoning_effort`, if it was asked for.
    pub effort: Option<&'a str>,
    /// `-s`.
    pub sandbox: &'a str,
}

/// A rollout file, open for more records.
pub struct Rollout {
    file: Option<File>,
    ordinal: u64,
    turn_id: String,
    thread_id: String,
    started_at: i64,
}

impl Rollout {
    /// Makes the file under `home`, or none at all when `home` is `None` (`--ephemeral`).
    pub fn create(home: Option<&Path>, thread_id: &str) -> io::Result<Self> {
        let file = home.map(|home| open(home, thread_id)).transpose()?;
        let started_at = machine::now().unix_timestamp();
        Ok(Self { file, ordinal: 0, turn_id: machine::uuid7(), thread_id: thread_id.to_owned(), started_at })
    }

    /// Writes one record and flushes it.
    pub fn record(&mut self, kind: &str, payload: &Value) {
        let line = machine::object(&[
            ("timestamp", machine::json(machine::stamp(machine::now()))),
            ("ordinal", self.ordinal.to_string()),
            ("type", machine::json(kind)),
            ("payload", machine::json(payload)),
        ]);
        self.raw(&line);
        self.ordinal += 1;
    }

    /// Writes one line as it is.
    pub fn raw(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// The records up to the first answer.
    pub fn open_turn(&mut self, header: &Header<'_>, prompt: &str) {
        let (thread, turn) = (self.thread_id.clone(), self.turn_id.clone());
        self.record(
            "session_meta",
            &json!({"account_scoped": true, "session_id": thread, "id": thread,
            "timestamp": machine::stamp(machine::now()), "cwd": header.directory, "originator": "codex_exec",
            "runtime_workspace_roots": [header.directory], "cli_version": "0.171.0", "source": "exec",
            "thread_source": "user", "model_provider": "openai", "history_mode": "paginated"}),
        );
        self.record(
            "event_msg",
            &json!({"type": "task_started", "turn_id": turn, "root_turn_id": turn,
            "started_at": self.started_at, "model_context_window": 258_400, "collaboration_mode_kind": "default"}),
        );
        let mut context = json!({"turn_id": turn, "root_turn_id": turn, "cwd": header.directory,
            "approval_policy": "never", "approvals_reviewer": "user", "sandbox_policy": {"type": header.sandbox},
            "model": header.model, "summary": "auto"});
        if let (Some(effort), Some(map)) = (header.effort, context.as_object_mut()) {
            map.insert("effort".to_owned(), json!(effort));
        }
        self.record("turn_context", &context);
        self.record(
            "response_item",
            &json!({"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": prompt}]}),
        );
        self.item(&json!({"type": "UserMessage", "id": machine::uuid7(),
            "content": [{"type": "text", "text": prompt, "text_elements": []}]}));
    }

    /// An `item_completed` event.
    pub fn item(&mut self, item: &Value) {
        let (thread, turn) = (self.thread_id.clone(), self.turn_id.clone());
        self.record(
            "event_msg",
            &json!({"type": "item_completed", "thread_id": thread, "turn_id": turn, "item": item}),
        );
    }

    /// The call of a command.
    pub fn call(&mut self, call_id: &str, command: &str) {
        self.record(
            "response_item",
            &json!({"type": "function_call", "status": "completed",
            "id": format!("fc_{call_id}"), "name": "exec_command", "call_id": call_id,
            "arguments": machine::json(json!({"cmd": command}))}),
        );
    }

    /// The output of a command's call.
    pub fn call_output(&mut self, call_id: &str, output: &str, code: i32) {
        let text = format!("Chunk ID: 0\nWall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n{output}");
        self.record("response_item", &json!({"type": "function_call_output", "call_id": call_id, "output": text}));
    }

    /// A message of the assistant.
    pub fn message(&mut self, text: &str) {
        self.item(&json!({"type": "AgentMessage", "id": "msg_1", "content": [{"type": "Text", "text": text}]}));
        self.record(
            "response_item",
            &json!({"type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}),
        );
    }

    /// Usage so far and a reading of the limits; `used_percent` is `None` when the server says nothing.
    pub fn tokens(&mut self, usage: Option<&Value>, used_percent: Option<f64>) {
        let window =
            used_percent.map(|used| json!({"used_percent": used, "window_minutes": 300, "resets_at": 1_893_456_000}));
        let info = usage.map(|usage| {
            json!({"total_token_usage": usage, "last_token_usage": usage,
            "last_usage_includes_reasoning": false, "model_context_window": 258_400})
        });
        if let Some(usage) = usage {
            let (thread, turn) = (self.thread_id.clone(), self.turn_id.clone());
            self.record(
                "token_usage_record",
                &json!({"thread_id": thread, "turn_id": turn, "usage": usage,
                "turn_token_usage": usage, "thread_token_usage": usage}),
            );
        }
        self.record(
            "event_msg",
            &json!({"type": "token_count", "info": info, "rate_limits": {"limit_id": "codex",
            "limit_name": null, "primary": window, "secondary": null, "credits": null, "individual_limit": null,
            "spend_control_reached": null, "plan_type": null, "rate_limit_reached_type": null}}),
        );
    }

    /// The last record of a turn that ended by itself.
    pub fn complete(&mut self, last_message: Option<&str>, error: Option<(&str, Value)>) {
        let now = machine::now().unix_timestamp();
        let mut payload = json!({"type": "task_complete", "root_turn_id": self.turn_id, "turn_id": self.turn_id,
            "last_agent_message": last_message, "started_at": self.started_at, "completed_at": now, "duration_ms": 1});
        if let (Some((message, info)), Some(map)) = (error, payload.as_object_mut()) {
            map.insert("error".to_owned(), json!({"message": message, "codex_error_info": info}));
        }
        self.record("event_msg", &payload);
    }

    /// What an interrupt leaves.
    pub fn abort(&mut self) {
        self.tokens(None, None);
        self.record(
            "response_item",
            &json!({"type": "message", "role": "user", "content": [{"type": "input_text",
            "text": "<turn_aborted>\nThe turn was interrupted.\n</turn_aborted>"}]}),
        );
        let now = machine::now().unix_timestamp();
        let payload = json!({"type": "turn_aborted", "root_turn_id": self.turn_id, "turn_id": self.turn_id,
            "reason": "interrupted", "started_at": self.started_at, "completed_at": now, "duration_ms": 1});
        self.record("event_msg", &payload);
    }
}

fn open(home: &Path, thread_id: &str) -> io::Result<File> {
    let stamp = machine::stamp(machine::now());
    let (day, clock) = (stamp.get(..10).unwrap_or_default(), stamp.get(11..19).unwrap_or_default());
    let folder = home.join("sessions").join(day.replace('-', "/"));
    std::fs::create_dir_all(&folder)?;
    let name = format!("rollout-{day}T{}-{thread_id}.jsonl", clock.replace(':', "-"));
    OpenOptions::new().create_new(true).append(true).open(folder.join(name))
}
