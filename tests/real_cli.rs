//! The real `codex` and `claude`, driven through `lane run` against the loopback server.
//!
//! They are found by `LANE_CODEX_BIN` and `LANE_CLAUDE_BIN`, under `node_modules`, or on PATH. One that
//! is missing is skipped aloud; `LANE_REQUIRE_REAL=1` makes that a failure. The environment is cleared,
//! the logins are dummies, and the only address they know is the loopback server's.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that fails panics")]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use lane::infra::loopback::{LoopbackServer, Script, Step};
use lane::provider::demo::task;
use serde_json::Value;
use support::repository::Repository;
use support::{Answer, PATIENCE, TestBed, path_text, processes, wait_until};

const RESET: i64 = 1_893_456_000;
const DONE: &str = "STATUS: DONE\n\nThe file is there and committed.";
const EDIT: &str = "printf 'hello\\n' > made.txt && git add made.txt && git commit -q -m 'worker: add made.txt' && git log --oneline -1";
const CODEX_MODELS: [&str; 2] = ["gpt-6.2-sol", "gpt-5.5"];
const CLAUDE_MODEL: &str = "claude-opus-5-5";

/// A CLI under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cli {
    Codex,
    Claude,
}

impl Cli {
    const BOTH: [Self; 2] = [Self::Codex, Self::Claude];

    const fn variable(self) -> &'static str {
        match self {
            Self::Codex => "LANE_CODEX_BIN",
            Self::Claude => "LANE_CLAUDE_BIN",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Codex => "codex",
            Self::Claude => "claude",
        }
    }

    const fn provider(self) -> &'static str {
        match self {
            Self::Codex => "openai",
            Self::Claude => "claude",
        }
    }

    /// Where the npm package keeps the native program.
    const fn in_node_modules(self) -> &'static str {
        match self {
            Self::Codex => "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
            Self::Claude => "@anthropic-ai/claude-code-linux-x64/claude",
        }
    }

    const fn profile(self) -> &'static str {
        match self {
            Self::Codex => "implement",
            Self::Claude => "opus",
        }
    }

    fn find(self) -> Option<PathBuf> {
        let named = support::variable(self.variable()).map(PathBuf::from);
        let local = Path::new(env!("CARGO_MANIFEST_DIR")).join("node_modules").join(self.in_node_modules());
        named.into_iter().chain([local]).find(|path| path.is_file()).or_else(|| which::which(self.name()).ok())
    }

    /// The program, or `None` after it was said that the test is skipped.
    fn found_or_skip(self) -> Option<PathBuf> {
        let found = self.find();
        if found.is_none() {
            support::skip(&format!("the real {} is not here", self.name()), "LANE_REQUIRE_REAL");
        }
        found
    }
}

/// A world in which Lane drives one real CLI against a server.
struct World {
    bed: TestBed,
    repository: Repository,
    server: LoopbackServer,
    cli: Cli,
}

impl World {
    fn new(cli: Cli, script: Script) -> Option<Self> {
        let program = cli.found_or_skip()?;
        let server = LoopbackServer::start(script).unwrap();
        let bed = TestBed::new().with(cli.variable(), program);
        let (openai, claude) = (server.openai_base_url(), server.claude_base_url());
        bed.configure(&format!(
            "[providers.openai]\nbase_url = \"{openai}\"\n\n[providers.claude]\nbase_url = \"{claude}\"\n"
        ));
        let repository = bed.repository("project");
        Some(Self { bed, repository, server, cli })
    }

    fn start(&self, more: &[&str]) -> Answer {
        let mut arguments = vec!["--profile", self.cli.profile()];
        arguments.extend_from_slice(more);
        self.bed.run(&self.repository, "Goal: make made.txt\nOwned paths: made.txt\nDo: 1. make it\n", &arguments)
    }

    /// Runs a lane to its end and returns its result.
    fn result(&self, more: &[&str]) -> Answer {
        let started = self.start(more).expect_code(0);
        self.bed.lane(&["wait", started.text("lane_id"), "--max", "120s"])
    }

    fn on_branch(&self, answer: &Answer, path: &str) -> Option<String> {
        let (code, text) = self.repository.try_git(&["show", &format!("{}:{path}", answer.text("branch"))]);
        (code == 0).then_some(text)
    }
}

fn for_each_cli(script: impl Fn() -> Script, check: impl Fn(&World)) {
    for cli in Cli::BOTH {
        if let Some(world) = World::new(cli, script()) {
            check(&world);
        }
    }
}

#[test]
fn a_plain_answer_is_the_report() {
    for_each_cli(
        || Script::new([Step::Say("STATUS: BLOCKED\n\nThere is nothing to do.".into())]),
        |world| {
            let answer = world.result(&[]).expect_code(0);
            assert_eq!((answer.status(), answer.text("marker")), ("ok", "STATUS: BLOCKED"));
            assert_eq!(answer.json["accepted"], false);
            assert_eq!(answer.json["model_verified"], answer.json["model"]);
            let seen = world.server.requests();
            assert_eq!(seen.len(), 1);
            assert!(
                seen[0].has_login
                    && seen[0].prompt.contains("make made.txt")
                    && seen[0].prompt.contains("STATUS: DONE")
            );
            assert_eq!(seen[0].model.as_deref(), answer.json["model"].as_str());
            assert_eq!(seen[0].effort.as_deref(), answer.json["effort"].as_str());
            assert!(answer.json["tokens"]["output"].as_u64().unwrap() > 0);
        },
    );
}

#[test]
fn a_shell_command_runs_in_the_checkout() {
    for_each_cli(
        || Script::work(&["pwd && ls"], "STATUS: BLOCKED\n\nOnly looked."),
        |world| {
            let answer = world.result(&[]).expect_code(0);
            let outputs = world.server.requests().pop().unwrap().tool_outputs.join("\n");
            assert!(outputs.contains("README.md"), "{outputs}");
            assert!(outputs.contains(answer.text("checkout_path")), "{outputs}");
        },
    );
}

#[test]
fn an_edit_and_a_commit_arrive_on_the_lanes_branch() {
    for_each_cli(
        || Script::work(&[EDIT], DONE),
        |world| {
            let before = world.repository.git(&["rev-parse", "main"]);
            let answer =
                world.result(&["--holdout", "grep -qx hello made.txt", "--protect", "README.md"]).expect_code(0);
            assert_eq!((answer.status(), answer.text("marker")), ("ok", "STATUS: DONE"));
            assert_eq!(answer.json["accepted"], true, "{}", answer.json);
            assert_eq!(answer.json["changes"]["commits"], 1);
            assert_eq!(answer.json["changes"]["uncommitted_saved"], false);
            assert_eq!(world.on_branch(&answer, "made.txt").as_deref(), Some("hello"));
            assert_eq!(world.repository.git(&["rev-parse", "main"]), before);
            assert_eq!(world.repository.git(&["status", "--porcelain"]), "");
        },
    );
}

#[test]
fn a_write_outside_is_refused() {
    for cli in Cli::BOTH {
        let target = tempfile::Builder::new().prefix("lane-outside-").tempdir_in("/var/tmp").unwrap();
        let file = target.path().join("escaped");
        let command = format!("echo out > {}", file.display());
        let Some(world) = World::new(cli, Script::work(&[&command, "echo still here"], "STATUS: BLOCKED\n\nRefused."))
        else {
            continue;
        };
        let answer = world.result(&[]).expect_code(0);
        assert!(!file.exists(), "{cli:?} wrote outside its checkout");
        assert_ne!(answer.json["sandbox"]["enforced_by"], "none");
        let outputs = world.server.requests().pop().unwrap().tool_outputs.join("\n");
        let refused = outputs.contains("Read-only file system") || outputs.contains("Permission denied");
        assert!(refused && outputs.contains("still here"), "{outputs}");
    }
}

#[test]
fn claudes_own_write_tool_is_confined_too() {
    let target = tempfile::Builder::new().prefix("lane-outside-").tempdir_in("/var/tmp").unwrap();
    let file = target.path().join("escaped");
    let input = serde_json::json!({"file_path": file, "content": "out"});
    let script =
        Script::new([Step::Tool { name: "Write".into(), input }, Step::Say("STATUS: BLOCKED\n\nRefused.".into())]);
    let Some(world) = World::new(Cli::Claude, script) else { return };
    world.result(&[]).expect_code(0);
    assert!(!file.exists());
}

#[test]
fn a_usage_limit_is_capped() {
    for cli in Cli::BOTH {
        let Some(mut world) = World::new(cli, Script::new([Step::UsageLimit { resets_at: RESET }])) else { continue };
        if cli == Cli::Claude {
            // Only a subscription has such a limit.
            world.bed.unset("ANTHROPIC_API_KEY");
            world.bed.set("CLAUDE_CODE_OAUTH_TOKEN", "dummy-subscription");
        }
        let answer = world.result(&[]).expect_code(5);
        assert_eq!((answer.status(), answer.text("class")), ("capped", "quota"));
        assert!(answer.text("retry_at").starts_with("2030-01-01T00:00:00"), "{}", answer.json);
    }
}

#[test]
fn a_refused_login_is_auth() {
    for_each_cli(
        || Script::new([Step::LoginRefused]),
        |world| {
            let answer = world.result(&[]).expect_code(1);
            assert_eq!((answer.status(), answer.text("class")), ("auth", "auth"));
            assert_eq!(answer.json["retryable"], false);
        },
    );
}

#[test]
fn a_server_that_is_down_is_an_endpoint_failure() {
    for cli in Cli::BOTH {
        let Some(world) = World::new(cli, Script::default()) else { continue };
        let World { bed, repository, server, .. } = world;
        let address = server.address();
        drop(server);
        bed.configure(&format!(
            "[providers.openai]\nbase_url = \"http://{address}/v1\"\n\n[providers.claude]\nbase_url = \"http://{address}\"\n"
        ));
        let started = bed.run(&repository, "Goal: x\n", &["--profile", cli.profile()]).expect_code(0);
        let answer = bed.lane(&["wait", started.text("lane_id"), "--max", "180s"]).expect_code(4);
        assert_eq!((answer.status(), answer.text("class")), ("endpoint", "infra"));
        assert_eq!(answer.json["retryable"], true);
    }
}

#[test]
fn a_cut_stream_is_tried_again() {
    // Claude asks once more without a stream before it starts anew.
    let script = || {
        Script::new([
            Step::Cut("half".into()),
            Step::Cut("half".into()),
            Step::Say("STATUS: BLOCKED\n\nIn the end.".into()),
        ])
    };
    for_each_cli(script, |world| {
        let answer = world.result(&[]).expect_code(0);
        assert_eq!((answer.status(), answer.text("marker")), ("ok", "STATUS: BLOCKED"));
        assert!(world.server.requests().len() >= 2);
    });
}

#[test]
fn a_cancel_in_the_middle_of_a_command_leaves_nothing() {
    for_each_cli(
        || Script::work(&["echo begun > begun.txt; sleep 297 & wait"], DONE),
        |world| {
            let started = world.start(&[]).expect_code(0);
            let (lane_id, checkout) = (started.lane_id(), PathBuf::from(started.text("checkout_path")));
            wait_until(PATIENCE, "the command runs", || checkout.join("begun.txt").exists());
            world.bed.lane(&["cancel", &lane_id]).expect_code(0);
            let answer = world.bed.wait(&lane_id).expect_code(1);
            assert_eq!((answer.status(), answer.text("class")), ("cancelled", "caller"));
            assert_eq!(processes::of_lane(&lane_id), Vec::<i32>::new());
            assert_eq!(world.on_branch(&answer, "begun.txt").as_deref(), Some("begun"), "what it left is saved");
        },
    );
}

#[test]
fn lane_run_inside_codexs_sandbox_is_refused() {
    let Some(world) = World::new(Cli::Codex, Script::new([Step::Say(DONE.into())])) else { return };
    let brief = world.bed.brief("Goal: x\n");
    let directory = world.repository.path();
    let mut command = world.bed.command(Cli::Codex.find().unwrap(), directory);
    command.args(["sandbox", "-P", ":workspace", "-C", path_text(directory), "--"]);
    command.arg(support::lane_program()).args(["run", "--brief", path_text(&brief), "--cwd", path_text(directory)]);
    let output = command.output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!((output.status.code(), &answer["status"]), (Some(4), &Value::from("sandboxed_caller")), "{output:?}");
    assert!(answer["hint"].as_str().is_some_and(|hint| !hint.is_empty()));
}

#[test]
fn doctor_finds_the_real_ones() {
    for_each_cli(Script::default, |world| {
        let answer = world.bed.lane(&["doctor"]);
        let version = if world.cli == Cli::Codex { "0." } else { "2." };
        assert!(answer.stdout.contains(world.cli.provider()) || answer.stdout.contains(world.cli.name()));
        assert!(answer.stdout.contains(version), "{}", answer.stdout);
    });
}

/// The real programs without Lane, on the command lines of `docs/providers/`.
mod without_lane {
    use super::*;

    fn codex(bed: &TestBed, server: &LoopbackServer, program: &Path, model: &str) -> Command {
        let provider = format!(
            "model_providers.lane={{name=\"lane\",base_url=\"{}\",wire_api=\"responses\",env_key=\"CODEX_API_KEY\",\
             request_max_retries=1,stream_max_retries=2,supports_websockets=false}}",
            server.openai_base_url()
        );
        let git_dir = bed.path().join("project/.git");
        let mut command = bed.command(program, &bed.path().join("project"));
        command.args(["exec", "-C", path_text(&bed.path().join("project")), "-s", "workspace-write"]);
        command.args(["--add-dir", path_text(&git_dir), "--json", "--skip-git-repo-check", "--ignore-user-config"]);
        for feature in
            ["plugins", "apps", "remote_plugin", "plugin_sharing", "multi_agent", "unbounded_connection_retries"]
        {
            command.args(["--disable", feature]);
        }
        for setting in ["analytics.enabled=false", "check_for_update_on_startup=false", "web_search=\"disabled\""] {
            command.args(["-c", setting]);
        }
        command.args(["-c", "model_provider=\"lane\"", "-c", &provider, "-m", model, "-"]);
        let temp = bed.path().join("tmp");
        fs::create_dir_all(&temp).unwrap();
        command.env("TMPDIR", temp).env("CODEX_HOME", bed.codex_home());
        command
    }

    fn claude(bed: &TestBed, server: &LoopbackServer, program: &Path) -> Command {
        let mut command = bed.command(program, &bed.path().join("project"));
        command.args([
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--model",
            CLAUDE_MODEL,
            "--effort",
            "high",
        ]);
        command.args(["--setting-sources", "", "--strict-mcp-config", "--disable-slash-commands"]);
        command.args(["--permission-mode", "dontAsk", "--permission-prompts", "none"]);
        command.args(["--tools", "Read,Edit,Write,Grep,Glob,Bash", "--allowedTools", "Read", "Edit(./**)", "Bash"]);
        let temp = bed.path().join("tmp");
        fs::create_dir_all(&temp).unwrap();
        command.env("TMPDIR", temp).env("CLAUDE_CONFIG_DIR", bed.home().join(".claude"));
        command.env("ANTHROPIC_BASE_URL", server.claude_base_url()).env("CLAUDE_CODE_MAX_RETRIES", "2");
        for name in
            ["DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS"]
        {
            command.env(name, "1");
        }
        command
    }

    /// Runs the real program with every login of both kinds taken away but the dummies.
    fn run(
        cli: Cli,
        script: Script,
        model: &str,
        subscription: bool,
    ) -> Option<(i32, Vec<Value>, TestBed, LoopbackServer)> {
        let program = cli.found_or_skip()?;
        let server = LoopbackServer::start(script).unwrap();
        let mut bed = TestBed::new();
        if subscription {
            bed.unset("ANTHROPIC_API_KEY");
            bed.set("CLAUDE_CODE_OAUTH_TOKEN", "dummy-subscription");
        }
        let project = bed.repository("project");
        project.write(task::FILE, task::BEFORE).write(task::PROTECTED.0, task::PROTECTED.1).commit("the demo's files");
        let brief = bed.brief("Make made.txt and commit it.\n");
        let mut command = match cli {
            Cli::Codex => codex(&bed, &server, &program, model),
            Cli::Claude => claude(&bed, &server, &program),
        };
        let output = command.stdin(File::open(brief).unwrap()).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let events = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Some((output.status.code().unwrap_or(-1), events, bed, server))
    }

    fn shown(events: &[Value]) -> String {
        events.iter().map(|event| format!("{event:.2000}\n")).collect()
    }

    fn edits_and_commits(cli: Cli, model: &str) {
        let Some((code, events, bed, server)) = run(cli, Script::work(&[EDIT], DONE), model, false) else { return };
        assert_eq!(code, 0, "{}", shown(&events));
        let project = Repository::at(&bed.path().join("project"), &bed.home());
        assert_eq!(project.git(&["show", "HEAD:made.txt"]), "hello", "{}", shown(&events));
        let seen = server.requests();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen[0].has_login && seen[0].prompt.contains("Make made.txt"), "{seen:?}");
        assert_eq!(seen[0].model.as_deref(), Some(model));
        assert!(seen[1].tool_outputs.join("").contains("worker: add made.txt"), "{seen:?}");
        assert!(shown(&events).contains("The file is there and committed."));
    }

    #[test]
    fn loopback_serves_the_real_codex() {
        for model in CODEX_MODELS.into_iter().chain(["a-model-of-our-own"]) {
            edits_and_commits(Cli::Codex, model);
        }
    }

    #[test]
    fn loopback_serves_the_real_claude() {
        edits_and_commits(Cli::Claude, CLAUDE_MODEL);
    }

    #[test]
    fn the_demos_script_is_carried_out_by_the_real_ones() {
        for (cli, model) in [(Cli::Codex, CODEX_MODELS[0]), (Cli::Claude, CLAUDE_MODEL)] {
            let Some((code, events, bed, _server)) = run(cli, Script::demo(), model, false) else { continue };
            assert_eq!(code, 0, "{}", shown(&events));
            let project = Repository::at(&bed.path().join("project"), &bed.home());
            assert_eq!(project.git(&["log", "-1", "--format=%s"]), task::COMMIT, "{}", shown(&events));
            assert_eq!(project.read(task::FILE), task::AFTER);
        }
    }

    #[test]
    fn loopback_fails_as_the_real_services_do() {
        let limit = || Script::new([Step::UsageLimit { resets_at: RESET }]);
        if let Some((code, events, bed, _server)) = run(Cli::Codex, limit(), CODEX_MODELS[0], false) {
            assert_eq!((code, &events.last().unwrap()["type"]), (1, &Value::from("turn.failed")), "{}", shown(&events));
            let rollouts = walkdir::WalkDir::new(bed.codex_home().join("sessions")).into_iter().flatten();
            let text: String = rollouts.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect();
            assert!(text.contains("usage_limit_exceeded") && text.contains(&format!("\"resets_at\":{RESET}")));
        }
        if let Some((code, events, _bed, _server)) = run(Cli::Claude, limit(), CLAUDE_MODEL, true) {
            let result = events.last().unwrap();
            assert_eq!((code, &result["api_error"]), (1, &Value::from("usage_limit_reached")), "{}", shown(&events));
            assert!(shown(&events).contains(&RESET.to_string()));
        }
        let cut = || Script::new([Step::Cut("half".into()), Step::Cut("half".into()), Step::Say(DONE.into())]);
        for (cli, model) in [(Cli::Codex, CODEX_MODELS[0]), (Cli::Claude, CLAUDE_MODEL)] {
            if let Some((code, events, ..)) = run(cli, Script::new([Step::LoginRefused]), model, false) {
                assert_eq!(code, 1, "{}", shown(&events));
                assert!(shown(&events).contains("401"), "{}", shown(&events));
            }
            if let Some((code, events, ..)) = run(cli, cut(), model, false) {
                assert_eq!(code, 0, "{}", shown(&events));
                assert!(shown(&events).contains("The file is there"));
            }
        }
    }
}
