//! Reconcile first, then answer: what every command does about lanes whose supervisor is gone,
//! and about free slots with lanes waiting.

use super::context::Context;
use super::error::{AppError, AppResult, Doing};
use super::ports::{Claim, LaneRow, PortErrorKind, PortResult};
use super::run::start;
use crate::domain::admission::Verdict;
use crate::domain::ids::LaneId;

/// Gives each live lane without a supervisor a new one, and starts the lanes that may leave the queue.
///
/// Its cost grows with the live and the queued lanes only. What cannot be done for one lane (a state
/// folder that cannot be written, a run folder that is not ours) is said on stderr and keeps neither
/// the other lanes nor the caller from going on: the lane is returned, with why.
///
/// # Errors
///
/// When the ledger cannot be read.
pub fn reconcile(context: &Context) -> AppResult<Vec<(LaneId, AppError)>> {
    let mut failed = Vec::new();
    if is_inside_a_lane(context) {
        return Ok(failed);
    }
    for row in context.ledger.live().doing("read the ledger")? {
        if let Err(error) = recover(context, &row) {
            context.notes.once(format!("nobody looks after lane {}: {error}", row.plan.lane_id));
            failed.push((row.plan.lane_id, error));
        }
    }
    if let Err(error) = promote(context) {
        context.notes.once(format!("the queue does not move: {error}"));
    }
    Ok(failed)
}

/// A supervisor that was started inside a lane would end with that lane, so none is started there.
fn is_inside_a_lane(context: &Context) -> bool {
    context.surroundings.variable("LANE_ID").is_some()
}

/// Starts a new supervisor for a live lane that has none.
pub fn recover(context: &Context, row: &LaneRow) -> AppResult<()> {
    let run_dir = &row.plan.run_dir;
    if context.runs.is_claimed(run_dir).unwrap_or(false) {
        return Ok(());
    }
    let claim = match claim_opened(context, run_dir) {
        Ok(claim) => claim,
        Err(error) if error.kind == PortErrorKind::Held => return Ok(()),
        Err(error) => return end_unreachable(context, row, &error.to_string()),
    };
    // Between the look and the lock the lane may have ended.
    let now = context.ledger.lane(&row.plan.lane_id).doing("read the ledger")?;
    if now.is_some_and(|row| row.state.holds_slot()) {
        start(context, &row.plan, claim)?;
    }
    Ok(())
}

/// Takes the lock, if need be after giving the owner back the rights that a worker took away.
fn claim_opened(context: &Context, run_dir: &std::path::Path) -> PortResult<Claim> {
    match context.runs.claim(run_dir) {
        Err(error) if error.kind != PortErrorKind::Held => {
            context.runs.reopen(run_dir);
            context.runs.claim(run_dir)
        }
        answer => answer,
    }
}

/// A lane whose run folder is gone can never be supervised again: its slot, or its place in the
/// queue, must not stay taken.
fn end_unreachable(context: &Context, row: &LaneRow, error: &str) -> AppResult<()> {
    if context.machine.exists(&row.plan.run_dir) && !context.runs.lock_is_broken(&row.plan.run_dir) {
        return Err(super::ports::PortError::other(error.to_owned())).doing("lock a run folder");
    }
    let swept = context.processes.sweep_lane(&row.plan.lane_id).doing("end what is left of a lane")?;
    let text = format!(
        "its run folder is gone or broken ({error}); what its worker left is in {}, or on branch {}",
        row.plan.checkout_path.display(),
        row.plan.lane_id.branch()
    );
    let mut end = crate::domain::result::LaneEnd::without_worker(
        &row.plan,
        crate::domain::outcome::Outcome::Lost,
        Some(text),
        context.clock.now(),
    );
    end.leftover_processes = swept;
    let event = crate::domain::state::LaneEvent::Ended { end: Box::new(end) };
    match context.ledger.append(&row.plan.lane_id, &event, context.clock.now()) {
        Err(error) if error.kind == PortErrorKind::Illegal => Ok(()),
        answer => answer.map(|_| ()).doing("record the end"),
    }
}

/// Starts the lanes at the head of the queue while there are slots.
///
/// A lane whose lock somebody else holds is left to them. So that no free slot is missed between
/// two that do this at once, the ledger is looked at again after the last lock was let go: whoever
/// found a lock held had recorded its event before.
pub fn promote(context: &Context) -> AppResult<()> {
    if is_inside_a_lane(context) {
        return Ok(());
    }
    loop {
        let counts = context.ledger.counts().doing("read the ledger")?;
        if counts.queued == 0 || counts.running >= context.settings.max_concurrent {
            return Ok(());
        }
        let before = context.ledger.newest_event().doing("read the ledger")?;
        promote_once(context)?;
        if context.ledger.newest_event().doing("read the ledger")? == before {
            return Ok(());
        }
    }
}

fn promote_once(context: &Context) -> AppResult<()> {
    for row in context.ledger.queued().doing("read the ledger")? {
        let claim = match context.runs.claim(&row.plan.run_dir) {
            Ok(claim) => claim,
            Err(error) if error.kind == PortErrorKind::Held => return Ok(()),
            // Its place in the queue must not stay taken by a lane that can never start.
            Err(error) => {
                end_unreachable(context, &row, &error.to_string())?;
                continue;
            }
        };
        let max = context.settings.max_concurrent;
        match context.ledger.promote(&row.plan.lane_id, max, context.clock.now()) {
            Ok(Verdict::Admit) => start(context, &row.plan, claim)?,
            Ok(Verdict::NoSlot { .. }) => return Ok(()),
            Ok(Verdict::QueueAhead { .. } | Verdict::PathTaken { .. }) => {}
            // It was cancelled or promoted meanwhile.
            Err(error) if error.kind == PortErrorKind::Illegal => {}
            Err(error) => return Err(error).doing("start a queued lane"),
        }
    }
    Ok(())
}
