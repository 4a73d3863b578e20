//! The only module that knows all the others: it reads the environment once, builds the adapters,
//! and hands them to the front door or to one of the hidden verbs.
//!
//! Hidden verbs, which only Lane itself calls: `__supervise` (the supervisor of one lane), `__keep`
//! (the keeper of one worker), `__demo-worker` (the scripted worker of `lane demo`).

mod demo;
mod state_folder;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::app::context::{CallerSurroundings, Context, Notes};
use crate::app::error::{AppError, AppResult, Doing};
use crate::app::ports::{Clock, Ledger, Machine, PortErrorKind, PortResult};
use crate::app::supervise;
use crate::cli::output::Terminal;
use crate::cli::{self, Doors};
use crate::domain::config::Settings;
use crate::domain::plan::Plan;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::result::LaneEnd;
use crate::infra::clock::{SystemClock, SystemRandom};
use crate::infra::environment::EnvironmentSnapshot;
use crate::infra::git::GitCli;
use crate::infra::ledger::{SqliteLedger, UnopenedLedger};
use crate::infra::machine::ThisMachine;
use crate::infra::process::{SystemProcesses, detach, keeper};
use crate::infra::run_folder::{RunFoldersOnDisk, let_callers_go_first};
use crate::wire::answers::Answer;
use crate::wire::lane_result::LaneResult;

/// Runs the program.
pub fn main() -> ExitCode {
    let snapshot = EnvironmentSnapshot::take();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let verb = arguments.get(1).and_then(|argument| argument.to_str());
    match (verb, arguments.get(2)) {
        (Some("__supervise"), Some(run_dir)) => supervise_lane(&snapshot, Path::new(run_dir), &arguments),
        (Some("__keep"), Some(run_dir)) => exit(keeper::keep(Path::new(run_dir), &clock(&snapshot))),
        (Some("__demo-worker"), None) => exit(crate::infra::demo_worker::run()),
        _ => ExitCode::from(front_door(&snapshot, arguments)),
    }
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn front_door(snapshot: &EnvironmentSnapshot, arguments: Vec<OsString>) -> u8 {
    let surroundings = surroundings(snapshot);
    let terminal = Terminal { stdout: snapshot.stdout_is_terminal, stderr: snapshot.stderr_is_terminal };
    let open_for_doctor = || open_for_doctor(snapshot);
    let open = || open(snapshot);
    let open_for_run = |cwd: Option<&Path>, base: &str| open_for_run(snapshot, cwd, base);
    let demo = |arguments: &cli::arguments::DemoArguments, output: &cli::output::Output| {
        demo::demo(snapshot, arguments, output)
    };
    cli::main(
        arguments,
        &Doors {
            surroundings: &surroundings,
            terminal,
            open: &open,
            open_for_run: &open_for_run,
            open_for_doctor: &open_for_doctor,
            demo: &demo,
        },
    )
}

fn clock(snapshot: &EnvironmentSnapshot) -> SystemClock {
    let file = |name: &str| snapshot.path(name).map(Path::to_owned);
    SystemClock::new(file("LANE_TEST_CLOCK_FILE"), file("LANE_TEST_BOOT_ID_FILE"))
}

fn surroundings(snapshot: &EnvironmentSnapshot) -> CallerSurroundings {
    let variables =
        snapshot.variables().filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_owned()))).collect();
    CallerSurroundings { variables, directory: directory(snapshot) }
}

/// The directory that Lane was called in; `/` when it is gone.
fn directory(snapshot: &EnvironmentSnapshot) -> PathBuf {
    snapshot.current_dir.clone().unwrap_or_else(|| PathBuf::from("/"))
}

/// Opens the state folder with the person's settings, or says why it cannot be opened.
fn open(snapshot: &EnvironmentSnapshot) -> AppResult<Context> {
    open_with(snapshot, git(snapshot), |_| RunFoldersOnDisk::new())
}

/// Likewise, for a lane that starts in `cwd` from `base`: git is started before anything else, so
/// that git and the ledger start side by side.
fn open_for_run(snapshot: &EnvironmentSnapshot, cwd: Option<&Path>, base: &str) -> AppResult<Context> {
    let git = git(snapshot);
    let directory = directory(snapshot);
    git.look_ahead(&cwd.map_or_else(|| directory.clone(), |cwd| directory.join(cwd)), base);
    open_with(snapshot, git, RunFoldersOnDisk::of_a_starting_call)
}

fn open_with(
    snapshot: &EnvironmentSnapshot,
    git: GitCli,
    runs: impl FnOnce(&Path) -> RunFoldersOnDisk,
) -> AppResult<Context> {
    let state_dir = state_dir(snapshot)?;
    let runs = runs(&state_dir);
    let settings = load_settings(snapshot, &state_dir)?;
    let ledger = open_ledger(&state_dir).map_err(|error| cannot_open(&state_dir, error))?;
    Ok(Context { git: Box::new(git), runs: Box::new(runs), ..build(snapshot, &state_dir, settings, Box::new(ledger)) })
}

/// Opens what can be opened, for `lane doctor`: it must answer just when something is broken.
fn open_for_doctor(snapshot: &EnvironmentSnapshot) -> AppResult<Context> {
    let state_dir = state_dir(snapshot)?;
    let settings = match load_settings(snapshot, &state_dir) {
        Err(AppError::Refused(refusal)) if refusal.status == RefusalStatus::DiskFull => Settings::default(),
        loaded => loaded?,
    };
    let ledger: Box<dyn Ledger> = match open_ledger(&state_dir) {
        Ok(ledger) => Box::new(ledger),
        Err(error) => Box::new(UnopenedLedger(error)),
    };
    Ok(build(snapshot, &state_dir, settings, ledger))
}

fn state_dir(snapshot: &EnvironmentSnapshot) -> Result<PathBuf, Refusal> {
    state_folder::refuse_odd_variables(snapshot)?;
    state_folder::state_dir(snapshot, &directory(snapshot))
}

fn open_ledger(state_dir: &Path) -> PortResult<SqliteLedger> {
    ThisMachine.ensure_private_dir(state_dir).and_then(|()| SqliteLedger::open(state_dir))
}

fn load_settings(snapshot: &EnvironmentSnapshot, state_dir: &Path) -> AppResult<Settings> {
    let file = state_dir.join("config.toml");
    let bad = |error: &str| {
        Refusal::new(
            RefusalStatus::BadConfig,
            format!("{}: {}", file.display(), error.trim_end()),
            "mend the file; docs/configuration.md lists every key",
        )
    };
    let text = match ThisMachine.read_text(&file) {
        // It is there, and it is no text: a folder, or bytes that are not UTF-8.
        Err(error) if error.kind == PortErrorKind::Other => return Err(bad(&error.message).into()),
        read => read.doing("read the configuration")?.unwrap_or_default(),
    };
    let settings = Settings::from_toml(&text).map_err(|error| bad(&error.0))?;
    let lookup = |name: &str| snapshot.raw(name).and_then(OsStr::to_str).map(str::to_owned);
    let settings = settings
        .with_variables(&lookup)
        .map_err(|error| Refusal::usage(error.0, "mend the variable or unset it; docs/configuration.md lists them"))?;
    Ok(settings)
}

fn git(snapshot: &EnvironmentSnapshot) -> GitCli {
    let path = snapshot.raw("PATH").map(OsStr::to_owned);
    let program = ThisMachine.find_program(None, "git", path.as_deref()).unwrap_or_else(|| PathBuf::from("git"));
    GitCli::new(program, path, snapshot.home().map(Path::to_owned))
}

fn build(snapshot: &EnvironmentSnapshot, state_dir: &Path, settings: Settings, ledger: Box<dyn Ledger>) -> Context {
    let clock: Arc<dyn Clock> = Arc::new(clock(snapshot));
    let executable = snapshot.current_exe.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    Context {
        clock: Arc::clone(&clock),
        random: Box::new(SystemRandom),
        ledger,
        runs: Box::new(RunFoldersOnDisk::new()),
        git: Box::new(git(snapshot)),
        processes: Box::new(SystemProcesses::new(executable.clone(), clock)),
        machine: Box::new(ThisMachine),
        settings,
        surroundings: surroundings(snapshot),
        state_dir: state_dir.to_owned(),
        executable,
        render_result,
        notes: Notes::new(note),
    }
}

/// Says a line to people; the supervisor's log is its stderr, too.
fn note(line: &str) {
    cli::output::Output::new(Terminal::default(), &CallerSurroundings::default(), &[]).note(line);
}

/// A state folder that cannot be written is the caller's sandbox, where there is one.
fn cannot_open(state_dir: &Path, error: crate::app::ports::PortError) -> AppError {
    if error.kind == PortErrorKind::NoRoom
        && let Some(reason) = ThisMachine.caller_sandbox()
    {
        return Refusal::new(
            RefusalStatus::SandboxedCaller,
            format!("the state folder {} cannot be written: {reason}", state_dir.display()),
            "let the lead call `lane` outside its sandbox, or use Lane through MCP",
        )
        .into();
    }
    let failed: AppResult<()> = Err(error).doing(&format!("open the state folder {}", state_dir.display()));
    match failed {
        Err(error) => error,
        Ok(()) => Refusal::usage("the state folder cannot be opened", "see `lane doctor`").into(),
    }
}

fn render_result(plan: &Plan, end: &LaneEnd) -> Vec<u8> {
    let answer = Answer::Result(Box::new(LaneResult::new(plan, end)));
    let mut line = serde_json::to_vec(&answer).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The body of `__supervise <run_dir> --claim-fd N`. Its log is stderr.
fn supervise_lane(snapshot: &EnvironmentSnapshot, run_dir: &Path, arguments: &[OsString]) -> ExitCode {
    let number = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)?.to_str()?.parse().ok()
    };
    // Whoever started this process knows already that it holds the claim, which is all that
    // "started" promises: if it dies now, the next command of any kind starts another one.
    let Some(Ok(claim)) = number("--claim-fd").map(detach::take_claim) else {
        return ExitCode::from(2);
    };
    if detach::stand_alone().is_err() {
        return ExitCode::FAILURE;
    }
    let output = cli::output::Output::new(Terminal::default(), &CallerSurroundings::default(), &[]);
    if let Ok(state_dir) = state_dir(snapshot) {
        let_callers_go_first(&state_dir);
    }
    let context = match open(snapshot).and_then(|context| introduce(&context, run_dir).map(|()| context)) {
        Ok(context) => context,
        Err(error) => {
            output.note(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let ended = supervise::supervise(&context, run_dir);
    drop(claim);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.note(&format!("{} {error}", context.clock.now()));
            ExitCode::FAILURE
        }
    }
}

/// Writes who supervises, so that waiters notice its death.
fn introduce(context: &Context, run_dir: &Path) -> AppResult<()> {
    let identity = context.processes.own_identity().doing("read this process's identity")?;
    let text = serde_json::to_vec(&identity).unwrap_or_default();
    context.runs.note(run_dir, "supervisor.json", &text).doing("say who supervises")
}
