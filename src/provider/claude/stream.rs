//! Claude Code's event stream (`--output-format stream-json`).

use serde_json::Value;

use super::super::text::{
    ID_MAX_BYTES, LIST_MAX, REPORT_MAX_BYTES, SAID_MAX_BYTES, SHORT_MAX_BYTES, clip, is_blank, leading_type, note, read,
};
use super::super::{Decoder, FailureKind, StreamSummary};
use super::lines::{
    ApiRetry, Assistant, Content, Denied, Head, Init, RateLimitLine, ResultLine, Told, User, UserBlock,
};
use super::tools::{OpenCalls, delay, notice};
use super::turn::{Hints, failure_kind, failure_text, rate_limit, result_text, tokens};
use crate::domain::time::Timestamp;
use crate::domain::worker::WorkerEvent;

/// How the text begins that the CLI puts in when SIGINT reaches it.
const INTERRUPTED: &str = "[Request interrupted by user";

/// Reads Claude Code's stream.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    summary: StreamSummary,
    calls: OpenCalls,
    /// Id of the last message of the main agent, and the text of its blocks so far.
    message_id: Option<String>,
    message_text: String,
    hints: Hints,
    rejected_until: Option<Timestamp>,
    /// Calls that were denied, so that each counts once.
    denied: Vec<String>,
}

impl Decoder for StreamDecoder {
    fn line(&mut self, line: &[u8]) -> Vec<WorkerEvent> {
        if is_blank(line) {
            return Vec::new();
        }
        match self.take(line) {
            Some(events) => {
                self.summary.any_event = true;
                events
            }
            None => {
                self.summary.unreadable_lines = self.summary.unreadable_lines.saturating_add(1);
                Vec::new()
            }
        }
    }

    fn summary(&self) -> &StreamSummary {
        &self.summary
    }
}

impl StreamDecoder {
    /// `None` if the line cannot be read.
    fn take(&mut self, line: &[u8]) -> Option<Vec<WorkerEvent>> {
        match leading_type(line) {
            Some("assistant") => return Some(self.assistant(read(line)?)),
            Some("user") => return Some(self.user(&read::<User<'_>>(line)?.message.content)),
            Some(_) | None => {}
        }
        let head: Head<'_> = read(line)?;
        Some(match (head.kind.as_ref(), head.subtype.as_deref()) {
            ("system", Some("init")) => self.init(read(line)?),
            ("system", Some("api_retry")) => vec![waiting(read(line)?)],
            ("system", Some("permission_denied")) => self.denied(&read(line)?).into_iter().collect(),
            ("system", Some("informational" | "model_fallback" | "model_refusal_no_fallback")) => {
                self.told(read(line)?, head.subtype.as_deref().unwrap_or_default())
            }
            ("assistant", _) => self.assistant(read(line)?),
            ("user", _) => self.user(&read::<User<'_>>(line)?.message.content),
            ("rate_limit_event", _) => vec![self.rate_limit(&read::<RateLimitLine>(line)?.rate_limit_info)],
            ("result", _) => self.result(&read(line)?),
            (_, _) => Vec::new(),
        })
    }

    /// Told at the beginning of every turn; a session begins once.
    fn init(&mut self, init: Init) -> Vec<WorkerEvent> {
        self.summary.clean_end = false;
        let first = self.summary.model.is_none();
        self.summary.model = init.model.map(|model| clip(&model, ID_MAX_BYTES)).or(self.summary.model.take());
        let Some(session_id) = init.session_id.map(|id| clip(&id, ID_MAX_BYTES)) else { return Vec::new() };
        self.summary.session_id = Some(session_id.clone());
        let model = self.summary.model.clone();
        if first { vec![WorkerEvent::SessionStarted { session_id, model }] } else { Vec::new() }
    }

    fn denied(&mut self, denied: &Denied) -> Option<WorkerEvent> {
        let tool = clip(denied.tool_name.as_deref().unwrap_or("unknown"), ID_MAX_BYTES);
        let call_id = clip(denied.tool_use_id.as_deref().unwrap_or_default(), ID_MAX_BYTES);
        let known = !call_id.is_empty() && self.denied.contains(&call_id);
        if known || self.denied.len() >= LIST_MAX {
            return None;
        }
        self.denied.push(call_id);
        self.summary.permission_denials.push(tool.clone());
        Some(WorkerEvent::PermissionDenied { tool })
    }

    fn told(&mut self, told: Told, subtype: &str) -> Vec<WorkerEvent> {
        let text = told.content.as_ref().and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or(subtype);
        note(&mut self.summary.notices, text);
        vec![notice(text)]
    }

    fn assistant(&mut self, assistant: Assistant) -> Vec<WorkerEvent> {
        if let Some(error) = assistant.error {
            // The CLI's own words about a failed request: neither a report nor a sign of life.
            self.hints.assistant_error = Some(error.as_str().unwrap_or("unknown").to_owned());
            return Vec::new();
        }
        let top_level = assistant.parent_tool_use_id.is_none() && assistant.agent_id.is_none();
        if top_level && self.message_id != assistant.message.id {
            self.message_id = assistant.message.id;
            self.message_text.clear();
        }
        let mut events = Vec::new();
        for block in assistant.message.content {
            match block.kind.as_str() {
                "text" => {
                    let text = block.text.unwrap_or_default();
                    if top_level {
                        self.said(&text);
                    }
                    events.push(WorkerEvent::Said { text: clip(&text, SAID_MAX_BYTES) });
                }
                "tool_use" => events.extend(self.calls.begin(&block)),
                other => events.push(notice(other)),
            }
        }
        events
    }

    fn said(&mut self, text: &str) {
        let room = REPORT_MAX_BYTES.saturating_sub(self.message_text.len());
        self.message_text.push_str(&clip(text, room));
        if !self.message_text.trim().is_empty() {
            self.summary.final_text = Some(self.message_text.clone());
        }
    }

    fn user(&mut self, content: &Content<'_>) -> Vec<WorkerEvent> {
        match content {
            Content::Text(text) => {
                self.interrupted(Some(text));
                Vec::new()
            }
            Content::Blocks(blocks) => blocks.iter().filter_map(|block| self.user_block(block)).collect(),
            Content::Other => Vec::new(),
        }
    }

    fn user_block(&mut self, block: &UserBlock<'_>) -> Option<WorkerEvent> {
        if block.kind == "tool_result" {
            return self.calls.end(block);
        }
        self.interrupted(block.text.as_deref());
        None
    }

    fn interrupted(&mut self, text: Option<&str>) {
        if let Some(text) = text.filter(|text| text.starts_with(INTERRUPTED)) {
            self.summary.clean_end = false;
            self.summary.failure = Some(clip(text, SHORT_MAX_BYTES));
            self.summary.failure_kind = Some(FailureKind::Interrupted);
        }
    }

    fn rate_limit(&mut self, info: &Value) -> WorkerEvent {
        let event = rate_limit(info);
        if let WorkerEvent::RateLimit { resets_at, rejected, .. } = &event {
            self.hints.rejected = *rejected;
            self.rejected_until = resets_at.filter(|_| *rejected);
        }
        event
    }

    /// The last result counts: one that a background task woke replaces the one before.
    fn result(&mut self, result: &ResultLine) -> Vec<WorkerEvent> {
        let mut events: Vec<WorkerEvent> =
            result.permission_denials.iter().filter_map(|one| self.denied(one)).collect();
        events.extend(self.calls.close());
        let summary = &mut self.summary;
        summary.session_id =
            result.session_id.as_deref().map(|id| clip(id, ID_MAX_BYTES)).or(summary.session_id.take());
        summary.tokens = tokens(result.model_usage.as_ref()).or(summary.tokens);
        if summary.tokens.is_some() {
            summary.cost_usd = result.total_cost_usd.filter(|cost| cost.is_finite()).or(summary.cost_usd);
        }
        let clean = !result.is_error && result.subtype.as_deref() == Some("success");
        summary.clean_end = clean;
        if clean {
            summary.failure = None;
            summary.failure_kind = None;
            summary.resets_at = None;
            summary.final_text = final_text(&self.message_text, result_text(result));
        } else {
            let kind = failure_kind(result, &self.hints);
            summary.failure = Some(failure_text(result));
            summary.failure_kind = Some(kind);
            summary.resets_at = self.rejected_until.filter(|_| kind == FailureKind::UsageLimit);
        }
        self.hints.assistant_error = None;
        let error = self.summary.failure.clone();
        events.push(WorkerEvent::TurnEnded { clean, error });
        events
    }
}

fn waiting(retry: ApiRetry) -> WorkerEvent {
    let error = retry.error.unwrap_or_else(|| "unknown".to_owned());
    let authentication = error == "authentication_failed" || matches!(retry.error_status, Some(401 | 403));
    let reason = match retry.error_status {
        Some(status) => format!("{error} ({status})"),
        None => error,
    };
    WorkerEvent::Waiting {
        reason: clip(&reason, SHORT_MAX_BYTES),
        attempt: retry.attempt.unwrap_or(1),
        delay: delay(retry.retry_delay_ms),
        authentication,
    }
}

/// The whole last message. The result holds only its last block, and tells whether the message that
/// was seen is the one it speaks of: blank means that the turn ended without words.
fn final_text(message: &str, result: Option<&str>) -> Option<String> {
    let text = match result {
        Some(result) if !message.contains(result.trim()) => result,
        Some(result) if result.trim().is_empty() => "",
        Some(_) | None => message,
    };
    Some(clip(text, REPORT_MAX_BYTES)).filter(|text| !text.trim().is_empty())
}
