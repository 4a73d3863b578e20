//! The command line of the stand-in for `codex exec`, as strict as the real one.

use std::path::PathBuf;

/// Flags of `exec` that take a value.
const VALUE_FLAGS: [&str; 24] = [
    "-C",
    "--cd",
    "-s",
    "--sandbox",
    "--add-dir",
    "-o",
    "--output-last-message",
    "-c",
    "--config",
    "--enable",
    "--disable",
    "-m",
    "--model",
    "-i",
    "--image",
    "-p",
    "--profile",
    "--color",
    "--output-schema",
    "--local-provider",
    "--thread-source",
    "--remote",
    "--remote-auth-token-env",
    "--base",
];

/// Flags of `exec` that take none.
const BARE_FLAGS: [&str; 13] = [
    "--json",
    "--ephemeral",
    "--ignore-user-config",
    "--ignore-rules",
    "--skip-git-repo-check",
    "--trust",
    "--worktree",
    "--strict-config",
    "--oss",
    "--approve-for-me",
    "--dangerously-bypass-approvals-and-sandbox",
    "--dangerously-bypass-hook-trust",
    "-",
];

/// Flags that stand before `resume` only.
const NOT_AFTER_RESUME: [&str; 5] = ["-C", "--cd", "-s", "--sandbox", "--add-dir"];

/// What the command line asks for.
#[derive(Debug, Default)]
pub struct Arguments {
    /// `--json`.
    pub json: bool,
    /// `-C`.
    pub directory: Option<PathBuf>,
    /// `-s`.
    pub sandbox: Option<String>,
    /// `-o`.
    pub last_message: Option<PathBuf>,
    /// `-m`.
    pub model: Option<String>,
    /// Every `-c key=value`.
    pub config: Vec<String>,
    /// Every `--enable` and `--disable`.
    pub features: Vec<String>,
    /// `--ephemeral`.
    pub ephemeral: bool,
    /// The thread of `resume`.
    pub resume: Option<String>,
    /// The prompt argument; `-` is stdin.
    pub prompt: Option<String>,
}

/// Reads the arguments after `exec`.
///
/// # Errors
///
/// The text that belongs on stderr, with exit code 2.
pub fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut resuming = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        if resuming && NOT_AFTER_RESUME.contains(&flag) {
            return Err(unexpected(argument));
        }
        if VALUE_FLAGS.contains(&flag) {
            let value = inline.or_else(|| rest.next().cloned());
            let value =
                value.ok_or_else(|| format!("error: a value is required for '{flag}' but none was supplied"))?;
            parsed.take_value(flag, value)?;
        } else if BARE_FLAGS.contains(&flag) {
            parsed.take_bare(flag);
        } else if flag.starts_with('-') {
            return Err(unexpected(argument));
        } else if flag == "resume" && !resuming && parsed.prompt.is_none() {
            resuming = true;
        } else if resuming && parsed.resume.is_none() {
            parsed.resume = Some(argument.clone());
        } else if parsed.prompt.is_none() {
            parsed.prompt = Some(argument.clone());
        } else {
            return Err(unexpected(argument));
        }
    }
    Ok(parsed)
}

fn unexpected(argument: &str) -> String {
    format!(
        "error: unexpected argument '{argument}' found\n\nUsage: codex exec [OPTIONS] [PROMPT]\n       codex exec \
         [OPTIONS] <COMMAND> [ARGS]\n\nFor more information, try '--help'."
    )
}

impl Arguments {
    fn take_value(&mut self, flag: &str, value: String) -> Result<(), String> {
        match flag {
            "-C" | "--cd" => self.directory = Some(value.into()),
            "-s" | "--sandbox" if ["read-only", "workspace-write", "danger-full-access"].contains(&value.as_str()) => {
                self.sandbox = Some(value);
            }
            "-s" | "--sandbox" => return Err(format!("error: invalid value '{value}' for '--sandbox <SANDBOX_MODE>'")),
            "-o" | "--output-last-message" => self.last_message = Some(value.into()),
            "-m" | "--model" => self.model = Some(value),
            "-c" | "--config" if value.contains('=') => self.config.push(value),
            "-c" | "--config" => return Err(format!("error: Invalid override (missing '='): {value}")),
            "--enable" | "--disable" => self.features.push(value),
            _ => {}
        }
        Ok(())
    }

    fn take_bare(&mut self, flag: &str) {
        match flag {
            "--json" => self.json = true,
            "--ephemeral" => self.ephemeral = true,
            "-" => self.prompt = Some("-".to_owned()),
            _ => {}
        }
    }

    /// The value of a `-c` setting without its quotes; the last one wins.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.config.iter().rev().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().trim_matches('"'))
        })
    }
}
