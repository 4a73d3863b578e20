//! A temporary folder with a HOME, a lead's repository and a place for lanes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lane::app::ports::{Git, Located};
use lane::domain::facts::TakenOver;
use lane::domain::ids::LaneId;
use lane::domain::plan::{PLAN_FORMAT, Plan, RepositoryPlan};
use lane::domain::time::{Millis, Timestamp};
use lane::domain::worker::{CheckoutMode, Effort, Enforcement, Kind, ProviderName, SandboxMode};
use lane::infra::git::GitCli;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The two modes with a checkout of its own.
pub const BOTH: [CheckoutMode; 2] = [CheckoutMode::Clone, CheckoutMode::Linked];

/// Everything a test works with; the person's configuration signs commits with a program that fails.
pub struct World {
    pub folder: tempfile::TempDir,
}

impl World {
    pub fn new() -> Self {
        Self::with_init(&[])
    }

    pub fn with_init(options: &[&str]) -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap() };
        world.write(
            "home/.gitconfig",
            "[user]\n\tname = Lead\n\temail = lead@example.com\n[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = false\n",
        );
        let mut words = vec!["init", "-q", "-b", "main"];
        words.extend(options);
        words.push("lead");
        world.git_in(world.folder.path(), &words);
        world.write("lead/.gitignore", "out/\n*.log\n");
        world.write("lead/a.txt", "one\ntwo\n");
        world.write("lead/src/lib.rs", "fn a() {}\n");
        world.commit("lead", "first");
        world
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub fn lead(&self) -> PathBuf {
        self.path("lead")
    }

    pub fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn write_hook(&self, name: &str, script: &str) {
        let path = format!("lead/.git/hooks/{name}");
        self.write(&path, &format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(self.path(&path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new("git");
        command.env_clear().env("PATH", PATH).env("HOME", self.path("home")).current_dir(directory);
        command.args(["-c", "commit.gpgSign=false", "-c", "protocol.file.allow=always"]);
        command
    }

    pub fn git_in(&self, directory: &Path, words: &[&str]) -> String {
        let output = self.command(directory).args(words).output().unwrap();
        assert!(output.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn git(&self, words: &[&str]) -> String {
        self.git_in(&self.lead(), words)
    }

    pub fn commit(&self, name: &str, message: &str) -> String {
        let at = self.path(name);
        self.git_in(&at, &["add", "-A"]);
        self.git_in(&at, &["commit", "-qm", message]);
        self.git_in(&at, &["rev-parse", "HEAD"])
    }

    pub fn worktrees(&self) -> usize {
        self.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count()
    }

    pub fn adapter(&self) -> GitCli {
        GitCli::new("git".into(), Some(PATH.into()), Some(self.path("home")))
    }

    pub fn locate(&self, revision: &str) -> RepositoryPlan {
        match self.adapter().locate(&self.lead(), revision).unwrap() {
            Located::Inside { repository, .. } => repository,
            other => panic!("{other:?}"),
        }
    }

    pub fn plan(&self, number: u32, mode: CheckoutMode) -> Plan {
        self.plan_at(number, mode, "HEAD")
    }

    pub fn plan_at(&self, number: u32, mode: CheckoutMode, revision: &str) -> Plan {
        let lane_id: LaneId = format!("20261201-004854-test-{number:04x}").parse().unwrap();
        let run_dir = self.path(&format!("runs/{lane_id}"));
        fs::create_dir_all(&run_dir).unwrap();
        let own = self.path(&format!("checkouts/{lane_id}"));
        let checkout_path = if mode == CheckoutMode::None { self.lead() } else { own };
        Plan {
            format: PLAN_FORMAT,
            checkout_path,
            run_dir,
            lane_id,
            created_at: Timestamp::from_unix_ms(1_796_086_134_000),
            label: None,
            profile: "implement".into(),
            provider: ProviderName::Openai,
            model: "m".into(),
            effort: Effort::High,
            kind: Kind::Task,
            sandbox: SandboxMode::WorkspaceWrite,
            enforcement: Enforcement::None,
            network: false,
            checkout: mode,
            cwd: self.lead(),
            repository: Some(self.locate(revision)),
            max_time: Millis(1),
            idle_time: Millis(1),
            holdout_time: Millis(1),
            grace: Millis(1),
            holdout: vec![],
            protect: vec![],
            add_dirs: vec![],
            owned_paths: None,
            program: "p".into(),
            codex_home: None,
            base_url: None,
            env_names: vec![],
            removed_variables: vec![],
            checkout_include: vec![],
            setup: None,
            setup_time: Millis(1),
            caller: None,
            session_id: None,
            warnings: vec![],
            queue: false,
        }
    }

    pub fn made(&self, mode: CheckoutMode) -> Plan {
        let plan = self.plan(1, mode);
        self.adapter().make_checkout(&plan).unwrap();
        plan
    }

    /// The worker runs a shell script in its checkout; signing is its configuration's affair.
    pub fn work(&self, plan: &Plan, script: &str) {
        assert!(self.try_work(plan, script), "{script}");
    }

    pub fn try_work(&self, plan: &Plan, script: &str) -> bool {
        let mut command = Command::new("sh");
        command.env_clear().env("PATH", PATH).env("HOME", self.path("home")).current_dir(&plan.checkout_path);
        if plan.checkout == CheckoutMode::Linked {
            // A linked worktree has the person's configuration, so the worker must do without signing.
            command.env("GIT_CONFIG_COUNT", "1");
            command.env("GIT_CONFIG_KEY_0", "commit.gpgSign").env("GIT_CONFIG_VALUE_0", "false");
        }
        let output = command.args(["-ec", script]).output().unwrap();
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    }

    pub fn take(&self, plan: &Plan) -> TakenOver {
        let taken = self.adapter().take_over(plan).unwrap();
        assert_eq!(self.adapter().take_over(plan).unwrap(), taken, "a second time gives the same answer");
        taken
    }

    pub fn branch(&self, plan: &Plan) -> String {
        self.git(&["rev-parse", &format!("refs/heads/{}", plan.branch().unwrap())])
    }
}

pub fn base(plan: &Plan) -> String {
    plan.repository.as_ref().unwrap().base_commit.to_string()
}

/// Everything below a folder but its `.git`: type, mode and content or target.
pub fn listing(root: &Path) -> BTreeMap<PathBuf, (&'static str, u32, Vec<u8>)> {
    let walk = walkdir::WalkDir::new(root).min_depth(1).into_iter();
    let inner = walk.filter_entry(|entry| !(entry.depth() == 1 && entry.file_name() == ".git"));
    let describe = |entry: walkdir::DirEntry| {
        let metadata = entry.path().symlink_metadata().unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let what = if metadata.is_symlink() {
            ("link", 0, fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes())
        } else if metadata.is_dir() {
            ("folder", mode, vec![])
        } else {
            ("file", mode, fs::read(entry.path()).unwrap())
        };
        (entry.path().strip_prefix(root).unwrap().to_path_buf(), what)
    };
    inner.map(|entry| describe(entry.unwrap())).collect()
}
