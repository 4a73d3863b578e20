//! Workers that behave, more or less: streams, ends, sights, signals, left-over processes.

use std::io::Write;
use std::time::{Duration, Instant};

use lane::app::ports::{Found, PortErrorKind, Processes, Sight, WorkerStart};
use lane::domain::time::Millis;
use lane::domain::worker::ProcessExit;
use lane::provider::{PoliteSignal, WorkerCommand};

use crate::Case;
use crate::bench::{Lane, end_of, is_alive, kill, mode_of, state_of, until};

pub const CASES: &[Case] = &[
    ("streams_are_files_and_stdin_is_the_brief", streams_are_files_and_stdin_is_the_brief),
    ("ends_are_told_exactly", ends_are_told_exactly),
    ("a_worker_leads_its_own_session_with_clean_signals", a_worker_leads_its_own_session_with_clean_signals),
    ("a_program_that_is_missing_is_told_and_never_started", a_program_that_is_missing_is_told_and_never_started),
    ("a_second_worker_is_refused", a_second_worker_is_refused),
    ("growth_and_requests_wake_and_silence_costs_nothing", growth_and_requests_wake_and_silence_costs_nothing),
    ("a_rollout_is_watched_too", a_rollout_is_watched_too),
    ("a_worker_that_ignores_term_is_killed", a_worker_that_ignores_term_is_killed),
    ("the_polite_signal_reaches_the_worker_alone", the_polite_signal_reaches_the_worker_alone),
    ("a_grandchild_in_its_own_session_is_swept", a_grandchild_in_its_own_session_is_swept),
    ("a_daemon_without_environment_is_swept", a_daemon_without_environment_is_swept),
    ("a_stopped_tree_is_killed", a_stopped_tree_is_killed),
    ("a_tree_that_forks_all_the_time_is_killed", a_tree_that_forks_all_the_time_is_killed),
    ("a_killed_worker_is_told", a_killed_worker_is_told),
    ("processor_time_counts_the_whole_tree", processor_time_counts_the_whole_tree),
    ("a_keeper_is_small", a_keeper_is_small),
];

fn streams_are_files_and_stdin_is_the_brief() {
    let lane = Lane::new();
    let brief: Vec<u8> = (0..=255u8).cycle().take(1_048_576).collect();
    std::fs::write(lane.run_dir().join("brief.md"), &brief).unwrap();
    let mut worker = lane.start("cat > got; echo out; echo err >&2; env > environment; pwd > where");
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(0));
    assert_eq!(std::fs::read(lane.work().join("got")).unwrap(), brief);
    assert_eq!((lane.read("run/events.jsonl").as_str(), lane.read("run/stderr.log").as_str()), ("out\n", "err\n"));
    for name in ["events.jsonl", "stderr.log", "exit.json", "worker.json", "argv.json", "keeper.lock"] {
        assert_eq!(mode_of(&lane.run_dir().join(name)), 0o600, "{name}");
    }
    let environment = lane.read("work/environment");
    let foreign = environment.lines().filter(|line| {
        !["PATH=", "HOME=", "LANE_ID=", "PWD=", "_=", "SHLVL=", "OLDPWD="].iter().any(|own| line.starts_with(own))
    });
    assert_eq!(foreign.count(), 0, "{environment}");
    assert_eq!(lane.read("work/where").trim(), lane.work().to_str().unwrap());
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
    assert!(!is_alive(worker.keeper().pid));
    assert!(!lane.read("run/argv.json").contains("LANE_ID"));
}

fn ends_are_told_exactly() {
    for (script, exit) in [
        ("exit 0", ProcessExit::Code(0)),
        ("exit 255", ProcessExit::Code(255)),
        ("kill -TERM $$", ProcessExit::Signal(15)),
        ("kill -40 $$", ProcessExit::Signal(40)),
        ("read line; sleep 0.3; exit 3", ProcessExit::Code(3)),
    ] {
        let lane = Lane::new();
        let mut worker = lane.start(script);
        let (seen, ran_for) = end_of(&mut worker);
        assert_eq!(seen, exit, "{script}");
        assert_eq!(end_of(&mut worker), (seen, ran_for), "asked again");
        assert!(script.contains("sleep") == (ran_for >= Millis(300)), "{script}: {ran_for:?}");
        worker.sweep().unwrap();
    }
}

fn a_worker_leads_its_own_session_with_clean_signals() {
    let lane = Lane::new();
    let mut worker = lane.start("echo $$ > pid; grep -E 'Sig(Blk|Ign)' /proc/self/status > signals; exec sleep 300");
    let pid = lane.pid("pid");
    until("the signals are noted", || lane.read("work/signals").lines().count() == 2);
    let signals = lane.read("work/signals");
    assert!(signals.lines().all(|line| line.ends_with("0000000000000000")), "{signals}");
    let row = lane::infra::process::table::load_row(pid).unwrap();
    assert_eq!((row.session, row.parent), (pid, worker.keeper().pid));
    // The shell itself holds one more for a moment, until it becomes `sleep`.
    until("only the three standard descriptors are open", || {
        std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() == 3
    });
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
}

fn a_program_that_is_missing_is_told_and_never_started() {
    let lane = Lane::new();
    let script = lane.script("");
    let command = WorkerCommand { program: "/no/such/worker".into(), ..script.command.clone() };
    let error = lane.processes.start_worker(&WorkerStart { command, ..script.clone() }).err().unwrap();
    assert!(error.message.contains("/no/such/worker"), "{error}");
    assert!(lane.read("run/exit.json").contains("/no/such/worker"));
    assert!(lane.read("run/stderr.log").contains("/no/such/worker"));
    assert!(matches!(lane.processes.find_worker(&lane.run_dir(), &lane.lane_id).unwrap(), Found::NeverStarted));
    let gone = WorkerStart { directory: "/no/such/place".into(), ..script };
    let error = lane.processes.start_worker(&gone).err().unwrap();
    assert!(error.message.contains("/no/such/place"), "{error}");
    // The next try in the same folder works.
    assert_eq!(end_of(&mut lane.start("exit 4")).0, ProcessExit::Code(4));
}

fn a_second_worker_is_refused() {
    let lane = Lane::new();
    let mut worker = lane.start("sleep 300");
    let error = lane.processes.start_worker(&lane.script("touch second")).err().unwrap();
    assert_eq!(error.kind, PortErrorKind::Held, "{error}");
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    assert!(!lane.work().join("second").exists());
}

fn growth_and_requests_wake_and_silence_costs_nothing() {
    let lane = Lane::new();
    let mut worker = lane.start("cat > /dev/null; while [ ! -e go ]; do sleep 0.05; done; echo line; exec sleep 300");
    assert_eq!(worker.wait(Millis(300)).unwrap(), []);
    std::fs::write(lane.work().join("go"), "").unwrap();
    assert_eq!(worker.wait(Millis(10_000)).unwrap(), [Sight::Grew]);
    let before = own_processor_time();
    let since = Instant::now();
    assert_eq!(worker.wait(Millis(1_000)).unwrap(), []);
    assert!(since.elapsed() >= Duration::from_millis(1_000));
    assert!(own_processor_time() - before < Duration::from_millis(20));
    for _ in 0..2 {
        let mut options = std::fs::OpenOptions::new();
        options.append(true).create(true).open(lane.run_dir().join("cancel")).unwrap().write_all(b"stop\n").unwrap();
        assert_eq!(worker.wait(Millis(10_000)).unwrap(), [Sight::CancelRequested]);
    }
    worker.kill_tree().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    worker.sweep().unwrap();
}

fn own_processor_time() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let micros = usage.user_time().tv_usec() + usage.system_time().tv_usec();
    let seconds = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    Duration::from_secs(u64::try_from(seconds).unwrap()) + Duration::from_micros(u64::try_from(micros).unwrap())
}

fn a_rollout_is_watched_too() {
    let lane = Lane::new();
    let mut worker = lane.start("exec sleep 300");
    let rollout = lane.folder.path().join("rollout.jsonl");
    worker.watch_file(&rollout);
    assert_eq!(worker.wait(Millis(50)).unwrap(), []);
    std::fs::write(&rollout, "x").unwrap();
    assert_eq!(worker.wait(Millis(5_000)).unwrap(), [Sight::Grew]);
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
}

fn a_worker_that_ignores_term_is_killed() {
    let lane = Lane::new();
    let mut worker = lane.start("trap '' TERM INT; echo $$ > pid; while :; do sleep 0.1; done");
    lane.pid("pid");
    worker.signal_politely(PoliteSignal::Terminate).unwrap();
    worker.signal_politely(PoliteSignal::Interrupt).unwrap();
    assert_eq!(worker.wait(Millis(300)).unwrap(), []);
    worker.kill_tree().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
    worker.signal_politely(PoliteSignal::Terminate).unwrap();
}

fn the_polite_signal_reaches_the_worker_alone() {
    let lane = Lane::new();
    let script = "sh -c 'trap \"touch hit\" TERM INT; echo $$ > child; while :; do sleep 0.1; done' & \
                  trap 'exit 143' TERM; echo $$ > pid; while :; do sleep 0.1; done";
    let mut worker = lane.start(script);
    let child = lane.pid("child");
    lane.pid("pid");
    worker.signal_politely(PoliteSignal::Terminate).unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(143));
    assert!(is_alive(child));
    let swept = worker.sweep().unwrap();
    assert!(swept.iter().any(|name| name.ends_with(&format!("(pid {child})"))), "{swept:?}");
    assert!(!lane.work().join("hit").exists());
}

fn a_grandchild_in_its_own_session_is_swept() {
    let lane = Lane::new();
    let mut worker =
        lane.start("setsid sh -c 'echo $$ > child; exec sleep 311' & while [ ! -s child ]; do sleep 0.01; done");
    let since = Instant::now();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(0));
    assert!(since.elapsed() < Duration::from_secs(10), "the end is the worker's, not its grandchild's");
    let child = lane.pid("child");
    until("the child became sleep", || lane::infra::process::table::load_row(child).unwrap().name == "sleep");
    assert_eq!(worker.sweep().unwrap(), [format!("sleep 311 (pid {child})")]);
    assert!(!is_alive(child) && !is_alive(worker.keeper().pid));
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
}

fn a_daemon_without_environment_is_swept() {
    let lane = Lane::new();
    let script = "(setsid env -i /bin/sh -c 'echo $$ > child; exec /bin/sleep 312' &) ; \
                  while [ ! -s child ]; do sleep 0.01; done; exit 6";
    let mut worker = lane.start(script);
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(6));
    let child = lane.pid("child");
    until("the environment is gone", || std::fs::read(format!("/proc/{child}/environ")).unwrap().len() < 30);
    let swept = worker.sweep().unwrap();
    assert_eq!(swept.len(), 1, "{swept:?}");
    assert!(!is_alive(child) && !is_alive(worker.keeper().pid));
}

fn a_stopped_tree_is_killed() {
    let lane = Lane::new();
    let mut worker = lane.start("sleep 313 & echo $! > child; echo $$ > pid; wait");
    let (child, pid, keeper) = (lane.pid("child"), lane.pid("pid"), worker.keeper().pid);
    for stopped in [child, pid, keeper] {
        kill(stopped, nix::sys::signal::Signal::SIGSTOP);
        until("it is stopped", || state_of(stopped) == 'T');
    }
    assert_eq!(worker.wait(Millis(100)).unwrap(), []);
    worker.kill_tree().unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    worker.sweep().unwrap();
    assert!(!is_alive(child) && !is_alive(keeper));
}

/// Four chains of processes, each of which starts its successor in a new session and ends.
fn a_tree_that_forks_all_the_time_is_killed() {
    let lane = Lane::new();
    let path = lane.work().join("hop");
    std::fs::write(&path, "#!/bin/sh\necho $$ > hopping\nsetsid \"$0\" &\nexit 0\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut worker = lane.start("for i in 1 2 3 4; do ./hop & done; sleep 300");
    let first = lane.pid("hopping");
    until("the chain goes on", || lane.read("work/hopping").trim() != first.to_string());
    let killed = worker.kill_tree();
    std::fs::remove_file(lane.work().join("hopping")).ok();
    // Without its file the chain ends by itself, so that a failure harms nobody.
    std::fs::remove_file(&path).unwrap();
    killed.unwrap();
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    assert_eq!(worker.sweep().unwrap(), Vec::<String>::new());
    assert_eq!(lane.read("work/hopping"), "", "nothing goes on after the tree was killed");
}

fn a_killed_worker_is_told() {
    let lane = Lane::new();
    let mut worker = lane.start("sleep 314 & echo $! > child; wait");
    let child = lane.pid("child");
    kill(lane.worker_pid(), nix::sys::signal::Signal::SIGKILL);
    assert_eq!(end_of(&mut worker).0, ProcessExit::Signal(9));
    assert_eq!(worker.sweep().unwrap(), [format!("sleep 314 (pid {child})")]);
}

fn processor_time_counts_the_whole_tree() {
    let lane = Lane::new();
    let mut worker = lane.start("setsid sh -c 'while :; do :; done' & wait");
    let before = worker.processor_time();
    until("a grandchild's work is counted", || worker.processor_time() >= Millis(before.0 + 100));
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
}

fn a_keeper_is_small() {
    let lane = Lane::new();
    let mut worker = lane.start("echo $$ > pid; exec sleep 300");
    lane.pid("pid");
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.keeper().pid)).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    println!(" (keeper: {kibibytes} KiB)");
    assert!(kibibytes < 10 * 1024);
    assert!(status.lines().any(|line| line == "Threads:\t1"));
    worker.kill_tree().unwrap();
    worker.sweep().unwrap();
}
