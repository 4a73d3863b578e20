//! `lane logs`.

use super::arguments::LogsArguments;
use super::output::Output;
use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::lanes;
use crate::domain::state::State;
use crate::domain::time::Millis;

/// How long `--follow` sleeps when nothing wakes it.
const FOLLOW_SLEEP: Millis = Millis(250);

/// Prints a file of the run folder, and what is added to it with `--follow`.
pub fn run(context: &Context, arguments: &LogsArguments, output: &Output) -> AppResult<u8> {
    let row = lanes::lane(context, &arguments.id)?;
    let name = file_name(arguments);
    let mut offset = 0;
    loop {
        // The state is read before the file, so that nothing written before the end is missed.
        let ended = matches!(lanes::require_lane(context, &row.plan.lane_id)?.state, State::Ended { .. });
        let mut reader_is_there = true;
        offset = context
            .runs
            .lines(&row.plan.run_dir, name, offset, ended || !arguments.follow, &mut |line| {
                let mut line = line.to_vec();
                line.push(b'\n');
                reader_is_there = reader_is_there && output.bytes(&line);
            })
            .doing("read the log")?;
        if ended || !arguments.follow || !reader_is_there {
            return Ok(0);
        }
        context.runs.wait_for_change(std::slice::from_ref(&row.plan.run_dir), FOLLOW_SLEEP).doing("follow the log")?;
        crate::app::reconcile::reconcile(context)?;
    }
}

const fn file_name(arguments: &LogsArguments) -> &'static str {
    if arguments.stderr {
        "stderr.log"
    } else if arguments.supervisor {
        "supervisor.log"
    } else if arguments.report {
        "final.md"
    } else {
        "events.jsonl"
    }
}
