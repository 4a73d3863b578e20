//! Where a path of the caller lies. On the way of every `lane run`, so it starts one git process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::command::{Call, Output};
use super::{GitCli, look_ahead};
use crate::app::ports::{Located, PortError, PortResult};
use crate::domain::ids::CommitId;
use crate::domain::plan::RepositoryPlan;

/// Finds the repository of `cwd` and the commit that `revision` names.
///
/// One git process answers everything. Only the rare answers "no commit yet" and "no such
/// revision" take a second one to be told apart.
pub(super) fn locate(git: &GitCli, cwd: &Path, revision: &str) -> PortResult<Located> {
    let safe = is_safe(revision);
    let output = match look_ahead::take(git, cwd, revision) {
        Some(running) => running.finish()?,
        None => question(git, cwd, revision).run()?,
    };
    let lines: Vec<&[u8]> = output.stdout.split(|byte| *byte == b'\n').collect();
    match (output.code, lines.as_slice()) {
        (Some(0), [common_dir, git_dir, format, b"true", root, commit, b"--", b""]) => {
            let commit = CommitId::try_from(String::from_utf8_lossy(commit).into_owned());
            let (true, Ok(base_commit)) = (safe, commit) else { return Ok(Located::UnknownRevision) };
            Ok(Located::Inside {
                repository: RepositoryPlan {
                    root: path(root),
                    common_dir: path(common_dir),
                    git_dir: path(git_dir),
                    object_format: String::from_utf8_lossy(format).into_owned(),
                    base_commit,
                    base_revision: revision.to_owned(),
                },
                lane_branch_exists: lane_branch_exists(git, &path(common_dir))?,
            })
        }
        // Two or more lines where one commit was expected: the revision is a range.
        (Some(0), [common_dir, _, _, b"true", root, ..]) if is_git_folder(&path(common_dir)) && path(root).is_dir() => {
            Ok(Located::UnknownRevision)
        }
        (_, [common_dir, _, _, b"false", ..]) if is_git_folder(&path(common_dir)) => Ok(Located::NoWorkTree),
        (Some(128), [common_dir, _, _, b"true", ..]) if is_git_folder(&path(common_dir)) => no_commit(git, cwd),
        _ => outside(cwd, &output),
    }
}

/// The call that answers where `cwd` lies and what `revision` names.
pub(super) fn question(git: &GitCli, cwd: &Path, revision: &str) -> Call {
    let asked = if is_safe(revision) { revision } else { "HEAD" };
    git.call(cwd)
        .args(["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--show-object-format"])
        .args(["--is-inside-work-tree", "--show-toplevel"])
        .arg(format!("{asked}^{{commit}}"))
        .arg("--")
}

/// No revision starts with a dash, and git would take it for an option.
fn is_safe(revision: &str) -> bool {
    !revision.starts_with('-') && !revision.contains(['\n', '\0']) && !revision.is_empty()
}

/// Whether there is a branch named `lane`.
///
/// The files are looked at directly: git's own pattern options read every ref there is, and the
/// cost of a start must not grow with the branches of past lanes.
fn lane_branch_exists(git: &GitCli, common_dir: &Path) -> PortResult<bool> {
    if common_dir.join("reftable").is_dir() {
        let shown = git.on(common_dir).args(["show-ref", "--verify", "--quiet", "refs/heads/lane"]).run()?;
        return Ok(shown.code == Some(0));
    }
    let loose = common_dir.join("refs/heads/lane");
    if loose.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
        return Ok(true);
    }
    let packed = std::fs::read(common_dir.join("packed-refs")).unwrap_or_default();
    let mut lines = packed.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| line.strip_suffix(b" refs/heads/lane").is_some()))
}

/// Tells a repository without a commit from a revision that does not name one.
fn no_commit(git: &GitCli, cwd: &Path) -> PortResult<Located> {
    let any = git.call(cwd).args(["rev-list", "--all", "--max-count=1"]).run()?;
    let head = git.call(cwd).args(["rev-parse", "--quiet", "--verify", "HEAD^{commit}"]).run()?;
    let empty = any.stdout.is_empty() && head.code != Some(0);
    Ok(if empty { Located::NoCommit } else { Located::UnknownRevision })
}

/// No repository: unless there plainly is one that git refuses to read.
fn outside(cwd: &Path, output: &Output) -> PortResult<Located> {
    let refused = cwd.ancestors().any(|folder| {
        let inner = folder.join(".git");
        inner.is_file() || is_git_folder(&inner) || is_git_folder(folder)
    });
    if !refused {
        return Ok(Located::Outside);
    }
    let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
    let why = if lines > 8 { "a path with a line feed is not supported" } else { output.stderr.as_str() };
    Err(PortError::other(format!("read the repository of {}: {why}", cwd.display())))
}

fn is_git_folder(folder: &Path) -> bool {
    folder.join("HEAD").symlink_metadata().is_ok() && folder.join("objects").is_dir()
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
