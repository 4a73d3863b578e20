//! From a call to a plan: everything that `lane run` decides without the checkout.

use std::path::{Path, PathBuf};

use super::context::Context;
use super::error::{AppResult, Doing};
use super::ports::Located;
use super::request::RunRequest;
use super::worker_cli::{CliFacts, cli_facts};
use crate::domain::admission::overlaps;
use crate::domain::brief::{Brief, CLAUDE_MAX_BYTES, CODEX_MAX_CHARACTERS};
use crate::domain::environment::env_name_refusal;
use crate::domain::ids::LaneId;
use crate::domain::plan::{PLAN_FORMAT, Plan, RepositoryPlan};
use crate::domain::profile::Profile;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::report::{ContractFacts, with_contract};
use crate::domain::worker::{CheckoutMode, Enforcement, ProviderName, SandboxMode};
use crate::provider::provider;

/// The profiles of this version, embedded in the binary.
const PROFILES: [(&str, &str); 4] = [
    ("implement", include_str!("../../profiles/implement.toml")),
    ("investigate", include_str!("../../profiles/investigate.toml")),
    ("opus", include_str!("../../profiles/opus.toml")),
    ("review", include_str!("../../profiles/review.toml")),
];

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
    let repository = locate(context, request, &cwd, checkout, profile.sandbox)?;
    let lane_id = LaneId::new(context.clock.now(), brief.title(), context.random.bits16());
    let cli = worker_cli(context, request, &profile, &cwd)?;
    let own = checkout != CheckoutMode::None;
    let checkout_path = if own {
        context.machine.resolve_lenient(&context.checkout_root()).join(lane_id.as_str())
    } else {
        cwd.clone()
    };
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
        network: request.network,
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
        env_names: env_names(context, request)?,
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
    let handed = handed_text(&brief, &plan);
    refuse_oversized(&handed, profile.provider)?;
    Ok(Planned { plan, handed, original: brief.text().to_owned() })
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

fn chosen_profile(request: &RunRequest) -> AppResult<Profile> {
    let known: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    let list = known.join(", ");
    let name = match request.profile.as_deref() {
        Some("auto") => {
            return Err(Refusal::usage("`--profile auto` is not there yet", format!("name a profile: {list}")).into());
        }
        Some(name) => name,
        None => return Err(Refusal::usage("no profile is named", format!("add --profile with one of: {list}")).into()),
    };
    let Some((_, text)) = PROFILES.iter().find(|(known, _)| *known == name) else {
        let error = format!("there is no profile `{name}`");
        return Err(Refusal::new(RefusalStatus::UnknownProfile, error, format!("use one of: {list}")).into());
    };
    let mut profile = Profile::from_toml(name, text).map_err(|error| {
        Refusal::new(RefusalStatus::BadProfile, error.to_string(), "this is a fault of this build of Lane")
    })?;
    overlay(&mut profile, request)?;
    Ok(profile)
}

fn overlay(profile: &mut Profile, request: &RunRequest) -> AppResult<()> {
    if let Some(provider) = request.provider.filter(|provider| *provider != profile.provider) {
        if request.model.is_none() {
            return Err(Refusal::usage(
                format!(
                    "profile `{}` names a model of {}, not of {}",
                    profile.name,
                    profile.provider.as_str(),
                    provider.as_str()
                ),
                "add --model with a model of that provider, or name another profile",
            )
            .into());
        }
        profile.provider = provider;
    }
    if request.demo_worker {
        profile.provider = ProviderName::Demo;
        profile.model = "scripted".to_owned();
    }
    if let Some(model) = &request.model {
        let plain = !model.is_empty() && !model.starts_with('-') && !model.contains(char::is_whitespace);
        if !plain {
            return Err(Refusal::usage(
                format!("`{model}` is not a model's name"),
                "name the model as its provider does",
            )
            .into());
        }
        profile.model.clone_from(model);
    }
    profile.effort = request.effort.unwrap_or(profile.effort);
    profile.kind = request.kind.unwrap_or(profile.kind);
    profile.sandbox = request.sandbox.unwrap_or(profile.sandbox);
    profile.max_time = request.max_time.unwrap_or(profile.max_time);
    profile.idle_time = request.idle_time.unwrap_or(profile.idle_time);
    Ok(())
}

/// A write lane gets its own checkout unless the caller says otherwise.
fn chosen_checkout(request: &RunRequest, profile: &Profile) -> CheckoutMode {
    let own = request.own_checkout
        || (profile.sandbox == SandboxMode::WorkspaceWrite && profile.checkout == CheckoutMode::None);
    match request.checkout {
        Some(CheckoutMode::None) if request.own_checkout => CheckoutMode::Clone,
        Some(checkout) => checkout,
        None if own => CheckoutMode::Clone,
        // A profile that writes brings a checkout along; read-only lanes of it need none.
        None if request.sandbox == Some(SandboxMode::ReadOnly) => CheckoutMode::None,
        None => profile.checkout,
    }
}

fn resolve_cwd(context: &Context, request: &RunRequest) -> AppResult<PathBuf> {
    let asked = request.cwd.clone().unwrap_or_else(|| context.surroundings.directory.clone());
    let absolute = context.surroundings.directory.join(&asked);
    context.machine.resolve_dir(&absolute).map_err(|error| {
        Refusal::usage(format!("--cwd {}: {error}", asked.display()), "name a directory that exists").into()
    })
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

struct ChosenCli {
    program: PathBuf,
    codex_home: Option<PathBuf>,
    base_url: Option<String>,
    enforcement: Enforcement,
    warnings: Vec<String>,
}

fn worker_cli(context: &Context, request: &RunRequest, profile: &Profile, cwd: &Path) -> AppResult<ChosenCli> {
    let settings = &context.settings;
    match profile.provider {
        ProviderName::Demo => Ok(ChosenCli {
            program: context.executable.clone(),
            codex_home: None,
            base_url: None,
            enforcement: context.processes.enforcement(ProviderName::Demo).unwrap_or(Enforcement::None),
            warnings: Vec::new(),
        }),
        ProviderName::Claude => Ok(ChosenCli {
            program: require_program(context, settings.claude_bin.as_deref(), "claude", "LANE_CLAUDE_BIN")?,
            codex_home: None,
            base_url: settings.claude_base_url.clone(),
            enforcement: claude_enforcement(context)?,
            warnings: Vec::new(),
        }),
        ProviderName::Openai => {
            let program = require_program(context, settings.codex_bin.as_deref(), "codex", "LANE_CODEX_BIN")?;
            let codex_home = codex_home(context, request)?;
            let facts: CliFacts = cli_facts(context, &program, &codex_home, cwd)?;
            facts.require_sandbox()?;
            Ok(ChosenCli {
                program,
                codex_home: Some(codex_home),
                base_url: settings.openai_base_url.clone(),
                enforcement: Enforcement::Codex,
                warnings: Vec::new(),
            })
        }
    }
}

fn require_program(context: &Context, explicit: Option<&Path>, name: &str, variable: &str) -> AppResult<PathBuf> {
    let search_path = context.surroundings.variable("PATH").map(std::ffi::OsString::as_os_str);
    context.machine.find_program(explicit, name, search_path).ok_or_else(|| {
        let place = explicit.map_or_else(|| "on PATH".to_owned(), |path| format!("at {}", path.display()));
        Refusal::new(
            RefusalStatus::WorkerCliMissing,
            format!("`{name}` is not {place}"),
            format!("install it, or let {variable} name its executable; `lane doctor` shows what is found"),
        )
        .into()
    })
}

fn claude_enforcement(context: &Context) -> AppResult<Enforcement> {
    match context.processes.enforcement(ProviderName::Claude) {
        _ if context.settings.claude_without_sandbox => Ok(Enforcement::None),
        Ok(enforcement) => Ok(enforcement),
        Err(error) => Err(Refusal::new(
            RefusalStatus::SandboxUnavailable,
            format!("Claude workers cannot be confined here: {error}"),
            "use a kernel with Landlock (ABI 3 or later), or accept workers without a sandbox with `[sandbox] claude = \
             \"none\"` in config.toml",
        )
        .into()),
    }
}

fn codex_home(context: &Context, request: &RunRequest) -> AppResult<PathBuf> {
    let usual = request.codex_home.is_none();
    let home = match &request.codex_home {
        Some(home) => context.surroundings.directory.join(home),
        None => context
            .codex_home()
            .ok_or_else(|| Refusal::usage("no Codex home is known: HOME is not set", "set HOME or LANE_CODEX_HOME"))?,
    };
    if usual {
        context.machine.ensure_private_dir(&home).doing("make the Codex home")?;
    }
    context.machine.resolve_dir(&home).map_err(|error| {
        Refusal::usage(format!("Codex home {}: {error}", home.display()), "give a folder that exists and is logged in")
            .into()
    })
}

fn checked_holdout(request: &RunRequest) -> AppResult<Vec<String>> {
    match request.holdout.iter().find(|command| command.trim().is_empty()) {
        Some(_) => Err(Refusal::usage("a --holdout command is empty", "give the command that must exit 0").into()),
        None => Ok(request.holdout.clone()),
    }
}

fn protected_paths(
    context: &Context,
    request: &RunRequest,
    cwd: &Path,
    repository: Option<&RepositoryPlan>,
) -> AppResult<Vec<String>> {
    let Some(repository) = repository.filter(|_| !request.protect.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for asked in &request.protect {
        paths.push(from_root(cwd, &repository.root, asked).ok_or_else(|| {
            Refusal::usage(
                format!("--protect {}: it is not inside {}", asked.display(), repository.root.display()),
                "give a path inside the repository",
            )
        })?);
    }
    let missing = context.git.missing_in_base(repository, &paths).doing("look up the protected paths")?;
    match missing.first() {
        Some(path) => Err(Refusal::usage(
            format!("--protect {path}: it is not in commit {}", repository.base_commit),
            "the worker starts from that commit: commit the file first, or protect another path",
        )
        .into()),
        None => Ok(paths),
    }
}

/// Returns `asked` (relative to `cwd`, or absolute) from the root of the repository, without `..`.
fn from_root(cwd: &Path, root: &Path, asked: &Path) -> Option<String> {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for part in cwd.join(asked).components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    let relative = plain.strip_prefix(root).ok()?;
    relative.to_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn add_dirs(
    context: &Context,
    request: &RunRequest,
    repository: Option<&RepositoryPlan>,
    codex_home: Option<&Path>,
) -> AppResult<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for asked in &request.add_dirs {
        let absolute = context.surroundings.directory.join(asked);
        let dir = context.machine.resolve_dir(&absolute).map_err(|error| {
            Refusal::usage(format!("--add-dir {}: {error}", asked.display()), "name a directory that exists")
        })?;
        refuse_overlap(context, "--add-dir", &dir, repository, codex_home)?;
        dirs.push(dir);
    }
    Ok(dirs)
}

fn refuse_bad_root(context: &Context, plan: &Plan) -> AppResult<()> {
    match &context.settings.checkout_root {
        Some(root) if plan.has_own_checkout() => {
            let root = context.machine.resolve_lenient(root);
            refuse_overlap(context, "LANE_WORKTREE_ROOT", &root, plan.repository.as_ref(), plan.codex_home.as_deref())
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a folder that contains or lies in what a worker must not reach.
fn refuse_overlap(
    context: &Context,
    what: &str,
    dir: &Path,
    repository: Option<&RepositoryPlan>,
    codex_home: Option<&Path>,
) -> AppResult<()> {
    let mut walls: Vec<(&str, &Path)> = vec![("the state folder", &context.state_dir)];
    if let Some(repository) = repository {
        walls.push(("the repository", &repository.root));
        walls.push(("the repository's git folder", &repository.common_dir));
    }
    walls.extend(codex_home.map(|home| ("the Codex home", home)));
    let hit = walls.iter().find(|(_, wall)| overlaps(dir, &context.machine.resolve_lenient(wall)));
    let home = context.surroundings.home().map(|home| context.machine.resolve_lenient(&home));
    let holds_home = home.is_some_and(|home| home.starts_with(dir));
    match hit {
        Some((name, wall)) => Err(Refusal::usage(
            format!("{what} {}: it contains or lies in {name} ({})", dir.display(), wall.display()),
            "choose a folder of its own for it",
        )
        .into()),
        None if holds_home => Err(Refusal::usage(
            format!("{what} {}: it is or contains the home folder", dir.display()),
            "choose a folder of its own for it",
        )
        .into()),
        None => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_paths_are_read_from_the_callers_directory() {
        let from = |cwd: &str, asked: &str| from_root(Path::new(cwd), Path::new("/r"), Path::new(asked));
        assert_eq!(from("/r", "tests/t.py"), Some("tests/t.py".into()));
        assert_eq!(from("/r/sub", "t.py"), Some("sub/t.py".into()));
        assert_eq!(from("/r/sub", "../t.py"), Some("t.py".into()));
        assert_eq!(from("/r/sub", "/r/t.py"), Some("t.py".into()));
        assert_eq!(from("/r", "../other/t.py"), None);
        assert_eq!(from("/r", "."), None);
    }

    #[test]
    fn embedded_profiles_are_well_formed() {
        for (name, text) in PROFILES {
            Profile::from_toml(name, text).unwrap();
        }
    }
}
