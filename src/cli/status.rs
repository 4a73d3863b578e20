//! `lane status`.

use super::arguments::StatusArguments;
use super::error_answer;
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::lanes;
use crate::app::ports::{LaneFilter, LaneRow, Located};
use crate::domain::duration::parse_duration;
use crate::domain::outcome::Outcome;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, LaneList, LaneSummary, Lanes};
use crate::wire::lane_result::{LaneLive, LaneResult};

/// Runs the verb.
pub fn run(context: &Context, arguments: &StatusArguments) -> AppResult<Answer> {
    match arguments.ids.as_slice() {
        [] => list(context, arguments),
        [one] => lanes::lane(context, one).map(|row| row_answer(context, &row)),
        several => Ok(several_answers(context, several)),
    }
}

/// Returns the line of one lane: its result, or where it is.
pub fn row_answer(context: &Context, row: &LaneRow) -> Answer {
    match &row.end {
        Some(end) => Answer::Result(Box::new(LaneResult::new(&row.plan, end))),
        None => {
            let last_event = lanes::last_event(context, row);
            let now = context.clock.now();
            Answer::Live(Box::new(LaneLive::new(&row.plan, &row.state, last_event, row.last_event_at, now)))
        }
    }
}

/// Returns one answer for each id asked; an id that names no lane has its refusal there.
fn several_answers(context: &Context, ids: &[String]) -> Answer {
    let lanes = ids
        .iter()
        .map(|id| match lanes::lane(context, id) {
            Ok(row) => row_answer(context, &row),
            Err(error) => asked(error_answer(error), id),
        })
        .collect();
    Answer::Lanes(Lanes { schema: SCHEMA, lanes })
}

/// Adds the id that was asked for to a refusal.
pub fn asked(answer: Answer, id: &str) -> Answer {
    match answer {
        Answer::Refused(mut refused) => {
            refused.asked = Some(id.to_owned());
            Answer::Refused(refused)
        }
        other => other,
    }
}

fn list(context: &Context, arguments: &StatusArguments) -> AppResult<Answer> {
    let filter = LaneFilter {
        limit: (!arguments.all).then_some(arguments.limit),
        since: arguments.since.as_deref().map(|text| since(text, context.clock.now())).transpose()?,
        state: arguments.state.clone().map(checked_state).transpose()?,
        repository: match &arguments.repo {
            Some(path) => Some(repository_root(context, path)?),
            None => None,
        },
    };
    let (counts, rows) = lanes::list(context, &filter)?;
    let now = context.clock.now();
    Ok(Answer::List(LaneList {
        schema: SCHEMA,
        status: Outcome::Ok,
        running: counts.running,
        queued: counts.queued,
        max: context.settings.max_concurrent,
        lanes: rows.iter().map(|row| summary(row, now)).collect(),
    }))
}

fn since(text: &str, now: Timestamp) -> Result<Timestamp, Refusal> {
    if let Ok(length) = parse_duration(text) {
        return Ok(now.minus(length));
    }
    Timestamp::parse(text).ok_or_else(|| {
        Refusal::usage(
            format!("--since `{text}` is neither a duration nor a time"),
            "write it like 2h or 2026-12-01T08:00:00Z",
        )
    })
}

fn checked_state(word: String) -> Result<String, Refusal> {
    let states = ["queued", "admitted", "preparing", "working", "proving", "ended", "running"];
    let known = states.contains(&word.as_str()) || Outcome::ALL.iter().any(|outcome| outcome.as_str() == word);
    if known {
        Ok(word)
    } else {
        Err(Refusal::usage(
            format!("--state `{word}` is no state and no outcome"),
            format!("use one of: {}, or an outcome such as ok or timeout", states.join(", ")),
        ))
    }
}

fn repository_root(context: &Context, path: &std::path::Path) -> AppResult<std::path::PathBuf> {
    let absolute = context.surroundings.directory.join(path);
    let directory = context.machine.resolve_lenient(&absolute);
    match context.git.locate(&directory, "HEAD") {
        Ok(Located::Inside { repository, .. }) => Ok(repository.root),
        Ok(_) | Err(_) => Ok(directory),
    }
}

fn summary(row: &LaneRow, now: Timestamp) -> LaneSummary {
    let plan = &row.plan;
    let finished_at = row.end.as_ref().map(|end| end.finished_at);
    LaneSummary {
        lane_id: plan.lane_id.clone(),
        status: match &row.state {
            State::Queued { .. } => "queued".to_owned(),
            State::Ended { outcome, .. } => outcome.as_str().to_owned(),
            State::Admitted { .. } | State::Preparing { .. } | State::Working { .. } | State::Proving { .. } => {
                "running".to_owned()
            }
        },
        state: row.state.word().to_owned(),
        accepted: row.end.as_ref().map(|end| end.accepted),
        marker: row.end.as_ref().map(|end| end.marker),
        kind: plan.kind,
        label: plan.label.clone(),
        profile: plan.profile.clone(),
        repository: plan.repository.as_ref().map(|repository| repository.root.clone()),
        branch: plan.branch(),
        started_at: plan.created_at,
        finished_at,
        elapsed_s: finished_at.unwrap_or(now).since(plan.created_at).as_secs_f64(),
    }
}
