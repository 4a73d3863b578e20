//! What the end-to-end tests share: a bed with its own HOME, state and environment; repositories;
//! the real binary; the stand-ins for the worker CLIs; the process table.
#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test that fails panics, and says why")]

pub mod processes;
pub mod repository;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use repository::Repository;

/// How long a test waits for anything before it fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A variable of the test run itself.
#[expect(clippy::disallowed_methods, reason = "a test may look at how it was called, and never changes it")]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Waits until `condition` holds; fails the test with `what` when the time is up.
pub fn wait_until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The folder of built programs, `target/<profile>`.
pub fn target_dir() -> PathBuf {
    let own = std::env::current_exe().expect("the path of the test program");
    own.ancestors().nth(2).expect("target/<profile>/deps/<test>").to_owned()
}

/// A stand-in, `fake-codex` or `fake-claude`.
pub fn fake(name: &str) -> PathBuf {
    let path = target_dir().join("examples").join(name);
    assert!(path.is_file(), "{} is not built; run `cargo build --examples`", path.display());
    path
}

/// The binary under test.
pub fn lane_program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_lane"))
}

/// Prints why a test does nothing, or fails when `require` is set in the environment.
pub fn skip(reason: &str, require: &str) {
    assert!(variable(require).is_none_or(|value| value != "1"), "{require}=1 is set, but: {reason}");
    eprintln!("skipped: {reason}");
}

/// One whole world for a test: nothing of the person's own is in reach.
pub struct TestBed {
    root: TempDir,
    variables: Vec<(String, OsString)>,
}

/// What a command of Lane answered.
#[derive(Debug)]
pub struct Answer {
    /// Its exit code.
    pub code: i32,
    /// The one line on stdout.
    pub json: Value,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

impl Answer {
    /// The text member of that name; fails when it is not there.
    pub fn text(&self, name: &str) -> &str {
        self.json.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {name} in {}", self.json))
    }

    /// `status`.
    pub fn status(&self) -> &str {
        self.text("status")
    }

    /// `lane_id`.
    pub fn lane_id(&self) -> String {
        self.text("lane_id").to_owned()
    }

    /// Asserts the exit code, with everything printed when it differs.
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

impl Default for TestBed {
    fn default() -> Self {
        Self::new()
    }
}

impl TestBed {
    /// Makes a bed that drives the stand-ins, with dummy logins.
    ///
    /// It lies outside the temporary directory, where Codex would not work.
    pub fn new() -> Self {
        let base = if Path::new("/var/tmp").is_dir() { "/var/tmp" } else { env!("CARGO_TARGET_TMPDIR") };
        let root = tempfile::Builder::new().prefix("lane-t-").tempdir_in(base).expect("a folder for the test");
        let root_path = root.path().canonicalize().expect("the folder's real path");
        for folder in ["home/.codex", "home/.claude", "state"] {
            fs::create_dir_all(root_path.join(folder)).expect("the bed's folders");
        }
        let git_config = "[user]\n\tname = Lead\n\temail = lead@example.invalid\n[init]\n\tdefaultBranch = main\n";
        fs::write(root_path.join("home/.gitconfig"), git_config).expect("the bed's git configuration");
        let mut bed = Self { root, variables: Vec::new() };
        let path = variable("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        bed.set("PATH", path);
        bed.set("HOME", root_path.join("home"));
        bed.set("LANE_STATE", root_path.join("state"));
        bed.set("LANE_CODEX_BIN", target_dir().join("examples/fake-codex"));
        bed.set("LANE_CLAUDE_BIN", target_dir().join("examples/fake-claude"));
        bed.set("CODEX_API_KEY", "dummy-codex-key");
        bed.set("ANTHROPIC_API_KEY", "dummy-claude-key");
        bed
    }

    /// Sets a variable for every command.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.unset(name);
        self.variables.push((name.to_owned(), value.as_ref().to_owned()));
    }

    /// Takes a variable away.
    pub fn unset(&mut self, name: &str) {
        self.variables.retain(|(known, _)| known != name);
    }

    /// The bed with that variable set.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.set(name, value);
        self
    }

    /// The bed without that variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.unset(name);
        self
    }

    /// The bed's folder.
    pub fn path(&self) -> PathBuf {
        self.root.path().canonicalize().expect("the folder's real path")
    }

    /// HOME of every command.
    pub fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    /// `LANE_STATE`.
    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The default Codex home.
    pub fn codex_home(&self) -> PathBuf {
        self.home().join(".codex")
    }

    /// The run folder of a lane.
    pub fn run_dir(&self, lane_id: &str) -> PathBuf {
        self.state().join("runs").join(lane_id)
    }

    /// Writes the person's configuration.
    pub fn configure(&self, toml: &str) {
        fs::write(self.state().join("config.toml"), toml).expect("config.toml");
    }

    /// Makes a repository `name` with one commit, which holds `README.md`.
    pub fn repository(&self, name: &str) -> Repository {
        let repository = Repository::init(&self.path().join(name), &self.home());
        repository.write("README.md", "# A project\n").commit("first");
        repository
    }

    /// Writes a brief and returns its path.
    pub fn brief(&self, text: &str) -> PathBuf {
        let folder = self.path().join("briefs");
        fs::create_dir_all(&folder).expect("the folder of briefs");
        let number = fs::read_dir(&folder).map_or(0, Iterator::count);
        let path = folder.join(format!("{number}.md"));
        fs::write(&path, text).expect("a brief");
        path
    }

    /// A command with the bed's whole environment and nothing else.
    pub fn command(&self, program: impl AsRef<OsStr>, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a command of Lane to its end, whatever it prints.
    pub fn lane_output(&self, directory: &Path, arguments: &[&str]) -> Output {
        self.command(lane_program(), directory).args(arguments).output().expect("lane starts")
    }

    /// Runs a command of Lane in the bed's folder and reads its one line.
    pub fn lane(&self, arguments: &[&str]) -> Answer {
        self.lane_in(&self.path(), arguments)
    }

    /// Runs a command of Lane in a directory and reads its one line.
    pub fn lane_in(&self, directory: &Path, arguments: &[&str]) -> Answer {
        let started = Instant::now();
        let output = self.lane_output(directory, arguments);
        read_answer(&output, started.elapsed(), arguments)
    }

    /// Starts a command of Lane and goes on at once.
    pub fn start_lane(&self, directory: &Path, arguments: &[&str]) -> Background {
        let mut command = self.command(lane_program(), directory);
        command.args(arguments);
        self.background(command, arguments)
    }

    /// Runs a command that comes to a command of Lane and reads its one line; it must end in time.
    pub fn answer_of(&self, command: Command, arguments: &[&str]) -> Answer {
        let mut running = self.background(command, arguments);
        wait_until(PATIENCE, &format!("lane {} has ended", arguments.join(" ")), || running.has_ended());
        running.finish()
    }

    /// Starts a command that comes to a command of Lane and goes on at once.
    #[expect(clippy::unused_self, reason = "it is started in this bed")]
    pub fn background(&self, mut command: Command, arguments: &[&str]) -> Background {
        let child = command.spawn().expect("lane starts");
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Background { child: Some(child), arguments, started: Instant::now() }
    }

    /// `lane run` with a brief of that text in `repository`, plus more arguments; returns the start line.
    pub fn run(&self, repository: &Repository, brief: &str, more: &[&str]) -> Answer {
        let brief = self.brief(brief);
        let mut arguments = vec!["run", "--brief", path_text(&brief), "--cwd", path_text(repository.path())];
        arguments.extend_from_slice(more);
        self.lane(&arguments)
    }

    /// `lane wait` for one lane, half a minute at most.
    pub fn wait(&self, lane_id: &str) -> Answer {
        self.lane(&["wait", lane_id, "--max", "30s"])
    }
}

impl Drop for TestBed {
    /// Ends what a failed test left running: only processes whose environment names this bed.
    fn drop(&mut self) {
        let mark = self.path();
        for pid in processes::whose_environment_holds(mark.as_os_str()) {
            processes::kill(pid);
        }
    }
}

/// A command of Lane that runs.
pub struct Background {
    child: Option<Child>,
    arguments: Vec<String>,
    started: Instant,
}

impl Background {
    /// Its process id.
    pub fn pid(&self) -> i32 {
        let child = self.child.as_ref().expect("the command runs");
        i32::try_from(child.id()).expect("a process id")
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().expect("the command runs").try_wait().expect("its state").is_some()
    }

    /// Waits for its end and reads its one line.
    pub fn finish(mut self) -> Answer {
        let child = self.child.take().expect("the command runs");
        let output = child.wait_with_output().expect("its output");
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        read_answer(&output, self.started.elapsed(), &arguments)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A path as text; the tests use no others.
pub fn path_text(path: &Path) -> &str {
    path.to_str().expect("a path of plain text")
}

fn read_answer(output: &Output, took: Duration, arguments: &[&str]) -> Answer {
    let stdout = String::from_utf8(output.stdout.clone()).expect("stdout is text");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or(-1);
    let shown = format!("lane {}\ncode: {code}\nstdout: {stdout}\nstderr: {stderr}", arguments.join(" "));
    assert!(stdout.ends_with('\n') && stdout.lines().count() == 1, "not exactly one line: {shown}");
    let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {shown}"));
    assert_eq!(json.get("schema"), Some(&Value::from(1)), "no schema number: {shown}");
    static CONTRACT: std::sync::OnceLock<jsonschema::Validator> = std::sync::OnceLock::new();
    let contract =
        CONTRACT.get_or_init(|| jsonschema::validator_for(&lane::wire::schema::json_schema()).expect("the schema"));
    if let Err(fault) = contract.validate(&json) {
        panic!("the line does not fit the schema ({fault}): {shown}");
    }
    Answer { code, json, stdout, stderr, took }
}
