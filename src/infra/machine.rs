//! Small questions about this machine's files and namespaces.

use std::ffi::OsStr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::app::ports::{Machine, PortError, PortResult};

/// The most bytes of a text file that is read whole.
const TEXT_LIMIT_BYTES: u64 = 4 << 20;

/// This machine.
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn find_program(&self, explicit: Option<&Path>, name: &str, search_path: Option<&OsStr>) -> Option<PathBuf> {
        let found = match explicit {
            Some(path) if path.is_absolute() => Some(path.to_owned()),
            Some(path) => which::which_in(path, search_path, "/").ok(),
            None => which::which_in(name, search_path, "/").ok(),
        };
        found.filter(|path| is_executable(path)).map(|path| std::fs::canonicalize(&path).unwrap_or(path))
    }

    fn resolve_dir(&self, path: &Path) -> PortResult<PathBuf> {
        let resolved = std::fs::canonicalize(path).map_err(|error| PortError::other(error.to_string()))?;
        if resolved.is_dir() { Ok(resolved) } else { Err(PortError::other("it is not a directory")) }
    }

    fn resolve_lenient(&self, path: &Path) -> PathBuf {
        for ancestor in path.ancestors() {
            if let (Ok(resolved), Ok(rest)) = (std::fs::canonicalize(ancestor), path.strip_prefix(ancestor)) {
                return if rest.as_os_str().is_empty() { resolved } else { resolved.join(rest) };
            }
        }
        path.to_owned()
    }

    fn ensure_private_dir(&self, path: &Path) -> PortResult<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| PortError::io(path.display(), &error))
    }

    fn fingerprint(&self, path: &Path) -> PortResult<String> {
        let metadata = std::fs::metadata(path).map_err(|error| PortError::io(path.display(), &error))?;
        Ok(format!("{}-{}.{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }

    fn caller_sandbox(&self) -> Option<String> {
        let first = std::fs::read("/proc/1/cmdline").unwrap_or_default();
        let program = first.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program);
        let name = program.rsplit('/').next().unwrap_or_default();
        matches!(name, "codex-linux-sandbox" | "bwrap").then(|| {
            format!(
                "this shell runs in a sandbox ({name}) that ends every process with the command, the supervisor too"
            )
        })
    }

    fn read_text(&self, path: &Path) -> PortResult<Option<String>> {
        use std::io::Read;
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PortError::io(path.display(), &error)),
        };
        let mut text = String::new();
        file.take(TEXT_LIMIT_BYTES).read_to_string(&mut text).map_err(|error| PortError::io(path.display(), &error))?;
        Ok(Some(text))
    }

    fn exists(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok()
    }

    fn link(&self, target: &Path, at: &Path) -> PortResult<()> {
        match std::os::unix::fs::symlink(target, at) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            answer => answer.map_err(|error| PortError::io(at.display(), &error)),
        }
    }

    fn remove_empty_dir(&self, path: &Path) {
        // `rmdir` refuses a folder with content and a link, which is just what is wanted.
        let _not_empty = std::fs::remove_dir(path);
    }

    fn try_writing(&self, folder: &Path) -> PortResult<()> {
        use std::io::Write;
        let tried = tempfile::Builder::new()
            .prefix(".probe-")
            .tempfile_in(folder)
            .and_then(|mut file| file.write_all(&[b'x'; 4096]).and_then(|()| file.close()));
        tried.map_err(|error| PortError::io(format_args!("writing in {}", folder.display()), &error))
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_part_of_a_path_stays() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(ThisMachine.resolve_lenient(&real.join("link/a/b")), real.join("a/b"));
    }

    #[test]
    fn only_executables_are_programs() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tool"), "x").unwrap();
        let path = Some(folder.path().as_os_str());
        assert_eq!(ThisMachine.find_program(None, "tool", path), None);
        assert_eq!(ThisMachine.find_program(Some(&folder.path().join("tool")), "tool", None), None);
        std::fs::set_permissions(folder.path().join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(ThisMachine.find_program(None, "tool", path).is_some());
    }
}
