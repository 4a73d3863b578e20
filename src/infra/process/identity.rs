//! Which process it is: number, start time and boot together, and pidfds that are checked against them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::linux;
use super::table;
use crate::domain::ids::ProcessIdentity;

/// Returns the identity of the process that has this number now; `None` when there is none.
pub fn identity_of(pid: i32, boot_id: &str) -> Option<ProcessIdentity> {
    let row = table::load_row(pid)?;
    Some(ProcessIdentity { pid, start_ticks: row.start_ticks, boot_id: boot_id.to_owned() })
}

/// Opens a pidfd on exactly that process; `None` when it is gone, whoever has its number now.
///
/// The pidfd is opened first and the start time read after: if the process of the past is there
/// after the opening, it was there before, so the pidfd can mean no other.
pub fn open_verified(pid: i32, start_ticks: u64) -> Option<OwnedFd> {
    if pid <= 0 {
        return None;
    }
    let fd = linux::pidfd_open(pid).ok()?;
    let row = table::load_row(pid)?;
    (row.start_ticks == start_ticks).then_some(fd)
}

/// One process of the past, held by a pidfd as long as it is there.
#[derive(Debug)]
pub struct Tracked {
    identity: ProcessIdentity,
    fd: Option<OwnedFd>,
}

impl Tracked {
    /// Finds the process again. One of an earlier boot, or whose number was reused, counts as gone.
    pub fn find(identity: ProcessIdentity, boot_id: &str) -> Self {
        let here = identity.boot_id == boot_id;
        let fd = here.then(|| open_verified(identity.pid, identity.start_ticks)).flatten();
        Self { identity, fd }
    }

    /// A process that nothing is known of and that counts as gone.
    pub fn unknown(boot_id: &str) -> Self {
        Self { identity: ProcessIdentity { pid: 0, start_ticks: 0, boot_id: boot_id.to_owned() }, fd: None }
    }

    /// Which process it is.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// The pidfd, if the process was there when it was looked for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Whether it has ended (a zombie has).
    pub fn is_gone(&self) -> bool {
        self.wait(0)
    }

    /// Waits up to `limit_ms` for its end; true when it has ended.
    pub fn wait(&self, limit_ms: u16) -> bool {
        let Some(fd) = self.fd() else { return true };
        let mut polled = [PollFd::new(fd, PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(limit_ms)).is_ok_and(|ready| ready > 0)
    }

    /// Sends it a signal. One that is gone is no error.
    pub fn signal(&self, signal: i32) -> std::io::Result<()> {
        self.fd().map_or(Ok(()), |fd| linux::pidfd_send_signal(fd, signal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_itself_and_nobody_else() {
        let own = i32::try_from(std::process::id()).unwrap();
        let identity = identity_of(own, "boot").unwrap();
        assert!(!Tracked::find(identity.clone(), "boot").is_gone());
        assert!(Tracked::find(identity.clone(), "another boot").is_gone());
        let reused = ProcessIdentity { start_ticks: identity.start_ticks + 1, ..identity };
        assert!(Tracked::find(reused, "boot").is_gone());
        assert!(Tracked::unknown("boot").is_gone());
    }
}
