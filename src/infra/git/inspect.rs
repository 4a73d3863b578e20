//! Short questions about the lead's repository.

use std::path::Path;

use super::GitCli;
use crate::app::ports::PortResult;
use crate::domain::plan::RepositoryPlan;

/// Returns those of `paths` that the base's tree does not have.
pub(super) fn missing_in_base(git: &GitCli, repository: &RepositoryPlan, paths: &[String]) -> PortResult<Vec<String>> {
    let plain = |path: &str| path.trim_start_matches("./").trim_end_matches('/').to_owned();
    let asked: Vec<String> = paths.iter().map(|path| plain(path)).filter(|path| !is_root(path)).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let listed = git
        .on(&repository.common_dir)
        .env("GIT_LITERAL_PATHSPECS", "1")
        .args(["ls-tree", "-t", "-z", "--name-only", "--full-tree", repository.base_commit.as_str(), "--"])
        .args(&asked)
        .require()?;
    let found: Vec<&[u8]> = listed.fields().collect();
    let there = |path: &String| is_root(&plain(path)) || found.contains(&plain(path).as_bytes());
    Ok(paths.iter().filter(|path| !there(path)).cloned().collect())
}

fn is_root(path: &str) -> bool {
    path.is_empty() || path == "."
}

/// Returns how many paths of the caller's working tree are not as committed; an untracked folder
/// counts once.
pub(super) fn dirty_paths(git: &GitCli, repository: &RepositoryPlan) -> PortResult<u64> {
    let listed = git
        .in_tree(&repository.git_dir, &repository.root)
        .args(["status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames"])
        .arg("--ignore-submodules=dirty")
        .require()?;
    Ok(u64::try_from(listed.fields().count()).unwrap_or(u64::MAX))
}

/// Version of the git executable, as `git --version` names it.
pub(super) fn version(git: &GitCli) -> PortResult<String> {
    let output = git.call(Path::new("/")).arg("--version").require()?;
    let text = output.text();
    Ok(text.strip_prefix("git version ").unwrap_or(&text).to_owned())
}
