//! What Lane itself notes in the run folder about a checkout, so that it never has to ask the
//! worker's git folder.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files;
use crate::app::ports::{PortError, PortErrorKind, PortResult};
use crate::domain::facts::TakenOver;
use crate::domain::plan::{Plan, RepositoryPlan};

/// The most bytes that a note takes.
const LIMIT_BYTES: u64 = 256 * 1024 * 1024;

/// A submodule that Lane filled in a fresh checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FilledSubmodule {
    /// Path from the root of the checkout.
    pub(super) path: String,
    /// Its git folder, from the checkout's own git folder (`modules/<name>`, nested ones below).
    pub(super) module: String,
    /// The commit that the base records for it.
    pub(super) commit: String,
    /// The git folder in the lead's repository that it borrows from.
    pub(super) source: PathBuf,
}

/// What was decided when the checkout was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Made {
    /// Settings that decide how content looks.
    pub(super) content: Vec<(String, String)>,
    /// Identity in the checkout.
    pub(super) identity: Vec<(String, String)>,
    /// The lead's `info/exclude` at that time.
    pub(super) exclude: String,
    /// The person's own ignore file.
    pub(super) person_exclude: Option<PathBuf>,
    /// Ignored files that were brought along, from the root.
    pub(super) brought: Vec<String>,
    /// Submodules that were filled.
    pub(super) submodules: Vec<FilledSubmodule>,
    /// Sparse patterns and whether they are by whole folders.
    pub(super) sparse: Option<(String, bool)>,
    /// The worktree's own git folder in the lead's repository (linked mode).
    pub(super) admin_dir: Option<PathBuf>,
}

impl Made {
    /// Notes it. Waiting for the disk behind a large checkout is slow, so that is done only for what
    /// the note of the beginning does not hold already.
    pub(super) fn write(&self, run_dir: &Path) -> PortResult<()> {
        let more = !self.brought.is_empty() || !self.submodules.is_empty() || self.admin_dir.is_some();
        if more { Note::Made.write(run_dir, self) } else { Note::Made.write_lazily(run_dir, self) }
    }

    /// Returns what was noted last, or how it began when a power cut took the rest.
    pub(super) fn load(run_dir: &Path) -> PortResult<Self> {
        if let Ok(Some(made)) = Note::Made.load(run_dir) {
            return Ok(made);
        }
        Ok(Note::Making.load(run_dir)?.unwrap_or_default())
    }
}

/// What taking over left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    /// The answer.
    pub(super) answer: TakenOver,
    /// The commit whose tree is what stood in the checkout (ignored files aside).
    pub(super) tree_commit: String,
    /// Refs in the lead's repository that keep the lane's commits.
    pub(super) refs: Vec<String>,
    /// The git folder that knows the tree, when it is not the lead's.
    pub(super) git_dir: Option<PathBuf>,
}

impl Taken {
    /// The git folder that knows the tree.
    pub(super) fn git_dir(&self, repository: &RepositoryPlan) -> PathBuf {
        self.git_dir.clone().unwrap_or_else(|| repository.common_dir.clone())
    }
}

/// Lane's own commit of leftovers, noted before the branch of a linked worktree moves to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnCommit {
    /// The commit.
    pub(super) commit: String,
    /// Its parent: where the worker's HEAD stood.
    pub(super) parent: String,
}

/// Which note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// A checkout is being made: what stands at its path is Lane's. Holds [`Made`] as it begins.
    Making,
    /// [`Made`].
    Made,
    /// [`Taken`].
    Taken,
    /// What is in the archive.
    Saved,
    /// What linked checkouts share, before the worker.
    SharedBefore,
    /// [`OwnCommit`].
    OwnCommit,
}

impl Note {
    const fn file_name(self) -> &'static str {
        match self {
            Self::Making => "checkout-making.json",
            Self::Made => "checkout-made.json",
            Self::Taken => "taken-over.json",
            Self::Saved => "saved.json",
            Self::SharedBefore => "shared-before.json",
            Self::OwnCommit => "own-commit.json",
        }
    }

    /// Where the note lies.
    pub(super) fn path(self, run_dir: &Path) -> PathBuf {
        run_dir.join(self.file_name())
    }

    /// Writes the note, synced.
    pub(super) fn write<T: Serialize>(self, run_dir: &Path, value: &T) -> PortResult<()> {
        let text = serde_json::to_vec(value)
            .map_err(|error| PortError::other(format!("write {}: {error}", self.file_name())))?;
        files::write_synced(&self.path(run_dir), &text)
    }

    /// Writes the note without waiting for the disk, for what another note can stand in for.
    pub(super) fn write_lazily<T: Serialize>(self, run_dir: &Path, value: &T) -> PortResult<()> {
        let text = serde_json::to_vec(value)
            .map_err(|error| PortError::other(format!("write {}: {error}", self.file_name())))?;
        let fresh = files::sibling(&self.path(run_dir), ".new");
        files::write(&fresh, text)?;
        files::rename(&fresh, &self.path(run_dir))
    }

    /// Returns the note; `None` when there is none.
    pub(super) fn load<T: DeserializeOwned>(self, run_dir: &Path) -> PortResult<Option<T>> {
        let path = self.path(run_dir);
        if !files::exists(&path) {
            return Ok(None);
        }
        let damaged = |why: String| PortError {
            kind: PortErrorKind::Damaged,
            message: format!("read {}: {why}", path.display()),
        };
        let text = files::read_plain(&path, LIMIT_BYTES).ok_or_else(|| damaged("it is no plain file".into()))?;
        serde_json::from_slice(&text).map(Some).map_err(|error| damaged(error.to_string()))
    }
}

/// Lane's own copy of the index as it was when the checkout was fresh.
pub(super) fn base_index(plan: &Plan) -> PathBuf {
    plan.run_dir.join("base.index")
}

/// Where the worker's git folder is kept.
pub(super) fn worker_git(plan: &Plan) -> PathBuf {
    plan.run_dir.join("worker-git")
}

/// A ref under the lane's own namespace in the lead's repository.
pub(super) fn lane_ref(plan: &Plan, name: &str) -> String {
    format!("refs/lane/{}/{name}", plan.lane_id)
}
