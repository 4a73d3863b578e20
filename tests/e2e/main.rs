//! End-to-end tests of the real binary with stand-ins for the worker CLIs: one module a subject.

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod basics;
mod cases;
mod faults;
mod hostile;
#[cfg(target_os = "linux")]
mod machine_faults;
mod refusals;
mod terminal;
mod verbs;
