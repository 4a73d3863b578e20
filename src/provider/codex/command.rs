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

#[cfg(test)]
mod tests {
    use super::super::super::samples::{arguments, plan, surroundings, variable};
    use super::*;
    use crate::domain::time::Millis;
    use crate::domain::worker::ProviderName;

    fn after(command: &WorkerCommand, flag: &str) -> Vec<String> {
        let words = arguments(command);
        words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1].clone()).collect()
    }

    #[test]
    fn a_writer_in_a_clone_may_write_its_own_git_folder_and_nothing_shared() {
        let plan = Plan { add_dirs: vec!["/more".into()], ..plan(ProviderName::Openai) };
        let known = ["apps".to_owned(), "unbounded_connection_retries".to_owned(), "new_one".to_owned()];
        let logins = [API_KEY.to_owned(), "OPENAI_API_KEY".to_owned()];
        let surroundings =
            Surroundings { known_features: &known, login_names: &logins, ..surroundings(&plan, "/lanes/wt/.git") };
        let command = command(&surroundings);
        let words = arguments(&command);
        assert_eq!(words[..3], ["exec", "-C", "/lanes/wt"]);
        assert_eq!(after(&command, "-s"), ["workspace-write"]);
        let writable = ["/lanes/wt/.git", "/run/l/tmp", "/run/l/cache", "/more"];
        assert_eq!(after(&command, "--add-dir"), writable);
        assert_eq!(after(&command, "--disable"), ["apps", "unbounded_connection_retries"]);
        assert_eq!(words[words.len() - 3..], ["-m", "model-x", "-"]);
        for setting in [
            "sandbox_workspace_write.exclude_slash_tmp=true",
            "sandbox_workspace_write.exclude_tmpdir_env_var=true",
            "shell_environment_policy.ignore_default_excludes=false",
            "model_reasoning_effort=\"high\"",
        ] {
            assert!(after(&command, "-c").contains(&setting.to_owned()), "{setting}");
        }
        assert_eq!(command.logins, [API_KEY]);
        assert_eq!(command.polite_signal, PoliteSignal::Interrupt);
        assert_eq!(variable(&command, "CODEX_HOME"), Some("/home/u/.codex"));
        assert_eq!(variable(&command, "TMPDIR"), Some("/run/l/tmp"));
    }

    #[test]
    fn a_linked_worktree_gets_narrow_grants() {
        let plan = Plan { checkout: CheckoutMode::Linked, ..plan(ProviderName::Openai) };
        let command = command(&surroundings(&plan, "/repo/.git/worktrees/wt"));
        let expected = [
            "/repo/.git/worktrees/wt",
            "/repo/.git/objects",
            "/repo/.git/refs/heads/lane",
            "/repo/.git/logs/refs/heads/lane",
            "/run/l/tmp",
            "/run/l/cache",
        ];
        assert_eq!(after(&command, "--add-dir"), expected);
    }

    #[test]
    fn a_reader_is_granted_nothing() {
        let plan = Plan { sandbox: SandboxMode::ReadOnly, network: true, ..plan(ProviderName::Openai) };
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        assert_eq!(after(&command, "-s"), ["read-only"]);
        assert_eq!(after(&command, "--add-dir"), Vec::<String>::new());
        assert!(!arguments(&command).iter().any(|word| word.starts_with("sandbox_workspace_write")));
        assert_eq!(command.logins, Vec::<String>::new());
    }

    #[test]
    fn a_server_of_ones_own_is_spoken_to_without_websockets() {
        let url = "http://127.0.0.1:9/v1\"x";
        let plan = Plan { base_url: Some(url.into()), idle_time: Millis(90_000), ..plan(ProviderName::Openai) };
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        let settings = after(&command, "-c");
        let table = settings.iter().find_map(|word| word.strip_prefix("model_providers.lane=")).unwrap();
        let parsed: toml::Table = toml::from_str(&format!("lane = {table}")).unwrap();
        assert_eq!(parsed["lane"]["base_url"].as_str(), Some(url));
        assert_eq!(parsed["lane"]["stream_idle_timeout_ms"].as_integer(), Some(30_000));
        assert_eq!(parsed["lane"]["supports_websockets"].as_bool(), Some(false));
        assert!(settings.contains(&"model_provider=\"lane\"".to_owned()));
    }

    #[test]
    fn a_secret_that_the_caller_named_reaches_the_commands_and_the_login_does_not() {
        let plan = Plan { env_names: vec!["NPM_TOKEN".into()], ..plan(ProviderName::Openai) };
        let settings = after(&command(&surroundings(&plan, "/lanes/wt/.git")), "-c");
        for setting in [
            "shell_environment_policy.ignore_default_excludes=true",
            "shell_environment_policy.exclude=[\"CODEX_API_KEY\", \"OPENAI_API_KEY\"]",
        ] {
            assert!(settings.contains(&setting.to_owned()), "{setting}: {settings:?}");
        }
    }

    #[test]
    fn network_and_no_sandbox_are_asked_for_by_name() {
        let plan = Plan { network: true, ..plan(ProviderName::Openai) };
        let settings = after(&command(&surroundings(&plan, "/lanes/wt/.git")), "-c");
        assert!(settings.contains(&"sandbox_workspace_write.network_access=true".to_owned()));
        let plan = Plan { enforcement: Enforcement::None, ..plan };
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        assert_eq!(after(&command, "-s"), ["danger-full-access"]);
    }
}
