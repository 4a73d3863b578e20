//! Brings ignored files of the lead's working tree along into a fresh checkout.
//!
//! The base commit's `.worktreeinclude` and the person's `[checkout] include` name them in
//! gitignore syntax. Only files that git ignores come along, never through a link, and
//! credential-shaped ones only when the person's own patterns match them. They are excluded in the
//! checkout, so that they end up in no commit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use super::clone::{Tracked, path_of};
use super::{GitCli, files, require_repository};
use crate::app::ports::{PortError, PortResult};
use crate::domain::plan::{Plan, RepositoryPlan};

/// The most bytes that a `.worktreeinclude` may have.
const INCLUDE_LIMIT_BYTES: u64 = 1024 * 1024;

/// Copies the files and returns their paths from the root.
pub(super) fn bring_along(
    git: &GitCli,
    plan: &Plan,
    tracked: &Tracked,
    warnings: &mut Vec<String>,
) -> PortResult<Vec<String>> {
    let repository = require_repository(plan)?;
    let mut wanted = BTreeSet::new();
    if tracked.has_include {
        let patterns = files::read_plain(&plan.checkout_path.join(".worktreeinclude"), INCLUDE_LIMIT_BYTES);
        let found = matching(git, plan, repository, &patterns.unwrap_or_default())?;
        let (secret, plain): (Vec<PathBuf>, Vec<PathBuf>) = found.into_iter().partition(|path| is_credential(path));
        wanted.extend(plain);
        let named = person_matches(git, plan, repository)?;
        let held_back: Vec<String> =
            secret.iter().filter(|path| !named.contains(*path)).map(|path| path.display().to_string()).collect();
        if !held_back.is_empty() {
            warnings.push(format!(
                "not brought along, since they look like credentials and the person's [checkout] include does not \
                 name them: {}",
                held_back.join(", ")
            ));
        }
        wanted.extend(named);
    } else {
        wanted.extend(person_matches(git, plan, repository)?);
    }
    copy_all(repository, plan, wanted, warnings)
}

fn person_matches(git: &GitCli, plan: &Plan, repository: &RepositoryPlan) -> PortResult<BTreeSet<PathBuf>> {
    if plan.checkout_include.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut patterns = plan.checkout_include.join("\n").into_bytes();
    patterns.push(b'\n');
    matching(git, plan, repository, &patterns)
}

/// The files of the lead's working tree that match the patterns and that git ignores.
fn matching(git: &GitCli, plan: &Plan, repository: &RepositoryPlan, patterns: &[u8]) -> PortResult<BTreeSet<PathBuf>> {
    let list = plan.run_dir.join("include-patterns");
    files::write(&list, patterns)?;
    let listed = git
        .in_tree(&repository.git_dir, &repository.root)
        .args(["ls-files", "--others", "--ignored", "-z", "--exclude-from"])
        .arg(&list)
        .require();
    let _ = fs::remove_file(&list);
    let mut input = Vec::new();
    for field in listed?.fields().filter(|field| !field.ends_with(b"/")) {
        input.extend_from_slice(field);
        input.push(0);
    }
    if input.is_empty() {
        return Ok(BTreeSet::new());
    }
    let words = ["check-ignore", "-z", "--stdin"];
    let ignored = git.in_tree(&repository.git_dir, &repository.root).args(words).input(input).run()?;
    match ignored.code {
        Some(0 | 1) => Ok(ignored.fields().map(path_of).collect()),
        _ => Err(super::command::failure("git check-ignore", &ignored)),
    }
}

fn copy_all(
    repository: &RepositoryPlan,
    plan: &Plan,
    wanted: BTreeSet<PathBuf>,
    warnings: &mut Vec<String>,
) -> PortResult<Vec<String>> {
    let mut brought = Vec::new();
    for path in wanted {
        let Some(text) = path.to_str().filter(|text| !text.contains('\n')) else {
            warnings.push(format!("not brought along, its name cannot be excluded: {}", path.display()));
            continue;
        };
        match copy_one(&repository.root, &plan.checkout_path, &path) {
            Ok(true) => brought.push(text.to_owned()),
            Ok(false) => warnings.push(format!("not brought along, a link or a tracked file is in the way: {text}")),
            Err(error) => return Err(PortError::io(format!("bring along {text}"), &error)),
        }
    }
    Ok(brought)
}

/// Copies one file; `false` when it would leave the repository or overwrite something.
fn copy_one(from_root: &Path, to_root: &Path, path: &Path) -> std::io::Result<bool> {
    let (from, to) = (from_root.join(path), to_root.join(path));
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !plain || files::exists(&to) || !real_parents(from_root, path) || !make_parents(to_root, path)? {
        return Ok(false);
    }
    let metadata = from.symlink_metadata()?;
    if metadata.is_symlink() {
        let target = fs::read_link(&from)?;
        let stays = stays_inside(path, &target);
        return if stays { std::os::unix::fs::symlink(target, &to).map(|()| true) } else { Ok(false) };
    }
    // On a file system that can, the copy shares its blocks.
    if metadata.is_file() { fs::copy(&from, &to).map(|_| true) } else { Ok(false) }
}

fn real_parents(root: &Path, path: &Path) -> bool {
    let parents: Vec<&Path> = path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()).collect();
    parents.iter().all(|parent| files::is_directory(&root.join(parent)))
}

/// Makes the parents one by one; `false` when one of them is no real folder.
fn make_parents(root: &Path, path: &Path) -> std::io::Result<bool> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()).collect();
    parents.reverse();
    for parent in parents {
        let folder = root.join(parent);
        if !files::exists(&folder) {
            fs::create_dir(&folder)?;
        } else if !files::is_directory(&folder) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a link at `path` with this target stays below the root, by its text alone.
fn stays_inside(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth = depth.saturating_add(1),
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth = depth.saturating_sub(1),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// Whether a path is shaped like one that holds a secret.
fn is_credential(path: &Path) -> bool {
    const NAMES: [&str; 12] = [
        ".env",
        ".envrc",
        ".npmrc",
        ".netrc",
        "_netrc",
        ".pypirc",
        ".git-credentials",
        ".pgpass",
        ".htpasswd",
        ".dockercfg",
        "kubeconfig",
        ".vault-token",
    ];
    const ENDINGS: [&str; 10] =
        [".pem", ".key", ".p12", ".pfx", ".keystore", ".jks", ".kdbx", ".ppk", ".asc", ".tfvars"];
    const WORDS: [&str; 7] =
        ["credential", "secret", "password", "private_key", "privatekey", "service-account", "token"];
    const FOLDERS: [&str; 6] = [".ssh", ".aws", ".gnupg", ".kube", ".docker", "secrets"];
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let in_folder = path.components().any(|part| FOLDERS.iter().any(|folder| part.as_os_str() == *folder));
    NAMES.contains(&name.as_str())
        || name.starts_with(".env.")
        || name.starts_with("id_")
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || WORDS.iter().any(|word| name.contains(word))
        || in_folder
}

/// Adds the files that were brought along to the checkout's own ignore rules.
pub(super) fn exclude_brought(git_dir: &Path, plan: &Plan, exclude: &str, brought: &[String]) -> PortResult<()> {
    // A linked worktree shares the file with the lead, so there it stays as it is; Lane's own
    // commit leaves the files out anyway.
    if plan.checkout != crate::domain::worker::CheckoutMode::Clone {
        return Ok(());
    }
    files::write(&git_dir.join("info/exclude"), with_brought(exclude, brought))
}

/// Ignore rules followed by one rule for each file that was brought along.
pub(super) fn with_brought(exclude: &str, brought: &[String]) -> String {
    let mut text = exclude.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for path in brought {
        text.push('/');
        text.push_str(&escape(path));
        text.push('\n');
    }
    text
}

/// A path as a pattern that matches nothing else.
pub(super) fn escape(path: &str) -> String {
    let mut pattern = String::new();
    for character in path.chars() {
        if matches!(character, '\\' | '*' | '?' | '[' | ']' | '!' | '#' | ' ') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_leave_are_told_apart() {
        assert!(stays_inside(Path::new("a/b"), Path::new("../c")));
        assert!(stays_inside(Path::new("a"), Path::new("c/../d")));
        assert!(!stays_inside(Path::new("a/b"), Path::new("../../c")));
        assert!(!stays_inside(Path::new("a"), Path::new("/etc/passwd")));
        assert!(!stays_inside(Path::new("a"), Path::new("c/../../d")));
    }

    #[test]
    fn credential_shapes() {
        for path in [".env", "app/.env.local", "k/server.pem", ".aws/config", "id_rsa", "my-token.txt"] {
            assert!(is_credential(Path::new(path)), "{path}");
        }
        for path in ["environment.md", "data/model.bin", "local.settings.toml"] {
            assert!(!is_credential(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn patterns_are_literal() {
        assert_eq!(with_brought("x", &["a [1]/*b".to_owned()]), "x\n/a\\ \\[1\\]/\\*b\n");
    }
}
