//! Rows of the projection: how a lane becomes columns and back.

use std::path::PathBuf;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::ports::LaneRow;
use crate::domain::ids::LaneId;
use crate::domain::plan::{PLAN_FORMAT, Plan};
use crate::domain::result::LaneEnd;
use crate::domain::state::State;
use crate::domain::time::Timestamp;

use super::fault::Fault;

/// Columns that [`stored`] reads, in its order.
pub(super) const COLUMNS: &str = "lane_id, plan_data, state_data, end_data, last_event_at";

/// A row as text, before it is understood.
pub(super) struct StoredRow {
    lane_id: String,
    plan: String,
    state: String,
    end: Option<String>,
    last_event_at: i64,
}

pub(super) fn stored(row: &Row<'_>) -> rusqlite::Result<StoredRow> {
    Ok(StoredRow {
        lane_id: row.get(0)?,
        plan: row.get(1)?,
        state: row.get(2)?,
        end: row.get(3)?,
        last_event_at: row.get(4)?,
    })
}

impl StoredRow {
    pub(super) fn understood(&self) -> Result<LaneRow, Fault> {
        let plan: Plan = decode(&self.plan, &self.lane_id)?;
        if plan.format > PLAN_FORMAT {
            return Err(Fault::NewerRow(self.lane_id.clone()));
        }
        let end: Option<LaneEnd> = self.end.as_deref().map(|text| decode(text, &self.lane_id)).transpose()?;
        let state = decode(&self.state, &self.lane_id)?;
        Ok(LaneRow { plan, state, end, last_event_at: Timestamp::from_unix_ms(self.last_event_at) })
    }
}

/// Reads JSON of the lane `lane_id`. Text that is well-formed and does not fit was written by a
/// newer Lane; text that is not well-formed is damage.
pub(super) fn decode<T: DeserializeOwned>(text: &str, lane_id: &str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            Fault::NewerRow(format!("lane {lane_id}"))
        } else {
            Fault::Damaged(format!("what is stored of lane {lane_id} is no JSON ({error})"))
        }
    })
}

pub(super) fn encode(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(Fault::Unwritable)
}

/// A whole row of the projection, as its events say it must be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Projected<'a> {
    pub(super) created_seq: i64,
    pub(super) plan: &'a Plan,
    pub(super) state: &'a State,
    pub(super) end: Option<&'a LaneEnd>,
    pub(super) last_event_at: Timestamp,
}

/// Columns that hold no JSON of their own meaning, in the order of [`Projected::small`].
const SMALL: &str = "created_seq, lane_id, lane_id_reversed, created_at, repository_root, write_paths, last_event_at,
    state, outcome, live, queue_order";

impl Projected<'_> {
    /// Writes the row of a new lane, and books its paths if it holds a slot.
    pub(super) fn insert(&self, connection: &Connection) -> Result<(), Fault> {
        let mut values = self.small()?;
        values.push(encode(self.plan)?.into());
        values.push(encode(self.state)?.into());
        values.push(self.end.map(encode).transpose()?.into());
        let query =
            format!("INSERT INTO runs ({SMALL}, plan_data, state_data, end_data) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
        connection.prepare_cached(&query)?.execute(params_from_iter(values))?;
        self.book(connection)
    }

    /// Whether the stored row is this one. JSON is compared by its meaning: an earlier Lane may have
    /// written it with fewer fields.
    pub(super) fn is_stored(&self, connection: &Connection) -> Result<bool, Fault> {
        let query = format!("SELECT {COLUMNS}, {SMALL} FROM runs WHERE created_seq=?");
        let wanted = self.small()?;
        let found = connection
            .prepare_cached(&query)?
            .query_row([self.created_seq], |row| {
                let values = (5..5 + wanted.len()).map(|column| row.get(column)).collect();
                Ok((stored(row)?, values))
            })
            .optional();
        let (row, values): (StoredRow, rusqlite::Result<Vec<Value>>) = match found {
            Ok(Some(found)) => found,
            Ok(None) | Err(rusqlite::Error::InvalidColumnType(..)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Ok(lane) = row.understood() else { return Ok(false) };
        let same = lane.plan == *self.plan && lane.state == *self.state && lane.end.as_ref() == self.end;
        Ok(same && values? == wanted)
    }

    fn small(&self) -> Result<Vec<Value>, Fault> {
        let id = self.plan.lane_id.as_str();
        let root = self.plan.repository.as_ref().map(|repository| text(&repository.root));
        Ok(vec![
            self.created_seq.into(),
            id.to_owned().into(),
            reversed(id).into(),
            self.plan.created_at.unix_ms().into(),
            root.into(),
            encode(&self.plan.write_paths())?.into(),
            self.last_event_at.unix_ms().into(),
            self.state.word().to_owned().into(),
            self.outcome().map(str::to_owned).into(),
            self.state.holds_slot().into(),
            self.queue_order().into(),
        ])
    }

    /// Writes what an event changed, and books or frees the lane's paths.
    pub(super) fn update(&self, connection: &Connection) -> Result<(), Fault> {
        connection
            .prepare_cached(
                "UPDATE runs SET last_event_at=?, state=?, outcome=?, live=?, queue_order=?, state_data=?, end_data=?
                 WHERE created_seq=?",
            )?
            .execute(params![
                self.last_event_at.unix_ms(),
                self.state.word(),
                self.outcome(),
                self.state.holds_slot(),
                self.queue_order(),
                encode(self.state)?,
                self.end.map(encode).transpose()?,
                self.created_seq,
            ])?;
        self.book(connection)
    }

    fn outcome(&self) -> Option<&'static str> {
        match self.state {
            State::Ended { outcome, .. } => Some(outcome.as_str()),
            _ => None,
        }
    }

    const fn queue_order(&self) -> Option<i64> {
        match self.state {
            State::Queued { .. } => Some(self.created_seq),
            _ => None,
        }
    }

    fn book(&self, connection: &Connection) -> Result<(), Fault> {
        let id = self.plan.lane_id.as_str();
        if !self.state.holds_slot() {
            connection.prepare_cached("DELETE FROM reservations WHERE lane_id=?")?.execute([id])?;
            return Ok(());
        }
        for path in self.plan.write_paths() {
            connection
                .prepare_cached("INSERT OR IGNORE INTO reservations (lane_id, path) VALUES (?,?)")?
                .execute(params![id, text(&path)])?;
        }
        Ok(())
    }
}

/// A plan that could be written as JSON holds only paths in UTF-8.
pub(super) fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn paths(json: &str, lane_id: &str) -> Result<Vec<PathBuf>, Fault> {
    decode(json, lane_id)
}

/// The id from its end, so that a search for the end of an id is a search for a beginning.
pub(super) fn reversed(id: &str) -> String {
    id.chars().rev().collect()
}

pub(super) fn parse_id(text: &str) -> Result<LaneId, Fault> {
    text.parse().map_err(|error| Fault::Damaged(format!("{error}")))
}
