//! A worker's git folder is hostile: nothing of it runs, nothing of it is followed.

use std::fs;

use lane::app::ports::Git;
use lane::domain::worker::CheckoutMode;

use crate::world::{World, listing};

/// Plants every command that git could be talked into running. `CANARY` is what each would touch.
const PLANT: &str = r#"
echo x > x && git add x && git commit -qm x
mkdir evil
for h in pre-commit post-checkout post-index-change reference-transaction post-rewrite post-commit fsmonitor; do
    printf '#!/bin/sh\ntouch CANARY\n' > evil/$h; chmod +x evil/$h
done
cp evil/* .git/hooks/
git config core.hooksPath $PWD/evil
git config core.fsmonitor $PWD/evil/fsmonitor
git config filter.evil.clean 'touch CANARY; cat'
git config filter.evil.smudge 'touch CANARY; cat'
git config diff.evil.textconv 'touch CANARY; cat'
git config diff.external 'touch CANARY'
git config core.pager 'touch CANARY'
git config core.alternateRefsCommand 'touch CANARY'
git config gpg.program $PWD/evil/fsmonitor
git config commit.gpgSign true
printf '* filter=evil diff=evil\n' > .gitattributes
echo left > left
mkdir nested && cd nested && git init -q && git commit -q --no-gpg-sign --allow-empty -m n
git config core.fsmonitor $PWD/../evil/fsmonitor
git config filter.evil.clean 'touch CANARY; cat'
echo n > n; cd ..
secret=$PWD/../../home/.gitconfig
mkdir -p .git/objects/aa && ln -s $secret .git/objects/aa/00000000000000000000000000000000000000
mkfifo .git/objects/aa/11111111111111111111111111111111111111 .git/objects/pack/pack-x.pack .git/refs/heads/fifo
ln -s $secret .git/objects/pack/pack-y.pack
ln -s $secret .git/refs/heads/link
echo garbage > .git/objects/pack/pack-z.pack
echo /nowhere > .git/objects/info/alternates
rm -f CANARY
"#;

#[test]
fn nothing_of_a_hostile_git_folder_runs_or_is_followed() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    let canary = world.path("canary");
    world.work(&plan, &PLANT.replace("CANARY", &canary.display().to_string()));
    let taken = world.take(&plan);
    assert_eq!(taken.changes.commits, 2, "{taken:?}");
    assert!(taken.changes.uncommitted_saved);
    assert_eq!(taken.changes.nested_repositories, ["nested"]);
    assert_eq!(taken.changes.other_branches, []);
    world.adapter().diff(&plan, false).unwrap();
    assert!(!canary.exists(), "taking over");
    // What runs there afterwards finds Lane's own git folder.
    world.git_in(&plan.checkout_path, &["status"]);
    world.git_in(&plan.checkout_path, &["diff", "--stat", "HEAD~1"]);
    assert!(!canary.exists(), "a check command");
    let before = listing(&plan.checkout_path);
    world.adapter().clean(&plan, &[], false).unwrap();
    world.adapter().restore(&plan, None).unwrap();
    assert_eq!(listing(&plan.checkout_path), before);
    assert!(!canary.exists(), "cleaning");
    world.git(&["fsck"]);
}

#[test]
fn a_pointer_to_a_hostile_repository_is_never_entered() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    let canary = world.path("canary");
    let script = "mkdir n && cd n && git init -q && git commit -q --no-gpg-sign --allow-empty -m n && cd ..
        git add n 2>/dev/null && git commit -qm pointer
        printf '#!/bin/sh\\ntouch CANARY\\n' > ../evil && chmod +x ../evil && git -C n config core.fsmonitor $PWD/../evil
        echo x > n/x; rm -f CANARY";
    world.work(&plan, &script.replace("CANARY", &canary.display().to_string()));
    let taken = world.take(&plan);
    assert_eq!(taken.changes.nested_repositories, ["n"]);
    world.git_in(&plan.checkout_path, &["status"]);
    world.git_in(&plan.checkout_path, &["diff"]);
    assert!(!canary.exists());
}

#[test]
fn a_git_folder_that_is_elsewhere_or_gone_loses_no_files() {
    for script in [
        "mv .git ../stolen && echo \"gitdir: $PWD/../stolen\" > .git",
        "mv .git ../stolen && ln -s ../stolen .git",
        "rm -rf .git",
        "rm .git/HEAD && ln -s ../a.txt .git/HEAD",
        "mkfifo .git/fifo; rm .git/HEAD; mkfifo .git/HEAD",
        "git refs migrate --ref-format=reftable",
        "rm -rf .git/objects && ln -s /tmp .git/objects",
    ] {
        let world = World::new();
        let plan = world.made(CheckoutMode::Clone);
        world.work(&plan, &format!("echo x > x; {script}"));
        let taken = world.take(&plan);
        assert!(taken.changes.uncommitted_saved, "{script}");
        assert_eq!(taken.changes.files, 1, "{script}");
        let tip = taken.changes.kept_refs.first().cloned().unwrap_or_else(|| world.branch(&plan));
        assert_eq!(world.git(&["show", &format!("{tip}:x")]), "x", "{script}");
        assert!(plan.checkout_path.join(".git/HEAD").symlink_metadata().unwrap().is_file());
    }
}

#[test]
fn missing_objects_are_an_error_and_the_work_stays() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(
        &plan,
        "echo x > x && git add x && git commit -qm x && rm -f .git/objects/$(git rev-parse HEAD:x | sed 's,^..,&/,')",
    );
    let error = world.adapter().take_over(&plan).unwrap_err();
    assert!(error.message.contains("worker's"), "{}", error.message);
    assert!(plan.run_dir.join("worker-git/HEAD").exists());
    assert!(plan.checkout_path.join("x").exists());
    assert_eq!(world.git(&["for-each-ref", "refs/heads", "--format=%(refname)"]), "refs/heads/main");
    let objects = fs::read_dir(world.path("lead/.git/objects")).unwrap();
    assert!(objects.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with("tmp_")));
    // Cleaning still saves every byte, the worker's git folder stays in the run folder.
    let before = listing(&plan.checkout_path);
    world.adapter().clean(&plan, &[], false).unwrap();
    assert!(!plan.checkout_path.exists());
    world.adapter().restore(&plan, None).unwrap();
    assert_eq!(listing(&plan.checkout_path), before);
}

#[test]
fn an_object_that_is_not_what_its_name_says_is_refused() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(
        &plan,
        "echo x > x && git add x && git commit -qm x
         fake=$(echo evil | git hash-object -w --stdin | sed 's,^..,&/,')
         real=$(git rev-parse HEAD:x | sed 's,^..,&/,')
         rm -f .git/objects/$real && cp .git/objects/$fake .git/objects/$real",
    );
    assert!(world.adapter().take_over(&plan).is_err());
}
