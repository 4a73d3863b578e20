//! `lane clean` and `lane restore`: checkouts that have ended, and only what is saved.

use super::context::Context;
use super::error::{AppResult, Doing};
use super::lanes::require_lane;
use super::ports::{Claim, Cleaned, LaneFilter, LaneRow, PortError, PortErrorKind, PortResult, Restored};
use crate::domain::ids::LaneId;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Millis;

/// How long another command that works on the same checkout is waited for.
const LONGEST_WAIT: Millis = Millis::from_secs(120);

/// How long to wait before the lock is tried again.
const BETWEEN_TRIES: Millis = Millis(20);

/// What became of one lane's checkout.
#[derive(Debug)]
pub struct CleanedLane {
    /// Which lane.
    pub row: LaneRow,
    /// What was done, or why nothing was.
    pub outcome: Result<Cleaned, String>,
}

/// Cleans the checkouts of `lanes`, or of every lane that ended longer ago than `older_than`.
pub fn clean(
    context: &Context,
    lanes: &[LaneId],
    older_than: Option<Millis>,
    dry_run: bool,
) -> AppResult<Vec<CleanedLane>> {
    let mut cleaned = Vec::new();
    for row in chosen(context, lanes, older_than)? {
        let outcome = alone(context, &row)
            .and_then(|_claim| context.git.clean(&row.plan, &context.settings.rebuildable, dry_run))
            .map_err(|error| error.to_string());
        cleaned.push(CleanedLane { row, outcome });
    }
    Ok(cleaned)
}

/// Waits until nobody else works on the lane's checkout, and keeps everybody else away.
///
/// One that cleans while another restores would take what is not there yet for removed.
fn alone(context: &Context, row: &LaneRow) -> PortResult<Claim> {
    let began = context.clock.monotonic();
    loop {
        match context.runs.claim(&row.plan.run_dir) {
            Err(error) if error.kind == PortErrorKind::Held => {
                if context.clock.monotonic().since(began).0 >= LONGEST_WAIT.0 {
                    let message = format!("another command works on the checkout of {}", row.plan.lane_id);
                    return Err(PortError { kind: PortErrorKind::Held, message });
                }
                // Nothing in the folder tells when the lock is let go.
                context.runs.wait_for_change(&[], BETWEEN_TRIES)?;
            }
            answer => return answer,
        }
    }
}

fn chosen(context: &Context, lanes: &[LaneId], older_than: Option<Millis>) -> AppResult<Vec<LaneRow>> {
    if !lanes.is_empty() {
        return lanes.iter().map(|id| require_ended(context, id)).collect();
    }
    let limit = context.clock.now().minus(older_than.unwrap_or_default());
    let filter = LaneFilter { state: Some("ended".to_owned()), ..LaneFilter::default() };
    let rows = context.ledger.recent(&filter).doing("read the ledger")?;
    Ok(rows
        .into_iter()
        .filter(|row| row.plan.has_own_checkout() && context.machine.exists(&row.plan.checkout_path))
        .filter(|row| matches!(row.state, State::Ended { at, .. } if at <= limit))
        .collect())
}

fn require_ended(context: &Context, lane_id: &LaneId) -> AppResult<LaneRow> {
    let row = require_lane(context, lane_id)?;
    if !matches!(row.state, State::Ended { .. }) {
        return Err(Refusal::usage(
            format!("lane {lane_id} has not ended"),
            format!("wait for it (`lane wait {lane_id}`) or stop it (`lane cancel {lane_id}`)"),
        )
        .into());
    }
    if !row.plan.has_own_checkout() {
        return Err(Refusal::usage(
            format!("lane {lane_id} worked in {}, which is not its own", row.plan.cwd.display()),
            "there is nothing of it to clean",
        )
        .into());
    }
    Ok(row)
}

/// Brings a cleaned checkout back, at its old place or at `into`.
pub fn restore(context: &Context, lane_id: &LaneId, into: Option<&std::path::Path>) -> AppResult<Restored> {
    let row = require_ended(context, lane_id)?;
    let _claim = alone(context, &row).doing("lock the lane's checkout")?;
    let into = into.map(|path| context.surroundings.directory.join(path));
    match context.git.restore(&row.plan, into.as_deref()) {
        Err(error) if error.kind == PortErrorKind::Held => {
            Err(Refusal::usage(error.to_string(), "give --into a folder that is not there yet or is empty").into())
        }
        answer => answer.doing("restore the checkout"),
    }
}
