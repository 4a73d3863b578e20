//! How a lane ended: a closed list, and what each member means to the caller.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The worker ended cleanly and its report opens with a marker.
    Ok,
    /// The report does not open with a marker of the lane's kind.
    ContractViolation,
    /// The worker ended without a report.
    NoReport,
    /// The worker or its turn failed.
    WorkerError,
    /// The time limit was reached.
    Timeout,
    /// The model's context window was full.
    ContextFull,
    /// The model refused the task.
    ModelRefused,
    /// A limit on the output was reached.
    OutputLimit,
    /// The login was refused.
    Auth,
    /// Nothing moved for the idle limit.
    Stalled,
    /// The checkout could not be made.
    CheckoutFailed,
    /// The set-up command of the checkout failed.
    SetupFailed,
    /// The lane's processes are gone and the end of the work is not known.
    Lost,
    /// Lane itself failed.
    Error,
    /// Cancelled on request.
    Cancelled,
    /// A protected path was missing in the fresh checkout.
    ProtectMissing,
    /// The check of the first prewalk item failed.
    PrewalkFailed,
    /// The provider's endpoint could not be reached or failed.
    Endpoint,
    /// The account's usage limit was reached.
    Capped,
}

/// Whose fault an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The worker's: the only class that uses up a rung of the ladder.
    Worker,
    /// The login's.
    Auth,
    /// The machine's, the network's or Lane's.
    Infra,
    /// The caller's.
    Caller,
    /// The account's limit.
    Quota,
}

impl Outcome {
    /// Every outcome, for tables and tests.
    pub const ALL: [Self; 19] = [
        Self::Ok,
        Self::ContractViolation,
        Self::NoReport,
        Self::WorkerError,
        Self::Timeout,
        Self::ContextFull,
        Self::ModelRefused,
        Self::OutputLimit,
        Self::Auth,
        Self::Stalled,
        Self::CheckoutFailed,
        Self::SetupFailed,
        Self::Lost,
        Self::Error,
        Self::Cancelled,
        Self::ProtectMissing,
        Self::PrewalkFailed,
        Self::Endpoint,
        Self::Capped,
    ];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ContractViolation => "contract_violation",
            Self::NoReport => "no_report",
            Self::WorkerError => "worker_error",
            Self::Timeout => "timeout",
            Self::ContextFull => "context_full",
            Self::ModelRefused => "model_refused",
            Self::OutputLimit => "output_limit",
            Self::Auth => "auth",
            Self::Stalled => "stalled",
            Self::CheckoutFailed => "checkout_failed",
            Self::SetupFailed => "setup_failed",
            Self::Lost => "lost",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::ProtectMissing => "protect_missing",
            Self::PrewalkFailed => "prewalk_failed",
            Self::Endpoint => "endpoint",
            Self::Capped => "capped",
        }
    }

    /// Whose fault it is; `None` for `ok`.
    pub const fn class(self) -> Option<Class> {
        match self {
            Self::Ok => None,
            Self::ContractViolation
            | Self::NoReport
            | Self::WorkerError
            | Self::Timeout
            | Self::ContextFull
            | Self::ModelRefused
            | Self::OutputLimit => Some(Class::Worker),
            Self::Auth => Some(Class::Auth),
            Self::Stalled | Self::CheckoutFailed | Self::SetupFailed | Self::Lost | Self::Error | Self::Endpoint => {
                Some(Class::Infra)
            }
            Self::Cancelled | Self::ProtectMissing | Self::PrewalkFailed => Some(Class::Caller),
            Self::Capped => Some(Class::Quota),
        }
    }

    /// Whether the same call may end better without anybody mending something first.
    pub const fn retryable(self) -> bool {
        match self {
            Self::ContractViolation
            | Self::NoReport
            | Self::WorkerError
            | Self::Timeout
            | Self::OutputLimit
            | Self::Stalled
            | Self::CheckoutFailed
            | Self::Lost
            | Self::Error
            | Self::Endpoint
            | Self::Capped => true,
            Self::Ok
            | Self::ContextFull
            | Self::ModelRefused
            | Self::Auth
            | Self::SetupFailed
            | Self::Cancelled
            | Self::ProtectMissing
            | Self::PrewalkFailed => false,
        }
    }

    /// The exit code of a command that answers with this end.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::ContractViolation
            | Self::NoReport
            | Self::WorkerError
            | Self::Timeout
            | Self::ContextFull
            | Self::ModelRefused
            | Self::OutputLimit
            | Self::Auth
            | Self::Stalled
            | Self::CheckoutFailed
            | Self::SetupFailed
            | Self::Lost
            | Self::Error
            | Self::Cancelled
            | Self::ProtectMissing
            | Self::PrewalkFailed => 1,
            Self::Endpoint => 4,
            Self::Capped => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_on_the_wire_are_the_serialised_ones() {
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
            assert_eq!(outcome.class().is_none(), outcome == Outcome::Ok);
        }
    }
}
