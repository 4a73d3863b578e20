//! Careful handling of files that a worker may have made: no link is followed, no FIFO is opened.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::app::ports::{PortError, PortResult};

/// Opens a regular file for reading; `None` when it is missing or anything else than a plain file.
pub(super) fn open_plain(path: &Path) -> Option<File> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// Reads a regular file of at most `limit_bytes`; `None` when it is missing, larger or no plain file.
pub(super) fn read_plain(path: &Path, limit_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path)?.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    (u64::try_from(bytes.len()).ok()? <= limit_bytes).then_some(bytes)
}

/// Reads a small regular file as text.
pub(super) fn read_plain_text(path: &Path, limit_bytes: u64) -> Option<String> {
    read_plain(path, limit_bytes).and_then(|bytes| String::from_utf8(bytes).ok())
}

/// Whether something, a dangling link included, is at `path`.
pub(super) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Whether a real directory, not a link to one, is at `path`.
pub(super) fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// Makes a folder and its parents.
pub(super) fn make_folder(path: &Path) -> PortResult<()> {
    fs::create_dir_all(path).map_err(|error| PortError::io(format!("make folder {}", path.display()), &error))
}

/// Writes a file.
pub(super) fn write(path: &Path, content: impl AsRef<[u8]>) -> PortResult<()> {
    fs::write(path, content).map_err(|error| PortError::io(format!("write {}", path.display()), &error))
}

/// Copies an index with the time of its last change.
///
/// Git trusts a file's size and time only if the index is younger than the file's second. A copy
/// that looks younger than it is would hide an edit of the same size in the second of the checkout.
pub(super) fn copy_index(from: &Path, to: &Path) -> PortResult<()> {
    let copy = || {
        let written = from.metadata()?.modified()?;
        fs::copy(from, to)?;
        OpenOptions::new().write(true).open(to)?.set_modified(written)
    };
    copy().map_err(|error| PortError::io(format!("copy {}", from.display()), &error))
}

/// Writes a private file (0600) by rename after fsync.
pub(super) fn write_synced(path: &Path, content: &[u8]) -> PortResult<()> {
    let failed = |error: std::io::Error| PortError::io(format!("write {}", path.display()), &error);
    let temporary = sibling(path, ".new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
    rename(&temporary, path)?;
    if let Some(folder) = path.parent().and_then(|parent| File::open(parent).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Renames a file or folder.
pub(super) fn rename(from: &Path, to: &Path) -> PortResult<()> {
    fs::rename(from, to)
        .map_err(|error| PortError::io(format!("rename {} to {}", from.display(), to.display()), &error))
}

/// The path beside `path` whose name has `suffix` at its end.
pub(super) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    path.with_file_name(name)
}

/// Removes a file, a link or a folder with all it holds, if it is there.
///
/// Folders that forbid it are opened up first; no link is followed.
pub(super) fn remove_tree(path: &Path) -> PortResult<()> {
    if !exists(path) {
        return Ok(());
    }
    let remove = || if is_directory(path) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    remove()
        .or_else(|_| {
            open_up(path);
            remove()
        })
        .map_err(|error| PortError::io(format!("remove {}", path.display()), &error))
}

/// Gives the owner every right on a folder, and the right to read on a file; returns whether it is a
/// folder. What has them already keeps its mode; no link is followed.
pub(super) fn open_folder(path: &Path) -> bool {
    let Ok(metadata) = path.symlink_metadata() else { return false };
    let mode = metadata.permissions().mode() & 0o7777;
    let wanted = if metadata.is_dir() { 0o700 } else { 0o400 };
    if (metadata.is_dir() || metadata.is_file()) && mode & wanted != wanted {
        let _ = fs::set_permissions(path, Permissions::from_mode(mode | wanted));
    }
    metadata.is_dir()
}

/// Does the same for `path` and all that is under it.
pub(super) fn open_up(path: &Path) {
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        // A folder is read only after it was opened, so those inside it are found, too.
        if open_folder(&path) {
            waiting.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
}

/// Copies folders, plain files and links from `from` to `to`; everything else is left out.
pub(super) fn copy_tree(from: &Path, to: &Path) -> PortResult<()> {
    for entry in walkdir::WalkDir::new(from).follow_links(false).follow_root_links(false) {
        let entry = entry.map_err(|error| PortError::other(format!("read {}: {error}", from.display())))?;
        let target = to.join(entry.path().strip_prefix(from).unwrap_or_else(|_| Path::new("")));
        let kind = entry.file_type();
        let done = if kind.is_dir() {
            fs::create_dir_all(&target)
        } else if kind.is_symlink() {
            fs::read_link(entry.path()).and_then(|link| std::os::unix::fs::symlink(link, &target))
        } else if kind.is_file() {
            fs::copy(entry.path(), &target).map(drop)
        } else {
            Ok(())
        };
        done.map_err(|error| PortError::io(format!("copy {}", entry.path().display()), &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_folders_in_closed_folders_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = |name: &str| at(name).symlink_metadata().unwrap().permissions().mode() & 0o777;
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), b"1").unwrap();
        fs::write(at("a/run"), b"1").unwrap();
        std::os::unix::fs::symlink("/etc", at("a/link")).unwrap();
        for (name, mode) in [("a/run", 0o755), ("a/b/file", 0), ("a/b", 0), ("a", 0)] {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        open_up(&at("a"));
        assert_eq!([mode("a"), mode("a/b"), mode("a/b/file"), mode("a/run")], [0o700, 0o700, 0o400, 0o755]);
    }

    #[test]
    fn only_plain_files_of_the_right_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("plain"), b"12345").unwrap();
        std::os::unix::fs::symlink(at("plain"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read_plain(&at("plain"), 5), Some(b"12345".to_vec()));
        assert_eq!(read_plain(&at("plain"), 4), None);
        assert_eq!(read_plain(&at("link"), 100), None);
        assert_eq!(read_plain(&at("fifo"), 100), None);
        assert_eq!(read_plain(&at("missing"), 100), None);
        assert_eq!(read_plain(folder.path(), 100), None);
    }
}
