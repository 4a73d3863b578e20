//! `lane cancel`.

use super::arguments::CancelArguments;
use super::error_answer;
use super::status::asked;
use crate::app::cancel::{Cancelled, cancel};
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::{lanes, reconcile};
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, CancelAnswer, CancelStatus, Lanes};

/// Runs the verb.
pub fn run(context: &Context, arguments: &CancelArguments) -> AppResult<Answer> {
    reconcile::reconcile(context)?;
    let answer = match arguments.ids.as_slice() {
        [one] => cancel_one(context, one)?,
        several => {
            let lanes = several
                .iter()
                .map(|id| cancel_one(context, id).unwrap_or_else(|error| asked(error_answer(error), id)))
                .collect();
            Answer::Lanes(Lanes { schema: SCHEMA, lanes })
        }
    };
    // A cancelled lane that waited may have been in the way of those behind it.
    reconcile::promote(context)?;
    Ok(answer)
}

fn cancel_one(context: &Context, text: &str) -> AppResult<Answer> {
    let lane_id = lanes::find(context, text)?;
    let (status, outcome) = match cancel(context, &lane_id)? {
        Cancelled::Requested => (CancelStatus::CancelRequested, None),
        Cancelled::Ended => (CancelStatus::Cancelled, None),
        Cancelled::Before(outcome) => (CancelStatus::AlreadyEnded, Some(outcome)),
    };
    let next = format!("lane wait {lane_id}");
    Ok(Answer::Cancel(CancelAnswer { schema: SCHEMA, lane_id, status, outcome, next }))
}
