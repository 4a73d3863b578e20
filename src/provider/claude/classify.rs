//! How the end of a Claude Code worker is to be read: exit, stream and error output together.

use super::super::verdict::{exit_words, failed, frame, not_blank, signal, stopped, with_stderr};
use super::super::{Classification, Evidence};
use crate::domain::outcome::Outcome;
use crate::domain::worker::ProcessExit;

/// Judges how a Claude Code worker ended.
pub(super) fn classify(evidence: &Evidence<'_>) -> Classification {
    let report = not_blank(evidence.stream.final_text.as_deref());
    let (outcome, error) = judge(evidence, report.is_some());
    let mut classification = frame(evidence, outcome, error);
    classification.report = report;
    if outcome == Outcome::Capped {
        classification.retry_at = evidence.stream.resets_at;
    }
    classification.warnings.extend(warnings(evidence));
    classification
}

/// What the CLI takes without complaint though it is not what was asked for.
fn warnings(evidence: &Evidence<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let (Some(asked), Some(given)) = (&evidence.plan.session_id, &evidence.stream.session_id)
        && asked != given
    {
        warnings.push(format!("the session is `{given}`, asked for was `{asked}`"));
    }
    // An alias such as `opus` is part of the name of every model that it may stand for; what follows
    // in brackets is a setting, not a name.
    let asked = evidence.plan.model.split('[').next().unwrap_or_default();
    if let Some(model) = evidence.stream.model.as_deref().filter(|model| !model.contains(asked)) {
        warnings.push(format!("the worker ran with the model `{model}`, asked for was `{}`", evidence.plan.model));
    }
    let told = ["[claude-code:unrecognized_model]", "Warning: Unknown --effort value"];
    let lines = evidence.stderr_tail.lines().filter(|line| told.iter().any(|start| line.starts_with(start)));
    warnings.extend(lines.take(2).map(str::to_owned));
    warnings
}

fn judge(evidence: &Evidence<'_>, has_report: bool) -> (Outcome, Option<String>) {
    let stream = evidence.stream;
    if let Some(reason) = evidence.stopped {
        return (stopped(reason), stream.failure.clone());
    }
    if !stream.clean_end
        && let (Some(text), Some(kind)) = (&stream.failure, stream.failure_kind)
    {
        return (failed(kind), Some(text.clone()));
    }
    if stream.clean_end {
        return judge_clean(evidence, has_report);
    }
    judge_cut(evidence)
}

fn judge_clean(evidence: &Evidence<'_>, has_report: bool) -> (Outcome, Option<String>) {
    match evidence.exit {
        ProcessExit::Code(0) | ProcessExit::Unknown if has_report => (Outcome::Ok, None),
        ProcessExit::Code(0) | ProcessExit::Unknown => {
            (Outcome::NoReport, Some("the turn ended well, but its last message is blank".to_owned()))
        }
        ProcessExit::Code(_) | ProcessExit::Signal(_) => {
            let what = format!("the turn ended well, but {}", exit_words(evidence.exit));
            (Outcome::WorkerError, Some(with_stderr(&what, evidence.stderr_tail)))
        }
    }
}

/// The stream has no result.
fn judge_cut(evidence: &Evidence<'_>) -> (Outcome, Option<String>) {
    let exit = evidence.exit;
    let words = |what: &str| Some(with_stderr(what, evidence.stderr_tail));
    match exit {
        ProcessExit::Unknown => (Outcome::Lost, words(&exit_words(exit))),
        ProcessExit::Code(0) => (Outcome::NoReport, words("the event stream has no result")),
        ProcessExit::Code(code) if !evidence.stream.any_event && signal(exit).is_none() => {
            (Outcome::Error, words(&format!("Claude Code did not start (exit {code})")))
        }
        ProcessExit::Code(_) | ProcessExit::Signal(_) => (Outcome::WorkerError, words(&exit_words(exit))),
    }
}
