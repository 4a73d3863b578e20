//! The environment, read once: variables, folders, terminals.
//!
//! Nothing else in the crate reads it; everybody is handed this snapshot or a part of it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// What surrounded the process when it started.
///
/// Values may be secret: the debug form names the variables only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct EnvironmentSnapshot {
    variables: BTreeMap<OsString, OsString>,
    /// The current directory; `None` when it was removed or cannot be read.
    pub current_dir: Option<PathBuf>,
    /// This executable; `None` when the system does not tell.
    pub current_exe: Option<PathBuf>,
    /// Whether stdout is a terminal.
    pub stdout_is_terminal: bool,
    /// Whether stderr is a terminal.
    pub stderr_is_terminal: bool,
}

/// A variable whose value is not UTF-8 where text is needed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of {0} is not UTF-8")]
pub struct NotText(pub String);

impl EnvironmentSnapshot {
    /// Reads the environment of this process. The one place that does.
    #[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
    pub fn take() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
            current_dir: std::env::current_dir().ok(),
            current_exe: std::env::current_exe().ok(),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Builds a snapshot of `variables` alone: no folders, no terminals.
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { variables: variables.into_iter().collect(), ..Self::default() }
    }

    /// All variables, sorted by name.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// The value of a variable, whatever it is.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of a variable as text; `None` when it is not set or empty.
    ///
    /// # Errors
    ///
    /// [`NotText`] when it is not UTF-8.
    pub fn text(&self, name: &str) -> Result<Option<&str>, NotText> {
        match self.raw(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => value.to_str().map(Some).ok_or_else(|| NotText(name.to_owned())),
        }
    }

    /// The value of a variable as a path; `None` when it is not set or empty.
    pub fn path(&self, name: &str) -> Option<&Path> {
        self.raw(name).filter(|value| !value.is_empty()).map(Path::new)
    }

    /// Whether a variable is set to something that is not empty.
    pub fn is_set(&self, name: &str) -> bool {
        self.path(name).is_some()
    }

    /// The person's home folder (`HOME`), where it is an absolute path.
    pub fn home(&self) -> Option<&Path> {
        self.path("HOME").filter(|path| path.is_absolute())
    }
}

impl std::fmt::Debug for EnvironmentSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvironmentSnapshot")
            .field("variables", &self.variables.keys().collect::<Vec<_>>())
            .field("current_dir", &self.current_dir)
            .field("current_exe", &self.current_exe)
            .field("stdout_is_terminal", &self.stdout_is_terminal)
            .field("stderr_is_terminal", &self.stderr_is_terminal)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn snapshot() -> EnvironmentSnapshot {
        EnvironmentSnapshot::of([
            ("HOME".into(), "/home/someone".into()),
            ("EMPTY".into(), "".into()),
            ("ODD".into(), OsString::from_vec(vec![b'/', 0xff])),
            ("KEY".into(), "hush".into()),
        ])
    }

    #[test]
    fn values_are_looked_up_by_name() {
        let snapshot = snapshot();
        assert_eq!(snapshot.text("HOME"), Ok(Some("/home/someone")));
        assert_eq!((snapshot.text("EMPTY"), snapshot.text("NONE")), (Ok(None), Ok(None)));
        assert_eq!(snapshot.text("ODD"), Err(NotText("ODD".into())));
        assert_eq!(snapshot.path("ODD").unwrap().as_os_str().len(), 2);
        assert_eq!(snapshot.home(), Some(Path::new("/home/someone")));
        assert!(snapshot.is_set("KEY") && !snapshot.is_set("EMPTY"));
        assert_eq!(snapshot.variables().count(), 4);
        assert_eq!(EnvironmentSnapshot::of([("HOME".into(), "here".into())]).home(), None);
    }

    #[test]
    fn no_value_is_ever_shown() {
        let text = format!("{:?}", snapshot());
        assert!(text.contains("KEY") && !text.contains("hush"), "{text}");
    }

    #[test]
    fn a_process_has_surroundings() {
        let snapshot = EnvironmentSnapshot::take();
        assert!(snapshot.current_dir.is_some() && snapshot.current_exe.is_some());
        assert!(snapshot.is_set("PATH"));
    }
}
