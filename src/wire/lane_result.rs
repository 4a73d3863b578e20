//! The result line of a lane, and the line of one that still runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::SCHEMA;
use crate::domain::facts::{Changes, Holdout};
use crate::domain::ids::{CommitId, LaneId};
use crate::domain::outcome::{Class, Outcome};
use crate::domain::plan::{Caller, Plan};
use crate::domain::result::LaneEnd;
use crate::domain::state::State;
use crate::domain::time::{Millis, Timestamp};
use crate::domain::worker::{Effort, Enforcement, Kind, Marker, ProviderName, SandboxMode, Tokens};

/// What the worker could write, and what enforced it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Sandbox {
    /// What the worker may write.
    pub mode: SandboxMode,
    /// What enforces it; `none` only by the person's configuration.
    pub enforced_by: Enforcement,
}

/// The result of a lane that has ended. Printed by `status`, `result` and `wait`.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneResult {
    /// The contract's number.
    pub schema: u32,
    /// Which lane.
    pub lane_id: LaneId,
    /// How it ended.
    pub status: Outcome,
    /// Whose fault that is; absent for `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Whether the same call may end better; absent for `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// When the same call may succeed (UTC); absent where that does not apply or is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// What went wrong, in the worker CLI's or Lane's words; absent for `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Lane's own summary: `false` if anything asked for is not so, `null` if nothing proves it.
    pub accepted: Option<bool>,
    /// What the report opens with.
    pub marker: Option<Marker>,
    /// Kind of the lane.
    pub kind: Kind,
    /// The caller's own words for it; absent when none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of the profile.
    pub profile: String,
    /// Provider of the worker.
    pub provider: ProviderName,
    /// Model that was asked for.
    pub model: String,
    /// Effort that was asked for.
    pub effort: Effort,
    /// The model that the rollout or the init event names.
    pub model_verified: Option<String>,
    /// The effort that the rollout names.
    pub effort_recorded: Option<String>,
    /// What the worker could write, and what enforced it.
    pub sandbox: Sandbox,
    /// Whether the worker's commands could use the network.
    pub network: bool,
    /// The caller's directory.
    pub cwd: PathBuf,
    /// The worker's own checkout; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout_path: Option<PathBuf>,
    /// The branch with all the work; absent without a checkout of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that the lane started from; absent outside a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<CommitId>,
    /// The real HEAD at the end.
    pub head_commit: Option<CommitId>,
    /// What changed, from git; absent outside a repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// The verdict of the holdout; absent when none was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holdout: Option<Holdout>,
    /// The worker CLI's own session id.
    pub session_id: Option<String>,
    /// The worker's exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended the worker.
    pub signal: Option<i32>,
    /// Seconds it waited for a slot.
    pub queued_s: f64,
    /// Seconds the checkout took.
    pub prepare_s: Option<f64>,
    /// Seconds the worker ran.
    pub duration_s: Option<f64>,
    /// Seconds from the worker's end to the lane's.
    pub prove_s: Option<f64>,
    /// Tokens of this lane alone.
    pub tokens: Option<Tokens>,
    /// Cost in US dollars.
    pub cost_usd: Option<f64>,
    /// The report's file.
    pub report_path: Option<PathBuf>,
    /// Words in the report.
    pub report_words: u64,
    /// The start of the report.
    pub summary: Option<String>,
    /// What a reader should know.
    pub warnings: Vec<String>,
    /// Processes that were left when the worker had ended, and were ended.
    pub leftover_processes: Vec<String>,
    /// Tools that were denied to the worker.
    pub permission_denials: Vec<String>,
    /// Who called, from its own variables.
    pub caller: Option<Caller>,
    /// Address that the person's configuration sent the CLI to; absent when it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The run folder.
    pub run_dir: PathBuf,
    /// When `lane run` was called.
    pub started_at: Timestamp,
    /// When the lane ended.
    pub finished_at: Timestamp,
    /// The lane that this one retries.
    pub retry_of: Option<LaneId>,
}

impl LaneResult {
    /// Builds the result line from what was decided at the call and what is known at the end.
    pub fn new(plan: &Plan, end: &LaneEnd) -> Self {
        let ended_badly = end.outcome != Outcome::Ok;
        Self {
            schema: SCHEMA,
            lane_id: plan.lane_id.clone(),
            status: end.outcome,
            class: end.outcome.class(),
            retryable: ended_badly.then(|| end.outcome.retryable()),
            retry_at: end.retry_at,
            error: end.error.clone(),
            accepted: end.accepted,
            marker: end.marker,
            kind: plan.kind,
            label: plan.label.clone(),
            profile: plan.profile.clone(),
            provider: plan.provider,
            model: plan.model.clone(),
            effort: plan.effort,
            model_verified: end.model_verified.clone(),
            effort_recorded: end.effort_recorded.clone(),
            sandbox: Sandbox { mode: plan.sandbox, enforced_by: end.enforcement },
            network: plan.network,
            cwd: plan.cwd.clone(),
            checkout_path: plan.has_own_checkout().then(|| plan.checkout_path.clone()),
            branch: plan.branch(),
            base_commit: plan.repository.as_ref().map(|repository| repository.base_commit.clone()),
            head_commit: end.head_commit.clone(),
            changes: end.changes.clone(),
            holdout: end.holdout.clone(),
            session_id: end.session_id.clone(),
            exit_code: end.exit_code,
            signal: end.signal,
            queued_s: end.times.queued.unwrap_or_default().as_secs_f64(),
            prepare_s: end.times.prepare.map(Millis::as_secs_f64),
            duration_s: end.times.worker.map(Millis::as_secs_f64),
            prove_s: end.times.prove.map(Millis::as_secs_f64),
            tokens: end.tokens,
            cost_usd: end.cost_usd,
            report_path: end.report_path.clone(),
            report_words: end.report_words,
            summary: end.summary.clone(),
            warnings: end.warnings.clone(),
            leftover_processes: end.leftover_processes.clone(),
            permission_denials: end.permission_denials.clone(),
            caller: plan.caller.clone(),
            base_url: plan.base_url.clone(),
            run_dir: plan.run_dir.clone(),
            started_at: plan.created_at,
            finished_at: end.finished_at,
            retry_of: None,
        }
    }
}

/// What `status` says of a lane that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LiveStatus {
    /// It waits for a slot.
    Queued,
    /// It is anywhere from admitted to proving.
    Running,
}

/// A lane that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LaneLive {
    /// The contract's number.
    pub schema: u32,
    /// Which lane.
    pub lane_id: LaneId,
    /// Whether it waits or runs.
    pub status: LiveStatus,
    /// Where it is in its life.
    pub state: String,
    /// Seconds since `lane run` was called.
    pub elapsed_s: f64,
    /// What the worker was last seen doing; `null` before it does anything.
    pub last_event: Option<String>,
    /// When the last event of its life happened.
    pub last_event_at: Timestamp,
    /// Whether somebody asked for its end.
    pub cancel_requested: bool,
    /// Kind of the lane.
    pub kind: Kind,
    /// The caller's own words for it; absent when none were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of the profile.
    pub profile: String,
    /// Provider of the worker.
    pub provider: ProviderName,
    /// The branch that will hold the work; absent without a checkout of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The run folder.
    pub run_dir: PathBuf,
    /// When `lane run` was called.
    pub started_at: Timestamp,
    /// The command to wait with.
    pub next: String,
}

impl LaneLive {
    /// Builds the line of a lane that is in `state` at `now`.
    pub fn new(
        plan: &Plan,
        state: &State,
        last_event: Option<String>,
        last_event_at: Timestamp,
        now: Timestamp,
    ) -> Self {
        Self {
            schema: SCHEMA,
            lane_id: plan.lane_id.clone(),
            status: match state {
                State::Queued { .. } => LiveStatus::Queued,
                State::Admitted { .. }
                | State::Preparing { .. }
                | State::Working { .. }
                | State::Proving { .. }
                | State::Ended { .. } => LiveStatus::Running,
            },
            state: state.word().to_owned(),
            elapsed_s: now.since(plan.created_at).as_secs_f64(),
            last_event,
            last_event_at,
            cancel_requested: state.is_cancelled(),
            kind: plan.kind,
            label: plan.label.clone(),
            profile: plan.profile.clone(),
            provider: plan.provider,
            branch: plan.branch(),
            run_dir: plan.run_dir.clone(),
            started_at: plan.created_at,
            next: format!("lane wait {}", plan.lane_id),
        }
    }
}
