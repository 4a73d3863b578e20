//! What moves in a run folder: growth of files and requests to stop, learnt from inotify.
//!
//! Where no inotify instance can be had (their number is limited for each user), sizes are compared
//! a few times a second instead.

use std::fs::Metadata;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use super::records;

/// How long a sleep may last where changes have to be looked for, in milliseconds.
pub const LOOK_MS: u64 = 200;

/// Watches one run folder.
#[derive(Debug)]
pub struct Watcher {
    inotify: Option<Inotify>,
    files: Vec<Watched>,
    cancel: Cancel,
    grew: bool,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    watch: Option<WatchDescriptor>,
    size: u64,
}

impl Watcher {
    /// Begins to watch. A request to stop that stands already counts as not seen yet.
    pub fn new(run_dir: &Path) -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        let arrivals = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
        let inotify = inotify.filter(|inotify| inotify.add_watch(run_dir, arrivals).is_ok());
        let cancel = Cancel::new(run_dir.join(records::CANCEL_FILE));
        Self { inotify, files: Vec::new(), cancel, grew: false }
    }

    /// Watches a file for growth. One that is not there yet is looked for at each sleep's end.
    pub fn add_file(&mut self, path: &Path) {
        let mask = AddWatchFlags::IN_MODIFY;
        let watch = self.inotify.as_ref().and_then(|inotify| inotify.add_watch(path, mask).ok());
        self.files.push(Watched { path: path.to_owned(), watch, size: size_of(path) });
    }

    /// The descriptor to sleep on, where there is one.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Whether changes have to be looked for, because not everything can be slept on.
    pub fn must_look(&self) -> bool {
        self.inotify.is_none() || self.files.iter().any(|file| file.watch.is_none())
    }

    /// Takes in what has happened. Never blocks.
    pub fn look(&mut self) {
        let mut overflowed = false;
        while let Some(Ok(events)) = self.inotify.as_ref().map(Inotify::read_events) {
            for event in events {
                overflowed |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                self.grew |= self.files.iter().any(|file| file.watch == Some(event.wd));
                if event.name.as_deref() == Some(records::CANCEL_FILE.as_ref()) {
                    self.cancel.look();
                }
            }
        }
        if overflowed || self.inotify.is_none() {
            self.cancel.look();
        }
        for file in self.files.iter_mut().filter(|file| overflowed || file.watch.is_none()) {
            let size = size_of(&file.path);
            self.grew |= size != file.size;
            file.size = size;
        }
    }

    /// Whether something grew since the last call.
    pub fn take_growth(&mut self) -> bool {
        std::mem::take(&mut self.grew)
    }

    /// How many requests to stop came since the last call.
    pub fn take_requests(&mut self) -> u64 {
        std::mem::take(&mut self.cancel.unseen)
    }
}

fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |data| data.len())
}

/// The file with the requests to stop. One line is one request; writing it anew is one more.
#[derive(Debug)]
struct Cancel {
    path: PathBuf,
    known: Option<State>,
    unseen: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    inode: u64,
    changed: (i64, i64),
    lines: u64,
}

impl Cancel {
    fn new(path: PathBuf) -> Self {
        let mut cancel = Self { path, known: None, unseen: 0 };
        cancel.look();
        cancel
    }

    fn look(&mut self) {
        let now = std::fs::metadata(&self.path).ok().map(|data| State::of(&data, &self.path));
        let fresh = match (self.known, now) {
            (_, None) => 0,
            (None, Some(_)) => 1,
            (Some(old), Some(new)) if old == new => 0,
            (Some(old), Some(new)) => new.lines.saturating_sub(old.lines).max(1),
        };
        self.unseen = self.unseen.saturating_add(fresh);
        self.known = now;
    }
}

impl State {
    fn of(data: &Metadata, path: &Path) -> Self {
        let text = if data.len() <= 65_536 { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
        let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
        Self { inode: data.ino(), changed: (data.mtime(), data.mtime_nsec()), lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn growth_and_requests_are_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join(records::EVENTS_FILE);
        std::fs::write(&events, "").unwrap();
        let mut watcher = Watcher::new(folder.path());
        watcher.add_file(&events);
        assert!(!watcher.must_look());
        watcher.look();
        assert_eq!((watcher.take_growth(), watcher.take_requests()), (false, 0));

        records::open_append(&events).unwrap().write_all(b"x\n").unwrap();
        std::fs::write(folder.path().join("supervisor.log"), "noise").unwrap();
        watcher.look();
        assert_eq!((watcher.take_growth(), watcher.take_requests()), (true, 0));
        watcher.look();
        assert!(!watcher.take_growth());

        let cancel = folder.path().join(records::CANCEL_FILE);
        records::open_append(&cancel).unwrap().write_all(b"1\n").unwrap();
        watcher.look();
        assert_eq!((watcher.take_growth(), watcher.take_requests()), (false, 1));
        records::open_append(&cancel).unwrap().write_all(b"2\n3\n").unwrap();
        watcher.look();
        watcher.look();
        assert_eq!(watcher.take_requests(), 2);
        assert_eq!(Watcher::new(folder.path()).take_requests(), 1);
    }

    #[test]
    fn a_file_that_comes_later_is_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new(folder.path());
        watcher.add_file(&folder.path().join("later"));
        assert!(watcher.must_look());
        std::fs::write(folder.path().join("later"), "x").unwrap();
        watcher.look();
        assert!(watcher.take_growth());
    }
}
