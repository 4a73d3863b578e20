//! The traits that adapters implement, and the plain types that cross them.
//!
//! `app` decides through these and never touches the machine itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::domain::admission::Verdict;
use crate::domain::facts::{CheckRun, ProtectedEntry, TakenOver};
use crate::domain::ids::{LaneId, ProcessIdentity};
use crate::domain::plan::{Plan, RepositoryPlan};
use crate::domain::result::LaneEnd;
use crate::domain::state::{LaneEvent, State};
use crate::domain::time::{Millis, Monotonic, Timestamp};
use crate::domain::worker::{Enforcement, ProcessExit, ProviderName};
use crate::provider::{PoliteSignal, WorkerCommand};

/// An adapter's failure: what it did, to what, and why it did not work.
///
/// The text is a lower-case fragment that reads well after "cannot ...: ".
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PortError {
    /// Which kind of failure it is, as far as callers must tell them apart.
    pub kind: PortErrorKind,
    /// What happened, with the path, command or id it was about, and the cause.
    pub message: String,
}

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortErrorKind {
    /// The disk is full, or the folder cannot be written.
    NoRoom,
    /// A newer Lane wrote it.
    TooNew,
    /// It is damaged.
    Damaged,
    /// Something else holds it now.
    Held,
    /// A state or event that does not fit.
    Illegal,
    /// Anything else.
    Other,
}

impl PortError {
    /// Builds a failure of kind [`PortErrorKind::Other`].
    pub fn other(message: impl Into<String>) -> Self {
        Self { kind: PortErrorKind::Other, message: message.into() }
    }

    /// Builds a failure from an I/O error; `doing` says what was done to what.
    pub fn io(doing: impl std::fmt::Display, error: &std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::ReadOnlyFilesystem
            | std::io::ErrorKind::PermissionDenied => PortErrorKind::NoRoom,
            _ => PortErrorKind::Other,
        };
        Self { kind, message: format!("{doing}: {error}") }
    }
}

/// What a port answers.
pub type PortResult<T> = Result<T, PortError>;

/// The clocks of this machine.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn now(&self) -> Timestamp;
    /// The clock that only runs forward and counts sleep.
    fn monotonic(&self) -> Monotonic;
    /// The kernel's boot id.
    fn boot_id(&self) -> String;
}

/// Random numbers for ids.
pub trait Random: Send + Sync {
    /// Sixteen random bits.
    fn bits16(&self) -> u16;
    /// A random UUID (version 4).
    fn uuid(&self) -> String;
}

/// One lane as the ledger knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneRow {
    /// What was decided at the call.
    pub plan: Plan,
    /// Where it is.
    pub state: State,
    /// Everything known at its end, once it has ended.
    pub end: Option<LaneEnd>,
    /// When its last event happened.
    pub last_event_at: Timestamp,
}

/// What `lane status` lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneFilter {
    /// At most so many, newest first; `None` for all.
    pub limit: Option<u32>,
    /// Only lanes called at or after this time.
    pub since: Option<Timestamp>,
    /// Only lanes whose state's or outcome's word is this.
    pub state: Option<String>,
    /// Only lanes of this repository's root.
    pub repository: Option<PathBuf>,
}

/// How many lanes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Lanes that hold a slot.
    pub running: u32,
    /// Lanes that wait.
    pub queued: u32,
}

/// What looking over the whole ledger found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerReport {
    /// How many events it holds.
    pub events: u64,
    /// The first event whose hash does not fit, and why; `None` when the chain holds.
    pub broken_at: Option<(u64, String)>,
    /// Lanes whose projection differs from what their events say.
    pub projection_differs: Vec<LaneId>,
}

/// The append-only record of all that happened, with the projection in the same transaction.
pub trait Ledger: Send + Sync {
    /// Judges `plan` in one transaction and books it.
    ///
    /// `Admit` writes [`LaneEvent::Admitted`]. Any other verdict writes [`LaneEvent::Queued`] when
    /// `queue` is set, else nothing.
    fn admit(&self, plan: &Plan, queue: bool, max: u32, now: Timestamp) -> PortResult<Verdict>;

    /// Judges the queued lane `lane_id` again and promotes it if it is the first that may go.
    fn promote(&self, lane_id: &LaneId, max: u32, now: Timestamp) -> PortResult<Verdict>;

    /// Appends an event of a known lane and returns the state it leads to.
    ///
    /// An event that does not fit the state is [`PortErrorKind::Illegal`] and changes nothing.
    fn append(&self, lane_id: &LaneId, event: &LaneEvent, now: Timestamp) -> PortResult<State>;

    /// Returns one lane.
    fn lane(&self, lane_id: &LaneId) -> PortResult<Option<LaneRow>>;

    /// Returns the lanes whose id is, begins or ends with `text`: the exact one alone, else at most ten.
    fn find(&self, text: &str) -> PortResult<Vec<LaneId>>;

    /// Returns the lanes that hold a slot, oldest first.
    fn live(&self) -> PortResult<Vec<LaneRow>>;

    /// Returns the lanes that wait, first come first.
    fn queued(&self) -> PortResult<Vec<LaneRow>>;

    /// Returns lanes, newest first.
    fn recent(&self, filter: &LaneFilter) -> PortResult<Vec<LaneRow>>;

    /// Returns how many lanes run and wait. Its cost does not grow with the number of past lanes.
    fn counts(&self) -> PortResult<Counts>;

    /// Returns the number of the newest event; zero for none.
    fn newest_event(&self) -> PortResult<u64>;

    /// Looks the whole ledger over: the chain and the projection.
    fn check(&self) -> PortResult<LedgerReport>;

    /// Builds the projection anew from the events.
    fn rebuild(&self) -> PortResult<()>;

    /// Moves what its log holds into the database, unless somebody else is just using it.
    ///
    /// It makes the next opening cheaper and changes nothing else, so it never fails.
    fn settle(&self);
}

/// Where a path of the caller lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// In no repository.
    Outside,
    /// In a bare repository or inside a git folder: there is no working tree.
    NoWorkTree,
    /// In a repository without a commit.
    NoCommit,
    /// The revision does not name a commit.
    UnknownRevision,
    /// In a repository.
    Inside {
        /// Where the work comes from.
        repository: RepositoryPlan,
        /// Whether a branch named `lane` stands where the lanes' branches go.
        lane_branch_exists: bool,
    },
}

/// What making a checkout had to say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckoutMade {
    /// Sentences for `warnings`.
    pub warnings: Vec<String>,
}

/// What cleaning one lane's checkout did, or would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// The checkout.
    pub checkout_path: PathBuf,
    /// Whether there was one to remove.
    pub existed: bool,
    /// Paths (changed, untracked, ignored) that the archive holds.
    pub saved_paths: Vec<String>,
    /// The archive, when it was needed.
    pub archive_path: Option<PathBuf>,
    /// Refs that keep commits.
    pub kept_refs: Vec<String>,
    /// Rebuildable folders that were left out, with their size in bytes.
    pub left_out: Vec<(String, u64)>,
    /// Size of what was removed, in bytes.
    pub freed_bytes: u64,
}

/// What restoring a lane's checkout did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Where the files are.
    pub path: PathBuf,
    /// How many files came out of the archive.
    pub files: u64,
}

/// Git, behind one wrapper with a cleaned environment.
pub trait Git: Send + Sync {
    /// Finds the repository of `cwd` and the commit that `revision` names, with one git process.
    fn locate(&self, cwd: &Path, revision: &str) -> PortResult<Located>;

    /// Returns those of `paths` (from the root, files or folders) that are not in the base's tree.
    fn missing_in_base(&self, repository: &RepositoryPlan, paths: &[String]) -> PortResult<Vec<String>>;

    /// Returns how many paths of the caller's working tree are not as committed (untracked count).
    fn dirty_paths(&self, repository: &RepositoryPlan) -> PortResult<u64>;

    /// Makes the checkout of `plan`. A half-made one of an earlier try is replaced; on an error
    /// nothing is left: no branch, no folder, no worktree entry, no pin.
    fn make_checkout(&self, plan: &Plan) -> PortResult<CheckoutMade>;

    /// Takes over what the worker left: replaces the hostile git folder, saves what was left
    /// uncommitted, imports the commits, sets the branch and measures the change.
    ///
    /// Running it again after a crash in the middle gives the same answer.
    fn take_over(&self, plan: &Plan) -> PortResult<TakenOver>;

    /// Returns the diff from the base to the lane's head, as git prints it.
    fn diff(&self, plan: &Plan, stat: bool) -> PortResult<Vec<u8>>;

    /// Saves what the checkout holds and removes it. With `dry_run` it only says what it would do.
    fn clean(&self, plan: &Plan, rebuildable: &[String], dry_run: bool) -> PortResult<Cleaned>;

    /// Brings a cleaned checkout back, at its old place or at `into`.
    fn restore(&self, plan: &Plan, into: Option<&Path>) -> PortResult<Restored>;

    /// Version of the git executable.
    fn version(&self) -> PortResult<String>;
}

/// Files on their way to the disk.
pub trait Syncing {
    /// Waits until they are there.
    fn finish(self: Box<Self>) -> PortResult<()>;
}

/// Everything that makes up a run folder.
pub trait RunFolders: Send + Sync {
    /// Makes the folder (0700) with the worker's brief and the plan, and begins to bring it to the
    /// disk in the background.
    ///
    /// `brief` is what the worker is handed, `original` what the lead wrote, `environment` the
    /// variables that the lane may see. Nobody may be told of the lane before [`Syncing::finish`].
    fn create(
        &self,
        plan: &Plan,
        brief: &str,
        original: &str,
        environment: &Environment,
    ) -> PortResult<Box<dyn Syncing>>;

    /// Removes a folder that was never admitted.
    fn discard(&self, plan: &Plan);

    /// Takes the supervisor's lock. `Held` when a supervisor lives.
    fn claim(&self, run_dir: &Path) -> PortResult<Claim>;

    /// Whether a supervisor (or a caller that is about to start one) holds the lock.
    fn is_claimed(&self, run_dir: &Path) -> PortResult<bool>;

    /// Gives the owner back the rights on the folder and its files, of which a worker's sandbox may
    /// let it take some away.
    fn reopen(&self, run_dir: &Path);

    /// Whether what stands in the place of the lock can never be locked: a folder or a link.
    fn lock_is_broken(&self, run_dir: &Path) -> bool;

    /// Returns the plan.
    fn load_plan(&self, run_dir: &Path) -> PortResult<Plan>;

    /// Returns the variables that the lane may see.
    fn load_environment(&self, run_dir: &Path) -> PortResult<Environment>;

    /// Removes the file with the lane's variables, once nothing needs it.
    fn forget_environment(&self, run_dir: &Path);

    /// Leaves the request to stop where the supervisor sees it at once; a second one hurries it.
    fn request_cancel(&self, run_dir: &Path) -> PortResult<()>;

    /// Whether there is a request to stop.
    fn cancel_requested(&self, run_dir: &Path) -> bool;

    /// Writes a file of the run folder (0600) by rename after fsync.
    fn write(&self, run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()>;

    /// Writes a file of the run folder (0600) by rename, without bringing it to the disk: for what
    /// is worth nothing after a power loss.
    fn note(&self, run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()>;

    /// Returns a file of the run folder, or `None` if it is not there; at most `limit_bytes` from its end.
    fn read_tail(&self, run_dir: &Path, name: &str, limit_bytes: u64) -> PortResult<Option<Vec<u8>>>;

    /// Calls `take` with each whole line of a file of the run folder, from `offset` on, without its
    /// line feed, and returns the offset after the last whole line. `last` also takes a cut last line.
    fn lines(
        &self,
        run_dir: &Path,
        name: &str,
        offset: u64,
        last: bool,
        take: &mut dyn FnMut(&[u8]),
    ) -> PortResult<u64>;

    /// Writes the mark that wakes waiters, after the ledger knows the end.
    fn mark_ended(&self, run_dir: &Path) -> PortResult<()>;

    /// Sleeps until something changes in one of the run folders, a supervisor of them dies, or the
    /// time is up.
    fn wait_for_change(&self, run_dirs: &[PathBuf], timeout: Millis) -> PortResult<()>;

    /// Looks at the protected paths of a checkout; a folder counts with all it holds.
    fn look_at_protected(&self, checkout: &Path, paths: &[String]) -> PortResult<Vec<ProtectedEntry>>;

    /// Finds Codex's rollout file of a session by the id in its name.
    fn find_rollout(&self, codex_home: &Path, session_id: &str) -> Option<PathBuf>;

    /// Bytes that are free where `path` lies (its nearest existing ancestor).
    fn free_bytes(&self, path: &Path) -> PortResult<u64>;
}

/// The lock on a run folder, held as long as this lives (and by every process it is handed to).
#[derive(Debug)]
pub struct Claim {
    /// The locked file.
    pub file: std::fs::File,
}

/// Variables, in order. Values may be secret: it is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(pub Vec<(String, OsString)>);

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// How a keeper and its worker are started.
#[derive(Clone, Debug)]
pub struct WorkerStart {
    /// Which lane.
    pub lane_id: LaneId,
    /// The run folder: `brief.md` becomes stdin, `events.jsonl` and `stderr.log` the outputs.
    pub run_dir: PathBuf,
    /// Where the worker works.
    pub directory: PathBuf,
    /// What to start. Its `set` and `logins` are already part of `environment`.
    pub command: WorkerCommand,
    /// The worker's whole environment, tagged with the lane's id.
    pub environment: Environment,
    /// The confinement that the keeper puts on before it starts the worker.
    pub confinement: Option<Confinement>,
}

/// What a confined process may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Folders that may be written, with all they hold.
    pub write_dirs: Vec<PathBuf>,
    /// Single files that may be written.
    pub write_files: Vec<PathBuf>,
}

/// What the supervisor sees of a running worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Output, error output or rollout grew.
    Grew,
    /// Somebody asked for the end (seen once for each request).
    CancelRequested,
    /// The worker has ended.
    Exited {
        /// How.
        exit: ProcessExit,
        /// How long it ran.
        ran_for: Millis,
    },
}

/// A worker that runs, or has just ended.
pub trait RunningWorker {
    /// The keeper.
    fn keeper(&self) -> ProcessIdentity;

    /// When the worker started, on the clock that only runs forward.
    fn started(&self) -> Monotonic;

    /// Sleeps until something is seen or the time is up. No processor is used while nothing happens.
    fn wait(&mut self, timeout: Millis) -> PortResult<Vec<Sight>>;

    /// Watches one more file for growth (Codex's rollout).
    fn watch_file(&mut self, path: &Path);

    /// Sends the polite signal to the worker alone.
    fn signal_politely(&mut self, signal: PoliteSignal) -> PortResult<()>;

    /// Kills every process of the lane, the worker's whole tree.
    fn kill_tree(&mut self) -> PortResult<()>;

    /// Ends whatever is left of the lane after its worker has ended, and names it. At the end no
    /// process of the lane is alive, the keeper included.
    fn sweep(&mut self) -> PortResult<Vec<String>>;

    /// Processor time that the lane's processes have used so far.
    fn processor_time(&self) -> Millis;
}

/// What was found of a worker that an earlier supervisor had started.
pub enum Found {
    /// It was never started.
    NeverStarted,
    /// It runs, or has ended and left how.
    Worker(Box<dyn RunningWorker>),
    /// The machine was restarted since, and it went with it.
    MachineRestarted,
}

/// One check command to run.
#[derive(Clone, Debug)]
pub struct CheckRequest {
    /// Which lane it is for.
    pub lane_id: LaneId,
    /// The command, for `sh -c`.
    pub command: String,
    /// Where it runs.
    pub directory: PathBuf,
    /// Its whole environment, tagged with the lane's id.
    pub environment: Environment,
    /// Limit on its time.
    pub limit: Millis,
    /// Where its output goes (appended).
    pub log_path: PathBuf,
    /// Confinement to run it in.
    pub confinement: Option<Confinement>,
}

/// Processes. The only place that starts or signals any.
pub trait Processes: Send + Sync {
    /// This process.
    fn own_identity(&self) -> PortResult<ProcessIdentity>;

    /// Starts a detached supervisor for the run folder, hands it the claim, and waits until it has it.
    fn start_supervisor(&self, run_dir: &Path, claim: Claim, environment: &Environment) -> PortResult<()>;

    /// Starts the keeper, which starts the worker.
    fn start_worker(&self, start: &WorkerStart) -> PortResult<Box<dyn RunningWorker>>;

    /// Finds the worker that an earlier supervisor of this run folder started.
    fn find_worker(&self, run_dir: &Path, lane_id: &LaneId) -> PortResult<Found>;

    /// Runs one check to its end, its limit, or a cancel request in `run_dir`; sweeps what it leaves.
    fn run_check(&self, request: &CheckRequest, run_dir: &Path) -> PortResult<CheckRun>;

    /// Ends every process that carries the lane's tag, and names them.
    fn sweep_lane(&self, lane_id: &LaneId) -> PortResult<Vec<String>>;

    /// Runs a short command of a worker CLI (version, features, login status) and returns its exit
    /// code, stdout and stderr; bounded in time and size.
    fn ask(&self, program: &Path, arguments: &[&str], environment: &Environment, limit: Millis) -> PortResult<Asked>;

    /// What can confine a worker of that provider here; an error says what is missing.
    fn enforcement(&self, provider: ProviderName) -> PortResult<Enforcement>;
}

/// What a short command answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its exit code; `None` when a signal or the limit ended it.
    pub exit_code: Option<i32>,
    /// Its output, bounded.
    pub stdout: String,
    /// Its error output, bounded.
    pub stderr: String,
}

/// Small questions about this machine's files and namespaces.
pub trait Machine: Send + Sync {
    /// Returns the executable: `explicit` if it is one, else `name` on the search path.
    fn find_program(
        &self,
        explicit: Option<&Path>,
        name: &str,
        search_path: Option<&std::ffi::OsStr>,
    ) -> Option<PathBuf>;

    /// Returns the path with all links resolved, of a folder that exists.
    fn resolve_dir(&self, path: &Path) -> PortResult<PathBuf>;

    /// Returns the path with the links of its existing part resolved; the rest may not exist yet.
    fn resolve_lenient(&self, path: &Path) -> PathBuf;

    /// Makes a private folder (0700) with its parents, if it is not there.
    fn ensure_private_dir(&self, path: &Path) -> PortResult<()>;

    /// Returns the size and the time of the last change of a file, as one text, to know it again.
    fn fingerprint(&self, path: &Path) -> PortResult<String>;

    /// Returns why a detached process would not outlive the caller's sandbox, or `None` if it would.
    fn caller_sandbox(&self) -> Option<String>;

    /// Returns the content of a small text file, or `None` if it is not there.
    fn read_text(&self, path: &Path) -> PortResult<Option<String>>;

    /// Whether there is anything at the path; links are not followed.
    fn exists(&self, path: &Path) -> bool;

    /// Makes a symbolic link at `at` to `target`, if there is nothing at `at`.
    fn link(&self, target: &Path, at: &Path) -> PortResult<()>;

    /// Removes an empty folder; anything else stays.
    fn remove_empty_dir(&self, path: &Path);

    /// Writes a small file into a folder and removes it again.
    ///
    /// # Errors
    ///
    /// `NoRoom` when the folder cannot be written or has no room.
    fn try_writing(&self, folder: &Path) -> PortResult<()>;
}
