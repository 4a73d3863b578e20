//! Case 14: what linked checkouts share is compared.

use lane::app::ports::Git;
use lane::domain::worker::CheckoutMode;

use crate::world::World;

#[test]
fn case_14_each_change_of_what_is_shared_is_named() {
    let world = World::new();
    world.git_in(world.folder.path(), &["clone", "-q", "--bare", "lead", "origin.git"]);
    world.git(&["remote", "add", "origin", "../origin.git"]);
    world.git(&["fetch", "-q"]);
    world.git(&["switch", "-q", "-c", "leads"]);
    world.write("lead/a.txt", "stashed by the lead");
    world.git(&["stash", "-q"]);
    let plan = world.made(CheckoutMode::Linked);
    let before = world.git(&["rev-parse", "main"]);
    // The lead fetches meanwhile.
    world.git_in(world.folder.path(), &["clone", "-q", "origin.git", "friend"]);
    world.write("friend/f", "f");
    world.commit("friend", "f");
    world.git_in(&world.path("friend"), &["push", "-q"]);
    world.git(&["fetch", "-q"]);
    world.work(
        &plan,
        "echo x > x && git add x && git commit -qm x && git branch -q -f main HEAD && git tag v9
         git config user.email x@y && git remote add evil http://user:secret@e/ && git stash drop -q
         echo '#!/bin/sh' > $(git rev-parse --git-common-dir)/hooks/pre-push",
    );
    let taken = world.take(&plan);
    let mut seen: Vec<String> = taken.changes.shared_changes.iter().map(|c| format!("{} {}", c.what, c.name)).collect();
    let stash = seen.iter().position(|entry| entry.starts_with("stash ")).unwrap();
    seen.remove(stash);
    let expected = [
        "config user.email",
        "hook pre-push",
        "ref refs/heads/main",
        "ref refs/tags/v9",
        "remote remote.evil.fetch",
        "remote remote.evil.url",
    ];
    assert_eq!(seen, expected);
    let moved = taken.changes.shared_changes.iter().find(|change| change.name == "refs/heads/main").unwrap();
    assert_eq!(moved.before.as_deref(), Some(before.as_str()));
    assert_eq!(moved.after.as_deref(), Some(taken.head_commit.as_str()));
    assert_eq!(moved.charged_to, "lane");
    assert!(!format!("{taken:?}").contains("secret"));
}

#[test]
fn two_linked_lanes_at_once_are_unclear() {
    let world = World::new();
    let plans = [world.plan(1, CheckoutMode::Linked), world.plan(2, CheckoutMode::Linked)];
    for plan in &plans {
        world.adapter().make_checkout(plan).unwrap();
    }
    world.work(&plans[1], "git tag moved");
    for plan in &plans {
        let changes = world.take(plan).changes.shared_changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!(changes[0].charged_to, "unclear");
    }
}

#[test]
fn none_of_it_reaches_the_lead_from_a_private_clone() {
    let world = World::new();
    let plan = world.made(CheckoutMode::Clone);
    let before = (world.git(&["for-each-ref"]), std::fs::read(world.path("lead/.git/config")).unwrap());
    world.work(
        &plan,
        "git branch -q -f main HEAD; git tag -f v1; git config core.hooksPath /dev/null; git gc -q --prune=now
         echo x >> a.txt; git stash -q; git worktree prune; git remote add evil x; ! git push -q origin HEAD:main",
    );
    assert_eq!((world.git(&["for-each-ref"]), std::fs::read(world.path("lead/.git/config")).unwrap()), before);
    world.git(&["fsck"]);
}
