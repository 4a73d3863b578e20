//! Landlock: the kernel's own confinement, put on between fork and exec.
//!
//! The ruleset is built before the fork, where errors can be told; between fork and exec there are
//! two system calls. File rights up to ABI 3 (Linux 6.2) are required: with less, a file outside
//! could be emptied or moved away. Scopes (ABI 6, Linux 6.12) are used where the kernel has them:
//! signals and abstract sockets then end at the confinement's border too.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use super::WRITABLE_DEVICES;
use crate::app::ports::{Confinement, PortError, PortResult};
use crate::domain::worker::Enforcement;

/// What must be enforced.
const REQUIRED: ABI = ABI::V3;

/// Folders of devices and of shared memory, which pseudo-terminals and Python's `multiprocessing` need.
const WRITABLE_DEVICE_DIRS: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// A confinement that is ready to be put on.
#[derive(Debug)]
pub struct Prepared(RulesetCreated);

impl Prepared {
    /// Confines the calling process and everything that it starts, for ever.
    ///
    /// Meant for a process with one thread, between fork and exec.
    pub fn put_on(self) -> io::Result<()> {
        let status = self.0.restrict_self().map_err(|_| io::Error::last_os_error())?;
        if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::Unsupported))
        }
    }
}

/// Returns what Landlock can enforce here.
///
/// An error says what is missing: the kernel is older than Linux 6.2, or Landlock is switched off.
pub fn probe() -> PortResult<Enforcement> {
    if ruleset(true).and_then(Ruleset::create).is_ok() {
        return Ok(Enforcement::LandlockScoped);
    }
    ruleset(false).and_then(Ruleset::create).map(|_| Enforcement::Landlock).map_err(|error| {
        PortError::other(format!(
            "Landlock cannot confine writes here ({error}); it takes Linux 6.2 or newer with `landlock` in the \
             kernel's list of security modules (lsm=)"
        ))
    })
}

/// Builds the confinement. A path that does not exist is an error that names it.
pub fn prepare(confinement: &Confinement) -> PortResult<Prepared> {
    let scoped = probe()? == Enforcement::LandlockScoped;
    build(confinement, scoped).map(Prepared)
}

fn ruleset(scoped: bool) -> Result<Ruleset, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(REQUIRED))?;
    if scoped { ruleset.scope(Scope::from_all(ABI::V6)) } else { Ok(ruleset) }
}

fn build(confinement: &Confinement, scoped: bool) -> PortResult<RulesetCreated> {
    let failed = |error: landlock::RulesetError| PortError::other(format!("Landlock: {error}"));
    let mut rules = ruleset(scoped).and_then(Ruleset::create).map_err(failed)?;
    rules = allow(rules, Path::new("/"), AccessFs::from_read(REQUIRED))?;
    let devices = WRITABLE_DEVICES.iter().map(|path| (*path, file_rights()));
    let device_dirs = WRITABLE_DEVICE_DIRS.iter().map(|path| (*path, folder_rights()));
    for (path, rights) in devices.chain(device_dirs) {
        if Path::new(path).exists() {
            rules = allow(rules, Path::new(path), rights)?;
        }
    }
    for path in &confinement.write_dirs {
        rules = allow(rules, path, folder_rights())?;
    }
    for path in &confinement.write_files {
        rules = allow(rules, path, file_rights())?;
    }
    Ok(rules)
}

fn allow(rules: RulesetCreated, path: &Path, rights: BitFlags<AccessFs>) -> PortResult<RulesetCreated> {
    let told = |error: &dyn std::fmt::Display| PortError::other(format!("Landlock: {}: {error}", path.display()));
    let fd = PathFd::new(path).map_err(|error| told(&error))?;
    rules.add_rule(PathBeneath::new(fd, rights)).map_err(|error| told(&error))
}

/// Everything but making device files: root could reach a whole disk through one.
fn folder_rights() -> BitFlags<AccessFs> {
    AccessFs::from_all(REQUIRED) & !(AccessFs::MakeChar | AccessFs::MakeBlock)
}

fn file_rights() -> BitFlags<AccessFs> {
    AccessFs::from_file(REQUIRED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_is_named() {
        let confinement = Confinement { write_dirs: vec!["/no/such/folder".into()], write_files: vec![] };
        let error = prepare(&confinement).unwrap_err();
        assert!(error.message.contains("/no/such/folder"), "{}", error.message);
    }

    #[test]
    fn folders_never_allow_device_files() {
        let rights = folder_rights();
        assert!(!rights.contains(AccessFs::MakeBlock) && !rights.contains(AccessFs::MakeChar));
        assert!(rights.contains(AccessFs::Refer) && rights.contains(AccessFs::Truncate));
    }
}
