//! The exit codes, in one table. `docs/exit-codes.md` is the page, and a test holds them together.

use crate::wire::answers::{Answer, Lanes, RunStatus};

/// The lane still runs or waits.
pub const STILL_RUNNING: u8 = 3;

/// `--accepted` was asked for, and it is not.
pub const NOT_ACCEPTED: u8 = 6;

/// From worst to best, for several lanes in one answer.
const WORST_FIRST: [u8; 6] = [1, 5, 4, 3, 2, 0];

/// Returns the exit code of a command that prints `answer`.
pub fn code(answer: &Answer) -> u8 {
    match answer {
        Answer::Run(run) => match run.status {
            RunStatus::Started | RunStatus::Queued | RunStatus::Routed => 0,
        },
        Answer::Refused(refused) => refused.status.exit_code(),
        Answer::Failed(failed) => failed.status.exit_code(),
        Answer::Result(result) => result.status.exit_code(),
        Answer::Live(_) => STILL_RUNNING,
        Answer::Lanes(Lanes { lanes, .. }) => worst(lanes.iter().map(code)),
        Answer::Clean(clean) => clean.status.exit_code(),
        Answer::Doctor(doctor) => doctor.status.exit_code(),
        Answer::List(_) | Answer::Cancel(_) | Answer::Restore(_) | Answer::Schema(_) => 0,
    }
}

/// Returns the exit code under `--accepted`: 6 where a lane ended `ok` and is not accepted.
pub fn code_if_accepted(answer: &Answer) -> u8 {
    match (code(answer), is_accepted(answer)) {
        (0, false) => NOT_ACCEPTED,
        (code, _) => code,
    }
}

fn is_accepted(answer: &Answer) -> bool {
    match answer {
        Answer::Result(result) => result.accepted == Some(true),
        Answer::Lanes(lanes) => lanes.lanes.iter().all(is_accepted),
        Answer::Run(_)
        | Answer::Refused(_)
        | Answer::Failed(_)
        | Answer::Live(_)
        | Answer::List(_)
        | Answer::Cancel(_)
        | Answer::Clean(_)
        | Answer::Restore(_)
        | Answer::Doctor(_)
        | Answer::Schema(_) => false,
    }
}

fn worst(codes: impl Iterator<Item = u8>) -> u8 {
    let codes: Vec<u8> = codes.collect();
    WORST_FIRST.into_iter().find(|code| codes.contains(code)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_code_wins() {
        assert_eq!(worst([0, 3, 4].into_iter()), 4);
        assert_eq!(worst([0, 5, 1].into_iter()), 1);
        assert_eq!(worst([0, 2].into_iter()), 2);
        assert_eq!(worst([].into_iter()), 0);
    }
}
