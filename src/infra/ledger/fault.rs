//! What can go wrong inside the ledger, and how callers hear of it.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::app::ports::{PortError, PortErrorKind};
use crate::domain::ids::LaneId;
use crate::domain::state::IllegalTransition;

/// SQLite could not make room for its shared memory: the disk is full.
const SQLITE_IOERR_SHMSIZE: i32 = 10 | (19 << 8);

/// A failure inside the ledger, before it is told which file it was about.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}")]
    Sql(#[from] rusqlite::Error),
    #[error("{doing}: {error}")]
    Io { doing: &'static str, error: std::io::Error },
    #[error(transparent)]
    Illegal(#[from] IllegalTransition),
    #[error("lane {0} is in it already")]
    Exists(LaneId),
    #[error("there is no lane {0}")]
    NoLane(LaneId),
    #[error("a slot is given by admission only, not by the event `{0}`")]
    SlotByEvent(&'static str),
    #[error("it has format {found}, and this Lane writes up to {known}")]
    NewerFormat { found: i64, known: i64 },
    #[error("{0} was written by a newer Lane")]
    NewerRow(String),
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Unwritable(serde_json::Error),
}

impl Fault {
    pub(super) const fn io(doing: &'static str, error: std::io::Error) -> Self {
        Self::Io { doing, error }
    }

    /// Says which database it was and what was done to it.
    pub(super) fn at(self, path: &Path, doing: &str) -> PortError {
        let place = path.display();
        match self {
            Self::Sql(error) => sql(&error, path, doing),
            Self::Io { doing: step, error } => PortError::io(format_args!("ledger {place}: {doing}: {step}"), &error),
            Self::Illegal(_) | Self::Exists(_) | Self::SlotByEvent(_) => {
                error(PortErrorKind::Illegal, format!("ledger {place}: {doing}: {self}"))
            }
            Self::NewerFormat { .. } | Self::NewerRow(_) => {
                error(PortErrorKind::TooNew, format!("ledger {place}: {doing}: {self}"))
            }
            Self::Damaged(_) => error(PortErrorKind::Damaged, format!("ledger {place} is damaged: {doing}: {self}")),
            Self::NoLane(_) | Self::Unwritable(_) => {
                error(PortErrorKind::Other, format!("ledger {place}: {doing}: {self}"))
            }
        }
    }
}

const fn error(kind: PortErrorKind, message: String) -> PortError {
    PortError { kind, message }
}

/// Reads SQLite's codes. Its own texts are left out where they would mislead.
fn sql(failure: &rusqlite::Error, path: &Path, doing: &str) -> PortError {
    let place = path.display();
    let (kind, why) = match failure.sqlite_error() {
        Some(code) if code.extended_code == SQLITE_IOERR_SHMSIZE => {
            (PortErrorKind::NoRoom, "no room is left on the disk".to_owned())
        }
        Some(code) => by_code(code.code, failure),
        None => (PortErrorKind::Damaged, format!("a value is not of its type: {failure}")),
    };
    let opening = if kind == PortErrorKind::Damaged { " is damaged" } else { "" };
    error(kind, format!("ledger {place}{opening}: {doing}: {why}"))
}

fn by_code(code: ErrorCode, failure: &rusqlite::Error) -> (PortErrorKind, String) {
    match code {
        ErrorCode::DiskFull => (PortErrorKind::NoRoom, "no room is left on the disk".to_owned()),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
            (PortErrorKind::NoRoom, "it or its folder cannot be written".to_owned())
        }
        ErrorCode::CannotOpen => {
            (PortErrorKind::NoRoom, "it or a file beside it cannot be opened for writing".to_owned())
        }
        ErrorCode::DatabaseCorrupt => (PortErrorKind::Damaged, "a page of it does not hold what it must".to_owned()),
        ErrorCode::NotADatabase => (PortErrorKind::Damaged, "it is no SQLite database".to_owned()),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (PortErrorKind::Held, "another process has kept it from being used for a minute".to_owned())
        }
        _ => (PortErrorKind::Other, failure.to_string()),
    }
}
