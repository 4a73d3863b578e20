//! `lane wait`.

use super::Verdict;
use super::arguments::WaitArguments;
use super::status::row_answer;
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::lanes;
use crate::app::ports::LaneRow;
use crate::app::wait::{WaitFor, wait};
use crate::domain::state::State;
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, Lanes};

/// Runs the verb.
pub fn run(context: &Context, arguments: &WaitArguments) -> AppResult<Verdict> {
    let ids = arguments.ids.iter().map(|id| lanes::find(context, id)).collect::<AppResult<Vec<_>>>()?;
    let rows = wait(context, &ids, WaitFor { any: arguments.any, limit: arguments.max })?;
    let answer = if arguments.any { any_answer(context, &rows) } else { answer(context, &rows) };
    Ok(if arguments.accepted { Verdict::LineIfAccepted(Box::new(answer)) } else { Verdict::Line(Box::new(answer)) })
}

/// With `--any` the answer holds the lanes that have ended, and all of them if none has.
fn any_answer(context: &Context, rows: &[LaneRow]) -> Answer {
    let ended: Vec<LaneRow> = rows.iter().filter(|row| matches!(row.state, State::Ended { .. })).cloned().collect();
    if ended.is_empty() { answer(context, rows) } else { answer(context, &ended) }
}

/// Returns one lane's line, or all of them in one object.
pub fn answer(context: &Context, rows: &[LaneRow]) -> Answer {
    match rows {
        [one] => row_answer(context, one),
        several => {
            let lanes = several.iter().map(|row| row_answer(context, row)).collect();
            Answer::Lanes(Lanes { schema: SCHEMA, lanes })
        }
    }
}
