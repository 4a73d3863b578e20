//! `lane demo`: the main job in a throw-away repository, with a worker that needs no login.
//!
//! Everything is in one fresh folder of its own: a home, a state folder and a repository with a bug.
//! The worker is the scripted one of this binary, or the real CLI against the loopback server. The
//! call goes the same way as any other: plan, admission, supervisor, keeper, holdout, result.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{build, cannot_open, load_settings, open_ledger};
use crate::app::context::Context;
use crate::app::error::{AppError, AppResult, Doing};
use crate::app::lanes::require_lane;
use crate::app::ports::{Environment, Machine, PortError};
use crate::app::request::RunRequest;
use crate::app::run::{Ran, run};
use crate::app::wait::{WaitFor, wait};
use crate::cli::arguments::{DemoArguments, DemoWorker};
use crate::cli::exit;
use crate::cli::output::Output;
use crate::domain::plan::Plan;
use crate::domain::refusal::Refusal;
use crate::domain::result::LaneEnd;
use crate::domain::time::Millis;
use crate::infra::environment::EnvironmentSnapshot;
use crate::infra::loopback::{LoopbackServer, Script};
use crate::infra::machine::ThisMachine;
use crate::provider::demo::task;
use crate::wire::answers::Answer;
use crate::wire::lane_result::LaneResult;

/// The longest that the demonstration may take.
const LIMIT: Millis = Millis::from_secs(120);

/// Variables of the person's that the demonstration needs.
const PASSED_ON: [&str; 6] = ["PATH", "LANG", "TZ", "LANE_CODEX_BIN", "LANE_CLAUDE_BIN", "TMPDIR"];

/// Runs the main job, prints its result, tells on stderr what happened, and returns the exit code.
pub fn demo(snapshot: &EnvironmentSnapshot, arguments: &DemoArguments, output: &Output) -> AppResult<u8> {
    let root = make_root(snapshot)?;
    let server = match arguments.worker {
        DemoWorker::Scripted => None,
        DemoWorker::Codex | DemoWorker::Claude => Some(start_server()?),
    };
    let context = open(snapshot, &root, server.as_ref())?;
    make_repository(&context, &root.join("project"))?;
    output.note(&format!("A repository whose greet.sh has a bug is at {}", root.join("project").display()));
    output.note("lane run hands the brief to a worker in the background, in a checkout of its own ...");
    let plan = match run(&context, &request(&root, arguments.worker))? {
        Ran::Started(plan) | Ran::Queued(plan) | Ran::Routed(plan) => plan,
    };
    let lanes = [plan.lane_id.clone()];
    wait(&context, &lanes, WaitFor { any: false, limit: Some(LIMIT) })?;
    let row = require_lane(&context, &plan.lane_id)?;
    let Some(end) = &row.end else {
        return Err(failed(
            "run the demonstration",
            PortError::other(format!("{} has not ended in time", plan.lane_id)),
        ));
    };
    let answer = Answer::Result(Box::new(LaneResult::new(&row.plan, end)));
    output.answer(&answer);
    tell(&row.plan, end, arguments.worker, &root).iter().for_each(|line| output.note(line));
    Ok(exit::code(&answer))
}

fn failed(doing: &str, source: PortError) -> AppError {
    AppError::Failed { doing: doing.to_owned(), source }
}

/// Makes the folder that holds everything. It stays, so that one can look around in it.
fn make_root(snapshot: &EnvironmentSnapshot) -> AppResult<PathBuf> {
    let parent = snapshot.path("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), Path::to_owned);
    let made = tempfile::Builder::new().prefix("lane-demo-").tempdir_in(&parent);
    let folder = made.map_err(|error| PortError::io(parent.display(), &error)).doing("make a folder")?;
    let root = folder.keep();
    let root = ThisMachine.resolve_dir(&root).doing("make a folder")?;
    for name in ["home/.codex", "state", "project"] {
        ThisMachine.ensure_private_dir(&root.join(name)).doing("make a folder")?;
    }
    Ok(root)
}

fn start_server() -> AppResult<LoopbackServer> {
    LoopbackServer::start(Script::demo())
        .map_err(|error| PortError::io("listening on 127.0.0.1", &error))
        .doing("start the built-in server")
}

/// A context whose home and state lie in `root`, with dummy logins for the built-in server alone.
fn open(snapshot: &EnvironmentSnapshot, root: &Path, server: Option<&LoopbackServer>) -> AppResult<Context> {
    let state = root.join("state");
    let mut variables: Vec<(OsString, OsString)> =
        PASSED_ON.iter().filter_map(|name| Some((OsString::from(name), snapshot.raw(name)?.to_owned()))).collect();
    variables.push(("HOME".into(), root.join("home").into_os_string()));
    variables.push(("LANE_STATE".into(), state.clone().into_os_string()));
    if let Some(server) = server {
        let config = format!(
            "[providers.openai]\nbase_url = \"{}\"\n\n[providers.claude]\nbase_url = \"{}\"\n",
            server.openai_base_url(),
            server.claude_base_url()
        );
        let file = state.join("config.toml");
        std::fs::write(&file, config)
            .map_err(|error| PortError::io(file.display(), &error))
            .doing("write a configuration")?;
        for name in ["CODEX_API_KEY", "ANTHROPIC_API_KEY"] {
            variables.push((name.into(), "dummy-key-of-lane-demo".into()));
        }
    }
    let mut own = EnvironmentSnapshot::of(variables);
    own.current_dir = Some(root.to_owned());
    own.current_exe.clone_from(&snapshot.current_exe);
    let settings = load_settings(&own, &state)?;
    let ledger = open_ledger(&state).map_err(|error| cannot_open(&state, error))?;
    Ok(build(&own, &state, settings, Box::new(ledger)))
}

fn make_repository(context: &Context, project: &Path) -> AppResult<()> {
    for (name, text) in [(task::FILE, task::BEFORE), task::PROTECTED] {
        let path = project.join(name);
        std::fs::write(&path, text)
            .map_err(|error| PortError::io(path.display(), &error))
            .doing("write the project")?;
    }
    for arguments in [
        &["init", "-q", "-b", "main"] as &[&str],
        &["config", "user.name", "Lane demo"],
        &["config", "user.email", "demo@localhost"],
        &["add", "."],
        &["commit", "-q", "-m", "a script with a bug"],
    ] {
        git(context, project, arguments)?;
    }
    Ok(())
}

fn git(context: &Context, project: &Path, arguments: &[&str]) -> AppResult<()> {
    let search_path = context.surroundings.variable("PATH").map(OsString::as_os_str);
    let Some(program) = context.machine.find_program(None, "git", search_path) else {
        return Err(Refusal::usage("git is not on PATH", "install git 2.38 or later").into());
    };
    let mut environment = Environment(context.surroundings.variables.clone());
    environment.0.retain(|(name, _)| name == "PATH" || name == "HOME");
    let folder = project.display().to_string();
    let mut words = vec!["-C", folder.as_str()];
    words.extend_from_slice(arguments);
    let asked = context.processes.ask(&program, &words, &environment, Millis::from_secs(30)).doing("run git")?;
    match asked.exit_code {
        Some(0) => Ok(()),
        _ => Err(failed("run git", PortError::other(format!("git {}: {}", arguments.join(" "), asked.stderr.trim())))),
    }
}

fn request(root: &Path, worker: DemoWorker) -> RunRequest {
    RunRequest {
        brief: task::BRIEF.as_bytes().to_vec(),
        cwd: Some(root.join("project")),
        profile: Some(if worker == DemoWorker::Claude { "opus" } else { "implement" }.to_owned()),
        label: Some("demo".to_owned()),
        holdout: vec![task::HOLDOUT.to_owned()],
        protect: vec![PathBuf::from(task::PROTECTED.0)],
        max_time: Some(LIMIT),
        demo_worker: worker == DemoWorker::Scripted,
        ..RunRequest::default()
    }
}

/// The readable account.
fn tell(plan: &Plan, end: &LaneEnd, worker: DemoWorker, root: &Path) -> Vec<String> {
    let who = match worker {
        DemoWorker::Scripted => "a scripted worker inside this binary",
        DemoWorker::Codex => "the real Codex CLI, answered by a built-in server",
        DemoWorker::Claude => "the real Claude Code CLI, answered by a built-in server",
    };
    let changes = end.changes.clone().unwrap_or_default();
    let verdict = match end.holdout.as_ref().and_then(|holdout| holdout.passed) {
        Some(true) => "it passed, and check.sh is unchanged",
        Some(false) => "it FAILED",
        None => "it could not run",
    };
    let accepted = match end.accepted {
        Some(true) => "true: you may take the branch as it is",
        Some(false) => "false: look before you take anything",
        None => "null: nothing proves the work",
    };
    let project = root.join("project").display().to_string();
    let marker = end.marker.map_or("nothing that it was asked to say", crate::domain::worker::Marker::as_str);
    vec![
        String::new(),
        "What happened".to_owned(),
        format!("  worker     {who}, in {}", plan.checkout_path.display()),
        format!("  it says    {marker}"),
        format!(
            "  git says   {} commits, {} files, +{} -{} on {}",
            changes.commits,
            changes.files,
            changes.insertions,
            changes.deletions,
            plan.lane_id.branch()
        ),
        format!("  the check  `{}` ran outside the worker's sandbox: {verdict}", task::HOLDOUT),
        format!("  accepted   {accepted}"),
        String::new(),
        "Look around".to_owned(),
        format!("  git -C {project} log --oneline --all"),
        format!("  git -C {project} diff main {}", plan.lane_id.branch()),
        format!("  LANE_STATE={} lane status {}", root.join("state").display(), plan.lane_id),
        format!("  rm -r {}    (everything of this demonstration)", root.display()),
        String::new(),
        "Next".to_owned(),
        "  lane doctor                  what Lane needs, and how to mend it".to_owned(),
        "  lane run --help              a lane of your own: README.md, docs/briefs.md".to_owned(),
    ]
}
