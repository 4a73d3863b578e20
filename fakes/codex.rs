//! A stand-in for the `codex` CLI, version 0.171.0, scripted by the brief (see `script.rs`).
//!
//! It needs no login and no network, checks its command line as the real one does, and reproduces
//! the real one's stream, rollout, exit codes and behaviour on signals.

mod codex_arguments;
mod codex_rollout;
#[expect(dead_code, reason = "shared with the other stand-in, which uses the rest")]
mod machine;
mod script;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use codex_arguments::Arguments;
use codex_rollout::{Header, Rollout};
use script::Step;

const FEATURES: &str = include_str!("codex_features.txt");
const KNOWN_MODELS: [&str; 3] = ["gpt-6", "gpt-5.6", "gpt-5.5"];
const USAGE_LIMIT: &str = "You\u{2019}ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit \
                           https://chatgpt.com/codex/settings/usage to purchase more credits or try again at Jan 1st, \
                           2030 12:00 AM.";

fn main() {
    machine::become_shell_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let code = match words.as_slice() {
        ["--version" | "-V"] => print("codex-cli 0.171.0"),
        ["features", "list"] => print(FEATURES.trim_end()),
        ["login", "status"] => login_status(),
        ["sandbox", ..] => sandbox(arguments.get(1..).unwrap_or_default()),
        ["exec", ..] => exec(arguments.get(1..).unwrap_or_default()),
        _ => fail("error: unrecognized subcommand", 2),
    };
    machine::exit(code)
}

fn print(text: &str) -> i32 {
    i32::from(writeln!(io::stdout(), "{text}").is_err())
}

fn fail(text: &str, code: i32) -> i32 {
    machine::say_on_stderr(text);
    code
}

fn login_status() -> i32 {
    match codex_home() {
        Ok(home) if home.join("auth.json").is_file() => fail("Logged in using ChatGPT", 0),
        _ => fail("Not logged in", 1),
    }
}

fn codex_home() -> Result<PathBuf, String> {
    let from_home = || PathBuf::from(machine::variable("HOME").unwrap_or_default()).join(".codex");
    let Some(home) = machine::variable("CODEX_HOME").map(PathBuf::from) else {
        let home = from_home();
        let _ = std::fs::create_dir_all(&home);
        return Ok(home);
    };
    if home.is_dir() {
        return Ok(home);
    }
    Err(format!("Error finding codex home: CODEX_HOME points to {home:?}, but that path does not exist"))
}

/// Whether the Codex home lies under the temporary directory, where no helper can be installed.
fn home_is_unusable() -> bool {
    let temp = machine::variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    codex_home().is_ok_and(|home| home.canonicalize().unwrap_or(home).starts_with(temp.canonicalize().unwrap_or(temp)))
}

const NO_HELPER: &str = "bwrap: execvp codex-linux-sandbox: No such file or directory";

fn sandbox(arguments: &[String]) -> i32 {
    let split = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (flags, command) = arguments.split_at(split);
    let value = |name: &str| flags.iter().position(|flag| flag == name).and_then(|at| flags.get(at + 1));
    let [_, program, rest @ ..] = command else { return fail("error: no command", 2) };
    if value("-P").is_none() {
        return fail("error: a permission profile is required", 1);
    }
    if home_is_unusable() {
        return fail(NO_HELPER, 1);
    }
    let directory = value("-C").map_or_else(machine::directory, PathBuf::from);
    let status = Command::new(program).args(rest).current_dir(directory).status();
    status.map_or(1, |status| status.code().unwrap_or(1))
}

/// Everything that both the script and the signal thread write to.
struct Session {
    rollout: Rollout,
    items: u64,
    requests: u64,
    last_message: Option<String>,
    used_percent: Option<f64>,
    cut_last_line: bool,
    background: Vec<machine::Running>,
}

type Shared = Arc<Mutex<Session>>;

fn lock(session: &Shared) -> MutexGuard<'_, Session> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes one line to stdout; like the real one it panics (101) when nobody can read it.
fn emit(line: &str) {
    let mut out = io::stdout().lock();
    if out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).is_err() {
        machine::exit(101);
    }
}

fn exec(arguments: &[String]) -> i32 {
    let arguments = match codex_arguments::parse(arguments) {
        Ok(arguments) => arguments,
        Err(text) => return fail(&text, 2),
    };
    let (home, directory) = match check_start(&arguments) {
        Ok(found) => found,
        Err(text) => return fail(&text, 1),
    };
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
        [Step::Fixture(name), ..] => return replay(name, &home),
        _ => {}
    }
    let mut run = match Run::open(arguments, &home, directory, &brief, &steps) {
        Ok(run) => run,
        Err(error) => return fail(&format!("Error: {error}"), 1),
    };
    if brief.chars().count() > 1_048_576 {
        return fail(
            "Error: turn/start: turn/start failed: Input exceeds the maximum length of 1048576 characters. (code \
             -32602)",
            1,
        );
    }
    emit(r#"{"type":"turn.started"}"#);
    for step in steps {
        if let Some(code) = run.step(step) {
            return code;
        }
    }
    run.finish()
}

fn check_start(arguments: &Arguments) -> Result<(PathBuf, PathBuf), String> {
    let known = |name: &str| FEATURES.lines().any(|line| line.split_whitespace().next() == Some(name));
    if let Some(unknown) = arguments.features.iter().find(|name| !known(name)) {
        return Err(format!("Error: Unknown feature flag: {unknown}"));
    }
    let home = codex_home()?;
    let directory = arguments.directory.clone().unwrap_or_else(machine::directory);
    let directory = directory.canonicalize().map_err(|error| format!("Error: {error}"))?;
    if home_is_unusable() {
        machine::say_on_stderr(
            "WARNING: proceeding, even though we could not create PATH aliases: Refusing to create helper binaries \
             under temporary dir",
        );
    }
    if let Some(path) = &arguments.last_message {
        let made = std::fs::OpenOptions::new().create(true).append(true).open(path);
        made.map_err(|error| format!("Error: Failed to open last message file {path:?}: {error}"))?;
    }
    Ok((home, directory))
}

fn read_brief(arguments: &Arguments) -> Result<String, String> {
    if let Some(prompt) = arguments.prompt.as_ref().filter(|prompt| *prompt != "-") {
        return Ok(prompt.clone());
    }
    if arguments.prompt.is_none() {
        machine::say_on_stderr("Reading prompt from stdin...");
    }
    let mut brief = String::new();
    io::stdin().read_to_string(&mut brief).map_err(|error| format!("Error: {error}"))?;
    if brief.trim().is_empty() { Err("No prompt provided via stdin.".to_owned()) } else { Ok(brief) }
}

/// Replays a recorded run: its stream, its rollout, its error output and its exit code.
fn replay(name: &str, home: &Path) -> i32 {
    let find = |ending: &str| {
        ["exec", "provider", "resume", "signals"]
            .iter()
            .find_map(|folder| machine::recorded(&format!("codex/{folder}/{name}.{ending}")))
    };
    let Some(stream) = find("stdout.jsonl") else { return fail(&format!("fake: no recorded run {name}"), 70) };
    let first: Value = stream.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    let thread = first.get("thread_id").and_then(Value::as_str).map_or_else(machine::uuid7, str::to_owned);
    if let (Some(recorded), Ok(mut rollout)) = (find("rollout.jsonl"), Rollout::create(Some(home), &thread)) {
        recorded.lines().for_each(|line| rollout.raw(line));
    }
    let _ = io::stderr().write_all(find("stderr.txt").unwrap_or_default().as_bytes());
    let _ = io::stdout().write_all(stream.as_bytes());
    let code = find("rc").and_then(|text| text.trim().parse().ok()).unwrap_or(70);
    if code > 128 { machine::die_of_number(code - 128) } else { code }
}

/// One run of `exec`.
struct Run {
    session: Shared,
    arguments: Arguments,
    directory: PathBuf,
    thread_id: String,
}

impl Run {
    fn open(arguments: Arguments, home: &Path, directory: PathBuf, brief: &str, steps: &[Step]) -> io::Result<Self> {
        let thread_id = arguments.resume.clone().unwrap_or_else(machine::uuid7);
        let mut rollout = Rollout::create((!arguments.ephemeral).then_some(home), &thread_id)?;
        let asked = arguments.model.clone().unwrap_or_else(|| "gpt-6.2-sol".to_owned());
        let named = steps.iter().find_map(|step| if let Step::Model(name) = step { Some(name.clone()) } else { None });
        let header = Header {
            directory: &directory,
            model: named.as_deref().unwrap_or(&asked),
            effort: arguments.setting("model_reasoning_effort"),
            sandbox: arguments.sandbox.as_deref().unwrap_or("read-only"),
        };
        rollout.open_turn(&header, brief);
        let session = Arc::new(Mutex::new(Session {
            rollout,
            items: 0,
            requests: 0,
            last_message: None,
            used_percent: None,
            cut_last_line: false,
            background: Vec::new(),
        }));
        watch(&session);
        let run = Self { session, arguments, directory, thread_id };
        emit(&machine::object(&[
            ("type", machine::json("thread.started")),
            ("thread_id", machine::json(&run.thread_id)),
        ]));
        if !KNOWN_MODELS.iter().any(|known| asked.starts_with(known)) {
            run.notice(&format!(
                "Model metadata for `{asked}` not found. Defaulting to fallback metadata; this can degrade \
                 performance and cause issues."
            ));
        }
        Ok(run)
    }

    fn next_item(&self) -> String {
        let mut session = lock(&self.session);
        session.items += 1;
        format!("item_{}", session.items - 1)
    }

    fn item(event: &str, members: &[(&str, String)]) {
        emit(&machine::object(&[("type", machine::json(event)), ("item", machine::object(members))]));
    }

    fn notice(&self, text: &str) {
        let id = machine::json(self.next_item());
        Self::item("item.completed", &[("id", id), ("type", machine::json("error")), ("message", machine::json(text))]);
    }

    /// Carries out one step; a code ends the run.
    fn step(&mut self, step: Step) -> Option<i32> {
        match step {
            Step::Shell(command) => self.shell(&command, true),
            Step::QuietShell(command) => self.shell(&command, false),
            Step::Background(command) => self.background(&command),
            Step::Edit(path, text) => self.edit(&path, &text),
            Step::Say(text) => self.message(&text),
            Step::Event(line) => emit(&line),
            Step::Stderr(text) => machine::say_on_stderr(&text),
            Step::BigLine(size) => self.show_command("yes", &"x".repeat(size), 0),
            Step::Sleep(length) => thread::sleep(length),
            Step::Spin(length) => machine::spin(length),
            Step::Hang => machine::hang(),
            Step::IgnoreTerm => machine::ignore_signals(),
            Step::WaitFor(path) => machine::wait_for(&self.directory.join(path)),
            Step::Exit(code) => return Some(code),
            Step::SignalSelf(number) => machine::die_of_number(number),
            Step::CutLastLine => lock(&self.session).cut_last_line = true,
            Step::NoResult => return Some(0),
            Step::UsageLimit => return Some(self.usage_limit()),
            Step::AuthRetries(count, delay) => return Some(self.auth_retries(count, delay)),
            Step::RateLimit(used) => self.rate_limit(used),
            Step::Deny(tool) => self.denied(&tool),
            Step::SecondResult | Step::Model(_) => {}
            Step::FailStart(_) | Step::Fixture(_) => {
                return Some(fail("fake: this step must be the first", 70));
            }
        }
        None
    }

    /// The variables that Codex gives its commands, and those that it takes away.
    fn command_environment(&self) -> (Vec<(&'static str, String)>, Vec<OsString>) {
        let set = vec![
            ("CODEX_THREAD_ID", self.thread_id.clone()),
            ("CODEX_SESSION_ID", self.thread_id.clone()),
            ("CODEX_CI", "1".to_owned()),
            ("CODEX_VERSION", "0.171.0".to_owned()),
            ("CODEX_SANDBOX_NETWORK_DISABLED", "1".to_owned()),
            ("NO_COLOR", "1".to_owned()),
            ("PAGER", "cat".to_owned()),
            ("GIT_PAGER", "cat".to_owned()),
            ("TERM", "dumb".to_owned()),
        ];
        let excludes = self.arguments.setting("shell_environment_policy.ignore_default_excludes") == Some("false");
        let secret = |name: &OsString| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            excludes && ["KEY", "SECRET", "TOKEN"].iter().any(|word| name.contains(word))
        };
        (set, machine::variable_names().into_iter().filter(secret).collect())
    }

    fn start(&self, command: &str) -> io::Result<machine::Running> {
        let (set, unset) = self.command_environment();
        machine::start(command, &self.directory, &set, &unset)
    }

    fn shell(&mut self, command: &str, shown: bool) {
        let call_id = self.open_call(command);
        let id = shown.then(|| self.next_item());
        if let Some(id) = &id {
            Self::item("item.started", &command_item(id, command, "", None));
        }
        let (output, code) = if home_is_unusable() {
            (format!("{NO_HELPER}\n"), 1)
        } else {
            self.start(command).map_or_else(|error| (error.to_string(), 126), machine::Running::wait)
        };
        if let Some(id) = &id {
            Self::item("item.completed", &command_item(id, command, &output, Some(code)));
        }
        self.close_call(&call_id, command, &output, code, shown);
    }

    fn show_command(&self, command: &str, output: &str, code: i32) {
        let call_id = self.open_call(command);
        let id = self.next_item();
        Self::item("item.started", &command_item(&id, command, "", None));
        Self::item("item.completed", &command_item(&id, command, output, Some(code)));
        self.close_call(&call_id, command, output, code, true);
    }

    fn background(&self, command: &str) {
        self.open_call(command);
        Self::item("item.started", &command_item(&self.next_item(), command, "", None));
        if let Ok(running) = self.start(command) {
            lock(&self.session).background.push(running);
        }
    }

    fn open_call(&self, command: &str) -> String {
        let mut session = lock(&self.session);
        session.requests += 1;
        let call_id = format!("call_{}", session.requests);
        session.rollout.call(&call_id, command);
        call_id
    }

    fn close_call(&self, call_id: &str, command: &str, output: &str, code: i32, shown: bool) {
        let status = if code == 0 { "completed" } else { "failed" };
        let mut session = lock(&self.session);
        if shown {
            session.rollout.item(&json!({"type": "CommandExecution", "id": call_id,
                "command": ["/bin/bash", "-lc", command], "status": status, "aggregated_output": output,
                "exit_code": code}));
        }
        session.rollout.call_output(call_id, output, code);
    }

    fn edit(&self, path: &Path, text: &str) {
        let path = self.directory.join(path);
        let kind = if path.exists() { "update" } else { "add" };
        if std::fs::write(&path, text).is_err() {
            machine::say_on_stderr("ERROR codex_core::tools: patch rejected: writing outside of the project");
            return;
        }
        let changes = machine::json(json!([{"path": path, "kind": kind}]));
        let id = machine::json(self.next_item());
        for (event, status) in [("item.started", "in_progress"), ("item.completed", "completed")] {
            let kind = machine::json("file_change");
            let status = machine::json(status);
            Self::item(event, &[("id", id.clone()), ("type", kind), ("changes", changes.clone()), ("status", status)]);
        }
    }

    fn message(&self, text: &str) {
        let id = machine::json(self.next_item());
        let kind = machine::json("agent_message");
        Self::item("item.completed", &[("id", id), ("type", kind), ("text", machine::json(text))]);
        let mut session = lock(&self.session);
        session.rollout.message(text);
        session.last_message = Some(text.to_owned());
    }

    fn rate_limit(&self, used: f64) {
        let mut session = lock(&self.session);
        session.used_percent = Some(used);
        let usage = usage(session.requests);
        session.rollout.tokens(Some(&usage), Some(used));
    }

    fn denied(&self, tool: &str) {
        let mut session = lock(&self.session);
        session.rollout.call_output(
            "call_denied",
            &format!("{tool}: patch rejected: writing outside of the project"),
            1,
        );
        machine::say_on_stderr("ERROR codex_core::tools: patch rejected: writing outside of the project");
    }

    fn failed(&self, message: &str, info: Value) -> i32 {
        let mut session = lock(&self.session);
        session.rollout.complete(None, Some((message, info)));
        emit(&machine::object(&[("type", machine::json("error")), ("message", machine::json(message))]));
        let error = machine::object(&[("message", machine::json(message))]);
        last_line(&session, &machine::object(&[("type", machine::json("turn.failed")), ("error", error)]));
        1
    }

    fn usage_limit(&self) -> i32 {
        lock(&self.session).rollout.tokens(None, Some(100.0));
        self.failed(USAGE_LIMIT, json!("usage_limit_exceeded"))
    }

    fn auth_retries(&self, count: u64, delay: Duration) -> i32 {
        let cause = "unexpected status 401 Unauthorized: Incorrect API key provided: dummy., url: \
                     https://api.openai.com/v1/responses";
        for attempt in 1..=count.min(5) {
            let text = format!("Reconnecting... {attempt}/5 ({cause})");
            emit(&machine::object(&[("type", machine::json("error")), ("message", machine::json(text))]));
            thread::sleep(delay);
        }
        self.failed(cause, json!({"http_connection_failed": {"http_status_code": 401}}))
    }

    /// Ends the turn as the real one does when the model has nothing more to say.
    fn finish(self) -> i32 {
        let mut session = lock(&self.session);
        session.requests += 1;
        let usage = usage(session.requests);
        let (used, last) = (session.used_percent, session.last_message.clone());
        session.rollout.tokens(Some(&usage), used);
        session.rollout.complete(last.as_deref(), None);
        let shown = [
            "input_tokens",
            "cached_input_tokens",
            "cache_write_input_tokens",
            "output_tokens",
            "reasoning_output_tokens",
        ]
        .map(|key| (key, machine::json(usage.get(key))));
        last_line(
            &session,
            &machine::object(&[("type", machine::json("turn.completed")), ("usage", machine::object(&shown))]),
        );
        session.background.drain(..).for_each(machine::Running::kill);
        if let Some(path) = &self.arguments.last_message {
            if last.is_none() {
                machine::say_on_stderr(&format!("Warning: no last agent message; wrote empty content to {path:?}"));
            }
            let _ = std::fs::write(path, last.unwrap_or_default());
        }
        0
    }
}

/// Reproduces what the signals do: INT is an orderly end without a terminal event, the others kill.
fn watch(session: &Shared) {
    let session = Arc::clone(session);
    machine::watch_signals(move |signal| {
        if signal != Signal::SIGINT {
            machine::die_of(signal);
        }
        let mut session = lock(&session);
        machine::kill_command();
        session.background.drain(..).for_each(machine::Running::kill);
        session.rollout.abort();
        machine::exit(1);
    });
}

fn last_line(session: &Session, line: &str) {
    if session.cut_last_line {
        let _ = io::stdout().write_all(line.get(..line.len() / 2).unwrap_or_default().as_bytes());
        let _ = io::stdout().flush();
    } else {
        emit(line);
    }
}

fn command_item(id: &str, command: &str, output: &str, code: Option<i32>) -> [(&'static str, String); 6] {
    let status = match code {
        None => "in_progress",
        Some(0) => "completed",
        Some(_) => "failed",
    };
    [
        ("id", machine::json(id)),
        ("type", machine::json("command_execution")),
        ("command", machine::json(format!("/bin/bash -lc '{command}'"))),
        ("aggregated_output", machine::json(output)),
        ("exit_code", machine::json(code)),
        ("status", machine::json(status)),
    ]
}

fn usage(requests: u64) -> Value {
    json!({"input_tokens": 1200 * requests, "cached_input_tokens": 1000 * requests, "cache_write_input_tokens": 0,
        "output_tokens": 34 * requests, "reasoning_output_tokens": 10 * requests, "total_tokens": 1234 * requests})
}
