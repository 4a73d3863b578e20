//! What a lane costs while its worker is quiet, and reading a long stream at the end.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bed::{Bed, Fallible, answer, interleave, success, text, write};
use crate::{Report, Size};

/// How long the quiet is watched.
const QUIET: Duration = Duration::from_secs(5);

/// Memory of supervisor and keeper together, and the processor time they use while nothing happens.
pub fn memory_and_processor(bed: &Bed, _size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("small", 100)?;
    let state = bed.state();
    let line = answer(bed.run_task(&state, &repository, "Goal: be quiet\nFAKE: say I think.\nFAKE: hang"))?;
    let (lane_id, run_dir) = (text(&line, "lane_id")?, text(&line, "run_dir")?);
    let measured = watch_quiet(Path::new(&run_dir));
    success(&mut bed.lane(&state, &["cancel", &lane_id]))?;
    // A cancelled lane's exit code is 1, so the answer is not asked for success.
    let _ended = bed.lane(&state, &["wait", &lane_id, "--max", "60s"]).output();
    let (mib, ticks) = measured?;
    report.at_most("quiet: supervisor and keeper, MiB resident", mib, "", 20.0);
    report.at_most("quiet: their processor time, clock ticks in 5 s", ticks, "", 0.0);
    Ok(())
}

fn watch_quiet(run_dir: &Path) -> Fallible<(f64, f64)> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let pids = loop {
        let pids = lane_processes(run_dir);
        let speaks = std::fs::metadata(run_dir.join("events.jsonl")).is_ok_and(|data| data.len() > 0);
        if pids.len() == 2 && speaks {
            break pids;
        }
        if Instant::now() > deadline {
            return Err(format!("supervisor and keeper were not found: {pids:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // The stand-in has said its word; what follows it must be over, too.
    std::thread::sleep(Duration::from_secs(1));
    let before: u64 = pids.iter().map(|pid| ticks(*pid)).sum();
    std::thread::sleep(QUIET);
    let after: u64 = pids.iter().map(|pid| ticks(*pid)).sum();
    let resident: u64 = pids.iter().map(|pid| resident_kib(*pid)).sum();
    Ok((resident as f64 / 1024.0, after.saturating_sub(before) as f64))
}

/// The supervisor and the keeper of a run folder.
fn lane_processes(run_dir: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let is_ours = words.get(1).is_some_and(|word| word == "__supervise" || word == "__keep");
        if is_ours && words.get(2).is_some_and(|word| Path::new(word) == run_dir) {
            found.push(pid);
        }
    }
    found
}

/// User and system time of a process, in clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Reading a long event stream against `wc -l`, and the memory it takes.
pub fn long_stream(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let folder = bed.path().join("stream");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let file = folder.join("events.jsonl");
    write(&file, &stream(size.stream_mib << 20))?;
    let program = crate::bed::own_program()?;
    let mut peak_kib = 0.0_f64;
    let medians = interleave(
        size.slow_rounds,
        vec![
            Box::new(|| {
                let began = Instant::now();
                let output = success(bed.command(&program).arg("child-read").arg(&folder))?;
                let took = began.elapsed();
                let peak: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(f64::NAN);
                peak_kib = peak_kib.max(peak);
                Ok(took)
            }),
            Box::new(|| {
                let began = Instant::now();
                success(bed.command("wc").arg("-l").arg(&file))?;
                Ok(began.elapsed())
            }),
        ],
    )?;
    let speed = medians[1].as_secs_f64() / medians[0].as_secs_f64();
    let name = format!("stream: reading {} MiB, speed over wc -l", size.stream_mib);
    report.at_least(&name, speed, &format!("{:?} : {:?}", medians[0], medians[1]), 0.3);
    report.at_most("stream: most memory, MiB resident", peak_kib / 1024.0, "", 64.0);
    Ok(())
}

/// A stream of Codex that is about so long: messages, edits, and commands with output.
fn stream(bytes: usize) -> String {
    let output = "   Compiling something v0.1.0 (/home/someone/something)\\n".repeat(60);
    let mut text = String::with_capacity(bytes + 8192);
    text.push_str("{\"type\":\"thread.started\",\"thread_id\":\"01234567-89ab-7def-8123-456789abcdef\"}\n{\"type\":\"turn.started\"}\n");
    let mut number = 0;
    while text.len() < bytes {
        number += 1;
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            text,
            "{{\"type\":\"item.completed\",\"item\":{{\"id\":\"item_{number}\",\"type\":\"agent_message\",\"text\":\"Next I look at part {number}.\"}}}}"
        );
        for (kind, exit_code, status, output) in
            [("started", "null", "in_progress", ""), ("completed", "0", "completed", output.as_str())]
        {
            let _infallible = writeln!(
                text,
                "{{\"type\":\"item.{kind}\",\"item\":{{\"id\":\"item_{number}\",\"type\":\"command_execution\",\"command\":\"/bin/bash -lc 'cargo test'\",\"aggregated_output\":\"{output}\",\"exit_code\":{exit_code},\"status\":\"{status}\"}}}}"
            );
        }
    }
    text.push_str("{\"type\":\"item.completed\",\"item\":{\"id\":\"item_0\",\"type\":\"agent_message\",\"text\":\"STATUS: DONE\"}}\n");
    text.push_str("{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"cached_input_tokens\":0,\"cache_write_input_tokens\":0,\"output_tokens\":1,\"reasoning_output_tokens\":0}}\n");
    text
}
