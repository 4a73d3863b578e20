//! How Codex is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::super::text::private_folders;
use super::super::{PoliteSignal, Surroundings, WorkerCommand};
use crate::domain::plan::Plan;
use crate::domain::worker::{CheckoutMode, Enforcement, SandboxMode};

/// The variable with Codex's API key. A login of the Codex home needs none.
const API_KEY: &str = "CODEX_API_KEY";

/// Features that a background worker does not need: each is another tool, address or surprise.
///
/// `unbounded_connection_retries` would hide a server that is down behind an endless wait.
const DISABLED_FEATURES: [&str; 12] = [
    "plugins",
    "apps",
    "remote_plugin",
    "plugin_sharing",
    "multi_agent",
    "goals",
    "hooks",
    "memories",
    "image_generation",
    "view_image",
    "shell_snapshot",
    "unbounded_connection_retries",
];

/// After so long without a byte a stream of ours is given up and asked for again, at most.
const STREAM_IDLE_MAX_MS: u64 = 300_000;
/// ... and at least, so that a short idle limit does not break every slow answer.
const STREAM_IDLE_MIN_MS: u64 = 1_000;

/// Returns the command that starts a Codex worker.
pub(super) fn command(surroundings: &Surroundings<'_>) -> WorkerCommand {
    let plan = surroundings.plan;
    let mut arguments = Arguments(vec!["exec".into()]);
    arguments.pair("-C", &plan.checkout_path);
    sandbox(&mut arguments, surroundings);
    arguments.word("--json");
    arguments.pair("-o", surroundings.last_message_path);
    for flag in ["--skip-git-repo-check", "--ignore-user-config", "--ignore-rules"] {
        arguments.word(flag);
    }
    // Codex ends at once over a feature that it does not know.
    for feature in
        DISABLED_FEATURES.iter().filter(|name| surroundings.known_features.iter().any(|known| known == *name))
    {
        arguments.pair("--disable", feature);
    }
    settings(&mut arguments, plan);
    arguments.pair("-m", &plan.model);
    arguments.word("-");
    let mut set = private_folders(surroundings.temp_dir, surroundings.cache_dir);
    if let Some(codex_home) = &plan.codex_home {
        set.push(("CODEX_HOME".to_owned(), codex_home.clone().into_os_string()));
    }
    WorkerCommand {
        program: plan.program.clone(),
        arguments: arguments.0,
        set,
        logins: surroundings.login_names.iter().filter(|name| *name == API_KEY).cloned().collect(),
        polite_signal: PoliteSignal::Interrupt,
    }
}

/// What the worker's commands may write and reach.
fn sandbox(arguments: &mut Arguments, surroundings: &Surroundings<'_>) {
    let plan = surroundings.plan;
    match (plan.enforcement, plan.sandbox) {
        (Enforcement::None, SandboxMode::ReadOnly | SandboxMode::WorkspaceWrite) => {
            arguments.pair("-s", "danger-full-access");
        }
        (
            Enforcement::Codex | Enforcement::Landlock | Enforcement::LandlockScoped | Enforcement::Seatbelt,
            SandboxMode::ReadOnly,
        ) => arguments.pair("-s", "read-only"),
        (
            Enforcement::Codex | Enforcement::Landlock | Enforcement::LandlockScoped | Enforcement::Seatbelt,
            SandboxMode::WorkspaceWrite,
        ) => {
            arguments.pair("-s", "workspace-write");
            for folder in writable(surroundings) {
                arguments.pair("--add-dir", folder);
            }
            // Both would be writable by default, for every lane alike.
            arguments.setting("sandbox_workspace_write.exclude_slash_tmp", "true");
            arguments.setting("sandbox_workspace_write.exclude_tmpdir_env_var", "true");
            if plan.network {
                arguments.setting("sandbox_workspace_write.network_access", "true");
            }
        }
    }
}

/// The folders besides the checkout that a writing worker may write.
fn writable(surroundings: &Surroundings<'_>) -> Vec<PathBuf> {
    let plan = surroundings.plan;
    let mut folders = match plan.checkout {
        CheckoutMode::Clone | CheckoutMode::None => surroundings.git_dir.map(Path::to_path_buf).into_iter().collect(),
        CheckoutMode::Linked => linked_grants(plan, surroundings.git_dir),
    };
    folders.push(surroundings.temp_dir.to_path_buf());
    folders.push(surroundings.cache_dir.to_path_buf());
    folders.extend(plan.add_dirs.iter().cloned());
    folders
}

/// What a commit in a linked worktree needs of the repository that all its worktrees share.
///
/// The whole git folder would open its configuration, its hooks and every branch.
fn linked_grants(plan: &Plan, git_dir: Option<&Path>) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = git_dir.map(Path::to_path_buf).into_iter().collect();
    if let (Some(repository), Some(branch)) = (&plan.repository, plan.branch()) {
        let common = &repository.common_dir;
        folders.push(common.join("objects"));
        // Git writes a lock beside the branch's file, so the grant is on the folder around it.
        for side in ["refs/heads", "logs/refs/heads"] {
            folders.extend(common.join(side).join(&branch).parent().map(Path::to_path_buf));
        }
    }
    folders
}

fn settings(arguments: &mut Arguments, plan: &Plan) {
    for (key, value) in [
        ("web_search", "\"disabled\""),
        ("skills.bundled.enabled", "false"),
        ("analytics.enabled", "false"),
        ("check_for_update_on_startup", "false"),
    ] {
        arguments.setting(key, value);
    }
    command_environment(arguments, plan);
    if let Some(base_url) = &plan.base_url {
        arguments.setting("model_provider", "\"lane\"");
        arguments.setting("model_providers.lane", &custom_provider(plan, base_url));
    }
    arguments.setting("model_reasoning_effort", &toml_text(plan.effort.as_str()));
}

/// Keeps the login from the worker's commands.
///
/// Codex can also drop every name with KEY, SECRET or TOKEN in it. That is the second line of
/// defence, and gives way only where the caller asked by name to let such a variable through.
fn command_environment(arguments: &mut Arguments, plan: &Plan) {
    let looks_secret = |name: &String| {
        let name = name.to_ascii_uppercase();
        ["KEY", "SECRET", "TOKEN"].iter().any(|part| name.contains(part))
    };
    let keep_names = plan.env_names.iter().any(looks_secret);
    arguments.setting("shell_environment_policy.ignore_default_excludes", if keep_names { "true" } else { "false" });
    arguments.setting("shell_environment_policy.exclude", "[\"CODEX_API_KEY\", \"OPENAI_API_KEY\"]");
}

/// A server of the person's own, spoken to by plain HTTP with whatever login Codex has.
///
/// Moving the default provider there would try WebSockets seven times before each first answer.
fn custom_provider(plan: &Plan, base_url: &str) -> String {
    let idle_ms = (plan.idle_time.0 / 3).clamp(STREAM_IDLE_MIN_MS, STREAM_IDLE_MAX_MS);
    format!(
        "{{name=\"lane\",base_url={},wire_api=\"responses\",requires_openai_auth=true,\
         stream_idle_timeout_ms={idle_ms},supports_websockets=false}}",
        toml_text(base_url)
    )
}

fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Arguments as they are put together.
struct Arguments(Vec<OsString>);

impl Arguments {
    fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn pair(&mut self, flag: &str, value: impl AsRef<std::ffi::OsStr>) {
        self.0.push(flag.into());
        self.0.push(value.as_ref().to_owned());
    }

    fn setting(&mut self, key: &str, value: &str) {
        self.pair("-c", format!("{key}={value}"));
    }
}
