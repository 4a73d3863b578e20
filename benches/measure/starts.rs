//! `lane run` to its line: against the least that a start can be, and in several conditions.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Fallible, interleave, own_program, success, text, time};
use crate::{Report, Size, children};

/// What a script of this kind has to import.
const PYTHON_IMPORTS: &str = "import argparse, asyncio, datetime, hashlib, json, pathlib, shutil, signal, sqlite3, \
                              subprocess, tempfile, uuid";

/// The line of `lane run` against: spawn detached, one commit, one `git rev-parse`.
pub fn run_against_the_floor(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("small", 100)?;
    let database = bed.path().join("floor.db");
    children::make_floor_database(&database)?;
    let state = bed.state();
    let program = own_program()?;
    let medians = interleave(
        size.rounds,
        vec![
            Box::new(|| bed.time_run(&state, &repository)),
            Box::new(|| {
                let mut command = bed.command(&program);
                command.arg("child-floor").arg(&database).arg(&repository);
                time(command)
            }),
        ],
    )?;
    report.ratio("run: to its line, over the floor", medians[0], medians[1], 1.5);
    Ok(())
}

/// The same in a repository of 100 and of 10,000 files.
pub fn run_in_a_large_repository(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let (small, large) = (bed.repository("small", 100)?, bed.repository("large", 10_000)?);
    let state = bed.state();
    let medians = interleave(
        size.slow_rounds,
        vec![Box::new(|| bed.time_run(&state, &large)), Box::new(|| bed.time_run(&state, &small))],
    )?;
    report.ratio("size: run, 10,000 files over 100", medians[0], medians[1], 1.15);
    Ok(())
}

/// The start of Python with its imports, against the line of `lane run`.
pub fn run_against_python(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("small", 100)?;
    let state = bed.state();
    // The interpreter itself: a launcher in front of it would make it look slower than it is.
    let asked = success(bed.command("python3").args(["-c", "import sys; print(sys.executable)"]));
    let Ok(asked) = asked else {
        println!("python: skipped: python3 is not installed");
        return Ok(());
    };
    let python = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    let medians = interleave(
        size.rounds,
        vec![
            Box::new(|| bed.time_run(&state, &repository)),
            Box::new(|| {
                let mut command = bed.command(&python);
                command.args(["-c", PYTHON_IMPORTS]);
                time(command)
            }),
        ],
    )?;
    let ratio = medians[1].as_secs_f64() / medians[0].as_secs_f64();
    report.at_least("python: its start over run", ratio, &format!("{:?} : {:?}", medians[1], medians[0]), 8.0);
    Ok(())
}

/// Sixteen starts at once against sixteen single ones over the cores.
pub fn sixteen_at_once(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("small", 100)?;
    let state = bed.state();
    let medians = interleave(
        size.slow_rounds,
        vec![Box::new(|| burst(bed, &state, &repository)), Box::new(|| bed.time_run(&state, &repository))],
    )?;
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get().min(16));
    let singles = medians[1].mul_f64(16.0 / cores as f64);
    report.ratio("burst: 16 starts, over 16 singles over cores", medians[0], singles, 1.5);
    Ok(())
}

fn burst(bed: &Bed, state: &std::path::Path, repository: &std::path::Path) -> Fallible<Duration> {
    let began = Instant::now();
    let started: Vec<_> = (0..16)
        .map(|_| bed.run_command(state, repository).stderr(Stdio::null()).spawn().map_err(|e| e.to_string()))
        .collect::<Fallible<_>>()?;
    let mut outputs = Vec::new();
    for child in started {
        outputs.push(child.wait_with_output().map_err(|e| e.to_string())?);
    }
    let took = began.elapsed();
    for output in outputs {
        let line: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())?;
        if text(&line, "status")? != "started" {
            return Err(format!("one of sixteen starts failed: {line}"));
        }
        bed.settle(state, &text(&line, "lane_id")?)?;
    }
    Ok(took)
}
