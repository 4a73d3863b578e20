//! The process table, as far as the tests look at it (Linux).

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

/// Every live process, zombies left out, whose environment holds `text` somewhere; never this one.
pub fn whose_environment_holds(text: &OsStr) -> Vec<i32> {
    let needle = text.as_bytes();
    let own = std::process::id().cast_signed();
    all().into_iter().filter(|pid| *pid != own && !is_zombie(*pid)).filter(|pid| holds(*pid, needle)).collect()
}

/// Every live process that carries the lane's tag.
pub fn of_lane(lane_id: &str) -> Vec<i32> {
    whose_environment_holds(OsStr::new(&format!("LANE_ID={lane_id}")))
}

fn holds(pid: i32, needle: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(needle.len()).any(|window| window == needle)
}

fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a process is alive (a zombie is not).
pub fn is_alive(pid: i32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok() && !is_zombie(pid)
}

fn stat_fields(pid: i32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets and may hold anything, so the fields are counted from its end.
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    after_name.split_whitespace().map(str::to_owned).collect()
}

fn is_zombie(pid: i32) -> bool {
    stat_fields(pid).first().is_none_or(|state| state == "Z" || state == "X")
}

/// The parent of a process.
pub fn parent(pid: i32) -> Option<i32> {
    stat_fields(pid).get(1)?.parse().ok()
}

/// The session of a process.
pub fn session(pid: i32) -> Option<i32> {
    stat_fields(pid).get(3)?.parse().ok()
}

/// The command line of a process, joined by blanks.
pub fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// Kills one process that the test is about.
pub fn kill(pid: i32) {
    signal(pid, Signal::SIGKILL);
}

/// Sends a signal to one process that the test is about; a process that is gone is none.
pub fn signal(pid: i32, signal: Signal) {
    assert!(pid > 1, "no such target: {pid}");
    let _ = send(Pid::from_raw(pid), signal);
}
