//! A ledger that could not be opened: every question is answered with the reason.

use crate::app::ports::{Counts, LaneFilter, LaneRow, Ledger, LedgerReport, PortError, PortResult};
use crate::domain::admission::Verdict;
use crate::domain::ids::LaneId;
use crate::domain::plan::Plan;
use crate::domain::state::{LaneEvent, State};
use crate::domain::time::Timestamp;

/// Stands in for a ledger that could not be opened, with the reason. It is for looking only: what
/// stands on it can still say what else is in order.
pub struct UnopenedLedger(pub PortError);

impl UnopenedLedger {
    fn why<T>(&self) -> PortResult<T> {
        Err(PortError { kind: self.0.kind, message: self.0.message.clone() })
    }
}

impl Ledger for UnopenedLedger {
    fn admit(&self, _: &Plan, _: bool, _: u32, _: Timestamp) -> PortResult<Verdict> {
        self.why()
    }

    fn promote(&self, _: &LaneId, _: u32, _: Timestamp) -> PortResult<Verdict> {
        self.why()
    }

    fn append(&self, _: &LaneId, _: &LaneEvent, _: Timestamp) -> PortResult<State> {
        self.why()
    }

    fn lane(&self, _: &LaneId) -> PortResult<Option<LaneRow>> {
        self.why()
    }

    fn find(&self, _: &str) -> PortResult<Vec<LaneId>> {
        self.why()
    }

    fn live(&self) -> PortResult<Vec<LaneRow>> {
        self.why()
    }

    fn queued(&self) -> PortResult<Vec<LaneRow>> {
        self.why()
    }

    fn recent(&self, _: &LaneFilter) -> PortResult<Vec<LaneRow>> {
        self.why()
    }

    fn counts(&self) -> PortResult<Counts> {
        self.why()
    }

    fn newest_event(&self) -> PortResult<u64> {
        self.why()
    }

    fn check(&self) -> PortResult<LedgerReport> {
        self.why()
    }

    fn rebuild(&self) -> PortResult<()> {
        self.why()
    }

    fn settle(&self) {}
}
