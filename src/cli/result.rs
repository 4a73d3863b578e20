//! `lane result`.

use super::Verdict;
use super::arguments::ResultArguments;
use super::status::row_answer;
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::lanes;

/// Runs the verb.
pub fn run(context: &Context, arguments: &ResultArguments) -> AppResult<Verdict> {
    let row = lanes::lane(context, &arguments.id)?;
    let answer = Box::new(row_answer(context, &row));
    Ok(if arguments.accepted { Verdict::LineIfAccepted(answer) } else { Verdict::Line(answer) })
}
