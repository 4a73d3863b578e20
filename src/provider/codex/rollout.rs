//! Codex's rollout file: limits, the kind of a failure, tokens, model and effort.
//!
//! Nothing of this but the tokens of a turn that went well is on the event stream.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::super::FailureKind;
use super::super::text::{ID_MAX_BYTES, REPORT_MAX_BYTES, SHORT_MAX_BYTES, clip, is_blank, read};
use super::failure;
use crate::domain::time::Timestamp;
use crate::domain::worker::Tokens;

/// What a rollout said, the last turn counting where turns differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutSummary {
    /// The thread's id.
    pub session_id: Option<String>,
    /// The model that the last turn ran with.
    pub model: Option<String>,
    /// The effort that the last turn ran with.
    pub effort: Option<String>,
    /// Whether the last turn came to its end, well or not.
    pub completed: bool,
    /// The failure's text, where the last turn failed.
    pub failure: Option<String>,
    /// What kind of failure it is.
    pub failure_kind: Option<FailureKind>,
    /// Why the last turn was broken off, if it was.
    pub aborted: Option<String>,
    /// The last message of the last turn, whole.
    pub last_agent_message: Option<String>,
    /// Tokens of the last turn alone.
    pub turn_tokens: Option<Tokens>,
    /// Tokens of the whole thread.
    pub thread_tokens: Option<Tokens>,
    /// The last reading of the account's limits that says anything.
    pub limits: Option<RateLimits>,
    /// Lines that could not be read.
    pub unreadable_lines: u64,
}

/// A reading of an account's limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateLimits {
    /// Id of the family of limits.
    pub limit_id: Option<String>,
    /// Name of the limit, for people.
    pub limit_name: Option<String>,
    /// The short window.
    pub primary: Option<Window>,
    /// The long window.
    pub secondary: Option<Window>,
    /// Which limit was reached, where the server says.
    pub reached: Option<String>,
}

/// One window of a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Share used, 0 to 100 and sometimes above.
    pub used_percent: f64,
    /// Length of the window in minutes.
    pub window_minutes: Option<u64>,
    /// When it starts anew.
    pub resets_at: Option<Timestamp>,
}

impl RateLimits {
    /// When the last of the windows that are used up starts anew.
    pub fn exhausted_until(&self) -> Option<Timestamp> {
        let windows = [self.primary, self.secondary];
        windows
            .iter()
            .flatten()
            .filter(|window| window.used_percent >= 100.0)
            .filter_map(|window| window.resets_at)
            .max()
    }
}

/// Reads a rollout line by line. It keeps a bounded amount.
#[derive(Debug, Default)]
pub struct RolloutDecoder {
    summary: RolloutSummary,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: Option<PayloadHead<'a>>,
}

#[derive(Deserialize)]
struct PayloadHead<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Line<T> {
    payload: T,
}

#[derive(Deserialize)]
struct Meta {
    id: Option<String>,
}

#[derive(Deserialize)]
struct TurnContext {
    model: Option<String>,
    effort: Option<String>,
    collaboration_mode: Option<Value>,
}

#[derive(Deserialize)]
struct Usage {
    turn_token_usage: Option<TokenCount>,
    thread_token_usage: Option<TokenCount>,
}

/// Tokens as Codex counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct TokenCount {
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
}

impl TokenCount {
    /// The count in Lane's words; `None` when it is all zero, which is how Codex says "not known".
    pub(super) fn tokens(self) -> Option<Tokens> {
        (self != Self::default()).then(|| Tokens {
            input: self.input_tokens.saturating_sub(self.cached_input_tokens),
            cached_input: self.cached_input_tokens,
            cache_write_input: self.cache_write_input_tokens,
            output: self.output_tokens,
            reasoning: self.reasoning_output_tokens,
        })
    }
}

#[derive(Deserialize)]
struct Limits {
    rate_limits: Option<Value>,
}

#[derive(Deserialize)]
struct Complete {
    last_agent_message: Option<String>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Aborted {
    reason: Option<String>,
}

impl RolloutDecoder {
    /// Takes one line, without its line feed. A line that cannot be read is counted.
    pub fn line(&mut self, line: &[u8]) {
        if !is_blank(line) && self.take(line).is_none() {
            self.summary.unreadable_lines = self.summary.unreadable_lines.saturating_add(1);
        }
    }

    /// Returns what the rollout said so far.
    pub const fn summary(&self) -> &RolloutSummary {
        &self.summary
    }

    /// `None` if the line cannot be read.
    fn take(&mut self, line: &[u8]) -> Option<()> {
        let head: Head<'_> = read(line)?;
        let event = head.payload.and_then(|payload| payload.kind);
        match (head.kind.as_ref(), event.as_deref()) {
            ("session_meta", _) => {
                let meta: Meta = payload(line)?;
                self.summary.session_id = meta.id.map(|id| clip(&id, ID_MAX_BYTES));
            }
            ("turn_context", _) => self.turn_context(payload(line)?),
            ("token_usage_record", _) => {
                let usage: Usage = payload(line)?;
                self.summary.turn_tokens = usage.turn_token_usage.and_then(TokenCount::tokens);
                self.summary.thread_tokens = usage.thread_token_usage.and_then(TokenCount::tokens);
            }
            ("event_msg", Some("task_started")) => self.turn_started(),
            ("event_msg", Some("token_count")) => {
                let limits: Limits = payload(line)?;
                self.summary.limits = limits.rate_limits.as_ref().and_then(rate_limits).or(self.summary.limits.take());
            }
            ("event_msg", Some("task_complete")) => self.complete(payload(line)?),
            ("event_msg", Some("turn_aborted")) => {
                let aborted: Aborted = payload(line)?;
                let reason = aborted.reason.unwrap_or_default();
                self.summary.aborted = Some(clip(&reason, ID_MAX_BYTES));
            }
            (_, _) => {}
        }
        Some(())
    }

    fn turn_context(&mut self, context: TurnContext) {
        let deeper = context.collaboration_mode.as_ref().and_then(|mode| mode.pointer("/settings/reasoning_effort"));
        let effort = context.effort.or_else(|| deeper.and_then(Value::as_str).map(str::to_owned));
        self.summary.model = context.model.map(|model| clip(&model, ID_MAX_BYTES));
        self.summary.effort = effort.map(|effort| clip(&effort, ID_MAX_BYTES));
    }

    fn turn_started(&mut self) {
        let summary = &mut self.summary;
        summary.completed = false;
        summary.failure = None;
        summary.failure_kind = None;
        summary.aborted = None;
        summary.last_agent_message = None;
        summary.turn_tokens = None;
    }

    fn complete(&mut self, complete: Complete) {
        self.summary.completed = true;
        self.summary.last_agent_message = complete.last_agent_message.map(|text| clip(&text, REPORT_MAX_BYTES));
        if let Some(error) = complete.error.filter(|error| !error.is_null()) {
            let message = error.get("message").and_then(Value::as_str).unwrap_or_default();
            let info = error.get("codex_error_info").unwrap_or(&Value::Null);
            self.summary.failure_kind = Some(failure::by_info(info, message));
            self.summary.failure = Some(clip(message, SHORT_MAX_BYTES));
        }
    }
}

fn payload<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    read::<Line<T>>(line).map(|line| line.payload)
}

/// A reading, unless it says nothing.
fn rate_limits(value: &Value) -> Option<RateLimits> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(|text| clip(text, ID_MAX_BYTES));
    let limits = RateLimits {
        limit_id: text("limit_id"),
        limit_name: text("limit_name"),
        primary: value.get("primary").and_then(window),
        secondary: value.get("secondary").and_then(window),
        reached: text("rate_limit_reached_type"),
    };
    (limits.primary.is_some() || limits.secondary.is_some() || limits.reached.is_some()).then_some(limits)
}

/// A window, unless its share is not a number that can be meant.
fn window(value: &Value) -> Option<Window> {
    let used_percent = value.get("used_percent")?.as_f64().filter(|share| share.is_finite() && *share >= 0.0)?;
    Some(Window {
        used_percent,
        window_minutes: value.get("window_minutes").and_then(Value::as_u64),
        resets_at: value.get("resets_at").and_then(Value::as_i64).filter(|at| *at > 0).map(Timestamp::from_unix_s),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(lines: &[&str]) -> RolloutSummary {
        let mut decoder = RolloutDecoder::default();
        lines.iter().for_each(|line| decoder.line(line.as_bytes()));
        decoder.summary().clone()
    }

    fn token_count(limits: &str) -> String {
        format!(r#"{{"type":"event_msg","payload":{{"type":"token_count","info":null,"rate_limits":{limits}}}}}"#)
    }

    #[test]
    fn odd_shares_are_no_reading_and_silence_keeps_the_last_one() {
        for odd in [r#""50""#, "null", "-1", "true"] {
            let line = token_count(&format!(r#"{{"primary":{{"used_percent":{odd},"resets_at":5}}}}"#));
            assert_eq!(decode(&[&line]).limits, None, "{odd}");
        }
        let known = token_count(r#"{"primary":{"used_percent":101,"window_minutes":300,"resets_at":7}}"#);
        let silent = token_count(r#"{"limit_id":"codex","primary":null,"secondary":null}"#);
        let limits = decode(&[&known, &silent]).limits.unwrap();
        assert_eq!(limits.exhausted_until(), Some(Timestamp::from_unix_s(7)));
    }

    #[test]
    fn only_a_window_that_is_used_up_tells_when_to_try_again() {
        let line = token_count(
            r#"{"primary":{"used_percent":100.0,"resets_at":9},"secondary":{"used_percent":99.9,"resets_at":99}}"#,
        );
        assert_eq!(decode(&[&line]).limits.unwrap().exhausted_until(), Some(Timestamp::from_unix_s(9)));
    }

    #[test]
    fn a_new_turn_forgets_the_failure_of_the_last() {
        let failed = r#"{"type":"event_msg","payload":{"type":"task_complete","last_agent_message":null,"error":{"message":"m","codex_error_info":"other"}}}"#;
        let started = r#"{"type":"event_msg","payload":{"type":"task_started"}}"#;
        assert_eq!(decode(&[failed]).failure.as_deref(), Some("m"));
        let summary = decode(&[failed, started, "{\"type\":", "", "[]"]);
        assert_eq!((summary.failure, summary.completed, summary.unreadable_lines), (None, false, 2));
    }
}
