//! The ledger on a real disk: transitions, admission, search, damage, many writers, many lanes.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail at once")]

#[path = "ledger_adapter/cost.rs"]
mod cost;
#[path = "ledger_adapter/faults.rs"]
mod faults;
#[path = "ledger_adapter/property.rs"]
mod property;

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};

use lane::app::ports::{Counts, LaneFilter, Ledger, PortError, PortErrorKind};
use lane::domain::admission::Verdict;
use lane::domain::ids::{LaneId, ProcessIdentity};
use lane::domain::outcome::Outcome;
use lane::domain::plan::{PLAN_FORMAT, Plan, RepositoryPlan};
use lane::domain::result::LaneEnd;
use lane::domain::state::{LaneEvent, State, WorkerEnd};
use lane::domain::time::{Millis, Timestamp};
use lane::domain::worker::{CheckoutMode, Effort, Enforcement, Kind, ProcessExit, ProviderName, SandboxMode};
use lane::infra::ledger::SqliteLedger;
use tempfile::TempDir;

const START_MS: i64 = 1_796_086_134_000;

fn at(offset_ms: i64) -> Timestamp {
    Timestamp::from_unix_ms(START_MS + offset_ms)
}

/// A plan of a lane with a checkout of its own; `number` makes its id.
fn plan(number: u32) -> Plan {
    let lane_id: LaneId = format!("20261201-004854-job-{number}-{:04x}", number % 0x1_0000).parse().unwrap();
    Plan {
        format: PLAN_FORMAT,
        created_at: at(i64::from(number)),
        label: None,
        profile: "implement".into(),
        provider: ProviderName::Openai,
        model: "model".into(),
        effort: Effort::High,
        kind: Kind::Task,
        sandbox: SandboxMode::WorkspaceWrite,
        enforcement: Enforcement::Codex,
        network: false,
        checkout: CheckoutMode::Clone,
        cwd: "/repository".into(),
        repository: Some(RepositoryPlan {
            root: "/repository".into(),
            common_dir: "/repository/.git".into(),
            git_dir: "/repository/.git".into(),
            object_format: "sha1".into(),
            base_commit: "0123456789012345678901234567890123456789".parse().unwrap(),
            base_revision: "HEAD".into(),
        }),
        checkout_path: PathBuf::from("/state/checkouts").join(lane_id.as_str()),
        run_dir: PathBuf::from("/state/runs").join(lane_id.as_str()),
        max_time: Millis(1000),
        idle_time: Millis(1000),
        holdout_time: Millis(1000),
        grace: Millis(1000),
        holdout: vec!["make test".into()],
        protect: Vec::new(),
        add_dirs: Vec::new(),
        owned_paths: Some(vec!["src/".into()]),
        program: "/usr/bin/codex".into(),
        codex_home: Some("/home/someone/.codex".into()),
        base_url: None,
        env_names: Vec::new(),
        removed_variables: Vec::new(),
        checkout_include: Vec::new(),
        setup: None,
        setup_time: Millis(1000),
        caller: None,
        session_id: None,
        warnings: Vec::new(),
        queue: false,
        lane_id,
    }
}

fn writing(number: u32, paths: &[&str]) -> Plan {
    Plan { add_dirs: paths.iter().map(PathBuf::from).collect(), ..plan(number) }
}

fn ended(plan: &Plan, outcome: Outcome, now: Timestamp) -> LaneEvent {
    LaneEvent::Ended { end: Box::new(LaneEnd::without_worker(plan, outcome, None, now)) }
}

fn ledger(folder: &TempDir) -> SqliteLedger {
    SqliteLedger::open(folder.path()).unwrap()
}

fn raw(folder: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(folder.join("lane.db")).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    connection
}

fn assert_sound(ledger: &SqliteLedger, events: u64) {
    let report = ledger.check().unwrap();
    assert_eq!((report.events, report.broken_at, report.projection_differs), (events, None, vec![]));
}

fn assert_kind(error: &PortError, kind: PortErrorKind) {
    assert_eq!(error.kind, kind, "{error}");
    assert!(!error.message.contains("locked"), "{error}");
}

#[test]
fn files_are_private_and_opening_again_changes_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let state = folder.path().join("a/state");
    let ledger = SqliteLedger::open(&state).unwrap();
    ledger.admit(&plan(1), false, 4, at(0)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for name in ["lane.db", "lane.db-wal", "lane.db-shm", "lane.db.lock"] {
        assert_eq!(mode(&state.join(name)), 0o600, "{name}");
    }
    drop(ledger);
    assert!(state.join("lane.db-wal").exists(), "closing makes no checkpoint");
    let schema_version = || -> i64 { raw(&state).query_row("PRAGMA schema_version", [], |row| row.get(0)).unwrap() };
    let before = schema_version();
    let again = SqliteLedger::open(&state).unwrap();
    assert_eq!(again.counts().unwrap(), Counts { running: 1, queued: 0 });
    assert_eq!(schema_version(), before);
}

#[test]
fn a_whole_life_is_kept_in_rows_and_events() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let plan = plan(1);
    let id = &plan.lane_id;
    let keeper = ProcessIdentity { pid: 7, start_ticks: 9, boot_id: "boot".into() };
    let worker = WorkerEnd { exit: ProcessExit::Code(0), ran_for: Millis(20), stopped: None };
    assert_eq!(ledger.admit(&plan, false, 4, at(0)).unwrap(), Verdict::Admit);
    ledger.append(id, &LaneEvent::PrepareStarted, at(1)).unwrap();
    ledger.append(id, &LaneEvent::WorkerStarted { keeper }, at(2)).unwrap();
    ledger.append(id, &LaneEvent::CancelRequested, at(3)).unwrap();
    let state = ledger.append(id, &LaneEvent::WorkerEnded { worker: worker.clone() }, at(4)).unwrap();
    let expected = State::Proving { since: at(4), waited: Millis(0), prepared_in: Millis(1), worker, cancelled: true };
    assert_eq!(state, expected);
    assert_eq!(ledger.live().unwrap().len(), 1);
    ledger.append(id, &ended(&plan, Outcome::Cancelled, at(5)), at(5)).unwrap();
    let row = ledger.lane(id).unwrap().unwrap();
    assert_eq!(row.state, State::Ended { at: at(5), outcome: Outcome::Cancelled });
    assert_eq!((&row.plan, row.last_event_at), (&plan, at(5)));
    assert_eq!(row.end, Some(LaneEnd::without_worker(&plan, Outcome::Cancelled, None, at(5))));
    assert_eq!(ledger.counts().unwrap(), Counts { running: 0, queued: 0 });
    assert_sound(&ledger, 6);
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let plan = plan(1);
    let append = |event: &LaneEvent| ledger.append(&plan.lane_id, event, at(1));
    assert_kind(&append(&LaneEvent::PrepareStarted).unwrap_err(), PortErrorKind::Other);
    ledger.admit(&plan, false, 4, at(0)).unwrap();
    let worker = WorkerEnd { exit: ProcessExit::Unknown, ran_for: Millis(0), stopped: None };
    assert_kind(&append(&LaneEvent::WorkerEnded { worker }).unwrap_err(), PortErrorKind::Illegal);
    assert_kind(&append(&LaneEvent::Promoted).unwrap_err(), PortErrorKind::Illegal);
    assert_kind(&ledger.admit(&plan, false, 4, at(1)).unwrap_err(), PortErrorKind::Illegal);
    assert_kind(&ledger.promote(&plan.lane_id, 4, at(1)).unwrap_err(), PortErrorKind::Illegal);
    append(&ended(&plan, Outcome::Ok, at(1))).unwrap();
    assert_kind(&append(&ended(&plan, Outcome::Lost, at(1))).unwrap_err(), PortErrorKind::Illegal);
    assert_sound(&ledger, 2);
}

#[test]
fn slots_and_queue_are_first_come_first_served() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(plan);
    assert_eq!(ledger.admit(&one, true, 1, at(0)).unwrap(), Verdict::Admit);
    assert_eq!(ledger.admit(&two, true, 1, at(1)).unwrap(), Verdict::NoSlot { live: 1, max: 1 });
    assert_eq!(ledger.admit(&three, true, 1, at(2)).unwrap(), Verdict::NoSlot { live: 1, max: 1 });
    assert_eq!(ledger.admit(&four, false, 1, at(3)).unwrap(), Verdict::NoSlot { live: 1, max: 1 });
    assert_eq!(ledger.lane(&four.lane_id).unwrap(), None, "a refused lane leaves nothing behind");
    assert_eq!(ledger.counts().unwrap(), Counts { running: 1, queued: 2 });
    ledger.append(&one.lane_id, &ended(&one, Outcome::Ok, at(4)), at(4)).unwrap();
    assert_eq!(ledger.admit(&five, false, 1, at(5)).unwrap(), Verdict::QueueAhead { waiting: 2 });
    assert_eq!(ledger.promote(&three.lane_id, 1, at(6)).unwrap(), Verdict::QueueAhead { waiting: 1 });
    assert_eq!(ledger.promote(&two.lane_id, 1, at(7)).unwrap(), Verdict::Admit);
    let row = ledger.lane(&two.lane_id).unwrap().unwrap();
    assert_eq!(row.state, State::Admitted { since: at(7), waited: Millis(6), cancelled: false });
    let waiting: Vec<LaneId> = ledger.queued().unwrap().into_iter().map(|row| row.plan.lane_id).collect();
    assert_eq!(waiting, std::slice::from_ref(&three.lane_id));
    ledger.append(&three.lane_id, &ended(&three, Outcome::Cancelled, at(8)), at(8)).unwrap();
    assert_eq!(ledger.counts().unwrap(), Counts { running: 1, queued: 0 });
    assert_sound(&ledger, 6);
}

#[test]
fn paths_have_one_writer_and_a_blocked_head_does_not_block_the_others() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let (holder, blocked, free) = (writing(1, &["/a"]), writing(2, &["/a/b", "/c"]), writing(3, &["/d"]));
    let pushing = writing(4, &["/c"]);
    ledger.admit(&holder, false, 2, at(0)).unwrap();
    let taken = Verdict::PathTaken { path: "/a/b".into(), by: holder.lane_id.clone() };
    assert_eq!(ledger.admit(&blocked, true, 2, at(1)).unwrap(), taken);
    // It wants what the blocked one waits for too: going first would push that one back for ever.
    assert_eq!(ledger.admit(&pushing, false, 2, at(2)).unwrap(), Verdict::QueueAhead { waiting: 1 });
    assert_eq!(ledger.admit(&free, false, 2, at(2)).unwrap(), Verdict::Admit);
    assert_eq!(ledger.promote(&blocked.lane_id, 2, at(3)).unwrap(), taken);
    ledger.append(&holder.lane_id, &ended(&holder, Outcome::Ok, at(4)), at(4)).unwrap();
    assert_eq!(ledger.promote(&blocked.lane_id, 2, at(5)).unwrap(), Verdict::Admit);
    assert_sound(&ledger, 5);
}

#[test]
fn a_lane_is_found_by_id_beginning_or_end() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    for number in 1..=20 {
        ledger.admit(&plan(number), false, 99, at(0)).unwrap();
    }
    let find = |text: &str| ledger.find(text).unwrap();
    let exact = plan(1).lane_id;
    assert_eq!(find(exact.as_str()), std::slice::from_ref(&exact));
    assert_eq!(find("20261201-004854-job-1-"), std::slice::from_ref(&exact));
    assert_eq!(find("-0001"), std::slice::from_ref(&exact));
    assert_eq!(find("000a"), [plan(10).lane_id]);
    assert_eq!(find("2026").len(), 10);
    for foreign in ["", "nothing", "%", "*", "é", "20261201-004854-job-1-0001x", "'; DROP TABLE runs"] {
        assert_eq!(find(foreign), [], "{foreign}");
    }
}

#[test]
fn listings_are_filtered_and_newest_first() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let elsewhere = Plan { repository: None, ..plan(3) };
    for plan in [&plan(1), &plan(2), &elsewhere] {
        ledger.admit(plan, false, 9, at(0)).unwrap();
    }
    ledger.append(&plan(1).lane_id, &ended(&plan(1), Outcome::Timeout, at(9)), at(9)).unwrap();
    ledger.append(&plan(2).lane_id, &LaneEvent::PrepareStarted, at(9)).unwrap();
    ledger.admit(&plan(4), true, 0, at(9)).unwrap();
    let list = |filter: LaneFilter| -> Vec<LaneId> {
        ledger.recent(&filter).unwrap().into_iter().map(|row| row.plan.lane_id).collect()
    };
    let ids = |numbers: &[u32]| -> Vec<LaneId> { numbers.iter().map(|number| plan(*number).lane_id).collect() };
    assert_eq!(list(LaneFilter::default()), ids(&[4, 3, 2, 1]));
    assert_eq!(list(LaneFilter { limit: Some(2), ..LaneFilter::default() }), ids(&[4, 3]));
    assert_eq!(list(LaneFilter { since: Some(at(2)), ..LaneFilter::default() }), ids(&[4, 3, 2]));
    let repository = Some(PathBuf::from("/repository"));
    assert_eq!(list(LaneFilter { repository: repository.clone(), ..LaneFilter::default() }), ids(&[4, 2, 1]));
    let by_word: [(&str, &[u32]); 8] = [
        ("timeout", &[1]),
        ("ended", &[1]),
        ("running", &[3, 2]),
        ("preparing", &[2]),
        ("admitted", &[3]),
        ("queued", &[4]),
        ("ok", &[]),
        ("nonsense", &[]),
    ];
    for (word, lanes) in by_word {
        let filter = LaneFilter { state: Some(word.into()), ..LaneFilter::default() };
        assert_eq!(list(filter), ids(lanes), "{word}");
    }
    let all = LaneFilter { limit: Some(1), since: Some(at(2)), state: Some("running".into()), repository };
    assert_eq!(list(all), ids(&[2]));
}

#[test]
fn a_wrong_projection_is_noticed_and_mended() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let plans = [writing(1, &["/a"]), writing(2, &["/b"]), writing(3, &["/c"])];
    for plan in &plans {
        ledger.admit(plan, false, 9, at(0)).unwrap();
    }
    ledger.append(&plans[0].lane_id, &ended(&plans[0], Outcome::Ok, at(1)), at(1)).unwrap();
    let healthy = ledger.recent(&LaneFilter::default()).unwrap();
    let outside = raw(folder.path());
    let wrong = &plans[1].lane_id;
    for damage in [
        format!("UPDATE runs SET live = 0 WHERE lane_id = '{wrong}'"),
        format!("UPDATE runs SET outcome = 'lost' WHERE lane_id = '{wrong}'"),
        format!("UPDATE runs SET state_data = '{{}}' WHERE lane_id = '{wrong}'"),
        format!("UPDATE runs SET plan_data = 'x' WHERE lane_id = '{wrong}'"),
        format!("DELETE FROM runs WHERE lane_id = '{wrong}'"),
        format!("DELETE FROM reservations WHERE lane_id = '{wrong}'"),
        format!("INSERT INTO reservations VALUES ('{wrong}', '/z')"),
    ] {
        outside.execute_batch(&damage).unwrap();
        let report = ledger.check().unwrap();
        assert_eq!((report.broken_at, report.projection_differs), (None, vec![wrong.clone()]), "{damage}");
        ledger.rebuild().unwrap();
        assert_sound(&ledger, 4);
        assert_eq!(ledger.recent(&LaneFilter::default()).unwrap(), healthy);
    }
    let ghost: LaneId = "20261201-004854-ghost-beef".parse().unwrap();
    outside.execute_batch(&format!("INSERT INTO reservations VALUES ('{ghost}', '/z')")).unwrap();
    assert_eq!(ledger.check().unwrap().projection_differs, [ghost]);
}

#[test]
fn a_changed_past_is_noticed() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    for number in 1..=4 {
        ledger.admit(&plan(number), false, 9, at(0)).unwrap();
    }
    let outside = raw(folder.path());
    assert!(outside.execute_batch("DELETE FROM events WHERE seq = 2").is_err(), "events are append-only");
    outside.execute_batch("DROP TRIGGER events_stay; UPDATE events SET at = at + 1 WHERE seq = 2").unwrap();
    assert_eq!(ledger.check().unwrap().broken_at, Some((2, "its content is not what was written".into())));
    outside.execute_batch("DROP TRIGGER events_remain; DELETE FROM events WHERE seq = 2").unwrap();
    assert_eq!(ledger.check().unwrap().broken_at, Some((3, "event 2 is missing before it".into())));
}

#[test]
fn a_newer_database_is_read_and_never_written() {
    let folder = TempDir::new().unwrap();
    ledger(&folder).admit(&plan(1), false, 4, at(0)).unwrap();
    let newer = "PRAGMA user_version = 7; ALTER TABLE runs ADD COLUMN fresh TEXT; CREATE TABLE more (x);";
    raw(folder.path()).execute_batch(newer).unwrap();
    let ledger = ledger(&folder);
    assert_eq!(ledger.lane(&plan(1).lane_id).unwrap().unwrap().plan, plan(1));
    assert_eq!(ledger.counts().unwrap(), Counts { running: 1, queued: 0 });
    assert_kind(&ledger.admit(&plan(2), true, 4, at(1)).unwrap_err(), PortErrorKind::TooNew);
    let prepare = ledger.append(&plan(1).lane_id, &LaneEvent::PrepareStarted, at(1));
    assert_kind(&prepare.unwrap_err(), PortErrorKind::TooNew);
    assert_kind(&ledger.rebuild().unwrap_err(), PortErrorKind::TooNew);
    let format: i64 = raw(folder.path()).query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(format, 7);
}

/// A supervisor of this Lane may have to bring its lane to an end after a newer Lane came by.
#[test]
fn an_open_ledger_still_writes_after_a_newer_lane_came_by() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    ledger.admit(&plan(1), false, 4, at(0)).unwrap();
    raw(folder.path()).execute_batch("PRAGMA user_version = 2; ALTER TABLE runs ADD COLUMN fresh TEXT;").unwrap();
    ledger.append(&plan(1).lane_id, &ended(&plan(1), Outcome::Ok, at(1)), at(1)).unwrap();
    assert_eq!(ledger.counts().unwrap(), Counts { running: 0, queued: 0 });
}

#[test]
fn events_and_rows_of_a_newer_lane_are_kept() {
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    ledger.admit(&plan(1), false, 4, at(0)).unwrap();
    ledger.admit(&writing(2, &["/x"]), false, 4, at(0)).unwrap();
    let paused = plan(2).lane_id;
    append_foreign(folder.path(), paused.as_str());
    let update =
        format!("UPDATE runs SET state='paused', state_data='{{\"state\":\"paused\"}}' WHERE lane_id='{paused}'");
    raw(folder.path()).execute_batch(&update).unwrap();
    ledger.append(&plan(1).lane_id, &LaneEvent::PrepareStarted, at(1)).unwrap();
    assert_sound(&ledger, 4);
    ledger.rebuild().unwrap();
    let column = |sql: &str| -> Vec<String> {
        let connection = raw(folder.path());
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(column("SELECT state FROM runs ORDER BY lane_id"), ["preparing", "paused"]);
    assert_eq!(column("SELECT path FROM reservations"), ["/x"]);
    assert_eq!(column("SELECT kind FROM events ORDER BY seq"), ["admitted", "admitted", "paused", "prepare_started"]);
    assert_eq!(ledger.recent(&LaneFilter::default()).unwrap().len(), 1);
    assert_kind(&ledger.lane(&paused).unwrap_err(), PortErrorKind::TooNew);
    assert_kind(&ledger.append(&paused, &LaneEvent::PrepareStarted, at(2)).unwrap_err(), PortErrorKind::TooNew);
}

/// Appends an event that no Lane of this version knows, with the hash that it must carry.
fn append_foreign(folder: &Path, lane_id: &str) {
    use sha2::{Digest, Sha256};
    let connection = raw(folder);
    let last = "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1";
    let (seq, prev): (i64, Vec<u8>) = connection.query_row(last, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let (seq, kind, data) = (seq + 1, "paused", r#"{"event":"paused","why":"lunch"}"#);
    let (seq_bytes, at_bytes) = (seq.to_be_bytes(), START_MS.to_be_bytes());
    let parts: [&[u8]; 7] =
        [b"lane event 1", &prev, &seq_bytes, &at_bytes, lane_id.as_bytes(), kind.as_bytes(), data.as_bytes()];
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let values = rusqlite::params![seq, lane_id, START_MS, kind, data, prev, hasher.finalize().to_vec()];
    connection.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?)", values).unwrap();
}

#[test]
fn damage_is_called_damage() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("lane.db"), "no database, whatever its name says ".repeat(200)).unwrap();
    assert_kind(&SqliteLedger::open(folder.path()).map(|_| ()).unwrap_err(), PortErrorKind::Damaged);

    let folder = TempDir::new().unwrap();
    for number in 1..=50 {
        ledger(&folder).admit(&plan(number), false, 99, at(0)).unwrap();
    }
    raw(folder.path()).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let path = folder.path().join("lane.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.iter_mut().skip(4096).for_each(|byte| *byte ^= 0x5a);
    std::fs::write(&path, bytes).unwrap();
    let ledger = ledger(&folder);
    for error in [
        ledger.recent(&LaneFilter::default()).unwrap_err(),
        ledger.admit(&plan(99), false, 99, at(1)).unwrap_err(),
        ledger.check().unwrap_err(),
    ] {
        assert_kind(&error, PortErrorKind::Damaged);
        assert!(error.message.contains(path.to_str().unwrap()), "{error}");
    }
}

fn is_set(name: &str) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a test has no wiring that could hand it the environment")]
    std::env::var_os(name).is_some_and(|value| value == "1")
}

/// Each writer opens a connection for each lane: a process commits once or twice and is gone.
#[test]
fn sixteen_writers_at_once_lose_nothing() {
    let (writers, each) = (16, if is_set("LANE_LONG") { 200 } else { 8 });
    let folder = TempDir::new().unwrap();
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (folder, start) = (&folder, &start);
            scope.spawn(move || {
                start.wait();
                for number in 0..each {
                    let ledger = ledger(folder);
                    let plan = plan(writer * each + number);
                    assert_eq!(ledger.admit(&plan, false, u32::MAX, at(0)).unwrap(), Verdict::Admit);
                    ledger.append(&plan.lane_id, &LaneEvent::PrepareStarted, at(1)).unwrap();
                }
            });
        }
    });
    let ledger = ledger(&folder);
    assert_eq!(ledger.counts().unwrap(), Counts { running: writers * each, queued: 0 });
    assert_sound(&ledger, u64::from(writers * each * 2));
}

#[test]
fn two_hundred_callers_never_get_a_fifth_slot() {
    let folder = TempDir::new().unwrap();
    let admitted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for caller in 0..20 {
            let (folder, admitted) = (&folder, &admitted);
            scope.spawn(move || {
                let ledger = ledger(folder);
                for number in 0..10 {
                    if ledger.admit(&plan(caller * 10 + number), true, 4, at(0)).unwrap() == Verdict::Admit {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let ledger = ledger(&folder);
    assert_eq!(admitted.into_inner(), 4);
    assert_eq!(ledger.counts().unwrap(), Counts { running: 4, queued: 196 });
    // The queue drains in the order in which it was filled.
    let order: Vec<LaneId> = ledger.queued().unwrap().into_iter().map(|row| row.plan.lane_id).collect();
    for expected in order {
        let first = ledger.live().unwrap().remove(0).plan;
        ledger.append(&first.lane_id, &ended(&first, Outcome::Ok, at(1)), at(1)).unwrap();
        assert_eq!(ledger.promote(&expected, 4, at(2)).unwrap(), Verdict::Admit);
    }
    assert_sound(&ledger, 200 + 196 * 2);
}

fn event(plan: &Plan, number: u8, now: Timestamp) -> LaneEvent {
    let worker = WorkerEnd { exit: ProcessExit::Signal(9), ran_for: Millis(1), stopped: None };
    match number {
        0 => LaneEvent::PrepareStarted,
        1 => LaneEvent::WorkerStarted { keeper: ProcessIdentity { pid: 1, start_ticks: 2, boot_id: "boot".into() } },
        2 => LaneEvent::CancelRequested,
        3 => LaneEvent::Recovered { stage: "working".into() },
        4 => LaneEvent::WorkerEnded { worker },
        _ => ended(plan, Outcome::WorkerError, now),
    }
}

/// Samples of the formats that were released. They are never written anew: each must load for ever.
const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/formats");

#[test]
fn a_database_of_format_1_loads_for_ever() {
    let folder = TempDir::new().unwrap();
    std::fs::copy(format!("{SAMPLES}/1/lane.db"), folder.path().join("lane.db")).unwrap();
    let ledger = ledger(&folder);
    let word = |row: &lane::app::ports::LaneRow| (row.plan.lane_id.to_string(), row.state.word());
    let lanes: Vec<(String, &str)> = ledger.recent(&LaneFilter::default()).unwrap().iter().map(word).collect();
    let expected = [
        ("20261201-004854-job-4-0004", "queued"),
        ("20261201-004854-job-3-0003", "working"),
        ("20261201-004854-job-2-0002", "preparing"),
        ("20261201-004854-job-1-0001", "ended"),
    ];
    assert_eq!(lanes, expected.map(|(id, word)| (id.to_owned(), word)));
    let end = ledger.lane(&plan(1).lane_id).unwrap().unwrap().end.unwrap();
    assert_eq!((end.outcome, end.finished_at), (Outcome::Timeout, at(40)));
    assert_sound(&ledger, 10);
    // It can be gone on with, and its projection can be made anew.
    ledger.append(&plan(3).lane_id, &LaneEvent::CancelRequested, at(50)).unwrap();
    ledger.rebuild().unwrap();
    assert_sound(&ledger, 11);
}

#[test]
fn a_plan_of_format_1_loads_for_ever() {
    let text = std::fs::read_to_string(format!("{SAMPLES}/1/plan.json")).unwrap();
    let mut expected = writing(2, &["/a"]);
    expected.label = Some("a label".into());
    expected.queue = true;
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), expected);
}

#[test]
#[ignore = "writes the sample of a format before its release: LANE_WRITE_SAMPLE=1"]
fn write_the_sample_of_format_1() {
    assert!(is_set("LANE_WRITE_SAMPLE"), "started by hand");
    let folder = TempDir::new().unwrap();
    let ledger = ledger(&folder);
    let mut second = writing(2, &["/a"]);
    second.label = Some("a label".into());
    second.queue = true;
    let plans = [plan(1), second, plan(3), plan(4)];
    for plan in &plans {
        ledger.admit(plan, true, 3, at(10)).unwrap();
        if plan != &plans[3] {
            ledger.append(&plan.lane_id, &LaneEvent::PrepareStarted, at(20)).unwrap();
        }
    }
    let third = &plans[2].lane_id;
    ledger.append(third, &event(&plans[2], 1, at(30)), at(30)).unwrap();
    ledger.append(third, &event(&plans[2], 3, at(35)), at(35)).unwrap();
    ledger.append(&plans[0].lane_id, &ended(&plans[0], Outcome::Timeout, at(40)), at(40)).unwrap();
    raw(folder.path()).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let samples = format!("{SAMPLES}/1");
    std::fs::create_dir_all(&samples).unwrap();
    std::fs::copy(folder.path().join("lane.db"), format!("{samples}/lane.db")).unwrap();
    std::fs::write(format!("{samples}/plan.json"), serde_json::to_vec_pretty(&plans[1]).unwrap()).unwrap();
}
