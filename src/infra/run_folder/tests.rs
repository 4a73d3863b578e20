//! Run folders on a real disk.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;

/// Far longer than anything here takes, so that a lost wake-up shows as a failure.
const LONG: Millis = Millis(20_000);

fn plan(folder: &TempDir) -> Plan {
    let sample = include_bytes!("../../../tests/fixtures/formats/1/plan.json");
    Plan { run_dir: folder.path().join("state/runs/lane"), ..read_plan(sample).unwrap() }
}

fn environment() -> Environment {
    Environment(vec![
        ("PATH".into(), "/bin".into()),
        ("ODD".into(), OsString::from_vec(vec![b'a', 0xff, b'"'])),
        ("PATH".into(), "again".into()),
        ("EMPTY".into(), "".into()),
    ])
}

/// A run folder of a lane that was just called.
fn created(folder: &TempDir) -> (RunFoldersOnDisk, PathBuf) {
    let folders = RunFoldersOnDisk::new();
    let plan = plan(folder);
    folders.create(&plan, "the brief", "the task", &environment()).unwrap().finish().unwrap();
    (folders, plan.run_dir)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_folder_holds_what_was_handed_in_and_is_private() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    assert_eq!(folders.load_plan(&run_dir).unwrap(), plan(&folder));
    assert_eq!(folders.load_environment(&run_dir).unwrap(), environment());
    assert_eq!(folders.read_tail(&run_dir, "brief.md", 99).unwrap().unwrap(), b"the brief");
    assert_eq!(folders.read_tail(&run_dir, "task.md", 99).unwrap().unwrap(), b"the task");
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(&run_dir), mode(run_dir.parent().unwrap())), (0o700, 0o700));
    for name in names(&run_dir) {
        assert_eq!(mode(&run_dir.join(&name)), 0o600, "{name}");
    }
    let again = folders.create(&plan(&folder), "other", "other", &environment()).map(drop).unwrap_err();
    assert_eq!(again.kind, PortErrorKind::Held);
    assert_eq!(folders.read_tail(&run_dir, "brief.md", 99).unwrap().unwrap(), b"the brief");
    folders.forget_environment(&run_dir);
    assert!(folders.load_environment(&run_dir).is_err());
}

#[test]
fn discarding_takes_only_what_creating_made() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    drop(folders.claim(&run_dir).unwrap());
    std::fs::write(run_dir.join("foreign"), "keep").unwrap();
    folders.discard(&plan(&folder));
    assert_eq!(names(&run_dir), ["foreign"]);
    std::fs::remove_file(run_dir.join("foreign")).unwrap();
    folders.discard(&plan(&folder));
    assert!(!run_dir.exists());
}

#[test]
fn a_newer_or_damaged_plan_says_so() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    for (text, kind) in [
        (r#"{"format": 99, "shape": "new"}"#, PortErrorKind::TooNew),
        (r#"{"format": 1}"#, PortErrorKind::Damaged),
        ("", PortErrorKind::Damaged),
    ] {
        folders.write(&run_dir, PLAN, text.as_bytes()).unwrap();
        let error = folders.load_plan(&run_dir).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains("plan.json"), "{error}");
    }
    folders.write(&run_dir, ENVIRONMENT, br#"{"format":1,"variables":[{"name":"KEY","value":["hush"]}]}"#).unwrap();
    let error = folders.load_environment(&run_dir).unwrap_err();
    assert!(error.kind == PortErrorKind::Damaged && !error.message.contains("hush"), "{error}");
}

#[test]
fn links_are_not_followed() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let outside = folder.path().join("outside");
    std::fs::write(&outside, "theirs\n").unwrap();
    std::fs::remove_file(run_dir.join("supervisor.lock")).unwrap();
    for name in ["result.json", "cancel", "ended", "supervisor.lock", "events.jsonl"] {
        symlink(&outside, run_dir.join(name)).unwrap();
    }
    assert!(folders.read_tail(&run_dir, "events.jsonl", 9).is_err());
    assert!(folders.lines(&run_dir, "events.jsonl", 0, true, &mut |_| ()).is_err());
    assert!(folders.request_cancel(&run_dir).is_err() && folders.mark_ended(&run_dir).is_err());
    assert!(folders.claim(&run_dir).is_err() && folders.is_claimed(&run_dir).is_err());
    folders.write(&run_dir, "result.json", b"ours").unwrap();
    assert!(run_dir.join("result.json").symlink_metadata().unwrap().is_file(), "the link was replaced");
    assert_eq!(std::fs::read(&outside).unwrap(), b"theirs\n");

    let link = folder.path().join("link");
    symlink(&run_dir, &link).unwrap();
    assert!(folders.load_plan(&link).is_err() && folders.claim(&link).is_err());
    assert!(folders.write(&link, "x", b"").is_err() && folders.request_cancel(&link).is_err());
    let linked_plan = Plan { run_dir: link.clone(), ..plan(&folder) };
    folders.discard(&linked_plan);
    assert!(link.exists() && run_dir.join(PLAN).exists());
    for name in ["", ".", "..", "../x", "a/b", "/x"] {
        assert!(folders.write(&run_dir, name, b"").is_err(), "{name}");
    }
}

#[test]
fn files_are_replaced_whole_and_read_from_their_end() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    assert_eq!(folders.read_tail(&run_dir, "result.json", 9).unwrap(), None);
    for content in ["first", "second"] {
        folders.write(&run_dir, "result.json", content.as_bytes()).unwrap();
        assert_eq!(folders.read_tail(&run_dir, "result.json", 99).unwrap().unwrap(), content.as_bytes());
    }
    assert_eq!(folders.read_tail(&run_dir, "result.json", 3).unwrap().unwrap(), b"ond");
    assert!(names(&run_dir).iter().all(|name| !name.starts_with('.')), "nothing half made is left");
    let mut lines = Vec::new();
    std::fs::write(run_dir.join("events.jsonl"), "one\ntwo\nthr").unwrap();
    let end = folders.lines(&run_dir, "events.jsonl", 4, false, &mut |line| lines.push(line.to_vec())).unwrap();
    assert_eq!((lines, end), (vec![b"two".to_vec()], 8));
    assert_eq!(folders.lines(&run_dir, "none", 7, true, &mut |_| ()).unwrap(), 7);
}

#[test]
fn a_claim_is_exclusive_and_lives_as_long_as_its_file() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    std::fs::remove_file(run_dir.join("supervisor.lock")).unwrap();
    assert!(!folders.is_claimed(&run_dir).unwrap());
    assert!(!run_dir.join("supervisor.lock").exists(), "looking makes nothing");
    let claim = folders.claim(&run_dir).unwrap();
    assert!(folders.is_claimed(&run_dir).unwrap());
    assert_eq!(folders.claim(&run_dir).unwrap_err().kind, PortErrorKind::Held);
    let handed_on = claim.file.try_clone().unwrap();
    drop(claim);
    assert!(folders.is_claimed(&run_dir).unwrap(), "whoever it was handed to still has it");
    drop(handed_on);
    assert!(!folders.is_claimed(&run_dir).unwrap());
    // What stands in the file is of no interest, whoever wrote it.
    std::fs::write(run_dir.join("supervisor.lock"), "4711").unwrap();
    assert!(folders.claim(&run_dir).is_ok());
}

#[test]
fn of_many_contenders_one_gets_the_claim_although_others_look() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    for _ in 0..100 {
        let (won, start) = (AtomicU32::new(0), std::sync::Barrier::new(6));
        std::thread::scope(|scope| {
            for contender in 0..6 {
                let (folders, run_dir, won, start) = (&folders, &run_dir, &won, &start);
                scope.spawn(move || {
                    start.wait();
                    let claim = if contender < 3 { folders.claim(run_dir).ok() } else { None };
                    won.fetch_add(u32::from(claim.is_some()), Ordering::SeqCst);
                    folders.is_claimed(run_dir).unwrap();
                    // Nobody lets go before all have tried.
                    start.wait();
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
    }
}

#[test]
fn each_request_to_stop_is_there_to_be_seen() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    assert!(!folders.cancel_requested(&run_dir));
    folders.request_cancel(&run_dir).unwrap();
    folders.request_cancel(&run_dir).unwrap();
    assert!(folders.cancel_requested(&run_dir));
    assert_eq!(folders.read_tail(&run_dir, "cancel", 99).unwrap().unwrap(), b"cancel\ncancel\n");
}

/// Waits for `run_dir` while `change` happens beside, and returns how long it took.
fn wake(folders: &RunFoldersOnDisk, run_dir: &Path, change: impl FnOnce() + Send) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(change);
        folders.wait_for_change(&[run_dir.to_owned()], LONG).unwrap();
    });
    start.elapsed()
}

fn assert_woken(took: Duration) {
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_waiter_wakes_for_each_kind_of_change() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let quiet = folders.wait_for_change(std::slice::from_ref(&run_dir), Millis(20));
    assert!(quiet.is_ok());
    assert_woken(wake(&folders, &run_dir, || folders.request_cancel(&run_dir).unwrap()));
    assert_woken(wake(&folders, &run_dir, || folders.write(&run_dir, "result.json", b"{}").unwrap()));
    assert_woken(wake(&folders, &run_dir, || {
        files::append(&run_dir, "events.jsonl", b"line\n").unwrap();
    }));
    assert_woken(wake(&folders, &run_dir, || folders.mark_ended(&run_dir).unwrap()));
}

#[test]
fn a_wait_lasts_its_time_when_nothing_happens() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let _claim = folders.claim(&run_dir).unwrap();
    folders.write(&run_dir, wait::SUPERVISOR_JSON, b"{}").unwrap();
    let start = Instant::now();
    folders.wait_for_change(&[run_dir], Millis(120)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(120));
}

#[test]
fn what_happens_between_two_waits_is_not_lost() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    folders.wait_for_change(std::slice::from_ref(&run_dir), Millis(1)).unwrap();
    files::append(&run_dir, "events.jsonl", b"line\n").unwrap();
    assert_woken(wake(&folders, &run_dir, || ()));
}

#[test]
fn an_end_or_a_dead_supervisor_from_before_is_told_at_once_and_once() {
    let folder = TempDir::new().unwrap();
    for name in [ENDED, wait::SUPERVISOR_JSON] {
        let (folders, run_dir) = created(&folder);
        files::append(&run_dir, name, b"").unwrap();
        let first = wake(&folders, &run_dir, || ());
        assert_woken(first);
        // A caller that does nothing about it must not spin, nor sleep for ever.
        let second = wake(&folders, &run_dir, || ());
        assert_woken(second);
        assert!(second >= Duration::from_millis(100), "{second:?}");
        files::remove(&run_dir, name);
        folders.discard(&plan(&folder));
    }
}

#[test]
fn a_waiter_wakes_when_the_supervisor_dies() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let claim = folders.claim(&run_dir).unwrap();
    folders.write(&run_dir, wait::SUPERVISOR_JSON, b"{}").unwrap();
    folders.wait_for_change(std::slice::from_ref(&run_dir), Millis(1)).unwrap();
    assert_woken(wake(&folders, &run_dir, move || drop(claim)));
    assert!(!folders.is_claimed(&run_dir).unwrap());
}

/// The same without the kernel's help: a folder that cannot be watched is looked at again and again.
#[test]
fn a_folder_that_cannot_be_watched_is_still_waited_for() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let missing = folder.path().join("missing");
    let both = [run_dir.clone(), missing];
    let start = Instant::now();
    folders.wait_for_change(&both, Millis(150)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(150));
    for change in [ENDED, "events.jsonl"] {
        std::thread::scope(|scope| {
            scope.spawn(|| files::append(&run_dir, change, b"x"));
            folders.wait_for_change(&both, LONG).unwrap();
        });
    }
    assert_woken(start.elapsed());
}

#[test]
fn growing_output_wakes_only_so_often() {
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    files::append(&run_dir, "events.jsonl", b"").unwrap();
    folders.wait_for_change(std::slice::from_ref(&run_dir), Millis(1)).unwrap();
    folders.wait_for_change(std::slice::from_ref(&run_dir), Millis(1)).unwrap();
    let mut stream = std::fs::OpenOptions::new().append(true).open(run_dir.join("events.jsonl")).unwrap();
    std::io::Write::write_all(&mut stream, b"line\n").unwrap();
    let took = wake(&folders, &run_dir, || ());
    assert!(took >= Duration::from_millis(50), "{took:?}");
    assert_woken(took);
}

fn look(folder: &TempDir, paths: &[&str]) -> Vec<(String, String, u32, String)> {
    let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
    let entries = RunFoldersOnDisk::new().look_at_protected(folder.path(), &paths).unwrap();
    entries.into_iter().map(|entry| (entry.path, entry.file_type, entry.mode, entry.digest)).collect()
}

#[test]
fn protected_paths_are_described_without_following_links() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(path("tests/deep")).unwrap();
    std::fs::create_dir_all(path(".git")).unwrap();
    std::fs::write(path("tests/deep/a"), "abc").unwrap();
    std::fs::write(path("tests/b"), "").unwrap();
    symlink("/etc", path("tests/link")).unwrap();
    nix::unistd::mkfifo(&path("tests/pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    for (name, mode) in [("tests", 0o755), ("tests/deep", 0o700), ("tests/deep/a", 0o640), ("tests/b", 0o755)] {
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let entry = |name: &str, word: &str, mode: u32, digest: &str| (name.into(), word.into(), mode, digest.into());
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let expected = [
        entry("gone", "missing", 0, ""),
        entry("tests", "directory", 0o755, ""),
        entry("tests/b", "file", 0o755, empty),
        entry("tests/deep", "directory", 0o700, ""),
        entry("tests/deep/a", "file", 0o640, abc),
        entry("tests/link", "symlink", 0o777, "/etc"),
        entry("tests/link/hostname", "missing", 0, ""),
        entry("tests/pipe", "other", 0o600, ""),
    ];
    let seen = look(&folder, &["tests/", "gone", "./tests/deep/a", "tests/link/hostname"]);
    assert_eq!(seen, expected);
    assert!(look(&folder, &["."]).iter().all(|(path, ..)| path != ".git"));
    for outside in ["/etc/passwd", "../x", "tests/../../x"] {
        let looked = RunFoldersOnDisk::new().look_at_protected(folder.path(), &[outside.to_owned()]);
        assert!(looked.is_err(), "{outside}");
    }
}

#[test]
fn names_that_are_no_text_stay_apart() {
    let folder = TempDir::new().unwrap();
    for name in [vec![b'a', 0xff], vec![b'a', 0xfe], br"a\xff".to_vec()] {
        std::fs::write(folder.path().join(OsString::from_vec(name)), "").unwrap();
    }
    let paths: Vec<String> = look(&folder, &["."]).into_iter().map(|(path, ..)| path).collect();
    assert_eq!(paths, ["", r"a\\xff", r"a\xfe", r"a\xff"]);
}

#[test]
fn a_rollout_is_found_by_its_session() {
    let folder = TempDir::new().unwrap();
    let day = |day: &str| folder.path().join("sessions").join(day);
    for (place, name) in [
        ("2025/12/31", "rollout-2025-12-31T23-59-59-aaaa-1.jsonl"),
        ("2026/01/01", "rollout-2026-01-01T00-00-00-aaaa-1.jsonl"),
        ("2026/01/01", "rollout-2026-01-01T00-00-00-bbbb-2.jsonl"),
        ("2026/01/01", "other-bbbb-3.jsonl"),
        ("notes/01/01", "rollout-x-bbbb-4.jsonl"),
    ] {
        std::fs::create_dir_all(day(place)).unwrap();
        std::fs::write(day(place).join(name), "").unwrap();
    }
    let find = |id: &str| RunFoldersOnDisk::new().find_rollout(folder.path(), id);
    let newest = day("2026/01/01");
    assert_eq!(find("aaaa-1"), Some(newest.join("rollout-2026-01-01T00-00-00-aaaa-1.jsonl")));
    assert_eq!(find("bbbb-2"), Some(newest.join("rollout-2026-01-01T00-00-00-bbbb-2.jsonl")));
    for id in ["bbbb-3", "bbbb-4", "cccc", "", "../x", "*"] {
        assert_eq!(find(id), None, "{id}");
    }
}

#[test]
fn free_space_is_that_of_the_nearest_folder() {
    let folder = TempDir::new().unwrap();
    let folders = RunFoldersOnDisk::new();
    let free = folders.free_bytes(&folder.path().join("not/there/yet")).unwrap();
    let near = folders.free_bytes(folder.path()).unwrap();
    assert!(free > 0 && free.abs_diff(near) < 1 << 30);
}

#[test]
fn every_line_of_a_long_stream_is_seen_once() {
    let count: u64 = 2 << 10;
    let folder = TempDir::new().unwrap();
    let (folders, run_dir) = created(&folder);
    let line = [vec![b'x'; 1023], vec![b'\n']].concat();
    std::fs::write(run_dir.join("events.jsonl"), line.repeat(2 << 10)).unwrap();
    let mut lines = 0;
    let end = folders.lines(&run_dir, "events.jsonl", 0, false, &mut |line| lines += u64::from(line.len() == 1023));
    assert_eq!((lines, end.unwrap()), (count, count * 1024));
}
