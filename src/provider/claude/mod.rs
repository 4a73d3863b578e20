//! The Claude Code CLI.

mod classify;
mod command;
mod lines;
mod stream;
mod tools;
mod turn;

use super::{Classification, Decoder, Evidence, Provider, Surroundings, WorkerCommand};
use crate::domain::plan::Plan;
use crate::domain::worker::{CheckoutMode, SandboxMode};

/// The Claude Code CLI.
pub struct Claude;

impl Provider for Claude {
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
        let mut notes = vec![
            "Nobody can be asked: a tool call that needs permission is denied.",
            "Commands cannot be put in the background; give one that needs more than ten minutes a `timeout`.",
        ];
        match plan.sandbox {
            SandboxMode::WorkspaceWrite => {
                notes.push("Nothing outside your working copy can be written; temporary files go to `$TMPDIR`.");
            }
            SandboxMode::ReadOnly => notes.push(
                "Of commands only those that read are allowed (`git log`, `git diff`, `cat`, `grep`, `ls`, `find`), \
                 without redirections.",
            ),
        }
        if plan.checkout == CheckoutMode::Linked {
            notes.push("A line about `packed-refs.lock` on a commit that succeeds is harmless.");
        }
        notes
    }
}
