//! Looking at protected paths: type, permission bits, content. Links are never followed.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use sha2::{Digest, Sha256};

use crate::app::ports::{PortError, PortResult};
use crate::domain::facts::ProtectedEntry;

/// Returns an entry for each of `paths` and, for folders, for all they hold, sorted and each once.
pub(super) fn look(checkout: &Path, paths: &[String]) -> PortResult<Vec<ProtectedEntry>> {
    let mut entries = Vec::new();
    for path in paths {
        let relative = inside(path)?;
        if leads_through_folders(checkout, &relative) {
            look_at(checkout, &relative, &mut entries)?;
        } else {
            entries.push(missing(&relative));
        }
    }
    entries.sort_by(|one, other| one.path.cmp(&other.path));
    entries.dedup();
    Ok(entries)
}

/// Returns `path` without `.` parts; one that leads out of the checkout is refused.
fn inside(path: &str) -> PortResult<PathBuf> {
    let mut relative = PathBuf::new();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(part) => relative.push(part),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(PortError::other(format!("protected path `{path}` leads out of the checkout")));
            }
        }
    }
    Ok(relative)
}

/// Whether every folder above `relative` is a real one. A link in its place leads elsewhere, so
/// what was protected is no longer there.
fn leads_through_folders(checkout: &Path, relative: &Path) -> bool {
    let above = relative.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    above.map(|above| checkout.join(above)).all(|path| path.symlink_metadata().is_ok_and(|found| found.is_dir()))
}

fn look_at(checkout: &Path, relative: &Path, entries: &mut Vec<ProtectedEntry>) -> PortResult<()> {
    let mut waiting = vec![relative.to_owned()];
    while let Some(relative) = waiting.pop() {
        let path = checkout.join(&relative);
        let Ok(metadata) = path.symlink_metadata() else {
            entries.push(missing(&relative));
            continue;
        };
        entries.push(entry(&path, &relative, &metadata)?);
        if metadata.is_dir() {
            waiting.extend(children(&path, &relative)?);
        }
    }
    Ok(())
}

fn children(path: &Path, relative: &Path) -> PortResult<Vec<PathBuf>> {
    let failed = |error: &std::io::Error| PortError::io(format_args!("reading {}", path.display()), error);
    let mut names = Vec::new();
    let listed = match std::fs::read_dir(path) {
        // A worker that closed the folder has changed its mode, and what it holds counts as missing.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(names),
        listed => listed.map_err(|error| failed(&error))?,
    };
    for child in listed {
        let name = child.map_err(|error| failed(&error))?.file_name();
        // The checkout's own git folder changes with every commit and is Lane's to look after.
        if !(relative.as_os_str().is_empty() && name == *".git") {
            names.push(relative.join(name));
        }
    }
    Ok(names)
}

fn entry(path: &Path, relative: &Path, metadata: &Metadata) -> PortResult<ProtectedEntry> {
    let failed = |error: &std::io::Error| PortError::io(format_args!("reading {}", path.display()), error);
    let file_type = metadata.file_type();
    let (word, digest) = if file_type.is_file() {
        match digest(path) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => ("file", "unreadable".to_owned()),
            digest => ("file", digest.map_err(|error| failed(&error))?),
        }
    } else if file_type.is_symlink() {
        let target = std::fs::read_link(path).map_err(|error| failed(&error))?;
        ("symlink", text(target.as_os_str()))
    } else if file_type.is_dir() {
        ("directory", String::new())
    } else {
        ("other", String::new())
    };
    Ok(ProtectedEntry {
        path: text(relative.as_os_str()),
        file_type: word.to_owned(),
        mode: metadata.mode() & 0o7777,
        digest,
    })
}

fn missing(relative: &Path) -> ProtectedEntry {
    ProtectedEntry { path: text(relative.as_os_str()), file_type: "missing".to_owned(), mode: 0, digest: String::new() }
}

fn digest(path: &Path) -> std::io::Result<String> {
    let mut file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; 256 * 1024];
    loop {
        let count = match file.read(&mut chunk) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            break;
        }
        hasher.update(chunk.get(..count).unwrap_or_default());
    }
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Returns a name as text; bytes that are not UTF-8 are written as `\xNN` and a backslash is
/// doubled, so that no two names read the same.
fn text(name: &OsStr) -> String {
    let mut text = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}
