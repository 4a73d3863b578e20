//! Identifiers: lanes, commits, processes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::Timestamp;

/// The most bytes that a slug takes inside a lane id.
const SLUG_MAX_BYTES: usize = 32;

/// Id of a lane: `YYYYMMDD-HHMMSS-<slug>-<4 hex>`, in UTC.
///
/// The text holds only `a-z`, `0-9` and `-`, so it is safe as a file name and as a branch name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct LaneId(String);

impl LaneId {
    /// Builds the id of a lane that is created at `now` for a brief titled `title`.
    ///
    /// `random` sets the four hexadecimal digits at the end.
    pub fn new(now: Timestamp, title: &str, random: u16) -> Self {
        Self(format!("{}-{}-{random:04x}", now.compact(), slug(title)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The branch that holds the lane's work: `lane/<id>`.
    pub fn branch(&self) -> String {
        format!("lane/{}", self.0)
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<LaneId> for String {
    fn from(id: LaneId) -> Self {
        id.0
    }
}

/// Why a text is no lane id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a lane id (YYYYMMDD-HHMMSS-<slug>-<4 hex>)")]
pub struct InvalidLaneId(String);

impl TryFrom<String> for LaneId {
    type Error = InvalidLaneId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let safe = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let mut parts = text.splitn(3, '-');
        let date = parts.next().unwrap_or_default();
        let clock = parts.next().unwrap_or_default();
        let rest = parts.next().unwrap_or_default();
        let tail = rest.rsplit('-').next().unwrap_or_default();
        let digits = |part: &str, count: usize| part.len() == count && part.bytes().all(|b| b.is_ascii_digit());
        let hex = tail.len() == 4 && tail.bytes().all(|b| b.is_ascii_hexdigit());
        if safe && digits(date, 8) && digits(clock, 6) && hex && rest.len() > 5 && text.len() <= 64 {
            Ok(Self(text))
        } else {
            Err(InvalidLaneId(text))
        }
    }
}

impl FromStr for LaneId {
    type Err = InvalidLaneId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

/// Returns `title` as lower-case words joined by `-`, at most 32 bytes; `task` when nothing is left.
pub fn slug(title: &str) -> String {
    let mut text = String::new();
    for character in title.chars() {
        if character.is_ascii_alphanumeric() {
            text.push(character.to_ascii_lowercase());
        } else if !text.ends_with('-') && !text.is_empty() {
            text.push('-');
        }
        if text.len() >= SLUG_MAX_BYTES {
            break;
        }
    }
    let text = text.trim_matches('-');
    if text.is_empty() { "task".to_owned() } else { text.to_owned() }
}

/// A commit's object id in hexadecimal: 40 digits (SHA-1) or 64 (SHA-256).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct CommitId(String);

impl CommitId {
    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<CommitId> for String {
    fn from(id: CommitId) -> Self {
        id.0
    }
}

/// Why a text is no object id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not an object id (40 or 64 hexadecimal digits)")]
pub struct InvalidCommitId(String);

impl TryFrom<String> for CommitId {
    type Error = InvalidCommitId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex && (text.len() == 40 || text.len() == 64) { Ok(Self(text)) } else { Err(InvalidCommitId(text)) }
    }
}

impl FromStr for CommitId {
    type Err = InvalidCommitId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

/// Which process it was: the number alone is reused, the three together are not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessIdentity {
    /// The process id.
    pub pid: i32,
    /// Start time in clock ticks since the machine started (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
    /// The kernel's boot id, which changes at each start of the machine.
    pub boot_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_built_and_read_back() {
        let id = LaneId::new(Timestamp::from_unix_ms(1_796_086_134_000), "Fix the Parser!", 0xbeef);
        assert_eq!(id.as_str(), "20261201-004854-fix-the-parser-beef");
        assert_eq!(id.as_str().parse::<LaneId>().unwrap(), id);
        assert_eq!(id.branch(), "lane/20261201-004854-fix-the-parser-beef");
    }

    #[test]
    fn foreign_texts_are_no_ids() {
        for text in ["", "x", "20261201-004854--beef", "../20261201-004854-a-beef", "20261201-004854-a-beeg"] {
            assert!(text.parse::<LaneId>().is_err(), "{text}");
        }
    }

    #[test]
    fn slug_of_odd_titles() {
        assert_eq!(slug("  --"), "task");
        assert_eq!(slug("日本語"), "task");
        assert_eq!(slug(&"long word ".repeat(10)), "long-word-long-word-long-word-lo");
    }
}
