//! The contract and its documents agree with the code: schema, exit codes, fields, settings, help.
//!
//! `LANE_UPDATE_SNAPSHOTS=1 cargo test --test contract` writes the generated documents anew.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use serde_json::Value;

use lane::cli::arguments::Arguments;
use lane::cli::exit;
use lane::domain::config::Settings;
use lane::domain::environment::{ALLOWED, LOGIN_NAMES, NEVER, env_name_refusal, sift};
use lane::domain::outcome::Outcome;
use lane::domain::plan::Plan;
use lane::domain::refusal::{Refusal, RefusalStatus};
use lane::domain::result::LaneEnd;
use lane::domain::time::Timestamp;
use lane::wire::answers::{
    Answer, CancelAnswer, CancelStatus, CleanAnswer, DoctorAnswer, Failed, LaneList, Lanes, Refused, RestoreAnswer,
    RunAnswer, RunStatus,
};
use lane::wire::lane_result::LaneResult;
use lane::wire::schema::json_schema;

/// Width of the help texts in the reference.
const HELP_WIDTH: usize = 96;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compares a generated document with the one that is checked in, or writes it when asked to.
#[expect(clippy::disallowed_methods, reason = "a test may look at how it was called, and never changes it")]
fn compare_snapshot(name: &str, generated: &str) {
    if std::env::var_os("LANE_UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::write(root().join(name), generated).unwrap();
    }
    assert!(
        read(name) == generated,
        "{name} is not what the code says; write it anew with LANE_UPDATE_SNAPSHOTS=1 cargo test --test contract"
    );
}

/// The rows of the tables under the heading `heading` (of the whole page if empty): their cells, code marks removed.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let mut inside = heading.is_empty();
    let mut rows = Vec::new();
    for line in page.lines() {
        if let Some(title) = line.strip_prefix('#') {
            inside = heading.is_empty() || title.trim_start_matches('#').trim() == heading;
        }
        let cells = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix(" |"));
        if let Some(cells) = cells.filter(|_| inside) {
            rows.push(cells.split(" | ").map(|cell| cell.trim().to_owned()).collect());
        }
    }
    rows
}

/// The text between the first pair of backticks.
fn code(cell: &str) -> Option<String> {
    cell.split('`').nth(1).map(str::to_owned)
}

/// The first column of the tables under a heading, where it is code.
fn names(page: &str, heading: &str) -> BTreeSet<String> {
    table(page, heading).iter().filter_map(|row| code(row.first()?)).collect()
}

fn set<const N: usize>(words: [&str; N]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

// --- The schema ---------------------------------------------------------------------------------

#[test]
fn the_schema_is_the_one_checked_in() {
    let generated = format!("{}\n", serde_json::to_string_pretty(&json_schema()).unwrap());
    compare_snapshot("docs/schema/answer.json", &generated);
}

/// Fails unless the text is exactly one line of JSON that the checked-in schema allows.
fn assert_line_is_valid(line: &str) {
    let schema: Value = serde_json::from_str(&read("docs/schema/answer.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).expect("the schema is a schema");
    let body = line.strip_suffix('\n').expect("a line feed at the end");
    assert!(!body.contains('\n'), "more than one line: {line}");
    let value: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("no JSON ({error}): {line}"));
    let faults: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
    assert!(faults.is_empty(), "{faults:?}\n{line}");
    assert_eq!(value.get("schema"), Some(&Value::from(1)), "{line}");
}

fn line(answer: &Answer) -> String {
    format!("{}\n", serde_json::to_string(answer).unwrap())
}

/// A plan as an older or the same Lane stored it.
fn plan() -> Plan {
    serde_json::from_value(serde_json::json!({
        "format": 1, "lane_id": "20261201-004854-fix-the-parser-beef", "created_at": "2026-12-01T00:48:54.000Z",
        "label": "first try", "profile": "implement", "provider": "openai", "model": "m", "effort": "high",
        "kind": "task", "sandbox": "workspace-write", "enforcement": "codex", "network": false, "checkout": "clone",
        "cwd": "/r", "repository": {
            "root": "/r", "common_dir": "/r/.git", "git_dir": "/r/.git", "object_format": "sha1",
            "base_commit": "0123456789012345678901234567890123456789", "base_revision": "HEAD"
        },
        "checkout_path": "/s/checkouts/l", "run_dir": "/s/runs/l", "max_time": 1000, "idle_time": 1000,
        "holdout_time": 1000, "grace": 1000, "holdout": ["true"], "protect": [], "add_dirs": [], "owned_paths": null,
        "program": "/bin/codex", "codex_home": null, "base_url": null, "env_names": [], "checkout_include": [],
        "setup": null, "setup_time": 1000, "caller": null, "session_id": null, "warnings": [], "queue": false
    }))
    .expect("a plan")
}

fn ended(outcome: Outcome) -> LaneResult {
    let error = (outcome != Outcome::Ok).then(|| "why".to_owned());
    LaneResult::new(&plan(), &LaneEnd::without_worker(&plan(), outcome, error, Timestamp::from_unix_ms(1)))
}

#[test]
fn each_kind_of_line_fits_the_schema() {
    let result = |outcome| Answer::Result(Box::new(ended(outcome)));
    let refused = |status| Answer::Refused(Refused::from(Refusal::new(status, "what", "the way on")));
    let lane_id = plan().lane_id;
    let mut answers = vec![
        Answer::Run(Box::new(RunAnswer::new(&plan(), RunStatus::Started))),
        Answer::Failed(Failed::new("cannot do it: because", "mend it")),
        Answer::Lanes(Lanes { schema: 1, lanes: vec![result(Outcome::Ok), refused(RefusalStatus::UnknownLane)] }),
        Answer::List(LaneList { schema: 1, status: Outcome::Ok, running: 1, queued: 0, max: 4, lanes: Vec::new() }),
        Answer::Cancel(CancelAnswer {
            schema: 1,
            lane_id: lane_id.clone(),
            status: CancelStatus::AlreadyEnded,
            outcome: Some(Outcome::Ok),
            next: "lane wait x".into(),
        }),
        Answer::Clean(CleanAnswer { schema: 1, status: Outcome::Ok, dry_run: true, cleaned: Vec::new() }),
        Answer::Restore(RestoreAnswer { schema: 1, status: Outcome::Ok, lane_id, path: "/s".into(), files: 2 }),
        Answer::Doctor(DoctorAnswer { schema: 1, status: Outcome::Ok, version: "0".into(), checks: Vec::new() }),
    ];
    answers.extend(Outcome::ALL.map(result));
    answers.extend(RefusalStatus::ALL.map(refused));
    for answer in &answers {
        assert_line_is_valid(&line(answer));
    }
}

#[test]
fn a_line_that_breaks_the_contract_does_not_fit_the_schema() {
    let schema = json_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let whole = serde_json::to_value(ended(Outcome::Timeout)).unwrap();
    assert!(validator.is_valid(&whole));
    for required in ["lane_id", "accepted", "marker", "warnings", "tokens", "run_dir"] {
        let mut cut = whole.clone();
        cut.as_object_mut().unwrap().remove(required);
        assert!(!validator.is_valid(&cut), "valid without {required}");
    }
    let mut unknown_word = whole;
    unknown_word["status"] = "fine".into();
    assert!(!validator.is_valid(&unknown_word));
}

// --- Exit codes ---------------------------------------------------------------------------------

#[test]
fn the_page_of_exit_codes_is_the_table_in_the_code() {
    let page = read("docs/exit-codes.md");
    let rows: BTreeMap<String, Vec<String>> =
        table(&page, "Outcomes").into_iter().filter_map(|row| Some((code(row.first()?)?, row))).collect();
    let word = |value: Value| value.as_str().map(str::to_owned);
    for outcome in Outcome::ALL {
        let row = rows.get(outcome.as_str()).unwrap_or_else(|| panic!("no row for {}", outcome.as_str()));
        let class = outcome.class().and_then(|class| word(serde_json::to_value(class).unwrap()));
        let retryable = match outcome {
            Outcome::Ok => "-",
            _ if outcome.retryable() => "yes",
            _ => "no",
        };
        let expected = [outcome.exit_code().to_string(), class.unwrap_or_else(|| "-".into()), retryable.into()];
        assert_eq!(row[1..4], expected, "{}", outcome.as_str());
        assert_eq!(exit::code(&Answer::Result(Box::new(ended(outcome)))), outcome.exit_code());
    }
    assert_eq!(rows.len(), Outcome::ALL.len(), "a row for an outcome that does not exist");
}

#[test]
fn the_page_of_exit_codes_knows_every_refusal() {
    let page = read("docs/exit-codes.md");
    let rows: BTreeMap<String, String> = table(&page, "Refusals")
        .into_iter()
        .filter_map(|row| Some((code(row.first()?)?, row.get(1)?.clone())))
        .collect();
    for status in RefusalStatus::ALL {
        assert_eq!(rows.get(status.as_str()), Some(&status.exit_code().to_string()), "{}", status.as_str());
    }
    assert_eq!(rows.len(), RefusalStatus::ALL.len(), "a row for a refusal that does not exist");
}

#[test]
fn every_exit_code_has_its_line() {
    let page = read("docs/exit-codes.md");
    let listed = names(&page, "Codes");
    let mut used: BTreeSet<String> = Outcome::ALL.iter().map(|outcome| outcome.exit_code().to_string()).collect();
    used.extend(RefusalStatus::ALL.iter().map(|status| status.exit_code().to_string()));
    used.extend([exit::STILL_RUNNING.to_string(), exit::NOT_ACCEPTED.to_string()]);
    assert_eq!(listed, used);
}

// --- Fields of the result -----------------------------------------------------------------------

/// Every field under a definition of the schema, with how it may be missing.
fn fields(schema: &Value, definition: &Value, prefix: &str, found: &mut BTreeMap<String, String>) {
    let Some(properties) = definition.get("properties").and_then(Value::as_object) else {
        return;
    };
    let required: BTreeSet<&str> = definition["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, property) in properties {
        let path = format!("{prefix}{name}");
        let presence = match (required.contains(name.as_str()), may_be_null(property)) {
            (false, _) => "absent",
            (true, true) => "null",
            (true, false) => "always",
        };
        found.insert(path.clone(), presence.to_owned());
        let item = property.get("items");
        let below = if item.is_some() { format!("{path}[].") } else { format!("{path}.") };
        for reference in references(item.unwrap_or(property)) {
            fields(schema, &schema["$defs"][reference], &below, found);
        }
    }
}

fn may_be_null(property: &Value) -> bool {
    let of_type = |value: &Value| match &value["type"] {
        Value::String(word) => word == "null",
        Value::Array(words) => words.iter().any(|word| word == "null"),
        _ => false,
    };
    of_type(property) || property["anyOf"].as_array().is_some_and(|any| any.iter().any(of_type))
}

fn references(property: &Value) -> Vec<&str> {
    let name = |value: &'_ Value| value["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")).map(str::len);
    let mut found = Vec::new();
    let mut candidates = vec![property];
    candidates.extend(property["anyOf"].as_array().into_iter().flatten());
    for candidate in candidates {
        if let (Some(length), Some(path)) = (name(candidate), candidate["$ref"].as_str()) {
            found.push(&path[path.len() - length..]);
        }
    }
    found
}

#[test]
fn every_field_of_the_result_has_its_row() {
    let schema = json_schema();
    let mut expected = BTreeMap::new();
    fields(&schema, &schema["$defs"]["LaneResult"], "", &mut expected);
    assert!(expected.len() > 50, "the schema was not understood: {expected:?}");
    let page = read("docs/result-fields.md");
    let documented: BTreeMap<String, String> =
        table(&page, "").into_iter().filter_map(|row| Some((code(row.first()?)?, row.get(1)?.clone()))).collect();
    assert_eq!(documented, expected);
}

// --- Settings and environment -------------------------------------------------------------------

/// The keys that a table of the configuration takes, as its own error message lists them.
fn keys_of(table: &str) -> BTreeSet<String> {
    let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
    let error = Settings::from_toml(&format!("{header}no_such_key = 1\n")).unwrap_err().to_string();
    let list = error.split("expected ").nth(1).unwrap_or_else(|| panic!("no list of keys: {error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_configuration_has_its_row() {
    let mut expected = BTreeSet::new();
    let mut open = vec![String::new()];
    while let Some(table) = open.pop() {
        for key in keys_of(&table) {
            let path = if table.is_empty() { key } else { format!("{table}.{key}") };
            // A key that takes a table answers with the keys in it.
            let is_table = Settings::from_toml(&format!("[{path}]\n")).is_ok();
            if is_table { open.push(path) } else { expected.insert(path).then_some(()).unwrap() }
        }
    }
    assert!(expected.len() > 10, "the configuration was not understood: {expected:?}");
    assert_eq!(names(&read("docs/configuration.md"), "Keys"), expected);
}

#[test]
fn the_example_of_the_configuration_holds_the_defaults() {
    let page = read("docs/configuration.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert_eq!(Settings::from_toml(example), Ok(Settings::default()));
}

/// Every word in the sources that looks like a variable of Lane's.
fn own_variables(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            own_variables(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let quoted = text.split('"').skip(1);
            let variable = |word: &&str| {
                word.strip_prefix("LANE_").is_some_and(|rest| {
                    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                })
            };
            found.extend(quoted.filter(variable).map(str::to_owned));
        }
    }
}

#[test]
fn every_variable_of_lanes_own_has_its_row() {
    let mut used = BTreeSet::new();
    own_variables(&root().join("src"), &mut used);
    assert!(used.contains("LANE_STATE"), "{used:?}");
    let page = read("docs/configuration.md");
    let mut documented = names(&page, "Variables");
    documented.extend(names(&page, "Variables for tests"));
    // `LANE_ID` is no setting: Lane sets it for the worker.
    documented.extend(set(["LANE_ID"]));
    let missing: Vec<&String> = used.difference(&documented).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
}

#[test]
fn the_page_of_the_environment_is_the_list_in_the_code() {
    let page = read("docs/environment.md");
    let mut passed = set(ALLOWED);
    passed.insert("LC_*".into());
    assert_eq!(names(&page, "What passes"), passed);
    assert_eq!(names(&page, "Logins"), set(LOGIN_NAMES));
    let mut never = set(NEVER);
    never.extend(set(["GIT_*", "CLAUDE_CODE_*"]));
    assert_eq!(names(&page, "What never passes"), never);
}

#[test]
fn what_the_page_says_of_the_environment_is_what_happens() {
    let page = read("docs/environment.md");
    let example = |name: &String| name.replace('*', "X");
    for name in names(&page, "What passes").iter().map(example) {
        assert_eq!(sift(&[(name.clone(), OsString::from("x"))], &[]).removed, Vec::<String>::new(), "{name}");
    }
    for name in names(&page, "What never passes").iter().map(example) {
        assert!(env_name_refusal(&name).is_some(), "{name}");
        let named = std::slice::from_ref(&name);
        assert_eq!(sift(&[(name.clone(), OsString::from("x"))], named).removed, named);
    }
}

// --- Help ---------------------------------------------------------------------------------------

fn reference() -> String {
    let mut lane = Arguments::command().term_width(HELP_WIDTH);
    lane.build();
    let mut text = "# Commands\n\nThis page is `--help` of every command; a test keeps it so.\n\n".to_owned();
    text.push_str(
        "Durations are written like `90s`, `45m` or `1h30m`. An id may be shortened to any beginning or end that \
         only one lane has.\nWhat each command prints: [answers](result-fields.md), [exit codes](exit-codes.md), \
         [schema](schema/answer.json).\n\n",
    );
    section(&mut text, &mut lane, "lane");
    let names: Vec<String> = lane.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for name in names {
        let verb = lane.find_subcommand_mut(&name).expect("a verb");
        section(&mut text, verb, &format!("lane {name}"));
    }
    text
}

fn section(text: &mut String, command: &mut Command, title: &str) {
    text.push_str(&format!("## {title}\n\n"));
    let aliases: Vec<String> = command.get_all_aliases().map(|alias| format!("`lane {alias}`")).collect();
    if !aliases.is_empty() {
        text.push_str(&format!("Also: {}.\n\n", aliases.join(", ")));
    }
    for argument in command.get_arguments() {
        for alias in argument.get_all_aliases().unwrap_or_default() {
            text.push_str(&format!("`--{alias}` means `--{}`.\n\n", argument.get_long().unwrap_or_default()));
        }
    }
    let help = command.clone().term_width(HELP_WIDTH).render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    text.push_str(&format!("```text\n{}\n```\n\n", lines.join("\n")));
}

#[test]
fn the_reference_is_the_help() {
    let text = format!("{}\n", reference().trim_end());
    compare_snapshot("docs/reference.md", &text);
}

#[test]
fn every_verb_says_what_it_does() {
    for verb in Arguments::command().get_subcommands() {
        assert!(verb.get_about().is_some(), "{}", verb.get_name());
        for argument in verb.get_arguments() {
            let name = argument.get_id();
            assert!(argument.get_help().is_some(), "{} {name}", verb.get_name());
        }
    }
}

// --- Pages --------------------------------------------------------------------------------------

fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

fn all_pages() -> Vec<PathBuf> {
    let mut found = vec![root().join("README.md"), root().join("CARD.md")];
    pages(&root().join("docs"), &mut found);
    found
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in all_pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let foreign = link.contains("://") || target.is_empty() || target.contains(char::is_whitespace);
            if !foreign && !page.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn every_flag_that_a_page_names_exists() {
    let mut lane = Arguments::command();
    lane.build();
    for page in all_pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let calls =
            text.lines().map(|line| line.trim_start_matches(['$', ' '])).filter(|line| line.starts_with("lane "));
        for call in calls {
            let mut words = call.split_whitespace().skip(1);
            let Some(verb) = words.next().filter(|verb| verb.bytes().all(|byte| byte.is_ascii_lowercase())) else {
                continue;
            };
            let command = lane.find_subcommand(verb).unwrap_or_else(|| panic!("{}: {call}", page.display()));
            for flag in words.filter_map(|word| word.strip_prefix("--")).filter(|flag| !flag.is_empty()) {
                let flag = flag.split('=').next().unwrap_or_default();
                let known = command.get_arguments().any(|argument| {
                    argument.get_long() == Some(flag)
                        || argument.get_all_aliases().is_some_and(|aliases| aliases.contains(&flag))
                });
                assert!(known, "{}: --{flag} in `{call}`", page.display());
            }
        }
    }
}

#[test]
fn every_dependency_has_its_row() {
    let page = read("docs/decisions/0003-dependencies.md");
    let cargo: toml::Table = toml::from_str(&read("Cargo.toml")).unwrap();
    let names_in = |table: &str| -> BTreeSet<String> {
        cargo
            .get(table)
            .and_then(toml::Value::as_table)
            .map(|table| table.keys().cloned().collect())
            .unwrap_or_default()
    };
    assert_eq!(names(&page, "In the binary"), names_in("dependencies"));
    assert_eq!(names(&page, "For tests"), names_in("dev-dependencies"));
}

#[test]
fn the_first_page_has_two_commands() {
    let readme = read("README.md");
    let first = readme.split("\n## ").next().unwrap();
    let blocks: Vec<&str> = first.split("```").skip(1).step_by(2).collect();
    let commands: Vec<&str> = blocks
        .iter()
        .flat_map(|block| block.lines().skip(1))
        .map(|line| line.split(" #").next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(commands, ["cargo run --release -- demo", "cargo test"]);
}

// --- The binary itself --------------------------------------------------------------------------

fn run(arguments: &[&str], state: &Path) -> (i32, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_lane"))
        .args(arguments)
        .env_clear()
        .env("HOME", state)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANE_STATE", state.join("state"))
        .output()
        .unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn what_the_binary_prints_fits_the_schema() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (&["schema"][..], 0),
        (&["status"], 0),
        (&["status", "nothing-like-this"], 2),
        (&["wait", "nothing-like-this", "nor-this"], 2),
        (&["clean", "--dry-run"], 0),
        (&["run"], 2),
        (&["run", "--task", "x", "--profile", "no-such-profile"], 2),
        (&["no-such-verb"], 2),
        (&["status", "--limit", "many"], 2),
        (&[], 2),
    ] {
        let (code, stdout) = run(arguments, home.path());
        assert_eq!(code, expected, "{arguments:?}: {stdout}");
        assert_line_is_valid(&stdout);
    }
}

#[test]
fn the_schema_that_is_printed_is_the_one_checked_in() {
    let home = tempfile::tempdir().unwrap();
    let (_, stdout) = run(&["schema"], home.path());
    let printed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(printed["json_schema"], json_schema());
}
