//! In a terminal: readable text for people, JSON for agents, and lanes that outlive it.

use std::process::Command;

use crate::basics::COMMITS;
use crate::support::{TestBed, lane_program, path_text, skip};

/// Runs a command line in a terminal of its own (made by `script`), which closes when it ends.
fn in_a_terminal(bed: &TestBed, arguments: &str, variables: &[(&str, &str)]) -> Option<String> {
    let present = Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success());
    if !present {
        skip("there is no `script` to make a terminal with", "LANE_REQUIRE_FAULTS");
        return None;
    }
    let line = format!("{} {arguments}", path_text(&lane_program()));
    let mut command = bed.command("script", &bed.path());
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).envs(variables.iter().copied()).env("SHELL", "/bin/sh");
    let output = command.output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).replace('\r', ""))
}

#[test]
fn people_read_text_and_agents_json() {
    let bed = TestBed::new();
    let Some(text) = in_a_terminal(&bed, "status", &[]) else { return };
    assert!(text.contains("0 of 4 slots taken"), "{text}");
    for variables in [[("CLAUDECODE", "1")], [("CODEX_THREAD_ID", "t")], [("AI_AGENT", "x")], [("LANE_JSON", "1")]] {
        let text = in_a_terminal(&bed, "status", &variables).unwrap();
        assert!(text.trim().starts_with("{\"schema\":1"), "{variables:?}: {text}");
    }
    assert!(in_a_terminal(&bed, "status --json", &[]).unwrap().trim().starts_with("{\"schema\":1"));
    assert!(in_a_terminal(&bed, "result nothing-like-it", &[]).unwrap().starts_with("refused (unknown_lane)"));
    let output = bed.lane_output(&bed.path(), &["status", "--no-json"]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("0 of 4 slots taken"));
}

#[test]
fn a_lane_outlives_the_terminal_that_it_was_called_in() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let brief = bed.brief(&COMMITS.replace("FAKE: sh", "FAKE: sleep-ms 300\nFAKE: sh"));
    let line =
        format!("run --json --profile implement --brief {} --cwd {}", path_text(&brief), path_text(repository.path()));
    let Some(text) = in_a_terminal(&bed, &line, &[]) else { return };
    let answer: serde_json::Value = serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let ended = bed.wait(answer["lane_id"].as_str().unwrap()).expect_code(0);
    assert_eq!(ended.status(), "ok", "{:#}", ended.json);
}
