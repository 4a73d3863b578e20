//! Measures Lane's speed as ratios, side by side and interleaved in one run.
//!
//! `benches/compare.sh` builds what is needed and starts it. Arguments: `--short` for fewer rounds
//! and a shorter history, `--strict` to fail when a bound is missed, and words that select
//! measurements by the beginning of their names.
#![expect(clippy::disallowed_methods, reason = "a bench reads how it was called")]

mod bed;
mod children;
mod files;
mod history;
mod quiet;
mod starts;

use std::process::ExitCode;
use std::time::Duration;

use bed::{Bed, Fallible};

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Size {
    /// Rounds of a quick pair.
    pub rounds: usize,
    /// Rounds of a pair that takes long.
    pub slow_rounds: usize,
    /// Lanes in the long history.
    pub history: usize,
    /// Size of the event stream.
    pub stream_mib: usize,
}

/// Where the results go.
pub struct Report {
    missed: usize,
}

impl Report {
    /// Prints a ratio of two lengths of time and what it may be at most.
    pub fn ratio(&mut self, name: &str, ours: Duration, other: Duration, at_most: f64) {
        let ratio = ours.as_secs_f64() / other.as_secs_f64();
        let detail = format!("{:9.2} ms : {:9.2} ms", millis(ours), millis(other));
        self.line(name, ratio, &detail, ratio <= at_most, &format!("at most {at_most}"));
    }

    /// Prints a ratio that must be at least so much.
    pub fn at_least(&mut self, name: &str, ratio: f64, detail: &str, at_least: f64) {
        self.line(name, ratio, detail, ratio >= at_least, &format!("at least {at_least}"));
    }

    /// Prints a figure that may be at most so much.
    pub fn at_most(&mut self, name: &str, figure: f64, detail: &str, at_most: f64) {
        self.line(name, figure, detail, figure <= at_most, &format!("at most {at_most}"));
    }

    fn line(&mut self, name: &str, figure: f64, detail: &str, good: bool, bound: &str) {
        let verdict = if good { "ok" } else { "MISSED" };
        println!("{name:<46} {figure:8.2}  {bound:<14} {verdict:<7} {detail}");
        self.missed += usize::from(!good);
    }
}

fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}

fn main() -> ExitCode {
    // Cargo adds `--bench` itself.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let Some(code) = children::run(&arguments) {
        return code;
    }
    let strict = arguments.iter().any(|word| word == "--strict");
    match measure(&arguments) {
        Ok(report) if strict && report.missed > 0 => ExitCode::FAILURE,
        Ok(report) => {
            println!("{} bounds missed", report.missed);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("measuring failed: {error}");
            ExitCode::FAILURE
        }
    }
}

type Measurement = fn(&Bed, Size, &mut Report) -> Fallible<()>;

const MEASUREMENTS: [(&str, Measurement); 8] = [
    ("run", starts::run_against_the_floor),
    ("size", starts::run_in_a_large_repository),
    ("python", starts::run_against_python),
    ("burst", starts::sixteen_at_once),
    ("history", history::long_against_short),
    ("checkout", files::checkout_and_removal),
    ("quiet", quiet::memory_and_processor),
    ("stream", quiet::long_stream),
];

fn measure(arguments: &[String]) -> Fallible<Report> {
    let size = if arguments.iter().any(|word| word == "--short") {
        Size { rounds: 11, slow_rounds: 5, history: 5_000, stream_mib: 50 }
    } else {
        Size { rounds: 41, slow_rounds: 20, history: 100_000, stream_mib: 200 }
    };
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with("--")).collect();
    let mut report = Report { missed: 0 };
    println!("{:<46} {:>8}  {:<14} {:<7} median of ours : of the other", "what", "figure", "bound", "");
    for (name, measurement) in MEASUREMENTS {
        if wanted.is_empty() || wanted.iter().any(|word| name.starts_with(word.as_str())) {
            let bed = Bed::new()?;
            measurement(&bed, size, &mut report).map_err(|error| format!("{name}: {error}"))?;
            bed.print_cost_of_making()?;
        }
    }
    Ok(report)
}
