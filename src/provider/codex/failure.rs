//! What a failure that Codex reports means: by its kind in the rollout, else by its text.

use serde_json::Value;

use super::super::FailureKind;

/// Reads `codex_error_info` of a rollout; `other` and unknown kinds are told by the text alone.
pub(super) fn by_info(info: &Value, message: &str) -> FailureKind {
    let status = |name: &str| info.get(name).map(|detail| detail.get("http_status_code").and_then(Value::as_u64));
    match info.as_str() {
        Some("usage_limit_exceeded") => return FailureKind::UsageLimit,
        Some("context_window_exceeded") => return FailureKind::Context,
        Some("model_not_found") => return FailureKind::Model,
        Some("unauthorized") => return FailureKind::Login,
        Some("internal_server_error" | "server_overloaded" | "rate_limit_exceeded") => return FailureKind::Endpoint,
        Some(_) | None => {}
    }
    let known = ["http_connection_failed", "response_stream_connection_failed", "response_stream_disconnected"];
    match known.iter().find_map(|name| status(name)) {
        Some(code) => by_status(code, message),
        None if status("response_too_many_failed_attempts").is_some() => FailureKind::Endpoint,
        None => by_message(message),
    }
}

fn by_status(code: Option<u64>, message: &str) -> FailureKind {
    match code {
        Some(401 | 403) => FailureKind::Login,
        Some(404) if names_a_model(message) => FailureKind::Model,
        Some(400 | 413 | 422) => by_body(message),
        Some(_) | None => FailureKind::Endpoint,
    }
}

/// Tells a failure by the text that people read.
pub(super) fn by_message(message: &str) -> FailureKind {
    let text = message.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if has(&["usage limit", "quota exceeded", "upgrade to plus"]) {
        return FailureKind::UsageLimit;
    }
    if has(&["missing environment variable", "not logged in", "token data is not available"]) {
        return FailureKind::Login;
    }
    if let Some(code) = status_in(&text) {
        return by_status(Some(code), message);
    }
    if has(&["max_output_tokens"]) {
        return FailureKind::OutputLimit;
    }
    if has(&["content_filter", "safety", "cyber_policy"]) {
        return FailureKind::Refusal;
    }
    if has(&[
        "stream disconnected before completion",
        "connection failed",
        "error sending request",
        "exceeded retry limit",
        "rate limit",
        "experiencing high demand",
        "at capacity",
        "waiting for network",
        "timeout waiting for",
    ]) {
        return FailureKind::Endpoint;
    }
    by_body(message)
}

/// Tells a failure by what the server's own body says.
fn by_body(message: &str) -> FailureKind {
    let text = message.to_lowercase();
    if ["context length", "context window", "context_length", "context size", "prompt is too long"]
        .iter()
        .any(|part| text.contains(part))
    {
        FailureKind::Context
    } else if names_a_model(message) {
        FailureKind::Model
    } else {
        FailureKind::Other
    }
}

fn names_a_model(message: &str) -> bool {
    let text = message.to_lowercase();
    text.contains("model")
        && ["does not exist", "not found", "not supported"].iter().any(|part| text.contains(part))
        && !text.contains("\"detail\": \"not found\"")
}

/// The code in `unexpected status 503 Service Unavailable: ...`.
fn status_in(text: &str) -> Option<u64> {
    let rest = text.split("unexpected status ").nth(1)?;
    rest.split(' ').next()?.parse().ok()
}

/// Whether a text that tells of another try speaks of a refused login.
pub(super) fn is_login(message: &str) -> bool {
    by_message(message) == FailureKind::Login
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_kind_in_the_rollout_comes_first() {
        for (info, message, expected) in [
            (json!("usage_limit_exceeded"), "x", FailureKind::UsageLimit),
            (json!("context_window_exceeded"), "x", FailureKind::Context),
            (json!({"http_connection_failed": {"http_status_code": 401}}), "x", FailureKind::Login),
            (json!({"http_connection_failed": {"http_status_code": null}}), "x", FailureKind::Endpoint),
            (json!({"http_connection_failed": {"http_status_code": 503}}), "x", FailureKind::Endpoint),
            (json!({"response_too_many_failed_attempts": {"http_status_code": 429}}), "x", FailureKind::Endpoint),
            (json!("other"), "This model's maximum context length is 32768 tokens.", FailureKind::Context),
            (json!("something_new"), "Missing environment variable: `K`.", FailureKind::Login),
            (json!(null), "no idea", FailureKind::Other),
            (json!([1]), "stream disconnected before completion: x", FailureKind::Endpoint),
        ] {
            assert_eq!(by_info(&info, message), expected, "{info} {message}");
        }
    }

    #[test]
    fn the_text_alone_tells_enough() {
        for (message, expected) in [
            ("You\u{2019}ve hit your usage limit. Try again later.", FailureKind::UsageLimit),
            ("unexpected status 401 Unauthorized: no, url: http://h/v1/responses", FailureKind::Login),
            ("unexpected status 404 Not Found: The model `m` does not exist., url: u", FailureKind::Model),
            ("unexpected status 404 Not Found: {\"detail\": \"Not Found\"}, url: u", FailureKind::Endpoint),
            ("unexpected status 422 Unprocessable Entity: field required, url: u", FailureKind::Other),
            ("Connection failed: error sending request", FailureKind::Endpoint),
            ("Incomplete response returned, reason: max_output_tokens", FailureKind::OutputLimit),
        ] {
            assert_eq!(by_message(message), expected, "{message}");
        }
    }
}
