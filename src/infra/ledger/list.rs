//! Reading: one lane, a search, the listings, the counts.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, params_from_iter};

use crate::app::ports::{Counts, LaneFilter, LaneRow};
use crate::domain::ids::LaneId;

use super::fault::Fault;
use super::rows::{self, COLUMNS};

/// The most lanes that a search returns.
const FIND_LIMIT: usize = 10;

pub(super) fn lane(connection: &Connection, lane_id: &LaneId) -> Result<Option<LaneRow>, Fault> {
    let found = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM runs WHERE lane_id=?"))?
        .query_row([lane_id.as_str()], rows::stored)
        .optional()?;
    found.map(|row| row.understood()).transpose()
}

/// Returns the lane of exactly that id, else those whose id begins or ends with `text`.
pub(super) fn find(connection: &Connection, text: &str) -> Result<Vec<LaneId>, Fault> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = begins_with(connection, "lane_id", text)?;
    if let Some(exact) = found.iter().find(|id| *id == text) {
        return Ok(vec![rows::parse_id(exact)?]);
    }
    found.extend(begins_with(connection, "lane_id_reversed", &rows::reversed(text))?);
    found.sort_unstable();
    found.dedup();
    found.iter().take(FIND_LIMIT).map(|id| rows::parse_id(id)).collect()
}

fn begins_with(connection: &Connection, column: &str, text: &str) -> Result<Vec<String>, Fault> {
    // Ids hold nothing that sorts after `~`. The shortest comes first, so an exact one is among them.
    let query =
        format!("SELECT lane_id FROM runs WHERE {column} >= ?1 AND {column} < ?1 || '~' ORDER BY {column} LIMIT ?2");
    let mut statement = connection.prepare_cached(&query)?;
    let rows = statement.query_map((text, FIND_LIMIT as i64), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn live(connection: &Connection) -> Result<Vec<LaneRow>, Fault> {
    rows_of(connection, "WHERE live = 1 ORDER BY created_seq", [])
}

pub(super) fn queued(connection: &Connection) -> Result<Vec<LaneRow>, Fault> {
    rows_of(connection, "WHERE queue_order IS NOT NULL ORDER BY created_seq", [])
}

pub(super) fn recent(connection: &Connection, filter: &LaneFilter) -> Result<Vec<LaneRow>, Fault> {
    let (condition, values) = condition(filter);
    rows_of(connection, &condition, params_from_iter(values))
}

/// The text after `FROM runs`, and its values.
pub(super) fn condition(filter: &LaneFilter) -> (String, Vec<Value>) {
    let mut parts = Vec::new();
    let mut values = Vec::new();
    if let Some(since) = filter.since {
        parts.push("created_at >= ?");
        values.push(Value::Integer(since.unix_ms()));
    }
    if let Some(repository) = &filter.repository {
        parts.push("repository_root = ?");
        values.push(Value::Text(rows::text(repository)));
    }
    if let Some(word) = &filter.state {
        let (part, value) = state_condition(word);
        parts.push(part);
        values.extend(value.map(Value::Text));
    }
    let mut text = if parts.is_empty() { String::new() } else { format!("WHERE {}", parts.join(" AND ")) };
    // Each order is the one that an index gives, so nothing is sorted and a limit ends the search.
    text.push_str(match filter.since {
        Some(_) => " ORDER BY created_at DESC, created_seq DESC",
        None => " ORDER BY created_seq DESC",
    });
    if let Some(limit) = filter.limit {
        text.push_str(" LIMIT ?");
        values.push(Value::Integer(i64::from(limit)));
    }
    (text, values)
}

/// The words of live states name few lanes, so only those are looked at.
fn state_condition(word: &str) -> (&'static str, Option<String>) {
    match word {
        "queued" => ("queue_order IS NOT NULL", None),
        "running" => ("live = 1", None),
        "ended" => ("outcome IS NOT NULL", None),
        "admitted" | "preparing" | "working" | "proving" => ("live = 1 AND state = ?", Some(word.to_owned())),
        _ => ("outcome = ?", Some(word.to_owned())),
    }
}

/// Rows that only a newer Lane understands are passed over: they are not ours to act on.
fn rows_of(connection: &Connection, condition: &str, values: impl Params) -> Result<Vec<LaneRow>, Fault> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM runs {condition}"))?;
    let mut found = statement.query(values)?;
    let mut lanes = Vec::new();
    while let Some(row) = found.next()? {
        match rows::stored(row)?.understood() {
            Ok(lane) => lanes.push(lane),
            Err(Fault::NewerRow(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(lanes)
}

/// Returns the number of the newest event; zero for none.
pub(super) fn newest_event(connection: &Connection) -> Result<u64, Fault> {
    let newest: i64 =
        connection.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?.query_row([], |row| row.get(0))?;
    Ok(newest.unsigned_abs())
}

/// Counts the lanes that run and those that wait.
pub(super) fn counts(connection: &Connection) -> Result<Counts, Fault> {
    let count = |condition: &str| -> Result<u32, Fault> {
        let query = format!("SELECT count(*) FROM runs WHERE {condition}");
        Ok(connection.prepare_cached(&query)?.query_row([], |row| row.get(0))?)
    };
    Ok(Counts { running: count("live = 1")?, queued: count("queue_order IS NOT NULL")? })
}
