//! What a supervisor does while the worker runs: a pure decision over what it sees.
//!
//! The loop that touches processes hands every [`Input`] to [`decide`] and carries out the
//! [`Effect`]s that come back, nothing else.

use super::state::StopReason;
use super::time::{Millis, Monotonic};
use super::worker::ProcessExit;

/// After this many refused logins in a row the worker is stopped: no retry heals them.
const AUTH_REFUSALS_BEFORE_STOP: u32 = 3;

/// The limits of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// On the worker's whole time.
    pub max_time: Millis,
    /// On the time in which nothing moves.
    pub idle_time: Millis,
    /// From the polite signal to KILL.
    pub grace: Millis,
}

/// What a supervisor knows about a running worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    limits: Limits,
    started: Monotonic,
    last_movement: Monotonic,
    open_commands: u32,
    auth_refusals: u32,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Stopping { reason: StopReason, since: Monotonic },
    Killing { reason: StopReason },
}

/// What a supervisor sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Nothing but the time.
    Tick,
    /// Output, error output or rollout grew.
    Grew,
    /// A command of the worker began.
    CommandStarted,
    /// A command of the worker ended.
    CommandEnded,
    /// A process of the lane used the processor since the last look.
    UsedProcessor,
    /// The login was refused once more.
    LoginRefused,
    /// The worker got through to its provider.
    LoginAccepted,
    /// Somebody asked for the end.
    CancelRequested,
    /// The worker has ended.
    WorkerExited(ProcessExit),
}

/// What a supervisor has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send the provider's polite signal to the worker.
    SignalPolitely,
    /// Kill the whole tree of the lane.
    KillTree,
    /// The worker is over: sweep, and go on to proving.
    Finish {
        /// How it ended.
        exit: ProcessExit,
        /// Why Lane stopped it, if it did.
        stopped: Option<StopReason>,
    },
}

impl Watch {
    /// Begins to watch a worker that started at `started`.
    pub const fn new(limits: Limits, started: Monotonic, now: Monotonic) -> Self {
        Self { limits, started, last_movement: now, open_commands: 0, auth_refusals: 0, phase: Phase::Running }
    }

    /// Why the worker is being stopped, if it is.
    pub const fn stop_reason(&self) -> Option<StopReason> {
        match self.phase {
            Phase::Running => None,
            Phase::Stopping { reason, .. } | Phase::Killing { reason } => Some(reason),
        }
    }

    /// Whether a look at the processes' use of the processor could change the next decision.
    pub const fn wants_processor_look(&self, now: Monotonic) -> bool {
        match self.phase {
            Phase::Running => self.open_commands > 0 && now.since(self.last_movement).0 * 2 >= self.limits.idle_time.0,
            Phase::Stopping { .. } | Phase::Killing { .. } => false,
        }
    }

    /// How long the supervisor may sleep before the time alone changes something.
    pub fn sleep(&self, now: Monotonic) -> Millis {
        let until = |deadline: Monotonic| Millis(deadline.0.saturating_sub(now.0));
        match self.phase {
            Phase::Running => {
                let wall = until(self.started.plus(self.limits.max_time));
                let idle = until(self.last_movement.plus(self.limits.idle_time));
                // An open command is looked at half-way, so that its use of the processor is seen.
                let look =
                    Millis(if self.open_commands > 0 { (self.limits.idle_time.0 / 4).max(50) } else { u64::MAX });
                wall.min(idle).min(look)
            }
            Phase::Stopping { since, .. } => until(since.plus(self.limits.grace)),
            Phase::Killing { .. } => Millis(100),
        }
    }
}

/// Returns what is known after `input` was seen at `now`, and what to do about it.
pub fn decide(watch: &Watch, input: &Input, now: Monotonic) -> (Watch, Option<Effect>) {
    let mut next = watch.clone();
    match input {
        Input::WorkerExited(exit) => {
            let effect = Effect::Finish { exit: *exit, stopped: watch.stop_reason() };
            return (next, Some(effect));
        }
        Input::CancelRequested => return stop_or_hurry(next, StopReason::Cancelled, now),
        Input::Tick => {}
        Input::Grew | Input::UsedProcessor => next.last_movement = now,
        Input::CommandStarted => {
            next.open_commands = next.open_commands.saturating_add(1);
            next.last_movement = now;
        }
        Input::CommandEnded => {
            next.open_commands = next.open_commands.saturating_sub(1);
            next.last_movement = now;
        }
        Input::LoginRefused => next.auth_refusals = next.auth_refusals.saturating_add(1),
        Input::LoginAccepted => next.auth_refusals = 0,
    }
    let effect = due(&mut next, now);
    (next, effect)
}

/// A first request stops the worker politely, a second one skips what is left of the grace period.
fn stop_or_hurry(mut watch: Watch, reason: StopReason, now: Monotonic) -> (Watch, Option<Effect>) {
    match watch.phase {
        Phase::Running => {
            watch.phase = Phase::Stopping { reason, since: now };
            (watch, Some(Effect::SignalPolitely))
        }
        Phase::Stopping { reason, .. } => {
            watch.phase = Phase::Killing { reason };
            (watch, Some(Effect::KillTree))
        }
        Phase::Killing { .. } => (watch, Some(Effect::KillTree)),
    }
}

fn due(watch: &mut Watch, now: Monotonic) -> Option<Effect> {
    match watch.phase {
        Phase::Running => {
            let reason = if now.since(watch.started) >= watch.limits.max_time {
                StopReason::Timeout
            } else if watch.auth_refusals >= AUTH_REFUSALS_BEFORE_STOP {
                StopReason::Auth
            } else if now.since(watch.last_movement) >= watch.limits.idle_time {
                StopReason::Stalled
            } else {
                return None;
            };
            watch.phase = Phase::Stopping { reason, since: now };
            Some(Effect::SignalPolitely)
        }
        Phase::Stopping { reason, since } if now.since(since) >= watch.limits.grace => {
            watch.phase = Phase::Killing { reason };
            Some(Effect::KillTree)
        }
        Phase::Stopping { .. } => None,
        // The tree is killed again at each look until its end is seen: a fork may have slipped by.
        Phase::Killing { .. } => Some(Effect::KillTree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { max_time: Millis(10_000), idle_time: Millis(3_000), grace: Millis(1_000) };

    fn watch() -> Watch {
        Watch::new(LIMITS, Monotonic(0), Monotonic(0))
    }

    #[test]
    fn idle_then_grace_then_kill() {
        let (watch, effect) = decide(&watch(), &Input::Tick, Monotonic(2_999));
        assert_eq!(effect, None);
        let (watch, effect) = decide(&watch, &Input::Tick, Monotonic(3_000));
        assert_eq!((effect, watch.stop_reason()), (Some(Effect::SignalPolitely), Some(StopReason::Stalled)));
        let (watch, effect) = decide(&watch, &Input::Tick, Monotonic(3_500));
        assert_eq!(effect, None);
        let (watch, effect) = decide(&watch, &Input::Tick, Monotonic(4_000));
        assert_eq!(effect, Some(Effect::KillTree));
        let (_, effect) = decide(&watch, &Input::WorkerExited(ProcessExit::Signal(9)), Monotonic(4_001));
        assert_eq!(effect, Some(Effect::Finish { exit: ProcessExit::Signal(9), stopped: Some(StopReason::Stalled) }));
    }

    #[test]
    fn movement_holds_off_the_idle_limit_but_not_the_wall() {
        let mut watch = watch();
        for at in (0..9_999).step_by(1_000) {
            let (next, effect) = decide(&watch, &Input::UsedProcessor, Monotonic(at));
            assert_eq!(effect, None, "{at}");
            watch = next;
        }
        let (watch, effect) = decide(&watch, &Input::Grew, Monotonic(10_000));
        assert_eq!((effect, watch.stop_reason()), (Some(Effect::SignalPolitely), Some(StopReason::Timeout)));
    }

    #[test]
    fn a_second_cancel_skips_the_grace_period() {
        let (watch, effect) = decide(&watch(), &Input::CancelRequested, Monotonic(5));
        assert_eq!(effect, Some(Effect::SignalPolitely));
        let (watch, effect) = decide(&watch, &Input::CancelRequested, Monotonic(6));
        assert_eq!((effect, watch.stop_reason()), (Some(Effect::KillTree), Some(StopReason::Cancelled)));
    }

    #[test]
    fn refused_logins_stop_only_in_a_row() {
        let mut watch = watch();
        for input in [Input::LoginRefused, Input::LoginRefused, Input::LoginAccepted, Input::LoginRefused] {
            let (next, effect) = decide(&watch, &input, Monotonic(1));
            assert_eq!(effect, None);
            watch = next;
        }
        let (watch, _) = decide(&watch, &Input::LoginRefused, Monotonic(1));
        let (watch, effect) = decide(&watch, &Input::LoginRefused, Monotonic(1));
        assert_eq!((effect, watch.stop_reason()), (Some(Effect::SignalPolitely), Some(StopReason::Auth)));
    }

    proptest! {
        /// Whatever is seen in whatever order, a worker that never ends is killed once its limits are over.
        #[test]
        fn every_worker_is_stopped_in_the_end(inputs in proptest::collection::vec(0u8..7, 0..60)) {
            let mut watch = watch();
            let mut now = 0;
            for input in inputs {
                now += 137;
                let input = match input {
                    0 => Input::Tick,
                    1 => Input::Grew,
                    2 => Input::CommandStarted,
                    3 => Input::CommandEnded,
                    4 => Input::UsedProcessor,
                    5 => Input::LoginRefused,
                    _ => Input::LoginAccepted,
                };
                watch = decide(&watch, &input, Monotonic(now)).0;
            }
            watch = decide(&watch, &Input::Grew, Monotonic(20_000)).0;
            let (_, effect) = decide(&watch, &Input::Grew, Monotonic(21_000));
            prop_assert_eq!(effect, Some(Effect::KillTree));
        }
    }
}
