//! `lane run`: plan, admit, start.

use super::context::Context;
use super::error::{AppResult, Doing};
use super::planning::{Planned, plan};
use super::ports::{Claim, Environment, LaneRow, PortErrorKind, PortResult, Syncing};
use super::reconcile::reconcile;
use super::request::RunRequest;
use crate::domain::admission::Verdict;
use crate::domain::environment::sift;
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::result::LaneEnd;
use crate::domain::state::{LaneEvent, State};
use crate::domain::time::{Millis, Timestamp};

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    /// Its supervisor runs.
    Started(Box<Plan>),
    /// It waits for a slot.
    Queued(Box<Plan>),
    /// `--dry-run`: it would be started.
    Routed(Box<Plan>),
}

/// How often a lane id that is taken already is drawn anew.
const ID_DRAWS: u32 = 16;

/// Plans a lane, books its slot and starts its supervisor. Returns as soon as that runs.
pub fn run(context: &Context, request: &RunRequest) -> AppResult<Ran> {
    let mut planned = plan(context, request)?;
    if request.dry_run {
        return Ok(Ran::Routed(Box::new(planned.plan)));
    }
    let mut draws = 1;
    let syncing = loop {
        match create_folder(context, &planned) {
            // Many calls in one second with one title: the four digits alone tell them apart.
            Err(error) if error.kind == PortErrorKind::Held && draws < ID_DRAWS => {
                draws += 1;
                planned = plan(context, request)?;
            }
            made => break made.doing("make the run folder")?,
        }
    };
    let plan = planned.plan;
    let booked = book(context, &plan, request);
    match (booked, syncing.finish().doing("bring the run folder to the disk")) {
        (Ok(ran), Ok(())) => Ok(ran),
        (Err(error), _) => {
            // Before it was admitted a lane leaves nothing behind; after, the ledger knows it.
            match context.ledger.lane(&plan.lane_id) {
                Ok(Some(row)) => withdraw_failed(context, &row),
                Ok(None) | Err(_) => context.runs.discard(&plan),
            }
            Err(error)
        }
        (Ok(_), Err(error)) => {
            // The caller is told that nothing runs, so nothing may go on running.
            super::cancel::cancel(context, &plan.lane_id)?;
            Err(error)
        }
    }
}

/// The caller is told that the call failed, so the lane must not be taken up later by another command.
fn withdraw_failed(context: &Context, row: &LaneRow) {
    let is_over = matches!(row.state, State::Ended { .. });
    if !is_over && super::cancel::cancel(context, &row.plan.lane_id).is_err() {
        // The ledger cannot be written. The file alone is a request too, even one that stays empty.
        let _also_not = context.runs.request_cancel(&row.plan.run_dir);
    }
}

fn create_folder(context: &Context, planned: &Planned) -> PortResult<Box<dyn Syncing>> {
    let sifted = sift(&context.surroundings.variables, &planned.plan.env_names);
    let environment = Environment(sifted.kept);
    context.runs.create(&planned.plan, &planned.handed, &planned.original, &environment)
}

fn book(context: &Context, plan: &Plan, request: &RunRequest) -> AppResult<Ran> {
    let claim = context.runs.claim(&plan.run_dir).doing("lock the run folder")?;
    let waits = request.queue || request.wait_slot.is_some();
    let max = context.settings.max_concurrent;
    let verdict = context.ledger.admit(plan, waits, max, context.clock.now()).doing("book a slot")?;
    match verdict {
        Verdict::Admit => {
            start(context, plan, claim)?;
            Ok(Ran::Started(Box::new(plan.clone())))
        }
        Verdict::NoSlot { .. } | Verdict::QueueAhead { .. } | Verdict::PathTaken { .. } if waits => {
            drop(claim);
            // Whoever freed a slot meanwhile found this lane's lock held and left it to us.
            super::reconcile::promote(context)?;
            match request.wait_slot {
                Some(limit) => wait_for_slot(context, plan, limit, &verdict),
                None => Ok(Ran::Queued(Box::new(plan.clone()))),
            }
        }
        Verdict::NoSlot { .. } | Verdict::QueueAhead { .. } | Verdict::PathTaken { .. } => {
            Err(refusal(&verdict).into())
        }
    }
}

fn refusal(verdict: &Verdict) -> Refusal {
    match verdict {
        Verdict::Admit => Refusal::new(RefusalStatus::Busy, "the lane was admitted", "call `lane status`"),
        Verdict::NoSlot { live, max } => Refusal::new(
            RefusalStatus::Busy,
            format!("{live} of {max} slots are taken"),
            "wait for one (`lane wait --any ...`), or add --queue or --wait-slot 10m",
        ),
        Verdict::QueueAhead { waiting } => Refusal::new(
            RefusalStatus::Busy,
            format!("{waiting} lanes wait already"),
            "add --queue to wait behind them, or --wait-slot 10m",
        ),
        Verdict::PathTaken { path, by } => Refusal::new(
            RefusalStatus::BusyPath,
            format!("lane {by} writes in {}", path.display()),
            format!("wait for it (`lane wait {by}`), use --checkout clone for a checkout of its own, or add --queue"),
        ),
    }
}

/// Starts the supervisor of an admitted lane. If it cannot be started, a lane that never had one
/// ends. Any other may have a worker, or work to take over: it stays live, and the next command
/// tries again.
pub fn start(context: &Context, plan: &Plan, claim: Claim) -> AppResult<()> {
    let environment = context.supervisor_environment();
    let started = context.processes.start_supervisor(&plan.run_dir, claim, &environment);
    if let Err(error) = &started {
        // Someone else may have taken the lane over meanwhile: then it lives, and nothing is ended here.
        if let Ok(_claim) = context.runs.claim(&plan.run_dir)
            && matches!(super::lanes::require_lane(context, &plan.lane_id)?.state, State::Admitted { .. })
        {
            let text = format!("the supervisor did not start: {error}");
            end_without_worker(context, plan, Outcome::Error, Some(text), context.clock.now())?;
        }
    }
    started.doing("start the supervisor")
}

/// Ends a lane whose worker never ran.
pub fn end_without_worker(
    context: &Context,
    plan: &Plan,
    outcome: Outcome,
    error: Option<String>,
    now: Timestamp,
) -> AppResult<LaneEnd> {
    let end = LaneEnd::without_worker(plan, outcome, error, now);
    write_end(context, plan, &end)?;
    Ok(end)
}

/// Writes the end of a lane: the result file, then the ledger, then the mark that wakes waiters.
///
/// The ledger is the truth. Where something stands in the file's place that cannot be replaced (a
/// folder that the worker made), the lane ends all the same; only a full disk is tried again.
pub fn write_end(context: &Context, plan: &Plan, end: &LaneEnd) -> AppResult<()> {
    let line = (context.render_result)(plan, end);
    match context.runs.write(&plan.run_dir, "result.json", &line) {
        Err(error) if error.kind == PortErrorKind::NoRoom => return Err(error).doing("write the result"),
        Err(error) => context.notes.once(format!("result.json of {} cannot be written: {error}", plan.lane_id)),
        Ok(()) => {}
    }
    let event = LaneEvent::Ended { end: Box::new(end.clone()) };
    context.ledger.append(&plan.lane_id, &event, context.clock.now()).doing("record the end")?;
    context.runs.forget_environment(&plan.run_dir);
    if let Err(error) = context.runs.mark_ended(&plan.run_dir) {
        // Waiters look again by themselves after a few seconds.
        context.notes.once(format!("the waiters of {} are not woken: {error}", plan.lane_id));
    }
    Ok(())
}

/// Waits until the queued lane has been promoted; withdraws it when the time is up.
fn wait_for_slot(context: &Context, plan: &Plan, limit: Millis, first: &Verdict) -> AppResult<Ran> {
    let began = context.clock.monotonic();
    loop {
        reconcile(context)?;
        let row = context.ledger.lane(&plan.lane_id).doing("read the ledger")?;
        let waiting = row.is_some_and(|row| matches!(row.state, State::Queued { .. }));
        if !waiting {
            return Ok(Ran::Started(Box::new(plan.clone())));
        }
        let left = limit.0.saturating_sub(context.clock.monotonic().since(began).0);
        if left == 0 {
            return withdraw(context, plan, first);
        }
        let live = context.ledger.live().doing("read the ledger")?;
        let folders: Vec<_> = live.into_iter().map(|row| row.plan.run_dir).chain([plan.run_dir.clone()]).collect();
        context.runs.wait_for_change(&folders, Millis(left.min(1000))).doing("wait for a slot")?;
    }
}

fn withdraw(context: &Context, plan: &Plan, first: &Verdict) -> AppResult<Ran> {
    match super::cancel::cancel(context, &plan.lane_id)? {
        super::cancel::Cancelled::Ended | super::cancel::Cancelled::Before(_) => Err(refusal(first).into()),
        // It was promoted in the last moment: then it runs, which is what was asked for.
        super::cancel::Cancelled::Requested => Ok(Ran::Started(Box::new(plan.clone()))),
    }
}
