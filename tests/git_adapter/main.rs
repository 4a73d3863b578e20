//! Drives the git adapter as a library on real repositories in temporary folders.

#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "helpers of tests fail by panicking")]

mod checkouts;
mod cleaning;
mod hostile;
mod questions;
mod sharing;
mod taking_over;
mod world;
