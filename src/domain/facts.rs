//! What was measured about a lane's work: changes from git, the check, what was protected.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::CommitId;

/// What changed between the base and the lane's end. Every figure comes from git.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Changes {
    /// Commits from the base to the real HEAD (Lane's own commit of leftovers included).
    pub commits: u64,
    /// Files that differ between the base and the head.
    pub files: u64,
    /// Lines added (binary files count none).
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether edits that the worker left uncommitted were saved by Lane.
    pub uncommitted_saved: bool,
    /// Changed paths outside the brief's `Owned paths:`; absent when the brief names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths_outside_owned: Option<Vec<String>>,
    /// Repositories that the worker made inside the checkout, whose content is in no commit.
    pub nested_repositories: Vec<String>,
    /// Whether the lane's branch holds all the work: HEAD was on it and nothing was in progress.
    /// Absent for a lane without a checkout of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_is_branch_tip: Option<bool>,
    /// Whether HEAD was detached at the end.
    pub detached: bool,
    /// Other branches that the worker made or moved, with the refs that keep them.
    pub other_branches: Vec<OtherBranch>,
    /// A rebase, merge, cherry-pick, revert or bisect left unfinished.
    pub operation_in_progress: Option<String>,
    /// Refs under `refs/lane/<id>/` that keep what the lane's branch does not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_refs: Vec<String>,
    /// Commits inside submodules, as `path` and hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submodule_commits: Vec<SubmoduleCommit>,
    /// What changed in the repository that all linked checkouts share (linked mode only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_changes: Vec<SharedChange>,
}

/// A branch of the worker's other than the lane's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherBranch {
    /// Its name in the worker's checkout.
    pub name: String,
    /// Where it points.
    pub commit: CommitId,
    /// The ref in the lead's repository that keeps it.
    pub kept_as: String,
}

/// A commit that the worker made inside a submodule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmoduleCommit {
    /// Path of the submodule in the checkout.
    pub path: String,
    /// The commit.
    pub commit: String,
}

/// One thing that changed in what linked checkouts share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedChange {
    /// What it is: `ref`, `config`, `hook`, `stash`, `remote`, `worktree`.
    pub what: String,
    /// Its name.
    pub name: String,
    /// Its value before; `None` when it is new.
    pub before: Option<String>,
    /// Its value after; `None` when it is gone.
    pub after: Option<String>,
    /// `lane` when it can only have been this lane, `unclear` when others ran too.
    pub charged_to: String,
}

/// Everything that taking over the checkout found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The real HEAD at the end; equals the base when nothing was committed.
    pub head_commit: CommitId,
    /// What changed.
    pub changes: Changes,
    /// Sentences for `warnings`.
    pub warnings: Vec<String>,
}

/// Permission bits, type and content of one protected path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedEntry {
    /// Path from the root of the checkout, with `/`.
    pub path: String,
    /// `file`, `symlink`, `directory`, `missing` or `other`.
    pub file_type: String,
    /// Permission bits, as `chmod` takes them.
    pub mode: u32,
    /// SHA-256 of the content, or the target of a link; empty for folders.
    pub digest: String,
}

/// What became of one protected path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectedChange {
    /// Path from the root of the checkout.
    pub path: String,
    /// `content`, `type`, `mode`, `link`, `missing` or `added`.
    pub what: String,
}

/// Compares two looks at the protected paths.
pub fn compare_protected(before: &[ProtectedEntry], after: &[ProtectedEntry]) -> Vec<ProtectedChange> {
    let change = |path: &str, what: &str| ProtectedChange { path: path.to_owned(), what: what.to_owned() };
    let mut changes = Vec::new();
    for old in before {
        let Some(new) = after.iter().find(|entry| entry.path == old.path) else {
            changes.push(change(&old.path, "missing"));
            continue;
        };
        let what = if new.file_type != old.file_type {
            Some(if new.file_type == "missing" { "missing" } else { "type" })
        } else if new.digest != old.digest {
            Some(if old.file_type == "symlink" { "link" } else { "content" })
        } else if new.mode != old.mode {
            Some("mode")
        } else {
            None
        };
        if let Some(what) = what {
            changes.push(change(&old.path, what));
        }
    }
    for new in after {
        if !before.iter().any(|old| old.path == new.path) {
            changes.push(change(&new.path, "added"));
        }
    }
    changes
}

/// One run of one check command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRun {
    /// The command, as the lead gave it.
    pub command: String,
    /// Its exit code; `None` when a signal ended it or it could not start.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// How long it ran, in seconds.
    pub duration_s: f64,
    /// Where its whole output is.
    pub log_path: PathBuf,
    /// The end of its output.
    pub tail: String,
}

/// What became of what was protected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectedVerdict {
    /// Whether nothing changed.
    pub unchanged: bool,
    /// What changed.
    pub changed: Vec<ProtectedChange>,
}

/// The verdict of the holdout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holdout {
    /// True only if every command exited 0 and nothing protected changed; `None` if it could not run.
    pub passed: Option<bool>,
    /// Why it did not pass, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Each command's run.
    pub checks: Vec<CheckRun>,
    /// What became of what was protected.
    pub protected: ProtectedVerdict,
}

/// Judges a holdout from its runs and the two looks at the protected paths.
///
/// `could_not_run` names a failure of Lane's own (no process, no disk), which is no verdict.
pub fn judge_holdout(checks: Vec<CheckRun>, changed: Vec<ProtectedChange>, could_not_run: Option<String>) -> Holdout {
    let failed = checks.iter().find(|run| run.exit_code != Some(0) || run.timed_out);
    let (passed, reason) = if let Some(first) = changed.first() {
        (Some(false), Some(format!("protected path changed: {} ({})", first.path, first.what)))
    } else if let Some(run) = failed {
        (Some(false), Some(failure_reason(run)))
    } else if let Some(reason) = could_not_run {
        (None, Some(reason))
    } else {
        (Some(true), None)
    };
    Holdout { passed, reason, checks, protected: ProtectedVerdict { unchanged: changed.is_empty(), changed } }
}

fn failure_reason(run: &CheckRun) -> String {
    match (run.timed_out, run.exit_code, run.signal) {
        (true, _, _) => format!("`{}` reached its time limit", run.command),
        (false, Some(code), _) => format!("`{}` exited {code}", run.command),
        (false, None, Some(signal)) => format!("`{}` was ended by signal {signal}", run.command),
        (false, None, None) => format!("`{}` did not end by itself", run.command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, file_type: &str, mode: u32, digest: &str) -> ProtectedEntry {
        ProtectedEntry { path: path.into(), file_type: file_type.into(), mode, digest: digest.into() }
    }

    fn run(exit_code: Option<i32>, timed_out: bool) -> CheckRun {
        CheckRun {
            command: "make test".into(),
            exit_code,
            signal: None,
            timed_out,
            duration_s: 1.0,
            log_path: "/r/holdout.log".into(),
            tail: String::new(),
        }
    }

    #[test]
    fn each_kind_of_change_is_named() {
        let before = [
            entry("a", "file", 0o644, "1"),
            entry("b", "file", 0o644, "1"),
            entry("c", "symlink", 0o777, "x"),
            entry("d", "file", 0o644, "1"),
            entry("e", "file", 0o644, "1"),
        ];
        let after = [
            entry("a", "file", 0o644, "2"),
            entry("b", "file", 0o755, "1"),
            entry("c", "symlink", 0o777, "y"),
            entry("d", "directory", 0o755, ""),
            entry("e", "missing", 0, ""),
            entry("f", "file", 0o644, "1"),
        ];
        let seen: Vec<String> =
            compare_protected(&before, &after).iter().map(|c| format!("{}:{}", c.path, c.what)).collect();
        assert_eq!(seen, ["a:content", "b:mode", "c:link", "d:type", "e:missing", "f:added"]);
    }

    #[test]
    fn green_needs_every_check_and_nothing_changed() {
        assert_eq!(judge_holdout(vec![run(Some(0), false)], vec![], None).passed, Some(true));
        assert_eq!(judge_holdout(vec![run(Some(0), false), run(Some(1), false)], vec![], None).passed, Some(false));
        assert_eq!(judge_holdout(vec![run(None, true)], vec![], None).passed, Some(false));
        let changed = vec![ProtectedChange { path: "t".into(), what: "content".into() }];
        assert_eq!(judge_holdout(vec![run(Some(0), false)], changed, None).passed, Some(false));
        assert_eq!(judge_holdout(vec![], vec![], Some("cannot fork".into())).passed, None);
    }
}
