//! Writing events: the chain and the projection in one go.

use rusqlite::{Connection, OptionalExtension};

use crate::domain::ids::LaneId;
use crate::domain::plan::Plan;
use crate::domain::result::LaneEnd;
use crate::domain::state::{LaneEvent, State, apply, begin};
use crate::domain::time::Timestamp;

use super::chain;
use super::fault::Fault;
use super::rows::{self, Projected};

/// Writes the first event of a lane.
pub(super) fn append_first(
    connection: &Connection,
    plan: &Plan,
    event: &LaneEvent,
    now: Timestamp,
) -> Result<State, Fault> {
    let known = connection
        .prepare_cached("SELECT 1 FROM runs WHERE lane_id=?")?
        .query_row([plan.lane_id.as_str()], |_| Ok(()))
        .optional()?;
    if known.is_some() {
        return Err(Fault::Exists(plan.lane_id.clone()));
    }
    let state = begin(event, now)?;
    let created_seq = store(connection, &plan.lane_id, event, now)?;
    Projected { created_seq, plan, state: &state, end: None, last_event_at: now }.insert(connection)?;
    Ok(state)
}

/// Writes an event that gives no slot.
pub(super) fn append_to_known(
    connection: &Connection,
    lane_id: &LaneId,
    event: &LaneEvent,
    now: Timestamp,
) -> Result<State, Fault> {
    match event {
        // The cap would be worth nothing if a slot could be had past the judge.
        LaneEvent::Queued { .. } | LaneEvent::Admitted { .. } | LaneEvent::Promoted => {
            Err(Fault::SlotByEvent(event.word()))
        }
        _ => append(connection, lane_id, event, now),
    }
}

/// Writes any event of a lane that is in the ledger.
pub(super) fn append(
    connection: &Connection,
    lane_id: &LaneId,
    event: &LaneEvent,
    now: Timestamp,
) -> Result<State, Fault> {
    let (created_seq, plan, before) = load(connection, lane_id)?;
    let state = apply(&before, event, now)?;
    store(connection, lane_id, event, now)?;
    let end = end_of(event);
    Projected { created_seq, plan: &plan, state: &state, end, last_event_at: now }.update(connection)?;
    Ok(state)
}

/// What an event says about the end.
pub(super) fn end_of(event: &LaneEvent) -> Option<&LaneEnd> {
    match event {
        LaneEvent::Ended { end } => Some(end),
        _ => None,
    }
}

/// Returns the number of the lane's first event, its plan and its state.
pub(super) fn load(connection: &Connection, lane_id: &LaneId) -> Result<(i64, Plan, State), Fault> {
    let id = lane_id.as_str();
    let found = connection
        .prepare_cached("SELECT created_seq, plan_data, state_data FROM runs WHERE lane_id=?")?
        .query_row([id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?)))
        .optional()?;
    let Some((created_seq, plan, state)) = found else {
        return Err(Fault::NoLane(lane_id.clone()));
    };
    Ok((created_seq, rows::decode(&plan, id)?, rows::decode(&state, id)?))
}

fn store(connection: &Connection, lane_id: &LaneId, event: &LaneEvent, now: Timestamp) -> Result<i64, Fault> {
    chain::append(connection, lane_id.as_str(), now.unix_ms(), event.word(), rows::encode(event)?)
}
