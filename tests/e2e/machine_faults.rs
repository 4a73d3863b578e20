//! What the machine can do to Lane: a full disk, folders that cannot be written, a person without
//! rights, no watches left, odd paths, closed streams, a damaged database.
//!
//! Always: one line of JSON, the right exit code, a hint that names the way on, nothing left behind,
//! no hang, and no work lost.

mod damage;
mod places;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use crate::basics::COMMITS;
use crate::cases::supervisor_pid;
use crate::support::repository::Repository;
use crate::support::{Answer, PATIENCE, TestBed, lane_program, path_text, processes, skip, wait_until};

/// Nobody, on every Linux.
const NOBODY: u32 = 65_534;

/// Runs `body` on a thread with mounts of its own, which end with it; says why where that cannot be.
fn with_own_mounts(body: impl FnOnce() + Send) {
    let made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
            body();
            Ok::<(), nix::Error>(())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if let Err(error) = made {
        skip(&format!("mounts of one's own cannot be had: {error}"), "LANE_REQUIRE_FAULTS");
    }
}

/// Mounts a small file system in memory.
fn mount_small(at: &Path, megabytes: u32) {
    fs::create_dir_all(at).unwrap();
    let options = format!("size={megabytes}m,mode=0700");
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).unwrap();
}

/// Makes a folder read-only for whoever shares the mounts.
fn mount_read_only(at: &Path) {
    let none: Option<&str> = None;
    mount(Some(at), at, none, MsFlags::MS_BIND, none).unwrap();
    mount(none, at, none, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
}

/// Takes all the room that is left and returns the file that holds it.
fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filler");
    let mut file = fs::File::create(&path).unwrap();
    let block = [0_u8; 4096];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    path
}

/// A command of Lane with all that a test wants to change about it; it must answer in time.
fn ask(bed: &TestBed, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Answer {
    let mut command = bed.command(lane_program(), &bed.path());
    command.args(arguments);
    change(&mut command);
    bed.answer_of(command, arguments)
}

/// A command of Lane as a person without rights.
fn as_nobody(bed: &TestBed, arguments: &[&str]) -> Answer {
    ask(bed, arguments, |command| {
        command.uid(NOBODY).gid(NOBODY);
    })
}

/// Whether a person without rights can start the programs under test, where they are.
fn nobody_can_start_us() -> bool {
    let mut command = Command::new(lane_program());
    nix::unistd::geteuid().is_root() && command.arg("--version").uid(NOBODY).gid(NOBODY).output().is_ok()
}

fn give_to_nobody(path: &Path) {
    fs::read_dir(path).into_iter().flatten().flatten().for_each(|entry| give_to_nobody(&entry.path()));
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

/// Arguments of `lane run` for a brief in a repository.
fn run_arguments(bed: &TestBed, repository: &Repository, brief: &str) -> Vec<String> {
    let brief = bed.brief(brief);
    let words = ["run", "--profile", "implement", "--cwd", path_text(repository.path()), "--brief", path_text(&brief)];
    words.map(str::to_owned).to_vec()
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Asserts a refusal with a way on.
fn assert_refused(answer: Answer, status: &str, code: i32, names: &str) {
    let answer = answer.expect_code(code);
    assert_eq!(answer.status(), status, "{:#}", answer.json);
    assert!(answer.text("error").contains(names), "`{names}` is not in {:#}", answer.json);
    assert!(!answer.text("hint").is_empty(), "{:#}", answer.json);
}

/// Names of the run folders and of the checkouts.
fn left_behind(bed: &TestBed) -> Vec<String> {
    let names = |folder: &str| {
        let entries = fs::read_dir(bed.state().join(folder)).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    [names("runs"), names("checkouts")].concat()
}

/// Asserts that nothing holds a slot, and nothing of the lane is alive.
fn assert_over(bed: &TestBed, lane_id: &str) {
    assert!(processes::of_lane(lane_id).is_empty(), "processes are left: {:?}", processes::of_lane(lane_id));
    assert_eq!(bed.lane(&["status"]).expect_code(0).json["running"], json!(0));
}

/// Starts a lane whose worker commits, waits at the gate and reports.
fn at_gate(bed: &TestBed, repository: &Repository) -> (String, PathBuf) {
    let gate = bed.path().join("gate");
    let brief = format!(
        "Goal: gate\nFAKE: sh echo kept > kept.txt && git add kept.txt && git commit -qm kept\n\
         FAKE: sh touch begun\nFAKE: wait-for {}\nFAKE: report STATUS: DONE\\nok\n",
        gate.display()
    );
    let started = bed.run(repository, &brief, &["--profile", "implement"]).expect_code(0);
    let begun = PathBuf::from(started.text("checkout_path")).join("begun");
    wait_until(PATIENCE, "the worker is at the gate", || begun.exists());
    (started.lane_id(), gate)
}

#[test]
fn a_full_state_folder() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    with_own_mounts(|| {
        mount_small(&bed.state(), 8);
        let filler = fill(&bed.state());
        assert_refused(bed.lane(&words(&arguments)), "disk_full", 4, path_text(&bed.state()));
        assert!(left_behind(&bed).is_empty(), "{:?}", left_behind(&bed));
        fs::remove_file(&filler).unwrap();
        let started = bed.lane(&words(&arguments)).expect_code(0);
        let ended = bed.wait(&started.lane_id()).expect_code(0);
        assert_eq!(ended.status(), "ok", "{:#}", ended.json);
        let before = left_behind(&bed);
        fill(&bed.state());
        assert_refused(bed.lane(&words(&arguments)), "disk_full", 4, path_text(&bed.state()));
        assert_eq!(left_behind(&bed), before);
        assert_eq!(bed.lane(&["status"]).expect_code(0).json["lanes"][0]["status"], "ok");
        assert_eq!(bed.lane(&["result", &started.lane_id()]).expect_code(0).json, ended.json);
        let doctor = bed.lane(&["doctor"]).expect_code(1);
        assert_eq!(health_of(&doctor, "disk"), "broken", "{:#}", doctor.json);
        assert_eq!(left_behind(&bed), before);
    });
}

#[test]
fn a_disk_with_hardly_any_room() {
    let mut bed = TestBed::new().with("LANE_MAX_CONCURRENT", "2");
    bed.set("LANE_WORKTREE_ROOT", bed.path().join("checkouts"));
    let repository = bed.repository("project");
    let mut arguments = run_arguments(&bed, &repository, COMMITS);
    arguments.push("--queue".to_owned());
    with_own_mounts(|| {
        mount_small(&bed.state(), 8);
        let first = bed.lane(&words(&arguments)).expect_code(0).lane_id();
        bed.wait(&first).expect_code(0);
        let mut started = vec![first];
        let mut refused = 0;
        for free_pages in (0..96).step_by(8) {
            let filler = fill(&bed.state());
            let room = fs::metadata(&filler).unwrap().len().saturating_sub(free_pages * 4096);
            fs::OpenOptions::new().write(true).open(&filler).unwrap().set_len(room).unwrap();
            let answer = bed.lane(&words(&arguments));
            match answer.status() {
                "started" | "queued" => started.push(answer.lane_id()),
                _ => {
                    assert_refused(answer, "disk_full", 4, path_text(&bed.state()));
                    refused += 1;
                }
            }
            fs::remove_file(&filler).unwrap();
            // What was started goes on once there is room, and ends.
            for lane_id in &started {
                let ended = bed.wait(lane_id);
                assert_ne!(ended.code, 3, "{free_pages} pages: {:#}", ended.json);
            }
            assert_eq!(bed.lane(&["status"]).json["running"], json!(0));
        }
        assert!(refused > 0 && started.len() > 1, "{refused} refused, {} started", started.len());
        let folders: Vec<_> = fs::read_dir(bed.state().join("runs")).unwrap().flatten().collect();
        let listed = bed.lane(&["status", "--all"]).json["lanes"].as_array().unwrap().len();
        assert_eq!(folders.len(), listed, "a refused lane left a folder");
        assert_eq!(health_of(&bed.lane(&["doctor"]), "ledger"), "ok");
    });
}

/// How a thing is, by the doctor.
fn health_of(doctor: &Answer, name: &str) -> String {
    let checks = doctor.json["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    check["health"].as_str().unwrap().to_owned()
}

#[test]
fn the_disk_fills_while_the_worker_works() {
    let mut bed = TestBed::new();
    bed.set("LANE_WORKTREE_ROOT", bed.path().join("checkouts"));
    let repository = bed.repository("project");
    with_own_mounts(|| {
        mount_small(&bed.state(), 8);
        let (lane_id, gate) = at_gate(&bed, &repository);
        let filler = fill(&bed.state());
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).status(), "running");
        fs::write(gate, "").unwrap();
        wait_until(PATIENCE, "the worker has ended", || processes::of_lane(&lane_id).is_empty());
        // Nothing can be recorded now, and nobody says that it has ended.
        let waited = bed.lane(&["wait", &lane_id, "--max", "300ms"]);
        assert!(waited.status() == "running" || waited.status() == "disk_full", "{:#}", waited.json);
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).status(), "running");
        fs::remove_file(&filler).unwrap();
        let ended = bed.wait(&lane_id);
        // The end of the stream was lost with the room for it.
        assert_ne!(ended.json["accepted"], json!(true), "{:#}", ended.json);
        assert_eq!(ended.json["changes"]["files"], 2, "{:#}", ended.json);
        assert_eq!(repository.git(&["show", &format!("lane/{lane_id}:kept.txt")]), "kept");
        assert_over(&bed, &lane_id);
    });
}

#[test]
fn the_disk_fills_while_the_holdout_runs() {
    let mut bed = TestBed::new();
    bed.set("LANE_WORKTREE_ROOT", bed.path().join("checkouts"));
    let repository = bed.repository("project");
    let (begun, gate) = (bed.path().join("begun"), bed.path().join("gate"));
    let check = format!("touch {}; until test -f {}; do sleep 0.02; done", begun.display(), gate.display());
    with_own_mounts(|| {
        mount_small(&bed.state(), 8);
        let started = bed.run(&repository, COMMITS, &["--profile", "implement", "--holdout", &check]).expect_code(0);
        let lane_id = started.lane_id();
        wait_until(PATIENCE, "the check runs", || begun.exists());
        let filler = fill(&bed.state());
        fs::write(gate, "").unwrap();
        let supervisor = supervisor_pid(&bed.run_dir(&lane_id));
        wait_until(PATIENCE, "the supervisor gives up", || !processes::is_alive(supervisor));
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(3).status(), "running");
        fs::remove_file(&filler).unwrap();
        let ended = bed.wait(&lane_id).expect_code(0);
        assert_eq!((ended.status(), &ended.json["accepted"]), ("ok", &json!(true)), "{:#}", ended.json);
        assert_over(&bed, &lane_id);
    });
}

#[test]
fn no_room_for_the_checkout() {
    let mut bed = TestBed::new();
    let root = bed.path().join("checkouts");
    bed.set("LANE_WORKTREE_ROOT", &root);
    let repository = bed.repository("project");
    repository.write("big.bin", &"x".repeat(3 << 20)).commit("big");
    with_own_mounts(|| {
        mount_small(&root, 1);
        for mode in ["clone", "linked"] {
            let started = bed.run(&repository, COMMITS, &["--profile", "implement", "--checkout", mode]);
            let lane_id = started.expect_code(0).lane_id();
            let ended = bed.wait(&lane_id).expect_code(1);
            assert_eq!((ended.status(), ended.text("class")), ("checkout_failed", "infra"), "{:#}", ended.json);
            assert!(ended.text("error").contains("write"), "{:#}", ended.json);
            assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "{mode}");
            assert_eq!(repository.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
            assert_eq!(repository.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
            assert_over(&bed, &lane_id);
        }
    });
}

#[test]
fn a_read_only_state_folder() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let ended = bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    let lane_id = ended.lane_id();
    let (live, gate) = at_gate(&bed, &repository);
    let before = left_behind(&bed);
    with_own_mounts(|| {
        mount_read_only(&bed.state());
        assert_refused(bed.lane(&words(&arguments)), "disk_full", 4, path_text(&bed.state()));
        assert_eq!(bed.lane(&["status"]).expect_code(0).json["running"], json!(1));
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(0).json, ended.json);
        assert_eq!(bed.wait(&lane_id).expect_code(0).json, ended.json);
        assert_eq!(bed.lane(&["status", &live]).expect_code(3).status(), "running");
        assert_eq!(bed.lane(&["wait", &live, "--max", "50ms"]).expect_code(3).status(), "running");
        assert_refused(bed.lane(&["cancel", &live]), "disk_full", 4, path_text(&bed.state()));
        let doctor = bed.lane(&["doctor"]).expect_code(1);
        assert_eq!(health_of(&doctor, "state_folder"), "broken", "{:#}", doctor.json);
        assert_eq!(health_of(&doctor, "ledger"), "ok", "{:#}", doctor.json);
        // A lane whose supervisor died cannot be taken up from here, and the answer is still there.
        processes::kill(supervisor_pid(&bed.run_dir(&live)));
        wait_until(PATIENCE, "the supervisor is gone", || !processes::is_alive(supervisor_pid(&bed.run_dir(&live))));
        assert_eq!(bed.lane(&["status", &live]).expect_code(3).status(), "running");
        assert_eq!(bed.lane(&["status", &lane_id]).expect_code(0).json, ended.json);
    });
    assert_eq!(left_behind(&bed), before);
    fs::write(gate, "").unwrap();
    assert_eq!(bed.wait(&live).expect_code(0).status(), "ok");
}

#[test]
fn a_new_state_folder_where_nothing_can_be_written() {
    let mut bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let parent = bed.path().join("sealed");
    fs::create_dir(&parent).unwrap();
    bed.set("LANE_STATE", parent.join("state"));
    with_own_mounts(|| {
        mount_read_only(&parent);
        assert_refused(bed.lane(&words(&arguments)), "disk_full", 4, "sealed");
        assert_refused(bed.lane(&["status"]), "disk_full", 4, "sealed");
        let doctor = bed.lane(&["doctor"]).expect_code(1);
        assert_eq!(health_of(&doctor, "state_folder"), "broken", "{:#}", doctor.json);
    });
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
}

#[test]
fn somebody_elses_state_folder() {
    if !nobody_can_start_us() {
        return skip("the programs cannot be started as another person", "LANE_REQUIRE_FAULTS");
    }
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let ended = bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    give_to_nobody(repository.path());
    give_to_nobody(&bed.home());
    chown(bed.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let before = left_behind(&bed);
    fs::set_permissions(bed.state(), fs::Permissions::from_mode(0o700)).unwrap();
    for command in [words(&arguments), vec!["status"], vec!["result", "x"], vec!["clean"]] {
        assert_refused(as_nobody(&bed, &command), "disk_full", 4, path_text(&bed.state()));
    }
    let doctor = as_nobody(&bed, &["doctor"]).expect_code(1);
    assert_eq!(health_of(&doctor, "state_folder"), "broken", "{:#}", doctor.json);
    open_for_reading(&bed.state());
    assert_refused(as_nobody(&bed, &words(&arguments)), "disk_full", 4, path_text(&bed.state()));
    assert_eq!(as_nobody(&bed, &["status"]).expect_code(0).json["lanes"][0]["status"], "ok");
    assert_eq!(as_nobody(&bed, &["result", &ended.lane_id()]).expect_code(0).json, ended.json);
    assert_eq!(left_behind(&bed), before);
}

fn open_for_reading(path: &Path) {
    let is_dir = fs::symlink_metadata(path).unwrap().is_dir();
    if is_dir {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| open_for_reading(&entry.path()));
    }
    fs::set_permissions(path, fs::Permissions::from_mode(if is_dir { 0o755 } else { 0o644 })).unwrap();
}

#[test]
fn a_person_without_rights_needs_none() {
    if !nobody_can_start_us() {
        return skip("the programs cannot be started as another person", "LANE_REQUIRE_FAULTS");
    }
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let outside = bed.path().join("outside.txt");
    let brief = format!(
        "Goal: write\nFAKE: sh echo hello > new.txt && git add new.txt && git commit -qm new\n\
         FAKE: sh echo no > {}\nFAKE: sh setsid sleep 600 >/dev/null 2>&1 &\nFAKE: report STATUS: DONE\\nok\n",
        outside.display()
    );
    let brief = bed.brief(&brief);
    give_to_nobody(&bed.path());
    for profile in ["implement", "opus"] {
        let started = as_nobody(
            &bed,
            &[
                "run",
                "--profile",
                profile,
                "--cwd",
                path_text(repository.path()),
                "--brief",
                path_text(&brief),
                "--holdout",
                "test -f new.txt",
                "--protect",
                "README.md",
            ],
        )
        .expect_code(0);
        let lane_id = started.lane_id();
        let ended = as_nobody(&bed, &["wait", &lane_id, "--max", "30s"]).expect_code(0);
        assert_eq!((ended.status(), &ended.json["accepted"]), ("ok", &json!(true)), "{:#}", ended.json);
        assert_eq!(outside.exists(), profile == "implement", "Landlock holds {profile} back");
        assert!(processes::of_lane(&lane_id).is_empty());
        let cleaned = as_nobody(&bed, &["clean", &lane_id]).expect_code(0);
        assert!(!Path::new(started.text("checkout_path")).exists(), "{:#}", cleaned.json);
        let _ = fs::remove_file(&outside);
    }
}

#[test]
fn no_watches_are_left() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let wrap = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
    let wrapped = |arguments: &[&str]| {
        let mut command = bed.command("unshare", &bed.path());
        command.args(["--user", "--map-root-user", "sh", "-c", wrap, "sh"]).arg(lane_program()).args(arguments);
        command
    };
    if !wrapped(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        return skip("the number of watches cannot be limited", "LANE_REQUIRE_FAULTS");
    }
    let gate = bed.path().join("gate");
    let brief = format!("{COMMITS}FAKE: wait-for {}\n", gate.display());
    let arguments = run_arguments(&bed, &repository, &brief);
    let started = bed.answer_of(wrapped(&words(&arguments)), &["run"]).expect_code(0);
    let lane_id = started.lane_id();
    let waiting = ["wait", &lane_id, "--max", "20s"];
    let waiter = bed.background(wrapped(&waiting), &waiting);
    wait_until(PATIENCE, "the worker works", || bed.lane(&["status", &lane_id]).text("state") == "working");
    let opened = Instant::now();
    fs::write(gate, "").unwrap();
    assert_eq!(waiter.finish().expect_code(0).status(), "ok");
    assert!(opened.elapsed() < Duration::from_secs(3), "{:?}", opened.elapsed());
    let hanging = run_arguments(&bed, &repository, "Goal: x\nFAKE: hang\n");
    let lane_id = bed.answer_of(wrapped(&words(&hanging)), &["run"]).expect_code(0).lane_id();
    bed.lane(&["cancel", &lane_id]).expect_code(0);
    assert_eq!(bed.answer_of(wrapped(&["wait", &lane_id]), &["wait"]).expect_code(1).status(), "cancelled");
    assert_over(&bed, &lane_id);
}
