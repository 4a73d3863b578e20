//! What a caller asks for with `lane run`.

use std::path::PathBuf;

use crate::domain::time::Millis;
use crate::domain::worker::{CheckoutMode, Effort, Kind, ProviderName, SandboxMode};

/// A call of `lane run`, as the front door read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunRequest {
    /// The brief's bytes.
    pub brief: Vec<u8>,
    /// Where it works; `None` for the current directory.
    pub cwd: Option<PathBuf>,
    /// Name of the profile.
    pub profile: Option<String>,
    /// Instead of the profile's provider.
    pub provider: Option<ProviderName>,
    /// Instead of the profile's model.
    pub model: Option<String>,
    /// Instead of the profile's effort.
    pub effort: Option<Effort>,
    /// Instead of the profile's kind.
    pub kind: Option<Kind>,
    /// Instead of the profile's sandbox.
    pub sandbox: Option<SandboxMode>,
    /// Instead of the profile's checkout.
    pub checkout: Option<CheckoutMode>,
    /// A checkout of its own, whatever the profile says.
    pub own_checkout: bool,
    /// Revision to start from; `None` for HEAD.
    pub base: Option<String>,
    /// Instead of the profile's limit on the worker's time.
    pub max_time: Option<Millis>,
    /// Instead of the profile's limit on the time in which nothing moves.
    pub idle_time: Option<Millis>,
    /// More folders that the worker may write.
    pub add_dirs: Vec<PathBuf>,
    /// Whether the worker's commands may use the network.
    pub network: bool,
    /// Instead of the usual Codex home.
    pub codex_home: Option<PathBuf>,
    /// Wait so long for a slot.
    pub wait_slot: Option<Millis>,
    /// Wait for a slot without a process.
    pub queue: bool,
    /// The caller's own words for it.
    pub label: Option<String>,
    /// Variables to let through.
    pub env_names: Vec<String>,
    /// Check commands.
    pub holdout: Vec<String>,
    /// Paths that must not change.
    pub protect: Vec<PathBuf>,
    /// Only say what would happen.
    pub dry_run: bool,
    /// The scripted worker of `lane demo` (never a flag).
    pub demo_worker: bool,
}
