//! The verbs besides the main job: what they print and how they end.

use serde_json::{Value, json};

use crate::basics::COMMITS;
use crate::support::{TestBed, path_text, variable};

fn printed(bed: &TestBed, arguments: &[&str]) -> String {
    let output = bed.lane_output(&bed.path(), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn watch_logs_and_diff_show_what_happened() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let brief = "Goal: show\nFAKE: sh echo hello > new.txt && git add new.txt && git commit -qm new\nFAKE: sh exit 7\n\
                 FAKE: edit other.txt text\nFAKE: stderr a word of warning\nFAKE: report STATUS: DONE\\nAll shown.\n";
    let started = bed.run(&repository, brief, &["--profile", "implement", "--label", "show it"]).expect_code(0);
    let id = started.lane_id();
    let watched = printed(&bed, &["watch", &id]);
    for part in ["runs ", "exited 7", "edited ", "other.txt", "says STATUS: DONE", "ended: ok"] {
        assert!(watched.contains(part), "`{part}` is not in:\n{watched}");
    }
    assert!(printed(&bed, &["logs", &id]).contains("turn.completed"));
    assert!(printed(&bed, &["logs", &id, "--events", "--follow"]).contains("turn.completed"));
    assert!(printed(&bed, &["logs", &id, "--stderr"]).contains("a word of warning"));
    assert_eq!(printed(&bed, &["logs", &id, "--report"]), "STATUS: DONE\nAll shown.\n");
    printed(&bed, &["logs", &id, "--supervisor"]);
    let diff = printed(&bed, &["diff", &id]);
    assert!(diff.contains("+hello") && diff.contains("other.txt"), "{diff}");
    assert!(printed(&bed, &["diff", &id, "--stat"]).contains("2 files changed"));
    assert_eq!(bed.lane(&["result", &id]).json["label"], "show it");
}

#[test]
fn an_id_may_be_shortened() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let first = bed.run(&repository, COMMITS, &["--profile", "implement"]).lane_id();
    let second = bed.run(&repository, COMMITS, &["--profile", "implement"]).lane_id();
    bed.wait(&first);
    bed.wait(&second);
    let end = &second[second.len() - 4..];
    assert_eq!(bed.lane(&["status", end]).expect_code(0).lane_id(), second);
    let both = bed.lane(&["status", &second[..8]]).expect_code(2);
    assert_eq!(both.status(), "ambiguous_lane");
    assert!(both.text("error").contains(&first));
}

#[test]
fn status_filters() {
    let bed = TestBed::new();
    let (one, two) = (bed.repository("one"), bed.repository("two"));
    let good = bed.run(&one, COMMITS, &["--profile", "implement"]).lane_id();
    bed.wait(&good);
    let bad = bed.run(&two, "Goal: x\nFAKE: exit 3\n", &["--profile", "implement"]).lane_id();
    bed.wait(&bad);
    let ids = |arguments: &[&str]| -> String {
        let list = bed.lane(arguments).expect_code(0);
        let lanes = list.json["lanes"].as_array().unwrap();
        lanes.iter().map(|lane| lane["lane_id"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let both = format!("{bad} {good}");
    assert_eq!(ids(&["status"]), both);
    assert_eq!(ids(&["status", "--limit", "1"]), bad);
    assert_eq!(ids(&["status", "--state", "ok"]), good);
    assert_eq!(ids(&["status", "--state", "ended"]), both);
    assert_eq!(ids(&["status", "--state", "working"]), "");
    assert_eq!(ids(&["status", "--repo", path_text(one.path())]), good);
    assert_eq!(ids(&["status", "--since", "1h"]), both);
    assert_eq!(ids(&["status", "--since", "2100-01-01T00:00:00Z"]), "");
}

#[test]
fn doctor_names_each_thing_and_the_way_to_mend_it() {
    let bed = TestBed::new();
    let healthy = bed.lane(&["doctor"]).expect_code(0);
    let names: Vec<&str> =
        healthy.json["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in [
        "git",
        "state_folder",
        "disk",
        "ledger",
        "codex",
        "codex_home",
        "codex_login",
        "codex_sandbox",
        "claude",
        "claude_login",
        "claude_sandbox",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let broken = TestBed::new().with("LANE_CODEX_BIN", "/nowhere").with("LANE_CLAUDE_BIN", "/nowhere");
    let answer = broken.lane(&["doctor"]).expect_code(1);
    let checks = answer.json["checks"].as_array().unwrap();
    let workers = checks.iter().find(|check| check["name"] == "workers").unwrap();
    assert_eq!(workers["health"], "broken");
    assert!(checks.iter().all(|check| (check["health"] == "ok") != check.get("mend").is_some()), "{:#}", answer.json);
}

#[test]
fn what_lane_makes_is_the_persons_alone() {
    use std::os::unix::fs::PermissionsExt;
    let bed = TestBed::new();
    std::fs::set_permissions(bed.state(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let repository = bed.repository("project");
    let id = bed.run(&repository, COMMITS, &["--profile", "implement"]).expect_code(0).lane_id();
    bed.wait(&id);
    let mode = |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(bed.state().join("checkouts")), 0o700);
    assert_eq!(mode(bed.run_dir(&id)), 0o700);
    for name in ["brief.md", "events.jsonl", "result.json"] {
        assert_eq!(mode(bed.run_dir(&id).join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(bed.state().join("lane.db")), 0o600);
    let there = bed.lane(&["restore", &id]).expect_code(1);
    assert_eq!(there.status(), "error");
    bed.lane(&["clean", &id]).expect_code(0);
    bed.lane(&["restore", &id]).expect_code(0);
    assert_eq!(bed.lane(&["restore", &id]).expect_code(2).status(), "usage_error");
}

#[test]
fn the_leads_uncommitted_edits_are_counted() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    repository.write("README.md", "edited\n");
    let ended = bed.wait(&bed.run(&repository, COMMITS, &["--profile", "implement"]).lane_id()).expect_code(0);
    assert!(ended.json["warnings"].to_string().contains("base_dirty: 1 "), "{:#}", ended.json);
    assert_eq!(repository.read("README.md"), "edited\n");
}

#[test]
fn run_can_wait_for_the_result_and_take_the_brief_from_anywhere() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let cwd = path_text(repository.path());
    let task = "Goal: x\nFAKE: sh echo x > f; git add f; git commit -qm f\nFAKE: report STATUS: DONE\\nok";
    let ended =
        bed.lane(&["start", "--profile", "implement", "--task", task, "--cwd", cwd, "--wait", "30s"]).expect_code(0);
    assert_eq!(ended.status(), "ok");
    let mut child = bed.command(crate::support::lane_program(), repository.path());
    let mut child = child
        .args(["run", "--profile", "opus", "--brief", "-", "--wait"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), task.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["status"], &answer["provider"]), (&json!("ok"), &json!("claude")), "{answer:#}");
}

/// Both sandboxes must let ordinary work through; the stand-in for Claude runs inside Landlock.
#[test]
fn ordinary_work_goes_through_the_sandbox() {
    let mut bed = TestBed::new();
    for name in ["CARGO_HOME", "RUSTUP_HOME"] {
        let usual = variable("HOME")
            .map(|home| std::path::Path::new(&home).join(if name == "CARGO_HOME" { ".cargo" } else { ".rustup" }));
        if let Some(value) = variable(name).map(Into::into).or(usual) {
            bed.set(name, value);
        }
    }
    let config = bed.home().join(".gitconfig");
    let signing =
        std::fs::read_to_string(&config).unwrap() + "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = /bin/false\n";
    std::fs::write(&config, signing).unwrap();
    let repository = bed.repository("project");
    repository.write(".gitignore", "target/\nCargo.lock\n");
    repository.write("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    repository.write("src/main.rs", "fn main() {}\n").commit("a crate");
    let brief = "Goal: build\nFAKE: sh cargo build --offline -q 2>&1 || exit 9\n\
                 FAKE: sh mkdir -p \"$npm_config_cache\" \"$PIP_CACHE_DIR\" \"$GOCACHE\" && touch \"$npm_config_cache/a\" \"$PIP_CACHE_DIR/a\" \"$GOCACHE/a\" && echo x > \"$TMPDIR/a\" || exit 8\n\
                 FAKE: sh ! touch \"$HOME/planted\" 2>/dev/null && ! touch /var/tmp/planted 2>/dev/null || exit 7\n\
                 FAKE: sh echo done > done.txt && git add done.txt && git commit -qm done || exit 6\n\
                 FAKE: report STATUS: DONE\\nok\n";
    let started = bed.run(&repository, brief, &["--profile", "opus", "--holdout", "test -x target/debug/small"]);
    let ended = bed.wait(&started.expect_code(0).lane_id());
    let events = printed(&bed, &["watch", &ended.lane_id()]);
    assert!(!events.contains("exited"), "{events}");
    assert_eq!((ended.status(), &ended.json["accepted"]), ("ok", &json!(true)), "{:#}\n{events}", ended.json);
    assert_eq!(ended.json["changes"]["commits"], 1, "{:#}", ended.json);
}

#[test]
fn demo_needs_nothing() {
    let mut bed = TestBed::new();
    let temp = bed.path().join("temp");
    std::fs::create_dir(&temp).unwrap();
    bed.set("TMPDIR", &temp);
    for name in ["LANE_CODEX_BIN", "LANE_CLAUDE_BIN", "CODEX_API_KEY", "ANTHROPIC_API_KEY", "HOME", "LANE_STATE"] {
        bed.unset(name);
    }
    let answer = bed.lane(&["demo"]).expect_code(0);
    assert_eq!((answer.status(), &answer.json["accepted"]), ("ok", &json!(true)), "{:#}", answer.json);
    for part in ["What happened", "Look around", "Next"] {
        assert!(answer.stderr.contains(part), "{}", answer.stderr);
    }
}
