//! Codex's rollout file.

/// What a rollout said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutSummary {}
