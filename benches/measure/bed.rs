//! A world of its own for the measurements, and the ways to time things in it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// What goes wrong in a measurement, in words.
pub type Fallible<T> = Result<T, String>;

/// A world of its own: home, state, repositories, and the stand-in for Codex.
pub struct Bed {
    root: TempDir,
    variables: Vec<(String, OsString)>,
}

impl Bed {
    /// Makes it in `LANE_BENCH_DIR`, else in `/var/tmp`: on a disk, where commits cost what they cost.
    ///
    /// Some filesystems make files slowly for minutes after many were removed near by (ext4 without
    /// a journal: 0.5 ms instead of 0.01), and each lane removes some. So what making a file costs
    /// is printed before and after: where it grows, the start of a lane is measured too slow.
    pub fn new() -> Fallible<Self> {
        let folder = std::env::var_os("LANE_BENCH_DIR").unwrap_or_else(|| "/var/tmp".into());
        let root = tempfile::Builder::new().prefix("lane-bench-").tempdir_in(folder).map_err(|e| e.to_string())?;
        for folder in ["home/.codex", "state"] {
            std::fs::create_dir_all(root.path().join(folder)).map_err(|e| e.to_string())?;
        }
        let identity = "[user]\n\tname = Bench\n\temail = bench@example.invalid\n[init]\n\tdefaultBranch = main\n";
        write(&root.path().join("home/.gitconfig"), identity)?;
        let variables = vec![
            ("PATH".to_owned(), std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into())),
            ("HOME".to_owned(), root.path().join("home").into_os_string()),
            ("LANE_CODEX_BIN".to_owned(), fake_codex()?.into_os_string()),
            ("CODEX_API_KEY".to_owned(), "dummy".into()),
        ];
        let bed = Self { root, variables };
        bed.configure(&bed.state())?;
        bed.print_cost_of_making()?;
        Ok(bed)
    }

    /// Prints what making a file costs where the run folders are.
    pub fn print_cost_of_making(&self) -> Fallible<()> {
        let runs = self.state().join("runs");
        std::fs::create_dir_all(&runs).map_err(|e| e.to_string())?;
        println!("# making a file in {} takes {} us", self.path().display(), cost_of_making(&runs)?.as_micros());
        Ok(())
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// The usual state folder.
    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    /// Lets a state folder take as many lanes at once as a measurement wants.
    pub fn configure(&self, state: &Path) -> Fallible<()> {
        std::fs::create_dir_all(state).map_err(|e| e.to_string())?;
        write(&state.join("config.toml"), "max_concurrent = 1000\n")
    }

    /// A command in this world and nothing else.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A command of Lane on the given state folder.
    pub fn lane(&self, state: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_lane"));
        command.env("LANE_STATE", state).args(arguments);
        command
    }

    /// `lane run` in a repository, with a worker that reports at once.
    pub fn run_command(&self, state: &Path, repository: &Path) -> Command {
        let task = "Goal: measure\nFAKE: report STATUS: DONE";
        self.run_task(state, repository, task)
    }

    /// `lane run` in a repository with that task.
    pub fn run_task(&self, state: &Path, repository: &Path, task: &str) -> Command {
        let mut command = self.lane(state, &["run", "--profile", "implement", "--task", task]);
        command.arg("--cwd").arg(repository);
        command
    }

    /// Waits until a lane has ended, so that its work disturbs no later measurement.
    pub fn settle(&self, state: &Path, lane_id: &str) -> Fallible<Value> {
        answer(self.lane(state, &["wait", lane_id, "--max", "60s"]))
    }

    /// Times one `lane run` from its start to its line; the lane has ended when this returns.
    pub fn time_run(&self, state: &Path, repository: &Path) -> Fallible<Duration> {
        let (took, line) = timed_answer(self.run_command(state, repository))?;
        let lane_id = text(&line, "lane_id")?;
        let end = self.settle(state, &lane_id)?;
        if text(&end, "status")? != "ok" {
            return Err(format!("a measured lane did not end well: {end}"));
        }
        Ok(took)
    }

    /// A repository of `files` small files with one commit.
    pub fn repository(&self, name: &str, files: usize) -> Fallible<PathBuf> {
        let root = self.path().join(name);
        for number in 0..files {
            let folder = root.join(format!("src/part{:03}", number / 100));
            if number % 100 == 0 {
                std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
            }
            let line = format!("line of file {number}, with some words to make it long enough\n");
            write(&folder.join(format!("file{number:05}.txt")), &line.repeat(20))?;
        }
        for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
            success(self.command("git").arg("-C").arg(&root).args(arguments))?;
        }
        Ok(root)
    }
}

/// How long making one file takes there: the middle of a few.
fn cost_of_making(folder: &Path) -> Fallible<Duration> {
    let probe = tempfile::tempdir_in(folder).map_err(|e| e.to_string())?;
    let times = (0..15).map(|number| {
        let folder = probe.path().join(number.to_string());
        let began = Instant::now();
        std::fs::create_dir(&folder).map_err(|e| e.to_string())?;
        write(&folder.join("file"), "")?;
        Ok(began.elapsed() / 2)
    });
    Ok(median(times.collect::<Fallible<_>>()?))
}

/// The stand-in for Codex, built beside this program.
fn fake_codex() -> Fallible<PathBuf> {
    let own = own_program()?;
    let target = own.ancestors().nth(2).ok_or("no target folder")?;
    let fake = target.join("examples/fake-codex");
    if fake.is_file() { Ok(fake) } else { Err(format!("{} is not built; use benches/compare.sh", fake.display())) }
}

/// This program.
pub fn own_program() -> Fallible<PathBuf> {
    std::env::current_exe().map_err(|e| e.to_string())
}

/// Writes a file.
pub fn write(path: &Path, text: &str) -> Fallible<()> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs a command to its end; anything but success is an error with what it said.
pub fn success(command: &mut Command) -> Fallible<Output> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        Ok(output)
    } else {
        let said = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&said)))
    }
}

/// Runs a command of Lane and reads its line.
pub fn answer(command: Command) -> Fallible<Value> {
    timed_answer(command).map(|(_, line)| line)
}

/// Likewise, and how long it took.
pub fn timed_answer(mut command: Command) -> Fallible<(Duration, Value)> {
    let began = Instant::now();
    let output = success(&mut command)?;
    let took = began.elapsed();
    let line = serde_json::from_slice(&output.stdout).map_err(|e| format!("{command:?}: {e}"))?;
    Ok((took, line))
}

/// How long a command takes to its end.
pub fn time(mut command: Command) -> Fallible<Duration> {
    let began = Instant::now();
    success(&mut command)?;
    Ok(began.elapsed())
}

/// A text member of a line.
pub fn text(line: &Value, name: &str) -> Fallible<String> {
    line.get(name).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("no {name} in {line}"))
}

/// The middle of some measurements.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Something that is measured, once at each call.
pub type Measured<'a> = Box<dyn FnMut() -> Fallible<Duration> + 'a>;

/// Takes all measurements in turn, `rounds` times, each round in another order; returns the medians.
pub fn interleave(rounds: usize, mut measured: Vec<Measured<'_>>) -> Fallible<Vec<Duration>> {
    let count = measured.len();
    let mut times = vec![Vec::new(); count];
    // The first round only warms up.
    for round in 0..=rounds {
        for turn in 0..count {
            let which = (turn + round) % count;
            let took = measured[which]()?;
            if round > 0 {
                times[which].push(took);
            }
        }
    }
    Ok(times.into_iter().map(median).collect())
}
