//! Drives the git adapter as a library on real repositories in temporary folders.

mod checkouts;
mod cleaning;
mod hostile;
mod questions;
mod sharing;
mod taking_over;
mod world;
