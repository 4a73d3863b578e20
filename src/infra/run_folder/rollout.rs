//! Finding Codex's rollout file of a session.

use std::path::{Path, PathBuf};

/// Looks through `sessions/YYYY/MM/DD/`, newest day first, for `rollout-*-<session_id>.jsonl`.
pub(super) fn find(codex_home: &Path, session_id: &str) -> Option<PathBuf> {
    let is_plain = session_id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if session_id.is_empty() || !is_plain {
        return None;
    }
    let end = format!("-{session_id}.jsonl");
    let years = newest_first(&codex_home.join("sessions"));
    let months = years.iter().flat_map(|year| newest_first(year));
    let mut days = months.flat_map(|month| newest_first(&month));
    days.find_map(|day| {
        let mut names = std::fs::read_dir(day).ok()?.filter_map(Result::ok);
        let found = names.find(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with("rollout-") && name.ends_with(&end))
                && entry.file_type().is_ok_and(|file_type| file_type.is_file())
        });
        found.map(|entry| entry.path())
    })
}

/// Returns the folders in `path` whose name is a number, the highest first.
fn newest_first(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| number(path).is_some()).collect();
    folders.sort_by_key(|path| std::cmp::Reverse(number(path)));
    folders
}
