//! What all checkouts of a repository share, before and after a worker in a linked worktree.
//!
//! A change is charged to the lane when it was alone, else it is `unclear`. Lane's own refs and
//! what a fetch moved are no change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::config::LeadConfig;
use super::record::Note;
use super::{GitCli, files, linked, require_repository};
use crate::app::ports::PortResult;
use crate::domain::facts::SharedChange;
use crate::domain::plan::{Plan, RepositoryPlan};

/// Everything shared, by what it is and its name.
type Shared = BTreeMap<(String, String), String>;

#[derive(Serialize, Deserialize)]
struct Snapshot {
    entries: Vec<(String, String, String)>,
}

/// Notes what is shared, before the worker starts.
pub(super) fn remember(git: &GitCli, plan: &Plan) -> PortResult<()> {
    let entries = look(git, plan)?.into_iter().map(|((what, name), value)| (what, name, value)).collect();
    Note::SharedBefore.write(&plan.run_dir, &Snapshot { entries })
}

/// Returns what changed since; nothing when nothing was noted.
pub(super) fn changes(git: &GitCli, plan: &Plan) -> PortResult<Vec<SharedChange>> {
    let repository = require_repository(plan)?;
    let Some(before) = Note::SharedBefore.load::<Snapshot>(&plan.run_dir)? else { return Ok(Vec::new()) };
    let before: Shared = before.entries.into_iter().map(|(what, name, value)| ((what, name), value)).collect();
    let after = look(git, plan)?;
    let charged_to = if was_alone(plan, repository) { "lane" } else { "unclear" };
    let mut found = compare(&before, &after, charged_to);
    found.retain(|change| !was_fetched(git, repository, change));
    Ok(found)
}

fn compare(before: &Shared, after: &Shared, charged_to: &str) -> Vec<SharedChange> {
    let keys: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differs = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
    differs
        .map(|key| SharedChange {
            what: key.0.clone(),
            name: key.1.clone(),
            before: before.get(key).map(|value| presentable(&key.1, value)),
            after: after.get(key).map(|value| presentable(&key.1, value)),
            charged_to: charged_to.to_owned(),
        })
        .collect()
}

/// A value without what may be a secret: logins in addresses, headers, passwords.
fn presentable(name: &str, value: &str) -> String {
    let name = name.to_ascii_lowercase();
    if ["extraheader", "password", "token", "secret", "cookie"].iter().any(|word| name.contains(word)) {
        return "(hidden)".to_owned();
    }
    let mut shown = String::new();
    for (number, part) in value.split("://").enumerate() {
        if number == 0 {
            shown.push_str(part);
            continue;
        }
        let end = part.find(['/', ' ']).unwrap_or(part.len());
        let (host, rest) = part.split_at(end);
        let host = host.rsplit_once('@').map_or_else(|| host.to_owned(), |(_, host)| format!("***@{host}"));
        shown.push_str(&format!("://{host}{rest}"));
    }
    shown
}

fn look(git: &GitCli, plan: &Plan) -> PortResult<Shared> {
    let repository = require_repository(plan)?;
    let mut shared = Shared::new();
    let mut put = |what: &str, name: String, value: String| drop(shared.insert((what.to_owned(), name), value));
    let refs = git.on(&repository.common_dir).args(["for-each-ref", "--format=%(objectname) %(refname)"]).require()?;
    for line in refs.lines() {
        let Some((id, name)) = line.split_once(' ') else { continue };
        if name == "refs/stash" || name.starts_with("refs/heads/lane/") || name.starts_with("refs/lane/") {
            continue;
        }
        put("ref", name.to_owned(), id.to_owned());
    }
    let stashes = git.on(&repository.common_dir).args(["log", "-g", "--format=%H", "refs/stash", "--"]).run()?;
    for id in stashes.lines() {
        put("stash", id.clone(), id);
    }
    for (key, value) in LeadConfig::load_shared(git, &repository.common_dir)? {
        let what = if key.starts_with("remote.") { "remote" } else { "config" };
        put(what, key, value);
    }
    for (name, value) in hooks(&repository.common_dir.join("hooks")) {
        put("hook", name, value);
    }
    for (name, value) in heads(plan, repository) {
        put("worktree", name, value);
    }
    Ok(shared)
}

/// The hooks that git would run: name, and a digest of content and mode.
fn hooks(folder: &Path) -> Vec<(String, String)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".sample") {
            continue;
        }
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        let content = if metadata.is_symlink() {
            std::fs::read_link(entry.path()).unwrap_or_default().into_os_string().into_encoded_bytes()
        } else {
            files::read_plain(&entry.path(), 16 * 1024 * 1024).unwrap_or_default()
        };
        let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        found.push((name, format!("{:o} {digest}", metadata.permissions().mode() & 0o7777)));
    }
    found
}

/// The HEADs of all other checkouts. Those of other lanes are theirs to move.
fn heads(plan: &Plan, repository: &RepositoryPlan) -> Vec<(String, String)> {
    let head = |folder: &Path| files::read_plain_text(&folder.join("HEAD"), 4096).map(|text| text.trim().to_owned());
    let mut found: Vec<(String, String)> =
        head(&repository.common_dir).map(|value| ("main".to_owned(), value)).into_iter().collect();
    for entry in std::fs::read_dir(repository.common_dir.join("worktrees")).into_iter().flatten().flatten() {
        let noted = files::read_plain_text(&entry.path().join("gitdir"), 64 * 1024).unwrap_or_default();
        let own = Path::new(noted.trim_end()) == plan.checkout_path.join(".git");
        let name = entry.file_name().to_string_lossy().into_owned();
        let of_lane = name.parse::<crate::domain::ids::LaneId>().is_ok();
        if let (false, false, Some(value)) = (own, of_lane, head(&entry.path())) {
            found.push((name, value));
        }
    }
    found
}

/// Whether a remote-tracking name was last moved by a fetch, or a tag came with one.
fn was_fetched(git: &GitCli, repository: &RepositoryPlan, change: &SharedChange) -> bool {
    if change.what != "ref" || !change.name.starts_with("refs/remotes/") || change.after.is_none() {
        return false;
    }
    let words = ["log", "-g", "-1", "--format=%gs", change.name.as_str(), "--"];
    let last = git.on(&repository.common_dir).args(words).run();
    last.is_ok_and(|output| ["fetch", "pull", "clone"].iter().any(|word| output.text().starts_with(word)))
}

fn company_folder(repository: &RepositoryPlan) -> PathBuf {
    repository.common_dir.join("lane/linked")
}

/// Notes under the lock which linked lanes live beside this one, in both directions.
pub(super) fn note_company(plan: &Plan, repository: &RepositoryPlan) -> PortResult<()> {
    let folder = company_folder(repository);
    files::make_folder(&folder)?;
    let own = format!("{}\n", plan.lane_id);
    let mut others = String::new();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == plan.lane_id.as_str() {
            continue;
        }
        let known = files::read_plain_text(&entry.path(), 1024 * 1024).unwrap_or_default();
        files::write(&entry.path(), known + &own)?;
        others.push_str(&format!("{name}\n"));
    }
    files::write(&folder.join(plan.lane_id.as_str()), others)
}

fn was_alone(plan: &Plan, repository: &RepositoryPlan) -> bool {
    let noted = files::read_plain_text(&company_folder(repository).join(plan.lane_id.as_str()), 1024 * 1024);
    noted.is_some_and(|noted| noted.is_empty())
}

/// Removes the lane's own note.
pub(super) fn leave_company(plan: &Plan, repository: &RepositoryPlan) {
    let _lock = linked::lock(&repository.common_dir);
    let _ = files::remove_tree(&company_folder(repository).join(plan.lane_id.as_str()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(presentable("remote.x.url", "https://u:p@h/r, http://h/a@b"), "https://***@h/r, http://h/a@b");
        assert_eq!(presentable("http.https://h/.extraHeader", "Authorization: x"), "(hidden)");
        assert_eq!(presentable("user.email", "a@b"), "a@b");
    }

    #[test]
    fn each_change_has_its_two_values() {
        let entry = |name: &str, value: &str| (("ref".to_owned(), name.to_owned()), value.to_owned());
        let before: Shared = [entry("a", "1"), entry("b", "1"), entry("c", "1")].into();
        let after: Shared = [entry("a", "1"), entry("b", "2"), entry("d", "3")].into();
        let seen: Vec<String> = compare(&before, &after, "lane")
            .into_iter()
            .map(|c| format!("{} {:?} {:?}", c.name, c.before.as_deref(), c.after.as_deref()))
            .collect();
        assert_eq!(seen, ["b Some(\"1\") Some(\"2\")", "c Some(\"1\") None", "d None Some(\"3\")"]);
    }
}
