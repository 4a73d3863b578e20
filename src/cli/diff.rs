//! `lane diff`.

use super::arguments::DiffArguments;
use super::output::Output;
use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::lanes;

/// Prints the diff as git does.
pub fn run(context: &Context, arguments: &DiffArguments, output: &Output) -> AppResult<u8> {
    let row = lanes::lane(context, &arguments.id)?;
    let diff = context.git.diff(&row.plan, arguments.stat).doing("make the diff")?;
    output.bytes(&diff);
    Ok(0)
}
