//! Processes that are killed at the worst moment, and records that lie.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use lane::app::ports::{Found, Processes};
use lane::domain::worker::ProcessExit;
use lane::infra::process::SystemProcesses;
use lane::provider::PoliteSignal;
use nix::sys::signal::Signal;

use crate::Case;
use crate::bench::{Lane, TestClock, end_of, executable, is_alive, kill, until};

pub const CASES: &[Case] = &[
    ("a_killed_keeper_leaves_the_worker_to_us", a_killed_keeper_leaves_the_worker_to_us),
    ("a_killed_keeper_hides_no_daemon", a_killed_keeper_hides_no_daemon),
    ("a_killed_supervisor_is_followed_by_another", a_killed_supervisor_is_followed_by_another),
    ("a_worker_that_ended_unwatched_is_told", a_worker_that_ended_unwatched_is_told),
    ("all_killed_is_unknown", all_killed_is_unknown),
    ("nothing_started_is_told", nothing_started_is_told),
    ("a_keeper_that_is_starting_is_waited_for", a_keeper_that_is_starting_is_waited_for),
    ("a_restart_of_the_machine_is_told", a_restart_of_the_machine_is_told),
    ("a_reused_number_is_never_signalled", a_reused_number_is_never_signalled),
    ("damaged_records_do_not_block", damaged_records_do_not_block),
    ("another_lane_is_never_touched", another_lane_is_never_touched),
];

fn a_killed_keeper_leaves_the_worker_to_us() {
    let lane = Lane::new();
    let mut worker = lane.start("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 5");
    lane.pid("pid");
    kill(worker.keeper().pid, Signal::SIGKILL);
    until("the keeper is gone", || !is_alive(worker.keeper().pid));
    assert!(is_alive(lane.worker_pid()));
    std::fs::write(lane.work().join("go"), "").unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(5));
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
}

fn a_killed_keeper_hides_no_daemon() {
    let lane = Lane::new();
    let mut worker = lane.start("(setsid env -i /bin/sh -c 'echo $$ > child; exec /bin/sleep 321' &); sleep 322");
    let child = lane.pid("child");
    until("the daemon is one", || lane::infra::process::table::load_row(child).unwrap().name == "sleep");
    kill(worker.keeper().pid, Signal::SIGKILL);
    worker.kill_tree().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    worker.sweep().unwrap();
    assert!(!is_alive(child));
}

/// Plays a supervisor that starts the script in `<folder>/script` and then only waits to be killed.
pub fn start_and_linger(folder: &Path) {
    let lane = Lane::at(tempfile::tempdir_in(folder).unwrap());
    let script = std::fs::read_to_string(folder.join("script")).unwrap();
    let _worker = lane.start(&script);
    println!("{} {}", lane.lane_id, lane.folder.path().display());
    std::thread::park();
}

/// A lane whose supervisor is another process.
struct Orphan {
    _folder: tempfile::TempDir,
    supervisor: Child,
    lane: Lane,
}

fn orphan(script: &str) -> Orphan {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script"), script).unwrap();
    let mut command = Command::new(executable());
    let mut supervisor = command.arg("__starter").arg(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(supervisor.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (lane_id, path) = line.trim().split_once(' ').unwrap();
    let mut lane = Lane::new();
    lane.lane_id = lane_id.parse().unwrap();
    std::fs::remove_dir_all(lane.folder.path()).unwrap();
    std::os::unix::fs::symlink(path, lane.folder.path()).unwrap();
    Orphan { _folder: folder, supervisor, lane }
}

impl Orphan {
    fn kill_supervisor(&mut self) {
        self.supervisor.kill().unwrap();
        self.supervisor.wait().unwrap();
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        // The link would make the temporary folder's own removal fail.
        std::fs::remove_file(self.lane.folder.path()).ok();
    }
}

fn a_killed_supervisor_is_followed_by_another() {
    let mut orphan = orphan("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; setsid sleep 331 & exit 9");
    orphan.kill_supervisor();
    let lane = &orphan.lane;
    let mut worker = lane.find();
    assert_eq!(worker.wait(lane::domain::time::Millis(50)).unwrap(), []);
    std::fs::write(lane.work().join("go"), "").unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(9));
    let swept = worker.sweep().unwrap();
    assert!(swept.len() == 1 && swept[0].starts_with("sleep 331 "), "{swept:?}");
    assert!(!is_alive(worker.keeper().pid));
}

fn a_worker_that_ended_unwatched_is_told() {
    let mut orphan = orphan("while [ ! -e go ]; do sleep 0.02; done; kill -HUP $$");
    orphan.kill_supervisor();
    let lane = &orphan.lane;
    std::fs::write(lane.work().join("go"), "").unwrap();
    until("the end is written", || lane.run_dir().join("exit.json").exists());
    let mut worker = lane.find();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(1));
    worker.sweep().unwrap();
    assert!(!is_alive(worker.keeper().pid));
}

fn all_killed_is_unknown() {
    let mut orphan = orphan("(setsid sleep 332 &); echo $$ > pid; sleep 333");
    orphan.lane.pid("pid");
    orphan.kill_supervisor();
    let lane = &orphan.lane;
    let mut worker = lane.find();
    kill(worker.keeper().pid, Signal::SIGKILL);
    until("the keeper is gone", || !is_alive(worker.keeper().pid));
    kill(lane.worker_pid(), Signal::SIGKILL);
    // Whoever inherits orphans here reaps it, so nobody can say how it ended but the kernel's zombie.
    let exit = end_of(&mut worker).0;
    assert!(matches!(exit, ProcessExit::Unknown | ProcessExit::Signal(9)), "{exit:?}");
    let swept = worker.sweep().unwrap();
    assert!(swept.iter().any(|name| name.starts_with("sleep 332 ")), "{swept:?}");
    assert_eq!(lane.processes.sweep_lane(&lane.lane_id).unwrap(), Vec::<String>::new());
}

fn nothing_started_is_told() {
    let lane = Lane::new();
    assert!(matches!(lane.processes.find_worker(&lane.run_dir(), &lane.lane_id).unwrap(), Found::NeverStarted));
    std::fs::write(lane.run_dir().join("keeper.lock"), "").unwrap();
    assert!(matches!(lane.processes.find_worker(&lane.run_dir(), &lane.lane_id).unwrap(), Found::NeverStarted));
}

fn a_keeper_that_is_starting_is_waited_for() {
    let lane = Lane::new();
    let lock = std::fs::File::create(lane.run_dir().join("keeper.lock")).unwrap();
    lock.lock().unwrap();
    let mut real = lane_with_record();
    let record = real.read("run/worker.json");
    let path = lane.run_dir().join("worker.json");
    let writer = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        std::fs::write(&path, record).unwrap();
    });
    let found = lane.find();
    assert_eq!(found.keeper(), real.find().keeper());
    writer.join().unwrap();
    finish(&mut real);
}

fn lane_with_record() -> Lane {
    let lane = Lane::new();
    drop(lane.start("sleep 334"));
    lane
}

fn finish(lane: &mut Lane) {
    let mut worker = lane.find();
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
}

fn a_restart_of_the_machine_is_told() {
    let mut lane = lane_with_record();
    let later = SystemProcesses::new(executable(), Arc::new(TestClock::after_restart()));
    assert!(matches!(later.find_worker(&lane.run_dir(), &lane.lane_id).unwrap(), Found::MachineRestarted));
    assert!(is_alive(lane.worker_pid()));
    finish(&mut lane);
    // What was written down before the restart is still true after it.
    let Found::Worker(mut worker) = later.find_worker(&lane.run_dir(), &lane.lane_id).unwrap() else {
        panic!("the end is known")
    };
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    worker.sweep().unwrap();
}

fn a_reused_number_is_never_signalled() {
    let lane = Lane::new();
    let mut innocent = Command::new("sleep").arg("335").spawn().unwrap();
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let identity = serde_json::json!({"pid": innocent.id(), "start_ticks": 1, "boot_id": boot_id.trim()});
    let record = serde_json::json!({"worker": identity, "keeper": identity, "started": 1});
    std::fs::write(lane.run_dir().join("worker.json"), record.to_string()).unwrap();
    let mut worker = lane.find();
    worker.signal_politely(PoliteSignal::Terminate).unwrap();
    worker.kill_tree().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Unknown);
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
    assert_eq!(lane.processes.sweep_lane(&lane.lane_id).unwrap(), Vec::<String>::new());
    assert!(innocent.try_wait().unwrap().is_none());
    assert_eq!(crate::bench::state_of(i32::try_from(innocent.id()).unwrap()), 'S');
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

fn damaged_records_do_not_block() {
    for content in ["", "{\"worker\":{\"pid\":1", "[]"] {
        let lane = Lane::new();
        std::fs::write(lane.run_dir().join("worker.json"), content).unwrap();
        let mut worker = lane.find();
        assert_eq!(end_of(&mut worker).0, ProcessExit::Unknown, "{content}");
        assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
    }
}

fn another_lane_is_never_touched() {
    let (mut one, mut other) = (lane_with_record(), lane_with_record());
    let longer = Lane::new();
    let mut tagged = Command::new("sleep");
    tagged.arg("336").env_clear().env("LANE_ID", format!("{}0", one.lane_id)).env("PATH", "/usr/bin:/bin");
    let mut tagged = tagged.spawn().unwrap();
    finish(&mut one);
    one.processes.sweep_lane(&one.lane_id).unwrap();
    longer.processes.sweep_lane(&longer.lane_id).unwrap();
    assert!(is_alive(other.worker_pid()) && tagged.try_wait().unwrap().is_none());
    tagged.kill().unwrap();
    tagged.wait().unwrap();
    finish(&mut other);
}
