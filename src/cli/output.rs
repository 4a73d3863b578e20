//! The only printer. stdout carries answers, stderr everything else.

use std::ffi::OsString;
use std::io::Write;

use super::text;
use crate::app::context::CallerSurroundings;
use crate::wire::answers::Answer;

/// Which of the standard streams are terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// stdout is one.
    pub stdout: bool,
    /// stderr is one.
    pub stderr: bool,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    readable: bool,
}

impl Output {
    /// Decides between JSON and readable text: text only in a terminal whose user is no agent,
    /// unless a flag or `LANE_JSON` says otherwise.
    pub fn new(terminal: Terminal, surroundings: &CallerSurroundings, arguments: &[OsString]) -> Self {
        let flag = |name: &str| arguments.iter().any(|argument| argument == name);
        let forced_json = flag("--json") || surroundings.text("LANE_JSON") == Some("1");
        let readable =
            if flag("--no-json") { true } else { terminal.stdout && !forced_json && surroundings.caller().is_none() };
        Self { readable }
    }

    /// Prints an answer.
    pub fn answer(&self, answer: &Answer) {
        if self.readable {
            self.text(&text::render(answer));
        } else {
            self.json(answer);
        }
    }

    /// Prints an answer as one line of JSON.
    pub fn json(&self, answer: &Answer) {
        let mut line = serde_json::to_string(answer).unwrap_or_else(|error| {
            format!("{{\"schema\":1,\"status\":\"error\",\"class\":\"infra\",\"retryable\":false,\"error\":\"{error}\",\"hint\":\"\"}}")
        });
        line.push('\n');
        self.bytes(line.as_bytes());
    }

    /// Prints readable text as it is. A reader that is gone is no error.
    pub fn text(&self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Prints bytes as they are, and says whether a reader is still there.
    pub fn bytes(&self, bytes: &[u8]) -> bool {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).is_ok()
    }

    /// Prints a line for people to stderr.
    pub fn note(&self, line: &str) {
        let mut stderr = std::io::stderr().lock();
        // Nobody is left to tell when stderr is gone.
        let _gone = stderr.write_all(format!("{line}\n").as_bytes());
    }
}
