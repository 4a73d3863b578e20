//! Adapters: everything that touches the machine, behind the traits of [`crate::app::ports`].

pub mod clock;
pub mod demo_worker;
pub mod environment;
pub mod git;
pub mod ledger;
pub mod loopback;
pub mod machine;
pub mod process;
pub mod run_folder;
pub mod sandbox;
