//! Admission: how many lanes at once, and one writer per path.

use std::path::{Path, PathBuf};

use super::ids::LaneId;

/// A path that a live lane writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The lane that writes there.
    pub lane_id: LaneId,
    /// The folder, links resolved.
    pub path: PathBuf,
}

/// The answer to one request for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is a slot and the paths are free.
    Admit,
    /// All slots are taken.
    NoSlot {
        /// How many lanes live.
        live: u32,
        /// How many may.
        max: u32,
    },
    /// Another lane is ahead in the queue.
    QueueAhead {
        /// How many wait before this one.
        waiting: u32,
    },
    /// Another lane writes there.
    PathTaken {
        /// The path asked for.
        path: PathBuf,
        /// The lane that has it.
        by: LaneId,
    },
}

/// Whether one folder contains the other or both are the same, component by component.
pub fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

/// Judges one request for a slot.
///
/// `live` counts the lanes that hold a slot, `waiting_before` the queued lanes that came first.
pub fn judge(live: u32, max: u32, waiting_before: u32, wanted: &[PathBuf], taken: &[Reservation]) -> Verdict {
    let conflict = wanted.iter().find_map(|path| {
        taken.iter().find(|held| overlaps(&held.path, path)).map(|held| (path.clone(), held.lane_id.clone()))
    });
    if let Some((path, by)) = conflict {
        Verdict::PathTaken { path, by }
    } else if live >= max {
        Verdict::NoSlot { live, max }
    } else if waiting_before > 0 {
        Verdict::QueueAhead { waiting: waiting_before }
    } else {
        Verdict::Admit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(path: &str) -> Reservation {
        Reservation { lane_id: "20261201-004854-a-beef".parse().unwrap(), path: path.into() }
    }

    #[test]
    fn paths_compare_by_component() {
        assert!(overlaps(Path::new("/a/b"), Path::new("/a")));
        assert!(overlaps(Path::new("/a"), Path::new("/a/b")));
        assert!(!overlaps(Path::new("/a/b"), Path::new("/a/bc")));
    }

    #[test]
    fn slots_paths_and_queue() {
        assert_eq!(judge(3, 4, 0, &[], &[]), Verdict::Admit);
        assert_eq!(judge(4, 4, 0, &[], &[]), Verdict::NoSlot { live: 4, max: 4 });
        assert_eq!(judge(3, 4, 2, &[], &[]), Verdict::QueueAhead { waiting: 2 });
        assert_eq!(
            judge(0, 4, 0, &["/r/sub".into()], &[held("/r")]),
            Verdict::PathTaken { path: "/r/sub".into(), by: held("/r").lane_id }
        );
    }
}
