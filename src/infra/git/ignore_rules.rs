//! The base's ignore rules as one list, so that a worker's change to a `.gitignore` hides nothing.
//!
//! Git reads `.gitignore` files from the working tree. Here they are read from the base commit,
//! each pattern is rewritten to stand at the root, and git is handed the list alone. Parents come
//! before the folders below them and the last match wins, as git itself has it.

use std::path::{Path, PathBuf};

use super::include::{escape, with_brought};
use super::record::Made;
use super::{GitCli, files};
use crate::app::ports::PortResult;

/// The most bytes of one ignore file that count.
const LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// Builds the list for a base commit and writes it to `target`.
pub(super) fn write(git: &GitCli, git_dir: &Path, base: &str, made: &Made, target: &Path) -> PortResult<()> {
    let mut rules = person_rules(git, made);
    rules.push_str(&made.exclude);
    rules.push('\n');
    for path in ignore_files(git, git_dir, base)? {
        let folder = path.strip_suffix(".gitignore").unwrap_or_default();
        let blob = git.on(git_dir).args(["cat-file", "blob", &format!("{base}:{path}")]).run()?;
        for line in String::from_utf8_lossy(&blob.stdout).lines() {
            if let Some(rule) = at_root(folder, line) {
                rules.push_str(&rule);
                rules.push('\n');
            }
        }
    }
    files::write(target, with_brought(&rules, &made.brought))
}

/// The person's own ignore file, which git would read by itself.
fn person_rules(git: &GitCli, made: &Made) -> String {
    let home = git.home.as_deref();
    let path = match (&made.person_exclude, home) {
        (Some(path), Some(home)) => match path.strip_prefix("~") {
            Ok(rest) => Some(home.join(rest)),
            Err(_) => Some(path.clone()),
        },
        (Some(path), None) => Some(path.clone()),
        (None, Some(home)) => Some(home.join(".config/git/ignore")),
        (None, None) => None,
    };
    // The person may keep it behind a link.
    let read = |path: PathBuf| files::read_plain(&path.canonicalize().ok()?, LIMIT_BYTES);
    let mut text = String::from_utf8_lossy(&path.and_then(read).unwrap_or_default()).into_owned();
    text.push('\n');
    text
}

/// The `.gitignore` files of a commit, parents first.
fn ignore_files(git: &GitCli, git_dir: &Path, base: &str) -> PortResult<Vec<String>> {
    let listed = git.on(git_dir).args(["ls-tree", "-r", "-z", "--full-tree", base]).require()?;
    let mut paths = Vec::new();
    for entry in listed.fields() {
        let text = String::from_utf8_lossy(entry);
        let Some((head, path)) = text.split_once('\t') else { continue };
        // A linked ignore file is not followed by git either.
        if head.starts_with("100") && (path == ".gitignore" || path.ends_with("/.gitignore")) {
            paths.push(path.to_owned());
        }
    }
    paths.sort_by_key(|path| path.matches('/').count());
    Ok(paths)
}

/// Rewrites one line of the ignore file in `folder` (empty, or with a slash at its end).
fn at_root(folder: &str, line: &str) -> Option<String> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    let trimmed = trim_spaces(line);
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return None;
    }
    if folder.is_empty() {
        return Some(trimmed.to_owned());
    }
    let (not, pattern) = trimmed.strip_prefix('!').map_or(("", trimmed), |rest| ("!", rest));
    let pattern = pattern.strip_prefix('\\').filter(|rest| rest.starts_with(['!', '#'])).unwrap_or(pattern);
    let body = pattern.strip_suffix('/').unwrap_or(pattern);
    let folder = escape(folder);
    Some(if body.contains('/') {
        format!("{not}/{folder}{}", pattern.strip_prefix('/').unwrap_or(pattern))
    } else {
        format!("{not}/{folder}**/{pattern}")
    })
}

/// Trailing spaces do not count, unless a backslash stands before them.
fn trim_spaces(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    let escaped = trimmed.ends_with('\\') && trimmed.len() < line.len();
    if escaped { line.get(..trimmed.len().saturating_add(1)).unwrap_or(line) } else { trimmed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_move_to_the_root() {
        let cases = [
            ("", "out/", Some("out/")),
            ("", "# c", None),
            ("a/", "", None),
            ("a/", "*.log", Some("/a/**/*.log")),
            ("a/", "out/", Some("/a/**/out/")),
            ("a/", "/x", Some("/a/x")),
            ("a/b/", "x/*.o", Some("/a/b/x/*.o")),
            ("a/", "!keep.log", Some("!/a/**/keep.log")),
            ("a/", "\\#x", Some("/a/**/#x")),
            ("a [1]/", "x", Some("/a\\ \\[1\\]/**/x")),
            ("a/", "x  ", Some("/a/**/x")),
            ("a/", "x\\ ", Some("/a/**/x\\ ")),
        ];
        for (folder, line, expected) in cases {
            assert_eq!(at_root(folder, line).as_deref(), expected, "{folder} {line}");
        }
    }
}
