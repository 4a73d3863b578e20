//! What can come of a use case besides its answer.

use super::ports::{PortError, PortErrorKind};
use crate::domain::refusal::{Refusal, RefusalStatus};

/// A refusal, or a failure of Lane itself.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// An answer given before anything ran.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Lane itself failed.
    #[error("cannot {doing}: {source}")]
    Failed {
        /// What was being done, as it reads after "cannot".
        doing: String,
        /// Why it did not work.
        source: PortError,
    },
}

/// What a use case returns.
pub type AppResult<T> = Result<T, AppError>;

/// Says what was being done when a port failed.
pub trait Doing<T> {
    /// Turns the failure into a refusal where it is one, else names what was being done.
    fn doing(self, what: &str) -> AppResult<T>;
}

impl<T> Doing<T> for Result<T, PortError> {
    fn doing(self, what: &str) -> AppResult<T> {
        self.map_err(|source| match source.kind {
            PortErrorKind::NoRoom => Refusal::new(
                RefusalStatus::DiskFull,
                format!("cannot {what}: {source}"),
                "make room or make the folder writable (LANE_STATE names the state folder), then call again",
            )
            .into(),
            PortErrorKind::TooNew => Refusal::new(
                RefusalStatus::StateTooNew,
                format!("cannot {what}: {source}"),
                "a newer Lane wrote this state folder: install that version, or point LANE_STATE at another folder",
            )
            .into(),
            PortErrorKind::Damaged | PortErrorKind::Held | PortErrorKind::Illegal | PortErrorKind::Other => {
                AppError::Failed { doing: what.to_owned(), source }
            }
        })
    }
}
