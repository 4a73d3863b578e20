//! The scripted worker of `lane demo`: it reads its brief, really edits, runs and commits.
//!
//! It stands where a worker CLI stands: a process of its own in the checkout, the brief on stdin, its
//! events on stdout. It works only on the file that the brief says it owns.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::domain::brief::Brief;
use crate::provider::demo::{DemoEvent, MODEL, task};

/// Runs the worker in its working directory, from stdin to stdout, and returns the exit code.
pub fn run() -> i32 {
    let mut brief = Vec::new();
    let read = io::stdin().read_to_end(&mut brief);
    let mut stream = Stream { out: io::stdout(), calls: 0 };
    let done = read.and_then(|_| work(Path::new("."), brief, &mut stream));
    let error = done.as_ref().err().map(ToString::to_string);
    let closed = stream.emit(&DemoEvent::TurnEnded { error });
    i32::from(done.is_err() || closed.is_err())
}

fn work<W: Write>(checkout: &Path, brief: Vec<u8>, stream: &mut Stream<W>) -> io::Result<()> {
    stream.emit(&DemoEvent::Session { id: format!("demo-{}", std::process::id()), model: MODEL.to_owned() })?;
    let brief = Brief::from_bytes(brief).map_err(io::Error::other)?;
    stream.say(&format!("I am to see to this: {}", brief.title()))?;
    if let Some(why) = obstacle(checkout, &brief) {
        return stream.say(&format!("STATUS: BLOCKED\n\n{why}"));
    }
    stream.command(checkout, "sh", &[task::PROTECTED.0])?;
    fs::write(checkout.join(task::FILE), task::AFTER)?;
    stream.emit(&DemoEvent::Edited { path: task::FILE.to_owned() })?;
    if stream.command(checkout, "sh", &[task::PROTECTED.0])? != Some(0) {
        return stream.say("STATUS: BLOCKED\n\nThe check still fails after the change.");
    }
    stream.command(checkout, "git", &["add", task::FILE])?;
    if stream.command(checkout, "git", &["commit", "-q", "-m", task::COMMIT])? != Some(0) {
        return stream.say("STATUS: BLOCKED\n\nThe change is made, but it could not be committed.");
    }
    stream.say(task::REPORT)
}

/// Why the script does not fit this brief or this checkout.
fn obstacle(checkout: &Path, brief: &Brief) -> Option<String> {
    let file = task::FILE;
    if !brief.owned_paths().is_some_and(|owned| owned.iter().any(|path| path == file)) {
        return Some(format!("This scripted worker can only mend {file}, and the brief does not say that it owns it."));
    }
    match fs::read_to_string(checkout.join(file)) {
        Ok(text) if text == task::BEFORE => None,
        Ok(_) => Some(format!("{file} is not the file that the demo begins with.")),
        Err(error) => Some(format!("{file} cannot be read: {error}.")),
    }
}

/// The worker's stream.
struct Stream<W> {
    out: W,
    calls: u32,
}

impl<W: Write> Stream<W> {
    fn emit(&mut self, event: &DemoEvent) -> io::Result<()> {
        let line = serde_json::to_string(event).map_err(io::Error::other)?;
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        self.emit(&DemoEvent::Said { text: text.to_owned() })
    }

    /// Runs one command, shows it, and returns its exit code.
    fn command(&mut self, checkout: &Path, program: &str, arguments: &[&str]) -> io::Result<Option<i32>> {
        self.calls += 1;
        let call = self.calls.to_string();
        let command = format!("{program} {}", arguments.join(" "));
        self.emit(&DemoEvent::CommandStarted { call: call.clone(), command: command.clone() })?;
        let mut child = Command::new(program);
        child.args(arguments).current_dir(checkout).stdin(Stdio::null()).stdout(Stdio::null());
        let exit_code = child.status()?.code();
        self.emit(&DemoEvent::CommandEnded { call, command, exit_code })?;
        Ok(exit_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Provider;
    use crate::provider::demo::Demo;

    fn git(checkout: &Path, arguments: &[&str]) -> String {
        let identity = ["-c", "user.name=Demo", "-c", "user.email=demo@example.invalid", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").args(identity).args(arguments).current_dir(checkout).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(task::FILE), task::BEFORE).unwrap();
        fs::write(folder.path().join(task::PROTECTED.0), task::PROTECTED.1).unwrap();
        for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
            git(folder.path(), arguments);
        }
        for setting in [["user.name", "Demo"], ["user.email", "demo@example.invalid"], ["commit.gpgsign", "false"]] {
            git(folder.path(), &["config", setting[0], setting[1]]);
        }
        folder
    }

    fn final_text(checkout: &Path, brief: &str) -> String {
        let mut stream = Stream { out: Vec::new(), calls: 0 };
        work(checkout, brief.as_bytes().to_vec(), &mut stream).unwrap();
        let mut decoder = Demo.decoder();
        stream.out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).for_each(|line| {
            decoder.line(line);
        });
        assert_eq!(decoder.summary().unreadable_lines, 0);
        decoder.summary().final_text.clone().unwrap()
    }

    #[test]
    fn it_mends_the_file_and_commits() {
        let folder = repository();
        assert_eq!(final_text(folder.path(), task::BRIEF), task::REPORT);
        assert_eq!(fs::read_to_string(folder.path().join(task::FILE)).unwrap(), task::AFTER);
        assert_eq!(git(folder.path(), &["log", "-1", "--format=%s"]), task::COMMIT);
        assert_eq!(git(folder.path(), &["status", "--porcelain"]), "");
        assert!(final_text(folder.path(), task::BRIEF).starts_with("STATUS: BLOCKED"), "the work is done already");
    }

    #[test]
    fn it_touches_nothing_that_the_brief_does_not_give_it() {
        let folder = repository();
        assert!(final_text(folder.path(), "Goal: x\nOwned paths: other.sh\n").starts_with("STATUS: BLOCKED"));
        assert_eq!(fs::read_to_string(folder.path().join(task::FILE)).unwrap(), task::BEFORE);
    }

    #[test]
    fn the_commands_for_a_played_model_do_the_same_work() {
        let folder = repository();
        for command in task::COMMANDS {
            let status = Command::new("sh").args(["-c", command]).current_dir(folder.path()).status().unwrap();
            assert!(status.success(), "{command}");
        }
        assert_eq!(fs::read_to_string(folder.path().join(task::FILE)).unwrap(), task::AFTER);
        assert_eq!(git(folder.path(), &["log", "-1", "--format=%s"]), task::COMMIT);
    }
}
