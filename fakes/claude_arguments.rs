//! The command line of the stand-in for `claude -p`, as strict as the real one.

use std::path::Path;

/// Flags that take one value.
const VALUE_FLAGS: [&str; 20] = [
    "--output-format",
    "--input-format",
    "--model",
    "--effort",
    "--max-turns",
    "--max-budget-usd",
    "--fallback-model",
    "--setting-sources",
    "--settings",
    "--append-system-prompt",
    "--system-prompt",
    "--append-system-prompt-file",
    "--system-prompt-file",
    "--permission-mode",
    "--permission-prompts",
    "--permission-prompt-tool",
    "--json-schema",
    "--session-id",
    "--resume",
    "--debug-file",
];

/// Flags that take values up to the next flag.
const LIST_FLAGS: [&str; 7] = [
    "--tools",
    "--allowedTools",
    "--allowed-tools",
    "--disallowedTools",
    "--disallowed-tools",
    "--add-dir",
    "--mcp-config",
];

/// Flags that take none.
const BARE_FLAGS: [&str; 13] = [
    "-p",
    "--print",
    "--verbose",
    "--include-partial-messages",
    "--strict-mcp-config",
    "--disable-slash-commands",
    "--fork-session",
    "--no-session-persistence",
    "--bare",
    "--restricted",
    "--safe-mode",
    "--dangerously-skip-permissions",
    "--replay-user-messages",
];

const MODES: [&str; 6] = ["acceptEdits", "auto", "bypassPermissions", "manual", "dontAsk", "plan"];
const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// What the command line asks for.
#[derive(Debug, Default)]
pub struct Arguments {
    bare: Vec<String>,
    values: Vec<(String, String)>,
    /// The prompt argument.
    pub prompt: Option<String>,
}

/// Reads and checks the arguments.
///
/// # Errors
///
/// The text that belongs on stderr, with exit code 1.
pub fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter().peekable();
    while let Some(argument) = rest.next() {
        let (flag, inline) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        if BARE_FLAGS.contains(&flag) {
            parsed.bare.push(flag.to_owned());
        } else if VALUE_FLAGS.contains(&flag) {
            let value = inline.or_else(|| rest.next().cloned());
            let value = value.ok_or_else(|| format!("error: option '{flag} <value>' argument missing"))?;
            parsed.values.push((flag.to_owned(), value));
        } else if LIST_FLAGS.contains(&flag) {
            parsed.values.extend(inline.map(|value| (flag.to_owned(), value)));
            while let Some(value) = rest.next_if(|next| !next.starts_with('-')) {
                parsed.values.push((flag.to_owned(), value.clone()));
            }
        } else if flag.starts_with('-') {
            return Err(format!("error: unknown option '{argument}'"));
        } else {
            parsed.prompt = Some(argument.clone());
        }
    }
    parsed.check()?;
    Ok(parsed)
}

impl Arguments {
    fn check(&self) -> Result<(), String> {
        if let Some(mode) = self.value("--permission-mode").filter(|mode| !MODES.contains(mode)) {
            return Err(format!(
                "error: option '--permission-mode <mode>' argument '{mode}' is invalid. Allowed choices are {}.",
                MODES.join(", ")
            ));
        }
        if !self.has("-p") && !self.has("--print") {
            return Err("Error: the stand-in works with --print only".to_owned());
        }
        if self.value("--output-format") == Some("stream-json") && !self.has("--verbose") {
            return Err("Error: When using --print, --output-format=stream-json requires --verbose".to_owned());
        }
        if self.value("--session-id").is_some_and(|id| !is_uuid(id)) {
            return Err("Error: Invalid session ID. Must be a valid UUID.".to_owned());
        }
        let missing =
            |text: &&str| serde_json::from_str::<serde_json::Value>(text).is_err() && !Path::new(text).exists();
        if let Some(settings) = self.value("--settings").filter(missing) {
            return Err(format!("Error: Settings file not found: {settings}"));
        }
        let bypass = self.has("--dangerously-skip-permissions") || self.mode() == "bypassPermissions";
        if bypass && nix::unistd::geteuid().is_root() && crate::machine::variable("IS_SANDBOX").is_none() {
            return Err("--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons"
                .to_owned());
        }
        Ok(())
    }

    /// Whether a flag without a value was given.
    pub fn has(&self, flag: &str) -> bool {
        self.bare.iter().any(|given| given == flag)
    }

    /// The last value of a flag.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.values.iter().rev().find(|(given, _)| given == flag).map(|(_, value)| value.as_str())
    }

    /// The permission mode.
    pub fn mode(&self) -> &str {
        match self.value("--permission-mode") {
            Some("manual") | None => "default",
            Some(mode) => mode,
        }
    }

    /// The effort, if it is one that the real one knows.
    pub fn effort(&self) -> Option<&str> {
        self.value("--effort").filter(|effort| EFFORTS.contains(effort))
    }

    /// The names in a list flag, split as the real one splits them.
    pub fn list(&self, flag: &str) -> Vec<&str> {
        let given = self.values.iter().filter(|(name, _)| name == flag);
        given.flat_map(|(_, value)| value.split([',', ' '])).filter(|name| !name.is_empty()).collect()
    }

    /// Whether every Bash command is allowed.
    pub fn bash_is_allowed(&self) -> bool {
        self.has("--dangerously-skip-permissions")
            || self.mode() == "bypassPermissions"
            || self.list("--allowedTools").contains(&"Bash")
            || self.list("--allowed-tools").contains(&"Bash")
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<usize> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// Whether the real one's analyser lets a command through without a rule: plain reading only.
pub fn only_reads(command: &str) -> bool {
    const READERS: [&str; 6] = ["cat", "head", "ls", "grep", "find", "wc"];
    const GIT_READERS: [&str; 9] =
        ["log", "diff", "show", "status", "blame", "rev-parse", "ls-files", "grep", "cat-file"];
    let risky = ['>', ';', '&', '`', '$', '\\'].iter().any(|sign| command.contains(*sign));
    !risky
        && ["--output", "-exec", "-delete", "-c ", "-C ", "-O"].iter().all(|word| !command.contains(word))
        && command.split('|').all(|part| {
            let mut words = part.split_whitespace();
            match words.next() {
                Some("git") => words.next().is_some_and(|word| GIT_READERS.contains(&word)),
                Some(word) => READERS.contains(&word),
                None => false,
            }
        })
}
