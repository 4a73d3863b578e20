//! Check commands and short questions.

use std::time::{Duration, Instant};

use lane::app::ports::{CheckRequest, Environment, Processes};
use lane::domain::facts::CheckRun;
use lane::domain::time::Millis;

use crate::Case;
use crate::bench::{Lane, is_alive, mode_of, until};

pub const CASES: &[Case] = &[
    ("a_check_tells_its_code_and_its_output", a_check_tells_its_code_and_its_output),
    ("a_check_ends_at_its_limit_with_all_it_started", a_check_ends_at_its_limit_with_all_it_started),
    ("a_check_ends_when_asked", a_check_ends_when_asked),
    ("what_a_check_leaves_is_swept", what_a_check_leaves_is_swept),
    ("a_check_that_floods_its_log_is_stopped", a_check_that_floods_its_log_is_stopped),
    ("a_check_that_cannot_start_is_an_error", a_check_that_cannot_start_is_an_error),
    ("a_question_is_answered_within_bounds", a_question_is_answered_within_bounds),
];

fn request(lane: &Lane, command: &str, limit: Millis) -> CheckRequest {
    CheckRequest {
        lane_id: lane.lane_id.clone(),
        command: command.into(),
        directory: lane.work(),
        environment: lane.environment(),
        limit,
        log_path: lane.run_dir().join("holdout.log"),
        confinement: None,
    }
}

fn check(lane: &Lane, command: &str, limit: Millis) -> CheckRun {
    lane.processes.run_check(&request(lane, command, limit), &lane.run_dir()).unwrap()
}

fn a_check_tells_its_code_and_its_output() {
    let lane = Lane::new();
    let green = check(&lane, "cat; echo fine; echo also >&2", Millis(10_000));
    assert_eq!((green.exit_code, green.signal, green.timed_out), (Some(0), None, false));
    assert_eq!(green.tail, "fine\nalso\n");
    let red = check(&lane, "echo second; exit 3", Millis(10_000));
    assert_eq!((red.exit_code, red.tail.as_str()), (Some(3), "second\n"));
    let killed = check(&lane, "kill -9 $$", Millis(10_000));
    assert_eq!((killed.exit_code, killed.signal), (None, Some(9)));
    assert_eq!(lane.read("run/holdout.log"), "fine\nalso\nsecond\n");
    assert_eq!(mode_of(&lane.run_dir().join("holdout.log")), 0o600);
    let long = check(&lane, "seq 1 100000; printf '\\377€'", Millis(10_000));
    assert!(long.tail.len() <= 4096 && long.tail.ends_with("100000\n\u{fffd}€"), "{}", long.tail.len());
}

fn a_check_ends_at_its_limit_with_all_it_started() {
    let lane = Lane::new();
    let since = Instant::now();
    let run =
        check(&lane, "trap '' TERM; setsid sh -c 'echo $$ > child; sleep 341' & sleep 342; sleep 343", Millis(700));
    assert!(since.elapsed() < Duration::from_secs(10));
    assert_eq!((run.exit_code, run.signal, run.timed_out), (None, Some(9), true));
    assert!(run.tail.contains("time limit"), "{}", run.tail);
    assert!(!is_alive(lane.pid("child")));
}

fn a_check_ends_when_asked() {
    let lane = Lane::new();
    let cancel = lane.run_dir().join("cancel");
    let work = lane.work();
    let asker = std::thread::spawn(move || {
        until("the check runs", || work.join("runs").exists());
        std::fs::write(cancel, "stop\n").unwrap();
    });
    let run = check(&lane, "touch runs; exec sleep 344", Millis(60_000));
    asker.join().unwrap();
    assert_eq!((run.exit_code, run.signal, run.timed_out), (None, Some(9), false));
}

fn what_a_check_leaves_is_swept() {
    let lane = Lane::new();
    let command = "sleep 345 & echo $! > plain; (setsid env -i /bin/sh -c 'echo $$ > bare; exec /bin/sleep 346' &); \
                   while [ ! -s bare ]; do sleep 0.01; done; exit 0";
    let run = check(&lane, command, Millis(20_000));
    assert_eq!(run.exit_code, Some(0));
    assert!(!is_alive(lane.pid("plain")) && !is_alive(lane.pid("bare")));
}

fn a_check_that_floods_its_log_is_stopped() {
    let lane = Lane::new();
    let run = check(&lane, "yes 0123456789012345678901234567890123456789", Millis(60_000));
    assert_eq!((run.exit_code, run.timed_out), (None, false));
    assert!(run.tail.contains("passed 64 MiB"), "{}", run.tail);
    assert!(lane.run_dir().join("holdout.log").metadata().unwrap().len() < 1024 * 1024 * 1024);
}

fn a_check_that_cannot_start_is_an_error() {
    let lane = Lane::new();
    let wrong = CheckRequest { directory: "/no/such/place".into(), ..request(&lane, "true", Millis(1000)) };
    let error = lane.processes.run_check(&wrong, &lane.run_dir()).unwrap_err();
    assert!(error.message.contains("/no/such/place"), "{error}");
}

fn a_question_is_answered_within_bounds() {
    let lane = Lane::new();
    let environment = Environment(vec![("PATH".into(), "/usr/bin:/bin".into())]);
    let ask = |script: &str, limit| {
        let since = Instant::now();
        let asked = lane.processes.ask("/bin/sh".as_ref(), &["-c", script], &environment, Millis(limit)).unwrap();
        (asked, since.elapsed())
    };
    let (asked, _) = ask("cat; pwd; echo no >&2; exit 1", 10_000);
    assert_eq!((asked.exit_code, asked.stdout.as_str(), asked.stderr.as_str()), (Some(1), "/\n", "no\n"));
    let (asked, took) = ask("trap '' TERM; echo begun; sleep 351; sleep 352", 300);
    assert_eq!((asked.exit_code, asked.stdout.as_str()), (None, "begun\n"));
    assert!(took < Duration::from_secs(5));
    let (asked, took) = ask("sleep 353 & echo held", 20_000);
    assert_eq!((asked.exit_code, asked.stdout.as_str()), (Some(0), "held\n"));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let (asked, _) = ask("head -c 3000000 /dev/zero; echo end >&2", 20_000);
    assert_eq!((asked.exit_code, asked.stdout.len(), asked.stderr.as_str()), (Some(0), 256 * 1024, "end\n"));
    assert!(lane.processes.ask("/no/such".as_ref(), &[], &environment, Millis(100)).is_err());
}
