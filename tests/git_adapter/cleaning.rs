//! Cleaning saves first, and restoring brings the same bytes back.

use std::fs;

use lane::app::ports::Git;
use lane::domain::worker::CheckoutMode;

use crate::world::{BOTH, World, listing};

#[test]
fn case_02_cleaning_saves_first() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(
        &plan,
        "echo c >> a.txt; echo n > new.txt; mkdir -p out target/deep empty/inner; echo r > out/result.txt
         echo o > target/deep/o.log; chmod 600 src/lib.rs; chmod 700 src; ln -s /nowhere out/link; chmod 4755 new.txt
         printf 'a\\0b' > 'out/odd name
line'",
    );
    world.take(&plan);
    // After the take-over a check command changed things.
    world.work(&plan, "rm a.txt; echo later > later.txt; chmod 640 out/result.txt");
    let before = listing(&plan.checkout_path);
    let rebuildable = ["target".to_owned()];
    let dry = world.adapter().clean(&plan, &rebuildable, true).unwrap();
    assert_eq!(listing(&plan.checkout_path), before);
    let cleaned = world.adapter().clean(&plan, &rebuildable, false).unwrap();
    assert_eq!(cleaned, dry, "a dry run lists exactly what a real run does");
    let saved = ["empty/inner", "later.txt", "out/link", "out/odd name\nline", "out/result.txt"];
    assert_eq!(cleaned.saved_paths, saved);
    assert_eq!(cleaned.left_out.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["target"]);
    assert!(!plan.checkout_path.exists());
    assert_eq!(world.git(&["for-each-ref", "--format=%(refname)", "refs/lane"]), "");
    let restored = world.adapter().restore(&plan, None).unwrap();
    assert_eq!(restored.files, 4);
    let mut expected = before;
    expected.retain(|path, _| !path.starts_with("target"));
    assert_eq!(listing(&plan.checkout_path), expected);
    assert!(world.adapter().restore(&plan, None).is_err(), "nothing is overwritten");
    let elsewhere = world.path("elsewhere");
    world.adapter().restore(&plan, Some(&elsewhere)).unwrap();
    assert_eq!(listing(&elsewhere), expected);
    // And once more.
    world.adapter().clean(&plan, &[], false).unwrap();
    assert!(!world.adapter().clean(&plan, &[], false).unwrap().existed);
}

#[test]
fn a_checkout_that_cannot_be_saved_stays() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.work(&plan, "mkdir out; echo r > out/r");
    world.take(&plan);
    // A folder where the archive is written makes saving fail, for root too.
    fs::create_dir_all(plan.run_dir.join("saved.tar/in the way")).unwrap();
    assert!(world.adapter().clean(&plan, &[], false).is_err());
    assert!(plan.checkout_path.join("out/r").exists());
}

#[test]
fn case_03_a_nested_repository_is_named_and_saved() {
    for mode in BOTH {
        let world = World::new();
        let plan = world.made(mode);
        world.work(
            &plan,
            "mkdir sub && cd sub && git init -q && echo hi > f && git add f && git commit -q --no-gpg-sign -m x && cd ..
             git add -A 2>/dev/null && git commit -qm done && cp -r sub loose",
        );
        let taken = world.take(&plan);
        assert_eq!(taken.changes.nested_repositories, ["sub", "loose"], "{mode:?}");
        let before = listing(&plan.checkout_path);
        let cleaned = world.adapter().clean(&plan, &[], false).unwrap();
        assert!(cleaned.saved_paths.contains(&"sub/f".to_owned()), "{:?}", cleaned.saved_paths);
        assert!(!plan.checkout_path.exists());
        world.adapter().restore(&plan, None).unwrap();
        assert_eq!(listing(&plan.checkout_path), before);
        assert_eq!(world.git_in(&plan.checkout_path.join("loose"), &["log", "--format=%s"]), "x");
    }
}

#[test]
fn linked_cleaning_leaves_no_entry() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Linked);
    world.work(&plan, "echo x > x");
    world.take(&plan);
    world.adapter().clean(&plan, &[], false).unwrap();
    assert_eq!(world.worktrees(), 1);
    assert_eq!(world.git(&["show", &format!("{}:x", world.branch(&plan))]), "x");
    assert_eq!(world.git(&["status", "--porcelain"]), "");
}

#[test]
fn what_was_set_aside_is_deleted_in_the_background() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    world.take(&plan);
    world.adapter().clean(&plan, &[], false).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while fs::read_dir(world.path("checkouts")).unwrap().next().is_some() {
        assert!(std::time::Instant::now() < deadline, "the files are still there");
        std::thread::yield_now();
    }
}
