//! From a call to a plan: everything that `lane run` decides without the checkout.

mod paths;
mod profile;
mod worker;

use std::path::{Path, PathBuf};

use crate::app::context::Context;
use crate::app::error::{AppResult, Doing};
use crate::app::ports::Located;
use crate::app::reconcile::reconcile;
use crate::app::request::RunRequest;
use paths::{add_dirs, protected_paths, refuse_bad_root, refuse_odd_path};
use profile::{chosen_checkout, chosen_profile};
use worker::worker_cli;

use crate::domain::brief::{Brief, CLAUDE_MAX_BYTES, CODEX_MAX_CHARACTERS};
use crate::domain::environment::{env_name_refusal, sift};
use crate::domain::ids::LaneId;
use crate::domain::plan::{PLAN_FORMAT, Plan, RepositoryPlan};
use crate::domain::profile::Profile;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::report::{ContractFacts, with_contract};
use crate::domain::worker::{CheckoutMode, ProviderName, SandboxMode};
use crate::provider::provider;

/// A plan, and the text that its worker is handed.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What was decided.
    pub plan: Plan,
    /// The brief with the report contract.
    pub handed: String,
    /// The brief as the lead wrote it.
    pub original: String,
}

/// Decides everything that can be decided without the checkout.
pub fn plan(context: &Context, request: &RunRequest) -> AppResult<Planned> {
    refuse_nested(context)?;
    let brief = read_brief(&request.brief)?;
    let profile = chosen_profile(request)?;
    let cwd = resolve_cwd(context, request)?;
    refuse_sandboxed(context, &profile)?;
    let checkout = chosen_checkout(request, &profile);
    let lane_id = LaneId::new(context.clock.now(), brief.title(), context.random.bits16());
    let cli = worker_cli(context, request, &profile, &cwd)?;
    if !request.dry_run {
        // Here, because git is on its way meanwhile.
        reconcile(context)?;
    }
    let repository = locate(context, request, &cwd, checkout, profile.sandbox)?;
    let own = checkout != CheckoutMode::None;
    let checkout_path = if own {
        context.machine.resolve_lenient(&context.checkout_root()).join(lane_id.as_str())
    } else {
        cwd.clone()
    };
    let env_names = env_names(context, request)?;
    let plan = Plan {
        format: PLAN_FORMAT,
        created_at: context.clock.now(),
        label: request.label.clone(),
        profile: profile.name.clone(),
        provider: profile.provider,
        model: profile.model.clone(),
        effort: profile.effort,
        kind: profile.kind,
        sandbox: profile.sandbox,
        enforcement: cli.enforcement,
        network: request.network || network_is_open(profile.provider),
        checkout,
        checkout_path,
        run_dir: context.run_dir(&lane_id),
        max_time: profile.max_time,
        idle_time: profile.idle_time,
        holdout_time: context.settings.holdout_time,
        grace: context.settings.grace,
        holdout: checked_holdout(request)?,
        protect: protected_paths(context, request, &cwd, repository.as_ref())?,
        add_dirs: add_dirs(context, request, repository.as_ref(), cli.codex_home.as_deref())?,
        owned_paths: brief.owned_paths(),
        program: cli.program,
        codex_home: cli.codex_home,
        base_url: cli.base_url,
        removed_variables: sift(&context.surroundings.variables, &env_names).removed,
        env_names,
        checkout_include: context.settings.checkout_include.clone(),
        setup: if own { context.settings.setup.clone() } else { None },
        setup_time: context.settings.setup_time,
        caller: context.surroundings.caller(),
        session_id: (profile.provider == ProviderName::Claude).then(|| context.random.uuid()),
        warnings: cli.warnings,
        queue: request.queue,
        cwd,
        repository,
        lane_id,
    };
    refuse_bad_root(context, &plan)?;
    refuse_odd_path("the checkout", &plan.checkout_path)?;
    refuse_odd_path("the worker's program", &plan.program)?;
    plan.codex_home.iter().try_for_each(|home| refuse_odd_path("the Codex home", home))?;
    let handed = handed_text(&brief, &plan);
    refuse_oversized(&handed, profile.provider)?;
    Ok(Planned { plan, handed, original: brief.text().to_owned() })
}

/// Whether nothing limits the network of that provider's workers: then the result must not claim it.
const fn network_is_open(provider: ProviderName) -> bool {
    match provider {
        ProviderName::Openai => false,
        ProviderName::Claude | ProviderName::Demo => true,
    }
}

fn refuse_nested(context: &Context) -> AppResult<()> {
    match context.surroundings.text("LANE_ID") {
        Some(lane) => Err(Refusal::new(
            RefusalStatus::NestedLane,
            format!("this is lane {lane}, and a lane may not start lanes"),
            "do the work in this lane, or say in the report what the lead should start",
        )
        .into()),
        None => Ok(()),
    }
}

fn refuse_sandboxed(context: &Context, profile: &Profile) -> AppResult<()> {
    let cut = context.surroundings.text("CODEX_SANDBOX_NETWORK_DISABLED") == Some("1");
    let reason = match context.machine.caller_sandbox() {
        Some(reason) => Some(reason),
        None if cut && profile.provider != ProviderName::Demo => {
            Some("Codex has cut this shell off the network, and the worker with it".to_owned())
        }
        None => None,
    };
    match reason {
        Some(reason) => Err(Refusal::new(
            RefusalStatus::SandboxedCaller,
            reason,
            "let the lead call `lane` outside its sandbox: allow the command `lane` there (Codex: an approved prefix \
             or --sandbox danger-full-access; Claude Code: a sandbox exclusion), or use Lane through MCP",
        )
        .into()),
        None => Ok(()),
    }
}

fn read_brief(bytes: &[u8]) -> AppResult<Brief> {
    Brief::from_bytes(bytes.to_vec()).map_err(|error| {
        Refusal::usage(
            error.to_string(),
            "write the task as Markdown text: `Goal:`, `Do:`, `Acceptance:` (see docs/briefs.md)",
        )
        .into()
    })
}

fn resolve_cwd(context: &Context, request: &RunRequest) -> AppResult<PathBuf> {
    let asked = request.cwd.clone().unwrap_or_else(|| context.surroundings.directory.clone());
    let absolute = context.surroundings.directory.join(&asked);
    let resolved = context.machine.resolve_dir(&absolute).map_err(|error| {
        Refusal::usage(format!("--cwd {}: {error}", asked.display()), "name a directory that exists")
    })?;
    refuse_odd_path("--cwd", &resolved)?;
    Ok(resolved)
}

fn locate(
    context: &Context,
    request: &RunRequest,
    cwd: &Path,
    checkout: CheckoutMode,
    sandbox: SandboxMode,
) -> AppResult<Option<RepositoryPlan>> {
    let revision = request.base.as_deref().unwrap_or("HEAD");
    let located = context.git.locate(cwd, revision).doing("look for the repository")?;
    let needed = checkout != CheckoutMode::None || request.base.is_some() || !request.protect.is_empty();
    let refuse = |error: String, hint: &str| Err(Refusal::new(RefusalStatus::NotARepository, error, hint).into());
    match located {
        Located::Inside { lane_branch_exists: true, .. } if checkout != CheckoutMode::None => Err(Refusal::new(
            RefusalStatus::BranchConflict,
            "a branch named `lane` stands where the branches `lane/<id>` go",
            "rename it: git branch -m lane lane-old",
        )
        .into()),
        Located::Inside { repository, .. } => Ok(Some(repository)),
        Located::UnknownRevision => Err(Refusal::usage(
            format!("`{revision}` names no commit in the repository of {}", cwd.display()),
            "give --base a branch, tag or commit that exists there",
        )
        .into()),
        Located::NoCommit if needed => refuse(
            format!("the repository of {} has no commit yet", cwd.display()),
            "make a first commit, so that there is something to start from",
        ),
        Located::NoWorkTree if needed => refuse(
            format!("{} lies in a bare repository or inside a git folder", cwd.display()),
            "call from a working tree (git worktree add, or a clone)",
        ),
        Located::Outside if needed => refuse(
            format!("{} is in no git repository", cwd.display()),
            "give --cwd a folder inside the repository, or use --checkout none with --sandbox read-only",
        ),
        Located::Outside | Located::NoCommit | Located::NoWorkTree => {
            if sandbox == SandboxMode::WorkspaceWrite && matches!(located, Located::NoWorkTree) {
                return refuse(
                    format!("{} lies in a bare repository or inside a git folder", cwd.display()),
                    "a worker may not write there",
                );
            }
            Ok(None)
        }
    }
}

fn checked_holdout(request: &RunRequest) -> AppResult<Vec<String>> {
    match request.holdout.iter().find(|command| command.trim().is_empty()) {
        Some(_) => Err(Refusal::usage("a --holdout command is empty", "give the command that must exit 0").into()),
        None => Ok(request.holdout.clone()),
    }
}

fn env_names(context: &Context, request: &RunRequest) -> AppResult<Vec<String>> {
    let mut names = context.settings.env_names.clone();
    for name in &request.env_names {
        if let Some(reason) = env_name_refusal(name) {
            return Err(Refusal::usage(format!("--env {name}: {reason}"), "name another variable, without `=`").into());
        }
        if context.surroundings.variable(name).is_none() {
            return Err(
                Refusal::usage(format!("--env {name}: it is not set here"), "set it, or leave the flag out").into()
            );
        }
        names.push(name.clone());
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn handed_text(brief: &Brief, plan: &Plan) -> String {
    let checkout = plan.checkout_path.display().to_string();
    let repository = plan.repository.as_ref().map(|repository| repository.root.display().to_string());
    let notes = provider(plan.provider).notes(plan);
    with_contract(
        brief.text(),
        &ContractFacts {
            kind: plan.kind,
            checkout: plan.has_own_checkout().then_some(checkout.as_str()),
            repository: repository.as_deref(),
            writes: plan.writes(),
            check_follows: !plan.holdout.is_empty(),
            protected: &plan.protect,
            provider_notes: &notes,
        },
    )
}

fn refuse_oversized(handed: &str, provider: ProviderName) -> AppResult<()> {
    let characters = handed.chars().count();
    let (too_long, limit) = match provider {
        ProviderName::Openai => (characters > CODEX_MAX_CHARACTERS, format!("{CODEX_MAX_CHARACTERS} characters")),
        ProviderName::Claude | ProviderName::Demo => {
            (handed.len() > CLAUDE_MAX_BYTES, format!("{CLAUDE_MAX_BYTES} bytes"))
        }
    };
    if too_long {
        return Err(Refusal::usage(
            format!(
                "the brief has {characters} characters ({} bytes) with the contract; {} takes {limit}",
                handed.len(),
                provider.as_str()
            ),
            "shorten it, or commit the material to the repository and name its path",
        )
        .into());
    }
    Ok(())
}
