//! Where the state folder is, and whether it can be one at all.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::domain::refusal::Refusal;
use crate::infra::environment::EnvironmentSnapshot;

/// The longest path of a state folder in bytes. SQLite takes 512 for its files, of which
/// `lane.db-journal` is the longest.
const LONGEST_BYTES: usize = 480;

/// Returns the state folder: `LANE_STATE`, else `.lane` in the home folder.
///
/// # Errors
///
/// A refusal that names the variable, when there is none or when no folder can be there.
pub(super) fn state_dir(snapshot: &EnvironmentSnapshot, directory: &Path) -> Result<PathBuf, Refusal> {
    let (name, path) = match (snapshot.raw("LANE_STATE"), snapshot.raw("HOME")) {
        (Some(state), _) if state.is_empty() => {
            return Err(Refusal::usage("LANE_STATE is empty", "set it to the folder for Lane's state, or unset it"));
        }
        (Some(state), _) => ("LANE_STATE", directory.join(state)),
        (None, Some(home)) => ("HOME", Path::new(home).join(".lane")),
        (None, None) => {
            return Err(Refusal::usage(
                "neither LANE_STATE nor HOME is set",
                "set LANE_STATE to the folder for Lane's state",
            ));
        }
    };
    match fault(&path) {
        None => Ok(path),
        Some(fault) => Err(Refusal::usage(
            format!("{name}: the state folder {} {fault}", shown(&path)),
            "point LANE_STATE at a folder, or at a place where one can be made",
        )),
    }
}

/// Says why no state folder can be at a path; `None` where one is or may be made.
fn fault(path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > LONGEST_BYTES {
        return Some(format!("is too long: {} bytes, and {LONGEST_BYTES} are possible", bytes.len()));
    }
    if path.to_str().is_none() {
        return Some("is not UTF-8".to_owned());
    }
    if bytes.contains(&b'\n') {
        return Some("has a line feed in its name".to_owned());
    }
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some("is not a folder".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Some("lies below a file".to_owned()),
        Err(error) if error.kind() == ErrorKind::InvalidFilename => Some("has a part that is too long".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            Some("is a link that leads nowhere".to_owned())
        }
        // Whatever else is wrong is met, and told, when it is opened.
        Err(_) => None,
    }
}

/// A path as it can be shown: the start of a long one.
fn shown(path: &Path) -> String {
    let text = path.as_os_str().to_string_lossy();
    let start: String = text.chars().take(200).collect();
    if start.len() < text.len() { format!("{start}\u{2026}") } else { start }
}

/// Refuses a variable of Lane's own whose value is not text: it could not be used, and must not be
/// taken for one that is not set.
pub(super) fn refuse_odd_variables(snapshot: &EnvironmentSnapshot) -> Result<(), Refusal> {
    let odd = |name: &OsStr, value: &OsStr| {
        let name = name.to_str().filter(|name| name.starts_with("LANE_") || *name == "CODEX_HOME")?;
        value.to_str().is_none().then(|| name.to_owned())
    };
    match snapshot.variables().find_map(|(name, value)| odd(name, value)) {
        Some(name) => Err(Refusal::usage(
            format!("the value of {name} is not UTF-8"),
            "mend the variable or unset it; docs/configuration.md lists them",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_where_no_state_folder_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(fault(folder.path()), None);
        assert_eq!(fault(&folder.path().join("new/deep")), None);
        assert!(fault(&file).unwrap().contains("not a folder"));
        assert!(fault(&file.join("below")).unwrap().contains("below a file"));
        assert!(fault(&folder.path().join("x".repeat(300))).unwrap().contains("too long"));
        assert!(fault(&folder.path().join("d/".repeat(300))).unwrap().contains("too long"));
        assert!(fault(Path::new(OsStr::from_bytes(b"/tmp/\xff"))).unwrap().contains("UTF-8"));
        assert!(fault(Path::new("/tmp/a\nb")).unwrap().contains("line feed"));
    }
}
