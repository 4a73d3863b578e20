//! A stand-in for the `claude` CLI, version 2.1.332, scripted by the brief (see `script.rs`).
//!
//! It needs no network, checks its command line as the real one does, and reproduces the real one's
//! stream, transcript, exit codes and behaviour on signals. Like the real one it wants a login.

mod claude_arguments;
mod claude_session;
#[expect(dead_code, reason = "shared with the other stand-in, which uses the rest")]
mod machine;
mod script;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use claude_arguments::Arguments;
use claude_session::{End, Session};
use script::Step;

/// How much a user may pipe in.
const MAX_STDIN_BYTES: usize = 10 * 1024 * 1024;
const NO_INPUT: &str = "Error: Input must be provided either through stdin or as a prompt argument when using --print";
const ALL_TOOLS: [&str; 5] = ["Bash", "Edit", "Read", "WebFetch", "Write"];

fn main() {
    machine::become_shell_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["--version" | "-v"] => i32::from(writeln!(io::stdout(), "2.1.332 (Claude Code)").is_err()),
        ["auth", "status", ..] => auth_status(),
        _ => run(&arguments),
    };
    machine::exit(code)
}

fn fail(text: &str, code: i32) -> i32 {
    machine::say_on_stderr(text);
    code
}

fn config_dir() -> PathBuf {
    let home = || PathBuf::from(machine::variable("HOME").unwrap_or_default()).join(".claude");
    machine::variable("CLAUDE_CONFIG_DIR").map_or_else(home, PathBuf::from)
}

/// The login that is found: an API key goes before a subscription, and none is `none`.
fn login() -> &'static str {
    if machine::variable("ANTHROPIC_API_KEY").is_some() {
        "api_key"
    } else if machine::variable("CLAUDE_CODE_OAUTH_TOKEN").is_some() || config_dir().join(".credentials.json").is_file()
    {
        "oauth_token"
    } else {
        "none"
    }
}

fn auth_status() -> i32 {
    let status = json!({"loggedIn": login() != "none", "authMethod": login(), "apiProvider": "firstParty",
        "configDirectory": config_dir(), "projectsDirectory": config_dir().join("projects")});
    let _ = writeln!(io::stdout(), "{}", machine::json(status));
    i32::from(login() == "none")
}

fn run(arguments: &[String]) -> i32 {
    let arguments = match claude_arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(text) => return fail(&text, 1),
    };
    let directory = machine::directory();
    let folder = config_dir().join("projects").join(slug(&directory));
    if let Some(id) = arguments.value("--session-id").filter(|id| folder.join(format!("{id}.jsonl")).exists()) {
        return fail(&format!("Error: Session ID {id} is already in use."), 1);
    }
    if let Some(effort) = arguments.value("--effort").filter(|_| arguments.effort().is_none()) {
        machine::say_on_stderr(&format!(
            "Warning: Unknown --effort value '{effort}' \u{2014} ignoring it and using the default effort."
        ));
    }
    let brief = match read_brief(&arguments) {
        Ok(brief) => brief,
        Err(text) => return fail(&text, 1),
    };
    let steps = match script::steps(&brief) {
        Ok(steps) => steps,
        Err(text) => return fail(&text, 70),
    };
    match steps.as_slice() {
        [Step::FailStart(text), ..] => return fail(text, 1),
        [Step::Fixture(name), ..] => return replay(name),
        _ => {}
    }
    let mut run = Run::open(arguments, directory, folder, &brief, &steps);
    if login() == "none" {
        return run.not_logged_in();
    }
    for step in steps {
        if let Some(code) = run.step(step) {
            return code;
        }
    }
    run.finish()
}

/// The real one's name for a folder: the absolute path with `/`, `_` and `.` turned to `-`.
fn slug(directory: &Path) -> String {
    directory.to_string_lossy().replace(['/', '_', '.'], "-")
}

fn read_brief(arguments: &Arguments) -> Result<String, String> {
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes).map_err(|error| format!("Error: {error}"))?;
    if bytes.len() > MAX_STDIN_BYTES {
        return Err("Error: piped stdin input exceeds 10MB".to_owned());
    }
    let piped = String::from_utf8_lossy(&bytes).into_owned();
    let brief = format!("{}{piped}", arguments.prompt.as_deref().unwrap_or_default());
    if brief.trim().is_empty() { Err(NO_INPUT.to_owned()) } else { Ok(brief) }
}

/// Replays a recorded run: its stream, its error output and its exit code.
fn replay(name: &str) -> i32 {
    let find = |ending: &str| machine::recorded(&format!("claude/stream/{name}.{ending}"));
    let Some(meta) = find("meta.json").and_then(|text| serde_json::from_str::<Value>(&text).ok()) else {
        return fail(&format!("fake: no recorded run {name}"), 70);
    };
    let _ = io::stderr().write_all(find("stderr.txt").unwrap_or_default().as_bytes());
    let _ = io::stdout().write_all(find("jsonl").unwrap_or_default().as_bytes());
    match meta.get("rc").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok()) {
        Some(code) if code < 0 => machine::die_of_number(-code),
        Some(code) => code,
        None => machine::die_of(Signal::SIGKILL),
    }
}

type Shared = Arc<Mutex<Session>>;

fn lock(session: &Shared) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

const COMPLETED: End<'static> = End { subtype: "success", is_error: false, reason: "completed", more: Value::Null };

struct Run {
    session: Shared,
    arguments: Arguments,
    directory: PathBuf,
    background: Vec<machine::Running>,
}

impl Run {
    fn open(arguments: Arguments, directory: PathBuf, folder: PathBuf, brief: &str, steps: &[Step]) -> Self {
        let id = arguments.value("--session-id").or(arguments.value("--resume"));
        let id = id.map_or_else(machine::uuid, str::to_owned);
        let named = steps.iter().find_map(|step| if let Step::Model(name) = step { Some(name.as_str()) } else { None });
        let model = named.or(arguments.value("--model")).unwrap_or("claude-opus-5-5").to_owned();
        let folder = (!arguments.has("--no-session-persistence")).then_some(folder);
        let mut session = Session::open(id, model, login() == "oauth_token", folder);
        session.record(json!({"type": "user", "message": {"role": "user", "content": brief}, "isSidechain": false}));
        let session = Arc::new(Mutex::new(session));
        watch(&session);
        let run = Self { session, arguments, directory, background: Vec::new() };
        run.init();
        run
    }

    fn init(&self) {
        let named = self.arguments.list("--tools");
        let tools = if self.arguments.value("--tools").is_some() { named } else { ALL_TOOLS.to_vec() };
        lock(&self.session).init(&self.directory, &tools, self.arguments.mode());
    }

    /// Carries out one step; a code ends the run.
    fn step(&mut self, step: Step) -> Option<i32> {
        match step {
            Step::Shell(command) | Step::QuietShell(command) => self.shell(&command),
            Step::Background(command) => self.background(&command),
            Step::Edit(path, text) => self.edit(&path, &text),
            Step::Say(text) => lock(&self.session).text(&text),
            Step::Event(line) => lock(&self.session).raw(&line),
            Step::Stderr(text) => machine::say_on_stderr(&text),
            Step::BigLine(size) => self.big_line(size),
            Step::Sleep(length) => thread::sleep(length),
            Step::Spin(length) => machine::spin(length),
            Step::Hang => machine::hang(),
            Step::IgnoreTerm => machine::ignore_signals(),
            Step::WaitFor(path) => machine::wait_for(&self.directory.join(path)),
            Step::Exit(code) => return Some(code),
            Step::SignalSelf(number) => machine::die_of_number(number),
            Step::CutLastLine => lock(&self.session).cut_last_line = true,
            Step::NoResult => return Some(0),
            Step::SecondResult => self.second_turn("Background command \"bg\" completed (exit code 0)"),
            Step::UsageLimit => return Some(self.usage_limit()),
            Step::AuthRetries(count, delay) => return Some(self.auth_retries(count, delay)),
            Step::RateLimit(used) => {
                lock(&self.session).limit(used, if used > 90.0 { "allowed_warning" } else { "allowed" })
            }
            Step::Deny(tool) => {
                let mut session = lock(&self.session);
                let input = json!({"command": "touch denied"});
                let call = session.call(&tool, &input);
                session.deny(&call, &tool, &input);
            }
            Step::Model(_) => {}
            Step::FailStart(_) | Step::Fixture(_) => return Some(fail("fake: this step must be the first", 70)),
        }
        None
    }

    /// The variables that Claude Code gives its commands. It takes none away, the login included.
    fn start(&self, command: &str) -> io::Result<machine::Running> {
        let set = [
            ("CLAUDECODE", "1".to_owned()),
            ("CLAUDE_CODE_CHILD_SESSION", "1".to_owned()),
            ("CLAUDE_CODE_SESSION_ID", lock(&self.session).id.clone()),
            ("CLAUDE_CODE_ENTRYPOINT", "sdk-cli".to_owned()),
            ("AI_AGENT", "claude-code".to_owned()),
            ("GIT_EDITOR", "true".to_owned()),
        ];
        machine::start(command, &self.directory, &set, &[])
    }

    fn shell(&self, command: &str) {
        let input = json!({"command": command, "description": "a command of the script"});
        let call = lock(&self.session).call("Bash", &input);
        if !self.arguments.bash_is_allowed() && !claude_arguments::only_reads(command) {
            return lock(&self.session).deny(&call, "Bash", &input);
        }
        let (output, code) = self.start(command).map_or_else(|error| (error.to_string(), 126), machine::Running::wait);
        let output = output.trim_end();
        let mut session = lock(&self.session);
        if code == 0 {
            let detail = json!({"stdout": output, "stderr": "", "interrupted": false, "isImage": false});
            session.answer(&call, output, false, detail);
        } else {
            let text = format!("Exit code {code}\n{output}");
            session.answer(&call, &text, true, json!(format!("Error: {text}")));
        }
    }

    fn big_line(&self, size: usize) {
        let mut session = lock(&self.session);
        let call = session.call("Bash", &json!({"command": "yes"}));
        session.answer(&call, &"x".repeat(size), false, json!({"stdout": "", "stderr": "", "interrupted": false}));
    }

    fn background(&mut self, command: &str) {
        let input = json!({"command": command, "description": "bg", "run_in_background": true});
        let call = lock(&self.session).call("Bash", &input);
        if machine::variable("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS").is_some() {
            let text = "InputValidationError: An unexpected parameter `run_in_background` was provided";
            return lock(&self.session).answer(&call, text, true, json!(format!("Error: {text}")));
        }
        self.background.extend(self.start(command).ok());
        let mut session = lock(&self.session);
        session.event(json!({"type": "system", "subtype": "task_started", "task_id": "bfake", "tool_use_id": call,
            "description": "bg", "is_backgrounded": true, "task_type": "local_bash"}));
        session.answer(
            &call,
            "Command running in background with ID: bfake.",
            false,
            json!({"backgroundTaskId": "bfake"}),
        );
    }

    fn edit(&self, path: &Path, text: &str) {
        let path = self.directory.join(path);
        let input = json!({"file_path": path, "content": text});
        let call = lock(&self.session).call("Write", &input);
        let written = std::fs::write(&path, text);
        let mut session = lock(&self.session);
        match written {
            Ok(()) => session.answer(
                &call,
                &format!("File created successfully at: {}", path.display()),
                false,
                json!({"type": "create", "filePath": path}),
            ),
            Err(error) => session.answer(
                &call,
                &format!("{error}, open '{}'", path.display()),
                true,
                json!(format!("Error: {error}, open '{}'", path.display())),
            ),
        }
    }

    /// Prints the result so far and opens the turn of a task's notification.
    fn second_turn(&self, summary: &str) {
        lock(&self.session).result(COMPLETED);
        lock(&self.session).event(json!({"type": "system", "subtype": "task_notification", "task_id": "bfake",
            "status": "completed", "summary": summary}));
        self.init();
    }

    fn failed(&self, text: &str, error: &str, more: Value) -> i32 {
        let mut session = lock(&self.session);
        session.api_error(text, error, more.clone());
        session.result(End { subtype: "success", is_error: true, reason: "api_error", more });
        session.close();
        1
    }

    fn not_logged_in(&self) -> i32 {
        self.failed("Not logged in \u{b7} Please run /login", "authentication_failed", Value::Null)
    }

    fn usage_limit(&self) -> i32 {
        if !lock(&self.session).subscription {
            self.retry(1, Duration::ZERO, 429, "rate_limit");
            let text = "API Error: Request rejected (429) \u{b7} This request would exceed your account's rate limit. \
                        Please try again later.";
            let more = json!({"api_error_status": 429, "api_error_type": "rate_limit_error"});
            return self.failed(text, "rate_limit", more);
        }
        lock(&self.session).limit(100.0, "rejected");
        let more = json!({"api_error_status": 429, "api_error_type": "rate_limit_error",
            "api_error": "usage_limit_reached"});
        self.failed("You've hit your 5-hour limit \u{b7} resets 12am (UTC)", "rate_limit", more)
    }

    fn retry(&self, count: u64, delay: Duration, status: u16, error: &str) {
        for attempt in 1..=count {
            lock(&self.session).event(json!({"type": "system", "subtype": "api_retry", "attempt": attempt,
                "max_retries": count, "retry_delay_ms": 500 * attempt, "error_status": status, "error": error}));
            thread::sleep(delay);
        }
    }

    fn auth_retries(&self, count: u64, delay: Duration) -> i32 {
        self.retry(count, delay, 401, "authentication_failed");
        let more = json!({"api_error_status": 401, "api_error_type": "authentication_error"});
        self.failed("Failed to authenticate. API Error: 401 invalid x-api-key", "authentication_failed", more)
    }

    /// Ends as the real one does: a result, then, if work went on behind it, another one.
    fn finish(mut self) -> i32 {
        let left = std::mem::take(&mut self.background);
        for running in left {
            lock(&self.session).result(COMPLETED);
            let (_, code) = running.wait();
            let summary = format!("Background command \"bg\" completed (exit code {code})");
            lock(&self.session).event(json!({"type": "system", "subtype": "task_notification", "task_id": "bfake",
                "status": "completed", "summary": summary}));
            self.init();
        }
        let mut session = lock(&self.session);
        session.result(COMPLETED);
        session.close();
        0
    }
}

/// TERM and HUP end it without a result (143, 129); INT exits 0, with a result only inside a tool.
fn watch(session: &Shared) {
    let session = Arc::clone(session);
    machine::watch_signals(move |signal| {
        let mut session = lock(&session);
        let in_tool = machine::command_runs();
        machine::kill_command();
        session.event(json!({"type": "user", "message": {"role": "user",
            "content": [{"type": "text", "text": "[Request interrupted by user]"}]}, "parent_tool_use_id": null}));
        if signal == Signal::SIGINT && in_tool {
            let more = json!({"errors": ["interrupted"]});
            session.result(End { subtype: "error_during_execution", is_error: true, reason: "aborted_tools", more });
        }
        session.close();
        machine::exit(if signal == Signal::SIGINT { 0 } else { 128 + signal as i32 });
    });
}
