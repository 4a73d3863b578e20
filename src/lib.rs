//! Lane hands work to background Codex and Claude Code workers and gets back the truth.
//!
//! Floor plan. Imports run one way only, and `tests/layers.rs` fails when a file breaks this:
//!
//! ```text
//! main -> wiring -> cli -> app -> provider -> domain
//!                   cli -> wire -----------> domain
//!                   infra -> app::ports, provider, domain   (nobody but wiring imports infra)
//! ```
//!
//! * [`domain`]: pure rules. No input or output, no clock, no environment, no randomness.
//! * [`provider`]: pure knowledge of the worker CLIs, one folder each.
//! * [`app`]: use cases, one verb a file; [`app::ports`] are the traits that adapters implement.
//! * [`infra`]: the adapters: ledger, processes, git, sandbox, clock, environment.
//! * [`wire`]: the JSON contract, apart from the types we think with.
//! * [`cli`]: the front door. It holds no rule.
//! * [`wiring`]: the only module that knows all of them.

// A test may panic and print; the product may not.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![warn(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod app;
pub mod cli;
pub mod domain;
pub mod infra;
pub mod provider;
pub mod wire;
pub mod wiring;
