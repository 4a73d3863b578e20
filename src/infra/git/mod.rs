//! Git, behind one wrapper with a cleaned environment.
//!
//! What it guarantees: no hook, no signing, no prompt and no `GIT_*` variable of the caller has a
//! part in Lane's own commands; whatever is half made is undone; the git folder of a worker's
//! clone is read as files and never trusted; nothing is removed that is not saved elsewhere.
//!
//! Filters (such as Git LFS) run for Lane's commands only when the person's own configuration
//! defines them, never because a worker's does.

mod archive;
mod clean;
mod clone;
mod command;
mod config;
mod facts;
mod files;
mod git_folder;
mod hostile_refs;
mod ignore_rules;
mod import;
mod in_place;
mod include;
mod index_file;
mod inspect;
mod keep;
mod leftovers;
mod linked;
mod locate;
mod look_ahead;
mod pipes;
mod record;
mod restore;
mod scratch;
mod shared_state;
mod submodules;
mod survey;
mod take_over;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::app::ports::{CheckoutMade, Cleaned, Git, Located, PortError, PortResult, Restored};
use crate::domain::facts::TakenOver;
use crate::domain::plan::{Plan, RepositoryPlan};
use crate::domain::worker::CheckoutMode;

/// The git command line, as an adapter.
#[derive(Clone, Debug)]
pub struct GitCli {
    program: PathBuf,
    path_variable: Option<OsString>,
    home: Option<PathBuf>,
    ahead: look_ahead::Ahead,
}

impl GitCli {
    /// Builds the adapter.
    ///
    /// `program` is the git executable; `path_variable` and `home` become its `PATH` and `HOME`,
    /// the only two variables of the caller that it sees.
    pub fn new(program: PathBuf, path_variable: Option<OsString>, home: Option<PathBuf>) -> Self {
        Self { program, path_variable, home, ahead: look_ahead::Ahead::default() }
    }

    /// Begins what [`Git::locate`] will ask for this directory and revision, so that its answer is
    /// there, or on its way, when it is asked for. Whatever goes wrong shows then.
    pub fn look_ahead(&self, cwd: &Path, revision: &str) {
        look_ahead::begin(self, cwd, revision);
    }
}

impl Git for GitCli {
    fn locate(&self, cwd: &Path, revision: &str) -> PortResult<Located> {
        locate::locate(self, cwd, revision)
    }

    fn missing_in_base(&self, repository: &RepositoryPlan, paths: &[String]) -> PortResult<Vec<String>> {
        inspect::missing_in_base(self, repository, paths)
    }

    fn dirty_paths(&self, repository: &RepositoryPlan) -> PortResult<u64> {
        inspect::dirty_paths(self, repository)
    }

    fn make_checkout(&self, plan: &Plan) -> PortResult<CheckoutMade> {
        match plan.checkout {
            CheckoutMode::Clone => clone::make(self, plan),
            CheckoutMode::Linked => linked::make(self, plan),
            CheckoutMode::None => Ok(CheckoutMade::default()),
        }
    }

    fn take_over(&self, plan: &Plan) -> PortResult<TakenOver> {
        take_over::take_over(self, plan)
    }

    fn diff(&self, plan: &Plan, stat: bool) -> PortResult<Vec<u8>> {
        facts::diff(self, plan, stat)
    }

    fn clean(&self, plan: &Plan, rebuildable: &[String], dry_run: bool) -> PortResult<Cleaned> {
        clean::clean(self, plan, rebuildable, dry_run)
    }

    fn restore(&self, plan: &Plan, into: Option<&Path>) -> PortResult<Restored> {
        restore::restore(self, plan, into)
    }

    fn version(&self) -> PortResult<String> {
        inspect::version(self)
    }
}

/// The repository of a lane that must have one.
fn require_repository(plan: &Plan) -> PortResult<&RepositoryPlan> {
    plan.repository.as_ref().ok_or_else(|| PortError::other(format!("lane {} has no repository", plan.lane_id)))
}
