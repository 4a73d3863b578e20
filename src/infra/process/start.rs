//! Starting a keeper with its worker, and finding them again.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::identity::{self, Tracked};
use super::records::{self, ArgvRecord, ExitRecord, Word, WorkerRecord};
use super::running::{Running, poll_any};
use super::sweep::{self, Scope};
use super::{linux, spawn};
use crate::app::ports::{Clock, Found, PortError, PortErrorKind, PortResult, RunningWorker, WorkerStart};
use crate::domain::ids::LaneId;

/// How long a keeper may take to start its worker.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a lock that somebody merely looks at may stay held.
const LOCK_LIMIT: Duration = Duration::from_secs(2);

/// The longest answer that is taken from a keeper.
const ANSWER_MAX_BYTES: usize = 4096;

/// Starts the keeper, which starts the worker, and returns once the worker runs.
///
/// An error means that no worker runs: it could not be started, or (`Held`) one runs already.
pub fn start_worker(
    executable: &Path,
    start: &WorkerStart,
    clock: Arc<dyn Clock>,
) -> PortResult<Box<dyn RunningWorker>> {
    let run_dir = &start.run_dir;
    let doing = |error: &io::Error| PortError::io(format!("starting a worker in {}", run_dir.display()), error);
    linux::set_subreaper(true).map_err(|e| doing(&e))?;
    let lock = take_keeper_lock(run_dir)?;
    prepare(start).map_err(|e| doing(&e))?;
    let (pid, answers) = launch(executable, start, lock).map_err(|e| doing(&e))?;
    let keeper = Tracked::find(
        identity::identity_of(pid, &clock.boot_id()).ok_or_else(|| PortError::other("the keeper vanished"))?,
        &clock.boot_id(),
    );
    let answer = await_answer(answers)?;
    if answer == "ready" {
        let record = load_worker(run_dir)?.ok_or_else(|| PortError::other("the keeper left no worker.json"))?;
        return Ok(Box::new(running(run_dir, &start.lane_id, clock, record)));
    }
    end_failed(&start.lane_id, &keeper)?;
    let why = if answer.is_empty() { "its keeper ended before the worker ran".to_owned() } else { answer };
    Err(PortError::other(format!("starting a worker in {}: {why}", run_dir.display())))
}

/// Finds the worker that an earlier supervisor of this run folder started.
pub fn find_worker(run_dir: &Path, lane_id: &LaneId, clock: Arc<dyn Clock>) -> PortResult<Found> {
    linux::set_subreaper(true).map_err(|e| PortError::io("adopting orphans", &e))?;
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let held = is_keeper_lock_held(run_dir)?;
        let end = load_end(run_dir);
        match records::load::<WorkerRecord>(&run_dir.join(records::WORKER_FILE)) {
            Ok(Some(record)) => return Ok(judge(run_dir, lane_id, clock, record, end)),
            Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                return Err(PortError::io(records::WORKER_FILE, &error));
            }
            // A damaged record names nobody. What the keeper left is all that is known.
            Err(_) if !held => return Ok(found_nameless(run_dir, lane_id, clock)),
            Ok(None) if !held => return Ok(Found::NeverStarted),
            Ok(None) | Err(_) => {}
        }
        if Instant::now() > deadline {
            let message = format!("the keeper of {lane_id} neither starts its worker nor ends");
            return Err(PortError { kind: PortErrorKind::Held, message });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Judges what a record says against what is there now.
fn judge(
    run_dir: &Path,
    lane_id: &LaneId,
    clock: Arc<dyn Clock>,
    record: WorkerRecord,
    end: Option<ExitRecord>,
) -> Found {
    if end.as_ref().is_some_and(|end| end.error.is_some()) {
        return Found::NeverStarted;
    }
    if record.worker.boot_id != clock.boot_id() && end.is_none() {
        return Found::MachineRestarted;
    }
    Found::Worker(Box::new(running(run_dir, lane_id, clock, record)))
}

fn running(run_dir: &Path, lane_id: &LaneId, clock: Arc<dyn Clock>, record: WorkerRecord) -> Running {
    let boot_id = clock.boot_id();
    let keeper = Tracked::find(record.keeper, &boot_id);
    let worker = Tracked::find(record.worker, &boot_id);
    Running::new(lane_id.clone(), run_dir.to_owned(), clock, keeper, worker, record.started)
}

fn found_nameless(run_dir: &Path, lane_id: &LaneId, clock: Arc<dyn Clock>) -> Found {
    let (boot_id, now) = (clock.boot_id(), clock.monotonic());
    let nobody = || Tracked::unknown(&boot_id);
    Found::Worker(Box::new(Running::new(lane_id.clone(), run_dir.to_owned(), clock, nobody(), nobody(), now)))
}

fn load_worker(run_dir: &Path) -> PortResult<Option<WorkerRecord>> {
    records::load(&run_dir.join(records::WORKER_FILE)).map_err(|e| PortError::io(records::WORKER_FILE, &e))
}

fn load_end(run_dir: &Path) -> Option<ExitRecord> {
    records::load(&run_dir.join(records::EXIT_FILE)).ok().flatten()
}

/// Takes the keeper's lock for the keeper that is about to be born.
fn take_keeper_lock(run_dir: &Path) -> PortResult<File> {
    let path = run_dir.join(records::KEEPER_LOCK_FILE);
    let told = |error: &io::Error| PortError::io(path.display(), error);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|e| told(&e))?;
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(error)) => return Err(told(&error)),
            Err(std::fs::TryLockError::WouldBlock) if Instant::now() > deadline => {
                let message = format!("{}: a keeper is alive", path.display());
                return Err(PortError { kind: PortErrorKind::Held, message });
            }
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Whether a keeper lives. Looking takes a shared lock for a moment.
fn is_keeper_lock_held(run_dir: &Path) -> PortResult<bool> {
    let path = run_dir.join(records::KEEPER_LOCK_FILE);
    match File::open(&path) {
        Ok(file) => match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(std::fs::TryLockError::WouldBlock) => Ok(true),
            Err(std::fs::TryLockError::Error(error)) => Err(PortError::io(path.display(), &error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(PortError::io(path.display(), &error)),
    }
}

/// Puts everything in its place that the keeper needs; what an earlier try left is removed.
fn prepare(start: &WorkerStart) -> io::Result<()> {
    for name in [records::WORKER_FILE, records::EXIT_FILE] {
        match std::fs::remove_file(start.run_dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    for name in [records::EVENTS_FILE, records::STDERR_FILE] {
        records::open_append(&start.run_dir.join(name))?;
    }
    let argv = ArgvRecord {
        program: Word::from(start.command.program.as_os_str()),
        arguments: start.command.arguments.iter().map(|argument| Word::from(argument.as_os_str())).collect(),
        directory: Word::from(start.directory.as_os_str()),
        confinement: start.confinement.as_ref().map(Into::into),
    };
    records::save(&start.run_dir, records::ARGV_FILE, &argv)
}

/// Starts the keeper and returns its number and the pipe on which it answers.
fn launch(executable: &Path, start: &WorkerStart, lock: File) -> io::Result<(i32, File)> {
    let (reader, writer) = io::pipe()?;
    let log = records::open_append(&start.run_dir.join(records::SUPERVISOR_LOG_FILE))?;
    let mut command = spawn::command(executable, &start.environment, Path::new("/"));
    command.arg("__keep").arg(&start.run_dir);
    command.stdin(Stdio::from(lock)).stdout(Stdio::from(writer)).stderr(log);
    spawn::before_exec(&mut command, || {
        linux::new_session();
        linux::reset_signals();
        linux::inherit_only(&[])
    });
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok((pid, File::from(std::os::fd::OwnedFd::from(reader))))
}

/// Reads the keeper's one line; empty when it ended without one or the time is up.
fn await_answer(mut answers: File) -> PortResult<String> {
    let deadline = Instant::now() + START_LIMIT;
    let mut received = Vec::new();
    loop {
        if let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            received.truncate(end);
            return Ok(String::from_utf8_lossy(&received).into_owned());
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || received.len() > ANSWER_MAX_BYTES {
            return Ok(String::new());
        }
        if !poll_any(&[Some(answers.as_fd())], left)? {
            continue;
        }
        let mut chunk = [0; 512];
        match answers.read(&mut chunk) {
            Ok(0) => return Ok(String::new()),
            Ok(count) => received.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PortError::io("reading the keeper's answer", &error)),
        }
    }
}

/// Makes sure that nothing is left of a start that failed: the keeper, and a worker that it may have started.
fn end_failed(lane_id: &LaneId, keeper: &Tracked) -> PortResult<()> {
    keeper.wait(1000);
    let scope = Scope { lane_id: lane_id.clone(), roots: vec![keeper.identity().clone()], spared: None, adopts: true };
    sweep::end_all(&scope, None).map(|_| ())
}
