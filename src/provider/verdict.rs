//! What both CLIs' classifications share: words for ends, and the frame that is filled in.

use super::text::{SHORT_MAX_BYTES, clip};
use super::{Classification, Evidence, FailureKind};
use crate::domain::outcome::Outcome;
use crate::domain::state::StopReason;
use crate::domain::worker::ProcessExit;

/// The most bytes of error output that stand in an error text.
const STDERR_MAX_BYTES: usize = 2 << 10;

/// How a lane ends that Lane itself stopped.
pub(super) const fn stopped(reason: StopReason) -> Outcome {
    match reason {
        StopReason::Timeout => Outcome::Timeout,
        StopReason::Stalled => Outcome::Stalled,
        StopReason::Cancelled => Outcome::Cancelled,
        StopReason::Auth => Outcome::Auth,
        StopReason::MachineRestarted => Outcome::Lost,
    }
}

/// How a lane ends whose CLI reported such a failure.
pub(super) const fn failed(kind: FailureKind) -> Outcome {
    match kind {
        FailureKind::UsageLimit => Outcome::Capped,
        FailureKind::Login => Outcome::Auth,
        FailureKind::Endpoint => Outcome::Endpoint,
        FailureKind::Context => Outcome::ContextFull,
        FailureKind::Refusal => Outcome::ModelRefused,
        FailureKind::OutputLimit => Outcome::OutputLimit,
        FailureKind::Sandbox | FailureKind::Start => Outcome::Error,
        FailureKind::Model | FailureKind::Interrupted | FailureKind::Other => Outcome::WorkerError,
    }
}

/// The signal that ended the worker, whether the kernel says so or its own exit code (128 + n).
pub(super) const fn signal(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Signal(number) => Some(number),
        ProcessExit::Code(code @ (129 | 130 | 131 | 134 | 137 | 139 | 143)) => Some(code - 128),
        ProcessExit::Code(_) | ProcessExit::Unknown => None,
    }
}

/// How an exit is told to people.
pub(super) fn exit_words(exit: ProcessExit) -> String {
    match (signal(exit), exit) {
        (Some(number), _) => format!("the worker was ended by signal {number}, which Lane did not send"),
        (None, ProcessExit::Code(code)) => format!("the worker exited with {code}"),
        (None, ProcessExit::Signal(_) | ProcessExit::Unknown) => {
            "the worker is gone, and nobody saw how it ended".to_owned()
        }
    }
}

/// The end of the error output, for an error text; `None` when it says nothing.
pub(super) fn stderr_words(tail: &str) -> Option<String> {
    let tail = tail.trim();
    let skip = tail.len().saturating_sub(STDERR_MAX_BYTES);
    let start = (skip..=tail.len()).find(|start| tail.is_char_boundary(*start))?;
    tail.get(start..).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// `what`, followed by the end of the error output where it says something.
pub(super) fn with_stderr(what: &str, tail: &str) -> String {
    match stderr_words(tail) {
        Some(words) => format!("{what}: {words}"),
        None => what.to_owned(),
    }
}

/// A report that says something, else `None`.
pub(super) fn not_blank(report: Option<&str>) -> Option<String> {
    report.filter(|text| !text.trim().is_empty()).map(str::to_owned)
}

/// Builds the classification that every end shares, with what the stream knows.
pub(super) fn frame(evidence: &Evidence<'_>, outcome: Outcome, error: Option<String>) -> Classification {
    let stream = evidence.stream;
    let mut warnings = stream.notices.clone();
    if stream.unreadable_lines > 0 {
        warnings.push(format!("{} lines of the event stream could not be read", stream.unreadable_lines));
    }
    if !stream.permission_denials.is_empty() {
        warnings.push(format!("{} tool calls of the worker were denied", stream.permission_denials.len()));
    }
    if outcome == Outcome::Ok && evidence.exit == ProcessExit::Unknown {
        warnings.push("the worker's exit status is not known; its stream and its report are complete".to_owned());
    }
    Classification {
        outcome,
        error: error.map(|text| clip(&text, SHORT_MAX_BYTES)),
        retry_at: None,
        report: None,
        model_verified: stream.model.clone(),
        effort_recorded: None,
        session_id: stream.session_id.clone(),
        tokens: stream.tokens,
        cost_usd: stream.cost_usd,
        permission_denials: stream.permission_denials.clone(),
        warnings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_code_too() {
        assert_eq!(signal(ProcessExit::Signal(9)), Some(9));
        assert_eq!(signal(ProcessExit::Code(143)), Some(15));
        assert_eq!(signal(ProcessExit::Code(1)), None);
        assert_eq!(signal(ProcessExit::Code(255)), None);
        assert_eq!(signal(ProcessExit::Unknown), None);
    }

    #[test]
    fn stderr_is_cut_between_characters_from_its_end() {
        assert_eq!(stderr_words(" \n"), None);
        assert_eq!(with_stderr("x", ""), "x");
        let long = format!("{}end", "\u{e9}".repeat(5000));
        let words = stderr_words(&long).unwrap();
        assert!(words.ends_with("end") && words.len() <= STDERR_MAX_BYTES, "{}", words.len());
    }
}
