//! Every kind of line that a command prints.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::SCHEMA;
use super::lane_result::{LaneLive, LaneResult, Sandbox};
use crate::domain::ids::{CommitId, LaneId};
use crate::domain::outcome::{Class, Outcome};
use crate::domain::plan::Plan;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::time::Timestamp;
use crate::domain::worker::{CheckoutMode, Effort, Kind, ProviderName};

/// One line on stdout.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Answer {
    /// `run`: the lane was started or queued, or would be.
    Run(Box<RunAnswer>),
    /// A refusal.
    Refused(Refused),
    /// Lane itself failed.
    Failed(Failed),
    /// A lane that has ended.
    Result(Box<LaneResult>),
    /// A lane that has not ended.
    Live(Box<LaneLive>),
    /// Several lanes.
    Lanes(Lanes),
    /// `status` without an id.
    List(LaneList),
    /// `cancel`.
    Cancel(CancelAnswer),
    /// `clean`.
    Clean(CleanAnswer),
    /// `restore`.
    Restore(RestoreAnswer),
    /// `doctor`.
    Doctor(DoctorAnswer),
    /// `schema`.
    Schema(SchemaAnswer),
}

/// What became of a call of `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Its supervisor runs.
    Started,
    /// It waits for a slot.
    Queued,
    /// `--dry-run`: it would be started.
    Routed,
}

/// The answer of `run`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunAnswer {
    /// The contract's number.
    pub schema: u32,
    /// What became of it.
    pub status: RunStatus,
    /// Which lane.
    pub lane_id: LaneId,
    /// The run folder.
    pub run_dir: PathBuf,
    /// The caller's own words for it; absent when none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of the profile.
    pub profile: String,
    /// Provider of the worker.
    pub provider: ProviderName,
    /// Model that is asked for.
    pub model: String,
    /// Effort that is asked for.
    pub effort: Effort,
    /// Kind of the lane.
    pub kind: Kind,
    /// What the worker may write, and what enforces it.
    pub sandbox: Sandbox,
    /// Whether the worker's commands may use the network.
    pub network: bool,
    /// Where the worker works.
    pub checkout: CheckoutMode,
    /// The caller's directory.
    pub cwd: PathBuf,
    /// The commit that the lane starts from; absent outside a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<CommitId>,
    /// The branch that will hold the work; absent without a checkout of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The path that the checkout will have; absent without one of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout_path: Option<PathBuf>,
    /// Limit on the worker's time, in seconds.
    pub max_time_s: f64,
    /// Limit on the time in which nothing moves, in seconds.
    pub idle_time_s: f64,
    /// What a reader should know.
    pub warnings: Vec<String>,
    /// The command to wait with.
    pub next: String,
}

impl RunAnswer {
    /// Builds the answer for `plan`.
    pub fn new(plan: &Plan, status: RunStatus) -> Self {
        Self {
            schema: SCHEMA,
            status,
            lane_id: plan.lane_id.clone(),
            run_dir: plan.run_dir.clone(),
            label: plan.label.clone(),
            profile: plan.profile.clone(),
            provider: plan.provider,
            model: plan.model.clone(),
            effort: plan.effort,
            kind: plan.kind,
            sandbox: Sandbox { mode: plan.sandbox, enforced_by: plan.enforcement },
            network: plan.network,
            checkout: plan.checkout,
            cwd: plan.cwd.clone(),
            base_commit: plan.repository.as_ref().map(|repository| repository.base_commit.clone()),
            branch: plan.branch(),
            checkout_path: plan.has_own_checkout().then(|| plan.checkout_path.clone()),
            max_time_s: plan.max_time.as_secs_f64(),
            idle_time_s: plan.idle_time.as_secs_f64(),
            warnings: plan.warnings.clone(),
            next: match status {
                RunStatus::Started | RunStatus::Queued => format!("lane wait {}", plan.lane_id),
                RunStatus::Routed => "the same command without --dry-run".to_owned(),
            },
        }
    }
}

/// A refusal: an answer given before anything ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refused {
    /// The contract's number.
    pub schema: u32,
    /// Which refusal it is.
    pub status: RefusalStatus,
    /// What is wrong.
    pub error: String,
    /// The way on.
    pub hint: String,
    /// When the same call may succeed; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The id that it was about; absent for a call about no lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            schema: SCHEMA,
            status: refusal.status,
            error: refusal.error,
            hint: refusal.hint,
            retry_at: refusal.retry_at,
            asked: None,
        }
    }
}

/// A failure of Lane itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failed {
    /// The contract's number.
    pub schema: u32,
    /// Always `error`.
    pub status: Outcome,
    /// Always `infra`.
    pub class: Class,
    /// Whether the same call may succeed.
    pub retryable: bool,
    /// What was done to what, and why it did not work.
    pub error: String,
    /// The way on.
    pub hint: String,
}

impl Failed {
    /// Builds the line for a failure with that text.
    pub fn new(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            schema: SCHEMA,
            status: Outcome::Error,
            class: Class::Infra,
            retryable: true,
            error: error.into(),
            hint: hint.into(),
        }
    }
}

/// Several lanes that were asked for by id.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Lanes {
    /// The contract's number.
    pub schema: u32,
    /// One answer an id, in the order asked.
    pub lanes: Vec<Answer>,
}

/// `status` without an id: the recent lanes, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneList {
    /// The contract's number.
    pub schema: u32,
    /// Always `ok`.
    pub status: Outcome,
    /// Lanes that hold a slot.
    pub running: u32,
    /// Lanes that wait.
    pub queued: u32,
    /// Lanes that may hold a slot at once.
    pub max: u32,
    /// The lanes.
    pub lanes: Vec<LaneSummary>,
}

/// One lane in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneSummary {
    /// Which lane.
    pub lane_id: LaneId,
    /// `queued`, `running`, or how it ended.
    pub status: String,
    /// Where it is in its life.
    pub state: String,
    /// Lane's own summary; absent before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Option<bool>>,
    /// What the report opens with; absent before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marker: Option<Option<crate::domain::worker::Marker>>,
    /// Kind of the lane.
    pub kind: Kind,
    /// The caller's own words for it; absent when none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of the profile.
    pub profile: String,
    /// Root of its repository; absent outside one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<PathBuf>,
    /// The branch with its work; absent without a checkout of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// When `lane run` was called.
    pub started_at: Timestamp,
    /// When it ended; absent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Seconds from the call to its end, or to now.
    pub elapsed_s: f64,
}

/// The status word of `cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelStatus {
    /// The lane was asked to stop.
    CancelRequested,
    /// It waited, and is ended now.
    Cancelled,
    /// It had ended before.
    AlreadyEnded,
}

/// The answer of `cancel` for one lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CancelAnswer {
    /// The contract's number.
    pub schema: u32,
    /// Which lane.
    pub lane_id: LaneId,
    /// What became of the request.
    pub status: CancelStatus,
    /// How it had ended; absent unless it had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The command to see its end with.
    pub next: String,
}

/// The answer of `clean`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CleanAnswer {
    /// The contract's number.
    pub schema: u32,
    /// `ok`, or `error` when something could not be saved (its checkout stays).
    pub status: Outcome,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// What became of each lane's checkout.
    pub cleaned: Vec<CleanedLane>,
}

/// What became of one lane's checkout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CleanedLane {
    /// Which lane.
    pub lane_id: LaneId,
    /// Its checkout.
    pub checkout_path: PathBuf,
    /// Whether it was (or would be) removed.
    pub removed: bool,
    /// Why it stays; absent when it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Changed, untracked and ignored paths that the archive holds.
    pub saved_paths: Vec<String>,
    /// The archive; absent when nothing was left to save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive_path: Option<PathBuf>,
    /// Refs that keep its commits.
    pub kept_refs: Vec<String>,
    /// Rebuildable folders that are not saved.
    pub left_out: Vec<LeftOut>,
    /// Bytes that are free again.
    pub freed_bytes: u64,
    /// The command that brings it back.
    pub restore: String,
}

/// A rebuildable folder that is not saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// Path from the root of the checkout.
    pub path: String,
    /// Size of its content.
    pub size_bytes: u64,
}

/// The answer of `restore`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RestoreAnswer {
    /// The contract's number.
    pub schema: u32,
    /// Always `ok`.
    pub status: Outcome,
    /// Which lane.
    pub lane_id: LaneId,
    /// Where the files are.
    pub path: PathBuf,
    /// How many files came out of the archive.
    pub files: u64,
}

/// The answer of `doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoctorAnswer {
    /// The contract's number.
    pub schema: u32,
    /// `ok`, or `error` when something that is needed is broken.
    pub status: Outcome,
    /// Version of Lane.
    pub version: String,
    /// Each thing that was looked at.
    pub checks: Vec<DoctorCheck>,
}

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it should be.
    Ok,
    /// Works, but somebody should look.
    Warn,
    /// Broken.
    Broken,
}

/// One thing that `doctor` looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoctorCheck {
    /// What it is.
    pub name: String,
    /// How it is.
    pub health: Health,
    /// What was found.
    pub found: String,
    /// How to mend it; absent when there is nothing to mend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

/// The answer of `schema`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SchemaAnswer {
    /// The contract's number.
    pub schema: u32,
    /// Always `ok`.
    pub status: Outcome,
    /// JSON Schema of every kind of line.
    pub json_schema: serde_json::Value,
}
