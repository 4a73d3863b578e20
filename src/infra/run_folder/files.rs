//! Files of a run folder: never through a symbolic link, always private.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

#[cfg(target_os = "linux")]
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

use crate::app::ports::{PortError, PortErrorKind, PortResult, Syncing};

/// Makes the folder, which must not be there yet, and those above it. All are private.
pub(super) fn make_folder(run_dir: &Path) -> PortResult<()> {
    if let Some(parent) = run_dir.parent().filter(|parent| !parent.is_dir()) {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|error| failed("making", parent, &error))?;
        if let Some(above) = parent.parent() {
            sync_folder(above)?;
        }
    }
    match DirBuilder::new().mode(0o700).create(run_dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(PortError {
            kind: PortErrorKind::Held,
            message: format!("making {}: it is there already", run_dir.display()),
        }),
        made => made.map_err(|error| failed("making", run_dir, &error)),
    }
}

/// Writes new files, and begins to bring them, their folder and its name to the disk.
///
/// All are on their way to the disk before the first is waited for, so that one commit of the
/// filesystem's journal does for most of them (measured on ext4: 0.4 ms instead of 0.5), and the
/// caller goes on meanwhile.
pub(super) fn write_new(run_dir: &Path, contents: &[(&str, Vec<u8>)]) -> PortResult<NewFiles> {
    let mut written = Vec::with_capacity(contents.len() + 2);
    for (name, content) in contents {
        let path = path_of(run_dir, name)?;
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let mut file = made.map_err(|error| failed("making", &path, &error))?;
        file.write_all(content).map_err(|error| failed("writing", &path, &error))?;
        start_writing(&file);
        written.push((path, file));
    }
    // The folders go first: one commit of the journal then holds everything, as long as nothing
    // comes into the folder after it.
    for folder in [Some(run_dir), run_dir.parent()].into_iter().flatten() {
        let file = File::open(folder).map_err(|error| failed("opening", folder, &error))?;
        written.insert(0, (folder.to_owned(), file));
    }
    let sync = move || {
        written.iter().try_for_each(|(path, file)| file.sync_all().map_err(|error| failed("syncing", path, &error)))
    };
    let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(sync);
    thread.map(NewFiles).map_err(|error| failed("syncing", run_dir, &error))
}

/// New files on their way to the disk.
pub(super) struct NewFiles(std::thread::JoinHandle<PortResult<()>>);

impl Syncing for NewFiles {
    fn finish(self: Box<Self>) -> PortResult<()> {
        let died = || Err(PortError::other("syncing the run folder: the thread ended early"));
        self.0.join().unwrap_or_else(|_| died())
    }
}

/// Writes a file in place of whatever has its name, by rename, without a sync.
pub(super) fn replace_unsynced(run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()> {
    let path = path_of(run_dir, name)?;
    let fresh = run_dir.join(format!(".{name}.{}", std::process::id()));
    let write = || {
        let _ = std::fs::remove_file(&fresh);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(content)?;
        std::fs::rename(&fresh, &path)
    };
    write().map_err(|error| failed("writing", &path, &error))
}

/// Asks the kernel to begin writing, without waiting. It is advice only: the sync comes later.
#[cfg(target_os = "linux")]
fn start_writing(file: &File) {
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

#[cfg(not(target_os = "linux"))]
const fn start_writing(_file: &File) {}

/// Writes a file in place of whatever has its name, by rename after a sync.
pub(super) fn replace(run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()> {
    let path = path_of(run_dir, name)?;
    let fresh = run_dir.join(format!(".{name}.{}", std::process::id()));
    let written = write_synced(&fresh, content).and_then(|()| std::fs::rename(&fresh, &path));
    if let Err(error) = written {
        let _ = std::fs::remove_file(&fresh);
        return Err(failed("writing", &path, &error));
    }
    sync_folder(run_dir)
}

fn write_synced(path: &Path, content: &[u8]) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Appends to a file, which is made where it is not there yet.
pub(super) fn append(run_dir: &Path, name: &str, content: &[u8]) -> PortResult<()> {
    let path = path_of(run_dir, name)?;
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&path);
    let written = opened.and_then(|mut file| file.write_all(content));
    written.map_err(|error| failed("writing", &path, &error))
}

/// Opens a file for reading; `None` when it is not there. What is no plain file is refused.
pub(super) fn open(run_dir: &Path, name: &str) -> PortResult<Option<File>> {
    let path = path_of(run_dir, name)?;
    // Without O_NONBLOCK a FIFO in its place would block for ever.
    let opened = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(&path);
    let file = match opened {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| failed("opening", &path, &error))?,
    };
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        Ok(Some(file))
    } else {
        Err(PortError::other(format!("opening {}: it is no plain file", path.display())))
    }
}

/// Returns a whole file that must be there.
pub(super) fn require(run_dir: &Path, name: &str) -> PortResult<Vec<u8>> {
    tail(run_dir, name, u64::MAX)?
        .ok_or_else(|| PortError::other(format!("{} is not there", run_dir.join(name).display())))
}

/// Returns at most `limit_bytes` from the end of a file; `None` when it is not there.
pub(super) fn tail(run_dir: &Path, name: &str, limit_bytes: u64) -> PortResult<Option<Vec<u8>>> {
    let Some(mut file) = open(run_dir, name)? else { return Ok(None) };
    let mut content = Vec::new();
    let mut read = || -> std::io::Result<()> {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(limit_bytes)))?;
        // It may grow meanwhile, which must not go past the limit.
        (&mut file).take(limit_bytes).read_to_end(&mut content)?;
        Ok(())
    };
    read().map_err(|error| failed("reading", &run_dir.join(name), &error))?;
    Ok(Some(content))
}

pub(super) fn exists(run_dir: &Path, name: &str) -> bool {
    path_of(run_dir, name).is_ok_and(|path| path.symlink_metadata().is_ok())
}

/// Removes a file; one that is not there, or cannot be removed, is left to whoever cleans up.
pub(super) fn remove(run_dir: &Path, name: &str) {
    if let Ok(path) = path_of(run_dir, name) {
        let _ = std::fs::remove_file(path);
    }
}

/// Returns the path of a file directly in the folder, which must be a real one.
pub(super) fn path_of(run_dir: &Path, name: &str) -> PortResult<PathBuf> {
    let mut components = Path::new(name).components();
    if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
        return Err(PortError::other(format!("`{name}` is no name of a file in a run folder")));
    }
    let metadata = run_dir.symlink_metadata().map_err(|error| failed("looking at", run_dir, &error))?;
    if metadata.is_dir() {
        Ok(run_dir.join(name))
    } else {
        Err(PortError::other(format!("{} is no folder but a link or a file", run_dir.display())))
    }
}

/// Says which file an error was about.
pub(super) fn about(run_dir: &Path, name: &str, error: PortError) -> PortError {
    PortError { kind: error.kind, message: format!("{}: {}", run_dir.join(name).display(), error.message) }
}

fn sync_folder(path: &Path) -> PortResult<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(|error| failed("syncing", path, &error))
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> PortError {
    PortError::io(format_args!("{doing} {}", path.display()), error)
}
/// Gives the owner every right on the folder and on the folders in it, and those to read and write
/// its files. No link is followed, and nothing deeper is touched.
pub(super) fn reopen(run_dir: &Path) {
    give(run_dir);
    for entry in std::fs::read_dir(run_dir).into_iter().flatten().flatten() {
        give(&entry.path());
    }
}

fn give(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let Ok(found) = path.symlink_metadata() else { return };
    let wanted = if found.is_dir() { 0o700 } else { 0o600 };
    let mode = found.permissions().mode() & 0o7777;
    if !found.is_symlink() && mode & wanted != wanted {
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode | wanted));
    }
}
