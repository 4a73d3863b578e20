//! What a worker left uncommitted: found with the base's ignore rules, staged, and made a commit
//! that is clearly Lane's.
//!
//! Git is never let into a nested repository: pointers to other repositories are left as they are
//! and nested folders are only named.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::clone::path_of;
use super::command::Output;
use super::scratch::Scratch;
use super::{GitCli, files};
use crate::app::ports::PortResult;
use crate::domain::plan::Plan;

/// A file larger than this, which the worker left uncommitted, goes into no commit: a core dump or a
/// disk image would stay in the lead's repository for ever.
const LARGEST_SAVED_BYTES: u64 = 1 << 30;

/// The most files that one warning names.
const MOST_NAMED: usize = 5;

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
///
/// Folders that the worker closed are opened first, or what they hold would not be seen.
pub(super) fn find(git: &GitCli, scratch: &Scratch) -> PortResult<Differences> {
    let (found, said) = look(git, scratch)?;
    if said.is_empty() || !scratch.may_open {
        return Ok(found);
    }
    files::open_up(&scratch.work_tree);
    look(git, scratch).map(|(found, _)| found)
}

/// One look, and what git complained of.
fn look(git: &GitCli, scratch: &Scratch) -> PortResult<(Differences, String)> {
    let mut found = Differences::default();
    let tree = |words: &[&str]| git.in_tree(&scratch.git_dir, &scratch.work_tree).args(words);
    // Files whose times alone differ are looked at here, so that only real changes are listed.
    // Its exit code says no more than that there are some.
    tree(&["update-index", "-q", "--ignore-submodules", "--refresh"]).run()?;
    let mut said = String::new();
    let changed = tree(&["diff-files", "-z", "--name-status", "--no-renames", "--ignore-submodules=all"]).require()?;
    said.push_str(&changed.stderr);
    let mut fields = changed.fields();
    while let (Some(_), Some(path)) = (fields.next(), fields.next()) {
        let path = path_of(path);
        let kept = is_content(&scratch.work_tree.join(&path))
            && super::submodules::parents_are_real(&scratch.work_tree, &path);
        if kept { found.changed.push(path) } else { found.gone.push(path) }
    }
    let others = others(git, scratch)?;
    said.push_str(&others.stderr);
    for field in others.fields() {
        match field.strip_suffix(b"/") {
            Some(folder) => found.nested.push(path_of(folder)),
            None => found.untracked.push(path_of(field)),
        }
    }
    Ok((found, said))
}

/// Lists what is neither in the index nor ignored.
fn others(git: &GitCli, scratch: &Scratch) -> PortResult<Output> {
    let call = git.in_tree(&scratch.git_dir, &scratch.work_tree);
    call.args(["ls-files", "--others", "-z", "--exclude-from"]).arg(&scratch.excludes).require()
}

fn is_content(path: &std::path::Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() || metadata.is_symlink())
}

/// What staging came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Staged {
    /// The tree.
    pub(super) tree: String,
    /// Sentences for `warnings`.
    pub(super) warnings: Vec<String>,
}

/// Stages the differences and says what could not be staged.
pub(super) fn stage(git: &GitCli, scratch: &Scratch, found: &Differences) -> PortResult<Staged> {
    let mut staged = Staged::default();
    update(git, scratch, &["--force-remove"], &found.gone, None)?;
    let fits = |path: &PathBuf| {
        scratch.work_tree.join(path).symlink_metadata().is_ok_and(|found| found.len() <= LARGEST_SAVED_BYTES)
    };
    let (paths, large): (Vec<PathBuf>, Vec<PathBuf>) =
        found.changed.iter().chain(&found.untracked).cloned().partition(fits);
    staged.warnings.extend(add(git, scratch, &paths)?);
    let mut unsaved: BTreeSet<PathBuf> = large.into_iter().collect();
    if !found.untracked.is_empty() {
        let left = others(git, scratch)?;
        unsaved.extend(left.fields().filter(|field| !field.ends_with(b"/")).map(path_of));
    }
    staged.warnings.extend(name_unsaved(&unsaved));
    staged.tree = git.in_tree(&scratch.git_dir, &scratch.work_tree).arg("write-tree").require()?.text();
    Ok(staged)
}

/// Adds paths; returns a warning when they could only be added as they are.
fn add(git: &GitCli, scratch: &Scratch, paths: &[PathBuf]) -> PortResult<Option<String>> {
    let add = |attributes| update(git, scratch, &["--add", "--replace"], paths, attributes);
    let Err(error) = add(None) else { return Ok(None) };
    if scratch.may_open && error.message.contains("Permission denied") {
        files::open_up(&scratch.work_tree);
        if add(None).is_ok() {
            return Ok(None);
        }
    }
    // The attributes may ask for what cannot be done to a file. Saved as it is, it is not lost.
    let no_attributes = git.on(&scratch.git_dir).arg("mktree").input(Vec::new()).require()?.text();
    add(Some(&no_attributes))?;
    Ok(Some(format!("what was left uncommitted was saved as it is, without attributes: {}", error.message)))
}

/// Names the files that go into no commit: very large ones, and such as `git~1`, which stands for
/// `.git` on other systems, so that git does not take it. The archive of `lane clean` takes them.
fn name_unsaved(paths: &BTreeSet<PathBuf>) -> Option<String> {
    let names: Vec<String> = paths.iter().take(MOST_NAMED).map(|path| path.to_string_lossy().into_owned()).collect();
    let more = if paths.len() > MOST_NAMED { ", ..." } else { "" };
    let (count, list) = (paths.len(), names.join(", "));
    (count > 0).then(|| format!("{count} files are in no commit, only in the checkout (git does not take such names, or they are larger than 1 GiB): {list}{more}"))
}

/// Hands paths to `git update-index`; `attributes` is a tree to read attributes from, instead of
/// the checkout.
fn update(
    git: &GitCli,
    scratch: &Scratch,
    words: &[&str],
    paths: &[PathBuf],
    attributes: Option<&str>,
) -> PortResult<()> {
    let mut input = Vec::new();
    for path in paths {
        input.extend_from_slice(path.as_os_str().as_bytes());
        input.push(0);
    }
    if input.is_empty() {
        return Ok(());
    }
    let mut call = git.in_tree(&scratch.git_dir, &scratch.work_tree);
    if let Some(tree) = attributes {
        call = call.env("GIT_ATTR_SOURCE", tree);
    }
    call.arg("update-index").args(words).args(["-z", "--stdin"]).input(input).require().map(drop)
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
