//! Seatbelt: the text of a profile for macOS. Pure, so it is tested everywhere.
//!
//! The profile allows everything, then takes all writing away, then gives back what the
//! [`Confinement`] names. In a profile the last rule that matches counts.

use std::path::Path;

use super::WRITABLE_DEVICES;
use crate::app::ports::Confinement;

/// Returns the profile for `sandbox-exec -p`.
///
/// `None` when a path is not UTF-8 or holds a control character: a profile cannot name it safely.
/// Paths must have their links resolved: Seatbelt compares what is really opened.
pub fn profile(confinement: &Confinement) -> Option<String> {
    let mut text = String::from("(version 1)\n(allow default)\n(deny file-write*)\n(deny signal)\n");
    text.push_str("(allow signal (target same-sandbox))\n(allow file-write*\n");
    for device in WRITABLE_DEVICES {
        text.push_str(&format!("  (literal \"{device}\")\n"));
    }
    text.push_str("  (regex #\"^/dev/ttys[0-9]+$\")\n");
    for path in &confinement.write_dirs {
        text.push_str(&format!("  (subpath {})\n", quoted(path)?));
    }
    for path in &confinement.write_files {
        text.push_str(&format!("  (literal {})\n", quoted(path)?));
    }
    text.push_str(")\n");
    Some(text)
}

fn quoted(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    if text.chars().any(char::is_control) {
        return None;
    }
    Some(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_denied_first_and_given_back_by_name() {
        let confinement =
            Confinement { write_dirs: vec!["/Users/a/check out".into()], write_files: vec!["/Users/a/\"x\\".into()] };
        let text = profile(&confinement).unwrap();
        let deny = text.find("(deny file-write*)").unwrap();
        let allow = text.find("(allow file-write*").unwrap();
        assert!(deny < allow);
        assert!(text.contains("  (subpath \"/Users/a/check out\")\n"));
        assert!(text.contains("  (literal \"/Users/a/\\\"x\\\\\")\n"));
        assert_eq!(text.matches('(').count(), text.matches(')').count());
    }

    #[test]
    fn a_path_that_could_break_out_is_refused() {
        let confinement = Confinement { write_dirs: vec!["/a\n(allow file-write*)".into()], write_files: vec![] };
        assert_eq!(profile(&confinement), None);
    }
}
