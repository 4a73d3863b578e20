//! Starting a supervisor that outlives its caller, and the supervisor's side of the handover.
//!
//! Specification: `lane __supervise <run_dir> --claim-fd N`.
//!
//! * It starts with `/` as its directory, the given environment and nothing else, stdin from `/dev/null`, stdout and stderr appended to `<run_dir>/supervisor.log` (0600).
//! * It inherits one descriptor, the locked claim, and takes it with [`take_claim`]. The system
//!   call that makes the new process this program also makes it the holder of the claim, so the
//!   caller waits for that moment (a pipe that closes with it) and for nothing after it.
//! * Nothing else of the caller is inherited, so whoever reads the caller's stdout sees its end.
//! * The first thing it does is [`stand_alone`]: a session of its own, clean signals, and a fork
//!   that makes it nobody's child, so that no caller has to reap it and no sweep can meet it. It
//!   does so itself because starting a program costs a caller much less than forking.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::path::Path;
use std::process::{Child, Stdio};

use super::records::{SUPERVISOR_LOG_FILE, open_append};
use super::{linux, spawn};
use crate::app::ports::{Claim, Environment, PortError, PortResult};

/// Starts the supervisor of a run folder with `executable` and hands it the claim.
///
/// Returns the process that was started, which ends as soon as the supervisor stands alone; whoever
/// lives on reaps it. A caller that adopts orphans has waited for that already, and gets none: the
/// supervisor would have become its child after all.
pub fn start_supervisor(
    executable: &Path,
    run_dir: &Path,
    claim: Claim,
    environment: &Environment,
) -> PortResult<Option<Child>> {
    let doing = |error: &io::Error| PortError::io(format!("starting a supervisor for {}", run_dir.display()), error);
    let log_path = run_dir.join(SUPERVISOR_LOG_FILE);
    let log = open_append(&log_path).map_err(|e| PortError::io(log_path.display(), &e))?;
    launch(executable, run_dir, &claim, environment, log).map_err(|e| doing(&e))
}

fn launch(
    executable: &Path,
    run_dir: &Path,
    claim: &Claim,
    environment: &Environment,
    log: File,
) -> io::Result<Option<Child>> {
    let claim = linux::duplicate_high(claim.file.as_fd())?;
    let mut command = spawn::command(executable, environment, Path::new("/"));
    command.arg("__supervise").arg(run_dir).args(["--claim-fd", &claim.as_raw_fd().to_string()]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    // It returns when the new process is the program, or says why it is not. From then on nothing
    // else that this process starts may inherit the claim.
    let mut start = move || {
        let started = linux::inherit_only(&[claim.as_raw_fd()]).and_then(|()| command.spawn());
        linux::inherit_only(&[]).and(started)
    };
    if !linux::is_subreaper() {
        return start().map(Some);
    }
    linux::set_subreaper(false)?;
    let ended = start().and_then(|mut child| child.wait());
    linux::set_subreaper(true)?;
    ended.map(|_| None)
}

/// Leaves the caller's session, signals and family. Call it first thing, before any thread.
///
/// Returns in the new process only; the one that was started ends here.
#[expect(unsafe_code, reason = "fork is how a process becomes nobody's child")]
pub fn stand_alone() -> io::Result<()> {
    // SAFETY: the caller promises that this process has one thread.
    match unsafe { nix::unistd::fork() }? {
        // SAFETY: leaves at once, without running anything that the child goes on with.
        nix::unistd::ForkResult::Parent { .. } => unsafe { nix::libc::_exit(0) },
        nix::unistd::ForkResult::Child => {}
    }
    linux::new_session();
    linux::reset_signals();
    Ok(())
}

/// Takes over the claim whose descriptor stands on the command line.
///
/// Call it once, first thing: the number must still mean what it meant at exec. From here on it is
/// closed in everything that this process starts. A number that is not open is an error.
#[expect(unsafe_code, reason = "descriptors that cross exec arrive as bare numbers")]
pub fn take_claim(fd: RawFd) -> io::Result<Claim> {
    if fd < 3 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the caller of this program handed the descriptor over and nobody else here owns it.
    let flags = unsafe { nix::libc::fcntl(fd, nix::libc::F_SETFD, nix::libc::FD_CLOEXEC) };
    if flags != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, as the call above has shown, and ours.
    Ok(Claim { file: unsafe { File::from_raw_fd(fd) } })
}
