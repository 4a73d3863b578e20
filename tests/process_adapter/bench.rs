//! What the cases share: a clock, a lane in a temporary folder, waiting with a deadline.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lane::app::ports::{Clock, Confinement, Environment, Found, Processes, RunningWorker, Sight, WorkerStart};
use lane::domain::ids::LaneId;
use lane::domain::time::{Millis, Monotonic, Timestamp};
use lane::domain::worker::ProcessExit;
use lane::infra::process::SystemProcesses;
use lane::provider::{PoliteSignal, WorkerCommand};

/// The clock of this machine; its boot can be made another.
pub struct TestClock {
    boot_id: String,
}

impl TestClock {
    pub fn new() -> Self {
        Self { boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned() }
    }

    pub fn after_restart() -> Self {
        Self { boot_id: "00000000-0000-4000-8000-000000000000".into() }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_ms(1_796_086_134_000)
    }

    fn monotonic(&self) -> Monotonic {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap();
        Monotonic(u64::try_from(time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000).unwrap())
    }

    fn boot_id(&self) -> String {
        self.boot_id.clone()
    }
}

pub fn executable() -> PathBuf {
    PathBuf::from("/proc/self/exe").canonicalize().unwrap()
}

/// A lane with a run folder and a working folder of its own.
pub struct Lane {
    pub folder: tempfile::TempDir,
    pub lane_id: LaneId,
    pub processes: SystemProcesses,
}

impl Lane {
    pub fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    pub fn at(folder: tempfile::TempDir) -> Self {
        // The last part of the temporary folder's name makes the id unique on this machine.
        let unique: u32 =
            folder.path().to_string_lossy().bytes().fold(7, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
        let lane_id = format!("20261201-004854-t{}-{unique:08x}-{:04x}", std::process::id(), unique & 0xffff);
        for name in ["run", "work"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("run/brief.md"), "the brief\n").unwrap();
        let processes = SystemProcesses::new(executable(), Arc::new(TestClock::new()));
        Self { folder, lane_id: lane_id.parse().unwrap(), processes }
    }

    pub fn run_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn environment(&self) -> Environment {
        Environment(vec![
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("HOME".into(), self.work().into()),
            ("LANE_ID".into(), self.lane_id.as_str().into()),
        ])
    }

    /// A worker that is a shell script.
    pub fn script(&self, script: &str) -> WorkerStart {
        WorkerStart {
            lane_id: self.lane_id.clone(),
            run_dir: self.run_dir(),
            directory: self.work(),
            command: WorkerCommand {
                program: "/bin/sh".into(),
                arguments: vec!["-c".into(), OsString::from(script)],
                set: vec![],
                logins: vec![],
                polite_signal: PoliteSignal::Terminate,
            },
            environment: self.environment(),
            confinement: None,
        }
    }

    pub fn start(&self, script: &str) -> Box<dyn RunningWorker> {
        self.processes.start_worker(&self.script(script)).unwrap()
    }

    pub fn start_confined(&self, script: &str, confinement: Confinement) -> Box<dyn RunningWorker> {
        let start = WorkerStart { confinement: Some(confinement), ..self.script(script) };
        self.processes.start_worker(&start).unwrap()
    }

    pub fn find(&self) -> Box<dyn RunningWorker> {
        match self.processes.find_worker(&self.run_dir(), &self.lane_id).unwrap() {
            Found::Worker(worker) => worker,
            Found::NeverStarted => panic!("never started"),
            Found::MachineRestarted => panic!("machine restarted"),
        }
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// The number that the worker left in a file of its working folder.
    pub fn pid(&self, name: &str) -> i32 {
        until(&format!("{name} holds a number"), || self.read(&format!("work/{name}")).ends_with('\n'));
        self.read(&format!("work/{name}")).trim().parse().unwrap()
    }

    pub fn worker_pid(&self) -> i32 {
        let record: serde_json::Value = serde_json::from_str(&self.read("run/worker.json")).unwrap();
        i32::try_from(record["worker"]["pid"].as_i64().unwrap()).unwrap()
    }
}

impl Drop for Lane {
    /// A case that fails leaves no process behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.processes.sweep_lane(&self.lane_id).ok();
        }
    }
}

/// Waits for the worker's end.
pub fn end_of(worker: &mut Box<dyn RunningWorker>) -> (ProcessExit, Millis) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        for sight in worker.wait(Millis(500)).unwrap() {
            if let Sight::Exited { exit, ran_for } = sight {
                return (exit, ran_for);
            }
        }
        assert!(Instant::now() < deadline, "the worker does not end");
    }
}

/// Waits until something is so, at most twenty seconds.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs (a zombie does not).
pub fn is_alive(pid: i32) -> bool {
    lane::infra::process::table::load_row(pid).is_some_and(|row| row.is_alive())
}

pub fn kill(pid: i32, signal: nix::sys::signal::Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}

pub fn state_of(pid: i32) -> char {
    lane::infra::process::table::load_row(pid).map_or('-', |row| row.state)
}

pub fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}
