//! Where all lanes stand according to their events alone. Pure: events are handed in, in order.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::state::{LaneEvent, State, apply, begin};
use crate::domain::time::Timestamp;

/// Where one lane stands. Plan and end are named by their event, to keep it small.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Folded {
    pub(super) created_seq: i64,
    pub(super) state: State,
    pub(super) end_seq: Option<i64>,
    pub(super) last_event_at: Timestamp,
}

/// Where all lanes stand.
#[derive(Debug, Default)]
pub(super) struct Fold {
    /// By lane id.
    pub(super) lanes: BTreeMap<String, Folded>,
    /// Lanes with events that this Lane does not understand, by id: their rows are a newer Lane's.
    pub(super) foreign: BTreeSet<String>,
}

impl Fold {
    /// Takes the next event; `None` for one that this Lane does not understand.
    ///
    /// An event that does not fit is passed over: no Lane has ever written one.
    pub(super) fn take(&mut self, seq: i64, lane_id: &str, at: Timestamp, event: Option<&LaneEvent>) {
        let Some(event) = event else {
            self.foreign.insert(lane_id.to_owned());
            return;
        };
        let end_seq = matches!(event, LaneEvent::Ended { .. }).then_some(seq);
        match self.lanes.get_mut(lane_id) {
            None => {
                if let Ok(state) = begin(event, at) {
                    let folded = Folded { created_seq: seq, state, end_seq, last_event_at: at };
                    self.lanes.insert(lane_id.to_owned(), folded);
                }
            }
            Some(lane) => {
                if let Ok(state) = apply(&lane.state, event, at) {
                    *lane = Folded { created_seq: lane.created_seq, state, end_seq, last_event_at: at };
                }
            }
        }
    }
}
