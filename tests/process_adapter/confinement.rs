//! What Landlock refuses, and the ordinary work that it must let through.

use std::path::Path;
use std::process::Command;

use lane::app::ports::{CheckRequest, Confinement, Processes};
use lane::domain::time::Millis;
use lane::domain::worker::{Enforcement, ProcessExit, ProviderName};

use crate::Case;
use crate::bench::{Lane, end_of, executable};

pub const CASES: &[Case] = &[
    ("enforcement_is_known", enforcement_is_known),
    ("writes_outside_are_refused", writes_outside_are_refused),
    ("signals_outside_are_refused_and_inside_are_not", signals_outside_are_refused_and_inside_are_not),
    ("the_keeper_is_not_confined", the_keeper_is_not_confined),
    ("a_confinement_that_cannot_be_had_is_refused", a_confinement_that_cannot_be_had_is_refused),
    ("git_commit_goes_through", git_commit_goes_through),
    ("cargo_build_goes_through", cargo_build_goes_through),
    ("ordinary_tools_go_through", ordinary_tools_go_through),
    ("a_check_can_be_confined", a_check_can_be_confined),
    ("a_normal_user_is_confined_too", a_normal_user_is_confined_too),
];

fn confinement(lane: &Lane) -> Confinement {
    let temporary = lane.folder.path().join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    Confinement { write_dirs: vec![lane.work(), temporary], write_files: vec![] }
}

/// Runs the script confined and returns its exit and its error output.
fn confined(lane: &Lane, script: &str) -> (ProcessExit, String) {
    let mut worker = lane.start_confined(script, confinement(lane));
    let exit = end_of(&mut worker).0;
    worker.sweep().unwrap();
    (exit, lane.read("run/stderr.log"))
}

fn enforcement_is_known() {
    let lane = Lane::new();
    assert_eq!(lane.processes.enforcement(ProviderName::Openai).unwrap(), Enforcement::Codex);
    let claude = lane.processes.enforcement(ProviderName::Claude).unwrap();
    assert!(matches!(claude, Enforcement::Landlock | Enforcement::LandlockScoped));
    assert_eq!(lane.processes.enforcement(ProviderName::Demo).unwrap(), claude);
}

fn writes_outside_are_refused() {
    let lane = Lane::new();
    let outside = lane.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "kept").unwrap();
    std::fs::write(lane.folder.path().join("single"), "").unwrap();
    std::os::unix::fs::symlink(&outside, lane.work().join("way-out")).unwrap();
    let script = r#"
        cd .. || exit 1
        no() { if "$@" 2>/dev/null; then echo "went through: $*" >> work/holes; fi; }
        no sh -c 'echo x > outside/new'
        no sh -c 'echo x >> outside/file'
        no sh -c 'echo x > work/way-out/new'
        no truncate -s 0 outside/file
        no rm outside/file
        no mkdir outside/dir
        no mv outside/file work/
        no ln outside/file work/hard
        no ln -s x outside/link
        no mv work/way-out outside/
        no mknod work/disk b 7 0
        no mknod work/zero c 1 5
        no sh -c 'echo x > run/exit.json'
        no sh -c 'echo 1 > /proc/self/oom_score_adj'
        cat outside/file > work/read || exit 2
        echo single > single || exit 3
        echo null > /dev/null || exit 4
        echo tmp > tmp/a && mv tmp/a work/a && ln work/a work/b && rm work/b || exit 5
        : > work/holes.done
    "#;
    let mut confinement = confinement(&lane);
    confinement.write_files.push(lane.folder.path().join("single"));
    let mut worker = lane.start_confined(script, confinement);
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(0), "{}", lane.read("run/stderr.log"));
    worker.sweep().unwrap();
    assert_eq!(lane.read("work/holes"), "");
    assert_eq!((lane.read("outside/file").as_str(), lane.read("work/read").as_str()), ("kept", "kept"));
    assert_eq!(lane.read("single"), "single\n");
}

fn signals_outside_are_refused_and_inside_are_not() {
    let lane = Lane::new();
    if lane.processes.enforcement(ProviderName::Claude).unwrap() != Enforcement::LandlockScoped {
        println!(" (skipped: this kernel's Landlock has no scopes)");
        return;
    }
    let script = format!(
        "kill -0 {own} 2>/dev/null && exit 10; kill -0 $PPID 2>/dev/null && exit 11; kill -9 $PPID 2>/dev/null && exit 12
         setsid sleep 361 & child=$!; kill -0 $child || exit 13; kill -TERM $child || exit 14; wait $child
         sh -c 'kill -0 '$$ || exit 15; exit 0",
        own = std::process::id()
    );
    assert_eq!(confined(&lane, &script).0, ProcessExit::Code(0));
}

fn the_keeper_is_not_confined() {
    let lane = Lane::new();
    let mut worker = lane.start_confined("exit 8", confinement(&lane));
    assert_eq!(end_of(&mut worker).0, ProcessExit::Code(8));
    // The run folder is not among what the worker may write, so only a free keeper could say this.
    assert!(lane.read("run/exit.json").contains("\"exit_code\":8"));
    worker.sweep().unwrap();
}

fn a_confinement_that_cannot_be_had_is_refused() {
    let lane = Lane::new();
    let missing = Confinement { write_dirs: vec!["/no/such/place".into()], write_files: vec![] };
    let start = lane::app::ports::WorkerStart { confinement: Some(missing), ..lane.script("touch ran") };
    let error = lane.processes.start_worker(&start).err().unwrap();
    assert!(error.message.contains("/no/such/place"), "{error}");
    assert!(!lane.work().join("ran").exists());
}

fn git_commit_goes_through() {
    let lane = Lane::new();
    let script = "set -e; export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
        git init -q . ; git config user.name n; git config user.email e; echo a > a; git add a; git commit -qm one
        git checkout -qb other; echo b > b; git add b; git commit -qm two; git stash list; git gc -q; git log --oneline";
    let (exit, errors) = confined(&lane, script);
    assert_eq!(exit, ProcessExit::Code(0), "{errors}");
    assert_eq!(lane.read("run/events.jsonl").lines().count(), 2);
}

fn cargo_build_goes_through() {
    let lane = Lane::new();
    let toolchain = Path::new(env!("CARGO")).parent().unwrap();
    std::fs::create_dir(lane.work().join("src")).unwrap();
    std::fs::write(lane.work().join("src/main.rs"), "fn main() {}\n").unwrap();
    std::fs::write(lane.work().join("Cargo.toml"), "[package]\nname = \"x\"\nversion = \"0.1.0\"\n").unwrap();
    let script = format!(
        "export PATH={bin}:$PATH TMPDIR=$PWD/../tmp CARGO_HOME=$PWD/../cargo-home RUSTC={bin}/rustc; {bin}/cargo build --offline -q",
        bin = toolchain.display()
    );
    // Read-only for the worker, as the person's own is.
    std::fs::create_dir(lane.folder.path().join("cargo-home")).unwrap();
    let (exit, errors) = confined(&lane, &script);
    assert_eq!(exit, ProcessExit::Code(0), "{errors}");
    assert!(lane.work().join("target/debug/x").exists());
}

fn ordinary_tools_go_through() {
    let lane = Lane::new();
    let script = "set -e; export TMPDIR=$PWD/../tmp; f=$(mktemp); echo x > $f; sort $f > sorted; tar cf t.tar sorted
        mkdir -p a/b; mv sorted a/b/; cp -a a c; rm -r a; mkfifo pipe; (echo x > pipe &); cat pipe; ls | wc -l
        cat <<END
here
END
        if command -v script >/dev/null; then script -qec 'echo pty' /dev/null </dev/null; fi";
    let (exit, errors) = confined(&lane, script);
    assert_eq!(exit, ProcessExit::Code(0), "{errors}");
}

fn a_check_can_be_confined() {
    let lane = Lane::new();
    let request = CheckRequest {
        lane_id: lane.lane_id.clone(),
        command: "echo x > inside && ! echo x > ../outside".into(),
        directory: lane.work(),
        environment: lane.environment(),
        limit: Millis(10_000),
        log_path: lane.run_dir().join("setup.log"),
        confinement: Some(confinement(&lane)),
    };
    let run = lane.processes.run_check(&request, &lane.run_dir()).unwrap();
    assert_eq!(run.exit_code, Some(0), "{}", run.tail);
    assert!(lane.work().join("inside").exists() && !lane.folder.path().join("outside").exists());
}

/// Runs other cases again as the user `nobody`: Landlock without any capability.
fn a_normal_user_is_confined_too() {
    if !nix::unistd::geteuid().is_root() {
        println!(" (skipped: already a normal user)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(executable(), &program).unwrap();
    for case in [
        "writes_outside_are_refused",
        "signals_outside_are_refused_and_inside_are_not",
        "a_killed_keeper_hides_no_daemon",
    ] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).args(["__case", case]);
        let output = command.env("TMPDIR", folder.path()).output().unwrap();
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
