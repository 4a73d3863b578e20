//! How the end of a Codex worker is to be read: exit, stream, rollout and last message together.

use super::super::verdict::{exit_words, failed, frame, not_blank, signal, stopped, with_stderr};
use super::super::{Classification, Evidence, FailureKind};
use crate::domain::outcome::Outcome;
use crate::domain::worker::ProcessExit;

/// Judges how a Codex worker ended.
pub(super) fn classify(evidence: &Evidence<'_>) -> Classification {
    let report = report(evidence);
    let (outcome, error) = judge(evidence, report.as_deref());
    let mut classification = frame(evidence, outcome, error);
    classification.report = report;
    if let Some(rollout) = evidence.rollout {
        classification.model_verified = rollout.model.clone();
        classification.effort_recorded = rollout.effort.clone();
        // The stream counts the whole thread on a resume, the rollout this turn alone.
        classification.tokens = rollout.turn_tokens.or(classification.tokens);
        classification.session_id = classification.session_id.or_else(|| rollout.session_id.clone());
        if outcome == Outcome::Capped {
            classification.retry_at = rollout.limits.as_ref().and_then(|limits| limits.exhausted_until());
        }
    }
    classification.warnings.extend(mismatches(evidence));
    classification
}

/// Says where the rollout names another model or effort than was asked for.
fn mismatches(evidence: &Evidence<'_>) -> Vec<String> {
    let Some(rollout) = evidence.rollout else { return Vec::new() };
    let differs = |recorded: &Option<String>, asked: &str, what: &str| {
        let recorded = recorded.as_deref().filter(|recorded| *recorded != asked)?;
        Some(format!("the worker ran with the {what} `{recorded}`, asked for was `{asked}`"))
    };
    let model = differs(&rollout.model, &evidence.plan.model, "model");
    let effort = differs(&rollout.effort, evidence.plan.effort.as_str(), "effort");
    model.into_iter().chain(effort).collect()
}

/// The worker's last message. A clean exit is told by the file that Codex writes for it, which may
/// be empty though the worker spoke before; on any other end that file may be a stale one.
fn report(evidence: &Evidence<'_>) -> Option<String> {
    let said = || not_blank(evidence.stream.final_text.as_deref());
    if evidence.exit != ProcessExit::Code(0) || !evidence.stream.clean_end {
        return said();
    }
    match (evidence.last_message, evidence.rollout.filter(|rollout| rollout.completed)) {
        (Some(text), _) => not_blank(Some(text)),
        (None, Some(rollout)) => not_blank(rollout.last_agent_message.as_deref()),
        (None, None) => said(),
    }
}

fn judge(evidence: &Evidence<'_>, report: Option<&str>) -> (Outcome, Option<String>) {
    let stream = evidence.stream;
    if let Some(reason) = evidence.stopped {
        return (stopped(reason), stream.failure.clone());
    }
    if let Some((kind, text)) = failure(evidence) {
        return (failed(kind), Some(text));
    }
    if stream.clean_end {
        return judge_clean(evidence, report);
    }
    if let Some(reason) = evidence.rollout.and_then(|rollout| rollout.aborted.as_deref()) {
        return (Outcome::WorkerError, Some(format!("the turn was broken off: {reason}")));
    }
    judge_cut(evidence)
}

/// What the CLI says went wrong; the rollout knows the kind, the stream only the text.
fn failure(evidence: &Evidence<'_>) -> Option<(FailureKind, String)> {
    let stream = evidence.stream;
    let kind = stream.failure_kind.filter(|_| stream.failure.is_some());
    let rollout = evidence.rollout.filter(|_| !stream.clean_end).and_then(|rollout| rollout.failure_kind);
    let kind = rollout.or(kind)?;
    let recorded = evidence.rollout.and_then(|rollout| rollout.failure.clone());
    Some((kind, stream.failure.clone().or(recorded).unwrap_or_default()))
}

fn judge_clean(evidence: &Evidence<'_>, report: Option<&str>) -> (Outcome, Option<String>) {
    match evidence.exit {
        ProcessExit::Code(0) | ProcessExit::Unknown if report.is_some() => (Outcome::Ok, None),
        ProcessExit::Code(0) | ProcessExit::Unknown => {
            (Outcome::NoReport, Some("the turn ended well, but without a last message".to_owned()))
        }
        ProcessExit::Code(_) | ProcessExit::Signal(_) => {
            let what = format!("the turn ended well, but {}", exit_words(evidence.exit));
            (Outcome::WorkerError, Some(with_stderr(&what, evidence.stderr_tail)))
        }
    }
}

/// The stream has no end that says how it went.
fn judge_cut(evidence: &Evidence<'_>) -> (Outcome, Option<String>) {
    let exit = evidence.exit;
    let words = |what: &str| Some(with_stderr(what, evidence.stderr_tail));
    if exit == ProcessExit::Unknown {
        return (Outcome::Lost, words(&exit_words(exit)));
    }
    if exit == ProcessExit::Code(0) {
        return (Outcome::NoReport, words("the event stream has no end"));
    }
    let started_badly = !evidence.stream.any_event || refuses_to_start(evidence.stderr_tail);
    match exit {
        ProcessExit::Code(code) if signal(exit).is_none() && code != 101 && started_badly => {
            (Outcome::Error, words(&format!("Codex did not start (exit {code})")))
        }
        ProcessExit::Code(101) => (Outcome::WorkerError, words("Codex crashed")),
        ProcessExit::Code(_) | ProcessExit::Signal(_) | ProcessExit::Unknown => {
            (Outcome::WorkerError, words(&exit_words(exit)))
        }
    }
}

/// Whether the error output holds Codex's own words for a start that failed after the first event.
fn refuses_to_start(stderr: &str) -> bool {
    stderr.lines().any(|line| line.starts_with("Error: thread/") || line.starts_with("Error: turn/"))
}
