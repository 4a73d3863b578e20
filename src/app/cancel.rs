//! `lane cancel`: in every state, queued too.

use super::context::Context;
use super::error::{AppError, AppResult, Doing};
use super::lanes::require_lane;
use super::ports::PortErrorKind;
use super::run::write_end;
use crate::domain::ids::LaneId;
use crate::domain::outcome::Outcome;
use crate::domain::result::LaneEnd;
use crate::domain::state::{LaneEvent, State};

/// What became of a request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Its supervisor was asked to stop it.
    Requested,
    /// It waited, and is ended now.
    Ended,
    /// It had ended before, like this.
    Before(Outcome),
}

/// Asks for the end of a lane.
pub fn cancel(context: &Context, lane_id: &LaneId) -> AppResult<Cancelled> {
    let row = require_lane(context, lane_id)?;
    match row.state {
        State::Ended { outcome, .. } => Ok(Cancelled::Before(outcome)),
        State::Queued { .. } => match end_queued(context, lane_id) {
            // It was promoted in the same moment: then it is stopped like any other.
            Err(AppError::Failed { source, .. }) if source.kind == PortErrorKind::Held => request(context, lane_id),
            answer => answer,
        },
        State::Admitted { .. } | State::Preparing { .. } | State::Working { .. } | State::Proving { .. } => {
            request(context, lane_id)
        }
    }
}

/// Ends a lane that waits. Its lock is held meanwhile, so that nobody promotes it.
fn end_queued(context: &Context, lane_id: &LaneId) -> AppResult<Cancelled> {
    let plan = require_lane(context, lane_id)?.plan;
    let _claim = context.runs.claim(&plan.run_dir).doing("lock the queued lane")?;
    let row = require_lane(context, lane_id)?;
    match row.state {
        State::Queued { since } => {
            let now = context.clock.now();
            context.ledger.append(lane_id, &LaneEvent::CancelRequested, now).doing("record the request")?;
            let mut end = LaneEnd::without_worker(&plan, Outcome::Cancelled, None, now);
            end.times.queued = Some(now.since(since));
            write_end(context, &plan, &end)?;
            Ok(Cancelled::Ended)
        }
        State::Ended { outcome, .. } => Ok(Cancelled::Before(outcome)),
        State::Admitted { .. } | State::Preparing { .. } | State::Working { .. } | State::Proving { .. } => {
            request(context, lane_id)
        }
    }
}

fn request(context: &Context, lane_id: &LaneId) -> AppResult<Cancelled> {
    let plan = require_lane(context, lane_id)?.plan;
    match context.ledger.append(lane_id, &LaneEvent::CancelRequested, context.clock.now()) {
        Ok(_) => {
            // The ledger first: if this process dies here, the next supervisor reads it there.
            context.runs.request_cancel(&plan.run_dir).doing("hand over the request")?;
            Ok(Cancelled::Requested)
        }
        Err(error) if error.kind == PortErrorKind::Illegal => {
            let row = require_lane(context, lane_id)?;
            match row.state {
                State::Ended { outcome, .. } => Ok(Cancelled::Before(outcome)),
                State::Queued { .. }
                | State::Admitted { .. }
                | State::Preparing { .. }
                | State::Working { .. }
                | State::Proving { .. } => Err(error).doing("record the request"),
            }
        }
        Err(error) => Err(error).doing("record the request"),
    }
}
