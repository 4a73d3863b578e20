//! The one question of every `lane run`, asked before its answer is needed.
//!
//! Git takes about as long to start as the state folder takes to open; side by side they cost the
//! caller one of the two.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::GitCli;
use super::command::Running;
use super::locate::question;

/// A question that was asked ahead, if there is one.
pub(super) type Ahead = Arc<Mutex<Option<Asked>>>;

/// A question on its way.
#[derive(Debug)]
pub(super) struct Asked {
    cwd: PathBuf,
    revision: String,
    running: Running,
}

/// Asks for `cwd` and `revision`. A directory that cannot be is not asked about.
pub(super) fn begin(git: &GitCli, cwd: &Path, revision: &str) {
    let Ok(cwd) = std::fs::canonicalize(cwd) else { return };
    let Ok(running) = question(git, &cwd, revision).start() else { return };
    *git.ahead.lock().unwrap_or_else(PoisonError::into_inner) =
        Some(Asked { cwd, revision: revision.to_owned(), running });
}

/// Returns the question on its way if it is this one.
pub(super) fn take(git: &GitCli, cwd: &Path, revision: &str) -> Option<Running> {
    let mut ahead = git.ahead.lock().unwrap_or_else(PoisonError::into_inner);
    ahead.take_if(|asked| asked.cwd == cwd && asked.revision == revision).map(|asked| asked.running)
}
