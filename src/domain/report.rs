//! The worker's report: its marker, its length, and the contract that asks for it.

use super::worker::{Kind, Marker};

/// The most characters of a report that `summary` holds.
const SUMMARY_MAX_CHARACTERS: usize = 600;

/// Returns the marker that the report opens with, of the given kind, or `None`.
///
/// Only the first non-blank line counts, bold removed: it equals the marker, or goes on with `.`,
/// `:`, `-` or a dash and text.
pub fn marker(kind: Kind, report: &str) -> Option<Marker> {
    let line = report.lines().find(|line| !line.trim().is_empty())?;
    let line = line.replace("**", "").replace("__", "");
    let line = line.trim();
    let candidates = match kind {
        Kind::Task => [Marker::Done, Marker::Blocked],
        Kind::Review => [Marker::Lgtm, Marker::Revise],
    };
    candidates.into_iter().find(|marker| {
        line.strip_prefix(marker.as_str()).is_some_and(|rest| {
            let rest = rest.trim_start();
            rest.is_empty() || rest.starts_with(['.', ':', '-', '\u{2013}', '\u{2014}'])
        })
    })
}

/// Returns the start of the report after its marker line, bounded, for the result line.
pub fn summary(report: &str) -> String {
    let text = report.trim();
    let mut summary: String = text.chars().take(SUMMARY_MAX_CHARACTERS).collect();
    if summary.len() < text.len() {
        summary.push('\u{2026}');
    }
    summary
}

/// Returns the number of words in the report.
pub fn word_count(report: &str) -> u64 {
    report.split_whitespace().count() as u64
}

/// What the contract text must tell the worker about its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContractFacts<'a> {
    /// Which marker is asked for.
    pub kind: Kind,
    /// The worker's own checkout, when it has one.
    pub checkout: Option<&'a str>,
    /// Root of the repository that the brief speaks of, when the worker has its own checkout.
    pub repository: Option<&'a str>,
    /// Whether the worker may write.
    pub writes: bool,
    /// Whether a check will follow.
    pub check_follows: bool,
    /// Paths that must not change.
    pub protected: &'a [String],
    /// Sentences that the worker's CLI needs to hear.
    pub provider_notes: &'a [&'static str],
}

/// Returns the brief with the report contract appended: what the worker is handed.
pub fn with_contract(brief: &str, facts: &ContractFacts<'_>) -> String {
    let mut text = brief.trim_end().to_owned();
    text.push_str("\n\n---\n\n## How this task is run\n\n");
    if let (Some(checkout), Some(repository)) = (facts.checkout, facts.repository) {
        text.push_str(&format!(
            "- Your working copy is `{checkout}`, a private checkout of the repository `{repository}`. \
             Paths under `{repository}` mean the same files here; work only in your working copy.\n"
        ));
        text.push_str("- If `AGENTS.md` or `CLAUDE.md` is at its root, read it first.\n");
    }
    if facts.writes {
        text.push_str(
            "- Commit your work on the branch that is checked out. Do not push, and do not start other agents.\n",
        );
    } else {
        text.push_str("- You may only read. Change nothing.\n");
    }
    if facts.check_follows {
        text.push_str("- After you have finished, a check that you do not see runs on your work.\n");
    }
    if !facts.protected.is_empty() {
        let paths: Vec<String> = facts.protected.iter().map(|path| format!("`{path}`")).collect();
        text.push_str(&format!("- These paths must stay as they are: {}.\n", paths.join(", ")));
    }
    for note in facts.provider_notes {
        text.push_str(&format!("- {note}\n"));
    }
    text.push_str(match facts.kind {
        Kind::Task => {
            "\n## Your report\n\nYour last message is your report. Its first line must be exactly `STATUS: DONE` if the \
             task is finished, or `STATUS: BLOCKED` if you could not finish it. Then give a short account: what you \
             did, how you checked it, what is left or stands in the way.\n"
        }
        Kind::Review => {
            "\n## Your report\n\nYour last message is your report. Its first line must be exactly `VERDICT: LGTM` if you \
             have no objection, or `VERDICT: REVISE` if something must change. Then give a short account: each finding \
             with its place and why it matters.\n"
        }
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_counts() {
        for (report, expected) in [
            ("STATUS: DONE", Some(Marker::Done)),
            ("\n\n**STATUS: DONE**\nall well", Some(Marker::Done)),
            ("STATUS: DONE - all well", Some(Marker::Done)),
            ("STATUS: DONE \u{2014} all well", Some(Marker::Done)),
            ("STATUS: DONE. All well", Some(Marker::Done)),
            ("STATUS: BLOCKED: no network", Some(Marker::Blocked)),
            ("STATUS: DONE all well", None),
            ("STATUS: DONEISH", None),
            ("status: done", None),
            ("I will write STATUS: DONE when I am done.\nSTATUS: DONE", None),
            ("VERDICT: LGTM", None),
            ("", None),
        ] {
            assert_eq!(marker(Kind::Task, report), expected, "{report:?}");
        }
        assert_eq!(marker(Kind::Review, "VERDICT: LGTM"), Some(Marker::Lgtm));
        assert_eq!(marker(Kind::Review, "STATUS: DONE"), None);
    }

    #[test]
    fn summary_is_bounded() {
        assert_eq!(summary(" STATUS: DONE\nfine \n"), "STATUS: DONE\nfine");
        assert_eq!(summary(&"\u{e9}".repeat(5000)).chars().count(), SUMMARY_MAX_CHARACTERS + 1);
    }

    #[test]
    fn contract_tells_of_the_check_but_not_which() {
        let facts = ContractFacts {
            kind: Kind::Task,
            checkout: Some("/c"),
            repository: Some("/r"),
            writes: true,
            check_follows: true,
            protected: &["tests/t.py".to_owned()],
            provider_notes: &["No network."],
        };
        let text = with_contract("Goal: x\n\n", &facts);
        assert!(text.starts_with("Goal: x\n\n---\n"));
        for part in ["`/c`", "`/r`", "a check that you do not see", "`tests/t.py`", "No network.", "STATUS: DONE"] {
            assert!(text.contains(part), "{part}");
        }
    }
}
