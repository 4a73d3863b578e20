//! Pure rules: what a lane is, what may happen to it, and how what happened is judged.
//!
//! Nothing in here reads a file, a clock, the environment or a random number: all of it is
//! handed in. Every `match` over a type of this module is written out, without a wildcard arm,
//! so that a new variant breaks the build wherever it matters.

pub mod accepted;
pub mod admission;
pub mod brief;
pub mod config;
pub mod duration;
pub mod environment;
pub mod facts;
pub mod ids;
pub mod outcome;
pub mod plan;
pub mod profile;
pub mod refusal;
pub mod report;
pub mod result;
pub mod state;
pub mod supervision;
pub mod time;
pub mod worker;
