//! The end of a Claude turn: what failed, what it cost, when a limit ends.

use serde_json::Value;

use super::super::FailureKind;
use super::super::text::{SHORT_MAX_BYTES, clip};
use super::lines::ResultLine;
use crate::domain::time::Timestamp;
use crate::domain::worker::{Tokens, WorkerEvent};

/// What is known of a failed turn besides its result.
#[derive(Clone, Debug, Default)]
pub(super) struct Hints {
    /// The word in the message that the CLI made up because a request failed.
    pub(super) assistant_error: Option<String>,
    /// Whether the account was refused because of its limit.
    pub(super) rejected: bool,
}

/// Tells what kind of failure a result reports.
pub(super) fn failure_kind(result: &ResultLine, hints: &Hints) -> FailureKind {
    let api_error = result.api_error.as_ref().and_then(Value::as_str).unwrap_or_default();
    let terminal = result.terminal_reason.as_deref().unwrap_or_default();
    let assistant = hints.assistant_error.as_deref().unwrap_or_default();
    let status = result.api_error_status;
    let never_asked = result.subtype.as_deref() == Some("error_during_execution") && result.num_turns == Some(0);
    if never_asked || result.startup_failure_reason.is_some() {
        return FailureKind::Start;
    }
    if api_error == "usage_limit_reached" || assistant == "billing_error" || tells_of_a_limit(result) {
        return FailureKind::UsageLimit;
    }
    if assistant == "rate_limit" || status == Some(429) {
        return if hints.rejected { FailureKind::UsageLimit } else { FailureKind::Endpoint };
    }
    if assistant == "authentication_failed" || matches!(status, Some(401 | 403)) {
        return FailureKind::Login;
    }
    if terminal == "prompt_too_long" {
        return FailureKind::Context;
    }
    if result.stop_reason.as_deref() == Some("refusal") {
        return FailureKind::Refusal;
    }
    if api_error == "max_output_tokens" || assistant == "max_output_tokens" {
        return FailureKind::OutputLimit;
    }
    if assistant == "model_not_found" || status == Some(404) {
        return FailureKind::Model;
    }
    if terminal.starts_with("aborted") {
        return FailureKind::Interrupted;
    }
    let endpoint = api_error == "connection_failed" || matches!(assistant, "server_error" | "overloaded" | "unknown");
    if endpoint || status.is_some_and(|status| status >= 500) { FailureKind::Endpoint } else { FailureKind::Other }
}

/// Whether the text is the one that people see at their usage limit.
fn tells_of_a_limit(result: &ResultLine) -> bool {
    let text = result_text(result).unwrap_or_default().to_lowercase();
    text.contains("usage limit") || (text.starts_with("you've hit your") && text.contains("limit"))
}

/// The text of a failure.
pub(super) fn failure_text(result: &ResultLine) -> String {
    let errors = result.errors.iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
    let text = result_text(result).map(str::to_owned).filter(|text| !text.trim().is_empty());
    let text = text.or_else(|| Some(errors).filter(|errors| !errors.is_empty()));
    let reason = result.terminal_reason.as_deref().or(result.subtype.as_deref()).unwrap_or("the turn failed");
    clip(&text.unwrap_or_else(|| reason.to_owned()), SHORT_MAX_BYTES)
}

/// The text of a result, where it is one.
pub(super) fn result_text(result: &ResultLine) -> Option<&str> {
    result.result.as_ref().and_then(Value::as_str)
}

/// The sum over all models; `None` when no model was asked, or nothing can be read.
pub(super) fn tokens(model_usage: Option<&Value>) -> Option<Tokens> {
    let models = model_usage?.as_object().filter(|models| !models.is_empty())?;
    let mut sum = Tokens::default();
    for usage in models.values() {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        sum.input = sum.input.saturating_add(count("inputTokens"));
        sum.cached_input = sum.cached_input.saturating_add(count("cacheReadInputTokens"));
        sum.cache_write_input = sum.cache_write_input.saturating_add(count("cacheCreationInputTokens"));
        sum.output = sum.output.saturating_add(count("outputTokens"));
        sum.reasoning = sum.reasoning.saturating_add(count("thinkingTokens"));
    }
    Some(sum)
}

/// Reads a limit's reading.
///
/// The window that the CLI names counts; `rejected` with paid overage in use is no stop.
pub(super) fn rate_limit(info: &Value) -> WorkerEvent {
    let named = info.get("rateLimitType").and_then(Value::as_str);
    let windows = info.get("unifiedWindows").and_then(Value::as_object);
    let share = |window: &Value| window.get("utilization").and_then(Value::as_f64).filter(|share| share.is_finite());
    let window = named.and_then(|name| windows?.get(name)).or_else(|| {
        let by_share = |a: &&Value, b: &&Value| share(a).unwrap_or(0.0).total_cmp(&share(b).unwrap_or(0.0));
        windows?.values().max_by(by_share)
    });
    let seconds = |value: &Value| value.get("resetsAt").and_then(Value::as_i64).filter(|at| *at > 0);
    let over = info.get("isUsingOverage").and_then(Value::as_bool).unwrap_or(false);
    WorkerEvent::RateLimit {
        used_percent: window.and_then(share).map(|share| share * 100.0),
        resets_at: seconds(info).or_else(|| window.and_then(seconds)).map(Timestamp::from_unix_s),
        rejected: info.get("status").and_then(Value::as_str) == Some("rejected") && !over,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::text::read;
    use super::*;

    fn kind(line: &str, hints: &Hints) -> FailureKind {
        failure_kind(&read(line.as_bytes()).unwrap(), hints)
    }

    #[test]
    fn failures_are_told_apart_by_whatever_says_most() {
        let said = |word: &str| Hints { assistant_error: Some(word.to_owned()), rejected: false };
        let none = Hints::default();
        for (line, hints, expected) in [
            (r#"{"api_error":"usage_limit_reached","api_error_status":429}"#, &none, FailureKind::UsageLimit),
            (r#"{"result":"You've hit your weekly limit \u00b7 resets 1pm"}"#, &none, FailureKind::UsageLimit),
            (r#"{"api_error_status":429}"#, &said("rate_limit"), FailureKind::Endpoint),
            (r#"{"api_error_status":429}"#, &Hints { rejected: true, ..none.clone() }, FailureKind::UsageLimit),
            (r#"{"api_error_status":403}"#, &none, FailureKind::Login),
            (r#"{"api_error_status":529}"#, &none, FailureKind::Endpoint),
            (r#"{"api_error":"connection_failed"}"#, &said("server_error"), FailureKind::Endpoint),
            (r#"{"stop_reason":"refusal"}"#, &said("invalid_request"), FailureKind::Refusal),
            (r#"{"terminal_reason":"prompt_too_long","api_error_status":400}"#, &none, FailureKind::Context),
            (r#"{"terminal_reason":"aborted_tools"}"#, &none, FailureKind::Interrupted),
            (r#"{"startup_failure_reason":"x","result":"usage limit"}"#, &none, FailureKind::Start),
            (r#"{"subtype":"error_during_execution","num_turns":0}"#, &none, FailureKind::Start),
            (r#"{"is_error":true,"subtype":"success"}"#, &none, FailureKind::Other),
        ] {
            assert_eq!(kind(line, hints), expected, "{line}");
        }
    }

    #[test]
    fn a_reading_is_that_of_the_window_it_names() {
        let info = serde_json::json!({
            "status": "rejected", "rateLimitType": "seven_day", "resetsAt": 9,
            "unifiedWindows": {"five_hour": {"utilization": 0.9}, "seven_day": {"utilization": 1.0, "resetsAt": 9}},
        });
        let event = WorkerEvent::RateLimit {
            used_percent: Some(100.0),
            resets_at: Some(Timestamp::from_unix_s(9)),
            rejected: true,
        };
        assert_eq!(rate_limit(&info), event);
        let silent = WorkerEvent::RateLimit { used_percent: None, resets_at: None, rejected: false };
        assert_eq!(rate_limit(&serde_json::json!({"status": "allowed"})), silent);
        assert_eq!(rate_limit(&serde_json::json!(7)), silent);
    }
}
