//! The plan of a lane: everything that was decided when it was called, and never changes after.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::{CommitId, LaneId};
use super::time::{Millis, Timestamp};
use super::worker::{CheckoutMode, Effort, Enforcement, Kind, ProviderName, SandboxMode};

/// Format of `plan.json`; a newer one is read by no older Lane.
pub const PLAN_FORMAT: u32 = 1;

/// The plan of a lane. Stored as `plan.json` in the run folder and in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_FORMAT`] of the Lane that wrote it.
    pub format: u32,
    /// Which lane.
    pub lane_id: LaneId,
    /// When `lane run` was called.
    pub created_at: Timestamp,
    /// The caller's own words for it.
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
    /// What the worker may write.
    pub sandbox: SandboxMode,
    /// What enforces it.
    pub enforcement: Enforcement,
    /// Whether the worker's commands may use the network.
    pub network: bool,
    /// Where the worker works.
    pub checkout: CheckoutMode,
    /// The caller's directory, links resolved.
    pub cwd: PathBuf,
    /// The repository, where the caller's directory lies in one.
    pub repository: Option<RepositoryPlan>,
    /// Where the worker's checkout goes; equals `cwd` without one of its own.
    pub checkout_path: PathBuf,
    /// The run folder.
    pub run_dir: PathBuf,
    /// Limit on the worker's time.
    pub max_time: Millis,
    /// Limit on the time in which nothing moves.
    pub idle_time: Millis,
    /// Limit on each holdout command.
    pub holdout_time: Millis,
    /// From the polite signal to KILL.
    pub grace: Millis,
    /// The lead's check commands.
    pub holdout: Vec<String>,
    /// Paths from the root of the repository that must not change.
    pub protect: Vec<String>,
    /// More folders that the worker may write, links resolved.
    pub add_dirs: Vec<PathBuf>,
    /// `Owned paths:` of the brief; `None` when it names none.
    pub owned_paths: Option<Vec<String>>,
    /// The worker CLI's executable.
    pub program: PathBuf,
    /// The Codex home (`openai` only).
    pub codex_home: Option<PathBuf>,
    /// Address that the person's configuration sends the CLI to, where it does.
    pub base_url: Option<String>,
    /// Names of variables that the caller let through with `--env`.
    pub env_names: Vec<String>,
    /// Names of the caller's variables that the lane may not see.
    #[serde(default)]
    pub removed_variables: Vec<String>,
    /// Ignored files to bring along, from the person's configuration.
    pub checkout_include: Vec<String>,
    /// Command that runs once in the fresh checkout, from the person's configuration.
    pub setup: Option<String>,
    /// Limit on `setup`.
    pub setup_time: Millis,
    /// Who called, from its own variables.
    pub caller: Option<Caller>,
    /// The id that a Claude session is started with.
    pub session_id: Option<String>,
    /// Sentences for `warnings` that are known before the start.
    pub warnings: Vec<String>,
    /// Whether it waits its turn when there is no slot.
    pub queue: bool,
}

/// Where the work comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryPlan {
    /// Root of the caller's working tree.
    pub root: PathBuf,
    /// The git folder that all its checkouts share.
    pub common_dir: PathBuf,
    /// The caller's own git folder.
    pub git_dir: PathBuf,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// The commit that the lane starts from.
    pub base_commit: CommitId,
    /// The revision as the caller wrote it.
    pub base_revision: String,
}

/// Who called Lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// `claude`, `codex` or `agent`.
    pub family: String,
    /// The lead's session, where its variables name it.
    pub session_id: Option<String>,
}

impl Plan {
    /// Whether the worker is asked to write.
    pub const fn writes(&self) -> bool {
        match self.sandbox {
            SandboxMode::WorkspaceWrite => true,
            SandboxMode::ReadOnly => false,
        }
    }

    /// Whether the worker has a checkout of its own.
    pub const fn has_own_checkout(&self) -> bool {
        match self.checkout {
            CheckoutMode::Clone | CheckoutMode::Linked => true,
            CheckoutMode::None => false,
        }
    }

    /// The lane's branch, when it has a checkout of its own.
    pub fn branch(&self) -> Option<String> {
        self.has_own_checkout().then(|| self.lane_id.branch())
    }

    /// Folders in which no second lane may write while this one lives.
    ///
    /// A writer without a checkout of its own takes the whole repository.
    pub fn write_paths(&self) -> Vec<PathBuf> {
        let mut paths = self.add_dirs.clone();
        if self.writes() && !self.has_own_checkout() {
            let root = self.repository.as_ref().map_or(&self.cwd, |repository| &repository.root);
            paths.push(root.clone());
        }
        paths
    }
}

/// Returns a plan for tests.
#[cfg(test)]
pub fn example(lane_id: LaneId) -> Plan {
    Plan {
        format: PLAN_FORMAT,
        created_at: Timestamp::from_unix_ms(0),
        label: None,
        profile: "implement".into(),
        provider: ProviderName::Openai,
        model: "m".into(),
        effort: Effort::High,
        kind: Kind::Task,
        sandbox: SandboxMode::WorkspaceWrite,
        enforcement: Enforcement::Codex,
        network: false,
        checkout: CheckoutMode::Clone,
        cwd: "/r".into(),
        repository: None,
        checkout_path: format!("/s/checkouts/{lane_id}").into(),
        run_dir: format!("/s/runs/{lane_id}").into(),
        max_time: Millis(1000),
        idle_time: Millis(1000),
        holdout_time: Millis(1000),
        grace: Millis(1000),
        holdout: Vec::new(),
        protect: Vec::new(),
        add_dirs: Vec::new(),
        owned_paths: None,
        program: "/bin/codex".into(),
        codex_home: None,
        base_url: None,
        env_names: Vec::new(),
        removed_variables: Vec::new(),
        checkout_include: Vec::new(),
        setup: None,
        setup_time: Millis(1000),
        caller: None,
        session_id: None,
        warnings: Vec::new(),
        queue: false,
        lane_id,
    }
}
