//! Watching run folders with inotify (Linux).

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};

use super::lock;
use super::wait::Seen;

/// A watch on a set of folders.
pub(super) struct Watcher {
    inotify: Inotify,
}

impl Watcher {
    /// Builds it; `None` where the kernel has no watch left to give or a folder is not there.
    pub(super) fn new(run_dirs: &[PathBuf]) -> Option<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok()?;
        let flags = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        for run_dir in run_dirs {
            inotify.add_watch(run_dir, flags).ok()?;
        }
        Some(Self { inotify })
    }

    /// Sleeps until something is seen or the time is up.
    pub(super) fn next(&self, left: Duration) -> Seen {
        // Rounded up: a wait of less than a millisecond must not become a busy loop.
        let wait_ms = left.as_micros().div_ceil(1000).min(i32::MAX as u128);
        let timeout = PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(0) | Err(Errno::EINTR) => Seen::Nothing,
            // An unusable descriptor must not become a busy loop in the caller: it looks again later.
            Err(_) => {
                std::thread::sleep(left.min(Duration::from_millis(100)));
                Seen::Change
            }
            Ok(_) => self.read(),
        }
    }

    fn read(&self) -> Seen {
        let events = self.inotify.read_events().unwrap_or_default();
        let most = events.iter().map(weight).max_by_key(|seen| *seen as u8);
        most.unwrap_or(Seen::Nothing)
    }
}

fn weight(event: &InotifyEvent) -> Seen {
    let is_lock = event.name.as_ref().is_some_and(|name| name == lock::SUPERVISOR);
    if is_lock && event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
        Seen::LockClosed
    } else if event.mask.contains(AddWatchFlags::IN_MODIFY) {
        Seen::Growth
    } else {
        // An overflow of the kernel's queue counts too: something was missed.
        Seen::Change
    }
}
