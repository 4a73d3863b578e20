//! What every use case is handed: the ports, the settings and who calls.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::ports::{Clock, Environment, Git, Ledger, Machine, Processes, Random, RunFolders};
use crate::domain::config::Settings;
use crate::domain::environment::{LOGIN_NAMES, sift};
use crate::domain::plan::{Caller, Plan};
use crate::domain::result::LaneEnd;

/// What every use case is handed.
pub struct Context {
    /// The clocks.
    pub clock: Arc<dyn Clock>,
    /// Random numbers.
    pub random: Box<dyn Random>,
    /// The record.
    pub ledger: Box<dyn Ledger>,
    /// Run folders.
    pub runs: Box<dyn RunFolders>,
    /// Git.
    pub git: Box<dyn Git>,
    /// Processes.
    pub processes: Box<dyn Processes>,
    /// Files and namespaces.
    pub machine: Box<dyn Machine>,
    /// The person's settings.
    pub settings: Settings,
    /// Who calls, and from where.
    pub surroundings: CallerSurroundings,
    /// The state folder.
    pub state_dir: PathBuf,
    /// This program.
    pub executable: PathBuf,
    /// Writes the result as the line that goes to `result.json`.
    pub render_result: fn(&Plan, &LaneEnd) -> Vec<u8>,
    /// What people should know besides the answer.
    pub notes: Notes,
}

/// Lines for people, each said once.
pub struct Notes {
    say: fn(&str),
    said: Mutex<BTreeSet<String>>,
}

impl Notes {
    /// Builds it; `say` is what carries a line to people.
    pub const fn new(say: fn(&str)) -> Self {
        Self { say, said: Mutex::new(BTreeSet::new()) }
    }

    /// Says a line, unless it was said before.
    pub fn once(&self, line: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.contains(&line) {
            (self.say)(&line);
            said.insert(line);
        }
    }
}

/// One look at the caller's environment.
#[derive(Clone, Default)]
pub struct CallerSurroundings {
    /// Every variable whose name is text.
    pub variables: Vec<(String, OsString)>,
    /// The directory that Lane was called in.
    pub directory: PathBuf,
}

/// Variables of Lane's own that a supervisor needs, besides what its lane may see.
const OWN_NAMES: [&str; 9] = [
    "LANE_STATE",
    "LANE_WORKTREE_ROOT",
    "LANE_MAX_CONCURRENT",
    "LANE_CODEX_BIN",
    "LANE_CLAUDE_BIN",
    "LANE_CODEX_HOME",
    "LANE_TEST_CLOCK_FILE",
    "LANE_TEST_BOOT_ID_FILE",
    "CODEX_HOME",
];

impl CallerSurroundings {
    /// Returns a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&OsString> {
        self.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value).filter(|value| !value.is_empty())
    }

    /// Returns a variable as text, if it is set, not empty and UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.variable(name).and_then(|value| value.to_str())
    }

    /// The person's home folder.
    pub fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }

    /// Who calls, from the caller's own variables; `None` for a person or a script.
    pub fn caller(&self) -> Option<Caller> {
        let caller = |family: &str, session: Option<&str>| Caller {
            family: family.to_owned(),
            session_id: session.map(str::to_owned),
        };
        if self.variable("CLAUDECODE").is_some() {
            Some(caller("claude", self.text("CLAUDE_CODE_SESSION_ID")))
        } else if let Some(thread) = self.text("CODEX_THREAD_ID") {
            Some(caller("codex", Some(thread)))
        } else if self.variable("AI_AGENT").is_some() {
            Some(caller("agent", None))
        } else {
            None
        }
    }

    /// Names of the login variables that are set.
    pub fn login_names(&self) -> Vec<String> {
        LOGIN_NAMES.iter().filter(|name| self.variable(name).is_some()).map(|name| (*name).to_owned()).collect()
    }
}

impl Context {
    /// The environment of a supervisor: what a worker may see, Lane's own variables and the logins.
    pub fn supervisor_environment(&self) -> Environment {
        let sifted = sift(&self.surroundings.variables, &[]);
        let mut kept = sifted.kept;
        for name in OWN_NAMES.iter().chain(LOGIN_NAMES.iter()) {
            if let Some(value) = self.surroundings.variable(name) {
                kept.push(((*name).to_owned(), value.clone()));
            }
        }
        // A relative or missing LANE_STATE must not mean another folder once the directory is `/`.
        kept.retain(|(name, _)| name != "LANE_STATE");
        kept.push(("LANE_STATE".to_owned(), self.state_dir.clone().into_os_string()));
        Environment(kept)
    }

    /// Where the checkouts go.
    pub fn checkout_root(&self) -> PathBuf {
        self.settings.checkout_root.clone().unwrap_or_else(|| self.state_dir.join("checkouts"))
    }

    /// The Codex home that is used unless a flag names another.
    pub fn codex_home(&self) -> Option<PathBuf> {
        let from_variable = self.surroundings.variable("CODEX_HOME").map(PathBuf::from);
        let from_home = || self.surroundings.home().map(|home| home.join(".codex"));
        self.settings.codex_home.clone().or(from_variable).or_else(from_home)
    }

    /// The run folder of a lane.
    pub fn run_dir(&self, lane_id: &crate::domain::ids::LaneId) -> PathBuf {
        self.state_dir.join("runs").join(lane_id.as_str())
    }

    /// Folders inside a run folder that only its worker uses.
    pub fn private_dirs(run_dir: &Path) -> PrivateDirs {
        PrivateDirs { temp: run_dir.join("tmp"), cache: run_dir.join("cache"), claude_config: run_dir.join("claude") }
    }
}

/// Folders that only one worker uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateDirs {
    /// For temporary files.
    pub temp: PathBuf,
    /// For the caches of tools.
    pub cache: PathBuf,
    /// For Claude's configuration.
    pub claude_config: PathBuf,
}
