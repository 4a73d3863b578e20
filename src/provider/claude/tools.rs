//! Tool calls of a Claude worker, paired with their results.

use std::collections::HashMap;

use serde_json::Value;

use super::super::text::{ID_MAX_BYTES, LIST_MAX, SHORT_MAX_BYTES, clip};
use super::lines::{Block, UserBlock};
use crate::domain::time::Millis;
use crate::domain::worker::WorkerEvent;

/// Tool calls without a result so far.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(HashMap<String, Call>);

#[derive(Debug)]
enum Call {
    Command(String),
    Edit(String),
}

impl OpenCalls {
    /// Takes a tool call and returns what it shows.
    pub(super) fn begin(&mut self, block: &Block) -> Option<WorkerEvent> {
        let call_id = clip(block.id.as_deref()?, ID_MAX_BYTES);
        let name = block.name.as_deref().unwrap_or_default();
        let input = |key: &str| {
            let text = block.input.as_ref().and_then(|input| input.get(key)).and_then(Value::as_str);
            clip(text.unwrap_or_default(), SHORT_MAX_BYTES)
        };
        if self.0.contains_key(&call_id) || self.0.len() >= LIST_MAX {
            return None;
        }
        match name {
            "Bash" => {
                let command = input("command");
                self.0.insert(call_id.clone(), Call::Command(command.clone()));
                Some(WorkerEvent::CommandStarted { call_id, command })
            }
            "Edit" | "Write" | "MultiEdit" | "NotebookEdit" => {
                let path = [input("file_path"), input("notebook_path")].concat();
                self.0.insert(call_id, Call::Edit(path.clone()));
                Some(notice(&format!("{name} {path}")))
            }
            _ => Some(notice(&format!("{name} {}", [input("file_path"), input("pattern"), input("path")].join(" ")))),
        }
    }

    /// Takes a result of a tool and returns what it shows.
    pub(super) fn end(&mut self, result: &UserBlock<'_>) -> Option<WorkerEvent> {
        let call_id = clip(result.tool_use_id.as_deref()?, ID_MAX_BYTES);
        let failed = result.is_error.unwrap_or(false);
        match self.0.remove(&call_id)? {
            Call::Command(command) => {
                let exit_code = if failed { exit_code(result) } else { Some(0) };
                Some(WorkerEvent::CommandEnded { call_id, command, exit_code })
            }
            Call::Edit(path) if failed => Some(notice(&format!("an edit was not made: {path}"))),
            Call::Edit(path) => Some(WorkerEvent::FilesEdited { paths: vec![path] }),
        }
    }

    /// Ends every command that is still open when the turn ends.
    pub(super) fn close(&mut self) -> Vec<WorkerEvent> {
        let mut open: Vec<(String, String)> = self
            .0
            .drain()
            .filter_map(|(call_id, call)| match call {
                Call::Command(command) => Some((call_id, command)),
                Call::Edit(_) => None,
            })
            .collect();
        open.sort();
        open.into_iter()
            .map(|(call_id, command)| WorkerEvent::CommandEnded { call_id, command, exit_code: None })
            .collect()
    }
}

/// The code in `Exit code 3`, with which the result of a failed command begins; a denied or blocked
/// command has none.
fn exit_code(result: &UserBlock<'_>) -> Option<i32> {
    let text = result.content.as_ref()?.first_text()?;
    text.strip_prefix("Exit code ")?.split_whitespace().next()?.parse().ok()
}

/// A notice, kept short.
pub(super) fn notice(text: &str) -> WorkerEvent {
    WorkerEvent::Notice { text: clip(text.trim(), SHORT_MAX_BYTES) }
}

/// A delay that the CLI tells in fractions of a millisecond; absurd ones are not known.
pub(super) fn delay(ms: Option<f64>) -> Option<Millis> {
    let ms = ms.filter(|ms| ms.is_finite() && (0.0..1e12).contains(ms))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be within bounds")]
    let whole = ms as u64;
    Some(Millis(whole))
}
