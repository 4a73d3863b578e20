//! Use cases, one verb a file. They decide through [`ports`] and never touch the machine.

pub mod cancel;
pub mod classify;
pub mod clean;
pub mod context;
pub mod doctor;
pub mod error;
pub mod lanes;
pub mod planning;
pub mod ports;
pub mod prepare;
pub mod prove;
pub mod reconcile;
pub mod request;
pub mod run;
pub mod supervise;
pub mod wait;
pub mod worker_cli;
pub mod worker_environment;
