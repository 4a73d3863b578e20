//! What a worker may see of the caller's environment: an allowlist, never a blocklist.

use std::ffi::OsString;

/// Variables that every worker sees as the caller has them.
///
/// Locale, home, search path and certificates; nothing that names a session, an agent or a key.
/// Besides these, every `LC_*` passes.
pub const ALLOWED: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "NVM_DIR",
    "VIRTUAL_ENV",
    "XDG_RUNTIME_DIR",
];

/// Login variables, which reach a worker only if its own CLI needs them.
pub const LOGIN_NAMES: [&str; 3] = ["CODEX_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_API_KEY"];

/// Names that are never let through, not by `--env` either: they would break the lane's own walls.
/// Besides these, no `GIT_*` and no `CLAUDE_CODE_*` passes.
pub const NEVER: [&str; 9] = [
    "LANE_ID",
    "CODEX_HOME",
    "CLAUDE_CONFIG_DIR",
    "TMPDIR",
    "CLAUDECODE",
    "CODEX_THREAD_ID",
    "AI_AGENT",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
];

/// What was let through and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// Variables that the lane may see.
    pub kept: Vec<(String, OsString)>,
    /// Names of those that it may not.
    pub removed: Vec<String>,
}

/// Returns why `name` cannot be let through with `--env`, or `None` if it can.
pub fn env_name_refusal(name: &str) -> Option<&'static str> {
    let well_formed = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !well_formed {
        Some("it is not a variable's name (letters, digits and _)")
    } else if NEVER.contains(&name) || name.starts_with("GIT_") || name.starts_with("CLAUDE_CODE_") {
        Some("Lane sets or removes it itself")
    } else {
        None
    }
}

/// Sifts the caller's variables; `extra` names more that may pass (`--env` and the configuration).
///
/// Logins are left out here: they are handed over at the start, and only to the CLI that needs them.
pub fn sift(variables: &[(String, OsString)], extra: &[String]) -> Sifted {
    let mut sifted = Sifted::default();
    for (name, value) in variables {
        let listed = ALLOWED.contains(&name.as_str()) || name.starts_with("LC_");
        if listed || (extra.iter().any(|known| known == name) && env_name_refusal(name).is_none()) {
            sifted.kept.push((name.clone(), value.clone()));
        } else {
            sifted.removed.push(name.clone());
        }
    }
    sifted.removed.sort();
    sifted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_list_and_what_was_named_pass() {
        let variables: Vec<(String, OsString)> =
            ["PATH", "LC_ALL", "SECRET_TOKEN", "GIT_DIR", "CLAUDECODE", "MY_VAR", "ANTHROPIC_API_KEY"]
                .iter()
                .map(|name| ((*name).to_owned(), OsString::from("x")))
                .collect();
        let sifted = sift(&variables, &["MY_VAR".to_owned(), "GIT_DIR".to_owned()]);
        let kept: Vec<&str> = sifted.kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["PATH", "LC_ALL", "MY_VAR"]);
        assert_eq!(sifted.removed, ["ANTHROPIC_API_KEY", "CLAUDECODE", "GIT_DIR", "SECRET_TOKEN"]);
    }

    #[test]
    fn names_that_cannot_pass_say_why() {
        assert_eq!(env_name_refusal("MY_VAR"), None);
        for name in ["", "1A", "A B", "LANE_ID", "GIT_DIR", "LD_PRELOAD"] {
            assert!(env_name_refusal(name).is_some(), "{name}");
        }
    }
}
