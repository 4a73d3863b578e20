//! What a worker left comes back as a branch, refs and facts.

use std::fs;

use lane::app::ports::Git;
use lane::domain::worker::CheckoutMode;

use crate::world::{BOTH, World, base};

#[test]
fn a_plain_commit_arrives_on_the_lanes_branch() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        world.work(&plan, "echo three >> a.txt && echo x > new && git add -A && git commit -qm work");
        let head = world.git_in(&plan.checkout_path, &["rev-parse", "HEAD"]);
        let taken = world.take(&plan);
        assert_eq!(taken.head_commit.as_str(), head, "{mode:?}");
        assert_eq!(world.branch(&plan), head);
        let changes = &taken.changes;
        assert_eq!((changes.commits, changes.files, changes.insertions, changes.deletions), (1, 2, 2, 0));
        assert!(!changes.uncommitted_saved && !changes.detached && changes.kept_refs.is_empty());
        assert_eq!(taken.warnings, Vec::<String>::new());
        let diff = String::from_utf8(world.adapter().diff(&plan, false).unwrap()).unwrap();
        assert!(diff.contains("+three") && diff.contains("b/new"), "{diff}");
        assert_eq!(world.git_in(&plan.checkout_path, &["status", "--porcelain"]), "");
        let on = world.git_in(&plan.checkout_path, &["symbolic-ref", "HEAD"]);
        assert_eq!(on, format!("refs/heads/{}", plan.branch().unwrap()));
        assert_eq!(world.git(&["log", "-1", "--format=%an <%ae>", &head]), "Lead <lead@example.com>");
        world.git(&["fsck", "--strict"]);
    }
}

#[test]
fn what_was_left_uncommitted_becomes_lanes_own_commit() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        // The worker's own rules must not hide its files.
        world.work(
            &plan,
            "printf 'hidden\\n' > .gitignore; echo h > hidden; echo c > a.txt; rm src/lib.rs; mkdir out d;
             echo r > out/result.txt; ln -s a.txt link; echo s > d/run.sh; chmod +x d/run.sh; mkfifo pipe",
        );
        let taken = world.take(&plan);
        assert!(taken.changes.uncommitted_saved);
        assert_eq!(taken.changes.commits, 1);
        let head = taken.head_commit.as_str();
        assert_eq!(world.branch(&plan), head);
        let about = world.git(&["log", "-1", "--format=%an %ae %s", head]);
        assert_eq!(about, "Lane lane@localhost lane: save what the worker left uncommitted");
        let names = world.git(&["diff", "--name-status", &base(&plan), head]);
        assert_eq!(names, "M\t.gitignore\nM\ta.txt\nA\td/run.sh\nA\thidden\nA\tlink\nD\tsrc/lib.rs", "{mode:?}");
        assert!(world.git(&["ls-tree", head, "d/run.sh"]).starts_with("100755"));
    }
}

#[test]
fn a_file_and_a_folder_may_change_places() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(&plan, "rm a.txt && mkdir a.txt && echo x > a.txt/x && rm -r src && echo y > src");
    let taken = world.take(&plan);
    let names = world.git(&["diff", "--name-status", "--no-renames", &base(&plan), taken.head_commit.as_str()]);
    assert_eq!(names, "D\ta.txt\nA\ta.txt/x\nA\tsrc\nD\tsrc/lib.rs");
}

#[test]
fn a_detached_head_is_kept_and_named() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        world.work(&plan, "git checkout -q --detach && echo 1 > x && git add x && git commit -qm x && echo 2 > y");
        let head = world.git_in(&plan.checkout_path, &["rev-parse", "HEAD"]);
        let taken = world.take(&plan);
        assert_eq!(taken.head_commit.as_str(), head);
        assert!(taken.changes.detached && taken.changes.uncommitted_saved);
        assert_eq!((taken.changes.commits, taken.changes.files), (1, 2));
        assert_eq!(world.branch(&plan), base(&plan));
        let name = |end: &str| format!("refs/lane/{}/{end}", plan.lane_id);
        assert_eq!(taken.changes.kept_refs, [name("head"), name("uncommitted")]);
        world.adapter().clean(&plan, &[], false).unwrap();
        assert_eq!(world.git(&["rev-parse", &name("head")]), head);
        assert_eq!(world.git(&["show", &format!("{}:y", name("uncommitted"))]), "2");
    }
}

#[test]
fn another_branch_tags_and_stashes_are_kept() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(
        &plan,
        "git switch -q -c other && echo 1 > x && git add x && git commit -qm x && git tag -a -m t mine
         echo 2 >> a.txt && git stash -q && echo 3 >> a.txt && git stash -q && git branch -q third HEAD~1",
    );
    let taken = world.take(&plan);
    let names: Vec<&str> = taken.changes.other_branches.iter().map(|branch| branch.name.as_str()).collect();
    assert_eq!(names, ["other", "third"]);
    assert!(!taken.changes.detached);
    let id = &plan.lane_id;
    let kept = ["branches/other", "branches/third", "stash/0", "stash/1", "tags/mine", "head"];
    assert_eq!(taken.changes.kept_refs, kept.map(|name| format!("refs/lane/{id}/{name}")));
    assert!(world.git(&["show", &format!("refs/lane/{id}/stash/1:a.txt")]).ends_with('2'));
    assert!(world.git(&["show", &format!("refs/lane/{id}/stash/0:a.txt")]).ends_with('3'));
    assert_eq!(world.git(&["cat-file", "-t", &format!("refs/lane/{id}/tags/mine")]), "tag");
    world.git(&["gc", "-q", "--prune=now"]);
    world.git(&["fsck"]);
}

#[test]
fn an_unfinished_rebase_is_named_and_nothing_is_lost() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        let script = "echo l > a.txt && git commit -qam l && git branch mine && git reset -q --hard HEAD~1
                      echo r > a.txt && git commit -qam r && ! git rebase -q mine";
        world.work(&plan, script);
        let tip = world.git_in(&plan.checkout_path, &["rev-parse", &plan.branch().unwrap()]);
        let head = world.git_in(&plan.checkout_path, &["rev-parse", "HEAD"]);
        let taken = world.take(&plan);
        assert_eq!(taken.changes.operation_in_progress.as_deref(), Some("rebase"));
        assert_eq!(taken.head_commit.as_str(), head);
        assert_eq!(world.branch(&plan), tip, "{mode:?}");
        let shown = world.git(&["show", &format!("refs/lane/{}/uncommitted:a.txt", plan.lane_id)]);
        assert!(shown.contains("<<<<<<<"), "{shown}");
    }
}

#[test]
fn nothing_changed_and_a_revert_are_seen() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    let taken = world.take(&plan);
    assert_eq!((taken.changes.commits, taken.changes.files), (0, 0));
    assert_eq!(taken.head_commit.as_str(), base(&plan));
    let plan = world.plan(2, CheckoutMode::Clone);
    world.adapter().make_checkout(&plan).unwrap();
    world.work(
        &plan,
        "echo x > x && git add x && git commit -qm x && git revert --no-edit HEAD && git commit -q --allow-empty -m e",
    );
    let taken = world.take(&plan);
    assert_eq!((taken.changes.commits, taken.changes.files, taken.changes.insertions), (3, 0, 0));
    assert_eq!(taken.changes.paths_outside_owned, None);
}

#[test]
fn paths_outside_the_owned_ones_are_named() {
    let world = World::new();
    let mut plan = world.plan(1, CheckoutMode::Clone);
    plan.owned_paths = Some(vec!["src/".into()]);
    world.adapter().make_checkout(&plan).unwrap();
    world.work(&plan, "echo x > src/x && echo x > other");
    assert_eq!(world.take(&plan).changes.paths_outside_owned, Some(vec!["other".to_owned()]));
}

#[test]
fn a_lane_in_place_moves_nothing() {
    let world = World::new();
    let plan = world.plan(1, CheckoutMode::None);
    world.write("lead/n", "n\n");
    world.commit("lead", "n");
    world.write("lead/a.txt", "one\n");
    world.write("lead/.git/index.lock", "");
    let taken = world.take(&plan);
    assert_eq!((taken.changes.commits, taken.changes.files), (1, 2));
    assert_eq!((taken.changes.insertions, taken.changes.deletions), (1, 1));
    assert!(!taken.changes.uncommitted_saved);
    assert!(world.path("lead/.git/index.lock").exists());
    assert_eq!(fs::read_to_string(world.path("lead/a.txt")).unwrap(), "one\n");
    let diff = String::from_utf8(world.adapter().diff(&plan, false).unwrap()).unwrap();
    assert!(diff.contains("-two"), "{diff}");
}

#[test]
fn taking_over_survives_a_crash_anywhere() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        world.work(&plan, "echo x > x && git add x && git commit -qm x && echo y > y");
        let first = world.adapter().take_over(&plan).unwrap();
        // As if the machine had stopped just before the answer was noted.
        fs::remove_file(plan.run_dir.join("taken-over.json")).unwrap();
        assert_eq!(world.adapter().take_over(&plan).unwrap(), first, "{mode:?}");
        if mode == CheckoutMode::Clone {
            // Just after the worker's folder was moved.
            fs::remove_file(plan.run_dir.join("taken-over.json")).unwrap();
            fs::remove_dir_all(plan.checkout_path.join(".git")).unwrap();
            world.git(&["update-ref", "-d", &format!("refs/heads/{}", plan.branch().unwrap())]);
            assert_eq!(world.adapter().take_over(&plan).unwrap(), first);
        }
    }
}

#[test]
fn the_run_folder_may_be_on_another_file_system() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new();
    let device = |path: &std::path::Path| path.metadata().map(|metadata| metadata.dev()).ok();
    let other = std::path::Path::new("/dev/shm");
    if device(other).is_none() || device(other) == device(world.folder.path()) {
        eprintln!("skipped: /dev/shm is no other file system");
        return;
    }
    let elsewhere = tempfile::tempdir_in(other).unwrap();
    let mut plan = world.plan(1, CheckoutMode::Clone);
    plan.checkout_path = elsewhere.path().join("checkout");
    world.adapter().make_checkout(&plan).unwrap();
    world.work(&plan, "echo x > x && git add x && git commit -qm x && echo y > y && mkfifo .git/pipe");
    let taken = world.take(&plan);
    assert_eq!((taken.changes.commits, taken.changes.files), (2, 2));
    assert!(plan.run_dir.join("worker-git/HEAD").exists());
    let names = fs::read_dir(elsewhere.path()).unwrap().flatten().map(|entry| entry.file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["checkout"]);
}
