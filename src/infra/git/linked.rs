//! Makes, repairs and removes linked worktrees, the mode for tools that need one.
//!
//! Git's own creation fails when several run at once, so the short part that touches the shared
//! folder happens under a lock of Lane's; the files are written after it. Lane's own steps run no
//! hook of the repository: the warning names the one that was left out. The worker's commits run
//! the repository's hooks, as they would for a person.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::clone::{begin, describe, finish, forget, populate, require_objects};
use super::config::LeadConfig;
use super::hostile_refs::{self, Head, WorkerState};
use super::record::{Made, Note, lane_ref, worker_git};
use super::{GitCli, files, keep, require_repository, shared_state, take_over};
use crate::app::ports::{CheckoutMade, PortError, PortErrorKind, PortResult};
use crate::domain::plan::{Plan, RepositoryPlan};

/// How long the lock is waited for. It is held for a few short git calls.
const LOCK_LIMIT: Duration = Duration::from_secs(120);

/// Makes the worktree; on an error nothing is left.
pub(super) fn make(git: &GitCli, plan: &Plan) -> PortResult<CheckoutMade> {
    let repository = require_repository(plan)?;
    if files::exists(&Note::Making.path(&plan.run_dir)) {
        undo(git, plan, repository);
    }
    begin(git, plan)?;
    let made = fill(git, plan, repository);
    if made.is_err() {
        undo(git, plan, repository);
    }
    made
}

fn fill(git: &GitCli, plan: &Plan, repository: &RepositoryPlan) -> PortResult<CheckoutMade> {
    keep::pin_base(git, plan, repository)?;
    let config = LeadConfig::load(git, &repository.git_dir)?;
    let mut warnings = Vec::new();
    let mut made = describe(&config, repository, &mut warnings);
    require_objects(git, repository, &config)?;
    made.identity.clear();
    Note::Making.write_lazily(&plan.run_dir, &made)?;
    let admin = add(git, plan, repository)?;
    made.admin_dir = Some(admin.clone());
    if let Some((patterns, _)) = &made.sparse {
        files::make_folder(&admin.join("info"))?;
        files::write(&admin.join("info/sparse-checkout"), patterns)?;
    }
    populate(git, &admin, &plan.checkout_path, repository.base_commit.as_str())?;
    finish(git, plan, &admin, &mut made, &mut warnings)?;
    warnings.extend(skipped_hook(&config, repository));
    shared_state::remember(git, plan)?;
    Ok(CheckoutMade { warnings })
}

/// Creates branch, folder and worktree entry, under the lock.
fn add(git: &GitCli, plan: &Plan, repository: &RepositoryPlan) -> PortResult<PathBuf> {
    let _lock = lock(&repository.common_dir)?;
    keep_ref_folders(repository)?;
    if let Some(parent) = plan.checkout_path.parent() {
        files::make_folder(parent)?;
    }
    git.on(&repository.common_dir)
        .args(["worktree", "add", "--quiet", "--no-checkout", "--no-track", "--no-guess-remote"])
        .args(["-b", &plan.lane_id.branch()])
        .arg(&plan.checkout_path)
        .arg(repository.base_commit.as_str())
        .require()?;
    shared_state::note_company(plan, repository)?;
    admin_of(&plan.checkout_path, repository)
        .ok_or_else(|| PortError::other(format!("find the worktree entry of {}", plan.checkout_path.display())))
}

/// Makes the folders that a confined worker writes its branch in. `git pack-refs` removes them when
/// they are empty, and a confinement then points nowhere; a file that is no ref keeps them.
fn keep_ref_folders(repository: &RepositoryPlan) -> PortResult<()> {
    let refs = repository.common_dir.join("refs/heads");
    if !refs.is_dir() || repository.common_dir.join("reftable").is_dir() {
        return Ok(());
    }
    files::make_folder(&repository.common_dir.join("logs/refs/heads/lane"))?;
    files::make_folder(&refs.join("lane"))?;
    files::write(&refs.join("lane/.keep"), "")
}

/// Waits for the lock on the shared folder.
pub(super) fn lock(common_dir: &Path) -> PortResult<File> {
    let folder = common_dir.join("lane");
    files::make_folder(&folder)?;
    let path = folder.join("worktree.lock");
    let failed = |error: &std::io::Error| PortError::io(format!("lock {}", path.display()), error);
    let file = OpenOptions::new().create(true).append(true).open(&path).map_err(|error| failed(&error))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
            Err(TryLockError::WouldBlock) if started.elapsed() > LOCK_LIMIT => {
                let message = format!("lock {}: another process holds it", path.display());
                return Err(PortError { kind: PortErrorKind::Held, message });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// The worktree's own git folder, found by the path that git noted in it.
fn admin_of(checkout: &Path, repository: &RepositoryPlan) -> Option<PathBuf> {
    let entries = std::fs::read_dir(repository.common_dir.join("worktrees")).ok()?;
    let wanted = checkout.join(".git");
    entries.flatten().map(|entry| entry.path()).find(|admin| {
        let noted = files::read_plain_text(&admin.join("gitdir"), 64 * 1024);
        noted.is_some_and(|noted| Path::new(noted.trim_end_matches('\n')) == wanted)
    })
}

/// Removes branch, folder, worktree entry and pin of a worktree that is half made.
fn undo(git: &GitCli, plan: &Plan, repository: &RepositoryPlan) {
    remove_entry(plan, repository, admin_of(&plan.checkout_path, repository).as_deref());
    let _ = files::remove_tree(&plan.checkout_path);
    let branch = format!("refs/heads/{}", plan.lane_id.branch());
    // Only where nothing was committed on it.
    let words = ["update-ref", "--no-deref", "-d", &branch, repository.base_commit.as_str()];
    let _ = git.on(&repository.common_dir).args(words).run();
    let _ = keep::delete(git, &repository.common_dir, &lane_ref(plan, "base"));
    shared_state::leave_company(plan, repository);
    forget(plan);
}

/// Removes the worktree's entry in the shared folder.
pub(super) fn remove_entry(plan: &Plan, repository: &RepositoryPlan, admin: Option<&Path>) {
    let Ok(_lock) = lock(&repository.common_dir) else { return };
    let found = admin_of(&plan.checkout_path, repository);
    for folder in [admin, found.as_deref()].into_iter().flatten() {
        if folder.starts_with(repository.common_dir.join("worktrees")) {
            let _ = files::remove_tree(folder);
        }
    }
    // Git keeps no empty folder there either.
    let _ = std::fs::remove_dir(repository.common_dir.join("worktrees"));
}

/// The hook that git would have run after the checkout, had a person made it.
fn skipped_hook(config: &LeadConfig, repository: &RepositoryPlan) -> Option<String> {
    let folder = match config.value("core.hookspath") {
        Some(path) => repository.root.join(path),
        None => repository.common_dir.join("hooks"),
    };
    let hook = folder.join("post-checkout");
    let runs = hook.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0);
    runs.then(|| format!("the repository's post-checkout hook was not run for the checkout: {}", hook.display()))
}

/// Moves the git folders of the submodules into the run folder, as they are the worker's.
pub(super) fn move_modules(plan: &Plan, made: &Made) -> PortResult<()> {
    let (Some(admin), kept) = (&made.admin_dir, worker_git(plan)) else { return Ok(()) };
    let (from, to) = (admin.join("modules"), kept.join("modules"));
    if made.submodules.is_empty() || files::exists(&to) || !files::exists(&from) {
        return Ok(());
    }
    files::make_folder(&kept)?;
    take_over::move_aside(&from, &to)
}

/// Reads where the worktree stands, by git from the shared folder: the refs may be in any format.
pub(super) fn state(git: &GitCli, plan: &Plan, made: &Made) -> PortResult<WorkerState> {
    let repository = require_repository(plan)?;
    let branch = plan.lane_id.branch();
    let mut state = WorkerState {
        head: Head::Unreadable("the worktree's entry in the repository is gone".into()),
        branches: std::collections::BTreeMap::new(),
        tags: std::collections::BTreeMap::new(),
        stashes: Vec::new(),
        others: std::collections::BTreeMap::new(),
        nameless: std::collections::BTreeSet::new(),
        operation: None,
    };
    let name = format!("refs/heads/{branch}");
    if let Some(tip) = keep::value(git, &repository.common_dir, &name)? {
        state.branches.insert(branch, tip);
    }
    let Some(admin) = made.admin_dir.as_deref().filter(|admin| files::is_directory(admin)) else { return Ok(state) };
    let commit = keep::value(git, admin, "HEAD^{commit}")?;
    let symbolic = git.on(admin).args(["symbolic-ref", "--quiet", "HEAD"]).run()?;
    let target = symbolic.text();
    state.head = match (symbolic.code, target.strip_prefix("refs/heads/"), commit) {
        (Some(0), Some(branch), commit) => Head::Branch(branch.to_owned(), commit),
        (_, _, Some(commit)) => Head::Detached(commit),
        (_, _, None) => Head::Unreadable("the worktree's HEAD cannot be read".into()),
    };
    state.operation = hostile_refs::operation(admin);
    Ok(state)
}

/// Makes the worktree's `.git` file and index what they should be.
pub(super) fn replace_git_folder(plan: &Plan, made: &Made, index: &Path) -> PortResult<()> {
    let Some(admin) = made.admin_dir.as_deref().filter(|admin| files::is_directory(admin)) else { return Ok(()) };
    let pointer = plan.checkout_path.join(".git");
    let expected = format!("gitdir: {}\n", admin.display());
    if files::read_plain_text(&pointer, 64 * 1024).as_deref() != Some(expected.as_str()) {
        if files::is_directory(&pointer) {
            let kept = worker_git(plan);
            if files::exists(&kept) { files::remove_tree(&pointer)? } else { take_over::move_aside(&pointer, &kept)? }
        }
        files::remove_tree(&pointer)?;
        files::write(&pointer, expected)?;
    }
    // A lock that the worker left in its own entry; no process of it is alive.
    files::remove_tree(&admin.join("index.lock"))?;
    files::copy_index(index, &admin.join("index"))
}
