//! Short questions about the lead's repository.

use lane::app::ports::{Git, Located};
use lane::domain::plan::RepositoryPlan;

use crate::world::World;

#[test]
fn locate_tells_every_place_apart() {
    let world = World::new();
    let git = world.adapter();
    let outside = tempfile::tempdir().unwrap();
    assert_eq!(git.locate(outside.path(), "HEAD").unwrap(), Located::Outside);
    assert_eq!(git.locate(&world.lead().join(".git"), "HEAD").unwrap(), Located::NoWorkTree);
    for unknown in ["nope", "--help", "-n", "", "HEAD..main", "^HEAD", "main:a.txt", "a.txt"] {
        assert_eq!(git.locate(&world.lead(), unknown).unwrap(), Located::UnknownRevision, "{unknown}");
    }
    world.git_in(world.folder.path(), &["init", "-q", "empty"]);
    assert_eq!(git.locate(&world.path("empty"), "HEAD").unwrap(), Located::NoCommit);
    world.git_in(world.folder.path(), &["init", "-q", "--bare", "bare"]);
    assert_eq!(git.locate(&world.path("bare"), "HEAD").unwrap(), Located::NoWorkTree);
    let head = world.git(&["rev-parse", "HEAD"]);
    let expected = RepositoryPlan {
        root: world.lead(),
        common_dir: world.lead().join(".git"),
        git_dir: world.lead().join(".git"),
        object_format: "sha1".into(),
        base_commit: head.parse().unwrap(),
        base_revision: "main".into(),
    };
    let inside = |lane_branch_exists| Located::Inside { repository: expected.clone(), lane_branch_exists };
    assert_eq!(git.locate(&world.lead().join("src"), "main").unwrap(), inside(false));
    world.git(&["branch", "lanes"]);
    assert_eq!(git.locate(&world.lead(), "main").unwrap(), inside(false));
    world.git(&["branch", "lane"]);
    assert_eq!(git.locate(&world.lead(), "main").unwrap(), inside(true));
    world.git(&["pack-refs", "--all"]);
    assert_eq!(git.locate(&world.lead(), "main").unwrap(), inside(true));
    assert!(git.version().unwrap().starts_with("2."));
}

#[test]
fn questions_about_the_base() {
    let world = World::new();
    let git = world.adapter();
    let repository = world.locate("HEAD");
    let ask = ["a.txt", "src", "./src/", "src/lib.rs", ".", "no", "src/no", "*.txt"].map(str::to_owned);
    assert_eq!(git.missing_in_base(&repository, &ask).unwrap(), ["no", "src/no", "*.txt"]);
    assert_eq!(git.dirty_paths(&repository).unwrap(), 0);
    world.write("lead/a.txt", "changed");
    world.write("lead/new/x", "");
    world.write("lead/out/ignored", "");
    assert_eq!(git.dirty_paths(&repository).unwrap(), 2);
}
