//! Asking a worker CLI something short: its version, its features, whether it is logged in.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};

use super::running::poll_any;
use super::{linux, spawn};
use crate::app::ports::{Asked, Environment, PortError, PortResult};
use crate::domain::time::Millis;

/// The most that is kept of each output.
const OUTPUT_MAX_BYTES: usize = 256 * 1024;

/// How long the outputs are read after the end: something it left may hold them open.
const DRAIN_LIMIT: Duration = Duration::from_millis(200);

/// Runs a short command in `/` and returns what it answered.
///
/// It gets a process group of its own, which is ended with it; stdin is empty. An error means that
/// it could not be started.
pub fn ask(program: &Path, arguments: &[&str], environment: &Environment, limit: Millis) -> PortResult<Asked> {
    let doing = |error: &io::Error| PortError::io(format!("asking {}", program.display()), error);
    let mut command = spawn::command(program, environment, Path::new("/"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    spawn::before_exec(&mut command, || {
        linux::reset_signals();
        Ok(())
    });
    let mut child = command.spawn().map_err(|e| doing(&e))?;
    let heard = listen(&mut child, limit.as_duration());
    // The child is not reaped yet, so its number, and with it the group's, still means what it meant.
    end_group(&child);
    let status = child.wait().map_err(|e| doing(&e))?;
    let (stdout, stderr, in_time) = heard?;
    Ok(Asked { exit_code: status.code().filter(|_| in_time), stdout: stdout.text(), stderr: stderr.text() })
}

fn listen(child: &mut Child, limit: Duration) -> PortResult<(Output, Output, bool)> {
    let watch = |error: &io::Error| PortError::io("watching a command", error);
    let pid = i32::try_from(child.id()).map_err(|e| PortError::other(e.to_string()))?;
    let ended = linux::pidfd_open(pid).map_err(|e| watch(&e))?;
    let mut stdout = Output::new(child.stdout.take()).map_err(|e| watch(&e))?;
    let mut stderr = Output::new(child.stderr.take()).map_err(|e| watch(&e))?;
    let mut deadline = Instant::now().checked_add(limit);
    let mut in_time = false;
    loop {
        let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()));
        if left.is_zero() || (in_time && stdout.pipe.is_none() && stderr.pipe.is_none()) {
            return Ok((stdout, stderr, in_time));
        }
        let end = if in_time { None } else { Some(ended.as_fd()) };
        poll_any(&[end, stdout.fd(), stderr.fd()], left)?;
        stdout.take_in();
        stderr.take_in();
        if !in_time && poll_any(&[Some(ended.as_fd())], Duration::ZERO)? {
            in_time = true;
            deadline = Instant::now().checked_add(DRAIN_LIMIT);
        }
    }
}

fn end_group(child: &Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        killpg(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).ok();
    }
}

/// One output, read without blocking; what goes beyond the bound is dropped.
struct Output {
    pipe: Option<Box<dyn Pipe>>,
    bytes: Vec<u8>,
}

trait Pipe: Read + AsFd {}

impl<T: Read + AsFd> Pipe for T {}

impl Output {
    fn new(pipe: Option<impl Read + AsFd + 'static>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(Self { pipe: pipe.map(|pipe| Box::new(pipe) as Box<dyn Pipe>), bytes: Vec::new() })
    }

    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    fn take_in(&mut self) {
        let mut chunk = [0; 8192];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut chunk) {
                Ok(count) if count > 0 => {
                    let room = OUTPUT_MAX_BYTES.saturating_sub(self.bytes.len());
                    self.bytes.extend_from_slice(chunk.get(..count.min(room)).unwrap_or_default());
                    if room == 0 {
                        // Nothing more is kept: the writer is let go on until its end or limit.
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
