//! Finding lanes by id, and what is told of one.

use super::context::Context;
use super::error::{AppResult, Doing};
use super::ports::{Counts, LaneFilter, LaneRow};
use super::reconcile::reconcile;
use crate::domain::ids::LaneId;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::worker::WorkerEvent;
use crate::provider::provider;

/// The most of a stream's end that is read to say what a worker was last seen doing.
const LAST_EVENT_BYTES: u64 = 256 * 1024;

/// Returns the one lane whose id is, begins or ends with `text`.
pub fn find(context: &Context, text: &str) -> AppResult<LaneId> {
    let found = context.ledger.find(text).doing("look for the lane")?;
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(Refusal::new(
            RefusalStatus::UnknownLane,
            format!("no lane has an id that is, begins or ends with `{text}`"),
            "`lane status --all` lists them",
        )
        .into()),
        several => {
            let ids: Vec<&str> = several.iter().map(LaneId::as_str).collect();
            Err(Refusal::new(
                RefusalStatus::AmbiguousLane,
                format!("{} lanes have an id like `{text}`: {}", ids.len(), ids.join(", ")),
                "give more of the id",
            )
            .into())
        }
    }
}

/// Returns a lane that is known to exist.
pub fn require_lane(context: &Context, lane_id: &LaneId) -> AppResult<LaneRow> {
    context.ledger.lane(lane_id).doing("read the ledger")?.ok_or_else(|| {
        Refusal::new(
            RefusalStatus::UnknownLane,
            format!("there is no lane {lane_id}"),
            "`lane status --all` lists them",
        )
        .into()
    })
}

/// Reconciles, and returns one lane.
pub fn lane(context: &Context, text: &str) -> AppResult<LaneRow> {
    reconcile(context)?;
    require_lane(context, &find(context, text)?)
}

/// Reconciles, and returns lanes, newest first, with the counts.
pub fn list(context: &Context, filter: &LaneFilter) -> AppResult<(Counts, Vec<LaneRow>)> {
    reconcile(context)?;
    let rows = context.ledger.recent(filter).doing("read the ledger")?;
    Ok((context.ledger.counts().doing("read the ledger")?, rows))
}

/// Returns what the worker of a live lane was last seen doing, in a few words.
pub fn last_event(context: &Context, row: &LaneRow) -> Option<String> {
    let tail = context.runs.read_tail(&row.plan.run_dir, "events.jsonl", LAST_EVENT_BYTES).ok()??;
    let mut decoder = provider(row.plan.provider).decoder();
    let mut last = None;
    for line in tail.split(|byte| *byte == b'\n') {
        for event in decoder.line(line) {
            last = describe(&event).or(last);
        }
    }
    last
}

/// Says in one short line what a worker did; `None` for what no reader needs.
pub fn describe(event: &WorkerEvent) -> Option<String> {
    match event {
        WorkerEvent::SessionStarted { .. } => Some("session started".to_owned()),
        WorkerEvent::CommandStarted { command, .. } => Some(format!("runs {}", first_line(command))),
        WorkerEvent::CommandEnded { exit_code: Some(0), .. } => Some("command ended".to_owned()),
        WorkerEvent::CommandEnded { exit_code: Some(code), .. } => Some(format!("command exited {code}")),
        WorkerEvent::CommandEnded { exit_code: None, .. } => Some("command ended".to_owned()),
        WorkerEvent::FilesEdited { paths } => Some(format!("edited {}", paths.join(", "))),
        WorkerEvent::Said { text } => Some(format!("says {}", first_line(text))),
        WorkerEvent::Waiting { reason, attempt, .. } => {
            Some(format!("waiting (try {attempt}): {}", first_line(reason)))
        }
        WorkerEvent::PermissionDenied { tool } => Some(format!("denied: {tool}")),
        WorkerEvent::RateLimit { used_percent: Some(used), .. } => Some(format!("limit at {used:.0} %")),
        WorkerEvent::RateLimit { used_percent: None, .. } => None,
        WorkerEvent::Notice { text } => Some(format!("notice: {}", first_line(text))),
        WorkerEvent::TurnEnded { clean: true, .. } => Some("turn ended".to_owned()),
        WorkerEvent::TurnEnded { clean: false, error } => {
            Some(format!("turn failed: {}", first_line(error.as_deref().unwrap_or("no reason given"))))
        }
    }
}

/// The first line of a text, at most 200 characters.
pub fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(200).collect();
    if short.len() < text.trim().len() {
        short.push('\u{2026}');
    }
    short
}
