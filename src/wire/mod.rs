//! The JSON contract on stdout, apart from the types we think with.
//!
//! Absent = does not apply or was not asked; `null` = asked, not known; a value = known. Adding a
//! field is fine; renaming or removing one needs a new [`SCHEMA`] number.

pub mod answers;
pub mod lane_result;
pub mod schema;

/// Number of the contract; each line carries it as `schema`.
pub const SCHEMA: u32 = 1;
