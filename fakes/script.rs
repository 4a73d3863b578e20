//! The script that a test puts into the brief: lines `FAKE: verb argument`, carried out in order.
//!
//! Everything else in the brief is ignored, so the text that Lane appends does not matter.

use std::path::PathBuf;
use std::time::Duration;

/// One thing that the stand-in does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `sh COMMAND`: runs a shell command and shows it on the stream.
    Shell(String),
    /// `quiet-sh COMMAND`: runs one that never shows, as a denied command of Codex may not.
    QuietShell(String),
    /// `bg COMMAND`: starts one that may still run when the turn ends.
    Background(String),
    /// `edit PATH TEXT`: writes a file through the CLI's own edit tool.
    Edit(PathBuf, String),
    /// `say TEXT`: an assistant message. `report TEXT` is the same; `\n` stands for a line feed.
    Say(String),
    /// `event JSON`: a raw line on stdout.
    Event(String),
    /// `stderr TEXT`: a line on stderr.
    Stderr(String),
    /// `big-line BYTES`: a command whose output makes one line of that size.
    BigLine(usize),
    /// `sleep-ms N`.
    Sleep(Duration),
    /// `spin-ms N`: uses the processor that long.
    Spin(Duration),
    /// `hang`: does nothing for ever.
    Hang,
    /// `ignore-term`: from here on no signal but KILL ends it.
    IgnoreTerm,
    /// `wait-for PATH`: until that file exists, a minute at most.
    WaitFor(PathBuf),
    /// `exit CODE`: ends at once, with nothing more on the stream.
    Exit(i32),
    /// `signal-self NUMBER`.
    SignalSelf(i32),
    /// `fail-start TEXT`: TEXT on stderr, code 1, nothing on stdout. Only as the first step.
    FailStart(String),
    /// `cut-last-line`: the terminal line is cut in its middle.
    CutLastLine,
    /// `no-result`: exits 0 without the terminal event.
    NoResult,
    /// `second-result`: ends a turn here and opens another (Claude).
    SecondResult,
    /// `usage-limit`: the account's limit ends the run.
    UsageLimit,
    /// `auth-retries [COUNT] [DELAY_MS]`: the login is refused again and again, then for good.
    AuthRetries(u64, Duration),
    /// `rate-limit PERCENT`: a reading of the account's limit.
    RateLimit(f64),
    /// `deny TOOL`: a tool call that is denied.
    Deny(String),
    /// `model NAME`: another model answers than was asked for.
    Model(String),
    /// `fixture NAME`: replays a recorded run, its exit code included.
    Fixture(String),
}

/// Reads the script out of a brief.
///
/// # Errors
///
/// Names the first line that is no step.
pub fn steps(brief: &str) -> Result<Vec<Step>, String> {
    brief.lines().filter_map(|line| line.strip_prefix("FAKE: ")).map(|line| step(line.trim_end())).collect()
}

fn step(line: &str) -> Result<Step, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let bad = |_| format!("bad step: {line}");
    let text = || rest.replace("\\n", "\n");
    let number = || rest.parse::<u64>().map_err(|e| bad(e.to_string()));
    let code = || rest.parse::<i32>().map_err(|e| bad(e.to_string()));
    Ok(match verb {
        "sh" => Step::Shell(rest.to_owned()),
        "quiet-sh" => Step::QuietShell(rest.to_owned()),
        "bg" => Step::Background(rest.to_owned()),
        "edit" => {
            let (path, content) = rest.split_once(' ').unwrap_or((rest, ""));
            Step::Edit(path.into(), format!("{}\n", content.replace("\\n", "\n")))
        }
        "say" | "report" => Step::Say(text()),
        "event" => Step::Event(rest.to_owned()),
        "stderr" => Step::Stderr(text()),
        "big-line" => Step::BigLine(number()? as usize),
        "sleep-ms" => Step::Sleep(Duration::from_millis(number()?)),
        "spin-ms" => Step::Spin(Duration::from_millis(number()?)),
        "hang" => Step::Hang,
        "ignore-term" => Step::IgnoreTerm,
        "wait-for" => Step::WaitFor(rest.into()),
        "exit" => Step::Exit(code()?),
        "signal-self" => Step::SignalSelf(code()?),
        "fail-start" => Step::FailStart(text()),
        "cut-last-line" => Step::CutLastLine,
        "no-result" => Step::NoResult,
        "second-result" => Step::SecondResult,
        "usage-limit" => Step::UsageLimit,
        "auth-retries" => {
            let mut numbers = rest.split_whitespace().map(str::parse::<u64>);
            let count = numbers.next().transpose().map_err(|e| bad(e.to_string()))?.unwrap_or(10);
            let delay = numbers.next().transpose().map_err(|e| bad(e.to_string()))?.unwrap_or(100);
            Step::AuthRetries(count, Duration::from_millis(delay))
        }
        "rate-limit" => Step::RateLimit(rest.parse().map_err(|_| bad(String::new()))?),
        "deny" => Step::Deny(rest.to_owned()),
        "model" => Step::Model(rest.to_owned()),
        "fixture" => Step::Fixture(rest.to_owned()),
        _ => return Err(bad(String::new())),
    })
}
