//! The supervisor's lock. It belongs to the open file, so it lives as long as any process has it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::libc::O_NOFOLLOW;

use crate::app::ports::{Claim, PortError, PortErrorKind, PortResult};

use super::files;

/// The file that is locked.
pub(super) const SUPERVISOR: &str = "supervisor.lock";

/// An observer holds a shared lock for microseconds; after so many tries it is no observer.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// Takes the lock.
pub(super) fn claim(run_dir: &Path) -> PortResult<Claim> {
    let path = files::path_of(run_dir, SUPERVISOR)?;
    let failed = |error: &std::io::Error| PortError::io(format_args!("locking {}", path.display()), error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(O_NOFOLLOW);
    let file = options.open(&path).map_err(|error| failed(&error))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Claim { file }),
            Err(TryLockError::WouldBlock) => std::thread::sleep(BETWEEN_TRIES),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
    }
    let message = format!("locking {}: a supervisor holds it", path.display());
    Err(PortError { kind: PortErrorKind::Held, message })
}

/// Whether somebody has the lock. It is looked at for a moment only.
pub(super) fn is_claimed(run_dir: &Path) -> PortResult<bool> {
    let path = files::path_of(run_dir, SUPERVISOR)?;
    let failed = |error: &std::io::Error| PortError::io(format_args!("looking at {}", path.display()), error);
    let file = match OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(|error| failed(&error))?,
    };
    is_locked(&file).map_err(|error| failed(&error))
}

/// Whether something stands in the place of the lock that is no plain file.
pub(super) fn is_broken(run_dir: &Path) -> bool {
    let found = files::path_of(run_dir, SUPERVISOR).ok().and_then(|path| path.symlink_metadata().ok());
    found.is_some_and(|found| !found.is_file())
}

fn is_locked(file: &File) -> std::io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
