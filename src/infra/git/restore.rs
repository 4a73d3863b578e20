//! Brings a cleaned checkout back: its commit's files, then the archive over them.
//!
//! It comes back as a private clone on the lane's branch, whatever it was before. Submodules come
//! back as plain files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::clone::{apply_made, populate, readable_refs};
use super::git_folder::{GitFolder, HeadPoint};
use super::record::{Made, Note};
use super::survey::Saved;
use super::{GitCli, archive, clean, files, include, keep, require_repository};
use crate::app::ports::{PortError, PortErrorKind, PortResult, Restored};
use crate::domain::plan::Plan;

/// Brings the checkout back at its old place or at `into`, which must be empty or missing.
pub(super) fn restore(git: &GitCli, plan: &Plan, into: Option<&Path>) -> PortResult<Restored> {
    let target = into.unwrap_or(&plan.checkout_path);
    let saved: Saved = Note::Saved
        .load(&plan.run_dir)?
        .ok_or_else(|| PortError::other(format!("restore lane {}: nothing of it was cleaned", plan.lane_id)))?;
    let was_there = files::exists(target);
    if was_there && !is_empty_folder(target) {
        let message = format!("restore into {}: something is there already", target.display());
        return Err(PortError { kind: PortErrorKind::Held, message });
    }
    match into {
        Some(target) => fill_in_place(git, plan, &saved, target, was_there),
        None => fill_aside(git, plan, &saved, target),
    }
    .map(|files| Restored { path: target.to_path_buf(), files })
}

/// Fills a folder of the person's choice; on an error it is as it was.
fn fill_in_place(git: &GitCli, plan: &Plan, saved: &Saved, target: &Path, was_there: bool) -> PortResult<u64> {
    files::make_folder(target)?;
    fill(git, plan, saved, target).inspect_err(|_| {
        let _ = files::remove_tree(target);
        if was_there {
            let _ = files::make_folder(target);
        }
    })
}

/// Fills a folder beside the checkout's place, which then takes it in one step: a checkout that is
/// half restored would be cleaned as if the rest had been removed.
fn fill_aside(git: &GitCli, plan: &Plan, saved: &Saved, target: &Path) -> PortResult<u64> {
    let aside = unfinished(plan);
    files::remove_tree(&aside)?;
    files::make_folder(&aside)?;
    let filled = fill(git, plan, saved, &aside).and_then(|count| files::rename(&aside, target).map(|()| count));
    filled.inspect_err(|_| drop(files::remove_tree(&aside)))
}

/// Where a checkout is put together before it takes its place.
pub(super) fn unfinished(plan: &Plan) -> PathBuf {
    files::sibling(&plan.checkout_path, ".restoring")
}

fn is_empty_folder(path: &Path) -> bool {
    files::is_directory(path) && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn fill(git: &GitCli, plan: &Plan, saved: &Saved, target: &Path) -> PortResult<u64> {
    if let Some(commit) = &saved.tree_commit {
        check_out(git, plan, commit, target)?;
        for path in &saved.gone {
            remove_tracked(target, &path.path())?;
        }
        usual_modes(target);
    }
    let count = if saved.has_archive { archive::unpack(&clean::archive_path(plan), target)? } else { 0 };
    for (path, mode) in saved.modes.iter().rev() {
        let at = target.join(path.path());
        let real = at.symlink_metadata().is_ok_and(|metadata| !metadata.is_symlink());
        if real && super::submodules::parents_are_real(target, &path.path()) {
            fs::set_permissions(&at, Permissions::from_mode(*mode))
                .map_err(|error| PortError::io(format!("set the mode of {}", at.display()), &error))?;
        }
    }
    Ok(count)
}

fn check_out(git: &GitCli, plan: &Plan, commit: &str, target: &Path) -> PortResult<()> {
    let repository = require_repository(plan)?;
    let made = Made::load(&plan.run_dir)?;
    keep::pin_base(git, plan, repository)?;
    let branch = plan.lane_id.branch();
    let tip = keep::value(git, &repository.common_dir, &format!("refs/heads/{branch}"))?;
    let borrowed = repository.common_dir.join("objects");
    let mut folder = GitFolder::bare_minimum(&repository.object_format, vec![borrowed], commit);
    if tip.as_deref() == Some(commit) {
        folder.head = HeadPoint::Branch(branch, commit.to_owned());
    }
    apply_made(&mut folder, &made);
    folder.exclude = include::with_brought(&made.exclude, &made.brought).into_bytes();
    folder.settings.push(("diff.ignoresubmodules".into(), "all".into()));
    folder.shallow = files::read_plain(&repository.common_dir.join("shallow"), 64 * 1024 * 1024);
    let refs = readable_refs(git, repository)?;
    folder.packed_refs = refs.packed;
    folder.symbolic_refs = refs.symbolic;
    let git_dir = target.join(".git");
    folder.write(&git_dir)?;
    populate(git, &git_dir, target, commit)
}

/// Removes a file that was not there, and the folders that it leaves empty.
fn remove_tracked(root: &Path, path: &Path) -> PortResult<()> {
    if !super::submodules::parents_are_real(root, path) {
        return Ok(());
    }
    files::remove_tree(&root.join(path))?;
    for parent in path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()) {
        if fs::remove_dir(root.join(parent)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Gives fresh files the modes that git knows, whatever this process's own mask is.
fn usual_modes(root: &Path) {
    let walk = walkdir::WalkDir::new(root).follow_links(false).min_depth(1);
    let entries = walk.into_iter().filter_entry(|entry| entry.file_name() != ".git");
    for entry in entries.flatten() {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        let mode = metadata.permissions().mode() & 0o7777;
        let usual = if metadata.is_dir() || mode & 0o111 != 0 { 0o755 } else { 0o644 };
        if !metadata.is_symlink() && mode != usual {
            let _ = fs::set_permissions(entry.path(), Permissions::from_mode(usual));
        }
    }
}
