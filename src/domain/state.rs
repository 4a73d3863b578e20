//! The life of a lane as a state machine: one enum, one pure and total transition function.
//!
//! ```text
//! (queued) -> admitted -> preparing -> working -> proving -> ended(outcome)
//! ```

use serde::{Deserialize, Serialize};

use super::ids::ProcessIdentity;
use super::outcome::Outcome;
use super::plan::Plan;
use super::result::LaneEnd;
use super::time::{Millis, Timestamp};
use super::worker::ProcessExit;

/// Where a lane is. Each variant carries what is true only there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It waits for a slot and has no process.
    Queued {
        /// Since when.
        since: Timestamp,
    },
    /// It has a slot; its supervisor is about to start.
    Admitted {
        /// Since when.
        since: Timestamp,
        /// How long it waited before.
        waited: Millis,
        /// Whether somebody asked for its end.
        cancelled: bool,
    },
    /// Its checkout is being made.
    Preparing {
        /// Since when.
        since: Timestamp,
        /// How long it waited before.
        waited: Millis,
        /// Whether somebody asked for its end.
        cancelled: bool,
    },
    /// Its worker runs.
    Working {
        /// Since when.
        since: Timestamp,
        /// How long it waited before.
        waited: Millis,
        /// How long the checkout took.
        prepared_in: Millis,
        /// The keeper, the worker's parent.
        keeper: ProcessIdentity,
        /// Whether somebody asked for its end.
        cancelled: bool,
    },
    /// Its worker has ended; the work is saved, measured and checked.
    Proving {
        /// Since when.
        since: Timestamp,
        /// How long it waited before.
        waited: Millis,
        /// How long the checkout took.
        prepared_in: Millis,
        /// How the worker ended.
        worker: WorkerEnd,
        /// Whether somebody asked for its end.
        cancelled: bool,
    },
    /// It has ended.
    Ended {
        /// When.
        at: Timestamp,
        /// How.
        outcome: Outcome,
    },
}

/// How a worker ended, and why Lane ended it, if it did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEnd {
    /// What its parent learnt.
    pub exit: ProcessExit,
    /// How long it ran.
    pub ran_for: Millis,
    /// Why Lane stopped it; `None` when it ended by itself.
    pub stopped: Option<StopReason>,
}

/// Why Lane stopped a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The time limit was reached.
    Timeout,
    /// Nothing moved for the idle limit.
    Stalled,
    /// Somebody asked for it.
    Cancelled,
    /// The login was refused again and again.
    Auth,
    /// The machine was restarted, and the worker with it.
    MachineRestarted,
}

/// What happens to a lane. Stored in the ledger, append-only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LaneEvent {
    /// It was called and waits for a slot.
    Queued {
        /// What was decided at the call.
        plan: Box<Plan>,
    },
    /// It was called, and has a slot at once.
    Admitted {
        /// What was decided at the call.
        plan: Box<Plan>,
    },
    /// It got its slot after waiting.
    Promoted,
    /// Its supervisor began with the checkout.
    PrepareStarted,
    /// Its worker was started.
    WorkerStarted {
        /// The keeper, the worker's parent.
        keeper: ProcessIdentity,
    },
    /// Somebody asked for its end.
    CancelRequested,
    /// A new supervisor took over from one that is gone.
    Recovered {
        /// Where the lane was, in a word.
        stage: String,
    },
    /// Its worker ended.
    WorkerEnded {
        /// How.
        worker: WorkerEnd,
    },
    /// It ended.
    Ended {
        /// Everything known at the end.
        end: Box<LaneEnd>,
    },
}

/// An event that cannot happen in the state it met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event `{event}` cannot happen to a lane that is {state}")]
pub struct IllegalTransition {
    /// The state's word; `new` for no state yet.
    pub state: &'static str,
    /// The event's word.
    pub event: &'static str,
}

impl State {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Admitted { .. } => "admitted",
            Self::Preparing { .. } => "preparing",
            Self::Working { .. } => "working",
            Self::Proving { .. } => "proving",
            Self::Ended { .. } => "ended",
        }
    }

    /// Whether the lane holds a slot.
    pub const fn holds_slot(&self) -> bool {
        match self {
            Self::Admitted { .. } | Self::Preparing { .. } | Self::Working { .. } | Self::Proving { .. } => true,
            Self::Queued { .. } | Self::Ended { .. } => false,
        }
    }

    /// Whether somebody asked for its end, and it has not ended yet.
    pub const fn is_cancelled(&self) -> bool {
        match self {
            Self::Admitted { cancelled, .. }
            | Self::Preparing { cancelled, .. }
            | Self::Working { cancelled, .. }
            | Self::Proving { cancelled, .. } => *cancelled,
            Self::Queued { .. } | Self::Ended { .. } => false,
        }
    }
}

impl LaneEvent {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Admitted { .. } => "admitted",
            Self::Promoted => "promoted",
            Self::PrepareStarted => "prepare_started",
            Self::WorkerStarted { .. } => "worker_started",
            Self::CancelRequested => "cancel_requested",
            Self::Recovered { .. } => "recovered",
            Self::WorkerEnded { .. } => "worker_ended",
            Self::Ended { .. } => "ended",
        }
    }
}

/// Returns the state after the first event of a lane.
pub fn begin(event: &LaneEvent, now: Timestamp) -> Result<State, IllegalTransition> {
    match event {
        LaneEvent::Queued { .. } => Ok(State::Queued { since: now }),
        LaneEvent::Admitted { .. } => Ok(State::Admitted { since: now, waited: Millis(0), cancelled: false }),
        LaneEvent::Promoted
        | LaneEvent::PrepareStarted
        | LaneEvent::WorkerStarted { .. }
        | LaneEvent::CancelRequested
        | LaneEvent::Recovered { .. }
        | LaneEvent::WorkerEnded { .. }
        | LaneEvent::Ended { .. } => Err(IllegalTransition { state: "new", event: event.word() }),
    }
}

/// Returns the state that `event`, which happened at `now`, leads to.
pub fn apply(state: &State, event: &LaneEvent, now: Timestamp) -> Result<State, IllegalTransition> {
    let illegal = || IllegalTransition { state: state.word(), event: event.word() };
    match event {
        LaneEvent::Queued { .. } | LaneEvent::Admitted { .. } => Err(illegal()),
        LaneEvent::Promoted => promoted(state, now).ok_or_else(illegal),
        LaneEvent::PrepareStarted => prepare_started(state, now).ok_or_else(illegal),
        LaneEvent::WorkerStarted { keeper } => worker_started(state, keeper, now).ok_or_else(illegal),
        LaneEvent::CancelRequested => cancel_requested(state).ok_or_else(illegal),
        LaneEvent::Recovered { .. } => recovered(state).ok_or_else(illegal),
        LaneEvent::WorkerEnded { worker } => worker_ended(state, worker, now).ok_or_else(illegal),
        LaneEvent::Ended { end } => ended(state, end).ok_or_else(illegal),
    }
}

fn promoted(state: &State, now: Timestamp) -> Option<State> {
    match state {
        State::Queued { since } => Some(State::Admitted { since: now, waited: now.since(*since), cancelled: false }),
        State::Admitted { .. }
        | State::Preparing { .. }
        | State::Working { .. }
        | State::Proving { .. }
        | State::Ended { .. } => None,
    }
}

fn prepare_started(state: &State, now: Timestamp) -> Option<State> {
    match state {
        State::Admitted { waited, cancelled, .. } => {
            Some(State::Preparing { since: now, waited: *waited, cancelled: *cancelled })
        }
        State::Queued { .. }
        | State::Preparing { .. }
        | State::Working { .. }
        | State::Proving { .. }
        | State::Ended { .. } => None,
    }
}

fn worker_started(state: &State, keeper: &ProcessIdentity, now: Timestamp) -> Option<State> {
    match state {
        State::Preparing { since, waited, cancelled } => Some(State::Working {
            since: now,
            waited: *waited,
            prepared_in: now.since(*since),
            keeper: keeper.clone(),
            cancelled: *cancelled,
        }),
        State::Queued { .. }
        | State::Admitted { .. }
        | State::Working { .. }
        | State::Proving { .. }
        | State::Ended { .. } => None,
    }
}

fn cancel_requested(state: &State) -> Option<State> {
    let mut next = state.clone();
    match &mut next {
        State::Admitted { cancelled, .. }
        | State::Preparing { cancelled, .. }
        | State::Working { cancelled, .. }
        | State::Proving { cancelled, .. } => *cancelled = true,
        // A queued lane has nothing to stop: whoever cancels it ends it in the same breath.
        State::Queued { .. } => {}
        State::Ended { .. } => return None,
    }
    Some(next)
}

fn recovered(state: &State) -> Option<State> {
    match state {
        State::Admitted { .. } | State::Preparing { .. } | State::Working { .. } | State::Proving { .. } => {
            Some(state.clone())
        }
        State::Queued { .. } | State::Ended { .. } => None,
    }
}

fn worker_ended(state: &State, worker: &WorkerEnd, now: Timestamp) -> Option<State> {
    match state {
        State::Working { waited, prepared_in, cancelled, .. } => Some(State::Proving {
            since: now,
            waited: *waited,
            prepared_in: *prepared_in,
            worker: worker.clone(),
            cancelled: *cancelled,
        }),
        State::Queued { .. }
        | State::Admitted { .. }
        | State::Preparing { .. }
        | State::Proving { .. }
        | State::Ended { .. } => None,
    }
}

/// Every live state may end: a checkout that fails ends a lane that is preparing.
fn ended(state: &State, end: &LaneEnd) -> Option<State> {
    match state {
        State::Queued { .. }
        | State::Admitted { .. }
        | State::Preparing { .. }
        | State::Working { .. }
        | State::Proving { .. } => Some(State::Ended { at: end.finished_at, outcome: end.outcome }),
        State::Ended { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan() -> Plan {
        let id: crate::domain::ids::LaneId = "20261201-004854-a-beef".parse().unwrap();
        crate::domain::plan::example(id)
    }

    fn end(outcome: Outcome) -> Box<LaneEnd> {
        Box::new(LaneEnd::without_worker(&plan(), outcome, None, Timestamp::from_unix_ms(99)))
    }

    fn keeper() -> ProcessIdentity {
        ProcessIdentity { pid: 7, start_ticks: 8, boot_id: "b".into() }
    }

    fn worker() -> WorkerEnd {
        WorkerEnd { exit: ProcessExit::Code(0), ran_for: Millis(5), stopped: None }
    }

    fn events() -> Vec<LaneEvent> {
        vec![
            LaneEvent::Queued { plan: Box::new(plan()) },
            LaneEvent::Admitted { plan: Box::new(plan()) },
            LaneEvent::Promoted,
            LaneEvent::PrepareStarted,
            LaneEvent::WorkerStarted { keeper: keeper() },
            LaneEvent::CancelRequested,
            LaneEvent::Recovered { stage: "working".into() },
            LaneEvent::WorkerEnded { worker: worker() },
            LaneEvent::Ended { end: end(Outcome::Ok) },
        ]
    }

    /// Every pair of state and event, written out: the word of the next state, or `-`.
    #[test]
    fn every_pair() {
        let table = [
            ("queued", ["-", "-", "admitted", "-", "-", "queued", "-", "-", "ended"]),
            ("admitted", ["-", "-", "-", "preparing", "-", "admitted", "admitted", "-", "ended"]),
            ("preparing", ["-", "-", "-", "-", "working", "preparing", "preparing", "-", "ended"]),
            ("working", ["-", "-", "-", "-", "-", "working", "working", "proving", "ended"]),
            ("proving", ["-", "-", "-", "-", "-", "proving", "proving", "-", "ended"]),
            ("ended", ["-", "-", "-", "-", "-", "-", "-", "-", "-"]),
        ];
        let now = Timestamp::from_unix_ms(50);
        let mut states = vec![begin(&events()[0], now).unwrap()];
        for event in [2, 3, 4, 7, 8] {
            states.push(apply(states.last().unwrap(), &events()[event], now).unwrap());
        }
        for (state, (word, row)) in states.iter().zip(table) {
            assert_eq!(state.word(), word);
            let seen: Vec<&str> =
                events().iter().map(|event| apply(state, event, now).map_or("-", |next| next.word())).collect();
            assert_eq!(seen, row, "{word}");
        }
    }

    proptest! {
        /// A lane ends at most once, and holds a slot exactly between its admission and its end.
        #[test]
        fn one_end_whatever_happens(choices in proptest::collection::vec(0usize..9, 0..60)) {
            let events = events();
            let mut state = begin(&events[0], Timestamp::from_unix_ms(1)).unwrap();
            let (mut ends, mut admissions) = (0, 0);
            for (at, choice) in choices.into_iter().enumerate() {
                let event = &events[choice];
                let now = Timestamp::from_unix_ms(i64::try_from(at).unwrap());
                if let Ok(next) = apply(&state, event, now) {
                    ends += u32::from(event.word() == "ended");
                    admissions += u32::from(event.word() == "promoted");
                    let cancelled = state.is_cancelled();
                    state = next;
                    prop_assert!(!cancelled || state.is_cancelled() || !state.holds_slot());
                }
                prop_assert!(ends <= 1 && admissions <= 1);
                prop_assert_eq!(state.holds_slot(), admissions == 1 && ends == 0);
            }
        }
    }
}
