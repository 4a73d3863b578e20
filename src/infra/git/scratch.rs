//! A git folder of Lane's own in the run folder, for looking at a checkout without its git folder.
//!
//! It borrows the lead's objects and keeps new ones to itself, so nothing reaches the lead before
//! it was checked.

use std::path::{Path, PathBuf};

use super::clone::apply_made;
use super::git_folder::GitFolder;
use super::record::{Made, base_index};
use super::{GitCli, files, ignore_rules};
use crate::app::ports::PortResult;
use crate::domain::plan::{Plan, RepositoryPlan};

/// The scratch folder; removed when it is dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Its git folder.
    pub(super) git_dir: PathBuf,
    /// The list of ignore rules that count.
    pub(super) excludes: PathBuf,
    /// The working tree it looks at.
    pub(super) work_tree: PathBuf,
    /// Whether that is a checkout of the lane's own, where closed folders may be opened.
    pub(super) may_open: bool,
}

impl Scratch {
    /// Makes one for a lane's checkout; `index` is where its first look at the files comes from.
    pub(super) fn make(
        git: &GitCli,
        plan: &Plan,
        repository: &RepositoryPlan,
        made: &Made,
        index: &Path,
    ) -> PortResult<Self> {
        let git_dir = plan.run_dir.join("scratch-git");
        files::remove_tree(&git_dir)?;
        let base = repository.base_commit.as_str();
        let mut folder =
            GitFolder::bare_minimum(&repository.object_format, vec![repository.common_dir.join("objects")], base);
        apply_made(&mut folder, made);
        folder.shallow = files::read_plain(&repository.common_dir.join("shallow"), 64 * 1024 * 1024);
        folder.write(&git_dir)?;
        let excludes = git_dir.join("excludes");
        ignore_rules::write(git, &git_dir, base, made, &excludes)?;
        if index.symlink_metadata().is_ok_and(|metadata| metadata.is_file()) {
            files::copy_index(index, &git_dir.join("index"))?;
        }
        Ok(Self { git_dir, excludes, work_tree: plan.checkout_path.clone(), may_open: plan.has_own_checkout() })
    }

    /// Makes one that starts from the index that Lane kept of the fresh checkout.
    pub(super) fn of_checkout(git: &GitCli, plan: &Plan, repository: &RepositoryPlan, made: &Made) -> PortResult<Self> {
        Self::make(git, plan, repository, made, &base_index(plan))
    }

    /// Its object folder.
    pub(super) fn objects(&self) -> PathBuf {
        self.git_dir.join("objects")
    }

    /// Points the index at a commit. What the files' times and sizes say stays known for every
    /// entry that does not change, so unchanged files are not read again.
    pub(super) fn aim_at(&self, git: &GitCli, commit: &str) -> PortResult<()> {
        let read = |words: &[&str]| git.in_tree(&self.git_dir, &self.work_tree).args(words).arg(commit).require();
        if read(&["read-tree", "--reset"]).is_ok() {
            return Ok(());
        }
        // An index that git cannot read costs only time.
        files::remove_tree(&self.git_dir.join("index"))?;
        read(&["read-tree", "--reset"]).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = files::remove_tree(&self.git_dir);
    }
}
