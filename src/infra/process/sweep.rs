//! Finding and ending every process of one lane, and no other.
//!
//! A process belongs to the lane if it descends from the lane's keeper or worker, if it carries the
//! lane's tag in its environment and is of our user, or (where [`Scope::adopts`]) if it was handed to
//! us as an orphan from a session that is not ours. Each is signalled through a pidfd that was checked
//! against its start time, so a reused number is never hit.
//!
//! Ending goes in rounds: everything found is stopped first, so that it cannot fork, then killed;
//! it is over when two looks in a row find nothing alive.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc;

use super::identity::{self, Tracked};
use super::linux;
use super::table::{self, Row, Tag};
use crate::app::ports::{PortError, PortResult};
use crate::domain::ids::{LaneId, ProcessIdentity};
use crate::domain::time::Millis;

/// How long ending may take before it is given up as impossible.
const LIMIT: Duration = Duration::from_secs(20);

/// How long processes that are ending by themselves get before they count as left over.
const SETTLE: Duration = Duration::from_millis(100);

/// How often what is being stopped is looked at again for new children before it is killed.
const FREEZE_LOOKS: u32 = 8;

/// How many processes are named.
const NAMES_MAX: usize = 32;

/// Which processes belong together.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The lane.
    pub lane_id: LaneId,
    /// Processes whose descendants belong to it, themselves included.
    pub roots: Vec<ProcessIdentity>,
    /// A process that is left alone: the keeper, which has to write the worker's end down.
    pub spared: Option<ProcessIdentity>,
    /// Whether orphans that were handed to this process belong to it.
    pub adopts: bool,
}

impl Scope {
    /// Everything that carries the lane's tag.
    pub const fn tagged(lane_id: LaneId) -> Self {
        Self { lane_id, roots: Vec::new(), spared: None, adopts: false }
    }

    /// Returns the members of the lane among `rows`, zombies included.
    fn members<'a>(&self, rows: &'a [Row]) -> Vec<&'a Row> {
        let own = own_pid();
        let mut found: HashSet<i32> = rows.iter().filter(|row| self.is_root(row)).map(|row| row.pid).collect();
        let user = nix::unistd::geteuid().as_raw();
        let own_session = rows.iter().find(|row| row.pid == own).map(|row| row.session);
        for row in rows.iter().filter(|row| row.pid != own) {
            let adopted = self.adopts && row.parent == own && Some(row.session) != own_session;
            let belongs = match table::load_tag(row.pid, self.lane_id.as_str()) {
                Tag::Ours => table::load_user(row.pid) == Some(user),
                Tag::Absent => adopted,
                Tag::Foreign => false,
            };
            if belongs {
                found.insert(row.pid);
            }
        }
        table::add_descendants(rows, &mut found, own);
        rows.iter().filter(|row| row.pid != own && found.contains(&row.pid) && !self.spares(row)).collect()
    }

    fn is_root(&self, row: &Row) -> bool {
        self.roots.iter().any(|root| is_same(root, row))
    }

    fn spares(&self, row: &Row) -> bool {
        self.spared.as_ref().is_some_and(|spared| is_same(spared, row))
    }
}

/// Whether the row is that process. Roots are of this boot: others are never given.
fn is_same(identity: &ProcessIdentity, row: &Row) -> bool {
    identity.pid == row.pid && identity.start_ticks == row.start_ticks
}

fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}

/// Ends every process of the scope and names those that were alive. Zombies of ours are reaped
/// unless `keep` is one of them.
///
/// An error names what is still alive when the time is up.
pub fn end_all(scope: &Scope, keep: Option<&Tracked>) -> PortResult<Vec<String>> {
    let deadline = Instant::now() + LIMIT;
    let mut named: BTreeMap<(u64, i32), String> = BTreeMap::new();
    let mut clean_looks = 0;
    while clean_looks < 2 {
        let rows = load_rows()?;
        let members = scope.members(&rows);
        reap_zombies(&members, keep);
        let alive: Vec<&Row> = members.into_iter().filter(|row| row.is_alive()).collect();
        if alive.is_empty() {
            clean_looks += 1;
            continue;
        }
        clean_looks = 0;
        if Instant::now() > deadline {
            let names = bounded(alive.iter().map(|row| table::load_description(row)).collect());
            return Err(PortError::other(format!("processes that cannot be killed: {}", names.join(", "))));
        }
        freeze_and_kill(scope, &alive, &mut named)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(bounded(named.into_values().collect()))
}

/// Keeps a list of names short enough for an answer of one line.
fn bounded(mut names: Vec<String>) -> Vec<String> {
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names
}

/// Lets what is ending by itself end, so that it is not named as left over.
pub fn settle(scope: &Scope) -> PortResult<()> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let rows = load_rows()?;
        if !scope.members(&rows).iter().any(|row| row.is_alive()) || Instant::now() > deadline {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processor time of all processes of the scope, with that of the children that they have reaped.
pub fn processor_time(scope: &Scope) -> Millis {
    let rows = load_rows().unwrap_or_default();
    let ticks: u64 = scope.members(&rows).iter().map(|row| row.ticks).sum();
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Millis(ticks.saturating_mul(1000) / u64::try_from(per_second).unwrap_or(100).max(1))
}

fn freeze_and_kill(scope: &Scope, alive: &[&Row], named: &mut BTreeMap<(u64, i32), String>) -> PortResult<()> {
    let mut held = BTreeMap::new();
    hold(alive.iter().copied(), &mut held, named);
    for _ in 0..FREEZE_LOOKS {
        let rows = load_rows()?;
        let members = scope.members(&rows);
        if !hold(members.into_iter().filter(|row| row.is_alive()), &mut held, named) {
            break;
        }
    }
    for fd in held.values() {
        linux::pidfd_send_signal(fd.as_fd(), libc::SIGKILL).ok();
    }
    Ok(())
}

/// Stops those that are not held yet; true when there was one.
fn hold<'a>(
    rows: impl Iterator<Item = &'a Row>,
    held: &mut BTreeMap<(u64, i32), std::os::fd::OwnedFd>,
    named: &mut BTreeMap<(u64, i32), String>,
) -> bool {
    let mut fresh = false;
    for row in rows {
        let key = (row.start_ticks, row.pid);
        if held.contains_key(&key) {
            continue;
        }
        let Some(fd) = identity::open_verified(row.pid, row.start_ticks) else { continue };
        named.entry(key).or_insert_with(|| table::load_description(row));
        linux::pidfd_send_signal(fd.as_fd(), libc::SIGSTOP).ok();
        held.insert(key, fd);
        fresh = true;
    }
    fresh
}

fn reap_zombies(members: &[&Row], keep: Option<&Tracked>) {
    let own = own_pid();
    for row in members.iter().filter(|row| row.parent == own && !row.is_alive()) {
        if keep.is_some_and(|kept| is_same(kept.identity(), row)) {
            continue;
        }
        if let Some(fd) = identity::open_verified(row.pid, row.start_ticks) {
            linux::reap(fd.as_fd());
        }
    }
}

fn load_rows() -> PortResult<Vec<Row>> {
    table::load_table().map_err(|e| PortError::io("reading /proc", &e))
}
