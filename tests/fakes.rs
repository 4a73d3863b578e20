//! The stand-ins behave as the real CLIs were recorded to behave.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails panics")]

mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{PATIENCE, TestBed, fake, processes, wait_until};

fn codex(bed: &TestBed, more: &[&str]) -> Command {
    let mut command = bed.command(fake("fake-codex"), &bed.path());
    command.env("CODEX_HOME", bed.codex_home());
    command.args([
        "exec",
        "-C",
        bed.path().to_str().unwrap(),
        "-s",
        "workspace-write",
        "--json",
        "--skip-git-repo-check",
    ]);
    command.args(["--disable", "plugins", "-c", "model_reasoning_effort=\"high\"", "-m", "gpt-6.2-sol"]);
    command.args(more);
    command
}

const SESSION: &str = "3f2f0a5e-8d1e-4a0e-9a52-0d9b8f1d2c3e";

fn claude(bed: &TestBed, more: &[&str]) -> Command {
    let mut command = bed.command(fake("fake-claude"), &bed.path());
    command.env("CLAUDE_CONFIG_DIR", bed.home().join(".claude"));
    command.args(["-p", "--output-format", "stream-json", "--verbose", "--model", "claude-opus-5-5"]);
    command.args(["--session-id", SESSION, "--permission-mode", "dontAsk", "--allowedTools", "Bash", "Read"]);
    command.args(more);
    command
}

fn start(mut command: Command, brief: &str) -> Child {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // One that refuses its command line may be gone before it has read anything.
    let _ = child.stdin.take().unwrap().write_all(brief.as_bytes());
    child
}

fn run(command: Command, brief: &str) -> Output {
    start(command, brief).wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(output: &Output) -> Vec<String> {
    let name = |line: &Value| {
        let member = |key: &str| line.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let item = line.pointer("/item/type").and_then(Value::as_str).unwrap_or_default();
        [member("type"), item.to_owned(), member("subtype")]
            .iter()
            .filter(|s| !s.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    lines(output).iter().map(name).collect()
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .flatten()
        .filter(|e| e.file_type().is_file())
        .map(|e| e.into_path())
        .collect()
}

fn rollout(bed: &TestBed) -> String {
    let files = files_under(&bed.codex_home().join("sessions"));
    assert_eq!(files.len(), 1);
    fs::read_to_string(&files[0]).unwrap()
}

#[test]
fn codex_shows_commands_messages_and_usage() {
    let bed = TestBed::new();
    let last = bed.path().join("last.txt");
    let brief = "Goal: x\nFAKE: sh echo hi; exit 3\nFAKE: edit a.txt one\nFAKE: report STATUS: DONE\\n\\nAll well.\n\nSTATUS: DONE contract";
    let output = run(codex(&bed, &["-o", last.to_str().unwrap(), "-"]), brief);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = [
        "thread.started",
        "turn.started",
        "item.started command_execution",
        "item.completed command_execution",
        "item.started file_change",
        "item.completed file_change",
        "item.completed agent_message",
        "turn.completed",
    ];
    assert_eq!(kinds(&output), expected);
    let events = lines(&output);
    assert_eq!(events[3].pointer("/item/exit_code"), Some(&Value::from(3)));
    assert_eq!(events[3].pointer("/item/aggregated_output"), Some(&Value::from("hi\n")));
    assert_eq!(fs::read_to_string(&last).unwrap(), "STATUS: DONE\n\nAll well.");
    assert_eq!(fs::read_to_string(bed.path().join("a.txt")).unwrap(), "one\n");
    let rollout = rollout(&bed);
    let thread = events[0]["thread_id"].as_str().unwrap();
    assert!(files_under(&bed.codex_home())[0].to_str().unwrap().ends_with(&format!("{thread}.jsonl")));
    for text in ["session_meta", "\"effort\":\"high\"", "function_call_output", "task_complete", "token_count"] {
        assert!(rollout.contains(text), "{text}");
    }
}

#[test]
fn codex_refuses_what_the_real_one_refuses() {
    let bed = TestBed::new();
    let code = |more: &[&str], brief: &str| run(codex(&bed, more), brief).status.code();
    assert_eq!(code(&["--nosuch"], "x"), Some(2));
    assert_eq!(code(&["-a", "never"], "x"), Some(2));
    assert_eq!(code(&["resume", "-s", "read-only", SESSION], "x"), Some(2));
    assert_eq!(code(&["--disable", "nosuch_feature"], "x"), Some(1));
    assert_eq!(code(&["-"], " \n"), Some(1));
    let mut homeless = codex(&bed, &["-"]);
    homeless.env("CODEX_HOME", bed.path().join("nowhere"));
    let output = run(homeless, "x");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
}

#[test]
fn codex_cannot_run_commands_when_its_home_lies_under_the_temporary_directory() {
    let bed = TestBed::new();
    let mut command = codex(&bed, &["-"]);
    command.env("TMPDIR", bed.path());
    let output = run(command, "FAKE: sh touch made\nFAKE: say x");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("execvp codex-linux-sandbox"));
    assert!(!bed.path().join("made").exists());
    let mut preflight = bed.command(fake("fake-codex"), &bed.path());
    preflight.env("TMPDIR", bed.path()).args(["sandbox", "-P", ":workspace", "-C", "/", "--", "true"]);
    assert_eq!(preflight.output().unwrap().status.code(), Some(1));
}

#[test]
fn codex_answers_short_questions() {
    let bed = TestBed::new();
    let ask = |arguments: &[&str]| bed.command(fake("fake-codex"), &bed.path()).args(arguments).output().unwrap();
    assert_eq!(ask(&["--version"]).stdout, b"codex-cli 0.171.0\n");
    assert!(String::from_utf8_lossy(&ask(&["features", "list"]).stdout).contains("unbounded_connection_retries"));
    assert_eq!(ask(&["login", "status"]).status.code(), Some(1));
    let sandboxed = ask(&["sandbox", "-P", ":workspace", "-C", "/", "--", "sh", "-c", "pwd; exit 7"]);
    assert_eq!((sandboxed.status.code(), sandboxed.stdout.as_slice()), (Some(7), b"/\n".as_slice()));
}

/// Starts a worker whose command sleeps, and returns it with the command's process.
fn with_open_command(bed: &TestBed, command: Command, before: &str) -> (Child, i32) {
    let pid_file = bed.path().join("pid");
    let brief = format!(
        "{before}FAKE: sh echo $$ > pid.tmp; mv pid.tmp {}; exec sleep 300\nFAKE: say late",
        pid_file.display()
    );
    let child = start(command, &brief);
    wait_until(PATIENCE, "the command runs", || pid_file.exists());
    let pid = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    (child, pid)
}

fn send(child: &Child, signal: Signal) {
    processes::signal(i32::try_from(child.id()).unwrap(), signal);
}

#[test]
fn each_command_has_a_session_of_its_own() {
    let bed = TestBed::new();
    for command in [codex(&bed, &["-"]), claude(&bed, &[])] {
        let _ = fs::remove_file(bed.path().join("pid"));
        let (mut child, pid) = with_open_command(&bed, command, "");
        assert_eq!(processes::session(pid), Some(pid));
        send(&child, Signal::SIGKILL);
        child.wait().unwrap();
        assert!(processes::is_alive(pid), "the command lives on when its CLI is killed hard");
        processes::kill(pid);
    }
}

#[test]
fn codex_on_signals() {
    use std::os::unix::process::ExitStatusExt;
    let bed = TestBed::new();
    let (child, pid) = with_open_command(&bed, codex(&bed, &["-"]), "");
    send(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(kinds(&output).last().unwrap(), "item.started command_execution");
    assert!(rollout(&bed).contains("turn_aborted"));
    wait_until(PATIENCE, "the command is gone", || !processes::is_alive(pid));

    let bed = TestBed::new();
    let (child, pid) = with_open_command(&bed, codex(&bed, &["-"]), "");
    send(&child, Signal::SIGTERM);
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(15));
    assert!(processes::is_alive(pid), "a command with full access survives TERM");
    processes::kill(pid);

    let bed = TestBed::new();
    let (child, pid) = with_open_command(&bed, codex(&bed, &["-"]), "FAKE: ignore-term\n");
    send(&child, Signal::SIGINT);
    send(&child, Signal::SIGTERM);
    processes::kill(pid);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn claude_on_signals() {
    let bed = TestBed::new();
    let (child, pid) = with_open_command(&bed, claude(&bed, &[]), "");
    send(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143));
    assert_eq!(kinds(&output).last().unwrap(), "user");
    wait_until(PATIENCE, "the command is gone", || !processes::is_alive(pid));

    let bed = TestBed::new();
    let (child, _) = with_open_command(&bed, claude(&bed, &[]), "");
    send(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(lines(&output).last().unwrap()["subtype"], "error_during_execution");
}

#[test]
fn claude_shows_one_block_per_event_and_a_result_that_does_not_open_with_its_type() {
    let bed = TestBed::new();
    let output = run(claude(&bed, &[]), "FAKE: sh echo hi\nFAKE: say Thinking.\nFAKE: report STATUS: DONE\\nGood.");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let expected = ["system init", "assistant", "user", "assistant", "assistant", "result success"];
    assert_eq!(kinds(&output), expected);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.lines().last().unwrap().starts_with("{\"type\""));
    let events = lines(&output);
    assert_eq!(events[1]["message"]["content"].as_array().unwrap().len(), 1);
    assert_eq!(events[1]["message"]["usage"]["output_tokens"], 1);
    assert_eq!(events[5]["result"], "STATUS: DONE\nGood.");
    assert_eq!(events[5]["session_id"], SESSION);
    let transcript = files_under(&bed.home().join(".claude/projects"));
    assert!(fs::read_to_string(&transcript[0]).unwrap().trim_end().lines().last().unwrap().contains("cost-state"));
    let again = run(claude(&bed, &[]), "FAKE: say x");
    assert_eq!((again.status.code(), again.stdout.len()), (Some(1), 0), "the session exists already");
}

#[test]
fn claude_refuses_what_the_real_one_refuses() {
    let bed = TestBed::new();
    let silent = |more: &[&str], brief: &str| {
        let output = run(claude(&bed, more), brief);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{more:?}");
        assert!(!output.stderr.is_empty());
    };
    silent(&["--no-such-flag"], "x");
    silent(&["--permission-mode", "nosuch"], "x");
    silent(&["--session-id", "no-uuid"], "x");
    silent(&["--settings", "{bad json"], "x");
    silent(&[], " \n");
    let mut stranger = claude(&bed, &[]);
    stranger.env_remove("ANTHROPIC_API_KEY");
    let output = run(stranger, "FAKE: say x");
    assert_eq!(output.status.code(), Some(1));
    assert!(lines(&output).last().unwrap()["result"].as_str().unwrap().starts_with("Not logged in"));
}

#[test]
fn claude_denies_bash_that_is_not_allowed() {
    let bed = TestBed::new();
    let mut command = bed.command(fake("fake-claude"), &bed.path());
    command.args(["-p", "--output-format", "stream-json", "--verbose", "--permission-mode", "dontAsk"]);
    let output = run(command, "FAKE: sh touch made\nFAKE: sh ls\nFAKE: say x");
    assert_eq!(output.status.code(), Some(0));
    assert!(!bed.path().join("made").exists());
    let result = lines(&output).pop().unwrap();
    assert_eq!(result["permission_denials"].as_array().unwrap().len(), 1);
    assert_eq!(result["is_error"], false);
}

#[test]
fn claude_wakes_up_again_after_background_work() {
    let bed = TestBed::new();
    let output = run(claude(&bed, &[]), "FAKE: bg echo done > bg.txt\nFAKE: say started");
    let expected = [
        "system init",
        "assistant",
        "system task_started",
        "user",
        "assistant",
        "result success",
        "system task_notification",
        "system init",
        "result success",
    ];
    assert_eq!(kinds(&output), expected);
    let mut command = claude(&bed, &["--session-id", "4f2f0a5e-8d1e-4a0e-9a52-0d9b8f1d2c3e"]);
    command.env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1");
    let output = run(command, "FAKE: bg echo x\nFAKE: say started");
    assert_eq!(kinds(&output), ["system init", "assistant", "user", "assistant", "result success"]);
}

#[test]
fn failures_look_as_recorded() {
    let bed = TestBed::new();
    let output = run(codex(&bed, &["-"]), "FAKE: usage-limit");
    assert_eq!((output.status.code(), kinds(&output).pop().unwrap().as_str()), (Some(1), "turn.failed"));
    assert!(rollout(&bed).contains("usage_limit_exceeded"));
    let mut subscriber = claude(&bed, &[]);
    subscriber.env_remove("ANTHROPIC_API_KEY").env("CLAUDE_CODE_OAUTH_TOKEN", "dummy");
    let output = run(subscriber, "FAKE: usage-limit");
    let result = lines(&output).pop().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((&result["subtype"], &result["is_error"]), (&Value::from("success"), &Value::from(true)));
    assert!(kinds(&output).contains(&"rate_limit_event".to_owned()));
    let mut command = claude(&bed, &["--session-id", "5f2f0a5e-8d1e-4a0e-9a52-0d9b8f1d2c3e"]);
    command.stderr(Stdio::null());
    let output = run(command, "FAKE: auth-retries 3 1");
    assert_eq!(kinds(&output).iter().filter(|kind| *kind == "system api_retry").count(), 3);
}

#[test]
fn streams_can_be_cut_huge_and_replayed() {
    let bed = TestBed::new();
    let cut = run(codex(&bed, &["-"]), "FAKE: say x\nFAKE: cut-last-line");
    assert!(cut.status.success() && !cut.stdout.ends_with(b"\n"));
    let huge = run(codex(&bed, &["-"]), "FAKE: big-line 2000000\nFAKE: say x");
    assert!(huge.stdout.len() > 2_000_000);
    let recorded = run(codex(&bed, &["-"]), "FAKE: fixture e401");
    assert_eq!(recorded.status.code(), Some(1));
    assert!(kinds(&recorded).contains(&"turn.failed".to_owned()));
    let recorded = run(claude(&bed, &[]), "FAKE: fixture bgtask");
    assert_eq!(kinds(&recorded).iter().filter(|kind| *kind == "result success").count(), 2);
    assert_eq!(run(codex(&bed, &["-"]), "FAKE: nonsense").status.code(), Some(70));
}
