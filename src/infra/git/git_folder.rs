//! Writes a git folder by hand, so that nothing of a template, a hook or a foreign setting gets in.
//!
//! The result is a plain repository with loose and packed refs, whatever the lead's repository
//! uses: reftable there needs no reftable here. It owns no object and borrows from `alternates`.

use std::path::{Path, PathBuf};

use super::config::render;
use super::files;
use crate::app::ports::{PortError, PortResult};

/// Where HEAD points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeadPoint {
    /// To a branch (its short name) at a commit.
    Branch(String, String),
    /// To a commit.
    Detached(String),
}

/// What a git folder is made from.
#[derive(Clone, Debug)]
pub(super) struct GitFolder {
    /// `sha1` or `sha256`.
    pub(super) object_format: String,
    /// Object folders that it borrows from.
    pub(super) alternates: Vec<PathBuf>,
    /// Where HEAD points.
    pub(super) head: HeadPoint,
    /// Settings besides those that every folder of Lane's has.
    pub(super) settings: Vec<(String, String)>,
    /// Content of `info/exclude`.
    pub(super) exclude: Vec<u8>,
    /// Content of `packed-refs`.
    pub(super) packed_refs: Vec<u8>,
    /// Symbolic refs: name and target.
    pub(super) symbolic_refs: Vec<(String, String)>,
    /// Content of `shallow`, where the history is cut.
    pub(super) shallow: Option<Vec<u8>>,
    /// Content of `info/sparse-checkout`, where only a part is checked out.
    pub(super) sparse: Option<Vec<u8>>,
}

impl GitFolder {
    /// A folder with nothing but an object format, a lender and a detached HEAD.
    pub(super) fn bare_minimum(object_format: &str, alternates: Vec<PathBuf>, commit: &str) -> Self {
        Self {
            object_format: object_format.to_owned(),
            alternates,
            head: HeadPoint::Detached(commit.to_owned()),
            settings: Vec::new(),
            exclude: Vec::new(),
            packed_refs: Vec::new(),
            symbolic_refs: Vec::new(),
            shallow: None,
            sparse: None,
        }
    }

    /// Writes the folder at `path`, which must not exist.
    pub(super) fn write(&self, path: &Path) -> PortResult<()> {
        for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"] {
            files::make_folder(&path.join(folder))?;
        }
        files::write(&path.join("config"), self.config())?;
        files::write(&path.join("objects/info/alternates"), self.alternates_text()?)?;
        files::write(&path.join("info/exclude"), &self.exclude)?;
        if !self.packed_refs.is_empty() {
            files::write(&path.join("packed-refs"), &self.packed_refs)?;
        }
        for (name, target) in &self.symbolic_refs {
            write_ref(path, name, &format!("ref: {target}\n"))?;
        }
        if let Some(shallow) = &self.shallow {
            files::write(&path.join("shallow"), shallow)?;
        }
        if let Some(sparse) = &self.sparse {
            files::write(&path.join("info/sparse-checkout"), sparse)?;
        }
        match &self.head {
            HeadPoint::Branch(branch, commit) => {
                write_ref(path, &format!("refs/heads/{branch}"), &format!("{commit}\n"))?;
                files::write(&path.join("HEAD"), format!("ref: refs/heads/{branch}\n"))
            }
            HeadPoint::Detached(commit) => files::write(&path.join("HEAD"), format!("{commit}\n")),
        }
    }

    fn config(&self) -> String {
        let sha256 = self.object_format == "sha256";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut settings = vec![pair("core.repositoryformatversion", if sha256 { "1" } else { "0" })];
        if sha256 {
            settings.push(pair("extensions.objectformat", "sha256"));
        }
        settings.extend(self.settings.iter().cloned());
        // These come last, and so they win.
        for (key, value) in [
            ("core.bare", "false"),
            ("core.logallrefupdates", "true"),
            ("core.hookspath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("core.untrackedcache", "false"),
            ("commit.gpgsign", "false"),
            ("tag.gpgsign", "false"),
            ("push.default", "nothing"),
            ("branch.autosetupmerge", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
        ] {
            settings.push(pair(key, value));
        }
        render(&settings)
    }

    fn alternates_text(&self) -> PortResult<Vec<u8>> {
        let mut text = Vec::new();
        for path in &self.alternates {
            text.extend(alternate_line(path)?);
        }
        Ok(text)
    }
}

/// One line of an alternates file.
pub(super) fn alternate_line(path: &Path) -> PortResult<Vec<u8>> {
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.contains(&b'\n') {
        return Err(PortError::other(format!("borrow objects from {:?}: its path has a line feed", path)));
    }
    let mut line = bytes.to_vec();
    line.push(b'\n');
    Ok(line)
}

fn write_ref(git_dir: &Path, name: &str, content: &str) -> PortResult<()> {
    let path = git_dir.join(name);
    if let Some(parent) = path.parent() {
        files::make_folder(parent)?;
    }
    files::write(&path, content)
}
