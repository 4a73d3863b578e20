//! The scripted worker of `lane demo`, and the small task that it and the real CLIs are given there.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::{Classification, Decoder, Evidence, PoliteSignal, Provider, StreamSummary, Surroundings, WorkerCommand};
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::state::StopReason;
use crate::domain::worker::{ProcessExit, WorkerEvent};

/// The hidden verb of this binary that is the worker.
pub const WORKER_VERB: &str = "__demo-worker";

/// The model that the scripted worker says it is.
pub const MODEL: &str = "scripted";

/// The task of the demo: a repository with a bug, the brief, and the lead's own check.
pub mod task {
    /// The file with the bug.
    pub const FILE: &str = "greet.sh";

    /// What is in the file at the start.
    pub const BEFORE: &str = "#!/bin/sh\n# Greets whoever is named.\necho \"Hello, world!\"\n";

    /// What is in the file when the work is done.
    pub const AFTER: &str = "#!/bin/sh\n# Greets whoever is named.\necho \"Hello, ${1:-world}!\"\n";

    /// The subject of the worker's commit.
    pub const COMMIT: &str = "greet: use the name that is given";

    /// A file that the worker must not touch, and what is in it.
    pub const PROTECTED: (&str, &str) = (
        "check.sh",
        "#!/bin/sh\n# The lead's check: run outside the worker's sandbox, after the worker.\nset -e\n\
          test \"$(sh greet.sh)\" = \"Hello, world!\"\ntest \"$(sh greet.sh Ada)\" = \"Hello, Ada!\"\n",
    );

    /// The lead's acceptance command.
    pub const HOLDOUT: &str = "sh check.sh";

    /// The brief.
    pub const BRIEF: &str = "Goal: greet.sh greets the person who is named\n\
        Owned paths: greet.sh\n\
        Read: greet.sh, check.sh\n\
        Do:\n\
        1. Make `sh greet.sh Ada` print `Hello, Ada!`; without a name it still prints `Hello, world!`.\n\
        2. Run `sh check.sh`.\n\
        3. Commit.\n\
        Acceptance: `sh check.sh` exits 0.\n";

    /// The report.
    pub const REPORT: &str = "STATUS: DONE\n\ngreet.sh now uses its first argument and falls back to `world`. \
        check.sh failed before the change and passes after it; the change is committed.";

    /// The shell commands that do the work, for a model that is played from a script.
    pub const COMMANDS: [&str; 3] = [
        "cat greet.sh; sh check.sh; echo \"check.sh exits $?\"",
        "printf '%s\\n' '#!/bin/sh' '# Greets whoever is named.' 'echo \"Hello, ${1:-world}!\"' > greet.sh && sh check.sh",
        "git add greet.sh && git commit -q -m 'greet: use the name that is given' && git log --oneline -1",
    ];
}

/// One line of the worker's stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum DemoEvent {
    /// The first line.
    Session {
        /// The session's id.
        id: String,
        /// The model's name.
        model: String,
    },
    /// A command begins.
    CommandStarted {
        /// The id of the call.
        call: String,
        /// The command line.
        command: String,
    },
    /// A command has ended.
    CommandEnded {
        /// The id of the call.
        call: String,
        /// The command line.
        command: String,
        /// Its exit code; `None` when a signal ended it.
        exit_code: Option<i32>,
    },
    /// A file was edited.
    Edited {
        /// Its path in the checkout.
        path: String,
    },
    /// The worker speaks; the last words are its report.
    Said {
        /// The words.
        text: String,
    },
    /// The last line.
    TurnEnded {
        /// Why it failed, if it did.
        error: Option<String>,
    },
}

/// The scripted worker of `lane demo`.
pub struct Demo;

impl Provider for Demo {
    fn command(&self, surroundings: &Surroundings<'_>) -> WorkerCommand {
        WorkerCommand {
            program: surroundings.plan.program.clone(),
            arguments: vec![OsString::from(WORKER_VERB)],
            set: vec![("TMPDIR".to_owned(), surroundings.temp_dir.as_os_str().to_owned())],
            logins: Vec::new(),
            polite_signal: PoliteSignal::Terminate,
        }
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(DemoDecoder::default())
    }

    fn classify(&self, evidence: &Evidence<'_>) -> Classification {
        let stream = evidence.stream;
        let report = stream.final_text.clone().filter(|text| !text.trim().is_empty());
        let (outcome, error) = judge(evidence, report.is_some());
        Classification {
            outcome,
            error,
            retry_at: None,
            report,
            model_verified: stream.model.clone(),
            effort_recorded: None,
            session_id: stream.session_id.clone(),
            tokens: None,
            cost_usd: None,
            permission_denials: Vec::new(),
            warnings: exit_warning(evidence).into_iter().collect(),
        }
    }

    fn notes(&self, _plan: &Plan) -> Vec<&'static str> {
        Vec::new()
    }
}

fn judge(evidence: &Evidence<'_>, has_report: bool) -> (Outcome, Option<String>) {
    if let Some(reason) = evidence.stopped {
        return (stop_outcome(reason), None);
    }
    let failure = || evidence.stream.failure.clone().unwrap_or_else(|| evidence.stderr_tail.trim().to_owned());
    match evidence.exit {
        ProcessExit::Code(0) | ProcessExit::Unknown if evidence.stream.clean_end && has_report => (Outcome::Ok, None),
        ProcessExit::Code(0) if evidence.stream.clean_end => (Outcome::NoReport, None),
        ProcessExit::Unknown => (Outcome::Lost, Some(failure())),
        ProcessExit::Code(_) | ProcessExit::Signal(_) => (Outcome::WorkerError, Some(failure())),
    }
}

const fn stop_outcome(reason: StopReason) -> Outcome {
    match reason {
        StopReason::Timeout => Outcome::Timeout,
        StopReason::Stalled => Outcome::Stalled,
        StopReason::Cancelled => Outcome::Cancelled,
        StopReason::Auth => Outcome::Auth,
        StopReason::MachineRestarted => Outcome::Lost,
    }
}

fn exit_warning(evidence: &Evidence<'_>) -> Option<String> {
    matches!(evidence.exit, ProcessExit::Unknown)
        .then(|| "the worker's exit code is not known: its keeper was killed".to_owned())
}

#[derive(Default)]
struct DemoDecoder {
    summary: StreamSummary,
}

impl Decoder for DemoDecoder {
    fn line(&mut self, line: &[u8]) -> Vec<WorkerEvent> {
        let Ok(event) = serde_json::from_slice::<DemoEvent>(line) else {
            self.summary.unreadable_lines += 1;
            return Vec::new();
        };
        self.summary.any_event = true;
        vec![self.take(event)]
    }

    fn summary(&self) -> &StreamSummary {
        &self.summary
    }
}

impl DemoDecoder {
    fn take(&mut self, event: DemoEvent) -> WorkerEvent {
        match event {
            DemoEvent::Session { id, model } => {
                self.summary.session_id = Some(id.clone());
                self.summary.model = Some(model.clone());
                WorkerEvent::SessionStarted { session_id: id, model: Some(model) }
            }
            DemoEvent::CommandStarted { call, command } => WorkerEvent::CommandStarted { call_id: call, command },
            DemoEvent::CommandEnded { call, command, exit_code } => {
                WorkerEvent::CommandEnded { call_id: call, command, exit_code }
            }
            DemoEvent::Edited { path } => WorkerEvent::FilesEdited { paths: vec![path] },
            DemoEvent::Said { text } => {
                self.summary.final_text = Some(text.clone());
                WorkerEvent::Said { text }
            }
            DemoEvent::TurnEnded { error } => {
                self.summary.clean_end = error.is_none();
                self.summary.failure.clone_from(&error);
                WorkerEvent::TurnEnded { clean: error.is_none(), error }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> StreamSummary {
        let mut decoder = Demo.decoder();
        for line in lines {
            decoder.line(line.as_bytes());
        }
        decoder.summary().clone()
    }

    #[test]
    fn a_whole_stream_is_read() {
        let summary = read(&[
            r#"{"event":"session","id":"s","model":"scripted"}"#,
            r#"{"event":"command_started","call":"1","command":"ls"}"#,
            r#"{"event":"command_ended","call":"1","command":"ls","exit_code":0}"#,
            r#"{"event":"said","text":"STATUS: DONE"}"#,
            r#"{"event":"turn_ended","error":null}"#,
        ]);
        let expected = StreamSummary {
            session_id: Some("s".into()),
            model: Some("scripted".into()),
            any_event: true,
            clean_end: true,
            final_text: Some("STATUS: DONE".into()),
            ..StreamSummary::default()
        };
        assert_eq!(summary, expected);
    }

    #[test]
    fn a_cut_line_is_counted_and_no_end() {
        let summary = read(&[r#"{"event":"session","id":"s","model":"m"}"#, r#"{"event":"turn_en"#]);
        assert_eq!((summary.clean_end, summary.unreadable_lines), (false, 1));
    }

    #[test]
    fn the_script_for_a_model_makes_the_same_file() {
        assert!(task::COMMANDS[2].contains(task::COMMIT));
        let line = task::AFTER.lines().last().unwrap();
        assert!(task::COMMANDS[1].contains(line) && !task::BEFORE.contains(line));
    }
}
