//! A recorded run, and what Lane reads from it.

use std::fs;
use std::path::{Path, PathBuf};

use lane::domain::outcome::Outcome::{self, *};
use lane::domain::plan::{PLAN_FORMAT, Plan};
use lane::domain::state::StopReason;
use lane::domain::time::{Millis, Timestamp};
use lane::domain::worker::{
    CheckoutMode, Effort, Enforcement, Kind, ProcessExit, ProviderName, SandboxMode, WorkerEvent,
};
use lane::provider::codex::rollout::{RolloutDecoder, RolloutSummary};
use lane::provider::{Classification, Evidence, StreamSummary, provider};

/// The folder with the recordings of a provider.
pub fn fixtures(provider: ProviderName) -> PathBuf {
    let folder = match provider {
        ProviderName::Openai => "codex",
        ProviderName::Claude => "claude/stream",
        ProviderName::Demo => unreachable!("the scripted worker has no recordings"),
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
}

pub fn plan(provider: ProviderName, model: &str) -> Plan {
    Plan {
        format: PLAN_FORMAT,
        lane_id: "20261201-004854-test-beef".parse().unwrap(),
        created_at: Timestamp::from_unix_s(1_796_000_000),
        label: None,
        profile: "implement".into(),
        provider,
        model: model.into(),
        effort: Effort::High,
        kind: Kind::Task,
        sandbox: SandboxMode::WorkspaceWrite,
        enforcement: Enforcement::Codex,
        network: false,
        checkout: CheckoutMode::Clone,
        cwd: "/repo".into(),
        repository: None,
        checkout_path: "/lanes/L1/wt".into(),
        run_dir: "/run/L1".into(),
        max_time: Millis::from_secs(2700),
        idle_time: Millis::from_secs(900),
        holdout_time: Millis::from_secs(600),
        grace: Millis::from_secs(10),
        holdout: vec![],
        protect: vec![],
        add_dirs: vec![],
        owned_paths: None,
        program: "/usr/bin/worker".into(),
        codex_home: Some("/home/user/.codex".into()),
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

/// One recorded run.
#[derive(Clone)]
pub struct Recording {
    pub provider: ProviderName,
    pub stream: Vec<u8>,
    pub rollout: Option<Vec<u8>>,
    pub last_message: Option<String>,
    pub stderr: String,
    pub exit: ProcessExit,
    pub stopped: Option<StopReason>,
}

impl Recording {
    pub fn load(provider: ProviderName, name: &str, expected: Outcome) -> Self {
        let folder = fixtures(provider);
        let file = |suffix: &str| fs::read(folder.join(format!("{name}.{suffix}"))).ok();
        let text = |suffix: &str| file(suffix).map(|bytes| String::from_utf8(bytes).unwrap());
        let code = match provider {
            ProviderName::Openai => text("rc").unwrap().trim().parse().ok(),
            _ => serde_json::from_str::<serde_json::Value>(&text("meta.json").unwrap()).unwrap()["rc"].as_i64(),
        };
        let cut_off = matches!(code, None | Some(124));
        Self {
            provider,
            stream: file("stdout.jsonl").or_else(|| file("jsonl")).or_else(|| file("stdout.txt")).unwrap(),
            rollout: file("rollout.jsonl"),
            last_message: text("last.txt"),
            stderr: text("stderr.txt").unwrap_or_default(),
            exit: exit(provider, code),
            stopped: cut_off.then(|| stop_reason(name, expected)),
        }
    }

    pub fn stream(&self) -> (StreamSummary, Vec<WorkerEvent>) {
        let mut decoder = provider(self.provider).decoder();
        let events = self.stream.split(|byte| *byte == b'\n').flat_map(|line| decoder.line(line)).collect();
        (decoder.summary().clone(), events)
    }

    /// The summary when lines may be passed over.
    pub fn skimmed(&self) -> StreamSummary {
        let mut decoder = provider(self.provider).decoder();
        self.stream.split(|byte| *byte == b'\n').for_each(|line| decoder.skim(line));
        decoder.summary().clone()
    }

    pub fn rollout(&self) -> Option<RolloutSummary> {
        self.rollout.as_ref().map(|bytes| decode_rollout(bytes))
    }

    pub fn classify(&self) -> Classification {
        let (stream, _) = self.stream();
        let rollout = self.rollout();
        let plan = plan(
            self.provider,
            match self.provider {
                ProviderName::Openai => "mock-model",
                _ => "claude-opus-5-5",
            },
        );
        provider(self.provider).classify(&Evidence {
            plan: &plan,
            exit: self.exit,
            stopped: self.stopped,
            stream: &stream,
            rollout: rollout.as_ref(),
            last_message: self.last_message.as_deref(),
            stderr_tail: &self.stderr,
        })
    }
}

/// A shell reports a signal as 128 and its number, the Claude recorder as a negative code.
fn exit(provider: ProviderName, code: Option<i64>) -> ProcessExit {
    match (provider, code) {
        (_, None | Some(124)) => ProcessExit::Signal(9),
        (ProviderName::Openai, Some(code @ 129..)) => ProcessExit::Signal(code as i32 - 128),
        (_, Some(code @ ..0)) => ProcessExit::Signal(-code as i32),
        (_, Some(code)) => ProcessExit::Code(code as i32),
    }
}

/// Which limit of Lane's would have stopped what the recorder cut off.
fn stop_reason(name: &str, expected: Outcome) -> StopReason {
    match expected {
        Timeout => StopReason::Timeout,
        Stalled => StopReason::Stalled,
        Auth => StopReason::Auth,
        other => panic!("{name} was cut off by its recorder and cannot end as {other:?}"),
    }
}

pub fn decode_rollout(bytes: &[u8]) -> RolloutSummary {
    let mut decoder = RolloutDecoder::default();
    bytes.split(|byte| *byte == b'\n').for_each(|line| decoder.line(line));
    decoder.summary().clone()
}
