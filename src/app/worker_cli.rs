//! What is known of a worker's executable, asked once and remembered.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::context::Context;
use super::error::{AppResult, Doing};
use super::ports::{Environment, PortResult};
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::time::Millis;

/// File in the state folder that remembers the answers.
const MEMORY_FILE: &str = "worker-cli.json";

/// The longest that a CLI may take for one such question.
const ASK_LIMIT: Millis = Millis::from_secs(30);

/// What one executable answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CliFacts {
    /// Features that it knows, by name.
    pub features: Vec<String>,
    /// Why its own sandbox does not work here; `None` when it does.
    pub sandbox_fault: Option<String>,
}

/// The remembered answers, by executable, its size and time, and the boot.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Memory {
    known: BTreeMap<String, CliFacts>,
}

impl CliFacts {
    /// Refuses when the sandbox does not work: Codex would exit 0 while every command fails.
    pub fn require_sandbox(&self) -> Result<(), Refusal> {
        match &self.sandbox_fault {
            None => Ok(()),
            Some(fault) => Err(Refusal::new(
                RefusalStatus::SandboxUnavailable,
                format!("Codex's own sandbox does not work here: {fault}"),
                "it needs user namespaces (bubblewrap); `lane doctor` asks again",
            )),
        }
    }
}

/// Returns what the Codex executable answers; asked once for each build of it and each boot.
pub fn cli_facts(context: &Context, program: &Path, codex_home: &Path, directory: &Path) -> AppResult<CliFacts> {
    let fingerprint = context.machine.fingerprint(program).doing("look at the worker's executable")?;
    let key = format!("{} {fingerprint} {}", program.display(), context.clock.boot_id());
    let mut memory = load_memory(context).unwrap_or_default();
    if let Some(facts) = memory.known.get(&key).filter(|facts| facts.sandbox_fault.is_none()) {
        return Ok(facts.clone());
    }
    let facts = ask_codex(context, program, codex_home, directory)?;
    // Only this boot's answers are kept, so the file cannot grow without end.
    memory.known.retain(|known, _| known.ends_with(&context.clock.boot_id()));
    memory.known.insert(key, facts.clone());
    if let Ok(text) = serde_json::to_vec(&memory) {
        context
            .runs
            .write(&context.state_dir, MEMORY_FILE, &text)
            .doing("remember what the worker's executable can")?;
    }
    Ok(facts)
}

fn load_memory(context: &Context) -> Option<Memory> {
    let text = context.runs.read_tail(&context.state_dir, MEMORY_FILE, 1 << 20).ok()??;
    serde_json::from_slice(&text).ok()
}

/// Asks the executable itself, with a clean environment.
pub fn ask_codex(context: &Context, program: &Path, codex_home: &Path, directory: &Path) -> AppResult<CliFacts> {
    let mut environment = context.supervisor_environment();
    environment.0.retain(|(name, _)| name == "PATH" || name == "HOME");
    environment.0.push(("CODEX_HOME".to_owned(), codex_home.as_os_str().to_owned()));
    // Codex refuses a home under its temporary folder, so that folder is one of Lane's own.
    let temp = context.state_dir.join("tmp");
    context.machine.ensure_private_dir(&temp).doing("make a temporary folder")?;
    environment.0.push(("TMPDIR".to_owned(), temp.into_os_string()));
    let features = context
        .processes
        .ask(program, &["features", "list"], &environment, ASK_LIMIT)
        .doing("ask Codex for its features")?;
    let features = if features.exit_code == Some(0) { feature_names(&features.stdout) } else { Vec::new() };
    Ok(CliFacts {
        features,
        sandbox_fault: sandbox_fault(context, program, directory, &environment).doing("try Codex's sandbox")?,
    })
}

/// Runs `true` in Codex's sandbox, as its own preflight.
fn sandbox_fault(
    context: &Context,
    program: &Path,
    directory: &Path,
    environment: &Environment,
) -> PortResult<Option<String>> {
    let directory = directory.display().to_string();
    let arguments = ["sandbox", "-P", ":workspace", "-C", directory.as_str(), "--", "true"];
    let asked = context.processes.ask(program, &arguments, environment, ASK_LIMIT)?;
    Ok(match asked.exit_code {
        Some(0) => None,
        Some(code) => Some(format!("exit {code}: {}", last_line(&asked.stderr))),
        None => Some("it did not answer in time".to_owned()),
    })
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message")
}

/// The first word of each line of `codex features list`.
fn feature_names(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_the_first_words() {
        let text = "apps       stable    true\nhooks   stable true\n\n";
        assert_eq!(feature_names(text), ["apps", "hooks"]);
    }
}
