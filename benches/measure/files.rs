//! Making and removing a checkout of 10,000 files, against git's own best ways.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lane::app::ports::Git;
use lane::domain::config::Settings;
use lane::domain::ids::{CommitId, LaneId};
use lane::domain::plan::Plan;
use lane::domain::time::Timestamp;
use lane::infra::git::GitCli;

use crate::bed::{Bed, Fallible, Measured, interleave, success};
use crate::{Report, Size};

/// A private clone over the best of git's ways; the visible part of removing over a rename and prune.
pub fn checkout_and_removal(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("large", 10_000)?;
    let place = Place::new(bed, &repository)?;
    let serial = &["-c", "checkout.workers=1"][..];
    let parallel = &["-c", "checkout.workers=0", "-c", "checkout.thresholdForParallelism=100"][..];
    let measured: Vec<Measured<'_>> = vec![
        Box::new(|| place.ours().map(|times| times.made)),
        Box::new(|| place.worktree(serial).map(|times| times.made)),
        Box::new(|| place.worktree(parallel).map(|times| times.made)),
        Box::new(|| place.clone(serial)),
        Box::new(|| place.clone(parallel)),
    ];
    let medians = interleave(size.slow_rounds, measured)?;
    let best = medians[1..].iter().min().copied().unwrap_or_default();
    report.ratio("checkout: 10,000 files, over git's best way", medians[0], best, 1.1);
    let measured: Vec<Measured<'_>> = vec![
        Box::new(|| place.ours().map(|times| times.removed)),
        Box::new(|| place.worktree(serial).map(|times| times.removed)),
    ];
    let medians = interleave(size.slow_rounds, measured)?;
    report.ratio("checkout: removal, over a rename and prune", medians[0], medians[1], 1.5);
    Ok(())
}

/// How long making a checkout and removing it took.
struct Times {
    made: Duration,
    removed: Duration,
}

struct Place<'a> {
    bed: &'a Bed,
    repository: &'a Path,
    base: CommitId,
    git: GitCli,
    number: Cell<u16>,
}

impl<'a> Place<'a> {
    fn new(bed: &'a Bed, repository: &'a Path) -> Fallible<Self> {
        let head = success(bed.command("git").arg("-C").arg(repository).args(["rev-parse", "HEAD"]))?;
        let base = String::from_utf8_lossy(&head.stdout).trim().parse().map_err(|_| "no commit".to_owned())?;
        let program = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .map(|folder| folder.join("git"))
            .find(|path| path.is_file())
            .ok_or("git is not on PATH")?;
        let git = GitCli::new(program, std::env::var_os("PATH"), Some(bed.path().join("home")));
        Ok(Self { bed, repository, base, git, number: Cell::new(0) })
    }

    fn next(&self) -> u16 {
        self.number.set(self.number.get() + 1);
        self.number.get()
    }

    fn plan(&self) -> Fallible<Plan> {
        let lane_id = LaneId::new(Timestamp::from_unix_s(1_800_000_000), "measure", self.next());
        let mut plan: Plan = serde_json::from_str(include_str!("../../tests/fixtures/formats/1/plan.json"))
            .map_err(|error| error.to_string())?;
        plan.run_dir = self.bed.state().join("runs").join(lane_id.as_str());
        plan.checkout_path = self.bed.state().join("checkouts").join(lane_id.as_str());
        plan.cwd = self.repository.to_owned();
        (plan.holdout, plan.protect, plan.add_dirs) = (Vec::new(), Vec::new(), Vec::new());
        (plan.owned_paths, plan.checkout_include, plan.setup) = (None, Vec::new(), None);
        if let Some(repository) = &mut plan.repository {
            repository.root = self.repository.to_owned();
            repository.common_dir = self.repository.join(".git");
            repository.git_dir = self.repository.join(".git");
            repository.base_commit = self.base.clone();
        }
        std::fs::create_dir_all(&plan.run_dir).map_err(|error| error.to_string())?;
        plan.lane_id = lane_id;
        Ok(plan)
    }

    /// As Lane does it, in the supervisor and in `lane clean`.
    fn ours(&self) -> Fallible<Times> {
        let plan = self.plan()?;
        let began = Instant::now();
        self.git.make_checkout(&plan).map_err(|error| error.to_string())?;
        let made = began.elapsed();
        self.git.take_over(&plan).map_err(|error| error.to_string())?;
        let began = Instant::now();
        let rebuildable = Settings::default().rebuildable;
        self.git.clean(&plan, &rebuildable, false).map_err(|error| error.to_string())?;
        let removed = began.elapsed();
        self.wait_until_gone()?;
        Ok(Times { made, removed })
    }

    /// The files are deleted in the background; that must not disturb the next measurement.
    fn wait_until_gone(&self) -> Fallible<()> {
        let folder = self.bed.state().join("checkouts");
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::fs::read_dir(&folder).map_err(|error| error.to_string())?.count() > 0 {
            if Instant::now() > deadline {
                return Err("a removed checkout is still there".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn git(&self, settings: &[&str]) -> std::process::Command {
        let mut command = self.bed.command("git");
        command.arg("-C").arg(self.repository).args(settings);
        command
    }

    /// A linked worktree, and its removal by a rename and prune.
    fn worktree(&self, settings: &[&str]) -> Fallible<Times> {
        let path = self.fresh("worktree");
        let began = Instant::now();
        success(self.git(settings).args(["worktree", "add", "-q", "--detach"]).arg(&path))?;
        let made = began.elapsed();
        let aside = self.fresh("aside");
        let began = Instant::now();
        std::fs::rename(&path, &aside).map_err(|error| error.to_string())?;
        success(self.git(&[]).args(["worktree", "prune"]))?;
        let removed = began.elapsed();
        remove(&aside)?;
        Ok(Times { made, removed })
    }

    /// A clone that shares the objects.
    fn clone(&self, settings: &[&str]) -> Fallible<Duration> {
        let path = self.fresh("clone");
        let began = Instant::now();
        success(
            self.bed.command("git").args(settings).args(["clone", "-q", "--shared"]).arg(self.repository).arg(&path),
        )?;
        let made = began.elapsed();
        remove(&path)?;
        Ok(made)
    }

    fn fresh(&self, what: &str) -> PathBuf {
        self.bed.path().join(format!("{what}-{}", self.next()))
    }
}

fn remove(path: &Path) -> Fallible<()> {
    std::fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}
