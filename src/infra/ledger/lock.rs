//! The file lock in front of every write transaction.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::fault::Fault;

/// The lock, opened at the first write: a process that only reads never touches the file.
pub(super) struct WriteLock {
    path: PathBuf,
    file: Option<File>,
}

/// The lock, held until this is dropped.
pub(super) struct Held<'a>(&'a File);

impl WriteLock {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Waits for the lock and takes it. The kernel frees it when the process dies.
    pub(super) fn hold(&mut self) -> Result<Held<'_>, Fault> {
        let file = self.open()?;
        file.lock().map_err(|error| Fault::io("waiting for its lock", error))?;
        Ok(Held(file))
    }

    /// Takes the lock if it is free.
    pub(super) fn try_hold(&mut self) -> Result<Option<Held<'_>>, Fault> {
        let file = self.open()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Held(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(Fault::io("trying its lock", error)),
        }
    }

    fn open(&mut self) -> Result<&File, Fault> {
        if self.file.is_none() {
            let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
            let opened = options.open(&self.path).map_err(|error| Fault::io("opening its lock", error))?;
            self.file = Some(opened);
        }
        self.file.as_ref().ok_or_else(|| Fault::Damaged("its lock file is not open".to_owned()))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // It can only fail for a descriptor that is not open, which then holds no lock.
        let _ = self.0.unlock();
    }
}
