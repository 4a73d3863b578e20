//! The lead's effective configuration, as far as a checkout needs it.

use std::path::Path;

use super::GitCli;
use crate::app::ports::PortResult;

/// Local settings that decide how content looks in the working tree.
const CONTENT_KEYS: [&str; 9] = [
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
];

/// Identity, from whatever file it comes.
const IDENTITY_KEYS: [&str; 6] =
    ["user.name", "user.email", "author.name", "author.email", "committer.name", "committer.email"];

/// One setting and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    scope: String,
    key: String,
    value: String,
}

/// The lead's effective configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct LeadConfig {
    settings: Vec<Setting>,
}

impl LeadConfig {
    /// Asks git for the configuration that holds in `git_dir`.
    pub(super) fn load(git: &GitCli, git_dir: &Path) -> PortResult<Self> {
        let output = git.on(git_dir).args(["config", "--list", "--show-scope", "-z"]).require()?;
        let mut settings = parse(&output.stdout);
        // What Lane itself sets for its own commands is not the lead's.
        settings.retain(|setting| setting.scope != "command");
        Ok(Self { settings })
    }

    /// Returns the settings of the file that all checkouts of a repository share.
    pub(super) fn load_shared(git: &GitCli, common_dir: &Path) -> PortResult<Vec<(String, String)>> {
        let file = common_dir.join("config");
        let output = git.on(common_dir).args(["config", "--list", "-z", "--file"]).arg(&file).run()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut settings: Vec<(String, String)> = Vec::new();
        for entry in text.split('\0').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
            // A key may have several values; together they are one.
            match settings.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => *values = format!("{values}, {value}"),
                None => settings.push((key.to_owned(), value.to_owned())),
            }
        }
        Ok(settings)
    }

    /// The last value of `key` (in lower case); later files win.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|setting| setting.key == key).map(|setting| setting.value.as_str())
    }

    /// Settings for a private clone or a scratch folder: content and filters that only the
    /// repository's own file names (git reads the person's files by itself).
    pub(super) fn content(&self) -> Vec<(String, String)> {
        let wanted = |key: &str| CONTENT_KEYS.contains(&key) || key.starts_with("filter.");
        self.local().filter(|setting| wanted(&setting.key)).map(|s| (s.key.clone(), s.value.clone())).collect()
    }

    /// Identity for a private clone.
    pub(super) fn identity(&self) -> Vec<(String, String)> {
        let known = |key: &&str| self.value(key).map(|value| ((*key).to_owned(), value.to_owned()));
        IDENTITY_KEYS.iter().filter_map(known).collect()
    }

    /// Whether the repository lacks objects that it means to fetch when they are needed.
    pub(super) fn is_partial(&self) -> bool {
        self.local().any(|s| {
            s.key == "extensions.partialclone" || (s.key.starts_with("remote.") && s.key.ends_with(".promisor"))
        })
    }

    /// Whether the lead's checkout holds only a part of the tree, and whether by whole folders.
    pub(super) fn sparse(&self) -> Option<bool> {
        let on = |key: &str| self.value(key).is_some_and(is_true);
        on("core.sparsecheckout").then(|| on("core.sparsecheckoutcone"))
    }

    fn local(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(|setting| setting.scope == "local" || setting.scope == "worktree")
    }
}

/// Reads the answer of `git config --list --show-scope -z`: `scope NUL key LF value NUL`, or the key alone.
fn parse(bytes: &[u8]) -> Vec<Setting> {
    let text = String::from_utf8_lossy(bytes);
    let mut fields = text.split('\0');
    let mut settings = Vec::new();
    while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
        // What Lane sets for its own calls is no setting of the lead's.
        if scope == "command" {
            continue;
        }
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        settings.push(Setting { scope: scope.to_owned(), key: key.to_owned(), value: value.to_owned() });
    }
    settings
}

fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "true" | "yes" | "on" | "1")
}

/// Writes settings as the text of a git configuration file.
pub(super) fn render(settings: &[(String, String)]) -> String {
    let mut text = String::new();
    for (key, value) in settings {
        let (section, name) = key.rsplit_once('.').unwrap_or(("", key));
        match section.split_once('.') {
            Some((section, subsection)) => {
                let subsection = subsection.replace('\\', "\\\\").replace('"', "\\\"");
                text.push_str(&format!("[{section} \"{subsection}\"]\n"));
            }
            None => text.push_str(&format!("[{section}]\n")),
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
        text.push_str(&format!("\t{name} = \"{value}\"\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> LeadConfig {
        LeadConfig { settings: parse(text.as_bytes()) }
    }

    #[test]
    fn only_the_repositorys_own_content_settings_are_copied() {
        let config = config(
            "global\0filter.lfs.clean\ngit-lfs clean\0local\0filter.x.clean\ncat\0local\0core.autocrlf\ninput\0\
             local\0core.hookspath\n/h\0local\0core.bare\0",
        );
        let pairs = config.content();
        let keys: Vec<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["filter.x.clean", "core.autocrlf"]);
        assert_eq!(config.value("core.bare"), Some("true"));
    }

    #[test]
    fn later_files_win() {
        let config = config("global\0user.name\nA\0local\0user.name\nB\0");
        assert_eq!(config.identity(), [("user.name".to_owned(), "B".to_owned())]);
    }

    #[test]
    fn rendered_text_quotes_what_it_must() {
        let settings = [("filter.a \"b\".clean".to_owned(), "x \\ \"y\"\n# z".to_owned())];
        assert_eq!(render(&settings), "[filter \"a \\\"b\\\"\"]\n\tclean = \"x \\\\ \\\"y\\\"\\n# z\"\n");
    }
}
