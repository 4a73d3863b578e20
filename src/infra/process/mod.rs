//! Processes: the only place that starts or signals any.
//!
//! ```text
//! lane run -> supervisor (nobody's child, own session)            detach
//!               └─ keeper (own session, adopts orphans)            start, keeper
//!                    └─ worker (own session, confined, tagged)
//! ```
//!
//! * [`keeper`] starts the worker and writes its end down; the supervisor watches both through
//!   [`running`] and ends the whole tree through [`sweep`].
//! * A process of the past is a [`ProcessIdentity`] and is held by a pidfd; see [`identity`].
//! * [`table`] reads `/proc`; [`linux`] holds the bare system calls; [`spawn`] starts everything.
//!
//! Linux only for now: a macOS build needs its own `linux` and `table`.

pub mod ask;
pub mod check;
pub mod detach;
pub mod identity;
pub mod keeper;
pub mod linux;
pub mod records;
pub mod running;
pub mod spawn;
pub mod start;
pub mod sweep;
pub mod table;
pub mod watcher;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use crate::app::ports::{
    Asked, CheckRequest, Claim, Clock, Environment, Found, PortError, PortResult, Processes, RunningWorker, WorkerStart,
};
use crate::domain::facts::CheckRun;
use crate::domain::ids::{LaneId, ProcessIdentity};
use crate::domain::time::Millis;
use crate::domain::worker::{Enforcement, ProviderName};
use crate::infra::sandbox;

/// The processes of this machine.
pub struct SystemProcesses {
    executable: PathBuf,
    clock: Arc<dyn Clock>,
    /// Processes that became supervisors by a fork, each a moment from its end.
    started: Mutex<Vec<Child>>,
}

impl SystemProcesses {
    /// Starts supervisors and keepers with `executable`: this program, as an absolute path.
    pub fn new(executable: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { executable, clock, started: Mutex::default() }
    }
}

impl Processes for SystemProcesses {
    fn own_identity(&self) -> PortResult<ProcessIdentity> {
        identity::identity_of(nix::unistd::getpid().as_raw(), &self.clock.boot_id())
            .ok_or_else(|| PortError::other("reading /proc/self/stat"))
    }

    fn start_supervisor(&self, run_dir: &Path, claim: Claim, environment: &Environment) -> PortResult<()> {
        let child = detach::start_supervisor(&self.executable, run_dir, claim, environment)?;
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain_mut(|earlier| matches!(earlier.try_wait(), Ok(None)));
        started.extend(child);
        Ok(())
    }

    fn start_worker(&self, start: &WorkerStart) -> PortResult<Box<dyn RunningWorker>> {
        start::start_worker(&self.executable, start, Arc::clone(&self.clock))
    }

    fn find_worker(&self, run_dir: &Path, lane_id: &LaneId) -> PortResult<Found> {
        start::find_worker(run_dir, lane_id, Arc::clone(&self.clock))
    }

    fn run_check(&self, request: &CheckRequest, run_dir: &Path) -> PortResult<CheckRun> {
        check::run_check(request, run_dir, self.clock.as_ref())
    }

    fn sweep_lane(&self, lane_id: &LaneId) -> PortResult<Vec<String>> {
        sweep::end_all(&sweep::Scope::tagged(lane_id.clone()), None)
    }

    fn ask(&self, program: &Path, arguments: &[&str], environment: &Environment, limit: Millis) -> PortResult<Asked> {
        ask::ask(program, arguments, environment, limit)
    }

    fn enforcement(&self, provider: ProviderName) -> PortResult<Enforcement> {
        match provider {
            ProviderName::Openai => Ok(Enforcement::Codex),
            ProviderName::Claude | ProviderName::Demo => sandbox::probe(),
        }
    }
}
