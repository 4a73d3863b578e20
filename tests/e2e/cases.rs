//! The faults that users of such tools reported, each as a test of its whole kind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::basics::COMMITS;
use crate::support::{Answer, Background, TestBed, path_text, processes, wait_until};

fn run_to_end(
    bed: &TestBed,
    repository: &crate::support::repository::Repository,
    brief: &str,
    more: &[&str],
) -> Answer {
    let mut arguments = vec!["--profile", "implement"];
    arguments.extend_from_slice(more);
    let started = bed.run(repository, brief, &arguments).expect_code(0);
    bed.wait(&started.lane_id())
}

/// 01: sixteen write jobs in the same second, from a remote-tracking branch, while somebody fetches.
#[test]
fn sixteen_starts_at_once() {
    for (mode, cap) in [("clone", 16), ("linked", 16), ("clone", 4)] {
        let bed = TestBed::new();
        bed.configure(&format!("max_concurrent = {cap}\n"));
        let origin = bed.repository("origin");
        let clone = bed.path().join("clone");
        origin.git(&["clone", "-q", path_text(origin.path()), path_text(&clone)]);
        let repository = crate::support::repository::Repository::at(&clone, &bed.home());
        let brief = bed.brief(COMMITS);
        let arguments = [
            "run",
            "--profile",
            "implement",
            "--checkout",
            mode,
            "--base",
            "origin/main",
            "--queue",
            "--brief",
            path_text(&brief),
            "--cwd",
            path_text(&clone),
        ];
        let callers: Vec<Background> = (0..16).map(|_| bed.start_lane(&clone, &arguments)).collect();
        repository.git(&["fetch", "-q"]);
        let ids: Vec<String> = callers.into_iter().map(|caller| caller.finish().expect_code(0).lane_id()).collect();
        for id in &ids {
            let ended = bed.lane(&["wait", id, "--max", "120s"]);
            assert_eq!(ended.status(), "ok", "{mode} {:#}", ended.json);
            let upstream = repository.try_git(&["config", &format!("branch.lane/{id}.merge")]);
            assert_ne!(upstream.0, 0, "{mode}: an upstream was set: {upstream:?}");
            assert_eq!(repository.git(&["rev-list", "--count", &format!("origin/main..lane/{id}")]), "1");
        }
    }
}

/// 02: cleaning saves changed, new and ignored files, and brings them back byte for byte.
#[test]
fn cleaning_keeps_unfinished_work() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    repository.write(".gitignore", "out/\n").write("a.txt", "one\n").commit("more");
    let brief = "Goal: dawdle\nFAKE: sh echo two > a.txt; echo new > new.txt; chmod 755 new.txt; ln -s new.txt link; \
                 mkdir out; echo result > out/result.txt\nFAKE: hang\n";
    let started = bed.run(&repository, brief, &["--profile", "implement", "--max-time", "2s"]).expect_code(0);
    let id = started.lane_id();
    let ended = bed.wait(&id).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("timeout", "worker"));
    assert_eq!(ended.json["changes"]["uncommitted_saved"], json!(true), "{:#}", ended.json);
    let checkout = fs::canonicalize(started.text("checkout_path")).unwrap();
    let before = snapshot(&checkout);
    let dry = bed.lane(&["clean", &id, "--dry-run"]).expect_code(0);
    assert_eq!(snapshot(&checkout), before);
    let cleaned = bed.lane(&["clean", &id]).expect_code(0);
    assert_eq!(cleaned.json["cleaned"][0]["saved_paths"], dry.json["cleaned"][0]["saved_paths"]);
    let saved = cleaned.json["cleaned"][0]["saved_paths"].to_string();
    assert!(saved.contains("out/result.txt"), "{:#}", cleaned.json);
    assert!(!checkout.exists());
    bed.lane(&["restore", &id]).expect_code(0);
    assert_eq!(snapshot(&checkout), before);
    let elsewhere = bed.path().join("elsewhere");
    bed.lane(&["restore", &id, "--into", path_text(&elsewhere)]).expect_code(0);
    assert_eq!(snapshot(&elsewhere), before);
    assert_eq!(repository.git(&["worktree", "list"]).lines().count(), 1);
}

/// Every file below a folder but those of git: mode, kind and bytes.
fn snapshot(folder: &std::path::Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut entries = Vec::new();
    for entry in walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().filter_entry(|e| e.file_name() != ".git")
    {
        let entry = entry.unwrap();
        let metadata = entry.path().symlink_metadata().unwrap();
        let content = if metadata.is_symlink() {
            fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
        } else if metadata.is_file() {
            fs::read(entry.path()).unwrap()
        } else {
            Vec::new()
        };
        let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
        let mode = if name.is_empty() { 0 } else { metadata.permissions().mode() };
        entries.push((name, mode, content));
    }
    entries
}

/// 03: a repository made inside the checkout is named, and its content is not lost.
#[test]
fn a_nested_repository() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let brief = "Goal: nest\nFAKE: sh mkdir sub && cd sub && git init -q && echo hi > f && git add f && git commit -qm x && cd .. && \
                 git add -A && git commit -qm done\nFAKE: report STATUS: DONE\\nok\n";
    let ended = run_to_end(&bed, &repository, brief, &[]);
    assert_eq!(ended.json["changes"]["nested_repositories"], json!(["sub"]), "{:#}", ended.json);
    assert_eq!(ended.json["accepted"], json!(false));
    let id = ended.lane_id();
    bed.lane(&["clean", &id]).expect_code(0);
    let into = bed.path().join("back");
    bed.lane(&["restore", &id, "--into", path_text(&into)]).expect_code(0);
    assert_eq!(fs::read_to_string(into.join("sub/f")).unwrap(), "hi\n");
}

/// 04: commits on no branch, on another branch, and an unfinished rebase.
#[test]
fn commits_that_are_not_on_the_lanes_branch() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let detached = "git checkout -q --detach && echo 1 > x && git add x && git commit -qm x-detached";
    let other = "git switch -qc other && echo 1 > x && git add x && git commit -qm x-other";
    let rebase = "echo a > f && git add f && git commit -qm x-one && git checkout -qb side HEAD~1 && echo b > f && git add f && \
                  git commit -qm x-two && git rebase -q lane/$LANE_ID; true";
    for (script, flag, subject) in
        [(detached, "detached", "x-detached"), (other, "other", "x-other"), (rebase, "operation", "x-two")]
    {
        let brief = format!("Goal: stray\nFAKE: sh {script}\nFAKE: report STATUS: DONE\\nok\n");
        let ended = run_to_end(&bed, &repository, &brief, &[]);
        let changes = &ended.json["changes"];
        assert_eq!((&changes["head_is_branch_tip"], &ended.json["accepted"]), (&json!(false), &json!(false)));
        match flag {
            "detached" => assert_eq!(changes["detached"], json!(true), "{:#}", ended.json),
            "other" => assert_eq!(changes["other_branches"][0]["name"], "other", "{:#}", ended.json),
            _ => assert_eq!(changes["operation_in_progress"], "rebase", "{:#}", ended.json),
        }
        assert!(changes["commits"].as_u64().unwrap() >= 1, "{:#}", ended.json);
        bed.lane(&["clean", &ended.lane_id()]).expect_code(0);
        let log = repository.git(&["log", "--all", "--format=%s"]);
        assert!(log.contains(subject), "{subject} is in no ref: {log}");
    }
}

/// 05: a worker that reads standard input gets exactly the brief, whatever the caller's is.
#[test]
fn standard_input_is_the_brief() {
    let bed = TestBed::new();
    let folder = bed.path().join("plain");
    fs::create_dir(&folder).unwrap();
    let mut text = String::from("-leading dash 'quotes' \"and\" $(more)\n");
    while text.len() < 900_000 {
        text.push_str("zeile \u{fc}ber zeile \\ \u{1}\n");
    }
    text.push_str("FAKE: report STATUS: DONE\\nok\n");
    let brief = bed.brief(&text);
    let arguments = ["run", "--profile", "investigate", "--brief", path_text(&brief), "--cwd", path_text(&folder)];
    let mut open = bed.command(crate::support::lane_program(), &folder);
    let mut open = open.args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    let pipe = open.stdin.take();
    let output = open.wait_with_output().unwrap();
    drop(pipe);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = answer["lane_id"].as_str().unwrap();
    assert_eq!(bed.wait(id).status(), "ok");
    let handed = fs::read_to_string(bed.run_dir(id).join("brief.md")).unwrap();
    assert!(handed.starts_with(text.trim_end()));
    assert_eq!(fs::read_to_string(bed.run_dir(id).join("task.md")).unwrap(), text);
}

/// 06: the lane ends when its worker does; what is left is named and ended, a second session too.
#[test]
fn grandchildren_end_with_the_lane() {
    let bed = TestBed::new();
    bed.configure("[limits]\ngrace = \"1s\"\n");
    let repository = bed.repository("project");
    let left = "Goal: leave\nFAKE: sh (sleep 600 &) ; setsid sleep 601 >/dev/null 2>&1 & sleep 0.1\nFAKE: report STATUS: DONE\\nok\n";
    let ended = run_to_end(&bed, &repository, left, &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    let leftovers = ended.json["leftover_processes"].to_string();
    assert!(leftovers.contains("sleep 600") && leftovers.contains("sleep 601"), "{leftovers}");
    assert!(processes::of_lane(&ended.lane_id()).is_empty());

    let late = "Goal: late\nFAKE: sh setsid sh -c 'sleep 4; echo late > late.txt; git add late.txt; git commit -qm late' >/dev/null 2>&1 &\nFAKE: hang\n";
    let ended = run_to_end(&bed, &repository, late, &["--max-time", "2s"]);
    assert_eq!(ended.status(), "timeout");
    assert!(processes::of_lane(&ended.lane_id()).is_empty());
    assert_eq!(ended.json["changes"]["commits"], 0);

    let stubborn = "Goal: stay\nFAKE: ignore-term\nFAKE: hang\n";
    let ended = run_to_end(&bed, &repository, stubborn, &["--max-time", "1s"]);
    assert_eq!((ended.status(), &ended.json["signal"]), ("timeout", &json!(9)), "{:#}", ended.json);
}

/// 07: exit 0 with an error inside, and exit 1 with a good report.
#[test]
fn exit_zero_is_not_success() {
    let bed = TestBed::new();
    let folder = bed.path().join("plain");
    fs::create_dir(&folder).unwrap();
    let table = [
        ("investigate", "FAKE: usage-limit\n", "capped", "quota", 5),
        ("investigate", "FAKE: no-result\n", "no_report", "worker", 1),
        ("investigate", "FAKE: report  \n", "no_report", "worker", 1),
        ("investigate", "FAKE: report I will write STATUS: DONE when I am done\n", "contract_violation", "worker", 1),
        ("investigate", "FAKE: report STATUS: DONE\\nok\nFAKE: exit 1\n", "worker_error", "worker", 1),
    ];
    for (profile, script, status, class, code) in table {
        let brief = bed.brief(&format!("Goal: fail\n{script}"));
        let started =
            bed.lane(&["run", "--profile", profile, "--brief", path_text(&brief), "--cwd", path_text(&folder)]);
        let ended = bed.wait(&started.expect_code(0).lane_id());
        assert_eq!(
            (ended.status(), ended.text("class"), ended.code),
            (status, class, code),
            "{script} {:#}",
            ended.json
        );
        assert_eq!(ended.json["accepted"], json!(false));
        assert!(ended.json["retryable"].is_boolean());
        assert!(!ended.text("error").is_empty());
    }
}

/// 08: a worker that says DONE and changed nothing, or something else.
#[test]
fn done_without_a_change() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let table = [
        ("true", 0, 0),
        ("echo x > f && git add f && git commit -qm x && git revert --no-edit HEAD -n && git commit -qm back", 2, 0),
        ("git commit -qm empty --allow-empty", 1, 0),
        ("echo x > f", 1, 1),
    ];
    for (script, commits, files) in table {
        let brief = format!("Goal: x\nFAKE: sh {script}\nFAKE: report STATUS: DONE\\nok\n");
        let ended = run_to_end(&bed, &repository, &brief, &["--holdout", "true"]);
        assert_eq!(ended.json["changes"]["commits"], commits, "{script} {:#}", ended.json);
        assert_eq!(ended.json["changes"]["files"], files, "{script} {:#}", ended.json);
        assert_eq!(ended.json["accepted"], json!(files > 0), "{script} {:#}", ended.json);
        assert_eq!(ended.json["changes"]["uncommitted_saved"], json!(script == "echo x > f"));
    }
    let brief = "Goal: x\nOwned paths: src/\nFAKE: sh mkdir src; echo x > src/a; echo x > b; git add -A; git commit -qm x\n\
                 FAKE: report STATUS: DONE\\nok\n";
    let ended = run_to_end(&bed, &repository, brief, &[]);
    assert_eq!(ended.json["changes"]["paths_outside_owned"], json!(["b"]));
    assert_eq!(ended.json["accepted"], json!(false));
}

/// 10: locks and records that name a process which is not the one they mean.
#[test]
fn stale_records_signal_nobody() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let mut innocent = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let gate = bed.path().join("gate");
    let brief = format!("Goal: x\nFAKE: wait-for {}\nFAKE: report STATUS: DONE\\nok\n", gate.display());
    let started = bed.run(&repository, &brief, &["--profile", "implement"]).expect_code(0);
    let run_dir = bed.run_dir(&started.lane_id());
    wait_until(Duration::from_secs(20), "the worker runs", || run_dir.join("worker.json").exists());
    // Every process of the lane goes, and its records now name somebody else with an old start time.
    processes::kill(supervisor_pid(&run_dir));
    wait_until(Duration::from_secs(10), "it is gone", || {
        for pid in processes::of_lane(&started.lane_id()) {
            processes::kill(pid);
        }
        processes::of_lane(&started.lane_id()).is_empty()
    });
    for name in ["worker.json", "supervisor.json"] {
        let text = fs::read_to_string(run_dir.join(name)).unwrap();
        let mut record: Value = serde_json::from_str(&text).unwrap();
        replace_pids(&mut record, innocent.id());
        fs::write(run_dir.join(name), record.to_string()).unwrap();
    }
    let ended = bed.wait(&started.lane_id());
    assert!(["lost", "no_report", "worker_error"].contains(&ended.status()), "{:#}", ended.json);
    assert!(innocent.try_wait().unwrap().is_none(), "an innocent process was ended");
    innocent.kill().unwrap();
    innocent.wait().unwrap();
    fs::write(repository.path().join(".git/index.lock"), "").unwrap();
    let ended = run_to_end(&bed, &repository, COMMITS, &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert!(repository.path().join(".git/index.lock").exists(), "a lock that is not Lane's was removed");
}

fn replace_pids(record: &mut Value, pid: u32) {
    match record {
        Value::Object(map) => map
            .iter_mut()
            .for_each(|(key, value)| if key == "pid" { *value = json!(pid) } else { replace_pids(value, pid) }),
        Value::Array(list) => list.iter_mut().for_each(|value| replace_pids(value, pid)),
        _ => {}
    }
}

/// The supervisor's process id, from the run folder.
pub fn supervisor_pid(run_dir: &std::path::Path) -> i32 {
    let text = fs::read_to_string(run_dir.join("supervisor.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    i32::try_from(record["pid"].as_i64().unwrap()).unwrap()
}

/// 11: a submodule is filled from the main checkout, even when its remote is gone.
#[test]
fn submodules_are_filled_locally() {
    let bed = TestBed::new();
    let inner = bed.repository("inner");
    inner.write("f", "content\n").commit("f");
    let repository = bed.repository("project");
    repository.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        path_text(inner.path()),
        "sub",
    ]);
    repository.commit("submodule");
    fs::remove_dir_all(inner.path()).unwrap();
    let brief = "Goal: x\nFAKE: sh test -f sub/f && cd sub && echo more > g && git add g && git commit -qm inner-change\n\
                 FAKE: report STATUS: DONE\\nok\n";
    let ended = run_to_end(&bed, &repository, brief, &["--holdout", "test -f sub/f"]);
    assert_eq!(ended.json["holdout"]["passed"], json!(true), "{:#}", ended.json);
    let commits = ended.json["changes"]["submodule_commits"].as_array().unwrap();
    assert_eq!(commits[0]["path"], "sub", "{:#}", ended.json);
    let cleaned = bed.lane(&["clean", &ended.lane_id()]).expect_code(0);
    assert!(!std::path::Path::new(ended.text("checkout_path")).exists(), "{:#}", cleaned.json);
}

/// 12: hooks of the repository do not make or break a checkout, and a second try works.
#[test]
fn hooks_that_fail() {
    for mode in ["clone", "linked"] {
        let bed = TestBed::new();
        let repository = bed.repository("project");
        let canary = repository.path().join("canary");
        for (name, body) in [
            ("post-checkout", format!("touch {}; read x; exit 1", canary.display())),
            ("pre-commit", "exit 1".to_owned()),
        ] {
            let path = repository.path().join(".git/hooks").join(name);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for _ in 0..2 {
            let ended = run_to_end(&bed, &repository, COMMITS, &["--checkout", mode]);
            assert!(!canary.exists(), "{mode}: the hook ran");
            if mode == "clone" {
                assert_eq!(ended.json["changes"]["files"], 1, "{:#}", ended.json);
            } else {
                // In a linked checkout the worker's own commits obey the repository's hooks; what
                // they refuse is saved by Lane.
                assert_eq!(ended.json["changes"]["uncommitted_saved"], json!(true), "{:#}", ended.json);
                assert_eq!(ended.json["changes"]["files"], 1, "{:#}", ended.json);
                assert!(ended.json["warnings"].to_string().contains("post-checkout"), "{:#}", ended.json);
            }
        }
    }
}

/// 14: what linked checkouts share is watched, and a private clone keeps it out of reach.
#[test]
fn shared_git_state() {
    let acts = [
        ("git stash", "echo x >> README.md; git stash -q"),
        ("config", "git config user.email x@y"),
        ("branch", "git commit -qm moved --allow-empty; git branch -f main HEAD"),
        ("tag", "git tag -f v1"),
        ("gc", "git gc -q --prune=now"),
        ("remote", "git remote add elsewhere /nowhere"),
        ("hook", "echo exit 1 > $(git rev-parse --git-common-dir)/hooks/pre-push"),
    ];
    let bed = TestBed::new();
    let repository = bed.repository("project");
    repository.git(&["tag", "v1"]);
    let fingerprint = || {
        let git = repository.path().join(".git");
        let refs = repository.git(&[
            "for-each-ref",
            "--format=%(refname) %(objectname)",
            "refs/heads/main",
            "refs/tags",
            "refs/stash",
            "refs/remotes",
        ]);
        let hooks = fs::read_dir(git.join("hooks")).map_or(0, Iterator::count);
        (refs, fs::read_to_string(git.join("config")).unwrap(), hooks)
    };
    let before = fingerprint();
    for (name, act) in acts {
        let brief = format!("Goal: x\nFAKE: sh {act}\nFAKE: report STATUS: DONE\\nok\n");
        let ended = run_to_end(&bed, &repository, &brief, &[]);
        assert_eq!(ended.status(), "ok", "{name} {:#}", ended.json);
        assert_eq!(fingerprint(), before, "{name}: a private clone reached the repository");
    }
    let brief = "Goal: x\nFAKE: sh git config user.email x@y; git commit -qm moved --allow-empty; git branch -f other HEAD; git tag v2\n\
                 FAKE: report STATUS: DONE\\nok\n";
    let ended = run_to_end(&bed, &repository, brief, &["--checkout", "linked"]);
    let shared = ended.json["changes"]["shared_changes"].to_string();
    for part in ["user.email", "refs/heads/other", "refs/tags/v2"] {
        assert!(shared.contains(part), "{part} is not in {:#}", ended.json);
    }
    assert_eq!(ended.json["accepted"], json!(false));
}
