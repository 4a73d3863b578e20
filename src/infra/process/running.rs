//! A worker that runs, or has just ended, as its supervisor sees it.
//!
//! The supervisor sleeps on the run folder and on a pidfd of the worker, so it uses no processor
//! while the worker is quiet and wakes at once when it ends. How the worker ended is read from the
//! keeper's `exit.json`. If the keeper was killed, the worker has become our own child where this
//! process adopts orphans, and is reaped here; else nobody knows any more.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::identity::Tracked;
use super::records::{self, ExitRecord};
use super::sweep::{self, Scope};
use super::watcher::{LOOK_MS, Watcher};
use super::{linux, table};
use crate::app::ports::{Clock, PortError, PortResult, RunningWorker, Sight};
use crate::domain::ids::{LaneId, ProcessIdentity};
use crate::domain::time::{Millis, Monotonic};
use crate::domain::worker::ProcessExit;
use crate::provider::PoliteSignal;

/// Growth is reported at most once in this time; a chatty worker would cost a wake for each write.
const GROWTH_PAUSE: Duration = Duration::from_millis(100);

/// How long a living keeper may take to write the worker's end down (a slow disk, a stopped keeper).
const EXIT_RECORD_LIMIT: Duration = Duration::from_secs(10);

/// How long a keeper without children may take to end by itself.
const KEEPER_END_LIMIT_MS: u16 = 1000;

/// A worker and its keeper.
pub struct Running {
    lane_id: LaneId,
    run_dir: PathBuf,
    clock: Arc<dyn Clock>,
    keeper: Tracked,
    worker: Tracked,
    started: Monotonic,
    watcher: Watcher,
    last_growth: Option<Instant>,
    end: Option<(ProcessExit, Millis)>,
}

impl Running {
    /// Looks after this worker from now on.
    pub fn new(
        lane_id: LaneId,
        run_dir: PathBuf,
        clock: Arc<dyn Clock>,
        keeper: Tracked,
        worker: Tracked,
        started: Monotonic,
    ) -> Self {
        let mut watcher = Watcher::new(&run_dir);
        watcher.add_file(&run_dir.join(records::EVENTS_FILE));
        watcher.add_file(&run_dir.join(records::STDERR_FILE));
        Self { lane_id, run_dir, clock, keeper, worker, started, watcher, last_growth: None, end: None }
    }

    fn scope(&self, spare_keeper: bool) -> Scope {
        let here = |tracked: &Tracked| tracked.fd().map(|_| tracked.identity().clone());
        Scope {
            lane_id: self.lane_id.clone(),
            roots: here(&self.keeper).into_iter().chain(here(&self.worker)).collect(),
            spared: if spare_keeper { here(&self.keeper) } else { None },
            // Orphans come to this process only once the keeper is gone.
            adopts: self.keeper.is_gone(),
        }
    }

    /// Collects what is there to see, without waiting.
    fn sights(&mut self) -> Vec<Sight> {
        let mut sights = Vec::new();
        // The end is looked at first: growth that is seen after it belongs to what came before.
        let ended = self.worker.is_gone();
        self.watcher.look();
        if (ended || self.growth_pause().is_none()) && self.watcher.take_growth() {
            self.last_growth = Some(Instant::now());
            sights.push(Sight::Grew);
        }
        for _ in 0..self.watcher.take_requests() {
            sights.push(Sight::CancelRequested);
        }
        if ended {
            let (exit, ran_for) = self.learn_end();
            sights.push(Sight::Exited { exit, ran_for });
        }
        sights
    }

    /// How long growth is not to be looked at yet.
    fn growth_pause(&self) -> Option<Duration> {
        let since = self.last_growth?.elapsed();
        GROWTH_PAUSE.checked_sub(since).filter(|left| !left.is_zero())
    }

    /// Sleeps until something may have happened, at most `limit`.
    fn sleep(&self, limit: Duration) -> PortResult<()> {
        let pause = self.growth_pause();
        let mut limit = pause.map_or(limit, |pause| limit.min(pause));
        if self.watcher.must_look() {
            limit = limit.min(Duration::from_millis(LOOK_MS));
        }
        let folder = if pause.is_none() { self.watcher.fd() } else { None };
        poll_any(&[folder, self.worker.fd()], limit).map(|_| ())
    }

    /// Returns how the worker ended and how long it ran.
    fn learn_end(&mut self) -> (ProcessExit, Millis) {
        if let Some(end) = self.end {
            return end;
        }
        let end = self.await_record().map_or_else(
            || (self.exit_without_record(), self.clock.monotonic().since(self.started)),
            |record| (record.exit(), record.ran_for()),
        );
        self.end = Some(end);
        end
    }

    /// Waits for the keeper's record as long as the keeper can still write it.
    fn await_record(&self) -> Option<ExitRecord> {
        let path = self.run_dir.join(records::EXIT_FILE);
        let deadline = Instant::now() + EXIT_RECORD_LIMIT;
        loop {
            // The keeper is looked at first, so that a record written just before its end is not missed.
            let keeper_gone = self.keeper.wait(5);
            if let Ok(Some(record)) = records::load(&path) {
                return Some(record);
            }
            if keeper_gone || Instant::now() > deadline {
                return None;
            }
            // A stopped keeper could not write; one that runs does not notice.
            self.keeper.signal(libc::SIGCONT).ok();
        }
    }

    /// Asks the kernel how the worker ended: as its parent, or while it is still a zombie.
    fn exit_without_record(&self) -> ProcessExit {
        let Some(fd) = self.worker.fd() else { return ProcessExit::Unknown };
        let identity = self.worker.identity();
        let zombie = table::load_row(identity.pid).filter(|row| row.start_ticks == identity.start_ticks);
        linux::reap(fd)
            .or_else(|| zombie.filter(|row| !row.is_alive()).and_then(|row| row.exit_status).map(linux::exit_of))
            .unwrap_or(ProcessExit::Unknown)
    }

    /// Ends the keeper, which has no child any more and should be ending by itself.
    fn end_keeper(&self) -> PortResult<()> {
        self.keeper.signal(libc::SIGCONT).ok();
        if !self.keeper.wait(KEEPER_END_LIMIT_MS) {
            let doing = |e: std::io::Error| PortError::io(format!("ending the keeper of {}", self.lane_id), &e);
            self.keeper.signal(libc::SIGKILL).map_err(doing)?;
            if !self.keeper.wait(KEEPER_END_LIMIT_MS.saturating_mul(5)) {
                return Err(PortError::other(format!("the keeper of {} cannot be killed", self.lane_id)));
            }
        }
        if let Some(fd) = self.keeper.fd() {
            linux::reap(fd);
        }
        Ok(())
    }
}

impl RunningWorker for Running {
    fn keeper(&self) -> ProcessIdentity {
        self.keeper.identity().clone()
    }

    fn started(&self) -> Monotonic {
        self.started
    }

    fn wait(&mut self, timeout: Millis) -> PortResult<Vec<Sight>> {
        let deadline = Instant::now().checked_add(timeout.as_duration());
        loop {
            let sights = self.sights();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !sights.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok(sights);
            }
            self.sleep(left.unwrap_or(Duration::MAX))?;
        }
    }

    fn watch_file(&mut self, path: &Path) {
        self.watcher.add_file(path);
    }

    fn signal_politely(&mut self, signal: PoliteSignal) -> PortResult<()> {
        let signal = match signal {
            PoliteSignal::Interrupt => libc::SIGINT,
            PoliteSignal::Terminate => libc::SIGTERM,
        };
        self.worker.signal(signal).map_err(|e| PortError::io(format!("signalling the worker of {}", self.lane_id), &e))
    }

    fn kill_tree(&mut self) -> PortResult<()> {
        sweep::end_all(&self.scope(true), Some(&self.worker))?;
        self.keeper.signal(libc::SIGCONT).ok();
        Ok(())
    }

    fn sweep(&mut self) -> PortResult<Vec<String>> {
        sweep::settle(&self.scope(true))?;
        let mut names = sweep::end_all(&self.scope(true), Some(&self.worker))?;
        if self.worker.is_gone() {
            self.learn_end();
        }
        self.end_keeper()?;
        names.extend(sweep::end_all(&self.scope(false), None)?);
        Ok(names)
    }

    fn processor_time(&self) -> Millis {
        sweep::processor_time(&self.scope(false))
    }
}

/// Sleeps until one of the descriptors is readable, at most `limit`; a signal ends the sleep early.
///
/// True when one is readable (or at its end).
pub fn poll_any(descriptors: &[Option<BorrowedFd<'_>>], limit: Duration) -> PortResult<bool> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().flatten().map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
    // Poll counts whole milliseconds; rounding up keeps the last one from spinning.
    let limit = limit.checked_add(Duration::from_micros(999)).unwrap_or(limit);
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, limit) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(PortError::io("waiting", &error.into())),
    }
}
