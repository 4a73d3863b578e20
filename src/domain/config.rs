//! The person's settings: `config.toml`, and over it a few variables.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::duration::parse_duration;
use super::time::Millis;

/// Lanes at once, if the person says nothing.
pub const DEFAULT_MAX_CONCURRENT: u32 = 4;

/// Folders that `lane clean` may leave out, if the person says nothing: tools build them anew.
const DEFAULT_REBUILDABLE: [&str; 8] =
    ["target", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".gradle", ".tox"];

/// Everything that the person can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Lanes at once in this state folder.
    pub max_concurrent: u32,
    /// Where checkouts go; `None` for `checkouts/` in the state folder.
    pub checkout_root: Option<PathBuf>,
    /// Codex's executable; `None` to look for `codex` on `PATH`.
    pub codex_bin: Option<PathBuf>,
    /// Claude's executable; `None` to look for `claude` on `PATH`.
    pub claude_bin: Option<PathBuf>,
    /// The Codex home; `None` for `$CODEX_HOME`, else `~/.codex`.
    pub codex_home: Option<PathBuf>,
    /// Address that Codex is sent to instead of its own.
    pub openai_base_url: Option<String>,
    /// Address that Claude is sent to instead of its own.
    pub claude_base_url: Option<String>,
    /// Ignored files to bring along into each checkout, by name.
    pub checkout_include: Vec<String>,
    /// Command that runs once in each fresh checkout, inside the sandbox.
    pub setup: Option<String>,
    /// Limit on `setup`.
    pub setup_time: Millis,
    /// Folder names that `lane clean` may leave out.
    pub rebuildable: Vec<String>,
    /// From the polite signal to KILL.
    pub grace: Millis,
    /// Limit on each holdout command.
    pub holdout_time: Millis,
    /// Whether Claude workers may run without a sandbox.
    pub claude_without_sandbox: bool,
    /// Variables that every worker may see, besides the built-in list.
    pub env_names: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_concurrent: DEFAULT_MAX_CONCURRENT,
            checkout_root: None,
            codex_bin: None,
            claude_bin: None,
            codex_home: None,
            openai_base_url: None,
            claude_base_url: None,
            checkout_include: Vec::new(),
            setup: None,
            setup_time: Millis::from_secs(600),
            rebuildable: DEFAULT_REBUILDABLE.iter().map(|name| (*name).to_owned()).collect(),
            grace: Millis::from_secs(10),
            holdout_time: Millis::from_secs(600),
            claude_without_sandbox: false,
            env_names: Vec::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigFile {
    max_concurrent: Option<u32>,
    checkout_root: Option<PathBuf>,
    providers: ProvidersTable,
    checkout: CheckoutTable,
    limits: LimitsTable,
    sandbox: SandboxTable,
    worker: WorkerTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProvidersTable {
    openai: OpenaiTable,
    claude: ClaudeTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OpenaiTable {
    bin: Option<PathBuf>,
    base_url: Option<String>,
    codex_home: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClaudeTable {
    bin: Option<PathBuf>,
    base_url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CheckoutTable {
    include: Vec<String>,
    setup: Option<String>,
    setup_time: Option<String>,
    rebuildable: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    grace: Option<String>,
    holdout_time: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SandboxTable {
    claude: Option<ClaudeSandbox>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ClaudeSandbox {
    On,
    None,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WorkerTable {
    env: Vec<String>,
}

/// Why a text is no configuration. Names the key, and line and column where it is known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct InvalidConfig(pub String);

impl Settings {
    /// Reads the text of `config.toml`.
    pub fn from_toml(text: &str) -> Result<Self, InvalidConfig> {
        let file: ConfigFile = toml::from_str(text).map_err(|error| InvalidConfig(error.to_string()))?;
        let default = Self::default();
        let length = |key: &str, text: &Option<String>, default: Millis| match text {
            None => Ok(default),
            Some(text) => parse_duration(text).map_err(|error| InvalidConfig(format!("{key}: {error}"))),
        };
        Ok(Self {
            max_concurrent: at_least_one("max_concurrent", file.max_concurrent.unwrap_or(default.max_concurrent))?,
            checkout_root: file.checkout_root,
            codex_bin: file.providers.openai.bin,
            claude_bin: file.providers.claude.bin,
            codex_home: file.providers.openai.codex_home,
            openai_base_url: base_url("providers.openai.base_url", file.providers.openai.base_url)?,
            claude_base_url: base_url("providers.claude.base_url", file.providers.claude.base_url)?,
            checkout_include: file.checkout.include,
            setup: file.checkout.setup,
            setup_time: length("checkout.setup_time", &file.checkout.setup_time, default.setup_time)?,
            rebuildable: file.checkout.rebuildable.unwrap_or(default.rebuildable),
            grace: length("limits.grace", &file.limits.grace, default.grace)?,
            holdout_time: length("limits.holdout_time", &file.limits.holdout_time, default.holdout_time)?,
            claude_without_sandbox: file.sandbox.claude == Some(ClaudeSandbox::None),
            env_names: file.worker.env,
        })
    }

    /// Lays the variables over the file. `lookup` returns a variable's text, if it is set.
    ///
    /// The cap may only be lowered by the environment.
    pub fn with_variables(mut self, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, InvalidConfig> {
        let path = |name: &str| match lookup(name) {
            Some(text) if text.trim().is_empty() => Err(InvalidConfig(format!("{name} is empty"))),
            Some(text) => Ok(Some(PathBuf::from(text))),
            None => Ok(None),
        };
        if let Some(text) = lookup("LANE_MAX_CONCURRENT") {
            let cap: u32 = text
                .trim()
                .parse()
                .map_err(|_| InvalidConfig(format!("LANE_MAX_CONCURRENT is `{text}`, not a whole number from 1")))?;
            self.max_concurrent = self.max_concurrent.min(at_least_one("LANE_MAX_CONCURRENT", cap)?);
        }
        self.checkout_root = path("LANE_WORKTREE_ROOT")?.or(self.checkout_root);
        self.codex_bin = path("LANE_CODEX_BIN")?.or(self.codex_bin);
        self.claude_bin = path("LANE_CLAUDE_BIN")?.or(self.claude_bin);
        self.codex_home = path("LANE_CODEX_HOME")?.or(self.codex_home);
        for (name, value) in [("LANE_WORKTREE_ROOT", &self.checkout_root), ("LANE_CODEX_HOME", &self.codex_home)] {
            if value.as_deref().is_some_and(Path::is_relative) {
                return Err(InvalidConfig(format!("{name} must be an absolute path")));
            }
        }
        Ok(self)
    }
}

fn at_least_one(key: &str, cap: u32) -> Result<u32, InvalidConfig> {
    if cap == 0 {
        return Err(InvalidConfig(format!("{key} is 0; at least one lane must be able to run")));
    }
    Ok(cap)
}

fn base_url(key: &str, url: Option<String>) -> Result<Option<String>, InvalidConfig> {
    match url {
        Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
            Err(InvalidConfig(format!("{key} is `{url}`, which does not begin with http:// or https://")))
        }
        Some(url) => Ok(Some(url.trim_end_matches('/').to_owned())),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_text_gives_the_defaults() {
        assert_eq!(Settings::from_toml(""), Ok(Settings::default()));
    }

    #[test]
    fn bad_values_are_named() {
        for (text, part) in [
            ("max_concurent = 2", "max_concurent"),
            ("max_concurrent = 0", "max_concurrent"),
            ("[limits]\ngrace = \"5\"", "limits.grace"),
            ("[providers.openai]\nbase_url = \"ftp://x\"", "providers.openai.base_url"),
            ("[sandbox]\nclaude = \"maybe\"", "claude"),
        ] {
            let error = Settings::from_toml(text).unwrap_err();
            assert!(error.0.contains(part), "{error}");
        }
    }

    #[test]
    fn the_environment_may_only_lower_the_cap() {
        let with = |value: &'static str| {
            Settings::default().with_variables(&move |name| (name == "LANE_MAX_CONCURRENT").then(|| value.to_owned()))
        };
        assert_eq!(with("2").unwrap().max_concurrent, 2);
        assert_eq!(with("9").unwrap().max_concurrent, 4);
        assert!(with("many").unwrap_err().0.contains("LANE_MAX_CONCURRENT"));
    }
}
