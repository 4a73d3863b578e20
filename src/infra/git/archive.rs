//! The archive of what a checkout held besides its commits: a plain tar file, private to the user.
//!
//! Files, links, folders, their modes and their times go in and come out. Nothing is followed on
//! the way in, and nothing is written through a link on the way out.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::files;
use crate::app::ports::{PortError, PortErrorKind, PortResult};

/// Writes `paths` (from `root`, in this order) to a tar file at `target`, by rename after fsync.
pub(super) fn write(root: &Path, paths: &[PathBuf], target: &Path) -> PortResult<()> {
    let partial = files::sibling(target, ".partial");
    files::remove_tree(&partial)?;
    check_room(root, paths, target)?;
    let written = fill(root, paths, &partial).and_then(|()| verify(&partial, paths.len()));
    if let Err(error) = written {
        let _ = files::remove_tree(&partial);
        return Err(PortError::io(format!("save {} to {}", root.display(), target.display()), &error));
    }
    files::rename(&partial, target)
}

/// Refuses what cannot fit, before the disk is full of a part of it: a file of holes is longer than
/// what it takes.
fn check_room(root: &Path, paths: &[PathBuf], target: &Path) -> PortResult<()> {
    let length = |path: &PathBuf| root.join(path).symlink_metadata().map_or(0, |found| found.len());
    let needed: u64 = paths.iter().map(length).fold(0, u64::saturating_add);
    let Ok(figures) = nix::sys::statvfs::statvfs(target.parent().unwrap_or(target)) else { return Ok(()) };
    #[allow(clippy::useless_conversion, reason = "the fields are narrower on other systems")]
    let (blocks, size) = (u64::from(figures.blocks_available()), u64::from(figures.fragment_size()));
    if needed <= blocks.saturating_mul(size) {
        return Ok(());
    }
    let message = format!("save {}: its {needed} bytes do not fit beside {}", root.display(), target.display());
    Err(PortError { kind: PortErrorKind::NoRoom, message })
}

fn fill(root: &Path, paths: &[PathBuf], partial: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(partial)?;
    let mut builder = tar::Builder::new(std::io::BufWriter::with_capacity(256 * 1024, file));
    for path in paths {
        add(&mut builder, root, path)
            .map_err(|error| std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    let file = builder.into_inner()?.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()
}

fn add<W: std::io::Write>(builder: &mut tar::Builder<W>, root: &Path, path: &Path) -> std::io::Result<()> {
    let from = root.join(path);
    let metadata = from.symlink_metadata()?;
    let mut header = tar::Header::new_gnu();
    header.set_mode(metadata.mode() & 0o7777);
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or(0));
    header.set_size(0);
    if metadata.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        return builder.append_link(&mut header, path, fs::read_link(&from)?);
    }
    if metadata.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        return builder.append_data(&mut header, path, std::io::empty());
    }
    let file = open_for_saving(&from, &metadata)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(metadata.len());
    builder.append_data(&mut header, path, file.take(metadata.len()))
}

/// Opens a file, if need be after giving its owner the right to read it.
fn open_for_saving(path: &Path, metadata: &fs::Metadata) -> std::io::Result<File> {
    let open = || OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK).open(path);
    open().or_else(|error| {
        if error.kind() != std::io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        fs::set_permissions(path, Permissions::from_mode(metadata.mode() | 0o400))?;
        open()
    })
}

/// Reads the archive once more: every entry must be there and whole.
fn verify(partial: &Path, expected: usize) -> std::io::Result<()> {
    let mut archive = tar::Archive::new(std::io::BufReader::with_capacity(256 * 1024, File::open(partial)?));
    let mut seen = 0_usize;
    for entry in archive.entries()? {
        std::io::copy(&mut entry?, &mut std::io::sink())?;
        seen = seen.saturating_add(1);
    }
    if seen == expected { Ok(()) } else { Err(std::io::Error::other(format!("{seen} of {expected} entries arrived"))) }
}

/// Unpacks an archive over `root` and returns how many files and links came out.
pub(super) fn unpack(archive: &Path, root: &Path) -> PortResult<u64> {
    let failed = |error: &std::io::Error| PortError::io(format!("unpack {}", archive.display()), error);
    let file = File::open(archive).map_err(|error| failed(&error))?;
    let mut tar = tar::Archive::new(std::io::BufReader::with_capacity(256 * 1024, file));
    let mut folders = Vec::new();
    let mut count = 0_u64;
    for entry in tar.entries().map_err(|error| failed(&error))? {
        let mut entry = entry.map_err(|error| failed(&error))?;
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(&entry.path_bytes()));
        let unpacked = unpack_one(&mut entry, root, &path, &mut folders);
        if unpacked.map_err(|error| PortError::io(format!("unpack {}", path.display()), &error))? {
            count = count.saturating_add(1);
        }
    }
    // A folder that forbids writing gets its mode only when everything below it is there.
    for (path, mode) in folders.into_iter().rev() {
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(|error| PortError::io(format!("set the mode of {}", path.display()), &error))?;
    }
    Ok(count)
}

/// Unpacks one entry; `false` for a folder.
fn unpack_one<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    root: &Path,
    path: &Path,
    folders: &mut Vec<(PathBuf, u32)>,
) -> std::io::Result<bool> {
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(std::io::Error::other("its path leaves the checkout"));
    }
    make_parents(root, path)?;
    let to = root.join(path);
    let mode = entry.header().mode()? & 0o7777;
    if entry.header().entry_type().is_dir() {
        if !files::is_directory(&to) {
            remove_file(&to)?;
            fs::create_dir(&to)?;
        }
        folders.push((to, mode));
        return Ok(false);
    }
    if files::is_directory(&to) {
        fs::remove_dir(&to)?;
    }
    remove_file(&to)?;
    if entry.header().entry_type().is_symlink() {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(&target), &to)?;
        return Ok(true);
    }
    let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(entry.header().mtime()?));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&to)?;
    std::io::copy(entry, &mut file)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    if let Some(modified) = modified {
        file.set_modified(modified)?;
    }
    Ok(true)
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    if files::exists(path) { fs::remove_file(path) } else { Ok(()) }
}

/// Makes the parents; a file or link in their place gives way, as the archive knows better.
fn make_parents(root: &Path, path: &Path) -> std::io::Result<()> {
    let mut parents: Vec<&Path> = path.ancestors().skip(1).filter(|part| !part.as_os_str().is_empty()).collect();
    parents.reverse();
    for parent in parents {
        let folder = root.join(parent);
        if !files::is_directory(&folder) {
            remove_file(&folder)?;
            fs::create_dir(&folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_out_as_it_went_in() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/empty")).unwrap();
        fs::create_dir(&to).unwrap();
        let long = format!("a/{}", "n".repeat(200));
        fs::write(from.join(&long), b"long").unwrap();
        fs::write(from.join("a/secret"), b"x\0y").unwrap();
        fs::set_permissions(from.join("a/secret"), Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("/nowhere/at all", from.join("link")).unwrap();
        let paths: Vec<PathBuf> = ["a/empty", &long, "a/secret", "link"].iter().map(PathBuf::from).collect();
        let archive = folder.path().join("saved.tar");
        write(&from, &paths, &archive).unwrap();
        assert_eq!(archive.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(unpack(&archive, &to).unwrap(), 3);
        assert_eq!(fs::read(to.join(&long)).unwrap(), b"long");
        assert_eq!(fs::read(to.join("a/secret")).unwrap(), b"x\0y");
        assert_eq!(to.join("a/secret").metadata().unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere/at all"));
        assert!(to.join("a/empty").is_dir());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to, out) = (folder.path().join("from"), folder.path().join("to"), folder.path().join("out"));
        fs::create_dir_all(from.join("d")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::create_dir(&out).unwrap();
        fs::write(from.join("d/x"), b"1").unwrap();
        std::os::unix::fs::symlink(&out, to.join("d")).unwrap();
        let archive = folder.path().join("saved.tar");
        write(&from, &[PathBuf::from("d/x")], &archive).unwrap();
        unpack(&archive, &to).unwrap();
        assert!(!out.join("x").exists());
        assert_eq!(fs::read(to.join("d/x")).unwrap(), b"1");
    }
}
