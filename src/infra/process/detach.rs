//! Starting a supervisor that outlives its caller, and the supervisor's side of the handshake.
//!
//! Specification: `lane __supervise <run_dir> --claim-fd N --ready-fd M`.
//!
//! * It runs in a session of its own, with `/` as its directory, the given environment and nothing
//!   else, stdin from `/dev/null`, stdout and stderr appended to `<run_dir>/supervisor.log` (0600).
//! * It inherits two descriptors: the locked claim, and the end of a pipe. It takes them with
//!   [`Inherited::take`] and sends one line: `ready`, or why it cannot.
//! * Nothing else of the caller is inherited, so whoever reads the caller's stdout sees its end.
//! * It is nobody's child (a double fork), so no caller has to reap it and no sweep can meet it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::records::{SUPERVISOR_LOG_FILE, open_append};
use super::{identity, linux, spawn, table};
use crate::app::ports::{Claim, Environment, PortError, PortResult};

/// How long a supervisor may take to say that it is ready. A loaded machine needs seconds.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How much of a supervisor's log an error carries.
const LOG_TAIL_BYTES: u64 = 2048;

/// The longest line that is taken from a starting supervisor.
const LINE_MAX_BYTES: usize = 4096;

/// Starts the supervisor of a run folder with `executable` and waits for its ready line.
pub fn start_supervisor(executable: &Path, run_dir: &Path, claim: Claim, environment: &Environment) -> PortResult<()> {
    let doing = |error: &io::Error| PortError::io(format!("starting a supervisor for {}", run_dir.display()), error);
    let log_path = run_dir.join(SUPERVISOR_LOG_FILE);
    let log = open_append(&log_path).map_err(|e| PortError::io(log_path.display(), &e))?;
    let log_start = log.metadata().map_or(0, |data| data.len());
    let ready = launch(executable, run_dir, &claim, environment, log).map_err(|e| doing(&e))?;
    drop(claim);
    let failed = |why: String| {
        let tail = log_tail(&log_path, log_start);
        let said = if tail.is_empty() { String::new() } else { format!("; its log ends: {tail}") };
        PortError::other(format!("the supervisor of {} {why}{said}", run_dir.display()))
    };
    match await_ready(ready).map_err(|e| doing(&e))? {
        Answer::Ready => Ok(()),
        Answer::Refused(line) => Err(failed(format!("cannot start: {line}"))),
        Answer::Died => Err(failed("ended before it was ready".into())),
        Answer::Silent(pid) => {
            end_silent(pid);
            Err(failed(format!("gave no sign of life within {} s and was ended", READY_LIMIT.as_secs())))
        }
    }
}

fn launch(executable: &Path, run_dir: &Path, claim: &Claim, environment: &Environment, log: File) -> io::Result<File> {
    let (reader, writer) = io::pipe()?;
    let claim = linux::duplicate_high(claim.file.as_fd())?;
    let writer = linux::duplicate_high(writer.as_fd())?;
    let mut command = spawn::command(executable, environment, Path::new("/"));
    command.arg("__supervise").arg(run_dir);
    command.args(["--claim-fd", &claim.as_raw_fd().to_string(), "--ready-fd", &writer.as_raw_fd().to_string()]);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let inherited = [claim.as_raw_fd(), writer.as_raw_fd()];
    spawn::before_exec(&mut command, move || become_nobodys_child(inherited));
    // While this process adopts orphans, the supervisor would become its child after all.
    let adopting = linux::is_subreaper();
    if adopting {
        linux::set_subreaper(false)?;
    }
    let launched = command.spawn().and_then(|mut middle| middle.wait());
    if adopting {
        linux::set_subreaper(true)?;
    }
    launched?;
    Ok(File::from(OwnedFd::from(reader)))
}

/// Forks once more and lets the process in the middle go. The new one tells its number on the pipe.
#[expect(unsafe_code, reason = "fork is how a process becomes nobody's child")]
fn become_nobodys_child(inherited: [RawFd; 2]) -> io::Result<()> {
    // SAFETY: this process came from fork a moment ago and has one thread.
    match unsafe { nix::unistd::fork() }? {
        // SAFETY: leaves at once, without running anything that belongs to the caller.
        nix::unistd::ForkResult::Parent { .. } => unsafe { nix::libc::_exit(0) },
        nix::unistd::ForkResult::Child => {}
    }
    linux::new_session();
    linux::reset_signals();
    linux::inherit_only(&inherited)?;
    let [_, ready] = inherited;
    // SAFETY: the descriptor stays open across exec, so the borrow cannot outlive it.
    let ready = unsafe { std::os::fd::BorrowedFd::borrow_raw(ready) };
    nix::unistd::write(ready, &nix::unistd::getpid().as_raw().to_ne_bytes())?;
    Ok(())
}

enum Answer {
    Ready,
    Refused(String),
    Died,
    Silent(Option<i32>),
}

/// Reads the supervisor's number and its one line, until the pipe ends or the time is up.
fn await_ready(mut pipe: File) -> io::Result<Answer> {
    let deadline = Instant::now() + READY_LIMIT;
    let mut received = Vec::new();
    loop {
        let (pid, line) = match received.split_first_chunk::<4>() {
            Some((number, rest)) => (Some(i32::from_ne_bytes(*number)), rest),
            None => (None, &[][..]),
        };
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line.get(..end).unwrap_or_default()).into_owned();
            return Ok(if line == "ready" { Answer::Ready } else { Answer::Refused(line) });
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || received.len() > LINE_MAX_BYTES {
            return Ok(Answer::Silent(pid));
        }
        if readable(&pipe, left)? {
            let mut chunk = [0; 512];
            let count = pipe.read(&mut chunk)?;
            if count == 0 {
                return Ok(Answer::Died);
            }
            received.extend_from_slice(chunk.get(..count).unwrap_or_default());
        }
    }
}

fn readable(pipe: &File, limit: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, limit) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Ends a supervisor that never answered, so that it cannot act after its caller gave up on it.
fn end_silent(pid: Option<i32>) {
    let Some(row) = pid.and_then(table::load_row) else { return };
    if let Some(fd) = identity::open_verified(row.pid, row.start_ticks) {
        linux::pidfd_send_signal(fd.as_fd(), nix::libc::SIGKILL).ok();
    }
}

fn log_tail(path: &Path, start: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(LOG_TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}

/// What a supervisor inherits from whoever started it.
#[derive(Debug)]
pub struct Inherited {
    /// The lock on the run folder, held from before the supervisor was born.
    pub claim: Claim,
    /// The way to tell that it is ready.
    pub ready: Ready,
}

impl Inherited {
    /// Takes over the two descriptors whose numbers stand on the command line.
    ///
    /// Call it once, first thing: the numbers must still mean what they meant at exec. From here on
    /// both are closed in everything that this process starts. Numbers that are not open are an error.
    #[expect(unsafe_code, reason = "descriptors that cross exec arrive as bare numbers")]
    pub fn take(claim_fd: RawFd, ready_fd: RawFd) -> io::Result<Self> {
        let take = |fd: RawFd| -> io::Result<File> {
            if fd < 3 {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            // SAFETY: the caller of this program handed the descriptor over and nobody else here owns it.
            let flags = unsafe { nix::libc::fcntl(fd, nix::libc::F_SETFD, nix::libc::FD_CLOEXEC) };
            if flags != 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: it is open, as the call above has shown, and ours.
            Ok(unsafe { File::from_raw_fd(fd) })
        };
        Ok(Self { claim: Claim { file: take(claim_fd)? }, ready: Ready(take(ready_fd)?) })
    }
}

/// The supervisor's end of the pipe to whoever started it. Dropped unused, it counts as a death.
#[derive(Debug)]
pub struct Ready(File);

impl Ready {
    /// Tells the caller that the lane is looked after from now on. A caller that is gone is no error.
    pub fn ready(mut self) {
        self.0.write_all(b"ready\n").ok();
    }

    /// Tells the caller why not; line feeds become blanks.
    pub fn refuse(mut self, why: &str) {
        let line: String = why.chars().take(1000).map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.0.write_all(format!("{line}\n").as_bytes()).ok();
    }
}
