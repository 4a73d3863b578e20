//! Takes commits over by their objects.
//!
//! 1. The worker's plain loose objects and packs are copied into a quarantine under the lead's
//!    repository: no links, FIFOs, indexes, alternates or anything else.
//! 2. What the tips need beyond the base is listed there and written as one pack.
//! 3. That pack is indexed with git's strict checks in a second quarantine. Every object's id is
//!    computed anew, so nothing can pass for what it is not.
//! 4. Connectivity from the base to every tip is proved there.
//! 5. Only then does the pack move into the lead's objects.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::files;
use super::git_folder::alternate_line;
use super::{GitCli, command::Call};
use crate::app::ports::{PortError, PortResult};

/// Holes in smaller files do no harm.
const HOLES_MATTER_BYTES: u64 = 64 * 1024 * 1024;

/// Where objects come from and go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer<'a> {
    /// The git folder that takes them.
    pub(super) into: &'a Path,
    /// The object folder that they come from.
    pub(super) from: &'a Path,
    /// Whether that folder was the worker's.
    pub(super) hostile: bool,
    /// What the taker has for sure.
    pub(super) base: &'a str,
    /// A word that makes the quarantine's name its own, the lane's id for example.
    pub(super) name: &'a str,
}

/// Folders that vanish with this value.
struct Quarantine {
    copied: PathBuf,
    checked: PathBuf,
}

impl Quarantine {
    fn make(transfer: &Transfer<'_>) -> PortResult<Self> {
        let objects = transfer.into.join("objects");
        // Git's own cleaning removes stale folders with this beginning.
        let folder = |what: &str| objects.join(format!("tmp_objdir-lane-{}-{what}", transfer.name));
        let quarantine = Self { copied: folder("copied"), checked: folder("checked") };
        for path in [&quarantine.copied, &quarantine.checked] {
            files::remove_tree(path)?;
            for part in ["info", "pack"] {
                files::make_folder(&path.join(part))?;
            }
            files::write(&path.join("info/alternates"), alternate_line(&objects)?)?;
        }
        Ok(quarantine)
    }
}

impl Drop for Quarantine {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.copied);
        let _ = files::remove_tree(&self.checked);
    }
}

/// Brings everything that `tips` need into the taker's objects, or nothing.
pub(super) fn import(git: &GitCli, transfer: &Transfer<'_>, tips: &[String]) -> PortResult<()> {
    let tips: Vec<&String> = tips.iter().filter(|tip| *tip != transfer.base).collect();
    if tips.is_empty() {
        return Ok(());
    }
    let quarantine = Quarantine::make(transfer)?;
    let source = if transfer.hostile {
        copy_objects(git, transfer, &quarantine.copied)?;
        quarantine.copied.as_path()
    } else {
        transfer.from
    };
    let wanted = revisions(&tips, transfer.base);
    let listed = with_objects(git, transfer.into, source)
        .args(["rev-list", "--objects", "--no-object-names", "--stdin"])
        .input(wanted.clone())
        .require()
        .map_err(|error| explain("read the worker's commits", error))?;
    if !listed.stdout.is_empty() {
        let pack = quarantine.checked.join("incoming");
        write_pack(git, transfer.into, source, listed.stdout, &pack)?;
        let stream = File::open(&pack).map_err(|error| PortError::io(format!("read {}", pack.display()), &error))?;
        with_objects(git, transfer.into, &quarantine.checked)
            .args(["index-pack", "--strict", "--stdin"])
            .input_file(stream)
            .require()
            .map_err(|error| explain("check the worker's objects", error))?;
    }
    with_objects(git, transfer.into, &quarantine.checked)
        .args(["rev-list", "--objects", "--quiet", "--stdin"])
        .input(wanted)
        .require()
        .map_err(|error| explain("prove that the worker's commits are complete", error))?;
    migrate(&quarantine.checked.join("pack"), &transfer.into.join("objects/pack"))
}

/// Proves that everything which `tips` need beyond `base` is there.
pub(super) fn prove_complete(git: &GitCli, git_dir: &Path, tips: &[String], base: &str) -> PortResult<()> {
    let tips: Vec<&String> = tips.iter().collect();
    git.on(git_dir)
        .args(["rev-list", "--objects", "--quiet", "--stdin"])
        .input(revisions(&tips, base))
        .require()
        .map(drop)
        .map_err(|error| explain("prove that the worker's commits are complete", error))
}

fn explain(doing: &str, error: PortError) -> PortError {
    PortError { kind: error.kind, message: format!("{doing}: {}", error.message) }
}

fn revisions(tips: &[&String], base: &str) -> Vec<u8> {
    let mut text: String = tips.iter().map(|tip| format!("{tip}\n")).collect();
    text.push_str(&format!("^{base}\n"));
    text.into_bytes()
}

/// A call on `git_dir` that reads and writes objects in `objects`.
fn with_objects(git: &GitCli, git_dir: &Path, objects: &Path) -> Call {
    git.on(git_dir).env("GIT_OBJECT_DIRECTORY", objects)
}

fn write_pack(git: &GitCli, into: &Path, source: &Path, list: Vec<u8>, target: &Path) -> PortResult<()> {
    let file = File::create(target).map_err(|error| PortError::io(format!("write {}", target.display()), &error))?;
    with_objects(git, into, source)
        .args(["pack-objects", "--stdout", "--delta-base-offset", "--quiet"])
        .input(list)
        .output_file(file)
        .require()
        .map(drop)
        .map_err(|error| explain("pack the worker's objects", error))
}

/// Moves the checked pack; its index comes last, since it is what makes a pack count.
fn migrate(from: &Path, to: &Path) -> PortResult<()> {
    let entries = fs::read_dir(from).map_err(|error| PortError::io(format!("read {}", from.display()), &error))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pack-")));
    paths.sort_by_key(|path| path.extension().is_some_and(|extension| extension == "idx"));
    files::make_folder(to)?;
    for path in paths {
        if let Some(name) = path.file_name() {
            if let Some(file) = files::open_plain(&path) {
                let _ = file.sync_all();
            }
            files::rename(&path, &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies plain loose objects and packs, and gives each pack an index of Lane's own.
fn copy_objects(git: &GitCli, transfer: &Transfer<'_>, to: &Path) -> PortResult<()> {
    if !files::is_directory(transfer.from) {
        return Ok(());
    }
    let entries = fs::read_dir(transfer.from)
        .map_err(|error| PortError::io(format!("read {}", transfer.from.display()), &error))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() == 2 && is_hex(&name) && files::is_directory(&entry.path()) {
            copy_loose(&entry.path(), &to.join(&name))?;
        }
    }
    let packs = transfer.from.join("pack");
    if !files::is_directory(&packs) {
        return Ok(());
    }
    let entries = fs::read_dir(&packs).map_err(|error| PortError::io(format!("read {}", packs.display()), &error))?;
    for (number, entry) in entries.flatten().enumerate() {
        if entry.path().extension().is_some_and(|extension| extension == "pack") {
            copy_pack(git, transfer.into, &entry.path(), &to.join(format!("pack/pack-{number}.pack")))?;
        }
    }
    Ok(())
}

fn copy_loose(from: &Path, to: &Path) -> PortResult<()> {
    let entries = fs::read_dir(from).map_err(|error| PortError::io(format!("read {}", from.display()), &error))?;
    let mut made = false;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if matches!(name.len(), 38 | 62) && is_hex(&name) {
            if !made {
                files::make_folder(to)?;
                made = true;
            }
            copy_plain(&entry.path(), &to.join(name))?;
        }
    }
    Ok(())
}

/// Copies a pack and indexes it. A broken one is left out; the proof of connectivity decides.
fn copy_pack(git: &GitCli, into: &Path, from: &Path, to: &Path) -> PortResult<()> {
    if !copy_plain(from, to)? {
        return Ok(());
    }
    let objects = to.parent().and_then(Path::parent).unwrap_or(to);
    let indexed = with_objects(git, into, objects).arg("index-pack").arg(to).run()?;
    if indexed.code != Some(0) {
        files::remove_tree(to)?;
    }
    Ok(())
}

/// Copies a plain file; `false` when it is anything else.
///
/// A large file with holes was never written by git: copied, it would fill the disk.
fn copy_plain(from: &Path, to: &Path) -> PortResult<bool> {
    let Some(mut source) = files::open_plain(from) else { return Ok(false) };
    if has_holes(&source) {
        return Ok(false);
    }
    let copied = File::create_new(to).and_then(|mut target| std::io::copy(&mut source, &mut target));
    copied.map(|_| true).map_err(|error| PortError::io(format!("copy {}", from.display()), &error))
}

/// Whether a file that is not small says it is longer than what was written of it.
fn has_holes(file: &File) -> bool {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    if length < HOLES_MATTER_BYTES {
        return false;
    }
    #[cfg(target_os = "linux")]
    let hole = nix::unistd::lseek(file, 0, nix::unistd::Whence::SeekHole);
    #[cfg(not(target_os = "linux"))]
    let hole = nix::Result::Err(nix::errno::Errno::ENOTSUP);
    // Whoever cannot tell says that the first hole is at the end.
    let found = hole.is_ok_and(|at| u64::try_from(at).is_ok_and(|at| at < length));
    let _ = (&*file).seek(SeekFrom::Start(0));
    found
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_of_holes_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(!copy_plain(&from, &to).unwrap());
        file.set_len(0).unwrap();
        fs::write(&from, vec![7; 70 << 20]).unwrap();
        assert!(copy_plain(&from, &to).unwrap());
        assert_eq!(to.metadata().unwrap().len(), 70 << 20);
    }
}
