//! Admission: the judge's questions answered and its verdict written in one transaction.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::domain::admission::{Reservation, Verdict, judge, overlaps};
use crate::domain::ids::LaneId;
use crate::domain::plan::Plan;
use crate::domain::state::{LaneEvent, State, apply};
use crate::domain::time::Timestamp;

use super::events;
use super::fault::Fault;
use super::list;
use super::rows;

/// Judges a new lane and writes its first event, unless it neither may go nor wants to wait.
pub(super) fn admit(
    connection: &Connection,
    plan: &Plan,
    queue: bool,
    max: u32,
    now: Timestamp,
) -> Result<Verdict, Fault> {
    let verdict = verdict(connection, &plan.write_paths(), i64::MAX, max)?;
    let event = match (&verdict, queue) {
        (Verdict::Admit, _) => Some(LaneEvent::Admitted { plan: Box::new(plan.clone()) }),
        (_, true) => Some(LaneEvent::Queued { plan: Box::new(plan.clone()) }),
        (_, false) => None,
    };
    if let Some(event) = event {
        events::append_first(connection, plan, &event, now)?;
    }
    Ok(verdict)
}

/// Judges a queued lane again, and gives it its slot if it may go.
pub(super) fn promote(connection: &Connection, lane_id: &LaneId, max: u32, now: Timestamp) -> Result<Verdict, Fault> {
    let (created_seq, plan, state) = events::load(connection, lane_id)?;
    if !matches!(state, State::Queued { .. }) {
        // Somebody else was faster, or it has ended: the transition says which.
        apply(&state, &LaneEvent::Promoted, now)?;
    }
    let verdict = verdict(connection, &plan.write_paths(), created_seq, max)?;
    if verdict == Verdict::Admit {
        events::append(connection, lane_id, &LaneEvent::Promoted, now)?;
    }
    Ok(verdict)
}

fn verdict(connection: &Connection, wanted: &[PathBuf], before: i64, max: u32) -> Result<Verdict, Fault> {
    let taken = reservations(connection)?;
    let waiting = waiting_before(connection, before, wanted, &taken)?;
    Ok(judge(list::counts(connection)?.running, max, waiting, wanted, &taken))
}

/// Counts the waiting lanes that go first.
///
/// One whose paths are taken could not use the slot, so it does not block those behind it, except
/// those that want the same paths: they would push it back again and again.
fn waiting_before(
    connection: &Connection,
    before: i64,
    wanted: &[PathBuf],
    taken: &[Reservation],
) -> Result<u32, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT lane_id, write_paths FROM runs
         WHERE queue_order IS NOT NULL AND created_seq < ? ORDER BY created_seq",
    )?;
    let mut rows = statement.query([before])?;
    let mut waiting: u32 = 0;
    while let Some(row) = rows.next()? {
        let lane_id: String = row.get(0)?;
        let theirs = rows::paths(&row.get::<_, String>(1)?, &lane_id)?;
        let meets = |path: &PathBuf| theirs.iter().any(|other| overlaps(other, path));
        let blocked = taken.iter().any(|held| meets(&held.path));
        if !blocked || wanted.iter().any(meets) {
            waiting = waiting.saturating_add(1);
        }
    }
    Ok(waiting)
}

fn reservations(connection: &Connection) -> Result<Vec<Reservation>, Fault> {
    let mut statement = connection.prepare_cached("SELECT lane_id, path FROM reservations")?;
    let mut rows = statement.query([])?;
    let mut taken = Vec::new();
    while let Some(row) = rows.next()? {
        let lane_id = rows::parse_id(&row.get::<_, String>(0)?)?;
        taken.push(Reservation { lane_id, path: PathBuf::from(row.get::<_, String>(1)?) });
    }
    Ok(taken)
}
