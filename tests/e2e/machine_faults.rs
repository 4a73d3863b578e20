//! What the machine can do to Lane: a full disk, folders that cannot be written, a person without
//! rights, no watches left, odd paths, closed streams, a damaged database.
//!
//! Always: one line of JSON, the right exit code, a hint that names the way on, nothing left behind,
//! no hang, and no work lost.

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

#[test]
fn long_paths() {
    let mut bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let deep = |length: usize| {
        let mut path = bed.path();
        while path.as_os_str().len() + 101 < length {
            path.push("d".repeat(100));
        }
        path.join("e".repeat(length.saturating_sub(path.as_os_str().len() + 1).max(1)))
    };
    // Far beyond what a socket's name may have: an ordinary folder.
    let (far, too_far) = (deep(400), deep(4050));
    let too_long_name = bed.path().join("n".repeat(300));
    bed.set("LANE_STATE", &far);
    let started = bed.lane(&words(&arguments)).expect_code(0);
    assert_eq!(bed.wait(&started.lane_id()).expect_code(0).status(), "ok");
    bed.lane(&["clean", &started.lane_id()]).expect_code(0);
    bed.set("LANE_STATE", &too_far);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
    assert_refused(bed.lane(&["status"]), "usage_error", 2, "too long");
    bed.set("LANE_STATE", &too_long_name);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
    bed.unset("LANE_STATE");
    bed.set("HOME", &too_far);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
}

#[test]
fn odd_paths() {
    let mut bed = TestBed::new();
    let repository = bed.repository("a 'project' \"of\" $mine;\t");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    bed.set("LANE_STATE", bed.path().join("st ate '\"$(x)\t\u{e9}"));
    let mut run = words(&arguments);
    run.extend(["--holdout", "test -f new.txt", "--protect", "README.md"]);
    for profile in ["implement", "opus"] {
        run[2] = profile;
        let started = bed.lane(&run).expect_code(0);
        let ended = bed.wait(&started.lane_id()).expect_code(0);
        assert_eq!(ended.json["accepted"], json!(true), "{:#}", ended.json);
        bed.lane(&["clean", &started.lane_id()]).expect_code(0);
    }
    let odd = bed.path().join(std::ffi::OsStr::from_bytes(b"st\xffate"));
    for name in ["LANE_STATE", "LANE_WORKTREE_ROOT", "LANE_CODEX_HOME", "LANE_MAX_CONCURRENT"] {
        let mut bed = TestBed::new();
        let repository = bed.repository("project");
        bed.set(name, &odd);
        let arguments = run_arguments(&bed, &repository, COMMITS);
        assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, name);
        assert!(left_behind(&bed).is_empty());
    }
    assert!(!odd.exists());
    // A repository whose name is no text, or has a line feed.
    for (name, says) in [(b"r\xffepo", "UTF-8"), (b"r\nepo", "line feed")] {
        let repository = bed.repository("plain");
        let moved = bed.path().join(std::ffi::OsStr::from_bytes(name));
        fs::rename(repository.path(), &moved).unwrap();
        let answer = ask(&bed, &["run", "--profile", "implement", "--task", "x", "--cwd"], |command| {
            command.arg(&moved);
        });
        assert_refused(answer, "usage_error", 2, says);
    }
}

#[test]
fn closed_streams() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let out = bed.path().join("out");
    for (number, closing) in ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"].into_iter().enumerate() {
        let mut command = bed.command("sh", &bed.path());
        let keeps_stdout = !closing.contains(">&-") || closing.replace("2>&-", "").trim() == "<&-" || closing == "2>&-";
        let script = if keeps_stdout {
            format!("exec \"$@\" >'{}' {closing}", out.display())
        } else {
            format!("exec \"$@\" {closing}")
        };
        command.args(["-c", &script, "sh"]).arg(lane_program()).args(&arguments);
        assert_eq!(command.status().unwrap().code(), Some(0), "{closing}");
        let listed = bed.lane(&["status", "--all"]).expect_code(0);
        let lanes = listed.json["lanes"].as_array().unwrap();
        assert_eq!(lanes.len(), number + 1, "{closing}: {:#}", listed.json);
        let lane_id = lanes[0]["lane_id"].as_str().unwrap().to_owned();
        if keeps_stdout {
            let line: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
            assert_eq!(line["lane_id"], lane_id.as_str(), "{closing}");
        }
        let ended = bed.wait(&lane_id).expect_code(0);
        assert_eq!(ended.status(), "ok", "{closing}: {:#}", ended.json);
        // Nothing that was meant for a closed stream has landed in a file of Lane's own.
        for entry in fs::read_dir(bed.run_dir(&lane_id)).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let is_result = entry.file_name() == "result.json";
            let holds_start = String::from_utf8_lossy(&text).contains("\"status\":\"started\"");
            assert!(!holds_start || is_result, "{closing}: {}", entry.path().display());
        }
        assert_eq!(health_of(&bed.lane(&["doctor"]), "ledger"), "ok", "{closing}");
    }
}

#[test]
fn the_run_folder_vanishes() {
    let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
    let repository = bed.repository("project");
    let (lane_id, gate) = at_gate(&bed, &repository);
    fs::remove_dir_all(bed.run_dir(&lane_id)).unwrap();
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("lost", "infra"), "{:#}", ended.json);
    assert!(ended.text("error").contains("run folder"), "{:#}", ended.json);
    assert_over(&bed, &lane_id);
    // Its commits are where the answer says.
    let checkout = bed.state().join("checkouts").join(&lane_id);
    assert!(ended.text("error").contains(path_text(&checkout)), "{:#}", ended.json);
    assert_eq!(fs::read_to_string(checkout.join("kept.txt")).unwrap(), "kept\n");
    let next = bed.run(&repository, COMMITS, &["--profile", "implement"]).expect_code(0);
    assert_eq!(bed.wait(&next.lane_id()).expect_code(0).status(), "ok");
    // Cleaning never removes what is saved nowhere.
    let cleaned = bed.lane(&["clean", &lane_id]);
    let kept = checkout.join("kept.txt").exists();
    let saved = Command::new("git")
        .args(["-C", path_text(repository.path()), "show", &format!("lane/{lane_id}:kept.txt")])
        .output()
        .is_ok_and(|output| output.status.success());
    assert!(kept || saved, "{:#}", cleaned.json);
}

#[test]
fn a_damaged_database() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    let before = left_behind(&bed);
    let database = bed.state().join("lane.db");
    rusqlite::Connection::open(&database).unwrap().pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let good = fs::read(&database).unwrap();
    let truncated = good[..good.len() / 2 + 100].to_vec();
    let mut no_header = good.clone();
    no_header[..100].fill(b'x');
    let mut garbage_page = good.clone();
    garbage_page[4096..].fill(0xa5);
    for (damage, content) in [("truncated", truncated), ("no header", no_header), ("garbage", garbage_page)] {
        for name in ["lane.db-wal", "lane.db-shm"] {
            let _ = fs::remove_file(bed.state().join(name));
        }
        fs::write(&database, &content).unwrap();
        for command in [words(&arguments), vec!["status"]] {
            let answer = bed.lane(&command).expect_code(1);
            assert_eq!((answer.status(), answer.text("class")), ("error", "infra"), "{damage}: {:#}", answer.json);
            assert!(answer.text("error").contains("lane.db is damaged"), "{damage}: {:#}", answer.json);
            assert!(answer.text("hint").contains("lane.db"), "{damage}: {:#}", answer.json);
        }
        let doctor = bed.lane(&["doctor"]).expect_code(1);
        assert_eq!(health_of(&doctor, "ledger"), "broken", "{damage}: {:#}", doctor.json);
        assert_eq!(left_behind(&bed), before, "{damage}");
        assert_eq!(fs::read(&database).unwrap(), content, "{damage}: it was written to");
    }
}

#[test]
fn a_newer_database_is_read_only() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let ended = bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    let before = left_behind(&bed);
    rusqlite::Connection::open(bed.state().join("lane.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert_refused(bed.lane(&words(&arguments)), "state_too_new", 2, "99");
    assert_eq!(left_behind(&bed), before);
    assert_eq!(bed.lane(&["status"]).expect_code(0).json["lanes"][0]["lane_id"], ended.text("lane_id"));
    assert_eq!(bed.lane(&["result", &ended.lane_id()]).expect_code(0).json, ended.json);
    bed.lane(&["doctor"]);
}

#[test]
fn the_state_folder_is_no_folder() {
    let mut bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let (file, link) = (bed.path().join("file"), bed.path().join("link"));
    fs::write(&file, "not yours").unwrap();
    std::os::unix::fs::symlink(bed.path().join("nowhere"), &link).unwrap();
    for place in [file.clone(), file.join("below"), PathBuf::from("/dev/null"), link] {
        bed.set("LANE_STATE", &place);
        for command in [words(&arguments), vec!["status"], vec!["doctor"]] {
            assert_refused(bed.lane(&command), "usage_error", 2, "LANE_STATE");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not yours");
    let nothing = bed.state();
    bed.set("LANE_STATE", &nothing);
    fs::create_dir(nothing.join("config.toml")).unwrap();
    assert_refused(bed.lane(&["status"]), "bad_config", 2, "config.toml");
    fs::remove_dir(nothing.join("config.toml")).unwrap();
    fs::write(nothing.join("config.toml"), b"max_concurrent = 4 # \xff\n").unwrap();
    assert_refused(bed.lane(&["status"]), "bad_config", 2, "config.toml");
}
