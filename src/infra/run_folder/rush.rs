//! Supervisors let callers go first.
//!
//! A lead that starts many lanes at once waits for each answer, and nobody waits for a checkout.
//! So a call that starts a lane holds a shared lock on `starting.lock` in the state folder, and a
//! new supervisor begins its work when nobody holds it any more, or after a short while: a stream
//! of calls that never ends holds up no lane.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The lock's name in the state folder.
const LOCK: &str = "starting.lock";

/// How long a supervisor lets callers go first.
const LIMIT: Duration = Duration::from_millis(250);

/// The first pause between two looks; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// A call that starts a lane, until it is dropped. It is a courtesy: where it cannot be had, the
/// call goes on without.
#[derive(Debug)]
pub(super) struct Rush {
    _file: File,
}

impl Rush {
    /// Begins one, if the state folder is there already.
    pub(super) fn begin(state_dir: &Path) -> Option<Self> {
        let file = open(state_dir)?;
        // Only the looks of supervisors stand against it, and they last a moment.
        file.lock_shared().ok()?;
        Some(Self { _file: file })
    }
}

/// Waits until no call that starts a lane is on its way, or until the time is up.
pub fn let_callers_go_first(state_dir: &Path) {
    let Some(file) = open(state_dir) else { return };
    let deadline = Instant::now() + LIMIT;
    let mut pause = FIRST_PAUSE;
    while file.try_lock().is_err() && Instant::now() < deadline {
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn open(state_dir: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK);
    options.open(state_dir.join(LOCK)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_supervisor_waits_for_calls_and_not_for_ever() {
        let state = tempfile::tempdir().unwrap();
        let rush = Rush::begin(state.path()).unwrap();
        let probe = open(state.path()).unwrap();
        assert!(probe.try_lock().is_err());
        // It comes back although the call never ends.
        let_callers_go_first(state.path());
        drop(rush);
        assert!(probe.try_lock().is_ok());
    }

    #[test]
    fn no_state_folder_is_no_fault() {
        let state = tempfile::tempdir().unwrap();
        let missing = state.path().join("missing");
        assert!(Rush::begin(&missing).is_none());
        let_callers_go_first(&missing);
        assert!(!missing.exists());
    }
}
