//! Pure knowledge of the worker CLIs: command line, event stream, classification.
//!
//! Nothing here starts a process or reads a file: bytes and facts are handed in. What the real
//! CLIs do is recorded in `docs/providers/` and in `tests/fixtures/`.

pub mod claude;
pub mod codex;
pub mod demo;
#[cfg(test)]
mod samples;
mod text;
mod verdict;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::state::StopReason;
use crate::domain::time::Timestamp;
use crate::domain::worker::{ProcessExit, ProviderName, Tokens, WorkerEvent};

/// Where things are for one worker, besides what its plan says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings<'a> {
    /// What was decided at the call.
    pub plan: &'a Plan,
    /// A folder that only this worker uses for temporary files.
    pub temp_dir: &'a Path,
    /// A folder for the caches of tools, only for this worker.
    pub cache_dir: &'a Path,
    /// A private `CLAUDE_CONFIG_DIR`.
    pub claude_config_dir: &'a Path,
    /// Where Codex writes its last message.
    pub last_message_path: &'a Path,
    /// The features that the installed Codex knows (`codex features list`), by name.
    pub known_features: &'a [String],
    /// The worker's own git folder, when it has a private clone.
    pub git_dir: Option<&'a Path>,
    /// Names of the login variables that are set where the worker starts.
    pub login_names: &'a [String],
}

/// The command that starts a worker. Its stdin is the brief as a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments. Never a secret.
    pub arguments: Vec<OsString>,
    /// Variables that are set on top of the cleaned environment. Never a secret.
    pub set: Vec<(String, OsString)>,
    /// Login variables that are let through from where Lane was called.
    pub logins: Vec<String>,
    /// The signal that asks this CLI to stop: `SIGINT` or `SIGTERM`.
    pub polite_signal: PoliteSignal,
}

/// The signal that asks a CLI to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoliteSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// What is known when a worker has ended.
#[derive(Clone, Debug)]
pub struct Evidence<'a> {
    /// Which plan it followed.
    pub plan: &'a Plan,
    /// How the process ended.
    pub exit: ProcessExit,
    /// Why Lane stopped it, if it did.
    pub stopped: Option<StopReason>,
    /// What its stream said, as [`Decoder::finish`] gives it.
    pub stream: &'a StreamSummary,
    /// What its rollout said (Codex only), as [`codex::rollout`] gives it.
    pub rollout: Option<&'a codex::rollout::RolloutSummary>,
    /// The file that Codex writes its last message to, if it is there.
    pub last_message: Option<&'a str>,
    /// The end of its error output.
    pub stderr_tail: &'a str,
}

/// What a whole stream said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamSummary {
    /// The CLI's own id of the session.
    pub session_id: Option<String>,
    /// The model that the stream names.
    pub model: Option<String>,
    /// Whether anything at all was on the stream.
    pub any_event: bool,
    /// Whether the stream ended with a clean terminal event.
    pub clean_end: bool,
    /// The failure's text, where there is one.
    pub failure: Option<String>,
    /// What kind of failure it is, as far as the stream says.
    pub failure_kind: Option<FailureKind>,
    /// When the account's window starts anew, where a limit was met.
    pub resets_at: Option<Timestamp>,
    /// The last thing the worker said, whole.
    pub final_text: Option<String>,
    /// Tokens, of the session so far.
    pub tokens: Option<Tokens>,
    /// Cost in US dollars, of the session so far.
    pub cost_usd: Option<f64>,
    /// Tools that were denied.
    pub permission_denials: Vec<String>,
    /// Lines that could not be read.
    pub unreadable_lines: u64,
    /// Notices that a reader of the result should know.
    pub notices: Vec<String>,
}

/// What kind of failure a CLI reported, in words of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The account's usage limit.
    UsageLimit,
    /// The login.
    Login,
    /// The provider's endpoint: network, overload, server error, transient rate limit.
    Endpoint,
    /// The model's context window.
    Context,
    /// The model refused.
    Refusal,
    /// A limit on the output.
    OutputLimit,
    /// No such model.
    Model,
    /// It was interrupted.
    Interrupted,
    /// The CLI's own sandbox could not start a single command.
    Sandbox,
    /// The CLI gave up before it asked a model.
    Start,
    /// Anything else.
    Other,
}

/// How a worker's end is to be read.
#[derive(Clone, Debug, PartialEq)]
pub struct Classification {
    /// How the lane ends, before its report is held against the contract.
    ///
    /// `ok` here means: the CLI ended cleanly and left a report that is not blank.
    pub outcome: Outcome,
    /// The raw text of what went wrong.
    pub error: Option<String>,
    /// When the same call may succeed.
    pub retry_at: Option<Timestamp>,
    /// The report, as the worker gave it.
    pub report: Option<String>,
    /// The model that the rollout or the init event names.
    pub model_verified: Option<String>,
    /// The effort that the rollout names.
    pub effort_recorded: Option<String>,
    /// The CLI's own id of the session.
    pub session_id: Option<String>,
    /// Tokens of this lane alone.
    pub tokens: Option<Tokens>,
    /// Cost in US dollars of this lane alone.
    pub cost_usd: Option<f64>,
    /// Tools that were denied.
    pub permission_denials: Vec<String>,
    /// Sentences for `warnings`.
    pub warnings: Vec<String>,
}

/// Reads a worker's stream line by line. It keeps a bounded amount, however long the stream is.
pub trait Decoder: Send {
    /// Takes one line, without its line feed, and returns what it shows.
    ///
    /// A line that cannot be read is counted, never an error.
    fn line(&mut self, line: &[u8]) -> Vec<WorkerEvent>;

    /// Takes one line of a stream of which only the summary is wanted. Lines that cannot change it
    /// may be passed over without reading them whole.
    fn skim(&mut self, line: &[u8]) {
        self.line(line);
    }

    /// Returns what the stream said so far.
    fn summary(&self) -> &StreamSummary;
}

/// What Lane must know about one worker CLI.
pub trait Provider: Send + Sync {
    /// Returns the command that starts a worker.
    fn command(&self, surroundings: &Surroundings<'_>) -> WorkerCommand;

    /// Returns a fresh decoder for one stream.
    fn decoder(&self) -> Box<dyn Decoder>;

    /// Judges how the worker ended.
    fn classify(&self, evidence: &Evidence<'_>) -> Classification;

    /// Sentences that a worker of this CLI needs to hear in its brief.
    fn notes(&self, plan: &Plan) -> Vec<&'static str>;
}

/// Returns what Lane knows about the provider of that name.
pub fn provider(name: ProviderName) -> &'static dyn Provider {
    match name {
        ProviderName::Openai => &codex::Codex,
        ProviderName::Claude => &claude::Claude,
        ProviderName::Demo => &demo::Demo,
    }
}
