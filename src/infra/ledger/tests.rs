//! What only the inside shows: how queries are answered, and what is switched on.

use rusqlite::params_from_iter;
use tempfile::TempDir;

use super::*;

/// Returns the steps by which SQLite would answer a query.
fn steps(ledger: &SqliteLedger, query: &str, values: Vec<rusqlite::types::Value>) -> Vec<String> {
    let inner = ledger.inner();
    let mut statement = inner.connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
    let rows = statement.query_map(params_from_iter(values), |row| row.get(3)).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[test]
fn no_hot_query_looks_at_the_whole_past() {
    let folder = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(folder.path()).unwrap();
    let filter = |state: Option<&str>| LaneFilter {
        limit: Some(20),
        state: state.map(str::to_owned),
        repository: None,
        since: None,
    };
    let recent = |filter: &LaneFilter| {
        let (condition, values) = list::condition(filter);
        (format!("SELECT {} FROM runs {condition}", rows::COLUMNS), values)
    };
    let by_repository = LaneFilter { repository: Some("/r".into()), ..filter(None) };
    let by_time = LaneFilter { since: Some(Timestamp::from_unix_ms(1)), limit: None, ..filter(None) };
    for (query, values) in [
        ("SELECT count(*) FROM runs WHERE live = 1".to_owned(), vec![]),
        ("SELECT count(*) FROM runs WHERE queue_order IS NOT NULL".to_owned(), vec![]),
        ("SELECT lane_id FROM runs WHERE queue_order IS NOT NULL AND created_seq < 9".to_owned(), vec![]),
        ("SELECT 1 FROM runs WHERE lane_id = 'x'".to_owned(), vec![]),
        ("SELECT lane_id FROM runs WHERE lane_id_reversed >= 'a' AND lane_id_reversed < 'b'".to_owned(), vec![]),
        recent(&filter(Some("timeout"))),
        recent(&filter(Some("working"))),
        recent(&filter(Some("running"))),
        recent(&filter(Some("queued"))),
        recent(&by_repository),
        recent(&by_time),
    ] {
        let steps = steps(&ledger, &query, values);
        assert!(steps.iter().all(|step| step.contains("INDEX runs_")), "{query}: {steps:?}");
    }
    let (query, values) = recent(&filter(None));
    assert_eq!(steps(&ledger, &query, values), ["SCAN runs"], "newest first is the order of the table: no sorting");
}

#[test]
fn a_commit_is_on_the_disk_and_closing_costs_nothing() {
    let folder = TempDir::new().unwrap();
    let ledger = SqliteLedger::open(folder.path()).unwrap();
    let inner = ledger.inner();
    let text = |pragma: &str| -> String {
        inner
            .connection
            .query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, rusqlite::types::Value>(0))
            .map(|value| format!("{value:?}"))
            .unwrap()
    };
    assert_eq!(text("journal_mode"), "Text(\"wal\")");
    assert_eq!(text("synchronous"), "Integer(2)");
    let no_checkpoint = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    assert!(inner.connection.db_config(no_checkpoint).unwrap());
}
