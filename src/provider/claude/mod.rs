//! The Claude Code CLI.

use super::{Classification, Decoder, Evidence, Provider, Surroundings, WorkerCommand};
use crate::domain::plan::Plan;

/// The Claude Code CLI.
pub struct Claude;

impl Provider for Claude {
    fn command(&self, _surroundings: &Surroundings<'_>) -> WorkerCommand {
        unimplemented!()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        unimplemented!()
    }

    fn classify(&self, _evidence: &Evidence<'_>) -> Classification {
        unimplemented!()
    }

    fn notes(&self, _plan: &Plan) -> Vec<&'static str> {
        Vec::new()
    }
}
