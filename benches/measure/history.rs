//! A long history of lanes against a short one: nothing may grow with it.

use std::path::Path;

use lane::app::ports::Ledger;
use lane::domain::admission::Verdict;
use lane::domain::ids::LaneId;
use lane::domain::outcome::Outcome;
use lane::domain::plan::Plan;
use lane::domain::result::LaneEnd;
use lane::domain::state::LaneEvent;
use lane::domain::time::{Millis, Timestamp};
use lane::infra::ledger::SqliteLedger;

use crate::bed::{Bed, Fallible, interleave, time};
use crate::{Report, Size};

/// `lane status` and `lane run` with few and with many past lanes, and `lane status` against git.
pub fn long_against_short(bed: &Bed, size: Size, report: &mut Report) -> Fallible<()> {
    let repository = bed.repository("small", 100)?;
    let (short, long) = (bed.path().join("short"), bed.path().join("long"));
    seed(bed, &short, 10)?;
    seed(bed, &long, size.history)?;
    let status = |state: &Path| time(bed.lane(state, &["status"]));
    let medians = interleave(
        size.rounds,
        vec![
            Box::new(|| status(&long)),
            Box::new(|| status(&short)),
            Box::new(|| {
                let mut command = bed.command("git");
                command.arg("--version");
                time(command)
            }),
        ],
    )?;
    let name = format!("history: status, {} lanes over 10", size.history);
    report.ratio(&name, medians[0], medians[1], 1.2);
    report.ratio("history: status over git --version", medians[1], medians[2], 2.5);
    let medians = interleave(
        size.slow_rounds,
        vec![Box::new(|| bed.time_run(&long, &repository)), Box::new(|| bed.time_run(&short, &repository))],
    )?;
    let name = format!("history: run, {} lanes over 10", size.history);
    report.ratio(&name, medians[0], medians[1], 1.2);
    Ok(())
}

/// Makes a state folder with `count` lanes that have ended.
///
/// They are written where a commit costs nothing, and then copied to the disk.
fn seed(bed: &Bed, state: &Path, count: usize) -> Fallible<()> {
    bed.configure(state)?;
    let memory = if Path::new("/dev/shm").is_dir() { "/dev/shm".as_ref() } else { bed.path() };
    let scratch = tempfile::tempdir_in(memory).map_err(|e| e.to_string())?;
    let ledger = SqliteLedger::open(scratch.path()).map_err(|e| e.to_string())?;
    let first = Timestamp::from_unix_ms(1_700_000_000_000);
    for number in 0..count {
        let now = first.plus(Millis(number as u64 * 60_000));
        let plan = plan(LaneId::new(now, "a lane of long ago", (number % 65_536) as u16), now, state)?;
        match ledger.admit(&plan, false, 1000, now).map_err(|e| e.to_string())? {
            Verdict::Admit => {}
            other => return Err(format!("the ledger said {other:?}")),
        }
        let end = LaneEnd::without_worker(&plan, Outcome::Ok, None, now);
        let event = LaneEvent::Ended { end: Box::new(end) };
        ledger.append(&plan.lane_id, &event, now).map_err(|e| e.to_string())?;
    }
    drop(ledger);
    for entry in std::fs::read_dir(scratch.path()).map_err(|e| e.to_string())? {
        let entry = entry.map_err(|e| e.to_string())?;
        std::fs::copy(entry.path(), state.join(entry.file_name())).map_err(|e| e.to_string())?;
    }
    Ok(())
}

fn plan(lane_id: LaneId, now: Timestamp, state: &Path) -> Fallible<Plan> {
    let mut plan: Plan = serde_json::from_str(include_str!("../../tests/fixtures/formats/1/plan.json"))
        .map_err(|error| error.to_string())?;
    plan.run_dir = state.join("runs").join(lane_id.as_str());
    plan.checkout_path = state.join("checkouts").join(lane_id.as_str());
    plan.add_dirs = Vec::new();
    plan.created_at = now;
    plan.lane_id = lane_id;
    Ok(plan)
}
