//! Finding and ending every process of one lane, and no other.
//!
//! A process belongs to the lane if it descends from the lane's keeper or worker, if it carries the
//! lane's tag in its environment and is of our user, or (where [`Scope::adopts`]) if it was handed to
//! us as an orphan from a session that is not ours. Each is signalled through a pidfd that was checked
//! against its start time, so a reused number is never hit.
//!
//! Ending goes in rounds: everything found is stopped first, so that it cannot fork, then killed;
//! it is over when looks in a row find nothing alive and no sign that something slipped through.

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

    /// Looks for the members of the lane, zombies included.
    fn look(&self) -> PortResult<Look> {
        let table = table::load_table().map_err(|e| PortError::io("reading /proc", &e))?;
        let (own, rows, mut lost_one) = (own_pid(), table.rows, table.lost_one);
        let mut found: HashSet<i32> = rows.iter().filter(|row| self.is_root(row)).map(|row| row.pid).collect();
        let user = nix::unistd::geteuid().as_raw();
        let own_session = rows.iter().find(|row| row.pid == own).map(|row| row.session);
        for row in rows.iter().filter(|row| row.pid != own) {
            let adopted = self.adopts && row.parent == own && Some(row.session) != own_session;
            let tag = table::load_tag(row, self.lane_id.as_str());
            lost_one |= tag.is_none();
            let belongs = match tag {
                Some(Tag::Ours) => table::load_user(row.pid) == Some(user),
                Some(Tag::Absent) | None => adopted,
                Some(Tag::Foreign) => false,
            };
            if belongs {
                found.insert(row.pid);
            }
        }
        table::add_descendants(&rows, &mut found, own);
        let is_member = |row: &Row| row.pid != own && found.contains(&row.pid) && !self.spares(row);
        Ok(Look { members: rows.into_iter().filter(is_member).collect(), lost_one })
    }

    fn is_root(&self, row: &Row) -> bool {
        self.roots.iter().any(|root| is_same(root, row))
    }

    fn spares(&self, row: &Row) -> bool {
        self.spared.as_ref().is_some_and(|spared| is_same(spared, row))
    }
}

/// What one look found.
struct Look {
    members: Vec<Row>,
    lost_one: bool,
}

impl Look {
    fn alive(&self) -> impl Iterator<Item = &Row> {
        self.members.iter().filter(|row| row.is_alive())
    }
}

/// How sure it is that nothing of the lane lives any more.
///
/// A process that starts its successor and ends can slip through a look, but then the look has lost
/// somebody or shows a fresh zombie. So two looks without such a sign are enough, and many with one.
#[derive(Default)]
struct Certainty {
    points: u32,
    zombies: HashSet<(u64, i32)>,
}

impl Certainty {
    const ENOUGH: u32 = 12;

    /// Takes in a look that found nothing alive; true when that is certain enough.
    fn grows(&mut self, look: &Look) -> bool {
        let zombies: HashSet<(u64, i32)> = look.members.iter().map(key_of).collect();
        let fresh = zombies.iter().any(|zombie| !self.zombies.contains(zombie));
        self.zombies = zombies;
        self.points += if fresh || look.lost_one { 1 } else { Self::ENOUGH / 2 };
        self.points >= Self::ENOUGH
    }
}

fn key_of(row: &Row) -> (u64, i32) {
    (row.start_ticks, row.pid)
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
    let mut certainty = Certainty::default();
    loop {
        let look = scope.look()?;
        reap_zombies(&look.members, keep);
        if look.alive().next().is_some() {
            if Instant::now() > deadline {
                let names = bounded(look.alive().map(table::load_description).collect());
                return Err(PortError::other(format!("processes that cannot be killed: {}", names.join(", "))));
            }
            certainty = Certainty::default();
            freeze_and_kill(scope, &look, &mut named)?;
            std::thread::sleep(Duration::from_millis(2));
        } else if certainty.grows(&look) {
            return Ok(bounded(named.into_values().collect()));
        }
    }
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
    while scope.look()?.alive().next().is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Processor time of all processes of the scope, with that of the children that they have reaped.
pub fn processor_time(scope: &Scope) -> Millis {
    let ticks: u64 = scope.look().map_or(0, |look| look.members.iter().map(|row| row.ticks).sum());
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
    Millis(ticks.saturating_mul(1000) / u64::try_from(per_second).unwrap_or(100).max(1))
}

fn freeze_and_kill(scope: &Scope, first: &Look, named: &mut BTreeMap<(u64, i32), String>) -> PortResult<()> {
    let mut held = BTreeMap::new();
    hold(first.alive(), &mut held, named);
    for _ in 0..FREEZE_LOOKS {
        if !hold(scope.look()?.alive(), &mut held, named) {
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
        let key = key_of(row);
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

fn reap_zombies(members: &[Row], keep: Option<&Tracked>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn zombie(pid: i32) -> Row {
        let text = format!(
            "{pid} (x) Z 1 7 8 0 -1 0 1 2 3 4 1 1 1 1 20 0 1 0 777 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 0 0"
        );
        table::parse_stat(&text).unwrap()
    }

    #[test]
    fn two_plain_looks_are_enough_and_signs_of_flight_are_not() {
        let mut certainty = Certainty::default();
        let plain = Look { members: vec![], lost_one: false };
        assert!(!certainty.grows(&plain));
        assert!(certainty.grows(&plain));

        let mut certainty = Certainty::default();
        let suspicious = Look { members: vec![], lost_one: true };
        assert!((0..11).all(|_| !certainty.grows(&suspicious)));
        assert!(certainty.grows(&suspicious), "a busy machine does not hold it up for ever");

        let mut certainty = Certainty::default();
        let corpse = |pid| Look { members: vec![zombie(pid)], lost_one: false };
        assert!(!certainty.grows(&corpse(1)) && !certainty.grows(&corpse(2)));
        assert!(!certainty.grows(&corpse(2)), "fresh corpses hardly count");
        assert!(certainty.grows(&corpse(2)), "an old one counts as nothing");
    }

    #[test]
    fn many_names_are_counted() {
        let names = bounded((0..40).map(|n| n.to_string()).collect());
        assert_eq!((names.len(), names.last().map(String::as_str)), (33, Some("and 8 more")));
    }
}
