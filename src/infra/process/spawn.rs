//! The only place that starts processes.
//!
//! Everything is started with exactly the environment that is given, default signal dispositions
//! and no signal blocked. What runs between fork and exec allocates nothing unless the process that
//! forks has one thread (the keeper).

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::linux;
use crate::app::ports::Environment;
use crate::infra::sandbox::Prepared;

/// Builds a command with exactly this environment.
pub fn command(program: impl AsRef<OsStr>, environment: &Environment, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.0.iter().map(|(name, value)| (name, value))).current_dir(directory);
    command
}

/// Makes the command run `first` in the new process just before it becomes the program.
#[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to keep simple")]
pub fn before_exec(command: &mut Command, first: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: every closure of this module only makes system calls; the keeper's also writes a
    // file, which is sound because the keeper has a single thread when it forks.
    unsafe { command.pre_exec(first) };
}

/// Puts the command into a session of its own with clean signals, then into its confinement.
pub fn in_own_session(command: &mut Command, confinement: Option<Prepared>) {
    let mut confinement = confinement;
    before_exec(command, move || {
        linux::new_session();
        linux::reset_signals();
        confinement.take().map_or(Ok(()), Prepared::put_on)
    });
}
