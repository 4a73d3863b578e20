//! The ledger: SQLite, append-only events and their projection.
//!
//! What it guarantees:
//!
//! * **Append-only and chained.** `events` only grows. Each event carries the SHA-256 of itself and
//!   of the one before, so a change of the past shows ([`Ledger::check`]).
//! * **One truth.** `runs` and `reservations` are a projection of the events, written in the same
//!   transaction, by the pure transitions of [`crate::domain::state`]. [`Ledger::rebuild`] makes
//!   them anew.
//! * **Durable.** A commit is on the disk when the call returns (WAL, `synchronous=FULL`).
//! * **One writer at a time, in turn.** A file lock stands in front of every write transaction:
//!   waiting in the kernel is fairer and faster than SQLite's own sleeping, so nobody is ever told
//!   that the database is locked. A writer that is stopped while it writes holds up the others
//!   until it goes on or dies; readers are never held up.
//! * **Flat cost.** Opening does no schema work when the format is right. Admission, counts and
//!   listings go through indexes; nothing but `check` and `rebuild` looks at all that ever was.
//! * **Formats.** `PRAGMA user_version` is the format. A newer one is read and never written.
//!   Events and rows that only a newer Lane understands are kept: listings pass over such rows,
//!   asking for one says that it is too new.
//!
//! What it does not do: it starts nothing, waits for nothing, and knows no files but its own.

mod admission;
mod chain;
mod check;
mod events;
mod fault;
mod fold;
mod list;
mod lock;
mod rows;
mod schema;
mod unopened;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::app::ports::{Counts, LaneFilter, LaneRow, Ledger, LedgerReport, PortResult};
use crate::domain::admission::Verdict;
use crate::domain::ids::LaneId;
use crate::domain::plan::Plan;
use crate::domain::state::{LaneEvent, State};
use crate::domain::time::Timestamp;

use fault::Fault;
use lock::WriteLock;
pub use unopened::UnopenedLedger;

/// The ledger of one state folder.
pub struct SqliteLedger {
    path: PathBuf,
    /// Whether a newer Lane gave the database its format: then it is read and never written.
    too_new: Option<i64>,
    inner: Mutex<Inner>,
}

struct Inner {
    connection: Connection,
    lock: WriteLock,
}

impl SqliteLedger {
    /// Opens the ledger of `state_dir`, and makes both where they are not there yet.
    ///
    /// The folder is made 0700, the database (`lane.db`) 0600. A database of a newer format opens
    /// for reading.
    ///
    /// # Errors
    ///
    /// `NoRoom` when it cannot be made or written, `Damaged` when it is no ledger.
    pub fn open(state_dir: &Path) -> PortResult<Self> {
        let path = state_dir.join("lane.db");
        let mut lock = WriteLock::new(state_dir.join("lane.db.lock"));
        let (connection, format) =
            schema::open(state_dir, &path, &mut lock).map_err(|fault| fault.at(&path, "opening it"))?;
        let too_new = (format > schema::FORMAT).then_some(format);
        Ok(Self { path, too_new, inner: Mutex::new(Inner { connection, lock }) })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A panic in the middle of a transaction has rolled it back: the connection is sound.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` in one write transaction; any error undoes all of it.
    fn write<T>(&self, doing: &str, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> PortResult<T> {
        self.try_write(work).map_err(|fault| fault.at(&self.path, doing))
    }

    fn try_write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        if let Some(format) = self.too_new {
            return Err(Fault::NewerFormat { found: format, known: schema::FORMAT });
        }
        let mut inner = self.inner();
        let Inner { connection, lock } = &mut *inner;
        let _held = lock.hold()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }

    /// Runs `work` on one consistent view of the ledger.
    fn read<T>(&self, doing: &str, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> PortResult<T> {
        self.try_read(work).map_err(|fault| fault.at(&self.path, doing))
    }

    fn try_read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut inner = self.inner();
        let transaction = inner.connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
        let value = work(&transaction)?;
        transaction.finish()?;
        Ok(value)
    }
}

impl Ledger for SqliteLedger {
    fn admit(&self, plan: &Plan, queue: bool, max: u32, now: Timestamp) -> PortResult<Verdict> {
        self.write("admitting a lane", |tx| admission::admit(tx, plan, queue, max, now))
    }

    fn promote(&self, lane_id: &LaneId, max: u32, now: Timestamp) -> PortResult<Verdict> {
        self.write("promoting a lane", |tx| admission::promote(tx, lane_id, max, now))
    }

    fn append(&self, lane_id: &LaneId, event: &LaneEvent, now: Timestamp) -> PortResult<State> {
        self.write("appending an event", |tx| events::append_to_known(tx, lane_id, event, now))
    }

    fn lane(&self, lane_id: &LaneId) -> PortResult<Option<LaneRow>> {
        self.read("reading a lane", |connection| list::lane(connection, lane_id))
    }

    fn find(&self, text: &str) -> PortResult<Vec<LaneId>> {
        self.read("looking for a lane", |connection| list::find(connection, text))
    }

    fn live(&self) -> PortResult<Vec<LaneRow>> {
        self.read("listing the running lanes", list::live)
    }

    fn queued(&self) -> PortResult<Vec<LaneRow>> {
        self.read("listing the waiting lanes", list::queued)
    }

    fn recent(&self, filter: &LaneFilter) -> PortResult<Vec<LaneRow>> {
        self.read("listing lanes", |connection| list::recent(connection, filter))
    }

    fn counts(&self) -> PortResult<Counts> {
        self.read("counting lanes", list::counts)
    }

    fn newest_event(&self) -> PortResult<u64> {
        self.read("looking for the newest event", list::newest_event)
    }

    fn check(&self) -> PortResult<LedgerReport> {
        self.read("checking it", check::check)
    }

    fn rebuild(&self) -> PortResult<()> {
        self.write("building the projection anew", |tx| check::rebuild(tx))
    }

    fn settle(&self) {
        let mut inner = self.inner();
        let Inner { connection, lock } = &mut *inner;
        if let (None, Ok(Some(_held))) = (self.too_new, lock.try_hold()) {
            schema::truncate_log(connection);
        }
    }
}

#[cfg(test)]
mod tests;
