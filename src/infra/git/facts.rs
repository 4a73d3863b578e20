//! Facts about a change, measured by git between two commits. Nothing here looks at a checkout.

use std::path::Path;

use super::record::{Note, Taken};
use super::submodules::declared;
use super::{GitCli, require_repository};
use crate::app::ports::{PortError, PortResult};
use crate::domain::brief::paths_outside;
use crate::domain::facts::Changes;
use crate::domain::plan::Plan;

/// What differs between two trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TreeDiff {
    /// Changed paths.
    pub(super) paths: Vec<String>,
    /// Lines added; binary files count none.
    pub(super) insertions: u64,
    /// Lines removed.
    pub(super) deletions: u64,
    /// Changed pointers to other repositories: path and new commit (`None`: removed).
    pub(super) links: Vec<(String, Option<String>)>,
}

/// Measures from `base` to `head` (commits) and to `tree` (a commit or tree that may hold more).
pub(super) fn measure(
    git: &GitCli,
    git_dir: &Path,
    plan: &Plan,
    head: &str,
    tree: &str,
) -> PortResult<(Changes, TreeDiff)> {
    let base = require_repository(plan)?.base_commit.as_str();
    let counted = git.on(git_dir).args(["rev-list", "--count", head, &format!("^{base}")]).require()?;
    let diff = tree_diff(git, git_dir, base, tree)?;
    let changed: Vec<&str> = diff.paths.iter().map(String::as_str).collect();
    let owned = plan.owned_paths.as_ref().filter(|owned| !owned.is_empty());
    let changes = Changes {
        commits: counted.text().parse().unwrap_or(0),
        files: u64::try_from(diff.paths.len()).unwrap_or(u64::MAX),
        insertions: diff.insertions,
        deletions: diff.deletions,
        paths_outside_owned: owned.map(|owned| paths_outside(owned, &changed).into_iter().map(str::to_owned).collect()),
        nested_repositories: undeclared_links(git, git_dir, tree, &diff)?,
        ..Changes::default()
    };
    Ok((changes, diff))
}

/// Pointers that came in without a declaration: their content is in no commit.
fn undeclared_links(git: &GitCli, git_dir: &Path, tree: &str, diff: &TreeDiff) -> PortResult<Vec<String>> {
    if diff.links.is_empty() {
        return Ok(Vec::new());
    }
    let known = declared(git, git_dir, tree)?;
    let undeclared = |path: &String| !known.iter().any(|(_, declared)| declared == path);
    let came = diff.links.iter().filter(|(_, commit)| commit.is_some()).map(|(path, _)| path.clone());
    Ok(came.filter(undeclared).collect())
}

fn tree_diff(git: &GitCli, git_dir: &Path, base: &str, tree: &str) -> PortResult<TreeDiff> {
    let output = git
        .on(git_dir)
        .args(["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"])
        // Between two trees nothing is entered; without this a changed pointer would be left out.
        .args(["--ignore-submodules=none", base, tree])
        .require()?;
    Ok(parse(&output.stdout))
}

/// Reads `diff-tree -z --raw --numstat`: raw entries and their paths, then one field for each path.
fn parse(bytes: &[u8]) -> TreeDiff {
    let mut diff = TreeDiff::default();
    let mut fields = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    while let Some(field) = fields.next() {
        if let Some(raw) = field.strip_prefix(':') {
            let path = fields.next().unwrap_or_default().into_owned();
            let parts: Vec<&str> = raw.split(' ').collect();
            if let [old_mode, new_mode, _, new, _] = parts.as_slice() {
                if *new_mode == "160000" {
                    diff.links.push((path, Some((*new).to_owned())));
                } else if *old_mode == "160000" {
                    diff.links.push((path, None));
                }
            }
            continue;
        }
        let mut parts = field.splitn(3, '\t');
        if let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next()) {
            diff.insertions = diff.insertions.saturating_add(added.parse().unwrap_or(0));
            diff.deletions = diff.deletions.saturating_add(removed.parse().unwrap_or(0));
            diff.paths.push(path.to_owned());
        }
    }
    diff
}

/// The diff from the base to what the lane left, as git prints it.
pub(super) fn diff(git: &GitCli, plan: &Plan, stat: bool) -> PortResult<Vec<u8>> {
    let repository = require_repository(plan)?;
    let taken: Option<Taken> = Note::Taken.load(&plan.run_dir)?;
    let taken = taken
        .ok_or_else(|| PortError::other(format!("show the diff of {}: it was not taken over yet", plan.lane_id)))?;
    let git_dir = taken.git_dir(repository);
    let mut call = git.on(&git_dir).args(["diff", "--no-color", "--no-ext-diff", "--no-textconv"]);
    call = call.arg("--ignore-submodules=none");
    if stat {
        call = call.arg("--stat=120");
    }
    Ok(call.arg(repository.base_commit.as_str()).arg(&taken.tree_commit).require()?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_and_numbers_are_read() {
        let text = ":100644 100644 a b M\0x\0:000000 160000 0 c A\0sub\0:160000 000000 c 0 D\0old\0\
                    1\t2\tx\0-\t-\tbin\0";
        let diff = parse(text.as_bytes());
        assert_eq!(diff.paths, ["x", "bin"]);
        assert_eq!((diff.insertions, diff.deletions), (1, 2));
        assert_eq!(diff.links, [("sub".to_owned(), Some("c".to_owned())), ("old".to_owned(), None)]);
    }
}
