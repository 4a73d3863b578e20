//! Waiting for a change in run folders without using the processor.
//!
//! A waiter asks the ledger, then waits here, then asks again. Nothing that happens between two
//! waits for the same folders is lost, since their watch stays; nothing that matters is lost before
//! the first, since an end and a dead supervisor are looked for after the watch is set.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::app::ports::PortResult;

use super::{ENDED, files, lock};

#[cfg(target_os = "linux")]
use super::watch::Watcher;

/// File in which a supervisor says which process it is. Where it is and nobody holds the lock, the
/// supervisor is dead.
pub(super) const SUPERVISOR_JSON: &str = "supervisor.json";

/// How often folders are looked at where the kernel has no watch left to give. It is also how long
/// a caller sleeps who has been told of an end and waits on.
const GLANCE_EVERY: Duration = Duration::from_millis(100);

/// Growing output wakes a waiter only so often: a chatty worker must not keep it busy.
const GROWTH_EVERY: Duration = Duration::from_millis(50);

/// How long after the closing of a lock's file a waiter looks again.
const LOCK_SETTLES: Duration = Duration::from_millis(2);

/// The most sets of folders whose watch is kept.
const KEPT_WAITS: usize = 8;

/// What is remembered from one wait to the next, by set of folders.
#[derive(Default)]
pub(super) struct Waits {
    kept: Mutex<HashMap<Vec<PathBuf>, Wait>>,
}

/// One set of folders that is waited for.
struct Wait {
    #[cfg(target_os = "linux")]
    watcher: Option<Watcher>,
    glances: Vec<Glance>,
    /// Folders whose end, or whose supervisor's, the caller has been told of.
    told: BTreeSet<PathBuf>,
}

/// What woke a waiter, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing.
    Nothing,
    /// Output grew.
    Growth,
    /// A file of the supervisor's lock was closed: it may be dead.
    LockClosed,
    /// A file came, went or was finished.
    Change,
}

impl Waits {
    /// Sleeps until something changes in one of `run_dirs`, a supervisor of them dies, or the time
    /// is up. A folder that has ended already, or whose supervisor is dead, ends the wait at once.
    pub(super) fn wait(&self, run_dirs: &[PathBuf], timeout: Duration) -> PortResult<()> {
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(run_dirs);
        let mut wait = known.unwrap_or_else(|| Wait::new(run_dirs));
        wait.sleep(run_dirs, timeout);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_WAITS {
            kept.clear();
        }
        kept.insert(run_dirs.to_vec(), wait);
        Ok(())
    }
}

impl Wait {
    fn new(run_dirs: &[PathBuf]) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            watcher: Watcher::new(run_dirs),
            glances: glances(run_dirs),
            told: BTreeSet::new(),
        }
    }

    fn sleep(&mut self, run_dirs: &[PathBuf], timeout: Duration) {
        let start = Instant::now();
        let over = self.over(run_dirs);
        let is_news = over.iter().any(|run_dir| !self.told.contains(run_dir));
        self.told = over;
        if is_news {
            return;
        }
        let mut limit = if self.told.is_empty() { timeout } else { timeout.min(GLANCE_EVERY) };
        while let Some(left) = limit.checked_sub(start.elapsed()) {
            match self.next(run_dirs, left) {
                Seen::Change => return,
                // The kernel reports the closing of a file a moment before it frees its lock: if
                // the lock is still held, the caller soon looks again.
                Seen::LockClosed => limit = limit.min(start.elapsed().saturating_add(LOCK_SETTLES)),
                Seen::Growth => limit = limit.min(GROWTH_EVERY),
                Seen::Nothing => {}
            }
            if self.is_any_over(run_dirs) {
                return;
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn next(&mut self, run_dirs: &[PathBuf], left: Duration) -> Seen {
        match &self.watcher {
            Some(watcher) => watcher.next(left),
            None => self.glance(run_dirs, left),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn next(&mut self, run_dirs: &[PathBuf], left: Duration) -> Seen {
        self.glance(run_dirs, left)
    }

    /// Looks once, and sleeps for a moment if nothing is new.
    fn glance(&mut self, run_dirs: &[PathBuf], left: Duration) -> Seen {
        let now = glances(run_dirs);
        if now != self.glances {
            self.glances = now;
            return Seen::Change;
        }
        std::thread::sleep(left.min(GLANCE_EVERY));
        Seen::Nothing
    }

    /// Folders whose lane has ended or whose supervisor is dead.
    fn over(&self, run_dirs: &[PathBuf]) -> BTreeSet<PathBuf> {
        run_dirs.iter().filter(|run_dir| is_over(run_dir)).cloned().collect()
    }

    /// Whether one is over of which the caller has not been told.
    fn is_any_over(&self, run_dirs: &[PathBuf]) -> bool {
        run_dirs.iter().any(|run_dir| !self.told.contains(run_dir) && is_over(run_dir))
    }
}

fn is_over(run_dir: &Path) -> bool {
    let is_dead = || files::exists(run_dir, SUPERVISOR_JSON) && matches!(lock::is_claimed(run_dir), Ok(false));
    files::exists(run_dir, ENDED) || is_dead()
}

/// Name, size and time of change of each file of a folder.
type Glance = Vec<(std::ffi::OsString, u64, Option<SystemTime>)>;

fn glances(run_dirs: &[PathBuf]) -> Vec<Glance> {
    run_dirs.iter().map(|run_dir| glance(run_dir)).collect()
}

fn glance(run_dir: &Path) -> Glance {
    let entries = std::fs::read_dir(run_dir).into_iter().flatten().filter_map(Result::ok);
    let mut seen: Glance = entries
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((entry.file_name(), metadata.len(), metadata.modified().ok()))
        })
        .collect();
    seen.sort();
    seen
}
