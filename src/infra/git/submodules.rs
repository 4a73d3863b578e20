//! Fills the submodules of a fresh checkout from what the lead's checkout has, without a network.
//!
//! Their git folders lie inside the checkout's own (`modules/<name>`), and so they leave with it
//! when the checkout is taken over.

use std::path::{Component, Path, PathBuf};

use super::clone::{Tracked, populate};
use super::git_folder::{GitFolder, HeadPoint};
use super::record::{FilledSubmodule, worker_git};
use super::{GitCli, files, require_repository};
use crate::app::ports::{PortError, PortResult};
use crate::domain::plan::Plan;

/// How deep submodules may nest.
const MOST_DEEP: usize = 16;

/// One repository whose gitlinks are to be filled.
struct Level<'a> {
    /// Git folder that knows the commit, in the lead's repository.
    source: &'a Path,
    /// Where the lead may keep the git folders of its submodules.
    module_roots: Vec<PathBuf>,
    /// The lead's working tree at this level, where it has one.
    lead_tree: PathBuf,
    /// The commit whose `.gitmodules` counts.
    commit: &'a str,
    /// Path of this level from the root of the checkout.
    prefix: &'a Path,
    /// Git folder of this level in the checkout, from the checkout's git folder.
    module: &'a str,
    depth: usize,
}

/// Fills every gitlink that `.gitmodules` names, nested ones too.
pub(super) fn fill(git: &GitCli, plan: &Plan, git_dir: &Path, tracked: &Tracked) -> PortResult<Vec<FilledSubmodule>> {
    let mut filled = Vec::new();
    if tracked.links.is_empty() {
        return Ok(filled);
    }
    let repository = require_repository(plan)?;
    let level = Level {
        source: &repository.common_dir,
        module_roots: vec![repository.git_dir.join("modules"), repository.common_dir.join("modules")],
        lead_tree: repository.root.clone(),
        commit: repository.base_commit.as_str(),
        prefix: Path::new(""),
        module: "",
        depth: 0,
    };
    fill_level(git, plan, git_dir, &level, &tracked.links, &mut filled)?;
    Ok(filled)
}

fn fill_level(
    git: &GitCli,
    plan: &Plan,
    git_dir: &Path,
    level: &Level<'_>,
    links: &[(PathBuf, String)],
    filled: &mut Vec<FilledSubmodule>,
) -> PortResult<()> {
    if level.depth > MOST_DEEP {
        return Err(PortError::other(format!("fill submodules of {}: they nest too deep", level.prefix.display())));
    }
    let names = declared(git, level.source, level.commit)?;
    for (path, commit) in links {
        let whole = level.prefix.join(path);
        let name = names.iter().find(|(_, declared)| Path::new(declared) == path).map(|(name, _)| name.as_str());
        let name = name.ok_or_else(|| {
            PortError::other(format!(
                "fill {}: it is a pointer to another repository that .gitmodules does not declare",
                whole.display()
            ))
        })?;
        let Some(text) = whole.to_str().filter(|_| is_safe(name)) else {
            return Err(PortError::other(format!("fill submodule {}: its name is not safe", whole.display())));
        };
        let source = find_source(git, level, name, path, commit).ok_or_else(|| missing(plan, text))?;
        let module = format!(
            "{}modules/{name}",
            if level.module.is_empty() { String::new() } else { format!("{}/", level.module) }
        );
        let one = FilledSubmodule { path: text.to_owned(), module, commit: commit.clone(), source };
        let inner = write_one(git, plan, git_dir, &one)?;
        filled.push(one.clone());
        if !inner.links.is_empty() {
            let next = Level {
                source: &one.source,
                module_roots: vec![one.source.join("modules")],
                lead_tree: level.lead_tree.join(path),
                commit,
                prefix: &whole,
                module: &one.module,
                depth: level.depth.saturating_add(1),
            };
            fill_level(git, plan, git_dir, &next, &inner.links, filled)?;
        }
    }
    Ok(())
}

fn missing(plan: &Plan, path: &str) -> PortError {
    let root = plan.repository.as_ref().map_or(&plan.cwd, |repository| &repository.root);
    PortError::other(format!(
        "fill submodule {path}: its commit is not in the caller's checkout; run `git -C {} submodule update --init \
         --recursive` first",
        root.display()
    ))
}

/// Names and paths of the submodules that a commit declares.
pub(super) fn declared(git: &GitCli, git_dir: &Path, commit: &str) -> PortResult<Vec<(String, String)>> {
    let blob = format!("{commit}:.gitmodules");
    let listed =
        git.on(git_dir).args(["config", "--blob", &blob, "-z", "--get-regexp", r"^submodule\..*\.path$"]).run()?;
    let mut pairs = Vec::new();
    for field in listed.fields() {
        let text = String::from_utf8_lossy(field);
        let Some((key, path)) = text.split_once('\n') else { continue };
        let name = key.strip_prefix("submodule.").and_then(|rest| rest.strip_suffix(".path"));
        pairs.extend(name.map(|name| (name.to_owned(), path.to_owned())));
    }
    Ok(pairs)
}

fn is_safe(name: &str) -> bool {
    let parts_are_plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    parts_are_plain && !name.is_empty() && !name.starts_with('-')
}

/// The git folder of the lead that holds the submodule's commit.
fn find_source(git: &GitCli, level: &Level<'_>, name: &str, path: &Path, commit: &str) -> Option<PathBuf> {
    let embedded = level.lead_tree.join(path).join(".git");
    let candidates = level.module_roots.iter().map(|root| root.join(name)).chain([embedded]);
    candidates.into_iter().find(|candidate| {
        candidate.join("objects").is_dir()
            && git
                .on(candidate)
                .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
                .run()
                .is_ok_and(|output| output.code == Some(0))
    })
}

fn object_format(git: &GitCli, git_dir: &Path) -> PortResult<String> {
    Ok(git.on(git_dir).args(["rev-parse", "--show-object-format"]).require()?.text())
}

/// Writes one submodule's git folder and its files, and returns what it tracks.
fn write_one(git: &GitCli, plan: &Plan, git_dir: &Path, one: &FilledSubmodule) -> PortResult<Tracked> {
    let work_tree = plan.checkout_path.join(&one.path);
    if !files::is_directory(&work_tree) {
        return Err(PortError::other(format!("fill submodule {}: its folder is not there", one.path)));
    }
    let folder = write_git_folder(git, git_dir, &work_tree, one, &one.commit)?;
    populate(git, &folder, &work_tree, &one.commit)?;
    Tracked::list(git, &folder, &work_tree, one.commit.len() / 2)
}

/// Writes a clean git folder for a submodule, and the file in its working tree that points to it.
fn write_git_folder(
    git: &GitCli,
    git_dir: &Path,
    work_tree: &Path,
    one: &FilledSubmodule,
    commit: &str,
) -> PortResult<PathBuf> {
    let path = git_dir.join(&one.module);
    for stale in ["config", "objects", "refs", "hooks"] {
        files::remove_tree(&path.join(stale))?;
    }
    let format = object_format(git, &one.source)?;
    let mut folder = GitFolder::bare_minimum(&format, vec![one.source.join("objects")], commit);
    folder.head = HeadPoint::Detached(commit.to_owned());
    folder.settings.push(("core.worktree".into(), work_tree.to_string_lossy().into_owned()));
    let config = super::config::LeadConfig::load(git, &one.source)?;
    folder.settings.extend(config.identity());
    folder.settings.extend(config.content());
    folder.shallow = files::read_plain(&one.source.join("shallow"), 64 * 1024 * 1024);
    folder.write(&path)?;
    files::write(&work_tree.join(".git"), format!("gitdir: {}\n", path.display()))?;
    Ok(path)
}

/// Puts clean git folders in the place of the submodules' own, after the worker.
///
/// `commits` says where each one stands now. What stood in the working tree as `.git` is moved
/// beside the worker's git folder unless it is the plain file that Lane wrote.
pub(super) fn replace_git_folders(
    git: &GitCli,
    plan: &Plan,
    git_dir: &Path,
    filled: &[(FilledSubmodule, String)],
) -> PortResult<()> {
    for (number, (one, commit)) in filled.iter().enumerate() {
        let work_tree = plan.checkout_path.join(&one.path);
        if !files::is_directory(&work_tree) || !work_tree_is_real(&plan.checkout_path, &one.path) {
            continue;
        }
        let pointer = work_tree.join(".git");
        if files::exists(&pointer) && !pointer.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            let aside = files::sibling(&worker_git(plan), &format!("-submodule-{number}"));
            if files::exists(&aside) {
                files::remove_tree(&pointer)?
            } else {
                super::take_over::move_aside(&pointer, &aside)?
            }
        } else {
            files::remove_tree(&pointer)?;
        }
        let folder = write_git_folder(git, git_dir, &work_tree, one, commit)?;
        git.in_tree(&folder, &work_tree).args(["read-tree", "--reset", commit]).require()?;
    }
    Ok(())
}

/// Whether no folder on the way to a submodule was replaced by a link.
pub(super) fn work_tree_is_real(root: &Path, path: &str) -> bool {
    let path = Path::new(path);
    path.ancestors().filter(|part| !part.as_os_str().is_empty()).all(|part| files::is_directory(&root.join(part)))
}

/// Whether no folder above a path was replaced by a link.
pub(super) fn parents_are_real(root: &Path, path: &Path) -> bool {
    path.ancestors()
        .skip(1)
        .filter(|part| !part.as_os_str().is_empty())
        .all(|part| files::is_directory(&root.join(part)))
}
