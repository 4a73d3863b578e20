//! Fresh checkouts: side by side, in every kind of repository, and nothing left when one fails.

use std::fs;
use std::os::unix::fs::symlink;

use lane::app::ports::Git;
use lane::domain::plan::Plan;
use lane::domain::worker::CheckoutMode;

use crate::world::{BOTH, World, base, listing};

#[test]
fn case_01_sixteen_at_once_and_no_upstream() {
    for mode in BOTH {
        let world = World::new();
        world.git_in(world.folder.path(), &["clone", "-q", "--bare", "lead", "origin.git"]);
        world.git(&["remote", "add", "origin", "../origin.git"]);
        world.git(&["fetch", "-q"]);
        world.git(&["tag", "v1"]);
        world.git(&["config", "branch.autoSetupMerge", "always"]);
        let plans: Vec<Plan> = (0..16).map(|number| world.plan_at(number, mode, "origin/main")).collect();
        std::thread::scope(|scope| {
            for plan in &plans {
                scope.spawn(|| world.adapter().make_checkout(plan).unwrap());
            }
            for _ in 0..10 {
                world.git(&["fetch", "-q"]);
            }
        });
        for plan in &plans {
            let key = format!("branch.{}.merge", plan.branch().unwrap());
            let merge = world.command(&plan.checkout_path).args(["config", &key]).output().unwrap();
            assert!(merge.stdout.is_empty(), "{mode:?}");
            let seen = world.git_in(&plan.checkout_path, &["rev-parse", "origin/main", "v1"]);
            assert_eq!(seen, format!("{0}\n{0}", base(plan)));
            let remotes = world.git_in(&plan.checkout_path, &["remote"]);
            assert_eq!(remotes, if mode == CheckoutMode::Clone { "" } else { "origin" });
            assert_eq!(world.git_in(&plan.checkout_path, &["status", "--porcelain"]), "");
        }
    }
}

#[test]
fn a_checkout_that_fails_leaves_nothing() {
    for mode in BOTH {
        let world = World::new();
        world.write("lead/.gitattributes", "*.dat filter=broken\n");
        world.write("lead/x.dat", "x");
        world.commit("lead", "data");
        world.git(&["config", "filter.broken.smudge", "false"]);
        world.git(&["config", "filter.broken.required", "true"]);
        let plan = world.plan(1, mode);
        let error = world.adapter().make_checkout(&plan).unwrap_err();
        assert!(error.message.contains("filter"), "{}", error.message);
        assert!(!plan.checkout_path.exists());
        assert_eq!(world.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main", "{mode:?}");
        assert_eq!(world.worktrees(), 1);
        world.git(&["config", "--unset", "filter.broken.required"]);
        world.adapter().make_checkout(&plan).unwrap();
        // A half-made one of an earlier try is replaced.
        fs::remove_file(plan.checkout_path.join("a.txt")).unwrap();
        world.adapter().make_checkout(&plan).unwrap();
        assert!(plan.checkout_path.join("a.txt").exists());
        // Something that is not Lane's is not.
        let other = world.plan(2, mode);
        fs::create_dir_all(&other.checkout_path).unwrap();
        assert!(world.adapter().make_checkout(&other).is_err());
        assert!(other.checkout_path.exists());
    }
}

#[test]
fn case_12_hooks() {
    for mode in BOTH {
        let world = World::new();
        world.write_hook("post-checkout", "read x; exit 1");
        world.write_hook("pre-commit", "exit 1");
        world.write_hook("reference-transaction", "exit 1");
        let plan = world.plan(1, mode);
        let made = world.adapter().make_checkout(&plan).unwrap();
        let named = made.warnings.iter().any(|warning| warning.contains("post-checkout"));
        assert_eq!(named, mode == CheckoutMode::Linked);
        fs::remove_file(world.path("lead/.git/hooks/reference-transaction")).unwrap();
        let committed = world.try_work(&plan, "echo x > x; git add x; git commit -qm x");
        assert_eq!(committed, mode == CheckoutMode::Clone);
        let taken = world.take(&plan);
        assert_eq!(taken.changes.files, 1, "{mode:?}");
        assert_eq!(taken.changes.uncommitted_saved, mode == CheckoutMode::Linked);
    }
}

#[test]
fn case_11_submodules() {
    for mode in BOTH {
        let world = World::new();
        for name in ["inner", "sub"] {
            world.git_in(world.folder.path(), &["init", "-q", "-b", "main", name]);
            world.write(&format!("{name}/f"), "f");
            world.commit(name, "f");
        }
        let url = |name: &str| world.path(name).display().to_string();
        world.git_in(&world.path("sub"), &["submodule", "add", "-q", &url("inner"), "in"]);
        world.commit("sub", "inner");
        world.git(&["submodule", "add", "-q", &url("sub"), "sub"]);
        world.commit("lead", "sub");
        let error = world.adapter().make_checkout(&world.plan(9, mode)).unwrap_err();
        assert!(error.message.contains("submodule update --init"), "{}", error.message);
        world.git(&["submodule", "update", "-q", "--init", "--recursive"]);
        for name in ["inner", "sub"] {
            fs::rename(world.path(name), world.path(&format!("{name}-gone"))).unwrap();
        }
        let plan = world.made(mode);
        assert_eq!(fs::read(plan.checkout_path.join("sub/f")).unwrap(), b"f");
        assert_eq!(fs::read(plan.checkout_path.join("sub/in/f")).unwrap(), b"f");
        assert_eq!(world.git_in(&plan.checkout_path, &["status", "--porcelain"]), "", "{mode:?}");
        let canary = world.path("canary");
        let script = "cd sub && echo g > g && git add g && git commit -qm g && echo h > h
             printf '#!/bin/sh\\ntouch CANARY\\n' > ../../evil && chmod +x ../../evil
             git config core.fsmonitor $PWD/../../evil; rm -f CANARY";
        world.work(&plan, &script.replace("CANARY", &canary.display().to_string()));
        let taken = world.take(&plan);
        let [commit] = taken.changes.submodule_commits.as_slice() else { panic!("{taken:?}") };
        assert_eq!(commit.path, "sub");
        let kept = format!("refs/lane/{}/head", plan.lane_id);
        assert_eq!(world.git_in(&world.lead().join("sub"), &["rev-parse", &kept]), commit.commit);
        world.git_in(&plan.checkout_path, &["status", "--ignore-submodules=none"]);
        assert!(!canary.exists(), "{mode:?}");
        assert_eq!(taken.changes.nested_repositories, Vec::<String>::new());
        let cleaned = world.adapter().clean(&plan, &[], false).unwrap();
        assert!(cleaned.saved_paths.contains(&"sub/h".to_owned()));
        assert_eq!(world.worktrees(), 1);
        world.adapter().restore(&plan, None).unwrap();
        assert_eq!(fs::read(plan.checkout_path.join("sub/h")).unwrap(), b"h\n");
        assert_eq!(fs::read(plan.checkout_path.join("sub/in/f")).unwrap(), b"f");
    }
}

#[test]
fn files_are_brought_along_and_never_committed() {
    for mode in BOTH {
        let world = World::new();
        world.write("lead/.worktreeinclude", "local.log\n.env\nlinks.log\nout/**\na.txt\nunignored\n");
        world.write("lead/.gitignore", "out/\n*.log\n.env\ndata/\n");
        world.commit("lead", "include");
        world.write("lead/local.log", "l");
        world.write("lead/.env", "SECRET=1");
        world.write("lead/out/deep/x", "x");
        world.write("lead/data/key.pem", "k");
        world.write("lead/unignored", "u");
        symlink("/etc/hostname", world.path("lead/links.log")).unwrap();
        let plan = world.plan(1, mode);
        let made = world.adapter().make_checkout(&plan).unwrap();
        let there = |name: &str| plan.checkout_path.join(name).symlink_metadata().is_ok();
        assert!(there("local.log") && there("out/deep/x") && !there("unignored") && !there("links.log"));
        assert!(!there(".env"), "{made:?}");
        for name in [".env", "links.log"] {
            assert!(made.warnings.iter().any(|warning| warning.contains(name)), "{name}");
        }
        world.work(&plan, "printf '' > .gitignore; echo changed > local.log; echo w > w.log");
        let taken = world.take(&plan);
        let names = world.git(&["diff", "--name-only", &base(&plan), taken.head_commit.as_str()]);
        assert_eq!(names, ".gitignore");
        let mut plan = world.plan(2, mode);
        plan.checkout_include = vec!["/data/*.pem".into(), ".env".into()];
        world.adapter().make_checkout(&plan).unwrap();
        assert_eq!(fs::read(plan.checkout_path.join(".env")).unwrap(), b"SECRET=1");
        assert_eq!(fs::read(plan.checkout_path.join("data/key.pem")).unwrap(), b"k");
        world.work(&plan, "git add -f .env && git commit -qm bad");
        assert!(world.take(&plan).warnings.iter().any(|warning| warning.contains(".env")));
    }
}

#[test]
fn other_kinds_of_repositories_work() {
    for options in [["--object-format=sha256"], ["--ref-format=reftable"]] {
        for mode in BOTH {
            let world = World::with_init(&options);
            world.git(&["tag", "v1"]);
            let plan = world.made(mode);
            world.work(&plan, "git rev-parse v1 && echo x > x && git add x && git commit -qm x && echo y > y");
            let taken = world.take(&plan);
            assert_eq!((taken.changes.commits, taken.changes.files), (2, 2), "{options:?} {mode:?}");
            assert_eq!(world.branch(&plan), taken.head_commit.as_str());
            let before = listing(&plan.checkout_path);
            world.adapter().clean(&plan, &[], false).unwrap();
            world.adapter().restore(&plan, None).unwrap();
            assert_eq!(listing(&plan.checkout_path), before);
            world.git(&["fsck"]);
        }
    }
}

#[test]
fn shallow_sparse_and_partial_repositories_work_or_say_why() {
    for mode in BOTH {
        let world = World::new();
        world.write("lead/more/m", "m");
        world.commit("lead", "second");
        fs::rename(world.path("lead"), world.path("full")).unwrap();
        world.git_in(&world.path("full"), &["config", "uploadpack.allowFilter", "true"]);
        let url = format!("file://{}", world.path("full").display());
        world.git_in(world.folder.path(), &["clone", "-q", "--depth=1", &url, "lead"]);
        let plan = world.made(mode);
        world.work(&plan, "echo x > x && git add x && git commit -qm x");
        assert_eq!(world.take(&plan).changes.commits, 1);
        world.git(&["sparse-checkout", "set", "more"]);
        let plan = world.plan(2, mode);
        world.adapter().make_checkout(&plan).unwrap();
        assert!(!plan.checkout_path.join("src").exists() && plan.checkout_path.join("more/m").exists());
        world.work(&plan, "echo x > more/x");
        let taken = world.take(&plan);
        assert_eq!((taken.changes.files, taken.changes.deletions), (1, 0), "{mode:?}");
        fs::remove_dir_all(world.path("lead")).unwrap();
        world.git_in(world.folder.path(), &["clone", "-q", "--no-checkout", "--filter=blob:none", &url, "lead"]);
        let plan = world.plan(3, mode);
        let error = world.adapter().make_checkout(&plan).unwrap_err();
        assert!(error.message.contains("partial clone"), "{}", error.message);
        world.git(&["checkout", "-q", "main"]);
        world.adapter().make_checkout(&plan).unwrap();
        world.work(&plan, "echo x > x && git add x && git commit -qm x");
        assert_eq!(world.take(&plan).changes.commits, 1, "{mode:?}");
    }
}
