//! Refusals: answers that are given before anything ran.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The closed list of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RefusalStatus {
    /// The call itself is wrong.
    UsageError,
    /// No lane has that id.
    UnknownLane,
    /// Several lanes have an id like that.
    AmbiguousLane,
    /// No profile has that name.
    UnknownProfile,
    /// A profile is not well-formed.
    BadProfile,
    /// The profile waits for configuration.
    ProfileDisabled,
    /// The configuration is not well-formed.
    BadConfig,
    /// The server does not serve the model.
    ModelNotServed,
    /// A write under `auto` needs `Owned paths:`.
    OwnedPathsMissing,
    /// The task is too delicate for `auto`.
    ExplicitProfileRequired,
    /// The ladder ends here.
    EscalateToLead,
    /// A write lane needs a repository with a commit.
    NotARepository,
    /// A branch stands where the lane's branches go.
    BranchConflict,
    /// A lane may not start lanes.
    NestedLane,
    /// The worker's CLI is not there.
    WorkerCliMissing,
    /// A newer Lane wrote the state.
    StateTooNew,
    /// All slots are taken.
    Busy,
    /// Another lane writes there.
    BusyPath,
    /// The provider does not answer.
    ProviderUnavailable,
    /// No room on the disk, or the state folder cannot be written.
    DiskFull,
    /// The sandbox that the profile asks for cannot be had.
    SandboxUnavailable,
    /// The caller's own sandbox would end the supervisor.
    SandboxedCaller,
    /// The account is too near its limit.
    CappedPreflight,
    /// A budget is used up.
    BudgetSpent,
}

impl RefusalStatus {
    /// Every refusal, for tables and tests.
    pub const ALL: [Self; 24] = [
        Self::UsageError,
        Self::UnknownLane,
        Self::AmbiguousLane,
        Self::UnknownProfile,
        Self::BadProfile,
        Self::ProfileDisabled,
        Self::BadConfig,
        Self::ModelNotServed,
        Self::OwnedPathsMissing,
        Self::ExplicitProfileRequired,
        Self::EscalateToLead,
        Self::NotARepository,
        Self::BranchConflict,
        Self::NestedLane,
        Self::WorkerCliMissing,
        Self::StateTooNew,
        Self::Busy,
        Self::BusyPath,
        Self::ProviderUnavailable,
        Self::DiskFull,
        Self::SandboxUnavailable,
        Self::SandboxedCaller,
        Self::CappedPreflight,
        Self::BudgetSpent,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UsageError => "usage_error",
            Self::UnknownLane => "unknown_lane",
            Self::AmbiguousLane => "ambiguous_lane",
            Self::UnknownProfile => "unknown_profile",
            Self::BadProfile => "bad_profile",
            Self::ProfileDisabled => "profile_disabled",
            Self::BadConfig => "bad_config",
            Self::ModelNotServed => "model_not_served",
            Self::OwnedPathsMissing => "owned_paths_missing",
            Self::ExplicitProfileRequired => "explicit_profile_required",
            Self::EscalateToLead => "escalate_to_lead",
            Self::NotARepository => "not_a_repository",
            Self::BranchConflict => "branch_conflict",
            Self::NestedLane => "nested_lane",
            Self::WorkerCliMissing => "worker_cli_missing",
            Self::StateTooNew => "state_too_new",
            Self::Busy => "busy",
            Self::BusyPath => "busy_path",
            Self::ProviderUnavailable => "provider_unavailable",
            Self::DiskFull => "disk_full",
            Self::SandboxUnavailable => "sandbox_unavailable",
            Self::SandboxedCaller => "sandboxed_caller",
            Self::CappedPreflight => "capped_preflight",
            Self::BudgetSpent => "budget_spent",
        }
    }

    /// The exit code of a command that answers with this refusal.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::UsageError
            | Self::UnknownLane
            | Self::AmbiguousLane
            | Self::UnknownProfile
            | Self::BadProfile
            | Self::ProfileDisabled
            | Self::BadConfig
            | Self::ModelNotServed
            | Self::OwnedPathsMissing
            | Self::ExplicitProfileRequired
            | Self::EscalateToLead
            | Self::NotARepository
            | Self::BranchConflict
            | Self::NestedLane
            | Self::WorkerCliMissing
            | Self::StateTooNew => 2,
            Self::Busy
            | Self::BusyPath
            | Self::ProviderUnavailable
            | Self::DiskFull
            | Self::SandboxUnavailable
            | Self::SandboxedCaller => 4,
            Self::CappedPreflight | Self::BudgetSpent => 5,
        }
    }
}

/// An answer given before anything ran: what is wrong, and the way on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status}: {error}", status = self.status.as_str())]
pub struct Refusal {
    /// Which refusal it is.
    pub status: RefusalStatus,
    /// What is wrong, naming the thing and the place.
    pub error: String,
    /// The way on.
    pub hint: String,
    /// When the same call may succeed, where that is known.
    pub retry_at: Option<super::time::Timestamp>,
}

impl Refusal {
    /// Builds a refusal without a time to retry.
    pub fn new(status: RefusalStatus, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: hint.into(), retry_at: None }
    }

    /// Builds a [`RefusalStatus::UsageError`].
    pub fn usage(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(RefusalStatus::UsageError, error, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_on_the_wire_are_the_serialised_ones() {
        for status in RefusalStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
    }
}
