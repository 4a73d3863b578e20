//! `lane wait`: block until lanes have ended, without polling.

use super::context::Context;
use super::error::{AppResult, Doing};
use super::lanes::require_lane;
use super::ports::LaneRow;
use super::reconcile::reconcile;
use crate::domain::ids::LaneId;
use crate::domain::state::State;
use crate::domain::time::Millis;

/// Sleep at most so long at once: a supervisor that could not be watched is noticed after that.
const LONGEST_SLEEP: Millis = Millis::from_secs(5);

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// Whether one of the lanes is enough.
    pub any: bool,
    /// How long at most; `None` for as long as it takes.
    pub limit: Option<Millis>,
}

/// Returns the lanes once all (or any) of them have ended, or as they are when the time is up.
pub fn wait(context: &Context, lanes: &[LaneId], wait_for: WaitFor) -> AppResult<Vec<LaneRow>> {
    let began = context.clock.monotonic();
    loop {
        let failed = reconcile(context)?;
        let rows = lanes.iter().map(|id| require_lane(context, id)).collect::<AppResult<Vec<_>>>()?;
        let ended = |row: &LaneRow| matches!(row.state, State::Ended { .. });
        let done = if wait_for.any { rows.iter().any(ended) } else { rows.iter().all(ended) };
        let waited = context.clock.monotonic().since(began);
        let left = wait_for.limit.map_or(LONGEST_SLEEP.0, |limit| limit.0.saturating_sub(waited.0));
        if done || left == 0 {
            return Ok(rows);
        }
        // Where nobody can look after any lane that is left, waiting would never end.
        let is_lost = |row: &LaneRow| failed.iter().any(|(lane_id, _)| *lane_id == row.plan.lane_id);
        if rows.iter().filter(|row| !ended(row)).all(is_lost)
            && let Some((_, error)) = failed.into_iter().find(|(lane_id, _)| lanes.contains(lane_id))
        {
            return Err(error);
        }
        let mut folders: Vec<_> = rows.iter().filter(|row| !ended(row)).map(|row| row.plan.run_dir.clone()).collect();
        if rows.iter().any(|row| matches!(row.state, State::Queued { .. })) {
            // The head of the queue starts when a live lane ends.
            folders.extend(context.ledger.live().doing("read the ledger")?.into_iter().map(|row| row.plan.run_dir));
        }
        let sleep = Millis(left.min(LONGEST_SLEEP.0));
        context.runs.wait_for_change(&folders, sleep).doing("wait for the lanes")?;
    }
}
