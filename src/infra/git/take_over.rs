//! Takes over what a worker left, after its whole process tree is gone.
//!
//! A private clone: its git folder moves into the run folder and is only ever read as files; a
//! clean one of Lane's own takes its place before anything else may run there. Each step can be
//! repeated: whatever a crash cuts short, the next call comes to the same answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::clone::apply_made;
use super::git_folder::{GitFolder, HeadPoint};
use super::hostile_refs::{self, Head, WorkerState};
use super::import::{Transfer, import, prove_complete};
use super::leftovers::{self, Differences};
use super::record::{FilledSubmodule, Made, Note, OwnCommit, Taken, lane_ref, worker_git};
use super::scratch::Scratch;
use super::{GitCli, clone, facts, files, in_place, keep, linked, require_repository, shared_state, submodules};
use crate::app::ports::{PortError, PortResult};
use crate::domain::facts::{Changes, OtherBranch, SubmoduleCommit, TakenOver};
use crate::domain::ids::CommitId;
use crate::domain::plan::{Plan, RepositoryPlan};
use crate::domain::worker::CheckoutMode;

/// The most refs of one worker's that are kept besides the lane's branch.
const MOST_REFS_KEPT: usize = 1000;

/// Takes the checkout over, or returns the answer of the time that it was.
pub(super) fn take_over(git: &GitCli, plan: &Plan) -> PortResult<TakenOver> {
    if let Some(taken) = Note::Taken.load::<Taken>(&plan.run_dir)? {
        return Ok(taken.answer);
    }
    if plan.has_own_checkout() {
        set_impostor_aside(plan)?;
    }
    refuse_vanished(plan)?;
    let taken = match plan.checkout {
        CheckoutMode::Clone => of_clone(git, plan)?,
        CheckoutMode::Linked => of_linked(git, plan)?,
        CheckoutMode::None => in_place::take_over(git, plan)?,
    };
    Note::Taken.write(&plan.run_dir, &taken)?;
    if let (CheckoutMode::Linked, Some(repository)) = (plan.checkout, &plan.repository) {
        shared_state::leave_company(plan, repository);
    }
    Ok(taken.answer)
}

/// A checkout that somebody removed was not left unchanged by its worker: what it did is not known.
fn refuse_vanished(plan: &Plan) -> PortResult<()> {
    if files::exists(&plan.checkout_path) || files::exists(&worker_git(plan)) {
        return Ok(());
    }
    Err(PortError::other(format!("the checkout {} is gone", plan.checkout_path.display())))
}

/// Everything that the steps hand to each other.
struct Work<'a> {
    git: &'a GitCli,
    plan: &'a Plan,
    repository: &'a RepositoryPlan,
    made: Made,
    state: WorkerState,
    /// The worker's object folder; `None` when the lead has the objects already.
    objects: Option<PathBuf>,
    warnings: Vec<String>,
    kept: Vec<String>,
}

/// Where the worker stood.
struct Standing {
    /// The lane's own branch.
    lane_tip: String,
    /// The real HEAD.
    head: String,
    /// Whether HEAD is on the lane's branch and nothing is in progress.
    on_branch: bool,
}

/// What was left uncommitted.
#[derive(Default)]
struct Left {
    found: Differences,
    commit: Option<String>,
}

fn of_clone(git: &GitCli, plan: &Plan) -> PortResult<Taken> {
    let repository = require_repository(plan)?;
    let kept = worker_git(plan);
    move_git_folder(plan, &kept)?;
    let state = hostile_refs::read(&kept, plan_hex(repository));
    let made = Made::load(&plan.run_dir)?;
    let objects = Some(kept.join("objects"));
    let work = Work { git, plan, repository, made, state, objects, warnings: Vec::new(), kept: Vec::new() };
    work.finish()
}

fn of_linked(git: &GitCli, plan: &Plan) -> PortResult<Taken> {
    let repository = require_repository(plan)?;
    let made = Made::load(&plan.run_dir)?;
    linked::move_modules(plan, &made)?;
    let state = linked::state(git, plan, &made)?;
    Work { git, plan, repository, made, state, objects: None, warnings: Vec::new(), kept: Vec::new() }.finish()
}

/// Length of an object id in hexadecimal digits.
fn plan_hex(repository: &RepositoryPlan) -> usize {
    repository.base_commit.as_str().len()
}

/// Takes away a link or a file that stands where the checkout was.
///
/// A link may lead to the lead's own repository: nothing may be moved, read or run through it.
fn set_impostor_aside(plan: &Plan) -> PortResult<()> {
    let place = &plan.checkout_path;
    if files::is_directory(place) || !files::exists(place) {
        // A worker that closed the folder itself must not keep its work from being seen.
        files::open_folder(place);
        return Ok(());
    }
    move_aside(place, &plan.run_dir.join("not-a-checkout"))
}

/// Moves the checkout's git folder into the run folder. What is there afterwards is Lane's.
fn move_git_folder(plan: &Plan, kept: &Path) -> PortResult<()> {
    let current = plan.checkout_path.join(".git");
    if !files::exists(kept) && files::exists(&current) {
        move_aside(&current, kept)?;
    }
    let aside = files::sibling(&plan.checkout_path, ".worker-git");
    if files::exists(kept) {
        // What the worker closed must be readable, or its commits would be missed.
        files::open_up(kept);
        return files::remove_tree(&aside);
    }
    if files::exists(&aside) { across_file_systems(&aside, kept) } else { Ok(()) }
}

/// Moves whatever is at `from` to `to`, to another file system if it must be.
pub(super) fn move_aside(from: &Path, to: &Path) -> PortResult<()> {
    if files::is_directory(from) {
        use std::os::unix::fs::PermissionsExt;
        // Moving a folder to another parent needs the right to write in it.
        let _ = std::fs::set_permissions(from, std::fs::Permissions::from_mode(0o700));
    }
    match std::fs::rename(from, to) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            let aside = files::sibling(from.parent().unwrap_or(from), ".worker-git");
            files::remove_tree(&aside)?;
            files::rename(from, &aside)?;
            across_file_systems(&aside, to)
        }
        Err(error) => Err(PortError::io(format!("move {} to {}", from.display(), to.display()), &error)),
    }
}

fn across_file_systems(aside: &Path, to: &Path) -> PortResult<()> {
    let partial = files::sibling(to, ".partial");
    files::remove_tree(&partial)?;
    files::open_up(aside);
    files::copy_tree(aside, &partial)?;
    files::rename(&partial, to)?;
    files::remove_tree(aside)
}

impl Work<'_> {
    fn base(&self) -> &str {
        self.repository.base_commit.as_str()
    }

    fn finish(mut self) -> PortResult<Taken> {
        let own = self.own_commit()?;
        let standing = self.standing(own.as_ref());
        let optional = self.import_worker(&standing)?;
        let left = self.leftovers(&standing)?;
        let refs = self.refs(&standing, &left, &optional);
        keep::set_all(self.git, &self.repository.common_dir, &refs)?;
        let branch_tip = if standing.on_branch { left.commit.as_ref() } else { None };
        let branch_tip = branch_tip.unwrap_or(&standing.lane_tip).clone();
        if let Err(error) = self.set_branch(&standing, &branch_tip) {
            // Somebody took the branch's name meanwhile: the commits are kept under Lane's own.
            let aside = lane_ref(self.plan, "branch");
            keep::set_all(self.git, &self.repository.common_dir, &[(aside.clone(), branch_tip)])?;
            return Err(PortError { kind: error.kind, message: format!("{}; the work is at {aside}", error.message) });
        }
        self.kept.extend(refs.iter().map(|(name, _)| name.clone()));
        let submodule_commits = self.submodules()?;
        self.answer(&standing, &left, &optional, branch_tip, submodule_commits)
    }

    /// Lane's own commit of an earlier try that had already moved a linked worktree's branch.
    fn own_commit(&self) -> PortResult<Option<OwnCommit>> {
        let noted: Option<OwnCommit> = Note::OwnCommit.load(&self.plan.run_dir)?;
        let branch = self.state.branches.get(&self.plan.lane_id.branch());
        Ok(noted.filter(|own| self.objects.is_none() && branch == Some(&own.commit)))
    }

    fn standing(&mut self, own: Option<&OwnCommit>) -> Standing {
        let branch = self.plan.lane_id.branch();
        let base = self.base().to_owned();
        let before = |commit: &String| match own {
            Some(own) if own.commit == *commit => own.parent.clone(),
            _ => commit.clone(),
        };
        let tip = self.state.branches.get(&branch).map(before);
        if tip.is_none() {
            self.warnings.push(format!("the worker removed the branch {branch}; it stands at the base"));
        }
        let lane_tip = tip.unwrap_or_else(|| base.clone());
        let (head, on_lane) = match &self.state.head {
            Head::Branch(name, Some(commit)) => (before(commit), *name == branch),
            Head::Branch(name, None) => {
                self.warnings.push(format!("HEAD is on branch {name}, which has no commit"));
                (base, false)
            }
            Head::Detached(commit) => (commit.clone(), false),
            Head::Unreadable(why) => {
                self.warnings.push(format!("{why}; its git folder is kept in the run folder"));
                (base, false)
            }
        };
        Standing { lane_tip, head, on_branch: on_lane && self.state.operation.is_none() }
    }

    /// Imports what must be there, and of the rest what can be. Returns the optional refs that can.
    fn import_worker(&mut self, standing: &Standing) -> PortResult<BTreeMap<String, String>> {
        let must = [standing.head.clone(), standing.lane_tip.clone()];
        let Some(objects) = self.objects.clone() else {
            prove_complete(self.git, &self.repository.common_dir, &must, self.base())?;
            return Ok(BTreeMap::new());
        };
        let optional = self.optional_refs()?;
        let all: Vec<String> = must.iter().chain(optional.values()).cloned().collect();
        let name = self.plan.lane_id.as_str().to_owned();
        let base = self.base().to_owned();
        let transfer =
            Transfer { into: &self.repository.common_dir, from: &objects, hostile: true, base: &base, name: &name };
        if import(self.git, &transfer, &all).is_ok() {
            return Ok(optional);
        }
        // One bad ref of the worker's must not keep the rest from being taken over.
        import(self.git, &transfer, &must)?;
        let mut taken = BTreeMap::new();
        for (name, id) in optional {
            match import(self.git, &transfer, std::slice::from_ref(&id)) {
                Ok(()) => drop(taken.insert(name, id)),
                Err(error) => self.warnings.push(format!("{name} of the worker was not taken over: {error}")),
            }
        }
        Ok(taken)
    }

    /// The worker's other branches, new tags and stashes, by the name under the lane's own refs.
    fn optional_refs(&mut self) -> PortResult<BTreeMap<String, String>> {
        let own = self.plan.lane_id.branch();
        let mut refs = BTreeMap::new();
        for (name, id) in self.state.branches.iter().filter(|(name, _)| **name != own) {
            refs.insert(format!("branches/{name}"), id.clone());
        }
        if !self.state.tags.is_empty() {
            let known = self.tags_of_lead()?;
            for (name, id) in self.state.tags.iter().filter(|(name, id)| known.get(*name) != Some(id)) {
                refs.insert(format!("tags/{name}"), id.clone());
            }
        }
        for (number, id) in self.state.stashes.iter().enumerate() {
            refs.insert(format!("stash/{number}"), id.clone());
        }
        for (name, id) in &self.state.others {
            refs.insert(format!("other/{name}"), id.clone());
        }
        for (number, id) in self.state.nameless.iter().enumerate() {
            refs.insert(format!("nameless/{number}"), id.clone());
        }
        // A name that is also another's folder cannot stand beside it.
        let names: Vec<String> = refs.keys().cloned().collect();
        for name in &names {
            let folder = format!("{name}/");
            if refs.range(folder.clone()..).next().is_some_and(|(other, _)| other.starts_with(&folder))
                && let Some(id) = refs.remove(name)
            {
                refs.insert(format!("nameless/{}", name.replace('/', "-")), id);
            }
        }
        self.bound(&mut refs);
        Ok(refs)
    }

    /// Of very many refs only so many are kept that no commit is lost which few of them can keep.
    fn bound(&mut self, refs: &mut BTreeMap<String, String>) {
        if refs.len() <= MOST_REFS_KEPT {
            return;
        }
        let all = refs.len();
        let mut seen = BTreeSet::from([self.base().to_owned()]);
        refs.retain(|_, id| seen.insert(id.clone()));
        let beyond = refs.keys().nth(MOST_REFS_KEPT).cloned();
        if let Some(beyond) = beyond {
            refs.split_off(&beyond);
        }
        let kept = refs.len();
        self.warnings.push(format!(
            "of the worker's {all} other refs {kept} were kept; all are in its git folder in the run folder"
        ));
    }

    fn tags_of_lead(&self) -> PortResult<BTreeMap<String, String>> {
        let listed = self
            .git
            .on(&self.repository.common_dir)
            .args(["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/tags"])
            .require()?;
        let pair = |line: String| line.rsplit_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned()));
        Ok(listed.lines().into_iter().filter_map(pair).collect())
    }

    /// Finds what was left, makes it a commit on top of the real HEAD, and puts a clean git folder
    /// in the place of the worker's.
    fn leftovers(&mut self, standing: &Standing) -> PortResult<Left> {
        if !files::is_directory(&self.plan.checkout_path) {
            self.warnings.push("the checkout is gone; only commits could be taken over".into());
            return Ok(Left::default());
        }
        let scratch = Scratch::of_checkout(self.git, self.plan, self.repository, &self.made)?;
        scratch.aim_at(self.git, &standing.head)?;
        let found = leftovers::find(self.git, &scratch)?;
        let staged = leftovers::stage(self.git, &scratch, &found)?;
        self.warnings.extend(staged.warnings);
        let commit = leftovers::commit(self.git, self.plan, &scratch, &staged.tree, &standing.head)?;
        if let Some(commit) = &commit {
            let objects = scratch.objects();
            let transfer = Transfer {
                into: &self.repository.common_dir,
                from: &objects,
                hostile: false,
                base: &standing.head,
                name: self.plan.lane_id.as_str(),
            };
            import(self.git, &transfer, std::slice::from_ref(commit))?;
        }
        if commit.is_some() && !standing.on_branch {
            scratch.aim_at(self.git, &standing.head)?;
        }
        let left = Left { found, commit };
        self.clean_git_folder(&scratch, standing, &left)?;
        Ok(left)
    }

    fn clean_git_folder(&self, scratch: &Scratch, standing: &Standing, left: &Left) -> PortResult<()> {
        if self.objects.is_none() {
            return linked::replace_git_folder(self.plan, &self.made, &scratch.git_dir.join("index"));
        }
        let tip = left.commit.as_ref().filter(|_| standing.on_branch).unwrap_or(&standing.head).clone();
        let borrowed = self.repository.common_dir.join("objects");
        let mut folder = GitFolder::bare_minimum(&self.repository.object_format, vec![borrowed], &tip);
        folder.head = match &self.state.head {
            Head::Branch(name, Some(_)) if self.state.operation.is_none() => HeadPoint::Branch(name.clone(), tip),
            Head::Branch(..) | Head::Detached(_) | Head::Unreadable(_) => HeadPoint::Detached(tip),
        };
        apply_made(&mut folder, &self.made);
        folder.exclude = super::include::with_brought(&self.made.exclude, &self.made.brought).into_bytes();
        // Git must not enter nested repositories when a check command asks for the status.
        folder.settings.push(("diff.ignoresubmodules".into(), "all".into()));
        folder.shallow = files::read_plain(&self.repository.common_dir.join("shallow"), 64 * 1024 * 1024);
        let refs = clone::readable_refs(self.git, self.repository)?;
        folder.packed_refs = refs.packed;
        folder.symbolic_refs = refs.symbolic;
        let fresh = files::sibling(&self.plan.checkout_path, ".lane-git");
        files::remove_tree(&fresh)?;
        folder.write(&fresh)?;
        files::copy_index(&scratch.git_dir.join("index"), &fresh.join("index"))?;
        let place = self.plan.checkout_path.join(".git");
        files::remove_tree(&place)?;
        files::rename(&fresh, &place)
    }

    /// The refs that keep what the lane's branch does not hold.
    fn refs(&self, standing: &Standing, left: &Left, optional: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let mut refs: Vec<(String, String)> =
            optional.iter().map(|(name, id)| (lane_ref(self.plan, name), id.clone())).collect();
        if !standing.on_branch {
            if standing.head != standing.lane_tip && standing.head != self.base() {
                refs.push((lane_ref(self.plan, "head"), standing.head.clone()));
            }
            refs.extend(left.commit.iter().map(|commit| (lane_ref(self.plan, "uncommitted"), commit.clone())));
        }
        refs
    }

    fn set_branch(&self, standing: &Standing, tip: &str) -> PortResult<()> {
        let name = format!("refs/heads/{}", self.plan.lane_id.branch());
        let common_dir = &self.repository.common_dir;
        if self.objects.is_some() || keep::value(self.git, common_dir, &name)?.is_none() {
            return keep::set_all(self.git, common_dir, &[(name, tip.to_owned())]);
        }
        if tip == standing.lane_tip || self.state.branches.get(&self.plan.lane_id.branch()).is_some_and(|at| at == tip)
        {
            return Ok(());
        }
        let own = OwnCommit { commit: tip.to_owned(), parent: standing.head.clone() };
        Note::OwnCommit.write(&self.plan.run_dir, &own)?;
        let words = ["update-ref", "--no-deref", "-m", "lane: save what was left", &name, tip, &standing.lane_tip];
        self.git.on(common_dir).args(words).require().map(drop)
    }

    /// Takes over commits that the worker made inside submodules, and gives those clean git folders.
    fn submodules(&mut self) -> PortResult<Vec<SubmoduleCommit>> {
        let root = worker_git(self.plan);
        let git_dir = match (&self.objects, &self.made.admin_dir) {
            (None, Some(admin)) => admin.clone(),
            (_, _) => self.plan.checkout_path.join(".git"),
        };
        let mut commits = Vec::new();
        let mut places = Vec::new();
        for one in self.made.submodules.clone() {
            let place = self.submodule(&root, &one, &mut commits)?;
            places.push((one, place));
        }
        if files::is_directory(&self.plan.checkout_path) {
            submodules::replace_git_folders(self.git, self.plan, &git_dir, &places)?;
        }
        Ok(commits)
    }

    /// Where one submodule stands now; its new commits are kept in the lead's own submodule.
    fn submodule(
        &mut self,
        root: &Path,
        one: &FilledSubmodule,
        commits: &mut Vec<SubmoduleCommit>,
    ) -> PortResult<String> {
        let folder = root.join(&one.module);
        let Some(head) = hostile_refs::head_commit(&folder, one.commit.len()).filter(|head| *head != one.commit) else {
            return Ok(one.commit.clone());
        };
        let objects = folder.join("objects");
        let name = self.plan.lane_id.as_str();
        let transfer = Transfer { into: &one.source, from: &objects, hostile: true, base: &one.commit, name };
        let reference = lane_ref(self.plan, "head");
        let kept = import(self.git, &transfer, std::slice::from_ref(&head))
            .and_then(|()| keep::set_all(self.git, &one.source, &[(reference.clone(), head.clone())]));
        commits.push(SubmoduleCommit { path: one.path.clone(), commit: head.clone() });
        match kept {
            Ok(()) => {
                self.kept.push(format!("{}: {reference}", one.path));
                Ok(head)
            }
            Err(error) => {
                self.warnings.push(format!("the commit in submodule {} is only in the run folder: {error}", one.path));
                Ok(one.commit.clone())
            }
        }
    }

    fn answer(
        mut self,
        standing: &Standing,
        left: &Left,
        optional: &BTreeMap<String, String>,
        branch_tip: String,
        submodule_commits: Vec<SubmoduleCommit>,
    ) -> PortResult<Taken> {
        let head = if standing.on_branch { branch_tip } else { standing.head.clone() };
        let tree_commit = left.commit.clone().unwrap_or_else(|| head.clone());
        let common_dir = &self.repository.common_dir;
        let (measured, diff) = facts::measure(self.git, common_dir, self.plan, &head, &tree_commit)?;
        self.warn_about_brought(&diff.paths);
        let mut nested = measured.nested_repositories.clone();
        let known = |path: &str| self.made.submodules.iter().any(|one| one.path == path);
        for path in &left.found.nested {
            let path = path.to_string_lossy().into_owned();
            if !nested.contains(&path) && !known(&path) {
                nested.push(path);
            }
        }
        nested.retain(|path| !known(path));
        let shared_changes =
            if self.objects.is_none() { shared_state::changes(self.git, self.plan)? } else { Vec::new() };
        let changes = Changes {
            uncommitted_saved: left.commit.is_some(),
            nested_repositories: nested,
            head_is_branch_tip: Some(standing.on_branch),
            detached: matches!(self.state.head, Head::Detached(_)),
            other_branches: self.other_branches(optional),
            operation_in_progress: self.state.operation.clone(),
            kept_refs: self.kept.clone(),
            submodule_commits,
            shared_changes,
            ..measured
        };
        let branch = format!("refs/heads/{}", self.plan.lane_id.branch());
        let refs = std::iter::once(branch).chain(self.kept.iter().cloned()).collect();
        let head_commit = CommitId::try_from(head).map_err(|error| PortError::other(error.to_string()))?;
        let answer = TakenOver { head_commit, changes, warnings: self.warnings };
        Ok(Taken { answer, tree_commit, refs, git_dir: None })
    }

    /// What was brought along is ignored; a worker can still force it into a commit.
    fn warn_about_brought(&mut self, paths: &[String]) {
        let brought: Vec<&String> = paths.iter().filter(|path| self.made.brought.contains(path)).collect();
        for path in brought {
            self.warnings.push(format!("the worker committed {path}, which was only brought along; do not merge it"));
        }
    }

    fn other_branches(&self, optional: &BTreeMap<String, String>) -> Vec<OtherBranch> {
        let kept = |name: &str, id: &String, kept_as: String| {
            CommitId::try_from(id.clone()).ok().map(|commit| OtherBranch { name: name.to_owned(), commit, kept_as })
        };
        if self.objects.is_some() {
            let names =
                optional.iter().filter_map(|(name, id)| name.strip_prefix("branches/").map(|short| (short, id)));
            return names
                .filter_map(|(name, id)| kept(name, id, lane_ref(self.plan, &format!("branches/{name}"))))
                .collect();
        }
        match &self.state.head {
            Head::Branch(name, Some(id)) if *name != self.plan.lane_id.branch() => {
                kept(name, id, format!("refs/heads/{name}")).into_iter().collect()
            }
            Head::Branch(..) | Head::Detached(_) | Head::Unreadable(_) => Vec::new(),
        }
    }
}
