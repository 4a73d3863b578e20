//! Codex's rollout file.

/// What a rollout said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RolloutSummary {}

/// Reads a rollout line by line.
#[derive(Debug, Default)]
pub struct RolloutDecoder(RolloutSummary);

impl RolloutDecoder {
    /// Takes one line.
    pub fn line(&mut self, _line: &[u8]) {}

    /// What it said so far.
    pub fn summary(&self) -> &RolloutSummary {
        &self.0
    }
}
