//! The arguments of every verb. Help text is written here, once.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::domain::duration::parse_duration;
use crate::domain::time::Millis;
use crate::domain::worker::{CheckoutMode, Effort, Kind, ProviderName, SandboxMode};

/// Hands work to background Codex and Claude Code workers, checks it, and answers in one line of JSON.
#[derive(Debug, Parser)]
#[command(name = "lane", version, disable_help_subcommand = true, args_override_self = false)]
pub struct Arguments {
    /// Print JSON even in a terminal.
    #[arg(long, global = true, conflicts_with = "no_json")]
    pub json: bool,
    /// Print readable text even outside a terminal.
    #[arg(long, global = true)]
    pub no_json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Start a lane: a worker in the background, in its own checkout. Returns at once.
    #[command(alias = "start")]
    Run(Box<RunArguments>),
    /// Show the recent lanes, or the result of the lanes named.
    Status(StatusArguments),
    /// Show the result of one lane.
    Result(ResultArguments),
    /// Wait until lanes have ended, and show their results.
    Wait(WaitArguments),
    /// Ask lanes to stop, in whatever state they are.
    Cancel(CancelArguments),
    /// Follow what workers do, one readable line an event.
    Watch(WatchArguments),
    /// Print what a lane wrote: its stream, errors, supervisor's log or report.
    Logs(LogsArguments),
    /// Print the diff from a lane's base to its work.
    Diff(DiffArguments),
    /// Remove checkouts of lanes that have ended, after saving what they hold.
    Clean(CleanArguments),
    /// Bring a cleaned checkout back.
    Restore(RestoreArguments),
    /// Look at everything that Lane needs, and say how to mend it.
    Doctor(DoctorArguments),
    /// Print the JSON Schema of every kind of line.
    Schema,
    /// Print a completion script.
    Completions(CompletionsArguments),
    /// Show the main job with a scripted worker, in a throw-away repository.
    Demo(DemoArguments),
}

fn duration(text: &str) -> Result<Millis, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// `low` to `max`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the variants repeat the words of the flag")]
pub enum EffortFlag {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl From<EffortFlag> for Effort {
    fn from(flag: EffortFlag) -> Self {
        match flag {
            EffortFlag::Low => Self::Low,
            EffortFlag::Medium => Self::Medium,
            EffortFlag::High => Self::High,
            EffortFlag::Xhigh => Self::Xhigh,
            EffortFlag::Max => Self::Max,
        }
    }
}

/// `task` or `review`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the variants repeat the words of the flag")]
pub enum KindFlag {
    Task,
    Review,
}

impl From<KindFlag> for Kind {
    fn from(flag: KindFlag) -> Self {
        match flag {
            KindFlag::Task => Self::Task,
            KindFlag::Review => Self::Review,
        }
    }
}

/// `read-only` or `workspace-write`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the variants repeat the words of the flag")]
pub enum SandboxFlag {
    ReadOnly,
    WorkspaceWrite,
}

impl From<SandboxFlag> for SandboxMode {
    fn from(flag: SandboxFlag) -> Self {
        match flag {
            SandboxFlag::ReadOnly => Self::ReadOnly,
            SandboxFlag::WorkspaceWrite => Self::WorkspaceWrite,
        }
    }
}

/// `clone`, `linked` or `none`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the variants repeat the words of the flag")]
pub enum CheckoutFlag {
    Clone,
    Linked,
    None,
}

impl From<CheckoutFlag> for CheckoutMode {
    fn from(flag: CheckoutFlag) -> Self {
        match flag {
            CheckoutFlag::Clone => Self::Clone,
            CheckoutFlag::Linked => Self::Linked,
            CheckoutFlag::None => Self::None,
        }
    }
}

/// `openai` or `claude`.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[expect(missing_docs, reason = "the variants repeat the words of the flag")]
pub enum ProviderFlag {
    Openai,
    Claude,
}

impl From<ProviderFlag> for ProviderName {
    fn from(flag: ProviderFlag) -> Self {
        match flag {
            ProviderFlag::Openai => Self::Openai,
            ProviderFlag::Claude => Self::Claude,
        }
    }
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// File with the brief; `-` reads standard input. This or --task must be given.
    #[arg(long, value_name = "FILE", required_unless_present = "task", conflicts_with = "task")]
    pub brief: Option<PathBuf>,
    /// A short brief, inline, instead of --brief.
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// Directory that the work is about [default: the current one].
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Profile, must be given: implement, investigate, opus, review.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Model, instead of the profile's.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Effort, instead of the profile's.
    #[arg(long, value_enum)]
    pub effort: Option<EffortFlag>,
    /// Kind, instead of the profile's.
    #[arg(long, value_enum)]
    pub kind: Option<KindFlag>,
    /// What the worker may write, instead of what the profile says.
    #[arg(long, value_enum)]
    pub sandbox: Option<SandboxFlag>,
    /// Where the worker works, instead of what the profile says.
    #[arg(long, value_enum)]
    pub checkout: Option<CheckoutFlag>,
    /// A checkout of its own, whatever the profile says.
    #[arg(long, alias = "worktree")]
    pub own_checkout: bool,
    /// Revision to start from [default: HEAD].
    #[arg(long, value_name = "REV")]
    pub base: Option<String>,
    /// Limit on the worker's time, such as 45m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max_time: Option<Millis>,
    /// Limit on the time in which nothing moves, such as 15m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub idle_time: Option<Millis>,
    /// Provider, instead of the profile's.
    #[arg(long, value_enum)]
    pub provider: Option<ProviderFlag>,
    /// One more directory that the worker may write (repeatable).
    #[arg(long, value_name = "DIR")]
    pub add_dir: Vec<PathBuf>,
    /// Let the worker's commands use the network.
    #[arg(long)]
    pub network: bool,
    /// Codex home, instead of the usual one.
    #[arg(long, value_name = "DIR")]
    pub codex_home: Option<PathBuf>,
    /// Wait so long for a free slot.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait_slot: Option<Millis>,
    /// Wait for a free slot in the background.
    #[arg(long)]
    pub queue: bool,
    /// Your own words for the lane.
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Let this variable through to the worker (repeatable).
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// Command that must exit 0 in the worker's checkout afterwards (repeatable).
    #[arg(long, value_name = "CMD")]
    pub holdout: Vec<String>,
    /// Path that must not change (repeatable).
    #[arg(long, value_name = "PATH")]
    pub protect: Vec<PathBuf>,
    /// Say what would be started, and start nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Go one step up the ladder from this lane (not there yet).
    #[arg(long, value_name = "ID")]
    pub retry_of: Option<String>,
    /// Wait for the result; at most so long, if a duration is given.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, value_parser = duration)]
    pub wait: Option<Option<Millis>>,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// Lanes, by id or by the beginning or end of one; without any, the recent ones.
    pub ids: Vec<String>,
    /// Every lane.
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// At most so many lanes.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// Only lanes called so recently (2h), or since a time (RFC 3339).
    #[arg(long, value_name = "DURATION|TIME")]
    pub since: Option<String>,
    /// Only lanes in this state (queued, working, ended ...) or with this outcome (ok, timeout ...).
    #[arg(long, value_name = "WORD")]
    pub state: Option<String>,
    /// Only lanes of the repository of this directory.
    #[arg(long, value_name = "DIR")]
    pub repo: Option<PathBuf>,
}

/// Arguments of `result`.
#[derive(Debug, Args)]
pub struct ResultArguments {
    /// The lane, by id or by the beginning or end of one.
    pub id: String,
    /// Exit 6 unless the lane is accepted.
    #[arg(long)]
    pub accepted: bool,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
pub struct WaitArguments {
    /// The lanes, by id or by the beginning or end of one.
    #[arg(required = true)]
    pub ids: Vec<String>,
    /// One of them is enough.
    #[arg(long, conflicts_with = "all")]
    pub any: bool,
    /// All of them (the default).
    #[arg(long)]
    pub all: bool,
    /// Wait at most so long.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub max: Option<Millis>,
    /// Exit 6 unless every lane is accepted.
    #[arg(long)]
    pub accepted: bool,
}

/// Arguments of `cancel`.
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// The lanes, by id or by the beginning or end of one.
    #[arg(required = true)]
    pub ids: Vec<String>,
}

/// Arguments of `watch`.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The lane; without one, all that run.
    pub id: Option<String>,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").multiple(false))]
pub struct LogsArguments {
    /// The lane, by id or by the beginning or end of one.
    pub id: String,
    /// The worker's error output.
    #[arg(long, group = "which")]
    pub stderr: bool,
    /// The worker's stream (the default).
    #[arg(long, group = "which")]
    pub events: bool,
    /// The supervisor's log.
    #[arg(long, group = "which")]
    pub supervisor: bool,
    /// The worker's report.
    #[arg(long, group = "which")]
    pub report: bool,
    /// Go on until the lane has ended.
    #[arg(long)]
    pub follow: bool,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArguments {
    /// The lane, by id or by the beginning or end of one.
    pub id: String,
    /// Only files and counts.
    #[arg(long)]
    pub stat: bool,
}

/// Arguments of `clean`.
#[derive(Debug, Args)]
pub struct CleanArguments {
    /// The lanes, by id or by the beginning or end of one; without any, all that have ended.
    pub ids: Vec<String>,
    /// Only lanes that ended so long ago.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "ids")]
    pub older_than: Option<Millis>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArguments {
    /// The lane, by id or by the beginning or end of one.
    pub id: String,
    /// Put it here instead of at its old place.
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// Build the table of lanes anew from the events first.
    #[arg(long)]
    pub rebuild: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Which worker `demo` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DemoWorker {
    /// The scripted worker inside this binary.
    Scripted,
    /// The real Codex CLI against a built-in server.
    Codex,
    /// The real Claude Code CLI against a built-in server.
    Claude,
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Which worker.
    #[arg(long, value_enum, default_value = "scripted")]
    pub worker: DemoWorker,
}
