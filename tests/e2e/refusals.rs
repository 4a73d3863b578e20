//! Whatever is wrong with a call: one JSON line, the right exit code, nothing left behind.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{TestBed, path_text};

/// Asserts a refusal, that it names the thing and the way on, and that nothing was left behind.
fn refused(bed: &TestBed, arguments: &[&str], status: &str, code: i32, names: &str) {
    let answer = bed.lane(arguments).expect_code(code);
    assert_eq!(answer.status(), status, "{:#}", answer.json);
    assert!(answer.text("error").contains(names), "`{names}` is not in {:#}", answer.json);
    assert!(!answer.text("hint").is_empty());
    let left: Vec<_> = fs::read_dir(bed.state().join("runs")).map(|dir| dir.flatten().collect()).unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
    let checkouts = fs::read_dir(bed.state().join("checkouts")).map(|dir| dir.count()).unwrap_or_default();
    assert_eq!(checkouts, 0);
}

#[test]
fn bad_arguments() {
    let bed = TestBed::new();
    for (arguments, names) in [
        (vec![], "subcommand"),
        (vec!["fly"], "fly"),
        (vec!["run"], "--brief"),
        (vec!["run", "--task", "x", "--brief", "y"], "--task"),
        (vec!["run", "--task", "x", "--profile", "implement", "--max-time", "5"], "5"),
        (vec!["run", "--task", "x", "--effort", "huge"], "huge"),
        (vec!["run", "--task", "x", "--profile", "auto"], "auto"),
        (vec!["run", "--task", "x"], "profile"),
        (vec!["run", "--task", "x", "--retry-of", "y"], "--retry-of"),
        (vec!["run", "--task", "x", "--profile", "investigate", "--model", "a b"], "a b"),
        (vec!["run", "--task", "x", "--profile", "investigate", "--env", "LANE_ID"], "LANE_ID"),
        (vec!["run", "--task", "x", "--profile", "investigate", "--env", "NOT_SET_HERE"], "NOT_SET_HERE"),
        (vec!["run", "--task", "x", "--profile", "investigate", "--holdout", " "], "--holdout"),
        (vec!["status", "--since", "soon"], "soon"),
        (vec!["status", "--state", "flying"], "flying"),
        (vec!["wait"], "IDS"),
        (vec!["completions", "sh"], "sh"),
    ] {
        refused(&bed, &arguments, "usage_error", 2, names);
    }
    refused(&bed, &["run", "--task", "x", "--profile", "nope"], "unknown_profile", 2, "nope");
    refused(&bed, &["status", "20261201-000000-x-beef"], "unknown_lane", 2, "20261201-000000-x-beef");
    refused(&bed, &["result", "zzz"], "unknown_lane", 2, "zzz");
    let several = bed.lane(&["status", "aaa", "bbb"]).expect_code(2);
    assert_eq!(several.json["lanes"][1]["asked"], "bbb");
}

#[test]
fn bad_briefs() {
    let bed = TestBed::new();
    bed.repository("project");
    let project = bed.path().join("project");
    let file = |name: &str, content: &[u8]| {
        let path = bed.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let long = "x".repeat(1_048_577);
    let too_long = "x".repeat(10 * 1024 * 1024 + 1);
    for (profile, path, names) in [
        ("implement", bed.path().join("missing.md"), "missing.md"),
        ("implement", bed.path().join("home"), "directory"),
        ("implement", file("empty.md", b" \n"), "empty"),
        ("implement", file("binary.md", b"a\0b"), "NUL"),
        ("implement", file("latin.md", b"caf\xe9"), "UTF-8"),
        ("implement", file("long.md", long.as_bytes()), "1048576 characters"),
        ("opus", file("too-long.md", too_long.as_bytes()), "10485760 bytes"),
        ("opus", Path::new("/dev/zero").to_owned(), "10485760 bytes"),
    ] {
        let arguments = ["run", "--profile", profile, "--cwd", path_text(&project), "--brief", path_text(&path)];
        refused(&bed, &arguments, "usage_error", 2, names);
    }
}

#[test]
fn bad_places() {
    let bed = TestBed::new();
    let path = bed.path();
    let run = |cwd: &str, more: &[&str], status: &str, names: &str| {
        let mut arguments = vec!["run", "--profile", "implement", "--task", "x", "--cwd", cwd];
        arguments.extend_from_slice(more);
        refused(&bed, &arguments, status, 2, names);
    };
    run(path_text(&path.join("nowhere")), &[], "usage_error", "nowhere");
    let plain = path.join("plain");
    fs::create_dir(&plain).unwrap();
    run(path_text(&plain), &[], "not_a_repository", "plain");
    let unborn = path.join("unborn");
    fs::create_dir(&unborn).unwrap();
    let unborn_repository = crate::support::repository::Repository::init(&unborn, &bed.home());
    run(path_text(unborn_repository.path()), &[], "not_a_repository", "no commit");
    let repository = bed.repository("project");
    let cwd = path_text(repository.path());
    run(path_text(&repository.path().join(".git")), &[], "not_a_repository", "git folder");
    run(cwd, &["--base", "no-such-branch"], "usage_error", "no-such-branch");
    run(cwd, &["--base", "--upload-pack=x"], "usage_error", "--upload-pack");
    repository.write("draft.txt", "not committed");
    run(cwd, &["--protect", "draft.txt"], "usage_error", "draft.txt");
    run(cwd, &["--protect", "../elsewhere"], "usage_error", "elsewhere");
    symlink(repository.path(), path.join("alias")).unwrap();
    for (dir, names) in [
        (cwd.to_owned(), "the repository"),
        (path_text(&path.join("alias")).to_owned(), "the repository"),
        (path_text(&bed.state()).to_owned(), "the state folder"),
        (path_text(&bed.home()).to_owned(), "home"),
        (path_text(&bed.codex_home()).to_owned(), "Codex home"),
        (path_text(&path.join("nothing-here")).to_owned(), "nothing-here"),
    ] {
        run(cwd, &["--add-dir", &dir], "usage_error", names);
    }
    repository.git(&["branch", "lane"]);
    run(cwd, &[], "branch_conflict", "lane");
}

#[test]
fn bad_settings() {
    let bed = TestBed::new();
    bed.configure("max_concurrent = \"many\"\n");
    refused(&bed, &["status"], "bad_config", 2, "max_concurrent");
    bed.configure("");
    for (name, value) in [("LANE_MAX_CONCURRENT", "0"), ("LANE_MAX_CONCURRENT", "x"), ("LANE_CODEX_HOME", "relative")] {
        let bed = TestBed::new().with(name, value);
        refused(&bed, &["status"], "usage_error", 2, name);
    }
    let bed = TestBed::new().with("LANE_CODEX_BIN", "/nowhere/codex");
    bed.repository("project");
    let project = bed.path().join("project");
    let arguments = ["run", "--profile", "implement", "--task", "x", "--cwd", path_text(&project)];
    refused(&bed, &arguments, "worker_cli_missing", 2, "/nowhere/codex");
    let inside = TestBed::new();
    let inside = {
        let root = inside.path().join("project/out");
        inside.with("LANE_WORKTREE_ROOT", root)
    };
    inside.repository("project");
    let project = inside.path().join("project");
    let arguments = ["run", "--profile", "implement", "--task", "x", "--cwd", path_text(&project)];
    refused(&inside, &arguments, "usage_error", 2, "LANE_WORKTREE_ROOT");
}

#[test]
fn a_lane_may_not_start_lanes() {
    let bed = TestBed::new().with("LANE_ID", "20261201-000000-x-beef");
    refused(&bed, &["run", "--profile", "opus", "--task", "x"], "nested_lane", 2, "20261201-000000-x-beef");
}

#[test]
fn codexs_own_shell_may_not_start_lanes() {
    let bed = TestBed::new().with("CODEX_SANDBOX_NETWORK_DISABLED", "1");
    refused(&bed, &["run", "--profile", "opus", "--task", "x"], "sandboxed_caller", 4, "network");
}

#[test]
fn a_dry_run_starts_nothing() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let answer = bed.run(&repository, "Goal: x", &["--profile", "implement", "--dry-run"]).expect_code(0);
    assert_eq!(answer.status(), "routed");
    assert_eq!(answer.json["model"], "gpt-6-astra");
    assert!(!bed.run_dir(&answer.lane_id()).exists());
    assert_eq!(bed.lane(&["status"]).json["lanes"], serde_json::json!([]));
}

#[test]
fn a_closed_stdout_ends_quietly() {
    let bed = TestBed::new();
    let mut child = bed.command(crate::support::lane_program(), &bed.path()).arg("schema").spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
