//! Running one check command: its own session, its own log, a limit, and a sweep afterwards.
//!
//! The check ends when its shell ends, whatever it left in the background; that is then swept.
//! Orphans of the check come to this process, so they are found even without the lane's tag.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::identity::{self, Tracked};
use super::records;
use super::running::poll_any;
use super::sweep::{self, Scope};
use super::watcher::{LOOK_MS, Watcher};
use super::{linux, spawn};
use crate::app::ports::{CheckRequest, Clock, PortError, PortResult};
use crate::domain::facts::CheckRun;
use crate::domain::worker::ProcessExit;
use crate::infra::sandbox;

/// The most output that one check may leave.
const OUTPUT_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// How much of the output's end goes into the answer.
const TAIL_MAX_BYTES: usize = 4096;

/// How often a chatty check's output is measured.
const MEASURE_PAUSE: Duration = Duration::from_millis(100);

/// Why a check was over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    ByItself,
    Limit,
    Cancelled,
    TooMuchOutput,
}

/// Runs the check to its end, its limit, a request to stop in `run_dir`, or too much output.
///
/// An error means that it did not run at all, or that something of it cannot be killed.
pub fn run_check(request: &CheckRequest, run_dir: &Path, clock: &dyn Clock) -> PortResult<CheckRun> {
    let doing = |error: &io::Error| PortError::io(format!("running the check `{}`", request.command), error);
    linux::set_subreaper(true).map_err(|e| doing(&e))?;
    let log = records::open_append(&request.log_path).map_err(|e| PortError::io(request.log_path.display(), &e))?;
    let log_start = log.metadata().map_or(0, |data| data.len());
    let mut watcher = Watcher::new(run_dir);
    watcher.add_file(&request.log_path);
    let started = Instant::now();
    let shell = launch(request, &log, clock)?;
    let over = supervise(request, &shell, &mut watcher, started, log_start)?;
    let scope =
        Scope { lane_id: request.lane_id.clone(), roots: vec![shell.identity().clone()], spared: None, adopts: true };
    if over == Over::ByItself {
        sweep::settle(&scope)?;
    }
    sweep::end_all(&scope, Some(&shell))?;
    let exit = shell.fd().and_then(linux::reap).unwrap_or(ProcessExit::Unknown);
    let duration = started.elapsed();
    explain(over, &log).map_err(|e| doing(&e))?;
    let tail = load_tail(&request.log_path, log_start).map_err(|e| doing(&e))?;
    Ok(answer(request, over, exit, duration, tail))
}

fn launch(request: &CheckRequest, log: &File, clock: &dyn Clock) -> PortResult<Tracked> {
    let doing = |error: &io::Error| PortError::io(format!("starting the check `{}`", request.command), error);
    std::fs::metadata(&request.directory).map_err(|e| PortError::io(request.directory.display(), &e))?;
    let prepared = request.confinement.as_ref().map(sandbox::prepare).transpose()?;
    let mut command = spawn::command("/bin/sh", &request.environment, &request.directory);
    command.arg("-c").arg(&request.command).stdin(Stdio::null());
    command.stdout(log.try_clone().map_err(|e| doing(&e))?).stderr(log.try_clone().map_err(|e| doing(&e))?);
    spawn::in_own_session(&mut command, prepared);
    let child = command.spawn().map_err(|e| doing(&e))?;
    let boot_id = clock.boot_id();
    let identity = i32::try_from(child.id()).ok().and_then(|pid| identity::identity_of(pid, &boot_id));
    identity
        .map(|identity| Tracked::find(identity, &boot_id))
        .filter(|shell| shell.fd().is_some())
        .ok_or_else(|| PortError::other(format!("the check `{}` cannot be watched", request.command)))
}

fn supervise(
    request: &CheckRequest,
    shell: &Tracked,
    watcher: &mut Watcher,
    started: Instant,
    log_start: u64,
) -> PortResult<Over> {
    let limit = request.limit.as_duration();
    let mut measured: Option<Instant> = None;
    loop {
        if shell.is_gone() {
            return Ok(Over::ByItself);
        }
        watcher.look();
        if watcher.take_requests() > 0 {
            return Ok(Over::Cancelled);
        }
        if watcher.take_growth() {
            measured = Some(Instant::now());
            let length = std::fs::metadata(&request.log_path).map_or(0, |data| data.len());
            if length.saturating_sub(log_start) > OUTPUT_MAX_BYTES {
                return Ok(Over::TooMuchOutput);
            }
        }
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(Over::Limit);
        }
        // After growth the folder is not slept on for a moment, or each line would cost a wake.
        let pause = measured.and_then(|at| MEASURE_PAUSE.checked_sub(at.elapsed())).filter(|pause| !pause.is_zero());
        let look = if watcher.must_look() { Duration::from_millis(LOOK_MS) } else { left };
        let folder = if pause.is_none() { watcher.fd() } else { None };
        poll_any(&[folder, shell.fd()], left.min(look).min(pause.unwrap_or(left)))?;
    }
}

/// Says in the log why the check was ended, where Lane ended it.
fn explain(over: Over, mut log: &File) -> io::Result<()> {
    let why = match over {
        Over::ByItself => return Ok(()),
        Over::Limit => "its time limit was over".to_owned(),
        Over::Cancelled => "somebody asked for the end".to_owned(),
        Over::TooMuchOutput => format!("its output passed {} MiB", OUTPUT_MAX_BYTES / 1024 / 1024),
    };
    log.write_all(format!("\nlane: the check was stopped: {why}\n").as_bytes())
}

fn answer(request: &CheckRequest, over: Over, exit: ProcessExit, duration: Duration, tail: String) -> CheckRun {
    let (exit_code, signal) = match exit {
        ProcessExit::Code(code) => (Some(code), None),
        ProcessExit::Signal(signal) => (None, Some(signal)),
        ProcessExit::Unknown => (None, None),
    };
    // A shell that ended in the same moment with 0 did not pass a check that Lane cut short.
    let exit_code = exit_code.filter(|_| over == Over::ByItself);
    CheckRun {
        command: request.command.clone(),
        exit_code,
        signal,
        timed_out: over == Over::Limit,
        duration_s: duration.as_secs_f64(),
        log_path: request.log_path.clone(),
        tail,
    }
}

fn load_tail(path: &Path, log_start: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = log_start.max(length.saturating_sub(TAIL_MAX_BYTES as u64));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_MAX_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(tail_text(&bytes, start > log_start))
}

/// Returns the end of an output as text of at most [`TAIL_MAX_BYTES`]; a character that was cut in
/// two by the `cut` in front of it is left out.
fn tail_text(bytes: &[u8], cut: bool) -> String {
    let continued = |byte: &&u8| (**byte & 0xC0) == 0x80;
    let broken = if cut { bytes.iter().take(3).take_while(continued).count() } else { 0 };
    let text = String::from_utf8_lossy(bytes.get(broken..).unwrap_or_default()).into_owned();
    // Bytes that are no text grow when they are replaced.
    let mut start = text.len().saturating_sub(TAIL_MAX_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_short_and_valid() {
        assert_eq!(tail_text(b"plain\n", false), "plain\n");
        let euro = "€".as_bytes();
        assert_eq!(tail_text(&[&euro[1..], b"x"].concat(), true), "x");
        assert_eq!(tail_text(&[&euro[1..], b"x"].concat(), false), "\u{fffd}\u{fffd}x");
        let junk = tail_text(&[0xff; TAIL_MAX_BYTES], true);
        assert!(junk.len() <= TAIL_MAX_BYTES && junk.ends_with('\u{fffd}'));
    }
}
