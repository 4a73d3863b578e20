//! `lane doctor`: what Lane needs, how it is, and how to mend it.

use std::path::{Path, PathBuf};

use super::context::Context;
use super::ports::Environment;
use super::worker_cli::ask_codex;
use crate::domain::time::Millis;
use crate::domain::worker::{Enforcement, ProviderName};

/// Versions that the facts in `docs/providers/` were recorded with.
const TESTED_CODEX: &str = "0.171.0";
/// Likewise.
const TESTED_CLAUDE: &str = "2.1.332";

/// Below this much free space the state folder is broken for new lanes.
const LOW_DISK_BYTES: u64 = 200 << 20;

/// The longest that one question to a CLI may take.
const ASK_LIMIT: Millis = Millis::from_secs(20);

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Ok,
    /// Works, but somebody should look.
    Warn,
    /// Broken.
    Broken,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is.
    pub name: &'static str,
    /// How it is.
    pub health: Health,
    /// What was found.
    pub found: String,
    /// How to mend it.
    pub mend: Option<String>,
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check { name, health: Health::Ok, found: found.into(), mend: None }
}

fn bad(name: &'static str, health: Health, found: impl Into<String>, mend: &str) -> Check {
    Check { name, health, found: found.into(), mend: Some(mend.to_owned()) }
}

/// Looks at everything. Asks each CLI itself and reads no secret.
pub fn doctor(context: &Context) -> Vec<Check> {
    let mut checks = vec![git(context), state_folder(context), disk(context), ledger(context)];
    let codex = program(context, context.settings.codex_bin.as_deref(), "codex");
    let claude = program(context, context.settings.claude_bin.as_deref(), "claude");
    if codex.is_none() && claude.is_none() {
        checks.push(bad(
            "workers",
            Health::Broken,
            "neither codex nor claude is found",
            "install at least one of them",
        ));
    }
    checks.extend(codex_checks(context, codex.as_deref()));
    checks.extend(claude_checks(context, claude.as_deref()));
    checks
}

fn git(context: &Context) -> Check {
    match context.git.version() {
        Ok(version) => ok("git", version),
        Err(error) => bad("git", Health::Broken, error.to_string(), "install git 2.38 or later and put it on PATH"),
    }
}

fn state_folder(context: &Context) -> Check {
    let found = context.state_dir.display().to_string();
    match context.machine.try_writing(&context.state_dir) {
        Ok(()) => ok("state_folder", found),
        Err(error) => bad(
            "state_folder",
            Health::Broken,
            error.to_string(),
            "make it writable, or point LANE_STATE at another folder",
        ),
    }
}

fn disk(context: &Context) -> Check {
    match context.runs.free_bytes(&context.state_dir) {
        Ok(free) if free < LOW_DISK_BYTES => bad(
            "disk",
            Health::Broken,
            format!("{} MiB free", free >> 20),
            "make room; `lane clean --older-than 7d` removes old checkouts after saving them",
        ),
        Ok(free) => ok("disk", format!("{} MiB free", free >> 20)),
        Err(error) => bad("disk", Health::Warn, error.to_string(), "look at the file system of the state folder"),
    }
}

fn ledger(context: &Context) -> Check {
    match context.ledger.check() {
        Ok(report) => match (report.broken_at, report.projection_differs.len()) {
            (None, 0) => ok("ledger", format!("{} events, chain holds", report.events)),
            (None, count) => bad(
                "ledger",
                Health::Broken,
                format!("{count} lanes differ from their events"),
                "run `lane doctor --rebuild`, which builds the table of lanes anew from the events",
            ),
            (Some((event, why)), _) => bad(
                "ledger",
                Health::Broken,
                format!("event {event} does not fit the chain: {why}"),
                "the file was changed by something else: keep a copy, and start with a new LANE_STATE",
            ),
        },
        Err(error) => bad(
            "ledger",
            Health::Broken,
            error.to_string(),
            "make the state folder readable, or move lane.db (with lane.db-wal and lane.db-shm) aside: a new one is begun",
        ),
    }
}

fn program(context: &Context, explicit: Option<&Path>, name: &str) -> Option<PathBuf> {
    let search_path = context.surroundings.variable("PATH").map(std::ffi::OsString::as_os_str);
    context.machine.find_program(explicit, name, search_path)
}

fn version(context: &Context, name: &'static str, program: &Path, tested: &str) -> Check {
    let environment = plain_environment(context);
    match context.processes.ask(program, &["--version"], &environment, ASK_LIMIT) {
        Ok(asked) if asked.exit_code == Some(0) => {
            let found = format!("{} at {}", asked.stdout.trim(), program.display());
            if asked.stdout.contains(tested) {
                ok(name, found)
            } else {
                let mend = format!("Lane was tested with {tested}; install that version if something is off");
                Check { name, health: Health::Warn, found, mend: Some(mend) }
            }
        }
        Ok(asked) => {
            bad(name, Health::Broken, format!("{}: {}", program.display(), asked.stderr.trim()), "install it anew")
        }
        Err(error) => bad(name, Health::Broken, error.to_string(), "install it anew"),
    }
}

fn plain_environment(context: &Context) -> Environment {
    let mut environment = context.supervisor_environment();
    environment
        .0
        .retain(|(name, _)| ["PATH", "HOME", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"].contains(&name.as_str()));
    let quiet = [("DISABLE_AUTOUPDATER", "1"), ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("TERM", "dumb")];
    environment.0.extend(quiet.map(|(name, value)| (name.to_owned(), value.into())));
    environment
}

fn codex_checks(context: &Context, program: Option<&Path>) -> Vec<Check> {
    let Some(program) = program else {
        return vec![bad("codex", Health::Warn, "not found", "install @openai/codex, or set LANE_CODEX_BIN")];
    };
    let mut checks = vec![version(context, "codex", program, TESTED_CODEX)];
    let Some(home) = context.codex_home() else {
        checks.push(bad("codex_home", Health::Broken, "HOME is not set", "set HOME or LANE_CODEX_HOME"));
        return checks;
    };
    checks.push(codex_home(context, &home));
    if !context.machine.exists(&home) {
        return checks;
    }
    checks.push(codex_login(context, program, &home));
    checks.push(match ask_codex(context, program, &home, &context.state_dir) {
        Ok(facts) => match facts.sandbox_fault {
            None => ok("codex_sandbox", "commands run in it"),
            Some(fault) => {
                bad("codex_sandbox", Health::Broken, fault, "allow unprivileged user namespaces, or install bubblewrap")
            }
        },
        Err(error) => {
            bad("codex_sandbox", Health::Broken, error.to_string(), "run `codex sandbox -P :workspace -- true` by hand")
        }
    });
    checks
}

fn codex_home(context: &Context, home: &Path) -> Check {
    let temp = context.surroundings.variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let found = home.display().to_string();
    if !context.machine.exists(home) {
        bad("codex_home", Health::Warn, format!("{found} is not there"), "run `codex login` once")
    } else if home.starts_with(&temp) {
        bad(
            "codex_home",
            Health::Warn,
            format!("{found} lies under the temporary folder {}", temp.display()),
            "Codex breaks its sandbox there when called by hand; keep the Codex home elsewhere",
        )
    } else {
        ok("codex_home", found)
    }
}

fn codex_login(context: &Context, program: &Path, home: &Path) -> Check {
    let mut environment = plain_environment(context);
    environment.0.push(("CODEX_HOME".to_owned(), home.as_os_str().to_owned()));
    let by_key = context.surroundings.variable("CODEX_API_KEY").is_some();
    match context.processes.ask(program, &["login", "status"], &environment, ASK_LIMIT) {
        Ok(asked) if asked.exit_code == Some(0) => ok("codex_login", asked.stderr.trim()),
        _ if by_key => ok("codex_login", "CODEX_API_KEY is set"),
        Ok(asked) => bad("codex_login", Health::Warn, asked.stderr.trim(), "run `codex login`, or set CODEX_API_KEY"),
        Err(error) => bad("codex_login", Health::Warn, error.to_string(), "run `codex login status` by hand"),
    }
}

fn claude_checks(context: &Context, program: Option<&Path>) -> Vec<Check> {
    let Some(program) = program else {
        return vec![bad(
            "claude",
            Health::Warn,
            "not found",
            "install @anthropic-ai/claude-code, or set LANE_CLAUDE_BIN",
        )];
    };
    vec![
        version(context, "claude", program, TESTED_CLAUDE),
        claude_login(context, program),
        match context.processes.enforcement(ProviderName::Claude) {
            Ok(Enforcement::Landlock) => bad(
                "claude_sandbox",
                Health::Warn,
                "Landlock confines writes; this kernel cannot confine signals",
                "a kernel from 6.12 on confines signals, too",
            ),
            Ok(Enforcement::LandlockScoped) => ok("claude_sandbox", "landlock-scoped: writes and signals are confined"),
            Ok(enforcement) => ok("claude_sandbox", format!("{enforcement:?}")),
            Err(error) => bad(
                "claude_sandbox",
                Health::Broken,
                error.to_string(),
                "use a kernel with Landlock (ABI 3 or later), or set `[sandbox] claude = \"none\"` in config.toml",
            ),
        },
    ]
}

/// `claude auth status` answers by its exit code and never shows a secret.
fn claude_login(context: &Context, program: &Path) -> Check {
    let environment = plain_environment(context);
    let by_variable = ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"]
        .into_iter()
        .find(|name| context.surroundings.variable(name).is_some());
    if let Some(name) = by_variable {
        return ok("claude_login", format!("{name} is set"));
    }
    match context.processes.ask(program, &["auth", "status"], &environment, ASK_LIMIT) {
        Ok(asked) if asked.exit_code == Some(0) => ok("claude_login", "logged in"),
        Ok(_) => bad(
            "claude_login",
            Health::Warn,
            "not logged in",
            "run `claude` once and log in, or set CLAUDE_CODE_OAUTH_TOKEN",
        ),
        Err(error) => bad("claude_login", Health::Warn, error.to_string(), "run `claude auth status` by hand"),
    }
}
