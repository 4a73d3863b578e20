//! Formats of the database, and how a connection to it is made.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::fault::Fault;
use super::lock::WriteLock;

/// Format that this Lane writes.
pub(super) const FORMAT: i64 = 1;

/// Step N brings a database from format N to N + 1. Append-only, and each step only adds: a
/// supervisor of an older Lane may still be writing.
const MIGRATIONS: [&str; 1] = [FORMAT_1];

const FORMAT_1: &str = "
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    lane_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    prev_hash BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE TRIGGER events_stay BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TABLE quota (
    account TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL
) STRICT;
";

/// The tables that are made from the events alone. Small columns come first, so that a look at
/// them need not read the plan.
///
/// `created_seq` is the number of the lane's first event, so it also orders the queue.
pub(super) const PROJECTION: &str = "
CREATE TABLE runs (
    created_seq INTEGER PRIMARY KEY,
    lane_id TEXT NOT NULL,
    lane_id_reversed TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    last_event_at INTEGER NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT,
    live INTEGER NOT NULL,
    queue_order INTEGER,
    repository_root TEXT,
    write_paths TEXT NOT NULL,
    state_data TEXT NOT NULL,
    end_data TEXT,
    plan_data TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_by_id ON runs (lane_id);
CREATE INDEX runs_by_reversed_id ON runs (lane_id_reversed);
CREATE INDEX runs_by_time ON runs (created_at);
CREATE INDEX runs_by_repository ON runs (repository_root) WHERE repository_root IS NOT NULL;
CREATE INDEX runs_by_outcome ON runs (outcome) WHERE outcome IS NOT NULL;
CREATE INDEX runs_live ON runs (created_seq) WHERE live = 1;
CREATE INDEX runs_queued ON runs (created_seq) WHERE queue_order IS NOT NULL;
CREATE TABLE reservations (
    lane_id TEXT NOT NULL,
    path TEXT NOT NULL,
    PRIMARY KEY (lane_id, path)
) STRICT, WITHOUT ROWID;
";

/// How long SQLite itself waits for a lock. Writers wait at the file lock; what is left is the
/// short moment in which another process reads the log after a crash.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Pages in the log at which a commit also moves them into the database. The first process to
/// open the database reads the whole log, so it is kept small: 200 pages take about a millisecond.
const CHECKPOINT_PAGES: u32 = 200;

/// Opens the database, makes or migrates it where needed, and returns its format.
pub(super) fn open(state_dir: &Path, path: &Path, lock: &mut WriteLock) -> Result<(Connection, i64), Fault> {
    let is_there = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    if !is_there {
        make_folder(state_dir)?;
        let _held = lock.hold()?;
        make_file(state_dir, path)?;
        let mut connection = connect(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let format = migrate(&mut connection)?;
        return Ok((connection, format));
    }
    let mut connection = connect(path)?;
    let found = format(&connection)?;
    if found >= FORMAT {
        return Ok((connection, found));
    }
    let _held = lock.hold()?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let format = migrate(&mut connection)?;
    Ok((connection, format))
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Otherwise every short process would pay for a checkpoint when it closes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(&format!("PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES};"))?;
    Ok(connection)
}

/// Moves the whole log into the database and empties it, if no one else is at it.
pub(super) fn truncate_log(connection: &Connection) {
    // Nothing depends on it: whatever fails here is left to the next commit or the next opening.
    if connection.busy_timeout(Duration::ZERO).is_ok() {
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        // The first commit into an empty log pays for its head. This one changes nothing.
        let _ = format(connection).and_then(|found| Ok(connection.pragma_update(None, "user_version", found)?));
    }
    let _ = connection.busy_timeout(BUSY_TIMEOUT);
}

fn format(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Brings the database to [`FORMAT`] in one transaction. The caller holds the write lock.
fn migrate(connection: &mut Connection) -> Result<i64, Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = format(&transaction)?;
    for (step, text) in (0..).zip(MIGRATIONS) {
        if found <= step {
            transaction.execute_batch(text)?;
        }
    }
    if found == 0 {
        transaction.execute_batch(PROJECTION)?;
    }
    let reached = found.max(FORMAT);
    transaction.pragma_update(None, "user_version", reached)?;
    transaction.commit()?;
    Ok(reached)
}

fn make_folder(state_dir: &Path) -> Result<(), Fault> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(state_dir);
    made.map_err(|error| Fault::io("making its folder", error))
}

/// Makes the empty file, so that SQLite gives its permission bits to the files beside it.
fn make_file(state_dir: &Path, path: &Path) -> Result<(), Fault> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map_err(|error| Fault::io("making it", error))?;
    let synced = File::open(state_dir).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Fault::io("syncing its folder", error))
}
