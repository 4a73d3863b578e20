//! Use cases, one verb a file. They decide through [`ports`] and never touch the machine.

pub mod ports;
