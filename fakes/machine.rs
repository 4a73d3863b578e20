//! What both stand-ins need of the machine: signals, shell commands, ids, the clock, ordered JSON.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal, kill, killpg, raise};
use nix::unistd::{Pid, setsid};
use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;

/// The hidden verb under which a stand-in starts one shell command.
pub const SHELL_VERB: &str = "__shell";

/// The process group of the command that runs now; 0 for none.
static COMMAND: AtomicI32 = AtomicI32::new(0);

/// Whether polite signals do nothing.
static IGNORE: AtomicBool = AtomicBool::new(false);

/// Whether a signal is ending the stand-in: then nothing else is said about the command it kills.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Returns a variable of the stand-in's environment; an empty one counts as not set.
#[expect(clippy::disallowed_methods, reason = "the stand-in is a program of its own and reads its own environment")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the names of all variables.
#[expect(clippy::disallowed_methods, reason = "the stand-in is a program of its own and reads its own environment")]
pub fn variable_names() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).collect()
}

/// Returns the working directory.
#[expect(clippy::disallowed_methods, reason = "the stand-in is a program of its own and reads its own environment")]
pub fn directory() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

/// Ends the process.
#[expect(clippy::exit, reason = "the signal thread and a scripted exit must end the process at once")]
pub fn exit(code: i32) -> ! {
    std::process::exit(code)
}

/// Becomes the shell of one command, in a session of its own, if that is what it was started for.
///
/// Both real CLIs run each command in its own session and process group.
pub fn become_shell_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|verb| verb != SHELL_VERB) {
        return;
    }
    let _ = setsid();
    let _ = SigSet::all().thread_unblock();
    let error = Command::new("/bin/sh").arg("-c").args(arguments).exec();
    say_on_stderr(&format!("cannot start the shell: {error}"));
    exit(126);
}

/// Writes one line to stderr.
pub fn say_on_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Makes INT, TERM and HUP go to `on_signal`, on a thread of its own. Call it before any other thread.
pub fn watch_signals(on_signal: impl Fn(Signal) + Send + 'static) {
    let mut watched = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        watched.add(signal);
    }
    let _ = watched.thread_block();
    thread::spawn(move || {
        while let Ok(signal) = watched.wait() {
            if !IGNORE.load(Ordering::SeqCst) {
                ENDING.store(true, Ordering::SeqCst);
                on_signal(signal);
            }
        }
    });
}

/// From here on polite signals do nothing.
pub fn ignore_signals() {
    IGNORE.store(true, Ordering::SeqCst);
}

/// Dies of `signal`, as a program without a handler does.
pub fn die_of(signal: Signal) -> ! {
    let mut set = SigSet::empty();
    set.add(signal);
    let _ = set.thread_unblock();
    let _ = raise(signal);
    let _ = kill(Pid::this(), Signal::SIGKILL);
    loop {
        thread::park();
    }
}

/// Dies of the signal with that number.
pub fn die_of_number(number: i32) -> ! {
    die_of(Signal::try_from(number).unwrap_or(Signal::SIGKILL))
}

/// Whether a command runs now.
pub fn command_runs() -> bool {
    COMMAND.load(Ordering::SeqCst) != 0
}

/// Kills the command that runs now, with its group.
pub fn kill_command() {
    let group = COMMAND.load(Ordering::SeqCst);
    if group > 0 {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// A command that was started.
pub struct Running {
    child: Child,
    output: Option<File>,
}

/// Starts a shell command: stdin empty, both outputs in a temporary file, so nothing that it leaves
/// behind can hold a pipe.
pub fn start(command: &str, directory: &Path, set: &[(&str, String)], unset: &[OsString]) -> io::Result<Running> {
    let output = tempfile::tempfile().ok();
    let stdio = || output.as_ref().and_then(|file| file.try_clone().ok()).map_or_else(Stdio::null, Stdio::from);
    let mut shell = Command::new(std::env::current_exe()?);
    shell.arg(SHELL_VERB).arg(command).current_dir(directory);
    shell.stdin(Stdio::null()).stdout(stdio()).stderr(stdio());
    for name in unset {
        shell.env_remove(name);
    }
    shell.envs(set.iter().map(|(name, value)| (name, value)));
    let child = shell.spawn()?;
    Ok(Running { child, output })
}

impl Running {
    /// Waits for the command; returns what it printed and its exit code (128 + signal if one ended it).
    pub fn wait(mut self) -> (String, i32) {
        let group = i32::try_from(self.child.id()).unwrap_or(0);
        COMMAND.store(group, Ordering::SeqCst);
        let code = self.child.wait().map_or(126, |status| {
            use std::os::unix::process::ExitStatusExt;
            status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(126)
        });
        while ENDING.load(Ordering::SeqCst) {
            // The signal's own thread ends the program.
            thread::park();
        }
        COMMAND.store(0, Ordering::SeqCst);
        let mut text = Vec::new();
        if let Some(mut file) = self.output {
            let _ = file.seek(SeekFrom::Start(0));
            let _ = file.read_to_end(&mut text);
        }
        (String::from_utf8_lossy(&text).into_owned(), code)
    }

    /// Kills the command with its group.
    pub fn kill(mut self) {
        let _ = killpg(Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX)), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Waits for a file, a minute at most.
pub fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Uses the processor for that long.
pub fn spin(length: Duration) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Does nothing for ever.
pub fn hang() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn random_hex() -> String {
    let mut bytes = [0_u8; 16];
    if let Ok(mut source) = File::open("/dev/urandom") {
        let _ = source.read_exact(&mut bytes);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A fresh UUID of version 4.
pub fn uuid() -> String {
    shape_uuid(&random_hex(), "4")
}

/// A fresh UUID of version 7, as Codex uses for threads.
pub fn uuid7() -> String {
    let ms = now().unix_timestamp_nanos() / 1_000_000;
    let tail: String = random_hex().chars().skip(12).collect();
    shape_uuid(&format!("{ms:012x}{tail}"), "7")
}

fn shape_uuid(hex: &str, version: &str) -> String {
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{version}{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// A short random word, for ids such as `msg_...`.
pub fn short_id() -> String {
    random_hex().chars().take(22).collect()
}

/// The time now, UTC.
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// RFC 3339 with milliseconds.
pub fn stamp(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    at.format(&format).unwrap_or_default()
}

/// A JSON value as text.
pub fn json(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_else(|_| "null".to_owned())
}

/// A JSON object whose keys keep their order; the values are JSON text.
pub fn object(pairs: &[(&str, String)]) -> String {
    let members: Vec<String> = pairs.iter().map(|(key, value)| format!("{}:{value}", json(key))).collect();
    format!("{{{}}}", members.join(","))
}

/// A recorded file of this project's `tests/fixtures`.
pub fn recorded(path: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)).ok()
}
