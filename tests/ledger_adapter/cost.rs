//! What the ledger costs when there is a long past.

use std::time::{Duration, Instant};

use super::*;

/// Returns the median times of two things that are done in turn, so that both meet the same load.
fn medians(count: usize, mut one: impl FnMut(), mut other: impl FnMut()) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    let time = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    for _ in 0..count {
        times[0].push(time(&mut one));
        times[1].push(time(&mut other));
    }
    times.map(|mut times| {
        times.sort_unstable();
        times.remove(count / 2)
    })
}

/// What a short process does with the ledger, with few and with many past lanes.
#[test]
fn the_past_costs_nothing() {
    let many = if is_set("LANE_LONG") { 100_000 } else { 2_000 };
    let (small, large) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    for (folder, count) in [(&small, 10), (&large, many)] {
        fill(folder, count);
    }
    let page = LaneFilter { limit: Some(10), ..LaneFilter::default() };
    let rare = LaneFilter { state: Some("lost".into()), ..page.clone() };
    let status = |folder: &TempDir| {
        let ledger = ledger(folder);
        assert_eq!(ledger.recent(&page).unwrap().len(), 10);
        assert_eq!(ledger.recent(&rare).unwrap().len(), 1);
        assert_eq!(ledger.find("-0001").unwrap().first().unwrap(), &plan(1).lane_id);
        assert_eq!(ledger.counts().unwrap(), Counts { running: 0, queued: 0 });
    };
    let next = AtomicU32::new(many);
    let run = |folder: &TempDir| {
        let (ledger, plan) = (ledger(folder), writing(next.fetch_add(1, Ordering::Relaxed), &["/a"]));
        assert_eq!(ledger.admit(&plan, false, 4, at(0)).unwrap(), Verdict::Admit);
        ledger.append(&plan.lane_id, &ended(&plan, Outcome::Ok, at(0)), at(0)).unwrap();
    };
    let reads = medians(31, || status(&small), || status(&large));
    let writes = medians(31, || run(&small), || run(&large));
    let text = format!("{many} lanes against 10: reading {reads:?}, writing {writes:?}\n");
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes()).unwrap();
    // Wide margins, for busy machines: a scan of the past would be far beyond them.
    assert!(reads[1] < reads[0] * 3 && writes[1] < writes[0] * 3, "{text}");
}

/// Fills a ledger with ended lanes, quickly: the events and rows of one are multiplied by SQL.
fn fill(folder: &TempDir, count: u32) {
    let ledger = ledger(folder);
    for (number, outcome) in [(0, Outcome::Lost), (1, Outcome::Ok)] {
        let plan = plan(number);
        ledger.admit(&plan, false, 4, at(0)).unwrap();
        ledger.append(&plan.lane_id, &ended(&plan, outcome, at(1)), at(1)).unwrap();
    }
    let connection = raw(folder.path());
    connection.execute_batch("PRAGMA synchronous=OFF; BEGIN").unwrap();
    let columns = "created_at, last_event_at, state, outcome, live, queue_order, repository_root, write_paths, state_data, end_data, plan_data";
    let copy = format!(
        "INSERT INTO runs (created_seq, lane_id, lane_id_reversed, {columns})
         SELECT ?1, ?2, ?3, {columns} FROM runs WHERE lane_id = '{}'",
        plan(1).lane_id
    );
    let event = "INSERT INTO events SELECT ?1, ?2, at, kind, data, prev_hash, hash FROM events WHERE seq = ?3";
    for number in 2..count {
        // Ids whose ends differ from those that are asked for.
        let id = format!("20251201-000000-past-{number}-ffff");
        let (first, reversed) = (i64::from(number) * 2 + 1, id.chars().rev().collect::<String>());
        connection.prepare_cached(&copy).unwrap().execute((first, &id, reversed)).unwrap();
        for (seq, source) in [(first, 3), (first + 1, 4)] {
            connection.prepare_cached(event).unwrap().execute((seq, &id, source)).unwrap();
        }
    }
    connection.execute_batch("COMMIT").unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}
