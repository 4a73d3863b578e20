//! Odd and long paths, closed streams, hardly any descriptors: what a caller may bring along.

use super::*;

#[test]
fn long_paths() {
    let mut bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let deep = |length: usize| {
        let mut path = bed.path();
        while path.as_os_str().len() + 101 < length {
            path.push("d".repeat(100));
        }
        path.join("e".repeat(length.saturating_sub(path.as_os_str().len() + 1).max(1)))
    };
    // Far beyond what a socket's name may have: an ordinary folder.
    let (far, too_far) = (deep(400), deep(4050));
    let too_long_name = bed.path().join("n".repeat(300));
    bed.set("LANE_STATE", &far);
    let started = bed.lane(&words(&arguments)).expect_code(0);
    assert_eq!(bed.wait(&started.lane_id()).expect_code(0).status(), "ok");
    bed.lane(&["clean", &started.lane_id()]).expect_code(0);
    bed.set("LANE_STATE", &too_far);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
    assert_refused(bed.lane(&["status"]), "usage_error", 2, "too long");
    bed.set("LANE_STATE", &too_long_name);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
    bed.unset("LANE_STATE");
    bed.set("HOME", &too_far);
    assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, "too long");
}

#[test]
fn odd_paths() {
    let mut bed = TestBed::new();
    let repository = bed.repository("a 'project' \"of\" $mine;\t");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    bed.set("LANE_STATE", bed.path().join("st ate '\"$(x)\t\u{e9}"));
    let mut run = words(&arguments);
    run.extend(["--holdout", "test -f new.txt", "--protect", "README.md"]);
    for profile in ["implement", "opus"] {
        run[2] = profile;
        let started = bed.lane(&run).expect_code(0);
        let ended = bed.wait(&started.lane_id()).expect_code(0);
        assert_eq!(ended.json["accepted"], json!(true), "{:#}", ended.json);
        bed.lane(&["clean", &started.lane_id()]).expect_code(0);
    }
    let odd = bed.path().join(std::ffi::OsStr::from_bytes(b"st\xffate"));
    for name in ["LANE_STATE", "LANE_WORKTREE_ROOT", "LANE_CODEX_HOME", "LANE_MAX_CONCURRENT"] {
        let mut bed = TestBed::new();
        let repository = bed.repository("project");
        bed.set(name, &odd);
        let arguments = run_arguments(&bed, &repository, COMMITS);
        assert_refused(bed.lane(&words(&arguments)), "usage_error", 2, name);
        assert!(left_behind(&bed).is_empty());
    }
    assert!(!odd.exists());
    // A repository whose name is no text, or has a line feed.
    for (name, says) in [(b"r\xffepo", "UTF-8"), (b"r\nepo", "line feed")] {
        let repository = bed.repository("plain");
        let moved = bed.path().join(std::ffi::OsStr::from_bytes(name));
        fs::rename(repository.path(), &moved).unwrap();
        let answer = ask(&bed, &["run", "--profile", "implement", "--task", "x", "--cwd"], |command| {
            command.arg(&moved);
        });
        assert_refused(answer, "usage_error", 2, says);
    }
}

#[test]
fn closed_streams() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let out = bed.path().join("out");
    for (number, closing) in ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"].into_iter().enumerate() {
        let mut command = bed.command("sh", &bed.path());
        let keeps_stdout = !closing.contains(">&-") || closing.replace("2>&-", "").trim() == "<&-" || closing == "2>&-";
        let script = if keeps_stdout {
            format!("exec \"$@\" >'{}' {closing}", out.display())
        } else {
            format!("exec \"$@\" {closing}")
        };
        command.args(["-c", &script, "sh"]).arg(lane_program()).args(&arguments);
        assert_eq!(command.status().unwrap().code(), Some(0), "{closing}");
        let listed = bed.lane(&["status", "--all"]).expect_code(0);
        let lanes = listed.json["lanes"].as_array().unwrap();
        assert_eq!(lanes.len(), number + 1, "{closing}: {:#}", listed.json);
        let lane_id = lanes[0]["lane_id"].as_str().unwrap().to_owned();
        if keeps_stdout {
            let line: Value = serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
            assert_eq!(line["lane_id"], lane_id.as_str(), "{closing}");
        }
        let ended = bed.wait(&lane_id).expect_code(0);
        assert_eq!(ended.status(), "ok", "{closing}: {:#}", ended.json);
        // Nothing that was meant for a closed stream has landed in a file of Lane's own.
        for entry in fs::read_dir(bed.run_dir(&lane_id)).unwrap().flatten() {
            let text = fs::read(entry.path()).unwrap_or_default();
            let is_result = entry.file_name() == "result.json";
            let holds_start = String::from_utf8_lossy(&text).contains("\"status\":\"started\"");
            assert!(!holds_start || is_result, "{closing}: {}", entry.path().display());
        }
        assert_eq!(health_of(&bed.lane(&["doctor"]), "ledger"), "ok", "{closing}");
    }
}

#[test]
fn few_descriptors() {
    let bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let mut told = Vec::new();
    for limit in (8..28).step_by(2) {
        let mut command = bed.command("sh", &bed.path());
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$@\""), "sh"]).arg(lane_program()).args(&arguments);
        let answer = bed.answer_of(command, &["run"]);
        if answer.code == 0 {
            told.push(answer.lane_id());
        } else {
            assert!(!answer.text("hint").is_empty(), "{limit}: {:#}", answer.json);
        }
        // What the caller was told has failed is not taken up by the next command, which has enough.
        for lane in bed.lane(&["status", "--all"]).json["lanes"].as_array().unwrap() {
            let lane_id = lane["lane_id"].as_str().unwrap().to_owned();
            if !told.contains(&lane_id) {
                let ended = bed.wait(&lane_id);
                assert!(["cancelled", "error"].contains(&ended.status()), "{limit}: {:#}", ended.json);
            }
        }
    }
    told.iter().for_each(|lane_id| assert_ne!(bed.wait(lane_id).code, 3));
    assert_eq!(bed.lane(&["status"]).json["running"], json!(0));
    assert!(!told.is_empty());
}

#[test]
fn the_state_folder_is_no_folder() {
    let mut bed = TestBed::new();
    let repository = bed.repository("project");
    let arguments = run_arguments(&bed, &repository, COMMITS);
    let (file, link) = (bed.path().join("file"), bed.path().join("link"));
    fs::write(&file, "not yours").unwrap();
    std::os::unix::fs::symlink(bed.path().join("nowhere"), &link).unwrap();
    for place in [file.clone(), file.join("below"), PathBuf::from("/dev/null"), link] {
        bed.set("LANE_STATE", &place);
        for command in [words(&arguments), vec!["status"], vec!["doctor"]] {
            assert_refused(bed.lane(&command), "usage_error", 2, "LANE_STATE");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "not yours");
    let nothing = bed.state();
    bed.set("LANE_STATE", &nothing);
    fs::create_dir(nothing.join("config.toml")).unwrap();
    assert_refused(bed.lane(&["status"]), "bad_config", 2, "config.toml");
    fs::remove_dir(nothing.join("config.toml")).unwrap();
    fs::write(nothing.join("config.toml"), b"max_concurrent = 4 # \xff\n").unwrap();
    assert_refused(bed.lane(&["status"]), "bad_config", 2, "config.toml");
}
