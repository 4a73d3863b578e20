//! Confinement of workers: Landlock on Linux, Seatbelt on macOS.
//!
//! A confined process reads everything and writes only where its [`Confinement`] says, besides the
//! harmless device files. It can never leave the confinement, nor can what it starts. What cannot
//! be enforced whole is refused; nothing is confined by half.
//!
//! Not confined: metadata of files outside (mode, owner, times, extended attributes), reading, and
//! connecting to sockets that lie in the file system. Those stand in `docs/limits.md`.

#[cfg(target_os = "linux")]
mod landlock;
pub mod seatbelt;

#[cfg(target_os = "linux")]
pub use self::landlock::{Prepared, prepare, probe};

/// Device files that every program may write.
pub const WRITABLE_DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
