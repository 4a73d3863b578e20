//! The hash chain over the events.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::fault::Fault;

/// SHA-256 of an event and of all before it.
pub(super) type Hash = [u8; 32];

/// What stands before the first event.
pub(super) const START: Hash = [0; 32];

/// One event as it is stored.
#[derive(Clone, Debug)]
pub(super) struct StoredEvent {
    pub(super) seq: i64,
    pub(super) lane_id: String,
    pub(super) at: i64,
    pub(super) kind: String,
    pub(super) data: String,
    pub(super) prev_hash: Vec<u8>,
    pub(super) hash: Vec<u8>,
}

impl StoredEvent {
    pub(super) const COLUMNS: &'static str = "seq, lane_id, at, kind, data, prev_hash, hash";

    pub(super) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            seq: row.get(0)?,
            lane_id: row.get(1)?,
            at: row.get(2)?,
            kind: row.get(3)?,
            data: row.get(4)?,
            prev_hash: row.get(5)?,
            hash: row.get(6)?,
        })
    }

    /// The hash that it must carry. Every part is preceded by its length, so that no two events
    /// read the same.
    pub(super) fn expected_hash(&self) -> Hash {
        let mut hasher = Sha256::new();
        let (seq, at) = (self.seq.to_be_bytes(), self.at.to_be_bytes());
        let texts = [self.lane_id.as_bytes(), self.kind.as_bytes(), self.data.as_bytes()];
        for part in [b"lane event 1".as_slice(), &self.prev_hash, &seq, &at].into_iter().chain(texts) {
            hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(part);
        }
        hasher.finalize().into()
    }
}

/// Appends an event to the chain and returns its number.
pub(super) fn append(connection: &Connection, lane_id: &str, at: i64, kind: &str, data: String) -> Result<i64, Fault> {
    let last = connection
        .prepare_cached("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .optional()?;
    let (last_seq, prev_hash) = last.unwrap_or_else(|| (0, START.to_vec()));
    let mut event = StoredEvent {
        seq: last_seq.saturating_add(1),
        lane_id: lane_id.to_owned(),
        at,
        kind: kind.to_owned(),
        data,
        prev_hash,
        hash: Vec::new(),
    };
    event.hash = event.expected_hash().to_vec();
    connection
        .prepare_cached("INSERT INTO events (seq, lane_id, at, kind, data, prev_hash, hash) VALUES (?,?,?,?,?,?,?)")?
        .execute(params![event.seq, event.lane_id, event.at, event.kind, event.data, event.prev_hash, event.hash])?;
    Ok(event.seq)
}

/// Follows the chain as events are read in order.
pub(super) struct Follower {
    prev_seq: i64,
    prev_hash: Vec<u8>,
    /// The first event that does not fit, and why.
    pub(super) broken_at: Option<(i64, String)>,
}

impl Follower {
    pub(super) fn new() -> Self {
        Self { prev_seq: 0, prev_hash: START.to_vec(), broken_at: None }
    }

    pub(super) fn take(&mut self, event: &StoredEvent) {
        let why = if event.seq != self.prev_seq.saturating_add(1) {
            Some(format!("event {} is missing before it", self.prev_seq.saturating_add(1)))
        } else if event.prev_hash != self.prev_hash {
            Some("it does not follow the event before it".to_owned())
        } else if event.hash != event.expected_hash() {
            Some("its content is not what was written".to_owned())
        } else {
            None
        };
        if let (None, Some(why)) = (&self.broken_at, why) {
            self.broken_at = Some((event.seq, why));
        }
        self.prev_seq = event.seq;
        self.prev_hash.clone_from(&event.hash);
    }
}
