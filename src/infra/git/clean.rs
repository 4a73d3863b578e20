//! Removes a checkout that has ended, and only after everything in it is saved elsewhere.
//!
//! Commits are in the lead's refs by then. Whatever else the checkout holds goes into an archive
//! in the run folder. If that fails, nothing is removed. The checkout is renamed aside first, so it
//! is gone at once for everybody; the files are deleted in the background.

use std::path::{Path, PathBuf};

use super::command::remove_in_background;
use super::record::{Made, Note, Taken, lane_ref};
use super::survey::{Survey, survey};
use super::{GitCli, archive, files, keep, linked, restore, shared_state, take_over};
use crate::app::ports::{Cleaned, PortError, PortResult};
use crate::domain::plan::Plan;
use crate::domain::worker::CheckoutMode;

/// Saves what the checkout holds and removes it; with `dry_run` only says what would happen.
pub(super) fn clean(git: &GitCli, plan: &Plan, rebuildable: &[String], dry_run: bool) -> PortResult<Cleaned> {
    let exists = plan.has_own_checkout() && files::is_directory(&plan.checkout_path);
    if !exists {
        if plan.has_own_checkout() && !dry_run {
            release(git, plan);
            let mut left: Vec<PathBuf> =
                Some(aside_path(plan, 0)).filter(|path| files::exists(path)).into_iter().collect();
            let unfinished = restore::unfinished(plan);
            if files::exists(&unfinished) {
                // The next restore makes it anew while this one is being removed.
                left.push(set_aside(plan, &unfinished)?);
            }
            remove_in_background(git, &left);
        }
        return Ok(nothing(plan));
    }
    let taken = require_taken(git, plan, dry_run)?;
    let found = survey(git, plan, taken.as_ref(), rebuildable, !dry_run)?;
    let archive_path = archive_path(plan);
    if !dry_run {
        save(plan, &found, &archive_path)?;
        let aside = set_aside(plan, &plan.checkout_path)?;
        release(git, plan);
        remove_in_background(git, &[aside]);
    }
    Ok(Cleaned {
        checkout_path: plan.checkout_path.clone(),
        existed: true,
        saved_paths: found.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        archive_path: found.saved.has_archive.then_some(archive_path),
        kept_refs: taken.map(|taken| taken.refs).unwrap_or_default(),
        left_out: found.left_out,
        freed_bytes: found.total_bytes,
    })
}

/// Where the archive of a lane is.
pub(super) fn archive_path(plan: &Plan) -> PathBuf {
    plan.run_dir.join("saved.tar")
}

fn nothing(plan: &Plan) -> Cleaned {
    Cleaned {
        checkout_path: plan.checkout_path.clone(),
        existed: false,
        saved_paths: Vec::new(),
        archive_path: Some(archive_path(plan)).filter(|path| files::exists(path)),
        kept_refs: Vec::new(),
        left_out: Vec::new(),
        freed_bytes: 0,
    }
}

/// The commits must be taken over first. Where that cannot be, the archive takes everything.
fn require_taken(git: &GitCli, plan: &Plan, dry_run: bool) -> PortResult<Option<Taken>> {
    if !dry_run && files::exists(&Note::Making.path(&plan.run_dir)) {
        let _ = take_over::take_over(git, plan);
    }
    Note::Taken.load(&plan.run_dir)
}

fn save(plan: &Plan, found: &Survey, archive_path: &Path) -> PortResult<()> {
    if found.saved.has_archive {
        archive::write(&plan.checkout_path, &found.paths, archive_path)?;
    }
    Note::Saved.write(&plan.run_dir, &found.saved)
}

/// Renames the checkout, or a half restored one, aside; from here on it is gone.
fn set_aside(plan: &Plan, folder: &Path) -> PortResult<PathBuf> {
    for number in 0..1000_u32 {
        let aside = aside_path(plan, number);
        if !files::exists(&aside) {
            files::rename(folder, &aside)?;
            return Ok(aside);
        }
    }
    Err(PortError::other(format!("set {} aside: too many removals are under way", folder.display())))
}

fn aside_path(plan: &Plan, number: u32) -> PathBuf {
    files::sibling(&plan.checkout_path, &format!(".removing-{number}"))
}

/// Gives back what the checkout held in the lead's repository: the pin, the worktree entry.
fn release(git: &GitCli, plan: &Plan) {
    let Some(repository) = &plan.repository else { return };
    if plan.checkout == CheckoutMode::Linked {
        let made = Made::load(&plan.run_dir).ok();
        linked::remove_entry(plan, repository, made.and_then(|made| made.admin_dir).as_deref());
        shared_state::leave_company(plan, repository);
    }
    let _ = keep::delete(git, &repository.common_dir, &lane_ref(plan, "base"));
}
