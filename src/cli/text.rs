//! Readable text for people in a terminal. Nothing is said here that the JSON line does not say.

use std::fmt::Write;

use crate::wire::answers::{Answer, CancelStatus, Health, LaneList, RunAnswer, RunStatus};
use crate::wire::lane_result::LaneResult;

/// Renders an answer as lines for people, each ended by a line feed.
pub fn render(answer: &Answer) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _infallible = write_answer(&mut text, answer);
    text
}

fn write_answer(text: &mut String, answer: &Answer) -> std::fmt::Result {
    match answer {
        Answer::Run(run) => write_run(text, run),
        Answer::Refused(refused) => {
            writeln!(text, "refused ({}): {}", refused.status.as_str(), refused.error)?;
            writeln!(text, "  {}", refused.hint)
        }
        Answer::Failed(failed) => writeln!(text, "failed: {}\n  {}", failed.error, failed.hint),
        Answer::Result(result) => write_result(text, result),
        Answer::Live(live) => writeln!(
            text,
            "{}  {} for {}: {}",
            live.lane_id,
            live.state,
            seconds(live.elapsed_s),
            live.last_event.as_deref().unwrap_or("nothing seen yet")
        ),
        Answer::Lanes(lanes) => lanes.lanes.iter().try_for_each(|lane| write_answer(text, lane)),
        Answer::List(list) => write_list(text, list),
        Answer::Cancel(cancel) => {
            let what = match cancel.status {
                CancelStatus::CancelRequested => "asked to stop",
                CancelStatus::Cancelled => "cancelled while it waited",
                CancelStatus::AlreadyEnded => "had ended before",
            };
            writeln!(text, "{}  {what}", cancel.lane_id)
        }
        Answer::Clean(clean) => {
            for lane in &clean.cleaned {
                let what = match (&lane.error, lane.removed, clean.dry_run) {
                    (Some(error), _, _) => format!("stays: {error}"),
                    (None, true, true) => "would be removed".to_owned(),
                    (None, true, false) => format!("removed; bring it back with `{}`", lane.restore),
                    (None, false, _) => "was gone already".to_owned(),
                };
                writeln!(text, "{}  {what}", lane.lane_id)?;
                lane.saved_paths.iter().try_for_each(|path| writeln!(text, "  saved: {path}"))?;
                lane.left_out
                    .iter()
                    .try_for_each(|left| writeln!(text, "  left out: {} ({} bytes)", left.path, left.size_bytes))?;
            }
            if clean.cleaned.is_empty() { writeln!(text, "nothing to clean") } else { Ok(()) }
        }
        Answer::Restore(restore) => {
            writeln!(text, "{}  restored at {} ({} files)", restore.lane_id, restore.path.display(), restore.files)
        }
        Answer::Doctor(doctor) => doctor.checks.iter().try_for_each(|check| {
            let mark = match check.health {
                Health::Ok => "ok    ",
                Health::Warn => "warn  ",
                Health::Broken => "BROKEN",
            };
            writeln!(text, "{mark}  {:<15} {}", check.name, check.found)?;
            check.mend.iter().try_for_each(|mend| writeln!(text, "        {:<15} -> {mend}", ""))
        }),
        Answer::Schema(schema) => writeln!(text, "{:#}", schema.json_schema),
    }
}

fn write_run(text: &mut String, run: &RunAnswer) -> std::fmt::Result {
    let what = match run.status {
        RunStatus::Started => "started",
        RunStatus::Queued => "queued",
        RunStatus::Routed => "would start",
    };
    writeln!(text, "{}  {what}: {} ({}, {})", run.lane_id, run.profile, run.model, run.effort.as_str())?;
    run.warnings.iter().try_for_each(|warning| writeln!(text, "  warning: {warning}"))?;
    writeln!(text, "  {}", run.next)
}

fn write_result(text: &mut String, result: &LaneResult) -> std::fmt::Result {
    let accepted = match result.accepted {
        Some(true) => "accepted",
        Some(false) => "not accepted",
        None => "nothing proves it",
    };
    writeln!(text, "{}  {} ({accepted})", result.lane_id, result.status.as_str())?;
    if let Some(error) = &result.error {
        writeln!(text, "  error:   {error}")?;
    }
    if let Some(marker) = result.marker {
        writeln!(text, "  worker:  {}", marker.as_str())?;
    }
    if let Some(changes) = &result.changes {
        let (files, plus, minus) = (changes.files, changes.insertions, changes.deletions);
        writeln!(text, "  changes: {} commits, {files} files, +{plus} -{minus}", changes.commits)?;
    }
    if let Some(holdout) = &result.holdout {
        let verdict = match holdout.passed {
            Some(true) => "passed",
            Some(false) => "FAILED",
            None => "could not run",
        };
        writeln!(
            text,
            "  holdout: {verdict}{}",
            holdout.reason.as_ref().map_or(String::new(), |why| format!(" ({why})"))
        )?;
    }
    if let Some(branch) = &result.branch {
        writeln!(text, "  branch:  {branch}")?;
    }
    result.warnings.iter().try_for_each(|warning| writeln!(text, "  warning: {warning}"))?;
    if let Some(report) = &result.report_path {
        writeln!(text, "  report:  {}", report.display())?;
    }
    Ok(())
}

fn write_list(text: &mut String, list: &LaneList) -> std::fmt::Result {
    writeln!(text, "{} of {} slots taken, {} waiting", list.running, list.max, list.queued)?;
    list.lanes.iter().try_for_each(|lane| {
        let label = lane.label.as_deref().unwrap_or_default();
        writeln!(text, "{}  {:<18} {:>8}  {} {label}", lane.lane_id, lane.status, seconds(lane.elapsed_s), lane.profile)
    })
}

/// Whole units are enough for people.
fn seconds(length: f64) -> String {
    if length < 120.0 {
        format!("{length:.0}s")
    } else if length < 7200.0 {
        format!("{:.0}m", length / 60.0)
    } else {
        format!("{:.1}h", length / 3600.0)
    }
}
