//! Codex's event stream (`exec --json`).

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::text::{
    ID_MAX_BYTES, LIST_MAX, REPORT_MAX_BYTES, SAID_MAX_BYTES, SHORT_MAX_BYTES, clip, is_blank, leading_type, note, read,
};
use super::super::{Decoder, FailureKind, StreamSummary};
use super::failure;
use super::rollout::TokenCount;
use crate::domain::worker::WorkerEvent;

/// What a command prints that Codex's own sandbox could not start.
const BROKEN_SANDBOX: &str = "bwrap: ";

/// Reads Codex's stream.
#[derive(Debug, Default)]
pub(super) struct StreamDecoder {
    summary: StreamSummary,
    /// Commands that have begun and not ended, by id of the call.
    open: HashMap<String, String>,
    commands: Commands,
    waits: u64,
}

/// How the worker's commands went, as far as the sandbox is concerned.
#[derive(Debug, Default)]
struct Commands {
    ran: u64,
    not_started: u64,
    last_words: String,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Thread {
    thread_id: String,
}

#[derive(Deserialize)]
struct Completed {
    usage: Option<TokenCount>,
}

#[derive(Deserialize)]
struct Failed {
    error: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    message: Option<String>,
}

#[derive(Deserialize)]
struct ItemLine<T> {
    item: T,
}

/// Of an item what is needed to know what it is. The output of a command is not looked at.
#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    id: String,
    #[serde(rename = "type")]
    kind: String,
    command: Option<String>,
    exit_code: Option<i32>,
    status: Option<String>,
    changes: Option<Vec<Change>>,
    #[serde(rename = "aggregated_output")]
    _output: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Change {
    path: String,
}

#[derive(Deserialize)]
struct ItemText {
    text: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct ItemOutput<'a> {
    #[serde(borrow)]
    aggregated_output: Option<Cow<'a, str>>,
}

impl Decoder for StreamDecoder {
    fn line(&mut self, line: &[u8]) -> Vec<WorkerEvent> {
        if is_blank(line) {
            return Vec::new();
        }
        match self.take(line) {
            Some(events) => {
                self.summary.any_event = true;
                events
            }
            None => {
                self.summary.unreadable_lines = self.summary.unreadable_lines.saturating_add(1);
                Vec::new()
            }
        }
    }

    fn skim(&mut self, line: &[u8]) {
        match plain_command(line) {
            Some(PlainCommand::Started) => self.summary.any_event = true,
            Some(PlainCommand::EndedWell) => {
                self.summary.any_event = true;
                self.commands.ran = self.commands.ran.saturating_add(1);
            }
            None => drop(self.line(line)),
        }
    }

    fn summary(&self) -> &StreamSummary {
        &self.summary
    }
}

/// A command of which the summary needs no more than this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlainCommand {
    Started,
    EndedWell,
}

/// Tells a command's line by its two ends, as Codex writes them; `None` if it must be read.
///
/// Most bytes of a stream are the output of commands, and none of it is for the summary.
fn plain_command(line: &[u8]) -> Option<PlainCommand> {
    const HEAD_BYTES: usize = 160;
    const KIND: &[u8] = b",\"type\":\"command_execution\",\"command\":";
    let rest = line.strip_prefix(b"{\"type\":\"item.")?;
    let head = rest.get(..HEAD_BYTES).unwrap_or(rest);
    if !head.windows(KIND.len()).any(|window| window == KIND) {
        return None;
    }
    if rest.starts_with(b"started\"") && rest.ends_with(b"\"status\":\"in_progress\"}}") {
        Some(PlainCommand::Started)
    } else if rest.starts_with(b"completed\"") && rest.ends_with(b"\"exit_code\":0,\"status\":\"completed\"}}") {
        Some(PlainCommand::EndedWell)
    } else {
        None
    }
}

impl StreamDecoder {
    /// `None` if the line cannot be read.
    fn take(&mut self, line: &[u8]) -> Option<Vec<WorkerEvent>> {
        let kind = match leading_type(line) {
            Some(kind) => Cow::Borrowed(kind),
            None => read::<Head<'_>>(line)?.kind,
        };
        Some(match kind.as_ref() {
            "thread.started" => self.thread_started(&read::<Thread>(line)?.thread_id),
            "item.started" => self.item_started(read::<ItemLine<Item>>(line)?.item),
            "item.completed" => self.item_completed(read::<ItemLine<Item>>(line)?.item, line),
            "turn.completed" => self.turn_completed(read::<Completed>(line)?.usage),
            "turn.failed" => self.turn_failed(read::<Failed>(line)?.error.and_then(|error| error.message)),
            "error" => self.error(&read::<Message>(line)?.message.unwrap_or_default()),
            other => {
                read::<Head<'_>>(line)?;
                self.summary.clean_end &= other != "turn.started";
                Vec::new()
            }
        })
    }

    fn thread_started(&mut self, thread_id: &str) -> Vec<WorkerEvent> {
        let session_id = clip(thread_id, ID_MAX_BYTES);
        self.summary.session_id = Some(session_id.clone());
        vec![WorkerEvent::SessionStarted { session_id, model: None }]
    }

    fn item_started(&mut self, item: Item) -> Vec<WorkerEvent> {
        match item.kind.as_str() {
            "command_execution" => self.command_started(&item).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Each call is counted once, however often the stream tells of its start.
    fn command_started(&mut self, item: &Item) -> Option<WorkerEvent> {
        if self.open.contains_key(&item.id) || self.open.len() >= LIST_MAX {
            return None;
        }
        let call_id = clip(&item.id, ID_MAX_BYTES);
        let command = clip(item.command.as_deref().unwrap_or_default(), SHORT_MAX_BYTES);
        self.open.insert(call_id.clone(), command.clone());
        Some(WorkerEvent::CommandStarted { call_id, command })
    }

    fn item_completed(&mut self, item: Item, line: &[u8]) -> Vec<WorkerEvent> {
        match item.kind.as_str() {
            "command_execution" => self.command_ended(&item, line),
            "file_change" => file_change(item),
            "agent_message" => {
                let text = item_text(line);
                let said = clip(&text, SAID_MAX_BYTES);
                self.summary.final_text = Some(clip(&text, REPORT_MAX_BYTES)).filter(|text| !text.trim().is_empty());
                vec![WorkerEvent::Said { text: said }]
            }
            "error" => {
                let text = item_text(line);
                note(&mut self.summary.notices, &text);
                notice(&text)
            }
            // A sign that the model answers; what it thinks is not for the result.
            other => notice(&format!("{other}: {}", item_text(line))),
        }
    }

    fn command_ended(&mut self, item: &Item, line: &[u8]) -> Vec<WorkerEvent> {
        let mut events: Vec<WorkerEvent> = self.command_started(item).into_iter().collect();
        self.commands.ran = self.commands.ran.saturating_add(1);
        if item.exit_code != Some(0)
            && let Some(words) = broken_sandbox(item, line)
        {
            self.commands.not_started = self.commands.not_started.saturating_add(1);
            self.commands.last_words = words;
        }
        // A start that was not counted has no end either: the two must stay in balance.
        if let Some(command) = self.open.remove(&item.id) {
            let call_id = clip(&item.id, ID_MAX_BYTES);
            events.push(WorkerEvent::CommandEnded { call_id, command, exit_code: item.exit_code });
        }
        events
    }

    /// Codex kills what still runs when a turn ends, and does not tell.
    fn close_commands(&mut self) -> Vec<WorkerEvent> {
        let mut open: Vec<(String, String)> = self.open.drain().collect();
        open.sort();
        open.into_iter()
            .map(|(call_id, command)| WorkerEvent::CommandEnded { call_id, command, exit_code: None })
            .collect()
    }

    fn turn_completed(&mut self, usage: Option<TokenCount>) -> Vec<WorkerEvent> {
        let mut events = self.close_commands();
        self.summary.tokens = usage.and_then(TokenCount::tokens).or(self.summary.tokens);
        self.summary.clean_end = true;
        self.summary.failure = None;
        self.summary.failure_kind = None;
        self.judge_sandbox();
        events.push(WorkerEvent::TurnEnded { clean: true, error: None });
        events
    }

    /// A worker that could not run anything reports on nothing.
    fn judge_sandbox(&mut self) {
        let Commands { ran, not_started, last_words } = &self.commands;
        if *not_started == 0 {
            return;
        }
        if not_started == ran {
            self.summary.failure = Some(format!("Codex's sandbox could not start any command: {last_words}"));
            self.summary.failure_kind = Some(FailureKind::Sandbox);
        } else {
            let text = format!("Codex's sandbox could not start {not_started} of {ran} commands: {last_words}");
            note(&mut self.summary.notices, &text);
        }
    }

    fn turn_failed(&mut self, message: Option<String>) -> Vec<WorkerEvent> {
        let mut events = self.close_commands();
        let message = clip(message.as_deref().unwrap_or("the turn failed"), SHORT_MAX_BYTES);
        self.summary.clean_end = false;
        self.summary.failure_kind = Some(failure::by_message(&message));
        self.summary.failure = Some(message.clone());
        events.push(WorkerEvent::TurnEnded { clean: false, error: Some(message) });
        events
    }

    /// An `error` event is no failure: it tells of another try, or of what `turn.failed` will say.
    fn error(&mut self, message: &str) -> Vec<WorkerEvent> {
        match message.strip_prefix("Reconnecting...") {
            Some(rest) => {
                self.waits = self.waits.saturating_add(1);
                let attempt = rest.trim().split('/').next().and_then(|number| number.parse().ok());
                vec![WorkerEvent::Waiting {
                    reason: clip(message, SHORT_MAX_BYTES),
                    attempt: attempt.unwrap_or(self.waits),
                    delay: None,
                    authentication: failure::is_login(message),
                }]
            }
            // The final text is told by `turn.failed`; as a notice it would pass for progress.
            None => Vec::new(),
        }
    }
}

fn notice(text: &str) -> Vec<WorkerEvent> {
    vec![WorkerEvent::Notice { text: clip(text, SHORT_MAX_BYTES) }]
}

fn file_change(item: Item) -> Vec<WorkerEvent> {
    let paths: Vec<String> = item
        .changes
        .unwrap_or_default()
        .iter()
        .take(LIST_MAX)
        .map(|change| clip(&change.path, SHORT_MAX_BYTES))
        .collect();
    match item.status.as_deref() {
        Some("completed") | None => vec![WorkerEvent::FilesEdited { paths }],
        Some(status) => notice(&format!("an edit was not made ({status}): {}", paths.join(", "))),
    }
}

fn item_text(line: &[u8]) -> String {
    read::<ItemLine<ItemText>>(line).and_then(|line| line.item.text.or(line.item.message)).unwrap_or_default()
}

/// The first line of a command's output, if it says that the sandbox did not start the command.
fn broken_sandbox(item: &Item, line: &[u8]) -> Option<String> {
    if item.command.as_deref().is_some_and(|command| command.contains("bwrap")) {
        return None;
    }
    let output = read::<ItemLine<ItemOutput<'_>>>(line)?.item.aggregated_output?;
    let first = output.trim_start().lines().next()?;
    first.starts_with(BROKEN_SANDBOX).then(|| clip(first, ID_MAX_BYTES))
}
