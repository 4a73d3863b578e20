//! The Codex CLI.

mod classify;
mod command;
mod failure;
pub mod rollout;
mod stream;

use super::{Classification, Decoder, Evidence, Provider, Surroundings, WorkerCommand};
use crate::domain::plan::Plan;
use crate::domain::worker::{CheckoutMode, SandboxMode};

/// The Codex CLI.
pub struct Codex;

impl Provider for Codex {
    fn command(&self, surroundings: &Surroundings<'_>) -> WorkerCommand {
        command::command(surroundings)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(stream::StreamDecoder::default())
    }

    fn classify(&self, evidence: &Evidence<'_>) -> Classification {
        classify::classify(evidence)
    }

    fn notes(&self, plan: &Plan) -> Vec<&'static str> {
        let mut notes = vec!["`rm -f` and `rm -rf` are refused here; use plain `rm`, or `find DIR -delete`."];
        match plan.sandbox {
            SandboxMode::WorkspaceWrite => {
                notes.push("Patches outside your working copy are rejected.");
                if !plan.network {
                    notes.push("Your commands have no network and reach no service on localhost.");
                }
            }
            SandboxMode::ReadOnly => notes.push(
                "No file can be written, a temporary one neither, and your commands have no network: \
                 avoid here-documents and redirections.",
            ),
        }
        if plan.checkout == CheckoutMode::Linked {
            notes.push("A line about `packed-refs.lock` on a commit that succeeds is harmless.");
        }
        notes
    }
}
