//! Looking the whole ledger over, and building the projection anew.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use crate::app::ports::LedgerReport;
use crate::domain::ids::LaneId;
use crate::domain::plan::Plan;
use crate::domain::result::LaneEnd;
use crate::domain::state::LaneEvent;
use crate::domain::time::Timestamp;

use super::chain::{Follower, StoredEvent};
use super::events;
use super::fault::Fault;
use super::fold::{Fold, Folded};
use super::rows::{self, Projected};
use super::schema;

/// Verifies pages, chain and projection.
pub(super) fn check(connection: &Connection) -> Result<LedgerReport, Fault> {
    let pages: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if pages != "ok" {
        return Err(Fault::Damaged(pages));
    }
    let mut follower = Follower::new();
    let mut events: u64 = 0;
    let fold = replay(connection, &mut |event| {
        follower.take(event);
        events = events.saturating_add(1);
    })?;
    let broken_at = follower.broken_at.map(|(seq, why)| (u64::try_from(seq).unwrap_or(0), why));
    Ok(LedgerReport { events, broken_at, projection_differs: differing(connection, &fold)? })
}

/// Makes `runs` and `reservations` anew. Rows that only a newer Lane understands are kept.
pub(super) fn rebuild(connection: &Connection) -> Result<(), Fault> {
    let fold = replay(connection, &mut |_| {})?;
    keep_foreign(connection, &fold)?;
    connection.execute_batch("DROP TABLE runs; DROP TABLE reservations;")?;
    connection.execute_batch(schema::PROJECTION)?;
    for (lane_id, folded) in &fold.lanes {
        if !fold.foreign.contains(lane_id) {
            let (plan, end) = plan_and_end(connection, folded)?;
            projected(folded, &plan, end.as_ref()).insert(connection)?;
        }
    }
    connection.execute_batch(
        "INSERT INTO runs SELECT * FROM kept_runs; INSERT INTO reservations SELECT * FROM kept_reservations;
         DROP TABLE kept_runs; DROP TABLE kept_reservations; DROP TABLE foreign_lanes;",
    )?;
    Ok(())
}

/// Puts what only a newer Lane understands aside.
fn keep_foreign(connection: &Connection, fold: &Fold) -> Result<(), Fault> {
    connection.execute_batch("CREATE TEMP TABLE foreign_lanes (lane_id TEXT PRIMARY KEY)")?;
    for lane_id in &fold.foreign {
        connection.execute("INSERT INTO foreign_lanes VALUES (?)", [lane_id])?;
    }
    connection.execute_batch(
        "CREATE TEMP TABLE kept_runs AS SELECT * FROM runs WHERE lane_id IN foreign_lanes;
         CREATE TEMP TABLE kept_reservations AS SELECT * FROM reservations WHERE lane_id IN foreign_lanes;",
    )?;
    Ok(())
}

/// Reads every event in order, shows it to `see`, and folds it.
fn replay(connection: &Connection, see: &mut dyn FnMut(&StoredEvent)) -> Result<Fold, Fault> {
    let query = format!("SELECT {} FROM events ORDER BY seq", StoredEvent::COLUMNS);
    let mut statement = connection.prepare(&query)?;
    let mut rows = statement.query([])?;
    let mut fold = Fold::default();
    while let Some(row) = rows.next()? {
        let stored = StoredEvent::from_row(row)?;
        see(&stored);
        // The chain shows whether the text is as it was written; if it is, a newer Lane wrote it.
        let event: Option<LaneEvent> = serde_json::from_str(&stored.data).ok();
        fold.take(stored.seq, &stored.lane_id, Timestamp::from_unix_ms(stored.at), event.as_ref());
    }
    Ok(fold)
}

/// Returns the lanes whose row or reservations are not what their events say.
fn differing(connection: &Connection, fold: &Fold) -> Result<Vec<LaneId>, Fault> {
    let mut names = BTreeSet::new();
    for (lane_id, folded) in &fold.lanes {
        if !fold.foreign.contains(lane_id) && !agrees(connection, lane_id, folded)? {
            names.insert(lane_id.clone());
        }
    }
    let mut statement = connection.prepare("SELECT lane_id FROM runs UNION SELECT lane_id FROM reservations")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let lane_id: String = row.get(0)?;
        if !fold.lanes.contains_key(&lane_id) && !fold.foreign.contains(&lane_id) {
            names.insert(lane_id);
        }
    }
    // A row whose id is no id at all cannot be named here; its lane is named by its events.
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// Whether the row and the reservations of a lane are what its events say.
fn agrees(connection: &Connection, lane_id: &str, folded: &Folded) -> Result<bool, Fault> {
    let (plan, end) = plan_and_end(connection, folded)?;
    let same_row = projected(folded, &plan, end.as_ref()).is_stored(connection)?;
    let wanted: BTreeSet<String> = if folded.state.holds_slot() {
        plan.write_paths().iter().map(|path| rows::text(path)).collect()
    } else {
        BTreeSet::new()
    };
    let mut statement = connection.prepare_cached("SELECT path FROM reservations WHERE lane_id=?")?;
    let booked: BTreeSet<String> =
        statement.query_map([lane_id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(same_row && wanted == booked)
}

fn projected<'a>(folded: &'a Folded, plan: &'a Plan, end: Option<&'a LaneEnd>) -> Projected<'a> {
    Projected { created_seq: folded.created_seq, plan, state: &folded.state, end, last_event_at: folded.last_event_at }
}

fn plan_and_end(connection: &Connection, folded: &Folded) -> Result<(Plan, Option<LaneEnd>), Fault> {
    let plan = match load(connection, folded.created_seq)? {
        LaneEvent::Queued { plan } | LaneEvent::Admitted { plan } => *plan,
        other => return Err(Fault::Damaged(format!("a lane begins with `{}`", other.word()))),
    };
    let end = match folded.end_seq {
        Some(seq) => events::end_of(&load(connection, seq)?).cloned(),
        None => None,
    };
    Ok((plan, end))
}

fn load(connection: &Connection, seq: i64) -> Result<LaneEvent, Fault> {
    let found = connection
        .prepare_cached("SELECT lane_id, data FROM events WHERE seq=?")?
        .query_row(params![seq], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let Some((lane_id, data)) = found else {
        return Err(Fault::Damaged(format!("event {seq} is gone")));
    };
    rows::decode(&data, &lane_id)
}
