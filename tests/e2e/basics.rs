//! The main job, from the call to the result line.

use serde_json::{Value, json};

use crate::support::TestBed;

/// A worker that writes one file, commits it and reports.
pub const COMMITS: &str = "Goal: write new.txt\n\
    FAKE: sh echo hello > new.txt && git add new.txt && git commit -qm 'add new.txt'\n\
    FAKE: report STATUS: DONE\\nWrote new.txt.\n";

#[test]
fn a_brief_becomes_a_checked_branch() {
    for profile in ["implement", "opus"] {
        let bed = TestBed::new();
        let repository = bed.repository("project");
        let base = repository.git(&["rev-parse", "HEAD"]);
        let started = bed
            .run(
                &repository,
                COMMITS,
                &["--profile", profile, "--holdout", "test -f new.txt", "--protect", "README.md"],
            )
            .expect_code(0);
        assert_eq!(started.status(), "started");
        assert_eq!(started.text("base_commit"), base);
        let lane_id = started.lane_id();
        let ended = bed.wait(&lane_id).expect_code(0);
        assert_eq!(ended.status(), "ok", "{:#}", ended.json);
        assert_eq!(ended.json["accepted"], json!(true), "{:#}", ended.json);
        assert_eq!(ended.json["marker"], "STATUS: DONE");
        assert_eq!(ended.json["changes"]["commits"], 1);
        assert_eq!(ended.json["changes"]["files"], 1);
        assert_eq!(ended.json["changes"]["insertions"], 1);
        assert_eq!(ended.json["holdout"]["passed"], json!(true));
        assert_eq!(ended.json["exit_code"], 0);
        let branch = format!("lane/{lane_id}");
        assert_eq!(ended.text("branch"), branch);
        let tip = repository.git(&["rev-parse", &branch]);
        assert_eq!(ended.text("head_commit"), tip);
        assert_eq!(repository.git(&["show", &format!("{branch}:new.txt")]), "hello");
        assert_eq!(repository.git(&["status", "--porcelain"]), "");
        let again = bed.lane(&["result", &lane_id]);
        assert_eq!(again.json, ended.json);
        let file: Value =
            serde_json::from_slice(&std::fs::read(bed.run_dir(&lane_id).join("result.json")).unwrap()).unwrap();
        assert_eq!(file, ended.json);
        assert!(crate::support::processes::of_lane(&lane_id).is_empty());
        let list = bed.lane(&["status"]).expect_code(0);
        assert_eq!((&list.json["running"], &list.json["queued"], &list.json["max"]), (&json!(0), &json!(0), &json!(4)));
        assert_eq!(list.json["lanes"][0]["lane_id"], lane_id.as_str());
    }
}

#[test]
fn a_read_only_lane_answers_from_the_callers_directory() {
    let bed = TestBed::new();
    let brief = "Goal: look around\nFAKE: sh ls\nFAKE: report STATUS: DONE\\nNothing here.\n";
    let path = bed.brief(brief);
    let folder = bed.path().join("plain");
    std::fs::create_dir(&folder).unwrap();
    let started = bed
        .lane(&[
            "run",
            "--profile",
            "investigate",
            "--brief",
            path.to_str().unwrap(),
            "--cwd",
            folder.to_str().unwrap(),
        ])
        .expect_code(0);
    let ended = bed.wait(&started.lane_id()).expect_code(0);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert_eq!(ended.json["accepted"], Value::Null);
    assert_eq!(ended.json.get("branch"), None);
    assert_eq!(ended.json.get("changes"), None);
}

#[test]
fn a_failed_holdout_leaves_the_workers_status_alone() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let started = bed.run(&repository, COMMITS, &["--profile", "implement", "--holdout", "echo no; exit 3"]);
    let ended = bed.wait(&started.lane_id()).expect_code(0);
    assert_eq!(ended.status(), "ok");
    assert_eq!(ended.json["accepted"], json!(false));
    assert_eq!(ended.json["holdout"]["passed"], json!(false));
    assert_eq!(ended.json["holdout"]["checks"][0]["exit_code"], 3);
    assert_eq!(ended.json["holdout"]["checks"][0]["tail"], "no\n");
    bed.lane(&["wait", &started.lane_id(), "--accepted"]).expect_code(6);
}

#[test]
fn a_protected_file_that_changes_is_named() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let brief =
        "Goal: cheat\nFAKE: sh echo x >> README.md && git commit -qam cheat\nFAKE: report STATUS: DONE\\nDid it.\n";
    let started =
        bed.run(&repository, brief, &["--profile", "implement", "--protect", "README.md", "--holdout", "true"]);
    let ended = bed.wait(&started.lane_id());
    assert_eq!(ended.json["holdout"]["passed"], json!(false), "{:#}", ended.json);
    assert_eq!(ended.json["holdout"]["protected"]["changed"], json!([{"path": "README.md", "what": "content"}]));
    assert_eq!(ended.json["accepted"], json!(false));
}

#[test]
fn the_worker_sees_neither_the_check_nor_the_leads_variables() {
    let mut bed = TestBed::new();
    bed.set("MY_SECRET_TOKEN", "canary-1");
    bed.set("CLAUDECODE", "1");
    bed.set("GIT_AUTHOR_NAME", "canary-2");
    bed.set("PASSED_ON", "yes");
    let repository = bed.repository("project");
    let brief =
        "Goal: look\nFAKE: sh env > seen.txt; git add seen.txt; git commit -qm seen\nFAKE: report STATUS: DONE\\nok\n";
    let started = bed.run(
        &repository,
        brief,
        &["--profile", "opus", "--env", "PASSED_ON", "--holdout", "test canary-3 = canary-3"],
    );
    let ended = bed.wait(&started.lane_id()).expect_code(0);
    let seen = repository.git(&["show", &format!("lane/{}:seen.txt", started.lane_id())]);
    assert!(seen.contains(&format!("LANE_ID={}", started.lane_id())), "{seen}");
    assert!(seen.contains("PASSED_ON=yes"), "{seen}");
    assert!(!seen.contains("canary"), "{seen}");
    assert_eq!(ended.json["caller"]["family"], "claude");
    let handed = std::fs::read_to_string(bed.run_dir(&started.lane_id()).join("brief.md")).unwrap();
    assert!(!handed.contains("canary-3"), "{handed}");
}
