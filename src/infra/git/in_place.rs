//! Facts about a lane that wrote in the caller's own directory. Nothing is moved there.

use std::path::PathBuf;

use super::record::{Made, Taken};
use super::scratch::Scratch;
use super::{GitCli, facts, files, leftovers, require_repository};
use crate::app::ports::{PortError, PortResult};
use crate::domain::facts::{Changes, TakenOver};
use crate::domain::ids::CommitId;
use crate::domain::plan::Plan;

/// Measures the caller's working tree against the base.
///
/// The tree is looked at through a git folder of Lane's own, which stays in the run folder so that
/// the diff can be shown later.
pub(super) fn take_over(git: &GitCli, plan: &Plan) -> PortResult<Taken> {
    let repository = require_repository(plan)?;
    let head = git.on(&repository.git_dir).args(["rev-parse", "--verify", "HEAD^{commit}"]).require()?.text();
    let branch = git.on(&repository.git_dir).args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
    let mut at_root = plan.clone();
    at_root.checkout_path = repository.root.clone();
    let exclude = files::read_plain(&repository.common_dir.join("info/exclude"), 1024 * 1024).unwrap_or_default();
    let made = Made { exclude: String::from_utf8_lossy(&exclude).into_owned(), ..Made::default() };
    let scratch = Scratch::make(git, &at_root, repository, &made, &repository.git_dir.join("index"))?;
    scratch.aim_at(git, &head)?;
    let found = leftovers::find(git, &scratch)?;
    let staged = leftovers::stage(git, &scratch, &found)?;
    let (measured, _) = facts::measure(git, &scratch.git_dir, plan, &head, &staged.tree)?;
    let dirty = [&found.changed, &found.gone, &found.untracked].map(|paths: &Vec<PathBuf>| paths.len());
    let dirty: usize = dirty.iter().sum();
    let mut warnings = Vec::new();
    if dirty > 0 {
        warnings.push(format!("{dirty} paths of the caller's directory are not committed; Lane left them as they are"));
    }
    let nested = found.nested.iter().map(|path| path.to_string_lossy().into_owned());
    let changes = Changes {
        nested_repositories: measured.nested_repositories.iter().cloned().chain(nested).collect(),
        detached: branch.code != Some(0),
        operation_in_progress: super::hostile_refs::operation(&repository.git_dir),
        ..measured
    };
    let kept = plan.run_dir.join("in-place-git");
    files::remove_tree(&kept)?;
    files::rename(&scratch.git_dir, &kept)?;
    let head_commit = CommitId::try_from(head).map_err(|error| PortError::other(error.to_string()))?;
    let answer = TakenOver { head_commit, changes, warnings };
    Ok(Taken { answer, tree_commit: staged.tree, refs: Vec::new(), git_dir: Some(kept) })
}
