//! At most so many lanes at once, one writer per path, first come first served.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use crate::support::{Background, TestBed, path_text, variable, wait_until};

/// A worker that counts itself in a shared folder while it works, and fails when it is one too many.
fn counting_brief(folder: &std::path::Path, most: usize) -> String {
    let folder = folder.display();
    format!(
        "Goal: count\nFAKE: sh echo x > {folder}/$LANE_ID; n=$(ls {folder} | wc -l); [ $n -gt {most} ] && echo $n >> {folder}.over; \
         sleep 0.05; rm {folder}/$LANE_ID\nFAKE: report STATUS: DONE\\nok\n"
    )
}

#[test]
fn a_full_house_refuses_or_queues() {
    let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
    let gate = bed.path().join("gate");
    let folder = bed.path().join("plain");
    std::fs::create_dir(&folder).unwrap();
    let brief = bed.brief(&format!("Goal: wait\nFAKE: wait-for {}\nFAKE: report STATUS: DONE\\nok\n", gate.display()));
    let run = |more: &[&str]| {
        let mut arguments =
            vec!["run", "--profile", "investigate", "--brief", path_text(&brief), "--cwd", path_text(&folder)];
        arguments.extend_from_slice(more);
        bed.lane(&arguments)
    };
    let first = run(&[]).expect_code(0);
    let busy = run(&[]).expect_code(4);
    assert_eq!(busy.status(), "busy");
    let waited = run(&["--wait-slot", "100ms"]).expect_code(4);
    assert_eq!(waited.status(), "busy");
    let second = run(&["--queue"]).expect_code(0);
    assert_eq!(second.status(), "queued");
    let third = run(&["--queue"]).expect_code(0);
    let live = bed.lane(&["status", &second.lane_id()]).expect_code(3);
    assert_eq!((live.status(), live.text("state")), ("queued", "queued"));
    let counts = bed.lane(&["status"]);
    assert_eq!(
        (&counts.json["running"], &counts.json["queued"], &counts.json["max"]),
        (&json!(1), &json!(2), &json!(1))
    );
    let cancelled = bed.lane(&["cancel", &third.lane_id()]).expect_code(0);
    assert_eq!(cancelled.status(), "cancelled");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(bed.wait(&first.lane_id()).status(), "ok");
    let ended = bed.wait(&second.lane_id()).expect_code(0);
    assert!(ended.json["queued_s"].as_f64().unwrap() > 0.0, "{:#}", ended.json);
    assert_eq!(bed.wait(&third.lane_id()).expect_code(1).status(), "cancelled");
}

#[test]
fn one_writer_per_path() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let gate = bed.path().join("gate");
    let shared = bed.path().join("shared");
    std::fs::create_dir_all(shared.join("sub")).unwrap();
    let brief = format!("Goal: wait\nFAKE: wait-for {}\nFAKE: report STATUS: DONE\\nok\n", gate.display());
    let in_place = ["--profile", "implement", "--checkout", "none"];
    let first = bed.run(&repository, &brief, &in_place).expect_code(0);
    let refused = bed.run(&repository, &brief, &in_place).expect_code(4);
    assert_eq!(refused.status(), "busy_path");
    assert!(refused.text("error").contains(&first.lane_id()), "{:#}", refused.json);
    let own = bed.run(&repository, &brief, &["--profile", "implement", "--add-dir", path_text(&shared)]).expect_code(0);
    let sub = shared.join("sub");
    let overlapping = bed.run(&repository, &brief, &["--profile", "implement", "--add-dir", path_text(&sub)]);
    assert_eq!(overlapping.expect_code(4).status(), "busy_path");
    std::fs::write(&gate, "").unwrap();
    bed.wait(&first.lane_id());
    bed.wait(&own.lane_id());
    assert_eq!(bed.run(&repository, &brief, &in_place).expect_code(0).status(), "started");
}

#[test]
fn many_callers_at_once_never_run_a_fifth_worker() {
    let callers = if variable("LANE_LONG").is_some() { 200 } else { 40 };
    let bed = TestBed::new();
    let (folder, counters) = (bed.path().join("plain"), bed.path().join("counters"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::create_dir(&counters).unwrap();
    let brief = bed.brief(&counting_brief(&counters, 4));
    let arguments = ["run", "--profile", "investigate", "--brief", path_text(&brief), "--cwd", path_text(&folder)];
    let mut queued = arguments.to_vec();
    queued.push("--queue");
    let without: Vec<Background> = (0..callers).map(|_| bed.start_lane(&folder, &arguments)).collect();
    let mut started = HashSet::new();
    for answer in without.into_iter().map(Background::finish) {
        match answer.status() {
            "started" => assert!(started.insert(answer.lane_id())),
            other => assert_eq!((other, answer.code), ("busy", 4), "{:#}", answer.json),
        }
    }
    assert!(!started.is_empty());
    let with: Vec<Background> = (0..callers).map(|_| bed.start_lane(&folder, &queued)).collect();
    for answer in with.into_iter().map(Background::finish) {
        assert_eq!(answer.code, 0, "{:#}", answer.json);
        assert!(started.insert(answer.lane_id()));
    }
    wait_until(Duration::from_secs(180), "every lane has ended", || {
        let list = bed.lane(&["status", "--limit", "1"]);
        list.json["running"] == json!(0) && list.json["queued"] == json!(0)
    });
    let all = bed.lane(&["status", "--all"]);
    let lanes = all.json["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), started.len());
    assert!(lanes.iter().all(|lane| lane["status"] == "ok"), "{:#}", all.json);
    let over = std::fs::read_to_string(bed.path().join("counters.over")).unwrap_or_default();
    assert_eq!(over, "", "more workers than slots");
}
