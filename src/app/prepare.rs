//! Preparing: the checkout, what is protected in it, the set-up, and the worker's command.

use super::context::{Context, PrivateDirs};
use super::error::{AppResult, Doing};
use super::ports::{CheckRequest, Confinement, Environment, WorkerStart};
use super::worker_cli::cli_facts;
use super::worker_environment::{lane_environment, make_private_dirs, worker_environment};
use crate::domain::outcome::Outcome;
use crate::domain::plan::Plan;
use crate::domain::worker::{CheckoutMode, Enforcement, ProviderName};
use crate::provider::{Surroundings, provider};

/// File of the run folder with the first look at what is protected.
pub const PROTECTED_FILE: &str = "protected.json";

/// File of the run folder with what making the checkout had to say.
pub const PREPARE_WARNINGS_FILE: &str = "prepare-warnings.json";

/// What preparing came to.
#[derive(Debug)]
pub enum Prepared {
    /// The worker can start.
    Ready(Box<WorkerStart>),
    /// The lane ends here, before a worker.
    Failed {
        /// How it ends.
        outcome: Outcome,
        /// Why, in one sentence.
        error: String,
    },
}

/// Makes everything that the worker needs. A try that was cut short is done over.
pub fn prepare(context: &Context, plan: &Plan) -> AppResult<Prepared> {
    let mut warnings = base_dirty(context, plan);
    if plan.has_own_checkout() {
        if let Some(root) = plan.checkout_path.parent() {
            // What a worker makes is the person's alone, whatever the state folder's own mode is.
            context.machine.ensure_private_dir(root).doing("make the folder of the checkouts")?;
        }
        match context.git.make_checkout(plan) {
            Ok(made) => warnings.extend(made.warnings),
            Err(error) => {
                return Ok(Prepared::Failed { outcome: Outcome::CheckoutFailed, error: format!("checkout: {error}") });
            }
        }
    }
    let dirs = make_private_dirs(context, &plan.run_dir).doing("make the worker's private folders")?;
    if let Some(error) = protect(context, plan)? {
        return Ok(Prepared::Failed { outcome: Outcome::ProtectMissing, error });
    }
    let kept = context.runs.load_environment(&plan.run_dir).doing("read the lane's variables")?;
    let lane = lane_environment(plan, &kept, &dirs);
    if let Some(error) = set_up(context, plan, &lane, &dirs)? {
        return Ok(Prepared::Failed { outcome: Outcome::SetupFailed, error });
    }
    let text = serde_json::to_vec(&warnings).unwrap_or_default();
    context.runs.write(&plan.run_dir, PREPARE_WARNINGS_FILE, &text).doing("keep the warnings")?;
    worker_start(context, plan, &lane, &dirs).map(|start| Prepared::Ready(Box::new(start)))
}

/// The worker starts from a commit, so it does not see what the lead has not committed.
fn base_dirty(context: &Context, plan: &Plan) -> Vec<String> {
    let Some(repository) = plan.repository.as_ref().filter(|_| plan.has_own_checkout()) else {
        return Vec::new();
    };
    match context.git.dirty_paths(repository) {
        Ok(0) => Vec::new(),
        Ok(count) => vec![format!("base_dirty: {count} paths of the caller's working tree are not in the base commit")],
        Err(error) => vec![format!("base_dirty is not known: {error}")],
    }
}

/// Takes the first look at what is protected; says what is missing.
fn protect(context: &Context, plan: &Plan) -> AppResult<Option<String>> {
    if plan.protect.is_empty() {
        return Ok(None);
    }
    let look =
        context.runs.look_at_protected(protected_root(plan), &plan.protect).doing("look at the protected paths")?;
    if let Some(entry) = look.iter().find(|entry| entry.file_type == "missing") {
        return Ok(Some(format!("protected path {} is not in the fresh checkout", entry.path)));
    }
    let text = serde_json::to_vec(&look).unwrap_or_default();
    context.runs.write(&plan.run_dir, PROTECTED_FILE, &text).doing("keep the look at the protected paths")?;
    Ok(None)
}

/// The folder that protected paths and owned paths are counted from.
pub fn protected_root(plan: &Plan) -> &std::path::Path {
    match (&plan.repository, plan.checkout) {
        (Some(repository), CheckoutMode::None) => &repository.root,
        (Some(_) | None, CheckoutMode::Clone | CheckoutMode::Linked) | (None, CheckoutMode::None) => {
            &plan.checkout_path
        }
    }
}

/// Runs the person's set-up command once in the fresh checkout, confined as a worker is.
fn set_up(context: &Context, plan: &Plan, lane: &Environment, dirs: &PrivateDirs) -> AppResult<Option<String>> {
    let Some(command) = &plan.setup else {
        return Ok(None);
    };
    let request = CheckRequest {
        lane_id: plan.lane_id.clone(),
        command: command.clone(),
        directory: plan.checkout_path.clone(),
        environment: lane.clone(),
        limit: plan.setup_time,
        log_path: plan.run_dir.join("setup.log"),
        confinement: Some(confinement(plan, dirs)),
    };
    let run = context.processes.run_check(&request, &plan.run_dir).doing("run the set-up")?;
    Ok(match (run.exit_code, run.timed_out) {
        (Some(0), false) => None,
        (_, true) => Some(format!("set-up `{command}` reached its time limit; see {}", run.log_path.display())),
        (code, false) => Some(format!(
            "set-up `{command}` ended with {}; see {}",
            code.map_or_else(|| "a signal".to_owned(), |code| format!("exit {code}")),
            run.log_path.display()
        )),
    })
}

/// What a confined process of this lane may write.
fn confinement(plan: &Plan, dirs: &PrivateDirs) -> Confinement {
    let mut write_dirs = vec![dirs.temp.clone(), dirs.cache.clone(), dirs.claude_config.clone()];
    if plan.writes() {
        write_dirs.push(plan.checkout_path.clone());
        write_dirs.extend(plan.add_dirs.iter().cloned());
        if let (CheckoutMode::Linked, Some(repository)) = (plan.checkout, &plan.repository) {
            let common = &repository.common_dir;
            write_dirs.push(common.join("objects"));
            write_dirs.push(common.join("worktrees").join(plan.lane_id.as_str()));
            write_dirs.push(common.join("refs/heads/lane"));
            write_dirs.push(common.join("logs/refs/heads/lane"));
        }
    }
    Confinement { write_dirs, write_files: Vec::new() }
}

fn worker_start(context: &Context, plan: &Plan, lane: &Environment, dirs: &PrivateDirs) -> AppResult<WorkerStart> {
    let known_features = match (plan.provider, &plan.codex_home) {
        (ProviderName::Openai, Some(home)) => cli_facts(context, &plan.program, home, &plan.cwd)?.features,
        (ProviderName::Openai | ProviderName::Claude | ProviderName::Demo, _) => Vec::new(),
    };
    if plan.provider == ProviderName::Claude {
        offer_login_file(context, dirs)?;
    }
    let git_dir = match (plan.checkout, &plan.repository) {
        (CheckoutMode::Clone, _) => Some(plan.checkout_path.join(".git")),
        (CheckoutMode::Linked, Some(repository)) => {
            Some(repository.common_dir.join("worktrees").join(plan.lane_id.as_str()))
        }
        (CheckoutMode::Linked, None) | (CheckoutMode::None, _) => None,
    };
    let last_message = plan.run_dir.join("last-message.txt");
    let login_names = context.surroundings.login_names();
    let command = provider(plan.provider).command(&Surroundings {
        plan,
        temp_dir: &dirs.temp,
        cache_dir: &dirs.cache,
        claude_config_dir: &dirs.claude_config,
        last_message_path: &last_message,
        known_features: &known_features,
        git_dir: git_dir.as_deref(),
        login_names: &login_names,
    });
    let confined = match plan.enforcement {
        Enforcement::Landlock | Enforcement::LandlockScoped | Enforcement::Seatbelt => true,
        Enforcement::Codex | Enforcement::None => false,
    };
    Ok(WorkerStart {
        lane_id: plan.lane_id.clone(),
        run_dir: plan.run_dir.clone(),
        directory: plan.checkout_path.clone(),
        environment: worker_environment(context, lane, &command),
        command,
        confinement: confined.then(|| confinement(plan, dirs)),
    })
}

/// Without a login variable Claude's login is a file in the person's own folder: it is linked into
/// the private one, where the worker can read it and, being confined, not change it.
fn offer_login_file(context: &Context, dirs: &PrivateDirs) -> AppResult<()> {
    let login_is_set = context.surroundings.login_names().iter().any(|name| name != "CODEX_API_KEY");
    let Some(home) = context.surroundings.home().filter(|_| !login_is_set) else {
        return Ok(());
    };
    let own = context.surroundings.variable("CLAUDE_CONFIG_DIR").map_or_else(|| home.join(".claude"), Into::into);
    let file = own.join(".credentials.json");
    if context.machine.exists(&file) {
        context.machine.link(&file, &dirs.claude_config.join(".credentials.json")).doing("offer Claude's login")?;
    }
    Ok(())
}
