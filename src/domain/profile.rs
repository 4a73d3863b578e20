//! Profiles: names for provider, model, effort, sandbox, kind, checkout and time limit.

use serde::{Deserialize, Serialize};

use super::duration::parse_duration;
use super::time::Millis;
use super::worker::{CheckoutMode, Effort, Kind, ProviderName, SandboxMode};

/// One profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// How the worker is started.
    pub provider: ProviderName,
    /// The model.
    pub model: String,
    /// The effort.
    pub effort: Effort,
    /// What the worker may write.
    pub sandbox: SandboxMode,
    /// What the report must open with.
    pub kind: Kind,
    /// Where the worker works.
    pub checkout: CheckoutMode,
    /// Limit on the worker's time.
    pub max_time: Millis,
    /// Limit on the time in which nothing moves.
    pub idle_time: Millis,
}

/// A profile as it stands in its file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ProfileFile {
    provider: ProviderName,
    model: String,
    effort: Effort,
    sandbox: SandboxMode,
    #[serde(default = "default_kind")]
    kind: Kind,
    checkout: CheckoutMode,
    max_time: String,
    #[serde(default = "default_idle_time")]
    idle_time: String,
}

const fn default_kind() -> Kind {
    Kind::Task
}

fn default_idle_time() -> String {
    "15m".to_owned()
}

/// Why a profile's text is no profile.
#[derive(Debug, thiserror::Error)]
#[error("profile `{name}` is not well-formed: {reason}")]
pub struct InvalidProfile {
    /// Its name.
    pub name: String,
    /// What is wrong, with line and column where known.
    pub reason: String,
}

impl Profile {
    /// Reads a profile from the text of its file.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, InvalidProfile> {
        let invalid = |reason: String| InvalidProfile { name: name.to_owned(), reason };
        let file: ProfileFile = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        Ok(Self {
            name: name.to_owned(),
            provider: file.provider,
            model: file.model,
            effort: file.effort,
            sandbox: file.sandbox,
            kind: file.kind,
            checkout: file.checkout,
            max_time: parse_duration(&file.max_time).map_err(|error| invalid(error.to_string()))?,
            idle_time: parse_duration(&file.idle_time).map_err(|error| invalid(error.to_string()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_errors() {
        let error = Profile::from_toml("x", "modle = 1").unwrap_err().to_string();
        assert!(error.contains("`x`") && error.contains("modle"), "{error}");
    }
}
