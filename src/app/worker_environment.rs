//! The environment that a worker, its set-up and its checks run in.

use std::ffi::OsString;
use std::path::Path;

use super::context::{Context, PrivateDirs};
use super::ports::Environment;
use crate::domain::plan::Plan;
use crate::provider::WorkerCommand;

/// Returns the environment of everything that runs for a lane: what it may see, tagged with its
/// id, with the caches of common tools in a folder of its own.
pub fn lane_environment(plan: &Plan, kept: &Environment, dirs: &PrivateDirs) -> Environment {
    let mut variables = kept.0.clone();
    let cache = |name: &str| dirs.cache.join(name).into_os_string();
    let own: [(&str, OsString); 9] = [
        ("LANE_ID", plan.lane_id.as_str().into()),
        ("TMPDIR", dirs.temp.clone().into_os_string()),
        ("XDG_CACHE_HOME", cache("xdg")),
        ("GOCACHE", cache("go-build")),
        ("npm_config_cache", cache("npm")),
        ("PIP_CACHE_DIR", cache("pip")),
        ("GIT_TERMINAL_PROMPT", "0".into()),
        ("TERM", "dumb".into()),
        ("NO_COLOR", "1".into()),
    ];
    for (name, value) in own {
        set(&mut variables, name, value);
    }
    Environment(variables)
}

/// Returns the worker's environment: the lane's, what its CLI needs, and its one login.
pub fn worker_environment(context: &Context, lane: &Environment, command: &WorkerCommand) -> Environment {
    let mut variables = lane.0.clone();
    for (name, value) in &command.set {
        set(&mut variables, name, value.clone());
    }
    for name in &command.logins {
        if let Some(value) = context.surroundings.variable(name) {
            set(&mut variables, name, value.clone());
        }
    }
    Environment(variables)
}

fn set(variables: &mut Vec<(String, OsString)>, name: &str, value: OsString) {
    variables.retain(|(known, _)| known != name);
    variables.push((name.to_owned(), value));
}

/// Makes the folders that only this worker uses.
pub fn make_private_dirs(context: &Context, run_dir: &Path) -> super::ports::PortResult<PrivateDirs> {
    let dirs = Context::private_dirs(run_dir);
    for dir in [&dirs.temp, &dirs.cache, &dirs.claude_config] {
        context.machine.ensure_private_dir(dir)?;
    }
    Ok(dirs)
}
