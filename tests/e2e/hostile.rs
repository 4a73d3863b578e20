//! What a worker, a check, or two commands at once must not be able to break: the lead's repository
//! untouched, no work lost, exactly one end, the slot free.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cases::supervisor_pid;
use crate::support::repository::Repository;
use crate::support::{Answer, TestBed, processes, variable, wait_until};

/// One commit, one file that is not committed, and a report.
const WORK: &str = "FAKE: sh echo w > w.txt; git add w.txt; git commit -qm w; echo u > u.txt\n";
const REPORT: &str = "FAKE: report STATUS: DONE\\nok\n";

/// Runs a worker that does some work and then `script` to its end.
fn run_hostile(bed: &TestBed, repository: &Repository, script: &str, more: &[&str]) -> Answer {
    let brief = format!("Goal: hostile\n{WORK}FAKE: sh {script}\n{REPORT}");
    let mut arguments = vec!["--profile", "implement"];
    arguments.extend_from_slice(more);
    let started = bed.run(repository, &brief, &arguments).expect_code(0);
    bed.wait(&started.lane_id())
}

/// What of the lead's repository no lane may touch.
fn lead(repository: &Repository) -> Vec<String> {
    let refs = repository.git(&["for-each-ref"]);
    let own = |line: &&str| !line.contains("refs/heads/lane/") && !line.contains("refs/lane/");
    vec![
        refs.lines().filter(own).collect::<Vec<_>>().join("\n"),
        repository.read(".git/config"),
        repository.git(&["status", "--porcelain", "--ignored"]),
        repository.git(&["rev-parse", "HEAD"]),
        repository.git(&["worktree", "list"]),
    ]
}

fn assert_settled(bed: &TestBed, lane_id: &str) {
    assert!(processes::of_lane(lane_id).is_empty(), "processes are left: {:?}", processes::of_lane(lane_id));
    let database = rusqlite::Connection::open(bed.state().join("lane.db")).unwrap();
    let count = "SELECT count(*) FROM events WHERE lane_id = ?1 AND kind = 'ended'";
    let ends: i64 = database.query_row(count, [lane_id], |row| row.get(0)).unwrap();
    assert_eq!(ends, 1);
    assert_eq!(bed.lane(&["status", "--limit", "1"]).json["running"], json!(0));
}

fn warnings(answer: &Answer) -> String {
    answer.json["warnings"].to_string()
}

fn kept(answer: &Answer) -> Vec<String> {
    let refs = answer.json["changes"]["kept_refs"].as_array().cloned().unwrap_or_default();
    refs.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn a_checkout_that_became_a_link_to_the_lead_takes_nothing_from_it() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let before = lead(&repository);
    let target = repository.path().display();
    let script = format!("d=\"$PWD\"; cd /; mv \"$d\" \"$d.moved\"; ln -s {target} \"$d\"");
    let ended = run_hostile(&bed, &repository, &script, &["--holdout", "echo x >> README.md"]);
    assert!(repository.path().join(".git").is_dir(), "the lead's git folder is gone: {:#}", ended.json);
    assert_eq!(lead(&repository), before);
    assert_eq!(ended.json["accepted"], json!(false), "{:#}", ended.json);
    assert_settled(&bed, &ended.lane_id());
    bed.lane(&["clean", &ended.lane_id()]);
    assert_eq!(lead(&repository), before);
}

#[test]
fn a_check_that_kills_its_supervisor_does_not_hang_the_lane() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let ended = run_hostile(&bed, &repository, "true", &["--holdout", "kill -9 $PPID; sleep 5"]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert_eq!((&ended.json["holdout"]["passed"], &ended.json["accepted"]), (&Value::Null, &Value::Null));
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u");
    assert_settled(&bed, &ended.lane_id());
}

#[test]
fn a_cancel_in_the_set_up_is_a_cancel() {
    let bed = TestBed::new();
    bed.configure("[checkout]\nsetup = \"touch begun; sleep 60\"\n");
    let repository = bed.repository("project");
    let brief = format!("Goal: x\n{WORK}{REPORT}");
    let started = bed.run(&repository, &brief, &["--profile", "implement"]).expect_code(0);
    let begun = PathBuf::from(started.text("checkout_path")).join("begun");
    wait_until(Duration::from_secs(20), "the set-up runs", || begun.exists());
    bed.lane(&["cancel", &started.lane_id()]).expect_code(0);
    let ended = bed.wait(&started.lane_id()).expect_code(1);
    assert_eq!(ended.status(), "cancelled", "{:#}", ended.json);
    assert_settled(&bed, &started.lane_id());
}

#[test]
fn a_queued_lane_without_its_folder_does_not_block_the_queue() {
    let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
    let repository = bed.repository("project");
    let gate = bed.path().join("gate");
    let waits = format!("Goal: x\nFAKE: wait-for {}\n{REPORT}", gate.display());
    let first = bed.run(&repository, &waits, &["--profile", "implement"]).expect_code(0);
    let brief = format!("Goal: x\n{WORK}{REPORT}");
    let broken = bed.run(&repository, &brief, &["--profile", "implement", "--queue"]).lane_id();
    let behind = bed.run(&repository, &brief, &["--profile", "implement", "--queue"]).lane_id();
    fs::remove_dir_all(bed.run_dir(&broken)).unwrap();
    fs::write(gate, "").unwrap();
    bed.wait(&first.lane_id()).expect_code(0);
    assert_eq!(bed.wait(&behind).expect_code(0).status(), "ok");
    assert_eq!(bed.wait(&broken).expect_code(1).status(), "lost");
    assert_settled(&bed, &broken);
}

/// A lane that left many ignored files, which only `lane clean`'s archive holds.
fn with_ignored_files(bed: &TestBed, count: usize) -> (String, PathBuf) {
    let repository = bed.repository("project");
    repository.write(".gitignore", "*.ign\n").commit("ignore");
    let script = format!("mkdir many; cd many; seq 1 {count} | sed s/$/.ign/ | xargs touch");
    let ended = run_hostile(bed, &repository, &script, &[]);
    (ended.lane_id(), PathBuf::from(ended.text("checkout_path")))
}

fn ignored_files(checkout: &Path) -> usize {
    fs::read_dir(checkout.join("many")).map_or(0, Iterator::count)
}

#[test]
fn cleaning_and_restoring_at_once_lose_nothing() {
    const FILES: usize = 2000;
    let bed = TestBed::new();
    let (lane_id, checkout) = with_ignored_files(&bed, FILES);
    for round in 0..if variable("LANE_LONG").is_some() { 12 } else { 3 } {
        bed.lane(&["clean", &lane_id]).expect_code(0);
        let restoring = bed.start_lane(&bed.path(), &["restore", &lane_id]);
        std::thread::sleep(Duration::from_millis(20 + 30 * round));
        let cleaning = bed.start_lane(&bed.path(), &["clean", &lane_id]);
        let again = bed.start_lane(&bed.path(), &["clean", &lane_id]);
        restoring.finish().expect_code(0);
        cleaning.finish().expect_code(0);
        again.finish().expect_code(0);
        if !checkout.exists() {
            bed.lane(&["restore", &lane_id]).expect_code(0);
        }
        assert_eq!(ignored_files(&checkout), FILES, "round {round}");
    }
}

#[test]
fn a_killed_restore_loses_nothing() {
    const FILES: usize = 2000;
    let bed = TestBed::new();
    let (lane_id, checkout) = with_ignored_files(&bed, FILES);
    for round in 0..if variable("LANE_LONG").is_some() { 12 } else { 3 } {
        bed.lane(&["clean", &lane_id]).expect_code(0);
        let restoring = bed.start_lane(&bed.path(), &["restore", &lane_id]);
        std::thread::sleep(Duration::from_millis(20 + 40 * round));
        processes::kill(restoring.pid());
        drop(restoring);
        // Whatever it left, cleaning keeps all and restoring brings all back.
        bed.lane(&["clean", &lane_id]).expect_code(0);
        bed.lane(&["restore", &lane_id]).expect_code(0);
        assert_eq!(ignored_files(&checkout), FILES, "round {round}");
    }
}

#[test]
fn content_that_git_would_not_convert_is_saved_as_it_is() {
    for attributes in ["* working-tree-encoding=UTF-16", "* text eol=crlf"] {
        let bed = TestBed::new();
        let repository = bed.repository("project");
        repository.git(&["config", "core.autocrlf", "true"]);
        repository.git(&["config", "core.safecrlf", "true"]);
        let script = format!("echo '{attributes}' > .gitattributes; printf 'a\\nb' > odd.txt");
        let ended = run_hostile(&bed, &repository, &script, &[]);
        assert_eq!(ended.status(), "ok", "{attributes}: {:#}", ended.json);
        let branch = format!("lane/{}", ended.lane_id());
        assert_eq!(repository.git(&["show", &format!("{branch}:odd.txt")]), "a\nb");
        assert_eq!(repository.git(&["show", &format!("{branch}:u.txt")]), "u");
        bed.lane(&["clean", &ended.lane_id()]).expect_code(0);
    }
}

#[test]
fn what_cannot_go_into_a_commit_is_named_and_archived() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let ended = run_hostile(&bed, &repository, "echo x > 'git~1'; mkdir .GIT; echo y > .GIT/config", &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert!(warnings(&ended).contains("git~1"), "{:#}", ended.json);
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u");
    let cleaned = bed.lane(&["clean", &ended.lane_id()]).expect_code(0);
    assert!(cleaned.stdout.contains("git~1"), "{:#}", cleaned.json);
}

#[test]
fn files_of_holes_cost_neither_time_nor_disk() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let script = "truncate -s 1T image; truncate -s 1T .git/objects/pack/pack-1.pack; truncate -s 1T .git/index";
    let ended = run_hostile(&bed, &repository, script, &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert!(warnings(&ended).contains("image"), "{:#}", ended.json);
    let cleaned = bed.lane(&["clean", &ended.lane_id()]).expect_code(1);
    assert!(cleaned.stdout.contains("do not fit") && cleaned.took < Duration::from_secs(5), "{:#}", cleaned.json);
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u");
    assert_settled(&bed, &ended.lane_id());
}

#[test]
fn a_huge_list_of_refs_is_taken_over_in_time() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let list = bed.path().join("list.sh");
    let program = "h=$(git rev-parse HEAD)\n\
        awk -v h=$h 'BEGIN { for (i = 0; i < 150000; i++) printf \"%s refs/heads/b%06d\\n\", h, i }' >> .git/packed-refs\n";
    fs::write(&list, program).unwrap();
    let ended = run_hostile(&bed, &repository, &format!(". {}", list.display()), &[]);
    assert_eq!(ended.status(), "ok", "{}", ended.stdout.len());
    assert!(ended.stdout.len() < 1 << 20, "a line of {} bytes", ended.stdout.len());
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u");
    assert_settled(&bed, &ended.lane_id());
}

#[test]
fn commits_under_any_ref_are_kept() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let script = "n=\"$(printf 'n\\377')\"; new() { git commit-tree -m $1 -p HEAD HEAD^{tree}; }; \
        git update-ref refs/foo/bar $(new one); git notes add -m two; git branch \"$n\" $(new three); \
        git worktree add -q --detach ../more $(new four); git -C ../more commit -q --allow-empty -m five";
    let ended = run_hostile(&bed, &repository, script, &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    let subjects: Vec<String> =
        kept(&ended).iter().map(|name| repository.git(&["log", "--format=%s", "-1", name])).collect();
    for subject in ["one", "three", "five"] {
        assert!(subjects.iter().any(|found| found == subject), "{subject} is not in {subjects:?}: {:#}", ended.json);
    }
    assert!(kept(&ended).iter().any(|name| name.contains("notes")), "{:#}", ended.json);
}

/// Starts a worker that waits at a gate once it has worked; returns the lane and the gate.
fn at_gate(bed: &TestBed, repository: &Repository) -> (String, PathBuf) {
    let gate = bed.path().join("gate");
    let brief = format!("Goal: gate\n{WORK}FAKE: wait-for {}\n{REPORT}", gate.display());
    let started = bed.run(repository, &brief, &["--profile", "implement"]).expect_code(0);
    let worked = PathBuf::from(started.text("checkout_path")).join("u.txt");
    wait_until(Duration::from_secs(20), "the worker has worked", || worked.exists());
    (started.lane_id(), gate)
}

#[test]
fn a_supervisor_that_cannot_start_ends_no_lane_with_a_worker() {
    let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
    let repository = bed.repository("project");
    let (lane_id, gate) = at_gate(&bed, &repository);
    let log = bed.run_dir(&lane_id).join("supervisor.log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    processes::kill(supervisor_pid(&bed.run_dir(&lane_id)));
    for _ in 0..3 {
        bed.lane_output(&bed.path(), &["status", &lane_id]);
    }
    assert!(!bed.run_dir(&lane_id).join("result.json").exists(), "it was ended while its worker runs");
    fs::remove_dir(&log).unwrap();
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id).expect_code(0);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert_eq!(repository.git(&["show", &format!("lane/{lane_id}:u.txt")]), "u");
    assert_settled(&bed, &lane_id);
}

#[test]
fn one_broken_lane_does_not_break_the_others() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let (broken, gate) = at_gate(&bed, &repository);
    let log = bed.run_dir(&broken).join("supervisor.log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    processes::kill(supervisor_pid(&bed.run_dir(&broken)));
    let brief = format!("Goal: x\n{WORK}{REPORT}");
    let other = bed.run(&repository, &brief, &["--profile", "implement"]).expect_code(0);
    assert_eq!(bed.wait(&other.lane_id()).expect_code(0).status(), "ok");
    bed.lane(&["status"]).expect_code(0);
    let waited = bed.lane(&["wait", &broken, "--max", "10s"]).expect_code(1);
    assert!(waited.took < Duration::from_secs(5), "{:#}", waited.json);
    fs::remove_dir(&log).unwrap();
    fs::write(gate, "").unwrap();
    assert_eq!(bed.wait(&broken).expect_code(0).status(), "ok");
    assert_settled(&bed, &broken);
}

#[test]
fn a_branch_name_that_is_taken_meanwhile_loses_nothing() {
    for name in ["", "/x"] {
        let bed = TestBed::new();
        let repository = bed.repository("project");
        let (lane_id, gate) = at_gate(&bed, &repository);
        repository.git(&["branch", &format!("lane/{lane_id}{name}")]);
        repository.git(&["commit", "-q", "--allow-empty", "-m", "second"]);
        fs::write(gate, "").unwrap();
        let ended = bed.wait(&lane_id).expect_code(1);
        assert_eq!(ended.status(), "error", "{:#}", ended.json);
        assert_eq!(repository.git(&["show", &format!("refs/lane/{lane_id}/branch:u.txt")]), "u");
        assert_settled(&bed, &lane_id);
    }
}

#[test]
fn what_fails_in_the_proof_does_not_lose_the_work() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let script = "f=$(dirname $TMPDIR)/stderr.log; rm -f $f; mkdir $f";
    let ended = run_hostile(&bed, &repository, script, &[]);
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u", "{:#}", ended.json);
    assert_settled(&bed, &ended.lane_id());
}

#[test]
fn folders_in_the_place_of_the_result_keep_no_lane_alive() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let script = "r=$(dirname $TMPDIR); mkdir -p $r/result.json/x $r/ended/x";
    let ended = run_hostile(&bed, &repository, script, &[]);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
    assert_eq!(repository.git(&["show", &format!("lane/{}:u.txt", ended.lane_id())]), "u");
    assert_settled(&bed, &ended.lane_id());
    let script = "r=$(dirname $TMPDIR); rm -f $r/events.jsonl; mkdir -p $r/result.json/x $r/events.jsonl/x";
    let ended = run_hostile(&bed, &repository, script, &[]);
    assert_eq!(ended.status(), "error", "{:#}", ended.json);
    assert_settled(&bed, &ended.lane_id());
}

#[test]
fn a_dead_run_folder_frees_its_slot() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let script = "r=$(dirname $TMPDIR); for f in events.jsonl supervisor.lock result.json stderr.log; do \
        rm -rf $r/$f; mkdir -p $r/$f/x; done";
    let brief = format!("Goal: hostile\n{WORK}FAKE: sh {script}\n{REPORT}");
    let lane_id = bed.run(&repository, &brief, &["--profile", "implement"]).expect_code(0).lane_id();
    // While the folder is being broken a command may only be able to say that it is.
    wait_until(Duration::from_secs(20), "the lane has ended", || {
        bed.lane(&["wait", &lane_id, "--max", "1s"]);
        bed.lane(&["status", "--limit", "1"]).json["running"] == json!(0)
    });
    assert_ne!(bed.lane(&["status", &lane_id]).status(), "ok");
    assert_settled(&bed, &lane_id);
}
