//! The result of a lane: what is written when it ends, once.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::facts::{Changes, Holdout};
use super::ids::CommitId;
use super::outcome::Outcome;
use super::plan::Plan;
use super::time::{Millis, Timestamp};
use super::worker::{Enforcement, Marker, Tokens};

/// Everything known at the end of a lane that its plan does not say already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneEnd {
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, in one sentence; the raw text of the worker's CLI where it has one.
    pub error: Option<String>,
    /// When the same call may succeed, where known.
    pub retry_at: Option<Timestamp>,
    /// Lane's own summary.
    pub accepted: Option<bool>,
    /// What the report opens with.
    pub marker: Option<Marker>,
    /// The model that the rollout or the init event names.
    pub model_verified: Option<String>,
    /// The effort that the rollout or transcript names.
    pub effort_recorded: Option<String>,
    /// What enforced the sandbox.
    pub enforcement: Enforcement,
    /// The real HEAD at the end.
    pub head_commit: Option<CommitId>,
    /// What changed; `None` when the lane had no repository or never had a checkout.
    pub changes: Option<Changes>,
    /// The verdict of the holdout; `None` when none was asked for or nothing was left to check.
    pub holdout: Option<Holdout>,
    /// The CLI's own session id.
    pub session_id: Option<String>,
    /// The worker's exit code.
    pub exit_code: Option<i32>,
    /// The signal that ended the worker.
    pub signal: Option<i32>,
    /// Lengths of the parts of the life.
    pub times: Times,
    /// Tokens of this lane alone.
    pub tokens: Option<Tokens>,
    /// Cost in US dollars, where the CLI says.
    pub cost_usd: Option<f64>,
    /// The report, where there is one.
    pub report_path: Option<PathBuf>,
    /// Words in the report.
    pub report_words: u64,
    /// The start of the report.
    pub summary: Option<String>,
    /// Sentences about what a reader should know.
    pub warnings: Vec<String>,
    /// Processes that were still there when the worker had ended, and were ended.
    pub leftover_processes: Vec<String>,
    /// Tools that were denied to the worker.
    pub permission_denials: Vec<String>,
    /// When the lane ended.
    pub finished_at: Timestamp,
}

/// Lengths of the parts of a lane's life; `None` for a part that it never reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Waiting for a slot.
    pub queued: Option<Millis>,
    /// Making the checkout.
    pub prepare: Option<Millis>,
    /// The worker.
    pub worker: Option<Millis>,
    /// After the worker.
    pub prove: Option<Millis>,
}

impl LaneEnd {
    /// Builds the end of a lane whose worker never ran.
    pub fn without_worker(plan: &Plan, outcome: Outcome, error: Option<String>, finished_at: Timestamp) -> Self {
        Self {
            outcome,
            error,
            retry_at: None,
            accepted: Some(false),
            marker: None,
            model_verified: None,
            effort_recorded: None,
            enforcement: plan.enforcement,
            head_commit: None,
            changes: None,
            holdout: None,
            session_id: None,
            exit_code: None,
            signal: None,
            times: Times::default(),
            tokens: None,
            cost_usd: None,
            report_path: None,
            report_words: 0,
            summary: None,
            warnings: plan.warnings.clone(),
            leftover_processes: Vec::new(),
            permission_denials: Vec::new(),
            finished_at,
        }
    }
}
