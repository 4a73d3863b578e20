//! `lane run`.

use std::io::Read;
use std::path::Path;

use super::arguments::RunArguments;
use super::{Verdict, wait};
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::request::RunRequest;
use crate::app::run::{Ran, run as run_lane};
use crate::app::wait::WaitFor;
use crate::domain::brief::CLAUDE_MAX_BYTES;
use crate::domain::refusal::Refusal;
use crate::wire::answers::{Answer, RunAnswer, RunStatus};

/// Runs the verb.
pub fn run(context: &Context, arguments: &RunArguments) -> AppResult<Verdict> {
    if arguments.retry_of.is_some() {
        return Err(Refusal::usage(
            "`--retry-of` is not there yet",
            "start a new lane with the profile of your choice",
        )
        .into());
    }
    let request = request(arguments, load_brief(context, arguments)?);
    let ran = run_lane(context, &request)?;
    match (&ran, arguments.wait) {
        (Ran::Started(plan) | Ran::Queued(plan), Some(limit)) => {
            let wait_for = WaitFor { any: false, limit };
            let rows = crate::app::wait::wait(context, std::slice::from_ref(&plan.lane_id), wait_for)?;
            Ok(Verdict::Line(Box::new(wait::answer(context, &rows))))
        }
        (Ran::Started(plan), None) => Ok(line(RunAnswer::new(plan, RunStatus::Started))),
        (Ran::Queued(plan), None) => Ok(line(RunAnswer::new(plan, RunStatus::Queued))),
        (Ran::Routed(plan), _) => Ok(line(RunAnswer::new(plan, RunStatus::Routed))),
    }
}

fn line(answer: RunAnswer) -> Verdict {
    Verdict::Line(Box::new(Answer::Run(Box::new(answer))))
}

fn load_brief(context: &Context, arguments: &RunArguments) -> Result<Vec<u8>, Refusal> {
    match (&arguments.task, &arguments.brief) {
        (Some(task), _) => Ok(task.clone().into_bytes()),
        (None, Some(path)) if path == Path::new("-") => read_bounded(std::io::stdin().lock(), "standard input"),
        (None, Some(path)) => {
            let name = path.display().to_string();
            let absolute = context.surroundings.directory.join(path);
            let kind = std::fs::metadata(&absolute).map_err(|error| unreadable(&name, &error))?;
            if kind.is_dir() {
                return Err(Refusal::usage(
                    format!("--brief {name}: it is a directory"),
                    "name the file with the brief",
                ));
            }
            let file = std::fs::File::open(&absolute).map_err(|error| unreadable(&name, &error))?;
            read_bounded(file, &name)
        }
        (None, None) => Err(Refusal::usage("there is no brief", "add --brief FILE or --task \"text\"")),
    }
}

/// Reads at most what the roomiest worker takes, so that an endless source is no hang.
fn read_bounded(source: impl Read, name: &str) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let limit = CLAUDE_MAX_BYTES as u64;
    source.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unreadable(name, &error))?;
    if bytes.len() as u64 > limit {
        return Err(Refusal::usage(
            format!("--brief {name}: it has more than {limit} bytes"),
            "shorten it, or commit the material to the repository and name its path",
        ));
    }
    Ok(bytes)
}

fn unreadable(name: &str, error: &std::io::Error) -> Refusal {
    Refusal::usage(format!("--brief {name}: {error}"), "name a file that can be read, or use --task \"text\"")
}

fn request(arguments: &RunArguments, brief: Vec<u8>) -> RunRequest {
    RunRequest {
        brief,
        cwd: arguments.cwd.clone(),
        profile: arguments.profile.clone(),
        provider: arguments.provider.map(Into::into),
        model: arguments.model.clone(),
        effort: arguments.effort.map(Into::into),
        kind: arguments.kind.map(Into::into),
        sandbox: arguments.sandbox.map(Into::into),
        checkout: arguments.checkout.map(Into::into),
        own_checkout: arguments.own_checkout,
        base: arguments.base.clone(),
        max_time: arguments.max_time,
        idle_time: arguments.idle_time,
        add_dirs: arguments.add_dir.clone(),
        network: arguments.network,
        codex_home: arguments.codex_home.clone(),
        wait_slot: arguments.wait_slot,
        queue: arguments.queue,
        label: arguments.label.clone(),
        env_names: arguments.env.clone(),
        holdout: arguments.holdout.clone(),
        protect: arguments.protect.clone(),
        dry_run: arguments.dry_run,
        demo_worker: false,
    }
}
