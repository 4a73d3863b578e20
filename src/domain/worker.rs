//! Words about workers: provider, kind, effort, sandbox, checkout, and what a worker is seen doing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::{Millis, Timestamp};

/// How a worker is started and understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderName {
    /// The Codex CLI with an OpenAI account.
    Openai,
    /// The Claude Code CLI.
    Claude,
    /// The scripted worker inside this binary, for `lane demo`.
    Demo,
}

impl ProviderName {
    /// The word for it in flags, configuration and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Claude => "claude",
            Self::Demo => "demo",
        }
    }
}

/// What a lane is asked for, which decides the marker that its report must open with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Work: the report opens `STATUS: DONE` or `STATUS: BLOCKED`.
    Task,
    /// A judgement: the report opens `VERDICT: LGTM` or `VERDICT: REVISE`.
    Review,
}

/// How hard the model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// The least.
    Low,
    /// Between low and high.
    Medium,
    /// More.
    High,
    /// A lot.
    Xhigh,
    /// The most.
    Max,
}

impl Effort {
    /// The word that both CLIs use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// What the worker may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing but a private temporary folder.
    ReadOnly,
    /// Its checkout and a private temporary folder.
    WorkspaceWrite,
}

/// Where the worker works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CheckoutMode {
    /// A private clone that borrows the repository's objects.
    Clone,
    /// A linked worktree of the repository.
    Linked,
    /// The caller's own directory.
    None,
}

/// What enforced the sandbox while the worker ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// Codex's own sandbox (bubblewrap and seccomp on Linux, Seatbelt on macOS).
    Codex,
    /// Landlock: writes to files are confined.
    Landlock,
    /// Landlock, and signals to processes outside are refused too.
    LandlockScoped,
    /// Seatbelt (macOS).
    Seatbelt,
    /// Nothing: the person's configuration says so.
    None,
}

/// The marker that a report opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Marker {
    /// `STATUS: DONE`: the worker says that the task is finished.
    #[serde(rename = "STATUS: DONE")]
    Done,
    /// `STATUS: BLOCKED`: the worker says that it could not finish.
    #[serde(rename = "STATUS: BLOCKED")]
    Blocked,
    /// `VERDICT: LGTM`: the reviewer has no objection.
    #[serde(rename = "VERDICT: LGTM")]
    Lgtm,
    /// `VERDICT: REVISE`: the reviewer wants changes.
    #[serde(rename = "VERDICT: REVISE")]
    Revise,
}

impl Marker {
    /// The canonical text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "STATUS: DONE",
            Self::Blocked => "STATUS: BLOCKED",
            Self::Lgtm => "VERDICT: LGTM",
            Self::Revise => "VERDICT: REVISE",
        }
    }

    /// Whether the worker claims success with it.
    pub const fn is_success(self) -> bool {
        match self {
            Self::Done | Self::Lgtm => true,
            Self::Blocked | Self::Revise => false,
        }
    }
}

/// Tokens that this lane alone used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Input tokens without the cached ones.
    pub input: u64,
    /// Input tokens read from the cache.
    pub cached_input: u64,
    /// Input tokens written to the cache.
    pub cache_write_input: u64,
    /// Output tokens.
    pub output: u64,
    /// Output tokens spent on reasoning (a part of `output`).
    pub reasoning: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// It is gone, and nobody was left to learn how.
    Unknown,
}

/// What a worker is seen doing, in the order of its stream. Both CLIs are read into this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkerEvent {
    /// The session exists; the model only where the stream names it.
    SessionStarted {
        /// The CLI's own id for the session.
        session_id: String,
        /// The model that the stream names.
        model: Option<String>,
    },
    /// A command of the worker began.
    CommandStarted {
        /// The CLI's id of the call.
        call_id: String,
        /// The command line, for people.
        command: String,
    },
    /// A command of the worker ended.
    CommandEnded {
        /// The CLI's id of the call.
        call_id: String,
        /// The command line, for people; empty where the stream does not repeat it.
        command: String,
        /// Its exit code; `None` where the stream does not say.
        exit_code: Option<i32>,
    },
    /// Files were edited through the CLI's own edit tool.
    FilesEdited {
        /// The paths as the CLI names them.
        paths: Vec<String>,
    },
    /// The worker says something.
    Said {
        /// Its words.
        text: String,
    },
    /// The CLI waits before it tries again.
    Waiting {
        /// Why, in the CLI's words.
        reason: String,
        /// Which try it is, from 1.
        attempt: u64,
        /// How long until the next try; `None` where unknown.
        delay: Option<Millis>,
        /// Whether the reason is a refused login, which no retry heals.
        authentication: bool,
    },
    /// A tool call was denied.
    PermissionDenied {
        /// The tool's name.
        tool: String,
    },
    /// A reading of an account's limit.
    RateLimit {
        /// Share used of the window that matters, 0 to 100; `None` where unknown.
        used_percent: Option<f64>,
        /// When that window starts anew.
        resets_at: Option<Timestamp>,
        /// Whether the account was refused because of it.
        rejected: bool,
    },
    /// A notice that is no failure.
    Notice {
        /// The CLI's words.
        text: String,
    },
    /// The turn ended.
    TurnEnded {
        /// Whether the stream calls it a success.
        clean: bool,
        /// The failure's text, where there is one.
        error: Option<String>,
    },
}
