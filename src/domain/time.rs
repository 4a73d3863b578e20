//! Points in time and lengths of time, as plain numbers with their unit in the type.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

/// A point in time: milliseconds since 1970-01-01 UTC, as the wall clock said.
///
/// On the wire it is RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Timestamp(i64);

impl Timestamp {
    /// Builds it from milliseconds since 1970-01-01 UTC.
    pub const fn from_unix_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Builds it from seconds since 1970-01-01 UTC; absurd values saturate.
    pub const fn from_unix_s(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 text; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        i64::try_from(parsed.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }

    /// The time `length` later.
    #[must_use]
    pub fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    /// The time `length` earlier.
    #[must_use]
    pub fn minus(self, length: Millis) -> Self {
        Self(self.0.saturating_sub(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero when the clock went backwards.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// `YYYYMMDD-HHMMSS` in UTC, for ids and file names.
    pub fn compact(self) -> String {
        let format = format_description!("[year][month][day]-[hour][minute][second]");
        self.date_time().format(&format).unwrap_or_else(|_| "19700101-000000".to_owned())
    }

    fn date_time(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
        let text = self.date_time().format(&format).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not an RFC 3339 time")))
    }
}

/// A length of time in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Builds it from whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// The length in seconds, as it stands in answers.
    pub fn as_secs_f64(self) -> f64 {
        // A lane's length in milliseconds is far below 2^53, so nothing is lost.
        #[expect(clippy::cast_precision_loss, reason = "milliseconds stay below 2^53")]
        let ms = self.0 as f64;
        ms / 1000.0
    }

    /// The same length for the standard library.
    pub const fn as_duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

/// A point on the clock that only runs forward, in milliseconds since the machine started.
///
/// It counts the time that the machine slept, and a change of the wall clock does not move it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// How long ago `earlier` was; zero when `earlier` lies in the future.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }

    /// The point `length` later.
    #[must_use]
    pub const fn plus(self, length: Millis) -> Self {
        Self(self.0.saturating_add(length.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let time = Timestamp::from_unix_ms(1_796_086_134_567);
        assert_eq!(time.to_string(), "2026-12-01T00:48:54.567Z");
        assert_eq!(Timestamp::parse("2026-12-01T01:48:54.567+01:00"), Some(time));
        assert_eq!(Timestamp::parse("yesterday"), None);
    }

    #[test]
    fn a_clock_that_runs_backwards_gives_zero() {
        assert_eq!(Timestamp::from_unix_ms(5).since(Timestamp::from_unix_ms(9)), Millis(0));
        assert_eq!(Monotonic(5).since(Monotonic(9)), Millis(0));
    }
}
