//! The keeper: the worker's parent, which only waits and reaps.
//!
//! Specification: `lane __keep <run_dir>`, started by [`super::start`].
//!
//! * stdin is `keeper.lock`, locked since before the keeper was born and until its end; stdout is a
//!   pipe on which it says `ready` or why not, once; stderr is `supervisor.log`.
//! * It adopts every orphan of its tree, so a daemon of the worker stays its descendant whatever
//!   session or environment that daemon gives itself.
//! * `worker.json` is written by the new process itself, before it becomes the worker: no moment
//!   exists in which a worker runs that no file names.
//! * When the worker ends, `exit.json` is written, into room that was taken on the disk before.
//!   Then it goes on reaping until it has no child left, and ends.
//! * It is never confined itself, and does nothing else.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::records::{self, ArgvRecord, ExitRecord, ExitSlot, WorkerRecord};
use super::{identity, linux, spawn};
use crate::app::ports::{Clock, Confinement};
use crate::domain::time::Monotonic;
use crate::infra::sandbox::{self, Prepared};

/// The exit code of a keeper that could not start its worker.
const FAILED: i32 = 1;

/// Runs the keeper of a run folder to its end and returns its exit code.
///
/// It must be called from a process with one thread. The worker's environment is this process's own.
pub fn keep(run_dir: &Path, clock: &dyn Clock) -> i32 {
    linux::new_session();
    linux::ignore_group_signals();
    let started = clock.monotonic();
    let begun = linux::set_subreaper(true)
        .map_err(|e| format!("cannot adopt orphans: {e}"))
        .and_then(|()| hold_lock(run_dir))
        .and_then(|lock| ExitSlot::reserve(run_dir).map(|slot| (lock, slot)).map_err(|e| format!("exit.json: {e}")));
    let (_lock, slot) = match begun {
        Ok(held) => held,
        Err(error) => return refuse(&error),
    };
    match start_worker(run_dir, &clock.boot_id(), started) {
        Ok(worker) => {
            announce("ready");
            reap_all(worker, slot, started, clock);
            0
        }
        Err(error) => {
            note(run_dir, &error);
            slot.fill(&ExitRecord { error: Some(error.clone()), ..ExitRecord::default() }).ok();
            refuse(&error)
        }
    }
}

/// Makes sure that the lock is held. It usually is: it came with the keeper's stdin.
///
/// The duplicate that is returned is closed only at exec, so the new process holds the lock too
/// until it has left its record: a keeper that dies in between cannot be taken for one that never was.
fn hold_lock(run_dir: &Path) -> Result<OwnedFd, String> {
    let path = run_dir.join(records::KEEPER_LOCK_FILE);
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|e| told(&e))?;
    let inherited = nix::sys::stat::fstat(io::stdin().as_fd()).map_err(|e| told(&e))?;
    let named = file.metadata().map_err(|e| told(&e))?;
    if (inherited.st_dev, inherited.st_ino) == (named.dev(), named.ino()) {
        return io::stdin().as_fd().try_clone_to_owned().map_err(|e| told(&e));
    }
    file.try_lock().map_err(|e| told(&e))?;
    Ok(file.into())
}

fn start_worker(run_dir: &Path, boot_id: &str, started: Monotonic) -> Result<i32, String> {
    let argv: ArgvRecord = records::load(&run_dir.join(records::ARGV_FILE))
        .map_err(|e| format!("{}: {e}", records::ARGV_FILE))?
        .ok_or_else(|| format!("{} is missing", records::ARGV_FILE))?;
    let confinement = argv.confinement.clone().map(Confinement::from);
    let prepared = confinement.as_ref().map(sandbox::prepare).transpose().map_err(|e| e.message)?;
    let mut command = worker_command(run_dir, &argv)?;
    let own = i32::try_from(std::process::id()).map_err(|e| e.to_string())?;
    let keeper = identity::identity_of(own, boot_id).ok_or("cannot read /proc/self/stat")?;
    let folder = run_dir.to_owned();
    let mut prepared = prepared;
    spawn::before_exec(&mut command, move || become_worker(&folder, &keeper, started, prepared.take()));
    let program = OsString::from(argv.program);
    let child = command.spawn().map_err(|e| format!("cannot start {}: {e}", program.display()))?;
    i32::try_from(child.id()).map_err(|e| e.to_string())
}

fn worker_command(run_dir: &Path, argv: &ArgvRecord) -> Result<Command, String> {
    let directory = PathBuf::from(OsString::from(argv.directory.clone()));
    let told = |path: &Path, error: &io::Error| format!("{}: {error}", path.display());
    let mut command = Command::new(OsString::from(argv.program.clone()));
    command.args(argv.arguments.iter().cloned().map(OsString::from));
    // A missing directory would otherwise look like a missing program.
    std::fs::metadata(&directory).map_err(|e| told(&directory, &e))?;
    let brief = run_dir.join(records::BRIEF_FILE);
    let append = |name: &str| {
        let path = run_dir.join(name);
        records::open_append(&path).map_err(|e| told(&path, &e))
    };
    command
        .current_dir(&directory)
        .stdin(File::open(&brief).map_err(|e| told(&brief, &e))?)
        .stdout(append(records::EVENTS_FILE)?)
        .stderr(append(records::STDERR_FILE)?);
    Ok(command)
}

/// Runs in the new process: its own session, its own record, then its confinement.
fn become_worker(
    run_dir: &Path,
    keeper: &crate::domain::ids::ProcessIdentity,
    started: Monotonic,
    confinement: Option<Prepared>,
) -> io::Result<()> {
    linux::new_session();
    linux::reset_signals();
    let own = nix::unistd::getpid().as_raw();
    let worker = identity::identity_of(own, &keeper.boot_id).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let record = WorkerRecord { worker, keeper: keeper.clone(), started };
    records::save(run_dir, records::WORKER_FILE, &record)?;
    confinement.map_or(Ok(()), Prepared::put_on)
}

/// Waits for everything that ends, and writes the worker's end down, until no child is left.
fn reap_all(worker: i32, slot: ExitSlot, started: Monotonic, clock: &dyn Clock) {
    let mut slot = Some(slot);
    while let Ok((pid, exit)) = linux::wait_any() {
        if pid != worker {
            continue;
        }
        let record = ExitRecord::new(exit, clock.monotonic().since(started));
        if let Some(Err(error)) = slot.take().map(|slot| slot.fill(&record)) {
            say(&mut io::stderr(), &format!("keeper: exit.json: {error}"));
        }
    }
}

/// Leaves the reason where the worker's own errors would stand, too.
fn note(run_dir: &Path, error: &str) {
    if let Ok(mut file) = records::open_append(&run_dir.join(records::STDERR_FILE)) {
        say(&mut file, &format!("lane: {error}"));
    }
}

fn refuse(error: &str) -> i32 {
    say(&mut io::stderr(), &format!("keeper: {error}"));
    announce(error);
    FAILED
}

/// Says one line on stdout and lets go of it, so that its reader sees the end.
fn announce(line: &str) {
    let one_line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    say(&mut io::stdout(), &one_line);
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        nix::unistd::dup2_stdout(null).ok();
    }
}

/// Writes one line; a reader that is gone does not matter.
fn say(to: &mut dyn Write, line: &str) {
    to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush()).ok();
}
