//! Any single process may be killed at any moment: exactly one end, the slot free, nothing alive.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cases::supervisor_pid;
use crate::support::{TestBed, path_text, processes, variable, wait_until};

/// A worker that takes a moment, commits and reports.
const SLOW: &str = "Goal: slow\nFAKE: sleep-ms 150\nFAKE: sh echo hello > new.txt && git add new.txt && git commit -qm new\n\
                    FAKE: sleep-ms 150\nFAKE: report STATUS: DONE\\nok\n";

/// Asserts what must hold after any fault: one end in the ledger, the slot free, no process alive.
fn assert_settled(bed: &TestBed, lane_id: &str) {
    assert!(processes::of_lane(lane_id).is_empty(), "processes are left: {:?}", processes::of_lane(lane_id));
    let database = rusqlite::Connection::open(bed.state().join("lane.db")).unwrap();
    let ends: i64 = database
        .query_row("SELECT count(*) FROM events WHERE lane_id = ?1 AND kind = 'ended'", [lane_id], |row| row.get(0))
        .unwrap();
    assert_eq!(ends, 1);
    let list = bed.lane(&["status", "--limit", "1"]);
    assert_eq!(list.json["running"], json!(0));
    let result: Value = serde_json::from_slice(&fs::read(bed.run_dir(lane_id).join("result.json")).unwrap()).unwrap();
    assert_eq!(result["lane_id"], lane_id);
}

fn wait_for_file(path: &Path) {
    wait_until(Duration::from_secs(20), &format!("{} is there", path.display()), || path.exists());
}

/// A small generator of moments: the rounds differ, and a failure can be repeated by its number.
fn moment_ms(round: u64) -> u64 {
    (round.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33) % 700
}

#[test]
fn the_supervisor_is_killed_at_any_moment() {
    let rounds = if variable("LANE_LONG").is_some() { 50 } else { 8 };
    for round in 0..rounds {
        let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
        let repository = bed.repository("project");
        let started = bed
            .run(&repository, SLOW, &["--profile", "implement", "--holdout", "sleep 0.1; test -f new.txt"])
            .expect_code(0);
        let lane_id = started.lane_id();
        let run_dir = bed.run_dir(&lane_id);
        std::thread::sleep(Duration::from_millis(moment_ms(round)));
        processes::kill(supervisor_pid(&run_dir));
        let ended = bed.wait(&lane_id);
        assert_eq!(ended.status(), "ok", "round {round}: {:#}", ended.json);
        assert_eq!(ended.json["accepted"], json!(true), "round {round}: {:#}", ended.json);
        assert_eq!(repository.git(&["show", &format!("lane/{lane_id}:new.txt")]), "hello");
        assert_settled(&bed, &lane_id);
        let next = bed.run(&repository, SLOW, &["--profile", "implement"]).expect_code(0);
        assert_eq!(bed.wait(&next.lane_id()).status(), "ok");
    }
}

/// Starts a worker that waits at a gate, and returns once it does.
fn started_at_gate(bed: &TestBed, more: &str) -> (String, std::path::PathBuf) {
    let repository = bed.repository("project");
    let gate = bed.path().join("gate");
    let brief = format!(
        "Goal: gate\nFAKE: sh echo kept > kept.txt\n{more}FAKE: wait-for {}\nFAKE: report STATUS: DONE\\nok\n",
        gate.display()
    );
    let started = bed.run(&repository, &brief, &["--profile", "implement"]).expect_code(0);
    wait_for_file(&bed.run_dir(&started.lane_id()).join("worker.json"));
    wait_for_file(&std::path::PathBuf::from(started.text("checkout_path")).join("kept.txt"));
    (started.lane_id(), gate)
}

/// The worker's and the keeper's process ids.
fn worker_and_keeper(bed: &TestBed, lane_id: &str) -> (i32, i32) {
    let text = fs::read_to_string(bed.run_dir(lane_id).join("worker.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    let mut pids = Vec::new();
    collect_pids(&record, &mut pids);
    let worker = pids.iter().copied().find(|pid| processes::command_line(*pid).contains("fake-")).unwrap();
    let keeper = pids.into_iter().find(|pid| processes::command_line(*pid).contains("__keep")).unwrap();
    (worker, keeper)
}

fn collect_pids(value: &Value, pids: &mut Vec<i32>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| match value.as_i64() {
            Some(pid) if key == "pid" => pids.push(i32::try_from(pid).unwrap()),
            _ => collect_pids(value, pids),
        }),
        Value::Array(list) => list.iter().for_each(|value| collect_pids(value, pids)),
        _ => {}
    }
}

#[test]
fn the_worker_is_killed() {
    let bed = TestBed::new();
    let (lane_id, _) = started_at_gate(&bed, "");
    processes::kill(worker_and_keeper(&bed, &lane_id).0);
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!((ended.status(), &ended.json["signal"]), ("worker_error", &json!(9)), "{:#}", ended.json);
    assert_eq!(ended.json["changes"]["uncommitted_saved"], json!(true));
    assert_settled(&bed, &lane_id);
}

#[test]
fn the_keeper_is_killed() {
    let bed = TestBed::new();
    let (lane_id, gate) = started_at_gate(&bed, "");
    processes::kill(worker_and_keeper(&bed, &lane_id).1);
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert_settled(&bed, &lane_id);
}

#[test]
fn every_process_is_killed() {
    let bed = TestBed::new();
    let (lane_id, _) = started_at_gate(&bed, "");
    processes::kill(supervisor_pid(&bed.run_dir(&lane_id)));
    wait_until(Duration::from_secs(10), "all are gone", || {
        processes::of_lane(&lane_id).into_iter().for_each(processes::kill);
        processes::of_lane(&lane_id).is_empty()
    });
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!(ended.json["exit_code"], Value::Null);
    assert_eq!(ended.json["changes"]["uncommitted_saved"], json!(true), "{:#}", ended.json);
    assert_settled(&bed, &lane_id);
}

#[test]
fn a_restart_of_the_machine_loses_no_work() {
    let mut bed = TestBed::new();
    let boot = bed.path().join("boot");
    fs::write(&boot, "first").unwrap();
    bed.set("LANE_TEST_BOOT_ID_FILE", &boot);
    let (lane_id, _) = started_at_gate(&bed, "");
    processes::kill(supervisor_pid(&bed.run_dir(&lane_id)));
    wait_until(Duration::from_secs(10), "all are gone", || {
        processes::of_lane(&lane_id).into_iter().for_each(processes::kill);
        processes::of_lane(&lane_id).is_empty()
    });
    fs::write(&boot, "second").unwrap();
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("lost", "infra"), "{:#}", ended.json);
    assert_eq!(ended.json["changes"]["files"], 1, "{:#}", ended.json);
    assert_settled(&bed, &lane_id);
}

#[test]
fn a_clock_that_jumps_ends_nothing() {
    let mut bed = TestBed::new();
    let clock = bed.path().join("clock");
    fs::write(&clock, "0").unwrap();
    bed.set("LANE_TEST_CLOCK_FILE", &clock);
    let (lane_id, gate) = started_at_gate(&bed, "");
    for offset_ms in ["-86400000", "864000000"] {
        fs::write(&clock, offset_ms).unwrap();
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).status(), "running");
    }
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id).expect_code(0);
    assert!(ended.json["duration_s"].as_f64().unwrap() < 60.0, "{:#}", ended.json);
    assert_settled(&bed, &lane_id);
}

#[test]
fn a_stopped_and_continued_tree_goes_on() {
    use nix::sys::signal::Signal;
    let bed = TestBed::new();
    let (lane_id, gate) = started_at_gate(&bed, "");
    let (worker, keeper) = worker_and_keeper(&bed, &lane_id);
    let all = [supervisor_pid(&bed.run_dir(&lane_id)), keeper, worker];
    all.iter().for_each(|pid| processes::signal(*pid, Signal::SIGSTOP));
    assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).status(), "running");
    all.iter().for_each(|pid| processes::signal(*pid, Signal::SIGCONT));
    fs::write(gate, "").unwrap();
    assert_eq!(bed.wait(&lane_id).expect_code(0).status(), "ok");
    assert_settled(&bed, &lane_id);
}

#[test]
fn cancel_in_the_middle_of_a_command() {
    for profile in ["implement", "opus"] {
        let bed = TestBed::new();
        let repository = bed.repository("project");
        let brief = "Goal: x\nFAKE: sh touch begun; sleep 600\nFAKE: report STATUS: DONE\\nok\n";
        let started = bed.run(&repository, brief, &["--profile", profile]).expect_code(0);
        wait_for_file(&std::path::PathBuf::from(started.text("checkout_path")).join("begun"));
        let asked = bed.lane(&["cancel", &started.lane_id()]).expect_code(0);
        assert_eq!(asked.status(), "cancel_requested");
        let ended = bed.wait(&started.lane_id()).expect_code(1);
        assert_eq!((ended.status(), ended.text("class")), ("cancelled", "caller"), "{:#}", ended.json);
        assert_eq!(bed.lane(&["cancel", &started.lane_id()]).expect_code(0).status(), "already_ended");
        assert_settled(&bed, &started.lane_id());
    }
}

#[test]
fn silence_is_a_stall_and_work_is_not() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let silent = bed.run(&repository, "Goal: x\nFAKE: hang\n", &["--profile", "implement", "--idle-time", "1s"]);
    let ended = bed.wait(&silent.lane_id()).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("stalled", "infra"), "{:#}", ended.json);
    let brief =
        "Goal: x\nFAKE: sh i=0; while [ $i -lt 9000000 ]; do i=$((i+1)); done\nFAKE: report STATUS: DONE\\nok\n";
    let busy = bed.run(&repository, brief, &["--profile", "implement", "--idle-time", "3s"]);
    let ended = bed.wait(&busy.lane_id());
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
}

#[test]
fn the_caller_never_waits_for_the_worker() {
    let bed = TestBed::new();
    let (lane_id, gate) = started_at_gate(&bed, "");
    // The command's own stdout was read to its end although the worker still runs.
    assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).text("state"), "working");
    let waiting = bed.start_lane(&bed.path(), &["wait", &lane_id]);
    let short = bed.lane(&["wait", &lane_id, "--max", "50ms"]).expect_code(3);
    assert_eq!(short.status(), "running");
    fs::write(gate, "").unwrap();
    assert_eq!(waiting.finish().expect_code(0).status(), "ok");
}

#[test]
fn several_waiters_and_any() {
    let bed = TestBed::new();
    let (slow, gate) = started_at_gate(&bed, "");
    let folder = bed.path().join("plain");
    fs::create_dir(&folder).unwrap();
    let brief = bed.brief("Goal: quick\nFAKE: report STATUS: DONE\\nok\n");
    let quick = bed
        .lane(&["run", "--profile", "investigate", "--brief", path_text(&brief), "--cwd", path_text(&folder)])
        .lane_id();
    let any = bed.lane(&["wait", &slow, &quick, "--any", "--max", "20s"]).expect_code(0);
    assert_eq!(any.lane_id(), quick);
    fs::write(gate, "").unwrap();
    let both = bed.lane(&["wait", &slow, &quick, "--max", "20s"]).expect_code(0);
    assert_eq!(both.json["lanes"].as_array().unwrap().len(), 2);
}
