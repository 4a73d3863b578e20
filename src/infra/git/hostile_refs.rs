//! Reads the refs of a worker's git folder as files. No git process ever starts in there.
//!
//! Links are not followed, every file and every count is bounded, and only well-formed names and
//! object ids are believed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::files;

/// The most bytes of a loose ref or of HEAD.
const REF_LIMIT_BYTES: u64 = 4096;

/// The most bytes of `packed-refs` or of a reflog.
const LIST_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

/// The most refs that are looked at.
const MOST_REFS: usize = 100_000;

/// Where a worker's HEAD stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// On a branch (short name); its commit, or `None` when the branch has none.
    Branch(String, Option<String>),
    /// At a commit, on no branch.
    Detached(String),
    /// It cannot be read, and why.
    Unreadable(String),
}

/// What a worker's git folder says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WorkerState {
    /// Where HEAD stands.
    pub(super) head: Head,
    /// Branches by short name.
    pub(super) branches: BTreeMap<String, String>,
    /// Tags by short name.
    pub(super) tags: BTreeMap<String, String>,
    /// Stashes, newest first.
    pub(super) stashes: Vec<String>,
    /// All other refs but those of remotes, by the name after `refs/`, and where worktrees of the
    /// worker's own stand.
    pub(super) others: BTreeMap<String, String>,
    /// What refs point at whose names no ref of Lane's can have.
    pub(super) nameless: BTreeSet<String>,
    /// What was left unfinished.
    pub(super) operation: Option<String>,
}

/// Reads the git folder of a worker. `hex` is the length of an object id (40 or 64).
pub(super) fn read(git_dir: &Path, hex: usize) -> WorkerState {
    let mut state = WorkerState {
        head: Head::Unreadable("the checkout's git folder is not there".into()),
        branches: BTreeMap::new(),
        tags: BTreeMap::new(),
        stashes: Vec::new(),
        others: BTreeMap::new(),
        nameless: BTreeSet::new(),
        operation: None,
    };
    if !files::is_directory(git_dir) {
        return state;
    }
    if files::exists(&git_dir.join("reftable")) {
        state.head = Head::Unreadable("the checkout's refs were turned into another format".into());
        return state;
    }
    let refs = all_refs(git_dir, hex, &mut state.nameless);
    for (name, id) in &refs {
        if let Some(branch) = name.strip_prefix("refs/heads/") {
            state.branches.insert(branch.to_owned(), id.clone());
        } else if let Some(tag) = name.strip_prefix("refs/tags/") {
            state.tags.insert(tag.to_owned(), id.clone());
        } else if let Some(other) = name.strip_prefix("refs/")
            && !other.starts_with("remotes/")
            && other != "stash"
        {
            state.others.insert(other.to_owned(), id.clone());
        }
    }
    state.nameless.extend(worktree_heads(git_dir, hex));
    state.head = head(git_dir, hex, &refs);
    state.stashes = stashes(git_dir, hex, &refs);
    state.operation = operation(git_dir);
    state
}

/// Where HEAD of a git folder stands, for a submodule.
pub(super) fn head_commit(git_dir: &Path, hex: usize) -> Option<String> {
    match read(git_dir, hex).head {
        Head::Branch(_, commit) => commit,
        Head::Detached(commit) => Some(commit),
        Head::Unreadable(_) => None,
    }
}

fn head(git_dir: &Path, hex: usize, refs: &BTreeMap<String, String>) -> Head {
    let Some(text) = files::read_plain_text(&git_dir.join("HEAD"), REF_LIMIT_BYTES) else {
        return Head::Unreadable("the checkout's HEAD is no plain file".into());
    };
    let text = text.trim();
    if is_id(text, hex) {
        return Head::Detached(text.to_owned());
    }
    let target = text.strip_prefix("ref:").map(str::trim);
    match target.and_then(|name| name.strip_prefix("refs/heads/")).filter(|branch| is_ref_name(branch)) {
        Some(branch) => Head::Branch(branch.to_owned(), refs.get(&format!("refs/heads/{branch}")).cloned()),
        None => Head::Unreadable("the checkout's HEAD names neither a branch nor a commit".into()),
    }
}

/// Where the worktrees stand that the worker made of its own clone, where that is on no branch.
fn worktree_heads(git_dir: &Path, hex: usize) -> Vec<String> {
    let folder = git_dir.join("worktrees");
    if !files::is_directory(&folder) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_REFS);
    let heads = entries.filter_map(|entry| files::read_plain_text(&entry.path().join("HEAD"), REF_LIMIT_BYTES));
    heads.map(|text| text.trim().to_owned()).filter(|text| is_id(text, hex)).collect()
}

/// Every ref with a good name; the objects of the others go into `nameless`.
fn all_refs(git_dir: &Path, hex: usize, nameless: &mut BTreeSet<String>) -> BTreeMap<String, String> {
    let mut refs = BTreeMap::new();
    let packed = files::read_plain(&git_dir.join("packed-refs"), LIST_LIMIT_BYTES).unwrap_or_default();
    for line in String::from_utf8_lossy(&packed).lines().take(MOST_REFS) {
        if let Some((id, name)) = line.split_once(' ')
            && is_id(id, hex)
        {
            if is_ref_name(name) && !name.contains('\u{fffd}') {
                refs.insert(name.to_owned(), id.to_owned());
            } else {
                nameless.insert(id.to_owned());
            }
        }
    }
    // Loose refs win over packed ones.
    let loose = walkdir::WalkDir::new(git_dir.join("refs")).follow_links(false).follow_root_links(false).max_depth(32);
    for entry in loose.into_iter().flatten().filter(|entry| entry.file_type().is_file()).take(MOST_REFS) {
        let name = entry.path().strip_prefix(git_dir).ok().and_then(Path::to_str);
        let text = files::read_plain_text(entry.path(), REF_LIMIT_BYTES);
        let Some(id) = text.as_deref().map(str::trim).filter(|text| is_id(text, hex)) else { continue };
        match name.filter(|name| is_ref_name(name)) {
            Some(name) => drop(refs.insert(name.to_owned(), id.to_owned())),
            None => drop(nameless.insert(id.to_owned())),
        }
    }
    refs
}

/// The stash is a ref and its reflog; the newest entry is the ref itself.
fn stashes(git_dir: &Path, hex: usize, refs: &BTreeMap<String, String>) -> Vec<String> {
    let mut found: Vec<String> = refs.get("refs/stash").cloned().into_iter().collect();
    let log = files::read_plain(&git_dir.join("logs/refs/stash"), LIST_LIMIT_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = text.lines().take(MOST_REFS).collect();
    for line in lines.iter().rev() {
        let id = line.split(' ').nth(1).unwrap_or_default();
        if is_id(id, hex) && !found.iter().any(|known| known == id) {
            found.push(id.to_owned());
        }
    }
    if refs.contains_key("refs/stash") { found } else { Vec::new() }
}

/// What git would call an operation in progress, by the files that it leaves.
pub(super) fn operation(git_dir: &Path) -> Option<String> {
    let marks = [
        ("rebase-apply/applying", "am"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
        ("sequencer", "cherry-pick"),
    ];
    marks.iter().find(|(file, _)| files::exists(&git_dir.join(file))).map(|(_, name)| (*name).to_owned())
}

fn is_id(text: &str, hex: usize) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    text.len() == hex && digits && text.bytes().any(|byte| byte != b'0')
}

/// Whether a text is a ref name that git would accept; a little stricter than git itself.
pub(super) fn is_ref_name(name: &str) -> bool {
    let bad = |c: char| c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    let part_is_good =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock") && part.len() <= 200;
    name.len() <= 1000
        && !name.contains(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && !name.starts_with('-')
        && name.split('/').all(part_is_good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "1111111111111111111111111111111111111111";
    const OTHER: &str = "2222222222222222222222222222222222222222";

    fn folder(content: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in content {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn loose_refs_win_over_packed_ones() {
        let packed = format!("# pack-refs with: peeled\n{ID} refs/heads/a\n{ID} refs/heads/b\n^{ID}\n");
        let folder = folder(&[
            ("HEAD", "ref: refs/heads/a\n"),
            ("packed-refs", &packed),
            ("refs/heads/a", OTHER),
            ("refs/heads/bad", "ref: refs/heads/a"),
        ]);
        let state = read(folder.path(), 40);
        assert_eq!(state.head, Head::Branch("a".into(), Some(OTHER.into())));
        let branches: Vec<_> = state.branches.into_iter().collect();
        assert_eq!(branches, [("a".to_owned(), OTHER.to_owned()), ("b".to_owned(), ID.to_owned())]);
    }

    #[test]
    fn links_are_not_followed() {
        let folder = folder(&[("elsewhere/HEAD", ID), ("elsewhere/x", ID), ("git/refs/heads/y", OTHER)]);
        let git = folder.path().join("git");
        std::os::unix::fs::symlink("../elsewhere/HEAD", git.join("HEAD")).unwrap();
        std::os::unix::fs::symlink("../../../elsewhere/x", git.join("refs/heads/x")).unwrap();
        std::os::unix::fs::symlink("../../elsewhere", git.join("refs/tags")).unwrap();
        let state = read(&git, 40);
        assert!(matches!(state.head, Head::Unreadable(_)));
        assert_eq!(state.branches.keys().collect::<Vec<_>>(), ["y"]);
        assert!(state.tags.is_empty());
    }

    #[test]
    fn unfinished_operations_are_named() {
        for (file, name) in [("rebase-merge/done", "rebase"), ("MERGE_HEAD", "merge"), ("rebase-apply/applying", "am")]
        {
            assert_eq!(operation(folder(&[(file, "")]).path()).as_deref(), Some(name));
        }
        assert_eq!(operation(folder(&[("HEAD", "")]).path()), None);
    }

    #[test]
    fn all_stashes_are_found() {
        let log = format!("{} {ID} A <a> 1 +0000\tx\n{ID} {OTHER} A <a> 1 +0000\ty\n", "0".repeat(40));
        let state = read(folder(&[("HEAD", ID), ("refs/stash", OTHER), ("logs/refs/stash", &log)]).path(), 40);
        assert_eq!(state.stashes, [OTHER, ID]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(head in proptest::collection::vec(any::<u8>(), 0..60), packed in ".{0,200}") {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("HEAD"), head).unwrap();
            std::fs::write(folder.path().join("packed-refs"), packed).unwrap();
            let _ = read(folder.path(), 40);
        }
    }
}
