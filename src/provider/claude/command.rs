//! How Claude Code is started.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::super::text::private_folders;
use super::super::{PoliteSignal, Surroundings, WorkerCommand};
use crate::domain::time::Millis;
use crate::domain::worker::SandboxMode;

/// Logins, the preferred one first. Two at once would leave it to the CLI which account pays.
const LOGINS: [&str; 2] = ["CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"];

/// How often a failing request is sent again. The default of ten takes minutes, for a refused login too.
const MAX_RETRIES: &str = "4";

/// A command without a `timeout` of its own gets this long. The default of two minutes kills builds.
const COMMAND_TIME: Millis = Millis::from_secs(600);

/// Returns the command that starts a Claude Code worker. What it may write is confined around it.
pub(super) fn command(surroundings: &Surroundings<'_>) -> WorkerCommand {
    let plan = surroundings.plan;
    let mut arguments: Vec<OsString> =
        ["-p", "--output-format", "stream-json", "--verbose"].into_iter().map(OsString::from).collect();
    let mut pair = |flag: &str, value: &str| arguments.extend([OsString::from(flag), OsString::from(value)]);
    pair("--model", &plan.model);
    pair("--effort", plan.effort.as_str());
    if let Some(session_id) = &plan.session_id {
        pair("--session-id", session_id);
    }
    // Without this the repository's own hooks and servers would run.
    pair("--setting-sources", "");
    pair("--permission-mode", "dontAsk");
    pair("--permission-prompts", "none");
    arguments.push("--strict-mcp-config".into());
    arguments.push("--disable-slash-commands".into());
    arguments.extend(tools(surroundings));
    WorkerCommand {
        program: plan.program.clone(),
        arguments,
        set: variables(surroundings),
        logins: login(surroundings.login_names),
        polite_signal: PoliteSignal::Terminate,
    }
}

/// Which tools there are, and what they may do without being asked.
///
/// A reading worker gets no rule for Bash at all: the CLI's own analyser lets commands through that
/// only read, and a rule such as `Bash(git diff:*)` would let `git diff --output=FILE` write.
fn tools(surroundings: &Surroundings<'_>) -> Vec<OsString> {
    let plan = surroundings.plan;
    match plan.sandbox {
        SandboxMode::ReadOnly => words(&["--tools", "Read,Grep,Glob,Bash", "--allowedTools", "Read"]),
        SandboxMode::WorkspaceWrite => {
            let mut arguments: Vec<OsString> = Vec::new();
            for folder in &plan.add_dirs {
                arguments.extend([OsString::from("--add-dir"), folder.clone().into_os_string()]);
            }
            arguments.extend(words(&["--tools", "Read,Edit,Write,Grep,Glob,Bash"]));
            arguments.extend(words(&["--allowedTools", "Read", "Edit(./**)", "Bash"]));
            arguments.extend(plan.add_dirs.iter().map(|folder| edit_rule(folder)));
            arguments
        }
    }
}

/// A rule for edits below an absolute path, which two slashes begin.
fn edit_rule(folder: &Path) -> OsString {
    let mut rule = OsString::from("Edit(/");
    rule.push(folder);
    rule.push("/**)");
    rule
}

fn variables(surroundings: &Surroundings<'_>) -> Vec<(String, OsString)> {
    let mut set = private_folders(surroundings.temp_dir, surroundings.cache_dir);
    let mut add = |name: &str, value: &OsStr| set.push((name.to_owned(), value.to_owned()));
    add("CLAUDE_CODE_TMPDIR", surroundings.temp_dir.as_os_str());
    add("CLAUDE_CONFIG_DIR", surroundings.claude_config_dir.as_os_str());
    add("DISABLE_AUTOUPDATER", OsStr::new("1"));
    add("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", OsStr::new("1"));
    add("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", OsStr::new("1"));
    add("CLAUDE_CODE_MAX_RETRIES", OsStr::new(MAX_RETRIES));
    let max_time = surroundings.plan.max_time;
    add("BASH_DEFAULT_TIMEOUT_MS", OsStr::new(&COMMAND_TIME.min(max_time).0.to_string()));
    add("BASH_MAX_TIMEOUT_MS", OsStr::new(&max_time.0.to_string()));
    if let Some(base_url) = &surroundings.plan.base_url {
        add("ANTHROPIC_BASE_URL", OsStr::new(base_url));
    }
    set
}

fn login(names: &[String]) -> Vec<String> {
    LOGINS
        .iter()
        .find(|login| names.iter().any(|name| name == *login))
        .map(|login| (*login).to_owned())
        .into_iter()
        .collect()
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::{arguments, plan, surroundings, variable};
    use super::*;
    use crate::domain::plan::Plan;
    use crate::domain::worker::ProviderName;

    const START: [&str; 17] = [
        "-p",
        "--output-format",
        "stream-json",
        "--verbose",
        "--model",
        "model-x",
        "--effort",
        "high",
        "--setting-sources",
        "",
        "--permission-mode",
        "dontAsk",
        "--permission-prompts",
        "none",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--tools",
    ];

    #[test]
    fn a_writer_may_edit_below_its_checkout_and_run_commands() {
        let plan = plan(ProviderName::Claude);
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        let end = ["Read,Edit,Write,Grep,Glob,Bash", "--allowedTools", "Read", "Edit(./**)", "Bash"];
        assert_eq!(arguments(&command), [&START[..], &end[..]].concat());
        assert_eq!(command.polite_signal, PoliteSignal::Terminate);
        assert_eq!(variable(&command, "CLAUDE_CONFIG_DIR"), Some("/run/l/claude"));
        assert_eq!(variable(&command, "CLAUDE_CODE_TMPDIR"), Some("/run/l/tmp"));
        assert_eq!(variable(&command, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"), Some("1"));
        assert_eq!(variable(&command, "ANTHROPIC_BASE_URL"), None);
        assert_eq!(variable(&command, "BASH_DEFAULT_TIMEOUT_MS"), Some("600000"));
        assert_eq!(variable(&command, "BASH_MAX_TIMEOUT_MS"), Some("2700000"));
    }

    #[test]
    fn a_reader_has_no_rule_for_bash() {
        let plan = Plan { sandbox: SandboxMode::ReadOnly, add_dirs: vec!["/m".into()], ..plan(ProviderName::Claude) };
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        let end = ["Read,Grep,Glob,Bash", "--allowedTools", "Read"];
        assert_eq!(arguments(&command), [&START[..], &end[..]].concat());
    }

    #[test]
    fn more_folders_may_be_edited_by_their_absolute_path() {
        let plan = Plan { add_dirs: vec!["/more/a b".into()], ..plan(ProviderName::Claude) };
        let words = arguments(&command(&surroundings(&plan, "/lanes/wt/.git")));
        assert!(words.windows(2).any(|pair| pair == ["--add-dir", "/more/a b"]), "{words:?}");
        assert_eq!(words.last().map(String::as_str), Some("Edit(//more/a b/**)"));
    }

    #[test]
    fn one_login_is_let_through_and_only_one_that_is_set() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(login(&names(&[])), Vec::<String>::new());
        assert_eq!(login(&names(&["ANTHROPIC_API_KEY", "AWS_SECRET"])), ["ANTHROPIC_API_KEY"]);
        assert_eq!(login(&names(&["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"])), ["CLAUDE_CODE_OAUTH_TOKEN"]);
    }

    #[test]
    fn session_and_address_are_those_of_the_plan() {
        let plan = Plan {
            session_id: Some("9b2d7b8e-0000-4000-8000-000000000000".into()),
            base_url: Some("http://127.0.0.1:9".into()),
            ..plan(ProviderName::Claude)
        };
        let command = command(&surroundings(&plan, "/lanes/wt/.git"));
        let words = arguments(&command);
        assert!(words.windows(2).any(|pair| pair[0] == "--session-id" && pair[1].starts_with("9b2d")), "{words:?}");
        assert_eq!(variable(&command, "ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:9"));
    }
}
