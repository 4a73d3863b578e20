//! Plans and surroundings for the tests of command lines.

use std::path::Path;

use super::{Surroundings, WorkerCommand};
use crate::domain::plan::{PLAN_FORMAT, Plan, RepositoryPlan};
use crate::domain::time::{Millis, Timestamp};
use crate::domain::worker::{CheckoutMode, Effort, Enforcement, Kind, ProviderName, SandboxMode};

/// A plan of a writing lane in a private clone.
pub(super) fn plan(provider: ProviderName) -> Plan {
    Plan {
        format: PLAN_FORMAT,
        lane_id: "20261201-004854-test-beef".parse().unwrap(),
        created_at: Timestamp::from_unix_s(1_796_000_000),
        label: None,
        profile: "implement".into(),
        provider,
        model: "model-x".into(),
        effort: Effort::High,
        kind: Kind::Task,
        sandbox: SandboxMode::WorkspaceWrite,
        enforcement: Enforcement::Codex,
        network: false,
        checkout: CheckoutMode::Clone,
        cwd: "/repo".into(),
        repository: Some(RepositoryPlan {
            root: "/repo".into(),
            common_dir: "/repo/.git".into(),
            git_dir: "/repo/.git".into(),
            object_format: "sha1".into(),
            base_commit: "a".repeat(40).parse().unwrap(),
            base_revision: "HEAD".into(),
        }),
        checkout_path: "/lanes/wt".into(),
        run_dir: "/run/l".into(),
        max_time: Millis::from_secs(2700),
        idle_time: Millis::from_secs(900),
        holdout_time: Millis::from_secs(600),
        grace: Millis::from_secs(10),
        holdout: vec![],
        protect: vec![],
        add_dirs: vec![],
        owned_paths: None,
        program: "/bin/worker".into(),
        codex_home: Some("/home/u/.codex".into()),
        base_url: None,
        env_names: vec![],
        removed_variables: vec![],
        checkout_include: vec![],
        setup: None,
        setup_time: Millis::from_secs(600),
        caller: None,
        session_id: None,
        warnings: vec![],
        queue: false,
    }
}

/// Surroundings in which nothing is known and no login is set.
pub(super) fn surroundings<'a>(plan: &'a Plan, git_dir: &'a str) -> Surroundings<'a> {
    Surroundings {
        plan,
        temp_dir: Path::new("/run/l/tmp"),
        cache_dir: Path::new("/run/l/cache"),
        claude_config_dir: Path::new("/run/l/claude"),
        last_message_path: Path::new("/run/l/last.txt"),
        known_features: &[],
        git_dir: Some(Path::new(git_dir)),
        login_names: &[],
    }
}

/// The arguments as text.
pub(super) fn arguments(command: &WorkerCommand) -> Vec<String> {
    command.arguments.iter().map(|word| word.clone().into_string().unwrap()).collect()
}

/// The value of a variable that the command sets.
pub(super) fn variable<'a>(command: &'a WorkerCommand, name: &str) -> Option<&'a str> {
    command.set.iter().find(|(set, _)| set == name).and_then(|(_, value)| value.to_str())
}
