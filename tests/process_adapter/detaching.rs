//! Supervisors that outlive whoever started them.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lane::app::ports::{Claim, Environment, Processes};
use lane::infra::process::detach::{stand_alone, take_claim};

use crate::Case;
use crate::bench::{Lane, executable, is_alive, kill, mode_of, until};

pub const CASES: &[Case] = &[
    ("a_caller_returns_and_its_stdout_closes", a_caller_returns_and_its_stdout_closes),
    ("a_supervisor_stands_alone", a_supervisor_stands_alone),
    ("a_supervisor_that_dies_at_once_leaves_the_claim_free", a_supervisor_that_dies_at_once_leaves_the_claim_free),
    ("a_program_that_cannot_run_is_an_error", a_program_that_cannot_run_is_an_error),
];

/// Plays a supervisor; what it does stands in `<run_dir>/mode`.
pub fn supervise(arguments: &[String]) {
    let run_dir = PathBuf::from(&arguments[1]);
    assert_eq!(arguments[2], "--claim-fd");
    let claim = take_claim(arguments[3].parse().unwrap()).unwrap();
    stand_alone().unwrap();
    match std::fs::read_to_string(run_dir.join("mode")).unwrap().as_str() {
        "die" => {
            println!("something broke");
            std::process::exit(3);
        }
        _ => {
            describe_self(&run_dir, claim.file.as_raw_fd());
            std::thread::park();
        }
    }
}

fn describe_self(run_dir: &Path, claim: i32) {
    let own = lane::infra::process::table::load_row(nix::unistd::getpid().as_raw()).unwrap();
    let mut descriptors: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !path.contains("/proc/"))
        .collect();
    descriptors.sort();
    let environment = std::fs::read("/proc/self/environ").unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let signals: Vec<&str> =
        status.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn")).collect();
    let text = serde_json::json!({
        "pid": own.pid, "session": own.session, "claim": claim,
        "directory": std::fs::read_link("/proc/self/cwd").unwrap(),
        "descriptors": descriptors,
        "environment": String::from_utf8_lossy(&environment),
        "signals": signals,
    });
    std::fs::write(run_dir.join("self.json.new"), text.to_string()).unwrap();
    std::fs::rename(run_dir.join("self.json.new"), run_dir.join("self.json")).unwrap();
}

/// Plays `lane run`: starts the supervisor, says one line and ends.
pub fn call(folder: &Path) {
    let lane = Lane::new();
    lane.processes.start_supervisor(&folder.join("run"), claim(&folder.join("run")), &environment()).unwrap();
    println!("started");
}

fn claim(run_dir: &Path) -> Claim {
    let file = std::fs::File::create(run_dir.join("claim")).unwrap();
    file.try_lock().unwrap();
    Claim { file }
}

fn environment() -> Environment {
    Environment(vec![("ONLY".into(), "this".into())])
}

fn lane(mode: &str) -> Lane {
    let lane = Lane::new();
    std::fs::write(lane.run_dir().join("mode"), mode).unwrap();
    lane
}

fn about(lane: &Lane) -> serde_json::Value {
    until("the supervisor tells about itself", || lane.run_dir().join("self.json").exists());
    serde_json::from_str(&lane.read("run/self.json")).unwrap()
}

fn end(lane: &Lane) {
    let pid = i32::try_from(about(lane)["pid"].as_i64().unwrap()).unwrap();
    assert!(is_alive(pid));
    kill(pid, nix::sys::signal::Signal::SIGKILL);
    let claim = std::fs::File::open(lane.run_dir().join("claim")).unwrap();
    until("the claim falls with its supervisor", || claim.try_lock().is_ok());
}

fn a_caller_returns_and_its_stdout_closes() {
    let lane = lane("run");
    let mut command = Command::new(executable());
    command.arg("__caller").arg(lane.folder.path()).stdin(Stdio::piped());
    let since = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "started\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(since.elapsed() < Duration::from_secs(5));
    end(&lane);
}

fn a_supervisor_stands_alone() {
    let lane = lane("run");
    // An adopting caller (a supervisor that starts the next lane) must not become its parent.
    lane::infra::process::linux::set_subreaper(true).unwrap();
    lane.processes.start_supervisor(&lane.run_dir(), claim(&lane.run_dir()), &environment()).unwrap();
    assert!(lane::infra::process::linux::is_subreaper());
    let about = about(&lane);
    assert_eq!(about["pid"], about["session"]);
    assert_eq!((about["directory"].as_str(), about["environment"].as_str()), (Some("/"), Some("ONLY=this\0")));
    assert!(
        about["signals"].as_array().unwrap().iter().all(|line| {
            // Rust's own start ignores SIGPIPE (13).
            let line = line.as_str().unwrap();
            line.ends_with("0000000000000000") || line.ends_with("0000000000001000")
        }),
        "{about}"
    );
    let descriptors: Vec<&str> = about["descriptors"].as_array().unwrap().iter().map(|d| d.as_str().unwrap()).collect();
    let run = lane.run_dir().canonicalize().unwrap();
    let log = run.join("supervisor.log").to_string_lossy().into_owned();
    assert_eq!(descriptors.len(), 4, "{descriptors:?}");
    assert!(descriptors.contains(&"/dev/null") && descriptors.iter().filter(|d| **d == log).count() == 2);
    assert_eq!(mode_of(&run.join("supervisor.log")), 0o600);
    let own = nix::unistd::getpid().as_raw();
    let supervisor = lane::infra::process::table::load_row(i32::try_from(about["pid"].as_i64().unwrap()).unwrap());
    assert_ne!(supervisor.unwrap().parent, own);
    assert!(std::fs::File::open(run.join("claim")).unwrap().try_lock().is_err());
    end(&lane);
}

fn a_supervisor_that_dies_at_once_leaves_the_claim_free() {
    let lane = lane("die");
    lane.processes.start_supervisor(&lane.run_dir(), claim(&lane.run_dir()), &environment()).unwrap();
    let claim = std::fs::File::open(lane.run_dir().join("claim")).unwrap();
    until("the claim falls with its supervisor", || claim.try_lock().is_ok());
    assert!(lane.read("run/supervisor.log").ends_with("something broke\n"));
}

fn a_program_that_cannot_run_is_an_error() {
    let lane = lane("run");
    let claim = claim(&lane.run_dir());
    let missing = lane::infra::process::SystemProcesses::new(
        "/no/such/lane".into(),
        std::sync::Arc::new(crate::bench::TestClock::new()),
    );
    assert!(missing.start_supervisor(&lane.run_dir(), claim, &environment()).is_err());
}
