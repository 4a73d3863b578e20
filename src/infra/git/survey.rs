//! What a checkout holds that its commits do not: the list of what must be saved before it goes.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::clone::{Tracked, id_bytes, path_of};
use super::record::{Made, Taken};
use super::scratch::Scratch;
use super::{GitCli, leftovers, require_repository};
use crate::app::ports::{PortError, PortResult};
use crate::domain::plan::Plan;

/// A path in a note: text, or `\0` and hexadecimal digits where it is no UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct NotedPath(String);

impl NotedPath {
    /// Notes a path.
    pub(super) fn new(path: &Path) -> Self {
        let text = path.to_str().map(str::to_owned);
        let hex = || path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Self(text.unwrap_or_else(|| format!("\0{}", hex())))
    }

    /// The path again.
    pub(super) fn path(&self) -> PathBuf {
        let Some(hex) = self.0.strip_prefix('\0') else { return PathBuf::from(&self.0) };
        let digits: Vec<char> = hex.chars().collect();
        let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap_or(b'?');
        path_of(&digits.chunks(2).map(byte).collect::<Vec<u8>>())
    }
}

/// What a cleaned checkout is made again from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    /// The commit whose tree it starts from; `None` when the archive alone holds everything.
    pub(super) tree_commit: Option<String>,
    /// Tracked files that were not there.
    pub(super) gone: Vec<NotedPath>,
    /// Modes that git does not know.
    pub(super) modes: Vec<(NotedPath, u32)>,
    /// Whether there is an archive.
    pub(super) has_archive: bool,
}

/// The findings.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// What to write down.
    pub(super) saved: Saved,
    /// What goes into the archive: files, links and folders, parents first.
    pub(super) paths: Vec<PathBuf>,
    /// Rebuildable folders that stay out, with their size in bytes.
    pub(super) left_out: Vec<(String, u64)>,
    /// Size of the whole checkout in bytes.
    pub(super) total_bytes: u64,
}

/// Looks the checkout over. `change` allows giving the owner rights that reading needs.
pub(super) fn survey(
    git: &GitCli,
    plan: &Plan,
    taken: Option<&Taken>,
    rebuildable: &[String],
    change: bool,
) -> PortResult<Survey> {
    let mut walk = Walk { root: &plan.checkout_path, change, entries: Vec::new(), total_bytes: 0 };
    walk.folder(Path::new(""))?;
    match taken {
        Some(taken) => against_commit(git, plan, taken, rebuildable, walk),
        None => Ok(everything(walk)),
    }
}

/// Without a commit to compare with, everything is saved, the git folder included.
fn everything(walk: Walk<'_>) -> Survey {
    let saved = Saved { has_archive: !walk.entries.is_empty(), ..Saved::default() };
    let paths = walk.entries.into_iter().filter(|entry| entry.kind != Kind::Special).map(|entry| entry.path).collect();
    Survey { saved, paths, left_out: Vec::new(), total_bytes: walk.total_bytes }
}

fn against_commit(
    git: &GitCli,
    plan: &Plan,
    taken: &Taken,
    rebuildable: &[String],
    walk: Walk<'_>,
) -> PortResult<Survey> {
    let made = Made::load(&plan.run_dir)?;
    let mut scratch = Scratch::of_checkout(git, plan, require_repository(plan)?, &made)?;
    scratch.may_open = walk.change;
    scratch.aim_at(git, &taken.tree_commit)?;
    let found = leftovers::find(git, &scratch)?;
    let links = Tracked::list(git, &scratch.git_dir, &scratch.work_tree, id_bytes(plan))?.links;
    let all = git.in_tree(&scratch.git_dir, &scratch.work_tree).args(["ls-files", "--others", "-z"]).require()?;
    let trim = |field: &[u8]| path_of(field.strip_suffix(b"/").unwrap_or(field));
    let others: BTreeSet<PathBuf> = all.fields().map(trim).collect();
    let known: BTreeSet<&PathBuf> = found.untracked.iter().chain(&found.nested).collect();
    let mut wanted: BTreeSet<PathBuf> = found.changed.iter().cloned().collect();
    let mut left_out = LeftOut::default();
    for path in others {
        let folder = if known.contains(&path) { None } else { rebuildable_folder(&path, rebuildable) };
        match folder {
            Some(folder) => left_out.add(folder, walk.size_under(&path)),
            None => drop(wanted.insert(path)),
        }
    }
    // Pointers to other repositories: git saves nothing of what is below them.
    wanted.extend(links.into_iter().map(|(path, _)| path));
    let pointers: BTreeSet<PathBuf> = made.submodules.iter().map(|one| Path::new(&one.path).join(".git")).collect();
    let left_out_folders: BTreeSet<PathBuf> =
        left_out.folders.iter().map(|(folder, _)| PathBuf::from(folder)).collect();
    let mut survey = Survey { total_bytes: walk.total_bytes, ..Survey::default() };
    for entry in &walk.entries {
        let inside = entry.path.ancestors().any(|part| wanted.contains(part));
        let out = entry.path.starts_with(".git") || pointers.contains(&entry.path) || entry.kind == Kind::Special;
        let rebuilt = entry.path.ancestors().any(|part| left_out_folders.contains(part));
        let bare = entry.kind == Kind::Folder && (inside || (entry.is_empty && !rebuilt));
        if out {
            continue;
        }
        if (inside && entry.kind == Kind::Content) || bare {
            survey.paths.push(entry.path.clone());
        } else if !rebuilt && !entry.has_usual_mode() {
            survey.saved.modes.push((NotedPath::new(&entry.path), entry.mode));
        }
    }
    survey.left_out = left_out.folders;
    survey.saved.tree_commit = Some(taken.tree_commit.clone());
    survey.saved.gone = found.gone.iter().map(|path| NotedPath::new(path)).collect();
    survey.saved.has_archive = !survey.paths.is_empty();
    Ok(survey)
}

#[derive(Default)]
struct LeftOut {
    folders: Vec<(String, u64)>,
}

impl LeftOut {
    fn add(&mut self, folder: PathBuf, bytes: u64) {
        let name = folder.to_string_lossy().into_owned();
        match self.folders.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => self.folders.push((name, bytes)),
        }
    }
}

/// The outermost folder above `path` that the list names, by its name or its whole path.
fn rebuildable_folder(path: &Path, rebuildable: &[String]) -> Option<PathBuf> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()).collect();
    above.reverse();
    let named = |folder: &&Path| {
        rebuildable.iter().map(|name| Path::new(name.trim_end_matches('/'))).any(|name| {
            *folder == name || (name.components().count() == 1 && folder.file_name() == Some(name.as_os_str()))
        })
    };
    above.into_iter().find(named).map(Path::to_path_buf)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Content,
    Folder,
    Special,
}

struct Entry {
    path: PathBuf,
    kind: Kind,
    mode: u32,
    is_link: bool,
    is_empty: bool,
    bytes: u64,
}

impl Entry {
    const fn has_usual_mode(&self) -> bool {
        match self.kind {
            Kind::Content => self.is_link || self.mode == 0o644 || self.mode == 0o755,
            Kind::Folder => self.mode == 0o755,
            Kind::Special => true,
        }
    }
}

/// Everything in the checkout, parents first; no link is followed.
struct Walk<'a> {
    root: &'a Path,
    change: bool,
    entries: Vec<Entry>,
    total_bytes: u64,
}

impl Walk<'_> {
    /// Adds what is in `folder` (from the root) and returns whether there was anything.
    fn folder(&mut self, folder: &Path) -> PortResult<bool> {
        let at = self.root.join(folder);
        let failed = |error: &std::io::Error| PortError::io(format!("read {}", at.display()), error);
        let listed = fs::read_dir(&at).or_else(|error| {
            if self.change && error.kind() == std::io::ErrorKind::PermissionDenied {
                fs::set_permissions(&at, Permissions::from_mode(0o700))?;
                return fs::read_dir(&at);
            }
            Err(error)
        });
        let mut names = Vec::new();
        for entry in listed.map_err(|error| failed(&error))? {
            names.push(entry.map_err(|error| failed(&error))?.file_name());
        }
        names.sort();
        for name in &names {
            self.entry(folder.join(name))?;
        }
        Ok(!names.is_empty())
    }

    fn entry(&mut self, path: PathBuf) -> PortResult<()> {
        let at = self.root.join(&path);
        let metadata =
            at.symlink_metadata().map_err(|error| PortError::io(format!("read {}", at.display()), &error))?;
        let bytes = metadata.blocks().saturating_mul(512);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        let kind = if metadata.is_dir() {
            Kind::Folder
        } else if metadata.is_file() || metadata.is_symlink() {
            Kind::Content
        } else {
            Kind::Special
        };
        let mode = metadata.mode() & 0o7777;
        let place = self.entries.len();
        let is_link = metadata.is_symlink();
        self.entries.push(Entry { path: path.clone(), kind, mode, is_link, is_empty: false, bytes });
        if kind == Kind::Folder {
            let filled = self.folder(&path)?;
            if let Some(entry) = self.entries.get_mut(place) {
                entry.is_empty = !filled;
            }
        }
        Ok(())
    }

    fn size_under(&self, path: &Path) -> u64 {
        // Entries are in order, so what is below a path follows it.
        let start = self.entries.partition_point(|entry| entry.path.as_path() < path);
        self.entries.iter().skip(start).take_while(|entry| entry.path.starts_with(path)).map(|entry| entry.bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_can_be_noted() {
        for bytes in [b"a/b c".as_slice(), b"a/\xff\xfe"] {
            let path = path_of(bytes);
            let text = serde_json::to_string(&NotedPath::new(&path)).unwrap();
            assert_eq!(serde_json::from_str::<NotedPath>(&text).unwrap().path(), path);
        }
    }

    #[test]
    fn rebuildable_folders_by_name_or_path() {
        let list = ["target/".to_owned(), "web/dist".to_owned()];
        let find = |path: &str| rebuildable_folder(Path::new(path), &list).map(|p| p.display().to_string());
        assert_eq!(find("a/target/x/target/y").as_deref(), Some("a/target"));
        assert_eq!(find("web/dist/x").as_deref(), Some("web/dist"));
        assert_eq!(find("dist/x"), None);
        assert_eq!(find("target"), None);
    }
}
