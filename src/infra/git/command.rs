//! The one wrapper around the git executable.
//!
//! Every call has an environment of its own, no standard input unless some is handed in, a limit
//! on its time and a limit on its output. Answers are judged by exit code; what git says on its
//! error output only ends up in messages.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::GitCli;
use super::pipes::{Pipe, read_both};
use crate::app::ports::{PortError, PortErrorKind, PortResult};

/// The most bytes that one call may print; a list of a few million paths fits.
const OUTPUT_LIMIT_BYTES: u64 = 512 * 1024 * 1024;

/// The most bytes of error output that are kept.
const ERROR_LIMIT_BYTES: u64 = 64 * 1024;

/// How long one call may take. A checkout of a very large repository on a slow disk stays below.
const TIME_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Settings that hold for every call, whatever any configuration file says.
const SETTINGS: [&str; 23] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.quotePath=false",
    // It would refuse to save a file whose line ends do not survive a round trip.
    "core.safecrlf=false",
    "core.pager=cat",
    "core.editor=false",
    "core.alternateRefsCommand=true",
    "core.filesRefLockTimeout=10000",
    "core.packedRefsTimeout=10000",
    "reftable.lockTimeout=10000",
    "index.sparse=false",
    "index.version=2",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "advice.detachedHead=false",
    "log.showSignature=false",
];

/// What a call answered.
#[derive(Debug)]
pub(super) struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub(super) code: Option<i32>,
    /// Its output.
    pub(super) stdout: Vec<u8>,
    /// Its error output, bounded.
    pub(super) stderr: String,
}

impl Output {
    /// The output as text without the last line feed; bytes that are no UTF-8 are replaced.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// The fields of a `-z` output.
    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        self.stdout.split(|byte| *byte == 0).filter(|field| !field.is_empty())
    }

    /// The lines of the output, as text.
    pub(super) fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

/// One call of git, being put together.
pub(super) struct Call {
    command: Command,
    words: String,
    input: Input,
    output_file: Option<File>,
}

enum Input {
    Nothing,
    Bytes(Vec<u8>),
    File(File),
}

impl GitCli {
    /// Begins a call that works in `directory`.
    pub(super) fn call(&self, directory: &Path) -> Call {
        let mut command = Command::new(&self.program);
        command.env_clear().current_dir(directory).process_group(0);
        if let Some(path) = &self.path_variable {
            command.env("PATH", path);
        }
        if let Some(home) = &self.home {
            command.env("HOME", home);
        }
        for (name, value) in [
            ("LC_ALL", "C"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_ASKPASS", "false"),
            ("SSH_ASKPASS", "false"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_PAGER", "cat"),
            ("GIT_EDITOR", "false"),
        ] {
            command.env(name, value);
        }
        for setting in SETTINGS {
            command.arg("-c").arg(setting);
        }
        Call { command, words: "git".into(), input: Input::Nothing, output_file: None }
    }

    /// Begins a call on the git folder `git_dir`, without a working tree.
    pub(super) fn on(&self, git_dir: &Path) -> Call {
        self.call(Path::new("/")).env("GIT_DIR", git_dir).args(["-c", "core.bare=true"])
    }

    /// Begins a call on the git folder `git_dir` with the working tree `work_tree`.
    pub(super) fn in_tree(&self, git_dir: &Path, work_tree: &Path) -> Call {
        self.call(work_tree).env("GIT_DIR", git_dir).env("GIT_WORK_TREE", work_tree)
    }
}

impl Call {
    /// Sets a variable of the call's environment.
    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Adds one argument.
    pub(super) fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        let argument = argument.as_ref();
        self.words.push(' ');
        self.words.push_str(&argument.to_string_lossy());
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub(super) fn args<I: IntoIterator<Item = A>, A: AsRef<OsStr>>(self, arguments: I) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Hands in its standard input.
    pub(super) fn input(mut self, bytes: Vec<u8>) -> Self {
        self.input = Input::Bytes(bytes);
        self
    }

    /// Hands in a file as its standard input.
    pub(super) fn input_file(mut self, file: File) -> Self {
        self.input = Input::File(file);
        self
    }

    /// Sends its output to a file instead of memory.
    pub(super) fn output_file(mut self, file: File) -> Self {
        self.output_file = Some(file);
        self
    }

    /// Runs the call and requires exit code 0.
    pub(super) fn require(self) -> PortResult<Output> {
        let words = self.words.clone();
        let output = self.run()?;
        if output.code == Some(0) { Ok(output) } else { Err(failure(&words, &output)) }
    }

    /// Runs the call to its end, whatever its exit code.
    pub(super) fn run(self) -> PortResult<Output> {
        self.start()?.finish()
    }

    /// Starts the call; [`Running::finish`] waits for its end.
    pub(super) fn start(mut self) -> PortResult<Running> {
        let bytes = match self.input {
            Input::Nothing => {
                self.command.stdin(Stdio::null());
                None
            }
            Input::File(file) => {
                self.command.stdin(file);
                None
            }
            Input::Bytes(bytes) => {
                self.command.stdin(Stdio::piped());
                Some(bytes)
            }
        };
        match self.output_file {
            Some(file) => self.command.stdout(file),
            None => self.command.stdout(Stdio::piped()),
        };
        self.command.stderr(Stdio::piped());
        let mut child =
            self.command.spawn().map_err(|error| PortError::io(format!("start `{}`", self.words), &error))?;
        // The command keeps its ends of files open until it is dropped.
        drop(self.command);
        if let (Some(mut stdin), Some(bytes)) = (child.stdin.take(), bytes) {
            // A failed write means that git ended early; its exit code tells the rest.
            std::thread::spawn(move || drop(stdin.write_all(&bytes)));
        }
        Ok(Running { child, words: self.words })
    }
}

/// A call that was started. Dropped unfinished, it ends by itself.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    words: String,
}

impl Running {
    /// Waits for the end of the call and returns what it answered.
    pub(super) fn finish(mut self) -> PortResult<Output> {
        let mut stdout = Pipe::new(self.child.stdout.take().map(OwnedFd::from), OUTPUT_LIMIT_BYTES);
        let mut stderr = Pipe::new(self.child.stderr.take().map(OwnedFd::from), ERROR_LIMIT_BYTES);
        let whole = read_both(&mut stdout, &mut stderr, TIME_LIMIT);
        let whole = whole.map_err(|error| PortError::io(format!("read what `{}` says", self.words), &error));
        if !matches!(whole, Ok(true)) || stdout.cut {
            self.kill();
            let too_much = || PortError::other(format!("`{}` took too long or printed too much", shorten(&self.words)));
            return Err(whole.err().unwrap_or_else(too_much));
        }
        let status = self.child.wait().map_err(|error| PortError::io(format!("wait for `{}`", self.words), &error))?;
        let said = String::from_utf8_lossy(&stderr.bytes).trim().to_owned();
        Ok(Output { code: status.code(), stdout: stdout.bytes, stderr: said })
    }

    fn kill(&mut self) {
        if let Ok(pid) = i32::try_from(self.child.id()) {
            // The child leads a group of its own, so its helpers end with it.
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// The error of a call that did not exit with 0.
pub(super) fn failure(words: &str, output: &Output) -> PortError {
    let code = output.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
    let room = ["No space left on device", "Disk quota exceeded", "Read-only file system"];
    // Git has no exit code for a full disk, so these words of the C library are the only sign.
    let kind = if room.iter().any(|words| output.stderr.contains(words)) {
        PortErrorKind::NoRoom
    } else {
        PortErrorKind::Other
    };
    PortError { kind, message: format!("`{}` ended with {code}: {}", shorten(words), output.stderr) }
}

fn shorten(words: &str) -> String {
    const MOST: usize = 300;
    if words.chars().count() <= MOST {
        words.to_owned()
    } else {
        words.chars().take(MOST).chain("...".chars()).collect()
    }
}

/// Starts the removal of `paths` in the background and does not wait for it.
///
/// Without an `rm` on the search path it is done at once, in this process.
pub(super) fn remove_in_background(git: &GitCli, paths: &[PathBuf]) {
    if paths.is_empty() {
        return;
    }
    let mut command = Command::new("rm");
    command.env_clear().args(["-rf", "--"]).args(paths).current_dir("/").process_group(0);
    command.env("PATH", git.path_variable.clone().unwrap_or_else(|| OsString::from("/usr/bin:/bin")));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if command.spawn().is_err() {
        for path in paths {
            let _ = super::files::remove_tree(path);
        }
    }
}
