//! Paths that a caller names: what is protected, what may be written, and what neither may touch.

use std::path::{Path, PathBuf};

use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::request::RunRequest;
use crate::domain::admission::overlaps;
use crate::domain::plan::{Plan, RepositoryPlan};
use crate::domain::refusal::Refusal;

pub(super) fn protected_paths(
    context: &Context,
    request: &RunRequest,
    cwd: &Path,
    repository: Option<&RepositoryPlan>,
) -> AppResult<Vec<String>> {
    let Some(repository) = repository.filter(|_| !request.protect.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for asked in &request.protect {
        paths.push(from_root(cwd, &repository.root, asked).ok_or_else(|| {
            Refusal::usage(
                format!("--protect {}: it is not inside {}", asked.display(), repository.root.display()),
                "give a path inside the repository",
            )
        })?);
    }
    let missing = context.git.missing_in_base(repository, &paths).doing("look up the protected paths")?;
    match missing.first() {
        Some(path) => Err(Refusal::usage(
            format!("--protect {path}: it is not in commit {}", repository.base_commit),
            "the worker starts from that commit: commit the file first, or protect another path",
        )
        .into()),
        None => Ok(paths),
    }
}

/// Returns `asked` (relative to `cwd`, or absolute) from the root of the repository, without `..`.
fn from_root(cwd: &Path, root: &Path, asked: &Path) -> Option<String> {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for part in cwd.join(asked).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    let relative = plain.strip_prefix(root).ok()?;
    relative.to_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Refuses a path that cannot be written down as text, or that git cannot take.
pub(super) fn refuse_odd_path(what: &str, path: &Path) -> Result<(), Refusal> {
    let why = match path.to_str() {
        None => "is not UTF-8",
        Some(text) if text.contains('\n') => "has a line feed in its name",
        Some(_) => return Ok(()),
    };
    Err(Refusal::usage(format!("{what} {} {why}", path.display()), "rename the folder, or use another one"))
}

pub(super) fn add_dirs(
    context: &Context,
    request: &RunRequest,
    repository: Option<&RepositoryPlan>,
    codex_home: Option<&Path>,
) -> AppResult<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for asked in &request.add_dirs {
        let absolute = context.surroundings.directory.join(asked);
        let dir = context.machine.resolve_dir(&absolute).map_err(|error| {
            Refusal::usage(format!("--add-dir {}: {error}", asked.display()), "name a directory that exists")
        })?;
        refuse_odd_path("--add-dir", &dir)?;
        refuse_overlap(context, "--add-dir", &dir, repository, codex_home)?;
        dirs.push(dir);
    }
    Ok(dirs)
}

pub(super) fn refuse_bad_root(context: &Context, plan: &Plan) -> AppResult<()> {
    match &context.settings.checkout_root {
        Some(root) if plan.has_own_checkout() => {
            let root = context.machine.resolve_lenient(root);
            refuse_overlap(context, "LANE_WORKTREE_ROOT", &root, plan.repository.as_ref(), plan.codex_home.as_deref())
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a folder that contains or lies in what a worker must not reach.
fn refuse_overlap(
    context: &Context,
    what: &str,
    dir: &Path,
    repository: Option<&RepositoryPlan>,
    codex_home: Option<&Path>,
) -> AppResult<()> {
    let mut walls: Vec<(&str, &Path)> = vec![("the state folder", &context.state_dir)];
    if let Some(repository) = repository {
        walls.push(("the repository", &repository.root));
        walls.push(("the repository's git folder", &repository.common_dir));
    }
    walls.extend(codex_home.map(|home| ("the Codex home", home)));
    let hit = walls.iter().find(|(_, wall)| overlaps(dir, &context.machine.resolve_lenient(wall)));
    let home = context.surroundings.home().map(|home| context.machine.resolve_lenient(&home));
    let holds_home = home.is_some_and(|home| home.starts_with(dir));
    match hit {
        Some((name, wall)) => Err(Refusal::usage(
            format!("{what} {}: it contains or lies in {name} ({})", dir.display(), wall.display()),
            "choose a folder of its own for it",
        )
        .into()),
        None if holds_home => Err(Refusal::usage(
            format!("{what} {}: it is or contains the home folder", dir.display()),
            "choose a folder of its own for it",
        )
        .into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_paths_are_read_from_the_callers_directory() {
        let from = |cwd: &str, asked: &str| from_root(Path::new(cwd), Path::new("/r"), Path::new(asked));
        assert_eq!(from("/r", "tests/t.py"), Some("tests/t.py".into()));
        assert_eq!(from("/r/sub", "t.py"), Some("sub/t.py".into()));
        assert_eq!(from("/r/sub", "../t.py"), Some("t.py".into()));
        assert_eq!(from("/r/sub", "/r/t.py"), Some("t.py".into()));
        assert_eq!(from("/r", "../other/t.py"), None);
        assert_eq!(from("/r", "."), None);
    }
}
