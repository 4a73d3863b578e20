//! The brief: the Markdown task that a lead hands over.
//!
//! Fields are `Goal:`, `Repo:`, `Owned paths:`, `Read:`, `Do:` and `Acceptance:`, each at the start
//! of a line; none is required. A list stands inline (commas, semicolons, "and") or as bullets
//! below. A field never swallows the next field's line.

use globset::{GlobBuilder, GlobMatcher};

/// Fields that a brief may carry, in lower case.
const FIELDS: [&str; 6] = ["goal", "repo", "owned paths", "read", "do", "acceptance"];

/// The most characters that Codex takes as one prompt.
pub const CODEX_MAX_CHARACTERS: usize = 1_048_576;

/// The most bytes that Claude takes on stdin.
pub const CLAUDE_MAX_BYTES: usize = 10 * 1024 * 1024;

/// Why a brief cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BriefError {
    /// Nothing but blanks.
    #[error("the brief is empty")]
    Empty,
    /// Not text.
    #[error("the brief is not UTF-8 text (byte {0} is not)")]
    NotText(usize),
    /// A NUL byte, which no worker's prompt can carry.
    #[error("the brief holds a NUL byte at byte {0}; it looks like a binary file")]
    Binary(usize),
}

/// A brief that can be handed over: text that is not blank and holds no NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    text: String,
}

impl Brief {
    /// Reads the bytes of a brief.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, BriefError> {
        if let Some(at) = bytes.iter().position(|b| *b == 0) {
            return Err(BriefError::Binary(at));
        }
        let text = String::from_utf8(bytes).map_err(|e| BriefError::NotText(e.utf8_error().valid_up_to()))?;
        if text.trim().is_empty() {
            return Err(BriefError::Empty);
        }
        Ok(Self { text })
    }

    /// The text, byte for byte as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A few words that name the task: the goal, else the first line that says something.
    pub fn title(&self) -> &str {
        let goal = self.field_lines("goal").first().copied();
        let first = self.text.lines().find(|line| !line.trim().is_empty());
        goal.or(first).unwrap_or_default().trim_start_matches(['#', ' ']).trim()
    }

    /// The paths that the worker owns; `None` when the brief has no such field.
    ///
    /// `none`, `n/a`, `-` and an empty field give an empty list.
    pub fn owned_paths(&self) -> Option<Vec<String>> {
        self.has_field("owned paths").then(|| list_items(&self.field_lines("owned paths")))
    }

    fn has_field(&self, name: &str) -> bool {
        self.text.lines().any(|line| field_of(line).is_some_and(|(field, _)| field == name))
    }

    /// The lines of a field: what follows the colon, and the lines up to the next field or heading.
    fn field_lines(&self, name: &str) -> Vec<&str> {
        let mut lines = Vec::new();
        let mut inside = false;
        for line in self.text.lines() {
            match field_of(line) {
                Some((field, rest)) => {
                    inside = field == name;
                    if inside && !rest.trim().is_empty() {
                        lines.push(rest);
                    }
                }
                None if inside && line.trim_start().starts_with('#') => inside = false,
                None if inside => lines.push(line),
                None => {}
            }
        }
        lines
    }
}

/// Returns the field's name in lower case and the rest of the line, if the line opens a field.
fn field_of(line: &str) -> Option<(&'static str, &str)> {
    let bare = line.trim_start().trim_start_matches(['*', '#', ' ']);
    let (name, rest) = bare.split_once(':')?;
    let name = name.trim().trim_end_matches('*').to_ascii_lowercase();
    let field = FIELDS.into_iter().find(|field| *field == name)?;
    Some((field, rest.trim_start_matches('*')))
}

/// Splits the lines of a list field into items: one bullet a line, or separated inline.
fn list_items(lines: &[&str]) -> Vec<String> {
    let mut items = Vec::new();
    let mut bullets = false;
    for line in lines {
        let trimmed = line.trim();
        let bullet = trimmed.strip_prefix("- ").or_else(|| trimmed.strip_prefix("* "));
        match bullet {
            Some(item) => {
                bullets = true;
                push_item(&mut items, item);
            }
            // Prose after a bullet list is no part of the list.
            None if trimmed.is_empty() || bullets => {}
            None => split_inline(trimmed).for_each(|item| push_item(&mut items, item)),
        }
    }
    items
}

fn split_inline(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';']).flat_map(|part| part.split(" and "))
}

fn push_item(items: &mut Vec<String>, item: &str) {
    let item = item.trim().trim_matches('`').trim_end_matches('.').trim_matches('`').trim();
    let item = item.strip_prefix("and ").unwrap_or(item).trim();
    let nothing = matches!(item.to_ascii_lowercase().as_str(), "" | "none" | "n/a" | "-");
    if !nothing && !items.iter().any(|known| known == item) {
        items.push(item.to_owned());
    }
}

/// Returns the changed paths that no owned path covers.
///
/// An owned path covers itself, everything under it when it is a folder, and whatever it matches
/// as a glob (`*` stays within one folder, `**` does not). A pattern that is no glob counts as a
/// plain path.
pub fn paths_outside<'a>(owned: &[String], changed: &[&'a str]) -> Vec<&'a str> {
    let rules: Vec<OwnedRule> = owned.iter().map(|pattern| OwnedRule::new(pattern)).collect();
    changed.iter().copied().filter(|path| !rules.iter().any(|rule| rule.covers(path))).collect()
}

struct OwnedRule {
    plain: String,
    glob: Option<GlobMatcher>,
}

impl OwnedRule {
    fn new(pattern: &str) -> Self {
        let plain = pattern.trim_start_matches("./").trim_end_matches('/').to_owned();
        let glob = GlobBuilder::new(&plain).literal_separator(true).build().ok().map(|glob| glob.compile_matcher());
        Self { plain, glob }
    }

    fn covers(&self, path: &str) -> bool {
        let under = path.strip_prefix(self.plain.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let everything = self.plain == "." || self.plain.is_empty();
        let ancestors = std::path::Path::new(path).ancestors();
        under
            || everything
            || self.glob.as_ref().is_some_and(|glob| {
                ancestors.into_iter().any(|part| !part.as_os_str().is_empty() && glob.is_match(part))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brief(text: &str) -> Brief {
        Brief::from_bytes(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn unusable_briefs_say_why() {
        assert_eq!(Brief::from_bytes(b" \n\t".to_vec()), Err(BriefError::Empty));
        assert_eq!(Brief::from_bytes(b"a\0b".to_vec()), Err(BriefError::Binary(1)));
        assert_eq!(Brief::from_bytes(b"ab\xff".to_vec()), Err(BriefError::NotText(2)));
    }

    #[test]
    fn title_is_the_goal_or_the_first_line() {
        assert_eq!(brief("# Task\nGoal: make it green\n").title(), "make it green");
        assert_eq!(brief("\n## Fix the parser\n").title(), "Fix the parser");
        assert_eq!(brief("Goal:\nmake it green\n").title(), "make it green");
    }

    #[test]
    fn owned_paths_in_every_form() {
        let paths = |text: &str| brief(text).owned_paths();
        assert_eq!(paths("Goal: x"), None);
        assert_eq!(paths("Owned paths: none\nRead: a.rs"), Some(vec![]));
        assert_eq!(paths("Owned paths:\nRead: a.rs"), Some(vec![]));
        let inline = Some(vec!["src/a.rs".to_owned(), "docs/".to_owned(), "b".to_owned()]);
        assert_eq!(paths("Owned paths: `src/a.rs`, docs/ and b."), inline);
        assert_eq!(paths("**Owned paths:**\n- `src/a.rs`\n- docs/\n- b\n\nNow do it.\nDo: 1. x"), inline);
        assert_eq!(paths("Owned paths: src/a.rs; docs/; b\n"), inline);
    }

    #[test]
    fn folders_and_globs_mean_what_people_expect() {
        let owned = ["src/".to_owned(), "docs/*.md".to_owned(), "tests/**/fixtures".to_owned(), "./a.txt".to_owned()];
        let changed =
            ["src/deep/x.rs", "srcs/x", "docs/a.md", "docs/deep/a.md", "tests/a/fixtures/x", "a.txt", "b.txt"];
        assert_eq!(paths_outside(&owned, &changed), ["srcs/x", "docs/deep/a.md", "b.txt"]);
        assert_eq!(paths_outside(&[".".to_owned()], &["x/y"]), Vec::<&str>::new());
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(brief) = Brief::from_bytes(bytes) {
                let _ = (brief.title(), brief.owned_paths());
            }
        }
    }
}
