//! Makes a private clone that borrows the repository's objects.
//!
//! The git folder is written by hand (see [`super::git_folder`]), so a clone costs four short git
//! calls besides the checkout of its files, and clones are made side by side.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::config::LeadConfig;
use super::git_folder::{GitFolder, HeadPoint};
use super::record::{self, Made, Note};
use super::{GitCli, files, include, index_file, keep, require_repository, submodules};
use crate::app::ports::{CheckoutMade, PortError, PortErrorKind, PortResult};
use crate::domain::plan::{Plan, RepositoryPlan};

/// From how many files on git writes a checkout with several processes (measured; issue 2, item 6).
const PARALLEL_FROM: &str = "checkout.thresholdForParallelism=3000";

/// Makes the checkout; on an error nothing is left.
pub(super) fn make(git: &GitCli, plan: &Plan) -> PortResult<CheckoutMade> {
    begin(git, plan)?;
    let made = fill(git, plan);
    if made.is_err() {
        undo(git, plan);
    }
    made
}

/// Clears away what an earlier try left, and notes that a checkout is being made.
pub(super) fn begin(git: &GitCli, plan: &Plan) -> PortResult<()> {
    let ours = files::exists(&Note::Making.path(&plan.run_dir));
    if files::exists(&plan.checkout_path) && !ours {
        let message = format!("make a checkout at {}: something is there already", plan.checkout_path.display());
        return Err(PortError { kind: PortErrorKind::Held, message });
    }
    if ours {
        undo(git, plan);
    }
    // Not synced: a journal keeps the order, so where the checkout is, the note is, too.
    Note::Making.write_lazily(&plan.run_dir, &Made::default())
}

/// Removes everything that making a private clone may have left.
fn undo(git: &GitCli, plan: &Plan) {
    let _ = files::remove_tree(&plan.checkout_path);
    if let Some(repository) = &plan.repository {
        let _ = keep::delete(git, &repository.common_dir, &record::lane_ref(plan, "base"));
    }
    forget(plan);
}

/// Removes the notes about a checkout that is not there any more.
pub(super) fn forget(plan: &Plan) {
    for note in [Note::Made, Note::SharedBefore, Note::Making] {
        let _ = files::remove_tree(&note.path(&plan.run_dir));
    }
    let _ = files::remove_tree(&record::base_index(plan));
}

fn fill(git: &GitCli, plan: &Plan) -> PortResult<CheckoutMade> {
    let repository = require_repository(plan)?;
    // Three short questions at once: together they take as long as one.
    let (pinned, config, refs) = std::thread::scope(|scope| {
        let pinned = scope.spawn(|| keep::pin_base(git, plan, repository));
        let config = scope.spawn(|| LeadConfig::load(git, &repository.git_dir));
        let refs = readable_refs(git, repository);
        (join(pinned), join(config), refs)
    });
    pinned?;
    let config = config?;
    let mut warnings = Vec::new();
    let mut made = describe(&config, repository, &mut warnings);
    Note::Making.write_lazily(&plan.run_dir, &made)?;
    require_objects(git, repository, &config)?;
    let git_dir = plan.checkout_path.join(".git");
    let branch = plan.lane_id.branch();
    let folder = clone_folder(repository, &made, refs?, branch);
    folder.write(&git_dir)?;
    populate(git, &git_dir, &plan.checkout_path, repository.base_commit.as_str())?;
    finish(git, plan, &git_dir, &mut made, &mut warnings)?;
    Ok(CheckoutMade { warnings })
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, PortResult<T>>) -> PortResult<T> {
    thread.join().unwrap_or_else(|_| Err(PortError::other("ask git: a thread ended early")))
}

/// What both modes do once the files are there: submodules, files to bring along, Lane's notes.
pub(super) fn finish(
    git: &GitCli,
    plan: &Plan,
    git_dir: &Path,
    made: &mut Made,
    warnings: &mut Vec<String>,
) -> PortResult<()> {
    let tracked = Tracked::list(git, git_dir, &plan.checkout_path, id_bytes(plan))?;
    made.submodules = submodules::fill(git, plan, git_dir, &tracked)?;
    made.brought = include::bring_along(git, plan, &tracked, warnings)?;
    if !made.brought.is_empty() {
        include::exclude_brought(git_dir, plan, &made.exclude, &made.brought)?;
    }
    files::copy_index(&git_dir.join("index"), &record::base_index(plan))?;
    made.write(&plan.run_dir)
}

/// Reads what a checkout takes from the lead: settings, identity, ignore rules, sparse patterns.
pub(super) fn describe(config: &LeadConfig, repository: &RepositoryPlan, warnings: &mut Vec<String>) -> Made {
    let mut identity = config.identity();
    let has = |key: &str, identity: &[(String, String)]| identity.iter().any(|(known, _)| known == key);
    if !has("user.name", &identity) || !has("user.email", &identity) {
        identity.retain(|(key, _)| key != "user.name" && key != "user.email");
        identity.push(("user.name".into(), "Lane worker".into()));
        identity.push(("user.email".into(), "lane@localhost".into()));
        warnings.push("git knows no user.name and user.email here; the worker commits as \"Lane worker\"".into());
    }
    let sparse = config.sparse().and_then(|cone| {
        let path = repository.git_dir.join("info/sparse-checkout");
        files::read_plain_text(&path, 16 * 1024 * 1024).map(|patterns| (patterns, cone))
    });
    if sparse.is_some() {
        warnings.push("the checkout is sparse, as the caller's is".into());
    }
    let exclude = files::read_plain(&repository.common_dir.join("info/exclude"), 1024 * 1024).unwrap_or_default();
    Made {
        content: config.content(),
        identity,
        exclude: String::from_utf8_lossy(&exclude).into_owned(),
        person_exclude: config.value("core.excludesfile").map(PathBuf::from),
        sparse,
        ..Made::default()
    }
}

/// Fails when the base's tree is not all here and git would have to fetch it.
pub(super) fn require_objects(git: &GitCli, repository: &RepositoryPlan, config: &LeadConfig) -> PortResult<()> {
    if !config.is_partial() || config.sparse().is_some() {
        return Ok(());
    }
    let tree = format!("{}^{{tree}}", repository.base_commit);
    let listed = git
        .on(&repository.common_dir)
        .args(["rev-list", "--objects", "--no-object-names", "--missing=print"])
        .arg(tree)
        .require()?;
    let missing = listed.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"?")).count();
    if missing == 0 {
        return Ok(());
    }
    Err(PortError::other(format!(
        "check out {}: the repository is a partial clone and {missing} objects of it are not here; bring them with \
         `git -C {} fetch --refetch --no-filter`",
        repository.base_commit,
        repository.root.display()
    )))
}

/// The refs of the lead that the worker may read.
#[derive(Debug, Default)]
pub(super) struct ReadableRefs {
    /// Content of `packed-refs`.
    pub(super) packed: Vec<u8>,
    /// Symbolic refs: name and target.
    pub(super) symbolic: Vec<(String, String)>,
}

pub(super) fn readable_refs(git: &GitCli, repository: &RepositoryPlan) -> PortResult<ReadableRefs> {
    let listed = git
        .on(&repository.common_dir)
        .args(["for-each-ref", "--format=%(objectname) %(refname)%00%(symref)", "refs/remotes", "refs/tags"])
        .require()?;
    let mut refs = ReadableRefs { packed: b"# pack-refs with: sorted \n".to_vec(), symbolic: Vec::new() };
    for line in listed.stdout.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == 0);
        let (Some(entry), Some(target)) = (parts.next(), parts.next()) else { continue };
        if target.is_empty() {
            refs.packed.extend_from_slice(entry);
            refs.packed.push(b'\n');
        } else if let Some((_, name)) = String::from_utf8_lossy(entry).split_once(' ') {
            refs.symbolic.push((name.to_owned(), String::from_utf8_lossy(target).into_owned()));
        }
    }
    Ok(refs)
}

fn clone_folder(repository: &RepositoryPlan, made: &Made, refs: ReadableRefs, branch: String) -> GitFolder {
    let commit = repository.base_commit.to_string();
    let mut folder =
        GitFolder::bare_minimum(&repository.object_format, vec![repository.common_dir.join("objects")], &commit);
    folder.head = HeadPoint::Branch(branch, commit);
    folder.packed_refs = refs.packed;
    folder.symbolic_refs = refs.symbolic;
    folder.shallow = files::read_plain(&repository.common_dir.join("shallow"), 64 * 1024 * 1024);
    apply_made(&mut folder, made);
    folder
}

/// Puts the settings, ignore rules and sparse patterns of the checkout into a folder.
pub(super) fn apply_made(folder: &mut GitFolder, made: &Made) {
    folder.settings = made.content.iter().chain(&made.identity).cloned().collect();
    folder.exclude = made.exclude.clone().into_bytes();
    if let Some((patterns, cone)) = &made.sparse {
        folder.sparse = Some(patterns.clone().into_bytes());
        folder.settings.push(("core.sparsecheckout".into(), "true".into()));
        folder.settings.push(("core.sparsecheckoutcone".into(), cone.to_string()));
    }
}

/// Fills a fresh working tree from a commit, with several processes where there are many files.
pub(super) fn populate(git: &GitCli, git_dir: &Path, work_tree: &Path, commit: &str) -> PortResult<()> {
    git.in_tree(git_dir, work_tree)
        .args(["-c", "checkout.workers=0", "-c", PARALLEL_FROM])
        .args(["read-tree", "-m", "-u", commit])
        .require()
        .map(drop)
        .map_err(explain_filter)
}

/// Says in plain words what a missing Git LFS object means.
fn explain_filter(mut error: PortError) -> PortError {
    if error.message.contains("smudge filter") || error.message.contains("filter-process") {
        error.message.push_str(
            " (a filter of git's configuration, such as Git LFS, could not give the content; fetch it in the caller's \
             checkout first, for example with `git lfs fetch`)",
        );
    }
    error
}

/// Length of an object id of a lane's repository, in bytes.
pub(super) fn id_bytes(plan: &Plan) -> usize {
    plan.repository.as_ref().map_or(20, |repository| repository.base_commit.as_str().len() / 2)
}

/// What the fresh checkout tracks, as far as anybody asks.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// Gitlinks: path and commit.
    pub(super) links: Vec<(PathBuf, String)>,
    /// Whether there is a `.worktreeinclude` at the root.
    pub(super) has_include: bool,
}

impl Tracked {
    /// Looks at the index of a fresh checkout, else asks git for it.
    pub(super) fn list(git: &GitCli, git_dir: &Path, work_tree: &Path, id_bytes: usize) -> PortResult<Self> {
        let bytes = std::fs::read(git_dir.join("index")).unwrap_or_default();
        let mut tracked = Self::default();
        if let Some(entries) = index_file::entries(&bytes, id_bytes) {
            for entry in entries {
                let id = || entry.id.iter().map(|byte| format!("{byte:02x}")).collect();
                tracked.note(entry.mode, id, entry.path);
            }
            return Ok(tracked);
        }
        let listed = git.in_tree(git_dir, work_tree).args(["ls-files", "--stage", "-z"]).require()?;
        for entry in listed.fields() {
            let mut parts = entry.splitn(2, |byte| *byte == b'\t');
            let (Some(head), Some(path)) = (parts.next(), parts.next()) else { continue };
            let head = String::from_utf8_lossy(head);
            let mut words = head.split(' ');
            let mode = words.next().and_then(|mode| u32::from_str_radix(mode, 8).ok()).unwrap_or(0);
            tracked.note(mode, || words.next().unwrap_or_default().to_owned(), path);
        }
        Ok(tracked)
    }

    fn note(&mut self, mode: u32, id: impl FnOnce() -> String, path: &[u8]) {
        if path == b".worktreeinclude" {
            self.has_include = mode & 0o170_000 == 0o100_000;
        }
        if mode == 0o160_000 {
            self.links.push((path_of(path), id()));
        }
    }
}

/// A path as git prints it.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(OsStr::from_bytes(bytes))
}
