//! The process adapter against real processes: keeper, supervisor, sweep, checks, confinement.
//!
//! This program re-executes itself: `__keep` and `__supervise` play what the binary does, and each
//! case runs in a process of its own, so that adopted orphans and signals of one case never meet
//! another. Called like any test program it takes a filter and `--list`.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test program")]
#![expect(clippy::print_stdout, clippy::exit, clippy::indexing_slicing, reason = "this is a test program")]

#[path = "process_adapter/bench.rs"]
mod bench;
#[path = "process_adapter/checks.rs"]
mod checks;
#[path = "process_adapter/confinement.rs"]
mod confinement;
#[path = "process_adapter/detaching.rs"]
mod detaching;
#[path = "process_adapter/faults.rs"]
mod faults;
#[path = "process_adapter/workers.rs"]
mod workers;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A case: its name and its body, which panics when it fails.
type Case = (&'static str, fn());

/// How many cases run at once.
const AT_ONCE: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("__keep") => {
            std::process::exit(lane::infra::process::keeper::keep(Path::new(&arguments[1]), &bench::TestClock::new()))
        }
        Some("__supervise") => detaching::supervise(&arguments),
        Some("__caller") => detaching::call(Path::new(&arguments[1])),
        Some("__starter") => faults::start_and_linger(Path::new(&arguments[1])),
        Some("__case") => {
            let case = all().into_iter().find(|(name, _)| *name == arguments[1]).expect("no such case");
            (case.1)();
        }
        _ => std::process::exit(run(&arguments)),
    }
}

fn all() -> Vec<Case> {
    [workers::CASES, faults::CASES, checks::CASES, confinement::CASES, detaching::CASES].concat()
}

fn run(arguments: &[String]) -> i32 {
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let cases: Vec<Case> = all().into_iter().filter(|(name, _)| wanted(name)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return 0;
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((name, _)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = run_case(name);
                    let said = String::from_utf8_lossy(&output.stdout);
                    let verdict = if output.status.success() { "ok" } else { "FAILED" };
                    println!("test {name} ... {verdict}{}", said.trim_end().replace('\n', "\n    "));
                    if !output.status.success() {
                        println!("{}", String::from_utf8_lossy(&output.stderr));
                        failed.lock().unwrap().push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    println!("\n{} passed, {} failed {failed:?}", cases.len() - failed.len(), failed.len());
    i32::from(!failed.is_empty())
}

fn run_case(name: &str) -> Output {
    let mut command = Command::new(bench::executable());
    command.args(["__case", name]).stdin(Stdio::null());
    command.output().expect("the case runs")
}
