//! Run folders on disk: `runs/<lane_id>/`, one for each lane, private to the person (0700, 0600).
//!
//! | file | what it is |
//! |---|---|
//! | `brief.md` | what the worker is handed |
//! | `task.md` | what the lead wrote |
//! | `plan.json` | the plan |
//! | `environment.json` | the variables that the lane may see |
//! | `supervisor.lock` | locked as long as a supervisor (or a caller about to start one) lives |
//! | `supervisor.json` | which process the supervisor is, once it runs |
//! | `cancel` | one line for each request to stop |
//! | `result.json` | the result, by rename after a sync |
//! | `ended` | the mark that wakes waiters |
//!
//! What it guarantees: no file of a run folder is reached through a symbolic link, nor is the
//! folder itself; what [`RunFolders::create`] returned from survives a power loss; a lock is proof
//! of life and needs no process number; reading never takes more memory than one line.

mod environment_file;
mod files;
mod lines;
mod lock;
mod protected;
mod rollout;
mod rush;
#[cfg(target_os = "linux")]
mod watch;

mod wait;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::statvfs::statvfs;

use crate::app::ports::{Claim, Environment, PortError, PortErrorKind, PortResult, RunFolders, Syncing};
use crate::domain::facts::ProtectedEntry;
use crate::domain::plan::{PLAN_FORMAT, Plan};
use crate::domain::time::Millis;
pub use rush::let_callers_go_first;

const BRIEF: &str = "brief.md";
const TASK: &str = "task.md";
const PLAN: &str = "plan.json";
const ENVIRONMENT: &str = "environment.json";
const CANCEL: &str = "cancel";
const ENDED: &str = "ended";
const SUPERVISOR_LOG: &str = "supervisor.log";

/// The run folders of one machine.
#[derive(Default)]
pub struct RunFoldersOnDisk {
    waits: wait::Waits,
    rush: Mutex<Option<rush::Rush>>,
}

impl RunFoldersOnDisk {
    /// Builds it. Nothing is touched before it is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// Likewise, for a call that starts a lane: until it is answered, or begins to wait, new
    /// supervisors let it go first.
    pub fn of_a_starting_call(state_dir: &Path) -> Self {
        Self { waits: wait::Waits::default(), rush: Mutex::new(rush::Rush::begin(state_dir)) }
    }
}

impl RunFolders for RunFoldersOnDisk {
    fn create(
        &self,
        plan: &Plan,
        brief: &str,
        original: &str,
        environment: &Environment,
    ) -> PortResult<Box<dyn Syncing>> {
        let contents = [
            (BRIEF, brief.as_bytes().to_vec()),
            (TASK, original.as_bytes().to_vec()),
            (PLAN, plan_text(plan)?),
            (ENVIRONMENT, environment_file::encode(environment)?),
            // Both are there from the start, so that the folder does not change while it is synced.
            (lock::SUPERVISOR, Vec::new()),
            (SUPERVISOR_LOG, Vec::new()),
        ];
        files::make_folder(&plan.run_dir)?;
        match files::write_new(&plan.run_dir, &contents) {
            Ok(syncing) => Ok(Box::new(syncing)),
            Err(error) => {
                self.discard(plan);
                Err(error)
            }
        }
    }

    fn discard(&self, plan: &Plan) {
        for name in [BRIEF, TASK, PLAN, ENVIRONMENT, lock::SUPERVISOR, SUPERVISOR_LOG] {
            files::remove(&plan.run_dir, name);
        }
        // A folder that holds anything else stays: it is not ours to remove.
        let _ = std::fs::remove_dir(&plan.run_dir);
    }

    fn claim(&self, run_dir: &Path) -> PortResult<Claim> {
        lock::claim(run_dir)
    }

    fn is_claimed(&self, run_dir: &Path) -> PortResult<bool> {
        lock::is_claimed(run_dir)
    }

    fn reopen(&self, run_dir: &Path) {
        files::reopen(run_dir);
    }

    fn lock_is_broken(&self, run_dir: &Path) -> bool {
        lock::is_broken(run_dir)
    }

    fn load_plan(&self, run_dir: &Path) -> PortResult<Plan> {
        let bytes = files::require(run_dir, PLAN)?;
        read_plan(&bytes).map_err(|error| files::about(run_dir, PLAN, error))
    }

    fn load_environment(&self, run_dir: &Path) -> PortResult<Environment> {
        let bytes = files::require(run_dir, ENVIRONMENT)?;
        environment_file::decode(&bytes).map_err(|error| files::about(run_dir, ENVIRONMENT, error))
    }

    fn forget_environment(&self, run_dir: &Path) {
        files::remove(run_dir, ENVIRONMENT);
    }

    fn request_cancel(&self, run_dir: &Path) -> PortResult<()> {
        files::append(run_dir, CANCEL, b"cancel\n")
    }

    fn cancel_requested(&self, run_dir: &Path) -> bool {
        files::exists(run_dir, CANCEL)
    }

    fn write(&self, run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()> {
        files::replace(run_dir, name, content)
    }

    fn note(&self, run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()> {
        files::replace_unsynced(run_dir, name, content)
    }

    fn read_tail(&self, run_dir: &Path, name: &str, limit_bytes: u64) -> PortResult<Option<Vec<u8>>> {
        files::tail(run_dir, name, limit_bytes)
    }

    fn lines(
        &self,
        run_dir: &Path,
        name: &str,
        offset: u64,
        last: bool,
        take: &mut dyn FnMut(&[u8]),
    ) -> PortResult<u64> {
        match files::open(run_dir, name)? {
            // The file comes into being with its first line.
            None => Ok(offset),
            Some(file) => lines::read(file, offset, last, take)
                .map_err(|error| PortError::io(format_args!("reading {}", run_dir.join(name).display()), &error)),
        }
    }

    fn mark_ended(&self, run_dir: &Path) -> PortResult<()> {
        files::append(run_dir, ENDED, b"")
    }

    fn wait_for_change(&self, run_dirs: &[PathBuf], timeout: Millis) -> PortResult<()> {
        // Who waits is in no hurry.
        drop(self.rush.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.waits.wait(run_dirs, timeout.as_duration())
    }

    fn look_at_protected(&self, checkout: &Path, paths: &[String]) -> PortResult<Vec<ProtectedEntry>> {
        protected::look(checkout, paths)
    }

    fn find_rollout(&self, codex_home: &Path, session_id: &str) -> Option<PathBuf> {
        rollout::find(codex_home, session_id)
    }

    fn free_bytes(&self, path: &Path) -> PortResult<u64> {
        let there = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or_else(|| Path::new("/"));
        let figures = statvfs(there).map_err(|errno| {
            PortError::io(format_args!("asking for the free space at {}", there.display()), &errno.into())
        })?;
        #[expect(clippy::useless_conversion, reason = "the fields are narrower on other systems")]
        let (blocks, size) = (u64::from(figures.blocks_available()), u64::from(figures.fragment_size()));
        Ok(blocks.saturating_mul(size))
    }
}

fn plan_text(plan: &Plan) -> PortResult<Vec<u8>> {
    serde_json::to_vec_pretty(plan).map_err(|error| PortError::other(format!("writing the plan as JSON: {error}")))
}

fn read_plan(bytes: &[u8]) -> PortResult<Plan> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let damaged = |error: serde_json::Error| PortError {
        kind: PortErrorKind::Damaged,
        message: format!("it is no plan: {error}"),
    };
    let Format { format } = serde_json::from_slice(bytes).map_err(damaged)?;
    if format > PLAN_FORMAT {
        let message = format!("it has format {format}, and this Lane reads up to {PLAN_FORMAT}");
        return Err(PortError { kind: PortErrorKind::TooNew, message });
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

#[cfg(test)]
mod tests;
