//! Folders that vanish while a lane runs, and databases that are damaged or of a newer Lane.

use super::*;

#[test]
fn the_run_folder_vanishes() {
    let bed = TestBed::new().with("LANE_MAX_CONCURRENT", "1");
    let repository = bed.repository("project");
    let (lane_id, gate) = at_gate(&bed, &repository);
    fs::remove_dir_all(bed.run_dir(&lane_id)).unwrap();
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("lost", "infra"), "{:#}", ended.json);
    assert!(ended.text("error").contains("run folder"), "{:#}", ended.json);
    assert_over(&bed, &lane_id);
    // Its commits are where the answer says.
    let checkout = bed.state().join("checkouts").join(&lane_id);
    assert!(ended.text("error").contains(path_text(&checkout)), "{:#}", ended.json);
    assert_eq!(fs::read_to_string(checkout.join("kept.txt")).unwrap(), "kept\n");
    let next = bed.run(&repository, COMMITS, &["--profile", "implement"]).expect_code(0);
    assert_eq!(bed.wait(&next.lane_id()).expect_code(0).status(), "ok");
    // Cleaning never removes what is saved nowhere.
    let cleaned = bed.lane(&["clean", &lane_id]).expect_code(1);
    assert!(checkout.join("kept.txt").exists(), "{:#}", cleaned.json);
}

#[test]
fn the_whole_state_folder_vanishes() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let (lane_id, gate) = at_gate(&bed, &repository);
    let supervisor = supervisor_pid(&bed.run_dir(&lane_id));
    fs::remove_dir_all(bed.state()).unwrap();
    assert_refused(bed.lane(&["status", &lane_id]), "unknown_lane", 2, &lane_id);
    fs::write(gate, "").unwrap();
    wait_until(PATIENCE, "nothing of the lane is alive", || {
        processes::of_lane(&lane_id).is_empty() && !processes::is_alive(supervisor)
    });
    let next = bed.run(&repository, COMMITS, &["--profile", "implement"]).expect_code(0);
    assert_eq!(bed.wait(&next.lane_id()).expect_code(0).status(), "ok");
}

#[test]
fn the_checkout_vanishes() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let (lane_id, gate) = at_gate(&bed, &repository);
    fs::remove_dir_all(bed.state().join("checkouts").join(&lane_id)).unwrap();
    fs::write(gate, "").unwrap();
    let ended = bed.wait(&lane_id).expect_code(1);
    assert_eq!((ended.status(), ended.text("class")), ("error", "infra"), "{:#}", ended.json);
    assert_eq!(ended.json["accepted"], json!(false));
    assert!(ended.text("error").contains("checkout"), "{:#}", ended.json);
    assert_over(&bed, &lane_id);
    bed.lane(&["clean", &lane_id]);
}

#[test]
fn a_damaged_database() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    let before = left_behind(&bed);
    let database = bed.state().join("lane.db");
    rusqlite::Connection::open(&database).unwrap().pragma_update(None, "wal_checkpoint", "TRUNCATE").unwrap();
    let good = fs::read(&database).unwrap();
    let truncated = good[..good.len() / 2 + 100].to_vec();
    let mut no_header = good.clone();
    no_header[..100].fill(b'x');
    let mut garbage_page = good.clone();
    garbage_page[4096..].fill(0xa5);
    for (damage, content) in [("truncated", truncated), ("no header", no_header), ("garbage", garbage_page)] {
        for name in ["lane.db-wal", "lane.db-shm"] {
            let _ = fs::remove_file(bed.state().join(name));
        }
        fs::write(&database, &content).unwrap();
        for command in [words(&arguments), vec!["status"]] {
            let answer = bed.lane(&command).expect_code(1);
            assert_eq!((answer.status(), answer.text("class")), ("error", "infra"), "{damage}: {:#}", answer.json);
            assert!(answer.text("error").contains("lane.db is damaged"), "{damage}: {:#}", answer.json);
            assert!(answer.text("hint").contains("lane.db"), "{damage}: {:#}", answer.json);
        }
        let doctor = bed.lane(&["doctor"]).expect_code(1);
        assert_eq!(health_of(&doctor, "ledger"), "broken", "{damage}: {:#}", doctor.json);
        assert_eq!(left_behind(&bed), before, "{damage}");
        assert_eq!(fs::read(&database).unwrap(), content, "{damage}: it was written to");
    }
}

#[test]
fn a_newer_database_is_read_only() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let ended = bed.wait(&bed.lane(&words(&arguments)).expect_code(0).lane_id()).expect_code(0);
    let before = left_behind(&bed);
    rusqlite::Connection::open(bed.state().join("lane.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert_refused(bed.lane(&words(&arguments)), "state_too_new", 2, "99");
    assert_eq!(left_behind(&bed), before);
    assert_eq!(bed.lane(&["status"]).expect_code(0).json["lanes"][0]["lane_id"], ended.text("lane_id"));
    assert_eq!(bed.lane(&["result", &ended.lane_id()]).expect_code(0).json, ended.json);
    bed.lane(&["doctor"]);
}
