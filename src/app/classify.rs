//! From the files that a worker left to a judgement of how it ended.

use super::context::Context;
use super::error::{AppResult, Doing};
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::report::marker;
use crate::domain::state::WorkerEnd;
use crate::domain::worker::Marker;
use crate::provider::codex::rollout::{RolloutDecoder, RolloutSummary};
use crate::provider::{Classification, Evidence, provider};

/// The most of the error output's end that is read.
const STDERR_TAIL_BYTES: u64 = 16 * 1024;

/// The most of the last message's file that is read.
const LAST_MESSAGE_BYTES: u64 = 8 * 1024 * 1024;

/// Judges how the worker of `plan` ended, from its stream, rollout, report and exit together.
pub fn classify(context: &Context, plan: &Plan, worker: &WorkerEnd) -> AppResult<(Classification, Option<Marker>)> {
    let knowledge = provider(plan.provider);
    let mut decoder = knowledge.decoder();
    context
        .runs
        .lines(&plan.run_dir, "events.jsonl", 0, true, &mut |line| decoder.skim(line))
        .doing("read the worker's stream")?;
    let stream = decoder.summary().clone();
    let rollout = rollout(context, plan, stream.session_id.as_deref())?;
    let stderr = read_text(context, plan, "stderr.log", STDERR_TAIL_BYTES)?.unwrap_or_default();
    let last_message = read_text(context, plan, "last-message.txt", LAST_MESSAGE_BYTES)?;
    let mut judged = knowledge.classify(&Evidence {
        plan,
        exit: worker.exit,
        stopped: worker.stopped,
        stream: &stream,
        rollout: rollout.as_ref(),
        last_message: last_message.as_deref(),
        stderr_tail: &stderr,
    });
    let found = judged.report.as_deref().and_then(|report| marker(plan.kind, report));
    if judged.outcome == Outcome::Ok && found.is_none() {
        judged.outcome = Outcome::ContractViolation;
        judged.error = Some("the report's first line is not the marker that the brief asks for".to_owned());
    }
    Ok((judged, found))
}

fn read_text(context: &Context, plan: &Plan, name: &str, limit_bytes: u64) -> AppResult<Option<String>> {
    let bytes = context.runs.read_tail(&plan.run_dir, name, limit_bytes).doing("read what the worker left")?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

fn rollout(context: &Context, plan: &Plan, session_id: Option<&str>) -> AppResult<Option<RolloutSummary>> {
    let (Some(home), Some(session_id)) = (&plan.codex_home, session_id) else {
        return Ok(None);
    };
    let Some(path) = context.runs.find_rollout(home, session_id) else {
        return Ok(None);
    };
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let mut decoder = RolloutDecoder::default();
    context.runs.lines(folder, name, 0, true, &mut |line| decoder.line(line)).doing("read the rollout")?;
    Ok(Some(decoder.summary().clone()))
}
