//! `lane watch`: one readable line an event.

use std::collections::BTreeMap;

use super::arguments::WatchArguments;
use super::output::Output;
use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::ports::LaneRow;
use crate::app::{lanes, reconcile};
use crate::domain::ids::LaneId;
use crate::domain::state::State;
use crate::domain::time::Millis;
use crate::domain::worker::WorkerEvent;
use crate::provider::{Decoder, provider};

/// How long it sleeps when nothing wakes it.
const SLEEP: Millis = Millis(250);

struct Followed {
    row: LaneRow,
    decoder: Box<dyn Decoder>,
    offset: u64,
}

/// Follows one lane, or all that run, until they have ended.
pub fn run(context: &Context, arguments: &WatchArguments, output: &Output) -> AppResult<u8> {
    let named = arguments.id.as_deref().map(|id| lanes::lane(context, id)).transpose()?;
    let mut followed: BTreeMap<LaneId, Followed> = BTreeMap::new();
    let mut prefix = false;
    loop {
        reconcile::reconcile(context)?;
        let rows = match &named {
            Some(row) => vec![lanes::require_lane(context, &row.plan.lane_id)?],
            None => context.ledger.live().doing("read the ledger")?,
        };
        for row in rows {
            followed.entry(row.plan.lane_id.clone()).or_insert_with(|| follow(row));
        }
        prefix = prefix || followed.len() > 1;
        let mut there = true;
        let mut ended = Vec::new();
        for (lane_id, lane) in &mut followed {
            let row = lanes::require_lane(context, lane_id)?;
            there = there && print_new(context, lane, prefix, output)?;
            if let State::Ended { outcome, .. } = row.state {
                let end = format!("ended: {}", outcome.as_str());
                there = there && output.bytes(line(lane_id, prefix, &end).as_bytes());
                ended.push(lane_id.clone());
            }
        }
        followed.retain(|lane_id, _| !ended.contains(lane_id));
        if followed.is_empty() || !there {
            return Ok(0);
        }
        let folders: Vec<_> = followed.values().map(|lane| lane.row.plan.run_dir.clone()).collect();
        context.runs.wait_for_change(&folders, SLEEP).doing("follow the lanes")?;
    }
}

fn follow(row: LaneRow) -> Followed {
    let decoder = provider(row.plan.provider).decoder();
    Followed { row, decoder, offset: 0 }
}

fn print_new(context: &Context, lane: &mut Followed, prefix: bool, output: &Output) -> AppResult<bool> {
    let mut there = true;
    let plan = &lane.row.plan;
    let decoder = lane.decoder.as_mut();
    lane.offset = context
        .runs
        .lines(&plan.run_dir, "events.jsonl", lane.offset, false, &mut |bytes| {
            for event in decoder.line(bytes).iter().filter(|event| is_worth_a_line(event)) {
                if let Some(text) = lanes::describe(event) {
                    there = there && output.bytes(line(&plan.lane_id, prefix, &text).as_bytes());
                }
            }
        })
        .doing("read the worker's stream")?;
    Ok(there)
}

/// A command that ended well says nothing new.
fn is_worth_a_line(event: &WorkerEvent) -> bool {
    match event {
        WorkerEvent::CommandEnded { exit_code, .. } => exit_code.is_some_and(|code| code != 0),
        WorkerEvent::SessionStarted { .. }
        | WorkerEvent::CommandStarted { .. }
        | WorkerEvent::FilesEdited { .. }
        | WorkerEvent::Said { .. }
        | WorkerEvent::Waiting { .. }
        | WorkerEvent::PermissionDenied { .. }
        | WorkerEvent::RateLimit { .. }
        | WorkerEvent::Notice { .. }
        | WorkerEvent::TurnEnded { .. } => true,
    }
}

fn line(lane_id: &LaneId, prefix: bool, text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if prefix { format!("{lane_id}: {text}\n") } else { format!("{text}\n") }
}
