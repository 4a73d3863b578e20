//! What a worker left uncommitted: found with the base's ignore rules, staged, and made a commit
//! that is clearly Lane's.
//!
//! Git is never let into a nested repository: pointers to other repositories are left as they are
//! and nested folders are only named.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::GitCli;
use super::clone::path_of;
use super::scratch::Scratch;
use crate::app::ports::PortResult;
use crate::domain::plan::Plan;

/// How the files differ from the commit that the scratch index is aimed at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Tracked files that are not as committed.
    pub(super) changed: Vec<PathBuf>,
    /// Tracked files that are gone, or are no file or link any more.
    pub(super) gone: Vec<PathBuf>,
    /// Files that are not tracked and not ignored.
    pub(super) untracked: Vec<PathBuf>,
    /// Nested repositories.
    pub(super) nested: Vec<PathBuf>,
}

/// Compares the working tree with the scratch index.
pub(super) fn find(git: &GitCli, scratch: &Scratch) -> PortResult<Differences> {
    let mut found = Differences::default();
    let tree = |words: &[&str]| git.in_tree(&scratch.git_dir, &scratch.work_tree).args(words);
    // Files whose times alone differ are looked at here, so that only real changes are listed.
    // Its exit code says no more than that there are some.
    tree(&["update-index", "-q", "--ignore-submodules", "--refresh"]).run()?;
    let changed = tree(&["diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all"]).require()?;
    let mut fields = changed.fields();
    while let (Some(_), Some(path)) = (fields.next(), fields.next()) {
        let path = path_of(path);
        let kept = is_content(&scratch.work_tree.join(&path))
            && super::submodules::parents_are_real(&scratch.work_tree, &path);
        if kept { found.changed.push(path) } else { found.gone.push(path) }
    }
    let others = tree(&["ls-files", "--others", "-z", "--exclude-from"]).arg(&scratch.excludes).require()?;
    for field in others.fields() {
        match field.strip_suffix(b"/") {
            Some(folder) => found.nested.push(path_of(folder)),
            None => found.untracked.push(path_of(field)),
        }
    }
    Ok(found)
}

fn is_content(path: &std::path::Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_symlink())
}

/// Stages the differences and returns the tree.
pub(super) fn stage(git: &GitCli, scratch: &Scratch, found: &Differences) -> PortResult<String> {
    let update = |words: &[&str], paths: &mut dyn Iterator<Item = &PathBuf>| {
        let mut input = Vec::new();
        for path in paths {
            input.extend_from_slice(path.as_os_str().as_bytes());
            input.push(0);
        }
        if input.is_empty() {
            return Ok(());
        }
        let call = git.in_tree(&scratch.git_dir, &scratch.work_tree).arg("update-index").args(words);
        call.args(["-z", "--stdin"]).input(input).require().map(drop)
    };
    update(&["--force-remove"], &mut found.gone.iter())?;
    update(&["--add", "--replace"], &mut found.changed.iter().chain(&found.untracked))?;
    Ok(git.in_tree(&scratch.git_dir, &scratch.work_tree).arg("write-tree").require()?.text())
}

/// Makes the commit that holds what was left, on top of `parent`; `None` when nothing was.
pub(super) fn commit(
    git: &GitCli,
    plan: &Plan,
    scratch: &Scratch,
    tree: &str,
    parent: &str,
) -> PortResult<Option<String>> {
    let before = git.on(&scratch.git_dir).args(["rev-parse", &format!("{parent}^{{tree}}")]).require()?.text();
    if before == tree {
        return Ok(None);
    }
    // The date is the lane's own, so that a second try after a crash makes the same commit.
    let date = format!("@{} +0000", plan.created_at.unix_ms() / 1000);
    let mut call = git.on(&scratch.git_dir);
    for role in ["AUTHOR", "COMMITTER"] {
        call = call
            .env(&format!("GIT_{role}_NAME"), "Lane")
            .env(&format!("GIT_{role}_EMAIL"), "lane@localhost")
            .env(&format!("GIT_{role}_DATE"), &date);
    }
    let message = format!(
        "lane: save what the worker left uncommitted\n\nThe worker of lane {} ended with these edits in its checkout.\n\
         Lane made this commit, not the worker.\n",
        plan.lane_id
    );
    let made = call.args(["commit-tree", tree, "-p", parent]).input(message.into_bytes()).require()?;
    Ok(Some(made.text()))
}
