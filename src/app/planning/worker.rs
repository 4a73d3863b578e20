//! Which executable, login home and confinement a worker gets.

use std::path::{Path, PathBuf};

use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::request::RunRequest;
use crate::app::worker_cli::{CliFacts, cli_facts};
use crate::domain::profile::Profile;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::worker::{Enforcement, ProviderName};

/// What was chosen for the worker.
pub(super) struct ChosenCli {
    pub(super) program: PathBuf,
    pub(super) codex_home: Option<PathBuf>,
    pub(super) base_url: Option<String>,
    pub(super) enforcement: Enforcement,
    pub(super) warnings: Vec<String>,
}

pub(super) fn worker_cli(
    context: &Context,
    request: &RunRequest,
    profile: &Profile,
    cwd: &Path,
) -> AppResult<ChosenCli> {
    let settings = &context.settings;
    match profile.provider {
        ProviderName::Demo => Ok(ChosenCli {
            program: context.executable.clone(),
            codex_home: None,
            base_url: None,
            enforcement: context.processes.enforcement(ProviderName::Demo).unwrap_or(Enforcement::None),
            warnings: Vec::new(),
        }),
        ProviderName::Claude => Ok(ChosenCli {
            program: require_program(context, settings.claude_bin.as_deref(), "claude", "LANE_CLAUDE_BIN")?,
            codex_home: None,
            base_url: settings.claude_base_url.clone(),
            enforcement: claude_enforcement(context)?,
            warnings: Vec::new(),
        }),
        ProviderName::Openai => {
            let program = require_program(context, settings.codex_bin.as_deref(), "codex", "LANE_CODEX_BIN")?;
            let codex_home = codex_home(context, request)?;
            let facts: CliFacts = cli_facts(context, &program, &codex_home, cwd)?;
            facts.require_sandbox()?;
            Ok(ChosenCli {
                program,
                codex_home: Some(codex_home),
                base_url: settings.openai_base_url.clone(),
                enforcement: Enforcement::Codex,
                warnings: Vec::new(),
            })
        }
    }
}

fn require_program(context: &Context, explicit: Option<&Path>, name: &str, variable: &str) -> AppResult<PathBuf> {
    let search_path = context.surroundings.variable("PATH").map(std::ffi::OsString::as_os_str);
    context.machine.find_program(explicit, name, search_path).ok_or_else(|| {
        let place = explicit.map_or_else(|| "on PATH".to_owned(), |path| format!("at {}", path.display()));
        Refusal::new(
            RefusalStatus::WorkerCliMissing,
            format!("`{name}` is not {place}"),
            format!("install it, or let {variable} name its executable; `lane doctor` shows what is found"),
        )
        .into()
    })
}

fn claude_enforcement(context: &Context) -> AppResult<Enforcement> {
    match context.processes.enforcement(ProviderName::Claude) {
        _ if context.settings.claude_without_sandbox => Ok(Enforcement::None),
        Ok(enforcement) => Ok(enforcement),
        Err(error) => Err(Refusal::new(
            RefusalStatus::SandboxUnavailable,
            format!("Claude workers cannot be confined here: {error}"),
            "use a kernel with Landlock (ABI 3 or later), or accept workers without a sandbox with `[sandbox] claude = \
             \"none\"` in config.toml",
        )
        .into()),
    }
}

fn codex_home(context: &Context, request: &RunRequest) -> AppResult<PathBuf> {
    let usual = request.codex_home.is_none();
    let home = match &request.codex_home {
        Some(home) => context.surroundings.directory.join(home),
        None => context
            .codex_home()
            .ok_or_else(|| Refusal::usage("no Codex home is known: HOME is not set", "set HOME or LANE_CODEX_HOME"))?,
    };
    if usual {
        context.machine.ensure_private_dir(&home).doing("make the Codex home")?;
    }
    context.machine.resolve_dir(&home).map_err(|error| {
        Refusal::usage(format!("Codex home {}: {error}", home.display()), "give a folder that exists and is logged in")
            .into()
    })
}
