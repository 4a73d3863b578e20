//! Lines and texts of foreign programs: read without trust, kept within bounds.

use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;

/// The most bytes of a report that are kept.
pub(super) const REPORT_MAX_BYTES: usize = 4 << 20;
/// The most bytes of anything said that one event carries.
pub(super) const SAID_MAX_BYTES: usize = 64 << 10;
/// The most bytes of a command line, a path or a notice that are kept.
pub(super) const SHORT_MAX_BYTES: usize = 4 << 10;
/// The most bytes of an id that are kept.
pub(super) const ID_MAX_BYTES: usize = 256;
/// The most notices, denials or open commands that are kept.
pub(super) const LIST_MAX: usize = 1000;
/// The most notices that are kept.
pub(super) const NOTICES_MAX: usize = 20;

/// Reads a line as `T`; `None` if it is none. Keys that `T` does not name are skipped over.
pub(super) fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

/// The value of `type` where a line begins with it, read without walking the whole line.
///
/// A line of many megabytes is then walked once and not twice. That the rest of the line is well
/// formed is for the next reader to find out.
pub(super) fn leading_type(line: &[u8]) -> Option<&str> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && !b"._".contains(byte))?;
    let (word, rest) = rest.split_at_checked(end)?;
    rest.starts_with(b"\"").then(|| std::str::from_utf8(word).ok())?
}

/// Whether a line holds nothing but white space.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// Returns the start of `text`, at most `max_bytes` long, cut between characters.
pub(super) fn clip(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Adds a notice, unless it is there already or there are many.
pub(super) fn note(notices: &mut Vec<String>, text: &str) {
    let text = clip(text.trim(), SHORT_MAX_BYTES);
    if !text.is_empty() && notices.len() < NOTICES_MAX && !notices.contains(&text) {
        notices.push(text);
    }
}

/// Variables that keep temporary files and the caches of common tools in folders of the lane.
pub(super) fn private_folders(temp_dir: &Path, cache_dir: &Path) -> Vec<(String, OsString)> {
    let cache = |name: &str, folder: &str| (name.to_owned(), cache_dir.join(folder).into_os_string());
    vec![
        ("TMPDIR".to_owned(), temp_dir.as_os_str().to_owned()),
        ("XDG_CACHE_HOME".to_owned(), cache_dir.as_os_str().to_owned()),
        cache("GOCACHE", "go-build"),
        cache("npm_config_cache", "npm"),
        cache("PIP_CACHE_DIR", "pip"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clip_cuts_between_characters() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abc", 2), "ab");
        assert_eq!(clip("a\u{e9}b", 2), "a");
        assert_eq!(clip("\u{e9}", 1), "");
    }

    #[test]
    fn only_a_plain_type_at_the_start_is_taken_from_there() {
        assert_eq!(leading_type(br#"{"type":"turn.failed","x":1}"#), Some("turn.failed"));
        for line in [r#"{"x":1,"type":"a"}"#, r#"{"type":"a\u0062"}"#, r#"{"type":"a"#, r#"{"type":7}"#, ""] {
            assert_eq!(leading_type(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn notices_are_bounded_and_not_repeated() {
        let mut notices = Vec::new();
        for number in 0..100 {
            note(&mut notices, &format!("n{number}"));
            note(&mut notices, "n0");
            note(&mut notices, "  ");
        }
        assert_eq!(notices.len(), NOTICES_MAX);
    }
}
