//! Proving: the work is taken over and measured, the report is read, the holdout runs.

use super::classify::classify;
use super::context::Context;
use super::error::{AppResult, Doing};
use super::lanes::require_lane;
use super::ports::CheckRequest;
use super::prepare::{PREPARE_WARNINGS_FILE, PROTECTED_FILE, protected_root};
use super::worker_environment::{lane_environment, make_private_dirs};
use crate::domain::accepted::{Summing, accepted};
use crate::domain::facts::{Holdout, ProtectedEntry, TakenOver, compare_protected, judge_holdout};
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::report::{summary, word_count};
use crate::domain::result::{LaneEnd, Times};
use crate::domain::state::{State, WorkerEnd};
use crate::domain::time::Timestamp;
use crate::domain::worker::ProcessExit;

/// File of the run folder that counts how often the proof was begun.
const TRIES_FILE: &str = "prove-tries";

/// A check that ends its own supervisor would otherwise run again for ever.
pub const MOST_TRIES: u32 = 5;

/// Returns everything known at the end of a lane whose worker has ended. It can be done again.
pub fn prove(context: &Context, plan: &Plan, worker: &WorkerEnd, swept: Vec<String>) -> AppResult<LaneEnd> {
    let (judged, marker) = classify(context, plan, worker)?;
    let mut warnings = plan.warnings.clone();
    warnings.extend(prepare_warnings(context, plan));
    let taken = take_over(context, plan, &mut warnings);
    let tries = count_try(context, plan);
    let holdout = if is_cancelled(context, plan)? {
        ungiven_holdout(plan, "the lane was cancelled")
    } else if taken.is_err() {
        // What the worker left in place of its git folder, or of the whole checkout, is hostile.
        ungiven_holdout(plan, "the work could not be taken over")
    } else if tries > MOST_TRIES {
        ungiven_holdout(plan, &format!("it was begun {MOST_TRIES} times, and each time its supervisor was ended"))
    } else {
        run_holdout(context, plan)?
    };
    let cancelled = is_cancelled(context, plan)?;
    warnings.extend(judged.warnings);
    if let Ok(taken) = &taken {
        warnings.extend(taken.iter().flat_map(|taken| taken.warnings.iter().cloned()));
    }
    let (outcome, error) = match (&taken, cancelled) {
        (_, true) => (Outcome::Cancelled, None),
        (Err(error), false) => (Outcome::Error, Some(error.clone())),
        (Ok(_), false) => (judged.outcome, judged.error),
    };
    let taken = taken.ok().flatten();
    let report_path = keep_report(context, plan, judged.report.as_deref())?;
    let now = context.clock.now();
    let changes = taken.as_ref().map(|taken| taken.changes.clone());
    Ok(LaneEnd {
        outcome,
        error: if outcome == Outcome::Ok { None } else { error },
        retry_at: judged.retry_at,
        accepted: accepted(&Summing {
            outcome,
            marker,
            holdout: holdout.as_ref(),
            changes: changes.as_ref(),
            writes: plan.writes(),
        }),
        marker,
        model_verified: judged.model_verified,
        effort_recorded: judged.effort_recorded,
        enforcement: plan.enforcement,
        head_commit: taken.map(|taken| taken.head_commit),
        changes,
        holdout,
        session_id: judged.session_id,
        exit_code: exit_code(worker.exit),
        signal: signal(worker.exit),
        times: times(context, plan, worker, now)?,
        tokens: judged.tokens,
        cost_usd: judged.cost_usd,
        report_path,
        report_words: judged.report.as_deref().map_or(0, word_count),
        summary: judged.report.as_deref().map(summary),
        warnings,
        leftover_processes: swept,
        permission_denials: judged.permission_denials,
        finished_at: now,
    })
}

const fn exit_code(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Code(code) => Some(code),
        ProcessExit::Signal(_) | ProcessExit::Unknown => None,
    }
}

const fn signal(exit: ProcessExit) -> Option<i32> {
    match exit {
        ProcessExit::Signal(signal) => Some(signal),
        ProcessExit::Code(_) | ProcessExit::Unknown => None,
    }
}

fn prepare_warnings(context: &Context, plan: &Plan) -> Vec<String> {
    let text = context.runs.read_tail(&plan.run_dir, PREPARE_WARNINGS_FILE, 1 << 20).ok().flatten();
    text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn is_cancelled(context: &Context, plan: &Plan) -> AppResult<bool> {
    Ok(require_lane(context, &plan.lane_id)?.state.is_cancelled())
}

/// Takes the work over. A failure ends the lane with `error`, and the checkout stays as it is.
pub fn take_over(context: &Context, plan: &Plan, warnings: &mut Vec<String>) -> Result<Option<TakenOver>, String> {
    let wrote_in_place = plan.writes() && plan.repository.is_some();
    if !plan.has_own_checkout() && !wrote_in_place {
        return Ok(None);
    }
    for name in [".agents", ".aws", ".codex"] {
        // Codex leaves these empty in the checkout after an interrupt.
        context.machine.remove_empty_dir(&plan.checkout_path.join(name));
    }
    context.git.take_over(plan).map(Some).map_err(|error| {
        if context.machine.exists(&plan.checkout_path) {
            warnings.push(format!("the worker's checkout stays at {}", plan.checkout_path.display()));
        }
        format!("cannot take over the worker's commits: {error}")
    })
}

fn keep_report(context: &Context, plan: &Plan, report: Option<&str>) -> AppResult<Option<std::path::PathBuf>> {
    match report {
        Some(report) => {
            context.runs.write(&plan.run_dir, "final.md", report.as_bytes()).doing("keep the report")?;
            Ok(Some(plan.run_dir.join("final.md")))
        }
        None => Ok(None),
    }
}

fn times(context: &Context, plan: &Plan, worker: &WorkerEnd, now: Timestamp) -> AppResult<Times> {
    let state = require_lane(context, &plan.lane_id)?.state;
    Ok(match state {
        State::Proving { since, waited, prepared_in, .. } => Times {
            queued: Some(waited),
            prepare: Some(prepared_in),
            worker: Some(worker.ran_for),
            prove: Some(now.since(since)),
        },
        State::Queued { .. }
        | State::Admitted { .. }
        | State::Preparing { .. }
        | State::Working { .. }
        | State::Ended { .. } => Times { worker: Some(worker.ran_for), ..Times::default() },
    })
}

/// The verdict of a holdout that was asked for and is not run, and why.
fn ungiven_holdout(plan: &Plan, why: &str) -> Option<Holdout> {
    let asked = !plan.holdout.is_empty() || !plan.protect.is_empty();
    asked.then(|| judge_holdout(Vec::new(), Vec::new(), Some(why.to_owned())))
}

/// How often the proof of this lane was begun.
pub fn tries(context: &Context, plan: &Plan) -> u32 {
    let text = context.runs.read_tail(&plan.run_dir, TRIES_FILE, 16).ok().flatten();
    text.and_then(|text| String::from_utf8(text).ok()?.parse::<u32>().ok()).unwrap_or(0)
}

/// Counts one more try. The count need not survive a power loss.
fn count_try(context: &Context, plan: &Plan) -> u32 {
    let tries = tries(context, plan).saturating_add(1);
    let _ = context.runs.note(&plan.run_dir, TRIES_FILE, tries.to_string().as_bytes());
    tries
}

/// Runs the lead's commands in the worker's checkout, outside its sandbox, and looks again at what
/// is protected.
fn run_holdout(context: &Context, plan: &Plan) -> AppResult<Option<Holdout>> {
    if plan.holdout.is_empty() && plan.protect.is_empty() {
        return Ok(None);
    }
    let kept = context.runs.load_environment(&plan.run_dir).doing("read the lane's variables")?;
    let dirs = make_private_dirs(context, &plan.run_dir).doing("make the check's private folders")?;
    let environment = lane_environment(plan, &kept, &dirs);
    let mut checks = Vec::new();
    let mut could_not_run = None;
    for (number, command) in plan.holdout.iter().enumerate() {
        let name = if number == 0 { "holdout.log".to_owned() } else { format!("holdout-{}.log", number + 1) };
        // A check that was cut short runs again: its log begins anew.
        context.runs.write(&plan.run_dir, &name, b"").doing("begin the check's log")?;
        let request = CheckRequest {
            lane_id: plan.lane_id.clone(),
            command: command.clone(),
            directory: plan.checkout_path.clone(),
            environment: environment.clone(),
            limit: plan.holdout_time,
            log_path: plan.run_dir.join(&name),
            confinement: None,
        };
        match context.processes.run_check(&request, &plan.run_dir) {
            Ok(run) => checks.push(run),
            Err(error) => {
                could_not_run = Some(format!("`{command}` could not be run: {error}"));
                break;
            }
        }
    }
    let changed = protected_changes(context, plan)?;
    Ok(Some(judge_holdout(checks, changed, could_not_run)))
}

fn protected_changes(context: &Context, plan: &Plan) -> AppResult<Vec<crate::domain::facts::ProtectedChange>> {
    if plan.protect.is_empty() {
        return Ok(Vec::new());
    }
    let text = context.runs.read_tail(&plan.run_dir, PROTECTED_FILE, 256 << 20).doing("read the first look")?;
    let before: Vec<ProtectedEntry> = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let after =
        context.runs.look_at_protected(protected_root(plan), &plan.protect).doing("look at the protected paths")?;
    Ok(compare_protected(&before, &after))
}
