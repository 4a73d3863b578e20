//! The supervisor: looks after one lane from its admission to its end.
//!
//! Specification:
//! * It holds the claim on the run folder for its whole life; whoever finds a live lane without
//!   one starts a new supervisor, which goes on where the ledger and the files say the lane is.
//! * Each step is recorded before the next begins, and each step can be done again.
//! * While the worker runs it only carries out what [`decide`] chose.
//! * At the end no process of the lane is alive, the result is written, the slot is free, and the
//!   queue has moved on.

use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::{AppError, AppResult, Doing};
use super::lanes::require_lane;
use super::ports::{Found, PortErrorKind, RunningWorker, Sight};
use super::prepare::{Prepared, prepare};
use super::prove::{MOST_TRIES, prove, take_over, tries};
use super::reconcile::promote;
use super::run::{end_without_worker, write_end};
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::state::{LaneEvent, State, StopReason, WorkerEnd};
use crate::domain::supervision::{Effect, Input, Limits, Watch, decide};
use crate::domain::time::{Millis, Monotonic};
use crate::domain::worker::{ProcessExit, ProviderName, WorkerEvent};
use crate::provider::{Decoder, PoliteSignal, provider};

/// Looks after the lane of `run_dir` to its end, and moves the queue on.
pub fn supervise(context: &Context, run_dir: &Path) -> AppResult<()> {
    // The ledger knows the plan; the file is for people, and may not have survived a power loss.
    let name = run_dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let lane_id = super::lanes::find(context, name)?;
    let plan = require_lane(context, &lane_id)?.plan;
    let ended = look_after(context, &plan);
    if let Err(error) = &ended {
        end_after_failure(context, &plan, error)?;
    }
    promote(context)?;
    // Nobody waits for a supervisor any more, so what the next callers would pay for is done now.
    context.ledger.settle();
    ended
}

fn look_after(context: &Context, plan: &Plan) -> AppResult<()> {
    let state = require_lane(context, &plan.lane_id)?.state;
    match state {
        State::Queued { .. } => Ok(()),
        State::Admitted { .. } => {
            record(context, plan, &LaneEvent::PrepareStarted)?;
            from_the_start(context, plan)
        }
        State::Preparing { .. } => {
            recovered(context, plan, "preparing")?;
            match find(context, plan)? {
                Found::Worker(worker) => {
                    record(context, plan, &LaneEvent::WorkerStarted { keeper: worker.keeper() })?;
                    watch_worker(context, plan, worker)
                }
                Found::NeverStarted | Found::MachineRestarted => from_the_start(context, plan),
            }
        }
        State::Working { .. } => {
            recovered(context, plan, "working")?;
            match find(context, plan)? {
                Found::Worker(worker) => watch_worker(context, plan, worker),
                Found::NeverStarted | Found::MachineRestarted => worker_is_gone(context, plan),
            }
        }
        State::Proving { worker, .. } => {
            recovered(context, plan, "proving")?;
            let swept = context.processes.sweep_lane(&plan.lane_id).doing("end what is left of the lane")?;
            finish(context, plan, &worker, swept)
        }
        State::Ended { .. } => context.runs.mark_ended(&plan.run_dir).doing("wake the waiters"),
    }
}

fn record(context: &Context, plan: &Plan, event: &LaneEvent) -> AppResult<State> {
    context.ledger.append(&plan.lane_id, event, context.clock.now()).doing("record an event")
}

fn recovered(context: &Context, plan: &Plan, stage: &str) -> AppResult<()> {
    record(context, plan, &LaneEvent::Recovered { stage: stage.to_owned() }).map(|_| ())
}

fn find(context: &Context, plan: &Plan) -> AppResult<Found> {
    context.processes.find_worker(&plan.run_dir, &plan.lane_id).doing("find the worker")
}

fn is_cancelled(context: &Context, plan: &Plan) -> AppResult<bool> {
    Ok(require_lane(context, &plan.lane_id)?.state.is_cancelled() || context.runs.cancel_requested(&plan.run_dir))
}

fn from_the_start(context: &Context, plan: &Plan) -> AppResult<()> {
    if is_cancelled(context, plan)? {
        return end_without_worker(context, plan, Outcome::Cancelled, None, context.clock.now()).map(|_| ());
    }
    match prepare(context, plan)? {
        Prepared::Ready(start) => {
            if is_cancelled(context, plan)? {
                return end_prepared(context, plan, Outcome::Cancelled, None);
            }
            let worker = context.processes.start_worker(&start).doing("start the worker")?;
            record(context, plan, &LaneEvent::WorkerStarted { keeper: worker.keeper() })?;
            watch_worker(context, plan, worker)
        }
        // Whatever the request cut short has failed only because of it.
        Prepared::Failed { .. } if is_cancelled(context, plan)? => {
            end_prepared(context, plan, Outcome::Cancelled, None)
        }
        Prepared::Failed { outcome, error } => end_prepared(context, plan, outcome, Some(error)),
    }
}

/// Ends a lane whose checkout may exist already; the checkout stays until `lane clean`.
fn end_prepared(context: &Context, plan: &Plan, outcome: Outcome, error: Option<String>) -> AppResult<()> {
    let state = require_lane(context, &plan.lane_id)?.state;
    let now = context.clock.now();
    let mut end = crate::domain::result::LaneEnd::without_worker(plan, outcome, error, now);
    if let State::Preparing { since, waited, .. } = state {
        end.times.queued = Some(waited);
        end.times.prepare = Some(now.since(since));
    }
    write_end(context, plan, &end)
}

/// The worker's processes are gone and nobody learnt how it ended: its files still tell.
fn worker_is_gone(context: &Context, plan: &Plan) -> AppResult<()> {
    let swept = context.processes.sweep_lane(&plan.lane_id).doing("end what is left of the lane")?;
    let worker =
        WorkerEnd { exit: ProcessExit::Unknown, ran_for: Millis(0), stopped: Some(StopReason::MachineRestarted) };
    record(context, plan, &LaneEvent::WorkerEnded { worker: worker.clone() })?;
    finish(context, plan, &worker, swept)
}

fn watch_worker(context: &Context, plan: &Plan, mut worker: Box<dyn RunningWorker>) -> AppResult<()> {
    let mut eyes = Eyes::new(plan);
    let limits = Limits { max_time: plan.max_time, idle_time: plan.idle_time, grace: plan.grace };
    let mut watch = Watch::new(limits, worker.started(), context.clock.monotonic());
    // A request that stands as a file is seen by the first look; one that is only in the ledger
    // (its caller died in between) is made a file, so that it counts once.
    let asked = require_lane(context, &plan.lane_id)?.state.is_cancelled();
    if asked && !context.runs.cancel_requested(&plan.run_dir) {
        context.runs.request_cancel(&plan.run_dir).doing("hand over the request to stop")?;
    }
    // What was written before anybody watched makes no growth: a command that then works in silence
    // would not be known to be open.
    for input in eyes.look(context, plan, worker.as_mut())? {
        watch = carry_out(context, plan, worker.as_mut(), watch, &input)?.0;
    }
    loop {
        let now = context.clock.monotonic();
        let mut inputs = Vec::new();
        for sight in worker.wait(watch.sleep(now)).doing("watch the worker")? {
            match sight {
                Sight::Grew => {
                    inputs.push(Input::Grew);
                    match eyes.look(context, plan, worker.as_mut()) {
                        Ok(seen) => inputs.extend(seen),
                        // What cannot be read now must not leave the worker without a supervisor.
                        Err(_) => context.runs.reopen(&plan.run_dir),
                    }
                }
                Sight::CancelRequested => inputs.push(Input::CancelRequested),
                Sight::Exited { exit, ran_for } => {
                    let exited = Input::WorkerExited(exit);
                    let stopped = match carry_out(context, plan, worker.as_mut(), watch, &exited)?.1 {
                        Some(Effect::Finish { stopped, .. }) => stopped,
                        Some(Effect::SignalPolitely | Effect::KillTree) | None => None,
                    };
                    return worker_ended(context, plan, worker, &WorkerEnd { exit, ran_for, stopped });
                }
            }
        }
        if inputs.is_empty() {
            inputs.push(eyes.tick(&watch, worker.as_ref(), context.clock.monotonic()));
        }
        for input in inputs {
            watch = carry_out(context, plan, worker.as_mut(), watch, &input)?.0;
        }
    }
}

/// Lets the pure function decide, and does what it says.
fn carry_out(
    context: &Context,
    plan: &Plan,
    worker: &mut dyn RunningWorker,
    watch: Watch,
    input: &Input,
) -> AppResult<(Watch, Option<Effect>)> {
    let (watch, effect) = decide(&watch, input, context.clock.monotonic());
    match effect {
        Some(Effect::SignalPolitely) => {
            worker.signal_politely(polite_signal(plan.provider)).doing("ask the worker to stop")?;
        }
        Some(Effect::KillTree) => worker.kill_tree().doing("end the worker")?,
        Some(Effect::Finish { .. }) | None => {}
    }
    Ok((watch, effect))
}

const fn polite_signal(provider: ProviderName) -> PoliteSignal {
    match provider {
        ProviderName::Openai => PoliteSignal::Interrupt,
        ProviderName::Claude | ProviderName::Demo => PoliteSignal::Terminate,
    }
}

fn worker_ended(context: &Context, plan: &Plan, mut worker: Box<dyn RunningWorker>, end: &WorkerEnd) -> AppResult<()> {
    let swept = worker.sweep().doing("end what the worker left")?;
    drop(worker);
    record(context, plan, &LaneEvent::WorkerEnded { worker: end.clone() })?;
    finish(context, plan, end, swept)
}

fn finish(context: &Context, plan: &Plan, worker: &WorkerEnd, swept: Vec<String>) -> AppResult<()> {
    context.runs.reopen(&plan.run_dir);
    let end = prove(context, plan, worker, swept)?;
    write_end(context, plan, &end)
}

/// Ends a lane that Lane itself failed at, so that it never stays live without a process.
///
/// A failure to write means that nothing can be recorded now: the next command tries again.
fn end_after_failure(context: &Context, plan: &Plan, error: &AppError) -> AppResult<()> {
    let state = require_lane(context, &plan.lane_id)?.state;
    let live = state.holds_slot();
    let transient = match error {
        AppError::Refused(_) => true,
        AppError::Failed { source, .. } => source.kind == PortErrorKind::NoRoom,
    };
    let again = transient && !matches!(state, State::Preparing { .. }) && tries(context, plan) <= 2 * MOST_TRIES;
    if !live || again {
        return Ok(());
    }
    let swept = context.processes.sweep_lane(&plan.lane_id).doing("end what is left of the lane")?;
    let mut end = crate::domain::result::LaneEnd::without_worker(
        plan,
        Outcome::Error,
        Some(error.to_string()),
        context.clock.now(),
    );
    end.leftover_processes = swept;
    if matches!(state, State::Working { .. } | State::Proving { .. }) {
        // Whatever went wrong, what the worker did must not be lost with it.
        if let Ok(Some(taken)) = take_over(context, plan, &mut end.warnings) {
            end.head_commit = Some(taken.head_commit);
            end.changes = Some(taken.changes);
            end.warnings.extend(taken.warnings);
        }
    }
    write_end(context, plan, &end)
}

/// Reads the worker's stream while it grows.
struct Eyes {
    decoder: Box<dyn Decoder>,
    offset: u64,
    processor_time: Millis,
    rollout: Rollout,
}

/// Codex's rollout file, whose growth shows life when the stream does not.
enum Rollout {
    None,
    Wanted { codex_home: PathBuf, session_id: Option<String> },
    Watched,
}

impl Eyes {
    fn new(plan: &Plan) -> Self {
        let rollout = match &plan.codex_home {
            Some(codex_home) => Rollout::Wanted { codex_home: codex_home.clone(), session_id: None },
            None => Rollout::None,
        };
        Self { decoder: provider(plan.provider).decoder(), offset: 0, processor_time: Millis(0), rollout }
    }

    fn look(&mut self, context: &Context, plan: &Plan, worker: &mut dyn RunningWorker) -> AppResult<Vec<Input>> {
        let mut inputs = Vec::new();
        let decoder = self.decoder.as_mut();
        let rollout = &mut self.rollout;
        let mut take = |line: &[u8]| {
            for event in decoder.line(line) {
                if let (Rollout::Wanted { session_id, .. }, WorkerEvent::SessionStarted { session_id: id, .. }) =
                    (&mut *rollout, &event)
                {
                    *session_id = Some(id.clone());
                }
                inputs.push(input_of(&event));
            }
        };
        self.offset = context
            .runs
            .lines(&plan.run_dir, "events.jsonl", self.offset, false, &mut take)
            .doing("read the worker's stream")?;
        if let Rollout::Wanted { codex_home, session_id: Some(id) } = &self.rollout
            && let Some(path) = context.runs.find_rollout(codex_home, id)
        {
            worker.watch_file(&path);
            self.rollout = Rollout::Watched;
        }
        Ok(inputs)
    }

    fn tick(&mut self, watch: &Watch, worker: &dyn RunningWorker, now: Monotonic) -> Input {
        if !watch.wants_processor_look(now) {
            return Input::Tick;
        }
        let used = worker.processor_time();
        // A command that waits without working is no sign of life; a tenth of a second in a
        // quarter of the idle limit is.
        let moved = used.0 > self.processor_time.0 + 100;
        self.processor_time = used;
        if moved { Input::UsedProcessor } else { Input::Tick }
    }
}

fn input_of(event: &WorkerEvent) -> Input {
    match event {
        WorkerEvent::CommandStarted { .. } => Input::CommandStarted,
        WorkerEvent::CommandEnded { .. } => Input::CommandEnded,
        WorkerEvent::Waiting { authentication: true, .. } => Input::LoginRefused,
        WorkerEvent::Waiting { authentication: false, .. }
        | WorkerEvent::SessionStarted { .. }
        | WorkerEvent::Notice { .. } => Input::Grew,
        WorkerEvent::FilesEdited { .. }
        | WorkerEvent::Said { .. }
        | WorkerEvent::PermissionDenied { .. }
        | WorkerEvent::RateLimit { .. }
        | WorkerEvent::TurnEnded { .. } => Input::LoginAccepted,
    }
}
