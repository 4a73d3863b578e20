//! Every recorded stream of the real CLIs, and the end that Lane must read from it.
//!
//! The recordings lie under `tests/fixtures/`. One without a row in the table fails the tests.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are not seen as tests, and may fail like them"
)]

#[path = "streams/recording.rs"]
mod recording;
#[path = "streams/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::fs;

use lane::domain::outcome::Outcome::{self, *};
use lane::domain::state::StopReason;
use lane::domain::time::Timestamp;
use lane::domain::worker::{ProcessExit, ProviderName, Tokens, WorkerEvent};
use lane::provider::provider;
use proptest::prelude::*;
use recording::{Recording, decode_rollout, fixtures};
use table::{CLAUDE, CODEX};

fn codex(name: &str) -> Recording {
    let (_, expected) = CODEX.iter().find(|(row, _)| *row == name).unwrap();
    Recording::load(ProviderName::Openai, name, *expected)
}

fn claude(name: &str) -> Recording {
    let (_, expected) = CLAUDE.iter().find(|(row, _)| *row == name).unwrap();
    Recording::load(ProviderName::Claude, name, *expected)
}

fn assert_table(provider: ProviderName, table: &[(&str, Outcome)]) {
    let wrong: Vec<String> = table
        .iter()
        .filter_map(|(name, expected)| {
            let recording = Recording::load(provider, name, *expected);
            assert_eq!(recording.skimmed(), recording.stream().0, "{name}: passing over lines changes the summary");
            let got = recording.classify();
            (got.outcome != *expected).then(|| format!("{name}: {:?}, not {expected:?} ({:?})", got.outcome, got.error))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_codex_stream_has_its_outcome() {
    assert_table(ProviderName::Openai, CODEX);
}

#[test]
fn every_claude_stream_has_its_outcome() {
    assert_table(ProviderName::Claude, CLAUDE);
}

#[test]
fn no_recording_is_without_a_row() {
    let mut recorded = BTreeSet::new();
    for folder in ["exec", "provider", "signals", "resume"] {
        for entry in fs::read_dir(fixtures(ProviderName::Openai).join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            recorded.extend(name.strip_suffix(".stdout.jsonl").map(|name| format!("{folder}/{name}")));
        }
    }
    assert_eq!(recorded, CODEX.iter().map(|(name, _)| (*name).to_owned()).collect());
    let entries = fs::read_dir(fixtures(ProviderName::Claude)).unwrap();
    let recorded: BTreeSet<String> = entries
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".meta.json").map(str::to_owned)
        })
        .collect();
    assert_eq!(recorded, CLAUDE.iter().map(|(name, _)| (*name).to_owned()).collect());
}

#[test]
fn ends_that_are_not_ok_say_why() {
    for (table, name) in [(CODEX, ProviderName::Openai), (CLAUDE, ProviderName::Claude)] {
        for (row, expected) in table.iter().filter(|(_, expected)| *expected != Ok) {
            let recording = Recording::load(name, row, *expected);
            if recording.stopped.is_none() {
                let error = recording.classify().error.unwrap_or_default();
                assert!(!error.trim().is_empty(), "{row}");
            }
        }
    }
}

#[test]
fn commands_that_begin_also_end() {
    for (table, name) in [(CODEX, ProviderName::Openai), (CLAUDE, ProviderName::Claude)] {
        for (row, expected) in table {
            let recording = Recording::load(name, row, *expected);
            let (_, events) = recording.stream();
            let mut open = BTreeSet::new();
            for event in &events {
                match event {
                    WorkerEvent::CommandStarted { call_id, .. } => assert!(open.insert(call_id.clone()), "{row}"),
                    WorkerEvent::CommandEnded { call_id, .. } => assert!(open.remove(call_id), "{row}"),
                    _ => {}
                }
            }
            let ended = events.iter().any(|event| matches!(event, WorkerEvent::TurnEnded { .. }));
            assert!(open.is_empty() || !ended, "{row}: {open:?}");
        }
    }
}

#[test]
fn codex_tells_session_model_effort_tokens_and_report() {
    let got = codex("exec/slim_flags").classify();
    assert_eq!(got.model_verified.as_deref(), Some("mock-model"));
    assert_eq!(got.effort_recorded.as_deref(), Some("high"));
    assert_eq!(got.report.as_deref(), Some("All done."));
    assert_eq!(got.session_id.as_deref().map(str::len), Some(36));
    let tokens = Tokens { input: 200, cached_input: 1000, cache_write_input: 0, output: 34, reasoning: 10 };
    assert_eq!((got.tokens, got.cost_usd), (Some(tokens), None));
}

#[test]
fn a_codex_turn_without_an_end_still_tells_its_tokens() {
    let recording = codex("signals/sigkill_in_command");
    assert_eq!(recording.stream().0.tokens, None);
    assert_eq!(recording.classify().tokens.unwrap().output, 34);
}

#[test]
fn a_resumed_codex_thread_counts_this_turn_alone() {
    let recording = codex("resume/real_second_turn");
    let (stream, _) = recording.stream();
    assert_eq!(stream.tokens.unwrap().output, 68);
    assert_eq!(recording.classify().tokens.unwrap().output, 34);
    assert_eq!(recording.rollout().unwrap().thread_tokens, stream.tokens);
}

#[test]
fn tokens_that_no_server_told_are_not_known() {
    assert_eq!(codex("exec/nousage").classify().tokens, None);
    assert_eq!(claude("key_e401").classify().tokens, None);
    assert_eq!(claude("key_e401").classify().cost_usd, None);
}

#[test]
fn codex_retries_after_the_window_that_is_used_up() {
    let at = Some(Timestamp::from_unix_s(1_893_456_000));
    assert_eq!(codex("exec/e429_usage").classify().retry_at, at);
    assert_eq!(codex("provider/x_e429_active").classify().retry_at, at);
    assert_eq!(codex("exec/e429_usage_noreset").classify().retry_at, None);
    // No window is used up there: the time in the text has no zone and is not guessed at.
    assert_eq!(codex("exec/e429_plan_pro").classify().retry_at, None);
    assert_eq!(codex("exec/e503").classify().retry_at, None);
}

#[test]
fn codex_limits_are_read() {
    let limits = codex("exec/ratelimit").rollout().unwrap().limits.unwrap();
    let window = limits.primary.unwrap();
    assert_eq!((window.used_percent, window.window_minutes), (43.5, Some(300)));
    assert_eq!(limits.limit_name.as_deref(), Some("codex-main"));
    assert_eq!(codex("exec/plain").rollout().unwrap().limits, None);
}

#[test]
fn a_stale_last_message_is_no_report() {
    let recording = codex("signals/sigkill_in_command");
    assert_eq!(recording.last_message.as_deref(), Some("stale"));
    assert_eq!(recording.classify().report, None);
}

#[test]
fn refused_logins_show_as_waiting_and_other_waits_do_not() {
    for (recording, expected) in [
        (codex("exec/e401"), true),
        (codex("exec/e429_rate"), false),
        (codex("provider/down"), false),
        (claude("e401"), true),
        (claude("e529ok"), false),
    ] {
        let (_, events) = recording.stream();
        let waits: Vec<bool> = events
            .iter()
            .filter_map(|event| match event {
                WorkerEvent::Waiting { authentication, .. } => Some(*authentication),
                _ => None,
            })
            .collect();
        assert!(waits.len() > 1 && waits.iter().all(|wait| *wait == expected), "{waits:?}");
    }
}

#[test]
fn nothing_passes_for_a_login_between_refusals() {
    for recording in [codex("exec/e401"), claude("e401"), claude("tok_e401"), claude("key_e401")] {
        let (_, events) = recording.stream();
        let first = events.iter().position(|event| matches!(event, WorkerEvent::Waiting { .. })).unwrap();
        for event in &events[first..] {
            let fits = matches!(event, WorkerEvent::Waiting { .. } | WorkerEvent::TurnEnded { clean: false, .. });
            assert!(fits, "{event:?}");
        }
    }
}

#[test]
fn a_broken_sandbox_is_never_ok() {
    let got = codex("exec/bwrap_unavailable").classify();
    assert_eq!(got.report.as_deref(), Some("final answer"));
    assert!(got.error.unwrap().contains("bwrap: Creating new namespace failed"));
}

#[test]
fn claude_tells_session_model_tokens_cost_and_report() {
    let got = claude("lead").classify();
    assert_eq!(got.session_id.as_deref(), Some("0c3d6d29-f9de-451a-89fe-4447f6eb5615"));
    assert_eq!(got.model_verified.as_deref(), Some("claude-opus-5-5"));
    let tokens = Tokens { input: 500, cached_input: 15_000, cache_write_input: 100, output: 250, reasoning: 0 };
    assert_eq!(got.tokens, Some(tokens));
    assert_eq!(got.cost_usd, Some(0.010_499_999_999_999_999));
    assert_eq!(got.report.as_deref(), Some("All workers done."));
}

#[test]
fn a_claude_report_is_the_whole_last_message() {
    assert_eq!(claude("twotext").classify().report.as_deref(), Some("First half. Second half."));
    assert_eq!(claude("schema_ok").classify().report.as_deref(), Some("{\"ok\":true}"));
    assert_eq!(claude("bgshort").classify().report.as_deref(), Some("after background finished"));
    assert_eq!(claude("agent").classify().report.as_deref(), Some("parent done"));
    assert_eq!(claude("empty").classify().report, None);
}

#[test]
fn a_claude_limit_tells_when_it_ends() {
    assert_eq!(claude("cred_e429unified").classify().retry_at, Some(Timestamp::from_unix_s(1_796_090_000)));
    assert_eq!(claude("rl_7dreject").classify().retry_at, Some(Timestamp::from_unix_s(1_796_500_000)));
    assert_eq!(claude("e400").classify().retry_at, None);
    let (_, events) = claude("rl_overage").stream();
    let rejected = events.iter().any(|event| matches!(event, WorkerEvent::RateLimit { rejected: true, .. }));
    assert!(!rejected, "paid overage is no stop");
}

#[test]
fn denied_tools_are_named_once_each() {
    let got = claude("deny").classify();
    assert_eq!(got.permission_denials, ["Write", "Bash"]);
    assert!(got.warnings.iter().any(|warning| warning.contains("2 tool calls")), "{:?}", got.warnings);
}

#[test]
fn commands_and_edits_of_claude_are_seen() {
    let (_, events) = claude("autobg_dis").stream();
    let ended = events.iter().find(|event| matches!(event, WorkerEvent::CommandEnded { .. }));
    assert!(matches!(ended, Some(WorkerEvent::CommandEnded { exit_code: Some(143), .. })), "{ended:?}");
    let (_, events) = claude("write").stream();
    let edits = events.iter().filter(|event| matches!(event, WorkerEvent::FilesEdited { .. })).count();
    assert_eq!(edits, 2);
}

#[test]
fn a_worker_that_lane_stopped_ends_as_lane_says() {
    for recording in [codex("exec/plain"), claude("plain"), codex("exec/e429_usage")] {
        for (reason, expected) in [
            (StopReason::Timeout, Timeout),
            (StopReason::Stalled, Stalled),
            (StopReason::Cancelled, Cancelled),
            (StopReason::Auth, Auth),
            (StopReason::MachineRestarted, Lost),
        ] {
            let recording = Recording { stopped: Some(reason), ..recording.clone() };
            assert_eq!(recording.classify().outcome, expected);
        }
    }
}

#[test]
fn an_end_that_nobody_saw_is_ok_only_with_a_clean_end_and_a_report() {
    for (recording, expected) in [
        (codex("exec/plain"), Ok),
        (claude("plain"), Ok),
        (codex("exec/empty"), NoReport),
        (claude("empty"), NoReport),
        (codex("signals/sigkill_in_command"), Lost),
        (claude("sigkill"), Lost),
        (codex("exec/e401"), Auth),
        (claude("cred_e429unified"), Capped),
    ] {
        let got = Recording { exit: ProcessExit::Unknown, ..recording.clone() }.classify();
        assert_eq!(got.outcome, expected);
        let warned = got.warnings.iter().any(|warning| warning.contains("exit status is not known"));
        assert_eq!(warned, expected == Ok);
    }
}

#[test]
fn exit_codes_do_not_hide_what_the_stream_says() {
    for (recording, code, expected) in [
        (codex("exec/e429_usage"), 0, Capped),
        (claude("e403"), 0, Auth),
        (claude("maxturns"), 0, WorkerError),
        (codex("exec/plain"), 1, WorkerError),
        (claude("plain"), 1, WorkerError),
        (codex("exec/plain"), 101, WorkerError),
        (codex("signals/sigkill_in_command"), 101, WorkerError),
        (codex("resume/bad_uuid"), 2, Error),
        (codex("signals/sigkill_in_command"), 0, NoReport),
        (claude("sigkill"), 0, NoReport),
    ] {
        let got = Recording { exit: ProcessExit::Code(code), ..recording.clone() }.classify();
        assert_eq!(got.outcome, expected, "{code} {:?}", got.error);
    }
    assert_eq!(codex("exec/plain").classify().report.as_deref(), Some("All done."));
    let late = Recording { exit: ProcessExit::Code(1), ..codex("exec/plain") }.classify();
    assert_eq!(late.report.as_deref(), Some("All done."), "the worker's account is kept");
}

#[test]
fn success_with_an_error_inside_is_not_ok() {
    let run = |name: ProviderName, lines: &str| Recording {
        provider: name,
        stream: lines.as_bytes().to_vec(),
        rollout: None,
        last_message: None,
        stderr: String::new(),
        exit: ProcessExit::Code(0),
        stopped: None,
    };
    let limit = r#"{"type":"turn.failed","error":{"message":"You\u2019ve hit your usage limit. Try again later."}}"#;
    for (name, lines, expected) in [
        (ProviderName::Openai, limit, Capped),
        (ProviderName::Claude, r#"{"type":"result","subtype":"success","is_error":false,"result":""}"#, NoReport),
        (ProviderName::Claude, r#"{"type":"result","subtype":"success","is_error":true,"result":"no"}"#, WorkerError),
        (ProviderName::Claude, r#"{"type":"assistant","message":{"id":"m","content":[{"type":"te"#, NoReport),
        (ProviderName::Openai, r#"{"type":"thread.started","thread_id":"t"}"#, NoReport),
        (ProviderName::Openai, "", NoReport),
    ] {
        assert_eq!(run(name, lines).classify().outcome, expected, "{lines}");
    }
    let done = concat!(
        r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"STATUS: DONE"}}"#,
        "\n",
        r#"{"type":"turn.completed","usage":null}"#,
    );
    assert_eq!(run(ProviderName::Openai, done).classify().outcome, Ok);
    let empty_file = Recording { last_message: Some(" \n".into()), ..run(ProviderName::Openai, done) };
    assert_eq!(empty_file.classify().outcome, NoReport);
}

#[test]
fn a_stream_that_is_cut_in_its_last_line_has_no_report() {
    for mut recording in [codex("exec/plain"), claude("plain")] {
        recording.stream.truncate(recording.stream.len() - 40);
        recording.rollout = None;
        recording.last_message = None;
        let got = recording.classify();
        assert_eq!(got.outcome, NoReport);
        assert!(got.warnings.iter().any(|warning| warning.contains("could not be read")), "{:?}", got.warnings);
    }
}

#[test]
fn a_line_of_many_megabytes_is_read() {
    let output = "x".repeat(20 << 20);
    let line = format!(
        r#"{{"type":"item.completed","item":{{"id":"item_1","type":"command_execution","command":"c","aggregated_output":"{output}","exit_code":0,"status":"completed"}}}}"#
    );
    let mut decoder = provider(ProviderName::Openai).decoder();
    assert_eq!(decoder.line(line.as_bytes()).len(), 2);
    let line = format!(r#"{{"type":"item.completed","item":{{"id":"i","type":"agent_message","text":"{output}"}}}}"#);
    decoder.line(line.as_bytes());
    assert!(decoder.summary().final_text.as_ref().unwrap().len() <= 4 << 20);
    let mut decoder = provider(ProviderName::Claude).decoder();
    let line = format!(
        r#"{{"type":"assistant","message":{{"id":"m","content":[{{"type":"text","text":"{output}"}}]}},"session_id":"s"}}"#
    );
    decoder.line(line.as_bytes());
    decoder.line(line.as_bytes());
    assert!(decoder.summary().final_text.as_ref().unwrap().len() <= 4 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Whatever bytes come, they are read or counted.
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for name in [ProviderName::Openai, ProviderName::Claude] {
            let mut decoder = provider(name).decoder();
            bytes.split(|byte| *byte == b'\n').for_each(|line| { decoder.line(line); });
        }
        decode_rollout(&bytes);
    }

    /// A stream that is cut or damaged anywhere never panics, and never turns a failure into `ok`
    /// while its exit code says otherwise.
    #[test]
    fn a_damaged_stream_is_answered(
        row in 0..CODEX.len() + CLAUDE.len(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut recording = match row.checked_sub(CODEX.len()) {
            None => codex(CODEX[row].0),
            Some(row) => claude(CLAUDE[row].0),
        };
        let failed = recording.exit != ProcessExit::Code(0) || recording.stopped.is_some();
        for bytes in [Some(&mut recording.stream), recording.rollout.as_mut()].into_iter().flatten() {
            if bytes.is_empty() {
                continue;
            }
            for (at, bit) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        let got = recording.classify();
        prop_assert!(!failed || got.outcome != Ok);
        prop_assert!(got.report.is_some() || got.outcome != Ok);
    }
}
