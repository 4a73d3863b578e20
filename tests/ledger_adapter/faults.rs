//! A full disk and a read-only folder, made in a mount namespace of their own.

use std::process::Command;

use super::*;

/// Runs an ignored test of this file where `set_up` has changed the mounts, in a namespace of its own.
fn in_a_namespace(set_up: &str, test: &str) {
    let program = Path::new("/proc/self/exe").canonicalize().unwrap();
    let script = format!("{set_up} && exec \"$0\" --exact {test} --ignored --nocapture --test-threads=1");
    let output = Command::new("unshare").args(["-rm", "sh", "-c", &script]).arg(&program).output();
    let Ok(output) = output else { return skipped("there is no unshare") };
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !text.contains("running 1 test") {
        return skipped(&text);
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn skipped(reason: &str) {
    assert!(!is_set("LANE_REQUIRE_FAULTS"), "skipped: {reason}");
    // The test's own channel: what a test prints is shown with `--nocapture`.
    std::io::Write::write_all(&mut std::io::stdout(), format!("skipped: {reason}\n").as_bytes()).unwrap();
}

#[test]
fn a_full_disk_is_no_room() {
    in_a_namespace(
        "mount -t tmpfs -o size=400k none /mnt && touch /mnt/only-for-this-test",
        "faults::full_disk_inside",
    );
}

#[test]
#[ignore = "runs inside a namespace, started by another test"]
fn full_disk_inside() {
    assert!(Path::new("/mnt/only-for-this-test").exists(), "started by hand");
    let state = Path::new("/mnt/state");
    let ledger = SqliteLedger::open(state).unwrap();
    let mut admitted = 0;
    let error = loop {
        match ledger.admit(&plan(admitted), false, u32::MAX, at(0)) {
            Ok(verdict) => assert_eq!(verdict, Verdict::Admit),
            Err(error) => break error,
        }
        admitted += 1;
        assert!(admitted < 10_000, "the disk is never full");
    };
    assert_kind(&error, PortErrorKind::NoRoom);
    assert!(admitted > 0 && error.message.contains("no room is left on the disk"), "{error}");
    // What was answered is still there, for this process and for the next.
    assert_eq!(ledger.counts().unwrap().running, admitted);
    drop(ledger);
    assert_eq!(SqliteLedger::open(state).unwrap().counts().unwrap().running, admitted);
    std::fs::write("/mnt/filler", vec![0; 4 << 20]).unwrap_err();
    assert_kind(&SqliteLedger::open(Path::new("/mnt/other")).map(|_| ()).unwrap_err(), PortErrorKind::NoRoom);
}

#[test]
fn a_read_only_folder_is_no_room_and_still_read() {
    let set_up = "mount -t tmpfs none /mnt && touch /mnt/only-for-this-test && \"$0\" --exact faults::read_only_prepare --ignored >/dev/null \
                  && mount -o remount,ro /mnt";
    in_a_namespace(set_up, "faults::read_only_inside");
}

#[test]
#[ignore = "runs inside a namespace, started by another test"]
fn read_only_prepare() {
    assert!(Path::new("/mnt/only-for-this-test").exists(), "started by hand");
    SqliteLedger::open(Path::new("/mnt/state")).unwrap().admit(&plan(1), false, 4, at(0)).unwrap();
}

#[test]
#[ignore = "runs inside a namespace, started by another test"]
fn read_only_inside() {
    assert!(Path::new("/mnt/only-for-this-test").exists(), "started by hand");
    let ledger = SqliteLedger::open(Path::new("/mnt/state")).unwrap();
    assert_eq!(ledger.counts().unwrap(), Counts { running: 1, queued: 0 });
    assert_kind(&ledger.admit(&plan(2), false, 4, at(1)).unwrap_err(), PortErrorKind::NoRoom);
    assert_kind(&SqliteLedger::open(Path::new("/mnt/other")).map(|_| ()).unwrap_err(), PortErrorKind::NoRoom);
}
