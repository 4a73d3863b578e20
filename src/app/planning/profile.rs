//! Which profile, and what the flags change of it.

use crate::app::error::AppResult;
use crate::app::request::RunRequest;
use crate::domain::profile::Profile;
use crate::domain::refusal::{Refusal, RefusalStatus};
use crate::domain::worker::{CheckoutMode, ProviderName, SandboxMode};

/// The profiles of this version, embedded in the binary.
const PROFILES: [(&str, &str); 4] = [
    ("implement", include_str!("../../../profiles/implement.toml")),
    ("investigate", include_str!("../../../profiles/investigate.toml")),
    ("opus", include_str!("../../../profiles/opus.toml")),
    ("review", include_str!("../../../profiles/review.toml")),
];

pub(super) fn chosen_profile(request: &RunRequest) -> AppResult<Profile> {
    let known: Vec<&str> = PROFILES.iter().map(|(name, _)| *name).collect();
    let list = known.join(", ");
    let name = match request.profile.as_deref() {
        Some("auto") => {
            return Err(Refusal::usage("`--profile auto` is not there yet", format!("name a profile: {list}")).into());
        }
        Some(name) => name,
        None => return Err(Refusal::usage("no profile is named", format!("add --profile with one of: {list}")).into()),
    };
    let Some((_, text)) = PROFILES.iter().find(|(known, _)| *known == name) else {
        let error = format!("there is no profile `{name}`");
        return Err(Refusal::new(RefusalStatus::UnknownProfile, error, format!("use one of: {list}")).into());
    };
    let mut profile = Profile::from_toml(name, text).map_err(|error| {
        Refusal::new(RefusalStatus::BadProfile, error.to_string(), "this is a fault of this build of Lane")
    })?;
    overlay(&mut profile, request)?;
    Ok(profile)
}

fn overlay(profile: &mut Profile, request: &RunRequest) -> AppResult<()> {
    if let Some(provider) = request.provider.filter(|provider| *provider != profile.provider) {
        if request.model.is_none() {
            return Err(Refusal::usage(
                format!(
                    "profile `{}` names a model of {}, not of {}",
                    profile.name,
                    profile.provider.as_str(),
                    provider.as_str()
                ),
                "add --model with a model of that provider, or name another profile",
            )
            .into());
        }
        profile.provider = provider;
    }
    if request.demo_worker {
        profile.provider = ProviderName::Demo;
        profile.model = "scripted".to_owned();
    }
    if let Some(model) = &request.model {
        let plain = !model.is_empty() && !model.starts_with('-') && !model.contains(char::is_whitespace);
        if !plain {
            return Err(Refusal::usage(
                format!("`{model}` is not a model's name"),
                "name the model as its provider does",
            )
            .into());
        }
        profile.model.clone_from(model);
    }
    profile.effort = request.effort.unwrap_or(profile.effort);
    profile.kind = request.kind.unwrap_or(profile.kind);
    profile.sandbox = request.sandbox.unwrap_or(profile.sandbox);
    profile.max_time = request.max_time.unwrap_or(profile.max_time);
    profile.idle_time = request.idle_time.unwrap_or(profile.idle_time);
    Ok(())
}

/// A write lane gets its own checkout unless the caller says otherwise.
pub(super) fn chosen_checkout(request: &RunRequest, profile: &Profile) -> CheckoutMode {
    let own = request.own_checkout
        || (profile.sandbox == SandboxMode::WorkspaceWrite && profile.checkout == CheckoutMode::None);
    match request.checkout {
        Some(CheckoutMode::None) if request.own_checkout => CheckoutMode::Clone,
        Some(checkout) => checkout,
        None if own => CheckoutMode::Clone,
        // A profile that writes brings a checkout along; read-only lanes of it need none.
        None if request.sandbox == Some(SandboxMode::ReadOnly) => CheckoutMode::None,
        None => profile.checkout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_profiles_are_well_formed() {
        for (name, text) in PROFILES {
            Profile::from_toml(name, text).unwrap();
        }
    }
}
