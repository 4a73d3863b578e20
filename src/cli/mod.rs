//! The front door: one file a verb, its arguments and a short `run`. It holds no rule.

pub mod arguments;
pub mod cancel;
pub mod clean;
pub mod diff;
pub mod doctor;
pub mod exit;
pub mod logs;
pub mod output;
mod read;
pub mod result;
pub mod run;
pub mod schema;
pub mod status;
pub mod text;
pub mod wait;
pub mod watch;

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;

use crate::app::context::{CallerSurroundings, Context};
use crate::app::error::{AppError, AppResult};
use crate::app::ports::{PortError, PortErrorKind};
use crate::domain::refusal::Refusal;
use crate::wire::answers::{Answer, Failed, Refused};
use arguments::{Arguments, Verb};
use output::{Output, Terminal};

/// What the front door needs from the wiring.
pub struct Doors<'a> {
    /// Who calls.
    pub surroundings: &'a CallerSurroundings,
    /// Which of the streams are terminals.
    pub terminal: Terminal,
    /// Opens the state; called only by verbs that need it.
    pub open: &'a dyn Fn() -> AppResult<Context>,
    /// Likewise, for a lane that starts in that directory from that revision.
    pub open_for_run: &'a dyn Fn(Option<&Path>, &str) -> AppResult<Context>,
    /// Opens what can be opened of it, so that `lane doctor` can say what is broken.
    pub open_for_doctor: &'a dyn Fn() -> AppResult<Context>,
    /// Runs `lane demo`, which makes a state of its own.
    pub demo: &'a dyn Fn(&arguments::DemoArguments, &Output) -> AppResult<u8>,
}

/// What a verb comes to: an answer, or nothing more to print and an exit code.
pub enum Verdict {
    /// One line.
    Line(Box<Answer>),
    /// One line, whose exit code is 6 unless the lanes are accepted.
    LineIfAccepted(Box<Answer>),
    /// It printed by itself.
    Printed(u8),
}

/// Runs the program with `arguments` (the program's name first) and returns its exit code.
pub fn main(arguments: Vec<OsString>, doors: &Doors<'_>) -> u8 {
    let output = Output::new(doors.terminal, doors.surroundings, &arguments);
    let parsed = match Arguments::read(arguments) {
        Ok(parsed) => parsed,
        Err(error) => return refused_arguments(&output, &error),
    };
    match dispatch(&parsed.verb, doors, &output) {
        Ok(Verdict::Line(answer)) => {
            output.answer(&answer);
            exit::code(&answer)
        }
        Ok(Verdict::LineIfAccepted(answer)) => {
            output.answer(&answer);
            exit::code_if_accepted(&answer)
        }
        Ok(Verdict::Printed(code)) => code,
        Err(error) => {
            let answer = error_answer(error);
            output.answer(&answer);
            exit::code(&answer)
        }
    }
}

fn dispatch(verb: &Verb, doors: &Doors<'_>, output: &Output) -> AppResult<Verdict> {
    let line = |answer: Answer| Verdict::Line(Box::new(answer));
    match verb {
        Verb::Run(arguments) => {
            let base = arguments.base.as_deref().unwrap_or("HEAD");
            run::run(&(doors.open_for_run)(arguments.cwd.as_deref(), base)?, arguments)
        }
        Verb::Status(arguments) => status::run(&(doors.open)()?, arguments).map(line),
        Verb::Result(arguments) => result::run(&(doors.open)()?, arguments),
        Verb::Wait(arguments) => wait::run(&(doors.open)()?, arguments),
        Verb::Cancel(arguments) => cancel::run(&(doors.open)()?, arguments).map(line),
        Verb::Watch(arguments) => watch::run(&(doors.open)()?, arguments, output).map(Verdict::Printed),
        Verb::Logs(arguments) => logs::run(&(doors.open)()?, arguments, output).map(Verdict::Printed),
        Verb::Diff(arguments) => diff::run(&(doors.open)()?, arguments, output).map(Verdict::Printed),
        Verb::Clean(arguments) => clean::run(&(doors.open)()?, arguments).map(line),
        Verb::Restore(arguments) => clean::restore(&(doors.open)()?, arguments).map(line),
        Verb::Doctor(arguments) => doctor::run(&(doors.open_for_doctor)()?, arguments).map(line),
        Verb::Schema => Ok(line(schema::run())),
        Verb::Completions(arguments) => Ok(Verdict::Printed(schema::completions(arguments, output))),
        Verb::Demo(arguments) => (doors.demo)(arguments, output).map(Verdict::Printed),
    }
}

/// Turns an error into the line that is printed for it.
pub fn error_answer(error: AppError) -> Answer {
    match error {
        AppError::Refused(refusal) => Answer::Refused(Refused::from(refusal)),
        AppError::Failed { source: PortError { kind: PortErrorKind::Damaged, .. }, .. } => Answer::Failed(Failed::new(
            error.to_string(),
            "`lane doctor` says what is left; to go on, move the damaged file aside (lane.db with lane.db-wal and \
             lane.db-shm): a new one is begun, and branches, checkouts and run folders stay",
        )),
        AppError::Failed { .. } => Answer::Failed(Failed::new(
            error.to_string(),
            "`lane doctor` looks at everything that Lane needs; the same call may succeed later",
        )),
    }
}

fn refused_arguments(output: &Output, error: &clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            output.text(&error.render().to_string());
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let refusal =
                Refusal::usage("no subcommand is given", "say what to do, such as `lane run`; see `lane --help`");
            let answer = Answer::Refused(Refused::from(refusal));
            output.answer(&answer);
            exit::code(&answer)
        }
        _ => {
            let (wrong, hint) = split_usage(&error.render().to_string());
            let answer = Answer::Refused(Refused::from(Refusal::usage(wrong, hint)));
            output.answer(&answer);
            exit::code(&answer)
        }
    }
}

/// Splits the parser's text into what is wrong and the way on.
fn split_usage(text: &str) -> (String, String) {
    let (mut wrong, mut hint) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_way_on =
            ["Usage:", "tip:", "[possible values", "For more information"].iter().any(|word| line.starts_with(word));
        if line.starts_with("For more information") {
            hint.push("see `lane --help`");
        } else if is_way_on || !hint.is_empty() {
            hint.push(line);
        } else {
            wrong.push(line.trim_start_matches("error: "));
        }
    }
    (wrong.join(" "), hint.join(" "))
}
