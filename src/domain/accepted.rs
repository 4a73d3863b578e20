//! Lane's own summary of a result: whether the lead may take it as it is.

use super::facts::{Changes, Holdout};
use super::outcome::Outcome;
use super::worker::Marker;

/// What is known about a lane when it is summed up.
#[derive(Clone, Debug)]
pub struct Summing<'a> {
    /// How it ended.
    pub outcome: Outcome,
    /// What its report opens with.
    pub marker: Option<Marker>,
    /// The verdict of the holdout, if one was asked for.
    pub holdout: Option<&'a Holdout>,
    /// What changed, if the lane had a checkout of its own.
    pub changes: Option<&'a Changes>,
    /// Whether the lane was asked to write.
    pub writes: bool,
}

/// Returns `false` if anything that was asked for is not so, else `None` if nothing proves the
/// work, else `true`. A part that was not asked for does not count; any `false` wins over `None`.
pub fn accepted(summing: &Summing<'_>) -> Option<bool> {
    let refuted = summing.outcome != Outcome::Ok
        || !summing.marker.is_some_and(Marker::is_success)
        || summing.holdout.is_some_and(|holdout| holdout.passed == Some(false) || !holdout.protected.unchanged)
        || summing.changes.is_some_and(refuted_by_changes)
        || (summing.writes && summing.changes.is_some_and(|changes| changes.files == 0));
    if refuted {
        return Some(false);
    }
    // A holdout without a command only guards paths, and an untouched path proves no work.
    match summing.holdout {
        Some(holdout) if !holdout.checks.is_empty() && holdout.passed == Some(true) => Some(true),
        Some(_) | None => None,
    }
}

fn refuted_by_changes(changes: &Changes) -> bool {
    changes.paths_outside_owned.as_ref().is_some_and(|paths| !paths.is_empty())
        || changes.head_is_branch_tip == Some(false)
        || !changes.nested_repositories.is_empty()
        || !changes.shared_changes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::facts::judge_holdout;

    fn holdout(passed: Option<bool>) -> Holdout {
        let run = crate::domain::facts::CheckRun {
            command: "true".into(),
            exit_code: passed.map(|ok| i32::from(!ok)),
            signal: None,
            timed_out: false,
            duration_s: 0.1,
            log_path: "/l".into(),
            tail: String::new(),
        };
        match passed {
            Some(_) => judge_holdout(vec![run], vec![], None),
            None => judge_holdout(vec![], vec![], Some("no process".into())),
        }
    }

    #[test]
    fn any_false_wins_and_nothing_asked_is_null() {
        let changes = Changes { files: 1, ..Changes::default() };
        let green = holdout(Some(true));
        let good = Summing {
            outcome: Outcome::Ok,
            marker: Some(Marker::Done),
            holdout: Some(&green),
            changes: Some(&changes),
            writes: true,
        };
        assert_eq!(accepted(&good), Some(true));
        assert_eq!(accepted(&Summing { holdout: None, ..good.clone() }), None);
        assert_eq!(accepted(&Summing { holdout: Some(&holdout(None)), ..good.clone() }), None);
        assert_eq!(accepted(&Summing { holdout: Some(&holdout(Some(false))), ..good.clone() }), Some(false));
        assert_eq!(accepted(&Summing { marker: Some(Marker::Blocked), ..good.clone() }), Some(false));
        assert_eq!(accepted(&Summing { marker: None, ..good.clone() }), Some(false));
        assert_eq!(accepted(&Summing { outcome: Outcome::Timeout, ..good.clone() }), Some(false));
        let none = Changes::default();
        assert_eq!(accepted(&Summing { changes: Some(&none), ..good.clone() }), Some(false));
        assert_eq!(accepted(&Summing { changes: Some(&none), writes: false, ..good.clone() }), Some(true));
        let outside = Changes { files: 1, paths_outside_owned: Some(vec!["x".into()]), ..Changes::default() };
        assert_eq!(accepted(&Summing { changes: Some(&outside), ..good.clone() }), Some(false));
        // A merge of the branch would bring nothing, or not all of it.
        let elsewhere = Changes { files: 1, head_is_branch_tip: Some(false), ..Changes::default() };
        assert_eq!(accepted(&Summing { changes: Some(&elsewhere), ..good }), Some(false));
    }
}
