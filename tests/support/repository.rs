//! Throw-away git repositories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository with a working tree, driven by a clean git.
pub struct Repository {
    path: PathBuf,
    home: PathBuf,
}

impl Repository {
    /// Makes an empty repository on branch `main`.
    pub fn init(path: &Path, home: &Path) -> Self {
        fs::create_dir_all(path).expect("the repository's folder");
        let repository = Self { path: path.to_owned(), home: home.to_owned() };
        repository.git(&["init", "-q", "-b", "main"]);
        repository
    }

    /// A checkout that exists already.
    pub fn at(path: &Path, home: &Path) -> Self {
        Self { path: path.to_owned(), home: home.to_owned() }
    }

    /// Its working tree.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, its folders included.
    pub fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("the file's folder");
        fs::write(path, text).expect("the file");
        self
    }

    /// Reads a file of the working tree.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path.join(name)).expect("the file")
    }

    /// Commits everything and returns the commit.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["-c", "commit.gpgSign=false", "commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Runs git here and returns what it printed; fails the test when git fails.
    pub fn git(&self, arguments: &[&str]) -> String {
        let (code, text) = self.try_git(arguments);
        assert_eq!(code, 0, "git {}: {text}", arguments.join(" "));
        text
    }

    /// Runs git here and returns its exit code and what it printed on both outputs.
    pub fn try_git(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new("git");
        command.current_dir(&self.path).args(arguments).env_clear().env("HOME", &self.home);
        command.envs(super::variable("PATH").map(|path| ("PATH", path)));
        let output = command.output().expect("git starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).trim().to_owned())
    }
}
