//! Refs of Lane's own in the lead's repository, set by compare-and-swap.

use std::path::Path;

use super::GitCli;
use super::record::lane_ref;
use crate::app::ports::{PortError, PortErrorKind, PortResult};
use crate::domain::plan::{Plan, RepositoryPlan};

/// Pins the base commit, so that pruning cannot take it from a checkout that borrows it.
///
/// A pin of an earlier try at the same commit is fine.
pub(super) fn pin_base(git: &GitCli, plan: &Plan, repository: &RepositoryPlan) -> PortResult<()> {
    let pin = lane_ref(plan, "base");
    set_all(git, &repository.common_dir, &[(pin, repository.base_commit.to_string())])
}

/// Returns the object that `name` names; `None` when there is no such ref.
pub(super) fn value(git: &GitCli, git_dir: &Path, name: &str) -> PortResult<Option<String>> {
    let output = git.on(git_dir).args(["rev-parse", "--quiet", "--verify", name]).run()?;
    Ok((output.code == Some(0)).then(|| output.text()))
}

/// Creates refs, all or none. One that is there already must have the same value.
pub(super) fn set_all(git: &GitCli, git_dir: &Path, refs: &[(String, String)]) -> PortResult<()> {
    let mut input = Vec::new();
    for (name, target) in refs {
        input.extend(format!("create {name}\0{target}\0").into_bytes());
    }
    let update = || git.on(git_dir).args(["update-ref", "--no-deref", "--stdin", "-z"]).input(input.clone()).require();
    let Err(error) = update() else { return Ok(()) };
    // Some may be there from a try that was cut short: those that already fit are left alone.
    let mut input = Vec::new();
    for (name, target) in refs {
        match value(git, git_dir, name)? {
            Some(found) if found == *target => {}
            Some(found) => {
                let message = format!("set {name} to {target}: it is at {found} already");
                return Err(PortError { kind: PortErrorKind::Held, message });
            }
            None => input.extend(format!("create {name}\0{target}\0").into_bytes()),
        }
    }
    if input.is_empty() {
        return Ok(());
    }
    git.on(git_dir).args(["update-ref", "--no-deref", "--stdin", "-z"]).input(input).require().map(drop).map_err(
        |again| PortError { kind: again.kind, message: format!("{} (first: {})", again.message, error.message) },
    )
}

/// Removes a ref, if it is there.
pub(super) fn delete(git: &GitCli, git_dir: &Path, name: &str) -> PortResult<()> {
    git.on(git_dir).args(["update-ref", "--no-deref", "-d", name]).require().map(drop)
}
