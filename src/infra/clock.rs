//! The clocks and the random numbers of this machine.
//!
//! The wall clock may jump; lengths of time are taken from the boot clock, which only runs forward
//! and counts the time that the machine slept.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::app::ports::{Clock, Random};
use crate::domain::time::{Monotonic, Timestamp};

/// Clock that counts the time asleep.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// On macOS the monotonic clock counts the time asleep.
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// The clocks of this machine.
///
/// Two files may stand in for parts of it, so that tests can make the wall clock jump and the
/// machine restart.
#[derive(Debug, Default)]
pub struct SystemClock {
    clock_file: Option<PathBuf>,
    boot_id_file: Option<PathBuf>,
    boot_id: OnceLock<String>,
}

impl SystemClock {
    /// Builds it.
    ///
    /// `clock_file` holds an offset in milliseconds (may be negative) that is added to the wall
    /// clock alone; it is read at each call. `boot_id_file` holds the boot id, read at each call.
    pub const fn new(clock_file: Option<PathBuf>, boot_id_file: Option<PathBuf>) -> Self {
        Self { clock_file, boot_id_file, boot_id: OnceLock::new() }
    }

    fn offset_ms(&self) -> i64 {
        self.clock_file.as_deref().and_then(line).and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let now = SystemTime::now();
        let ms = match now.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        };
        Timestamp::from_unix_ms(ms.saturating_add(self.offset_ms()))
    }

    fn monotonic(&self) -> Monotonic {
        // The call fails only for a clock that the kernel does not have, and it has this one.
        let Ok(now) = clock_gettime(BOOT_CLOCK) else { return Monotonic(0) };
        let (seconds, nanos) = (u64::try_from(now.tv_sec()), u64::try_from(now.tv_nsec()));
        Monotonic(seconds.unwrap_or(0).saturating_mul(1000).saturating_add(nanos.unwrap_or(0) / 1_000_000))
    }

    fn boot_id(&self) -> String {
        if let Some(path) = &self.boot_id_file {
            return line(path).unwrap_or_default();
        }
        self.boot_id.get_or_init(kernel_boot_id).clone()
    }
}

#[cfg(target_os = "linux")]
fn kernel_boot_id() -> String {
    line(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

/// Without a boot id of the kernel's, the time at which it started stands for it, in whole minutes
/// because both clocks are read one after the other and the wall clock is corrected now and then.
#[cfg(not(target_os = "linux"))]
fn kernel_boot_id() -> String {
    let clock = SystemClock::default();
    let up_ms = i64::try_from(clock.monotonic().0).unwrap_or(0);
    format!("started-{}", clock.now().unix_ms().saturating_sub(up_ms) / 60_000)
}

fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Random numbers from the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl SystemRandom {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        if read.is_err() {
            // A root folder without devices: hash keys are seeded by the kernel too.
            let halves = [RandomState::new().hash_one(1), RandomState::new().hash_one(2)];
            bytes = (u128::from(halves[0]) << 64 | u128::from(halves[1])).to_be_bytes();
        }
        bytes
    }
}

impl Random for SystemRandom {
    fn bits16(&self) -> u16 {
        let [first, second, ..] = self.bytes();
        u16::from_be_bytes([first, second])
    }

    fn uuid(&self) -> String {
        uuid_v4(u128::from_be_bytes(self.bytes()))
    }
}

/// Writes 122 of `random`'s bits as a UUID of version 4 (RFC 9562, section 5.4).
fn uuid_v4(random: u128) -> String {
    let fixed = 0xf000_u128 << 64 | 0xc000_u128 << 48;
    let bits = random & !fixed | 0x4000_u128 << 64 | 0x8000_u128 << 48;
    let part = |shift: u32, mask: u128| bits >> shift & mask;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 0xffff_ffff),
        part(80, 0xffff),
        part(64, 0xffff),
        part(48, 0xffff),
        part(0, 0xffff_ffff_ffff)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_files_move_only_the_wall_clock_and_the_boot_id() {
        let folder = tempfile::tempdir().unwrap();
        let (offset, boot) = (folder.path().join("offset"), folder.path().join("boot"));
        let real = SystemClock::new(None, None);
        let moved = SystemClock::new(Some(offset.clone()), Some(boot.clone()));
        std::fs::write(&boot, "first\n").unwrap();
        assert_eq!(moved.boot_id(), "first");
        std::fs::write(&boot, "second\n").unwrap();
        assert_eq!(moved.boot_id(), "second");
        for jump_ms in [-7_200_000, 7_200_000] {
            std::fs::write(&offset, format!("{jump_ms}\n")).unwrap();
            let jumped = moved.now().unix_ms() - real.now().unix_ms() - jump_ms;
            assert!((-1000..=1000).contains(&jumped), "{jumped}");
            let apart = moved.monotonic().0.abs_diff(real.monotonic().0);
            assert!(apart < 1000, "{apart}");
        }
        std::fs::remove_file(&offset).unwrap();
        assert!((moved.now().unix_ms() - real.now().unix_ms()).abs() < 1000);
    }

    #[test]
    fn the_boot_clock_runs_forward_and_the_boot_id_stays() {
        let clock = SystemClock::default();
        let first = clock.monotonic();
        assert!(first.0 > 0 && clock.monotonic() >= first);
        assert!(!clock.boot_id().is_empty());
        assert_eq!(clock.boot_id(), SystemClock::default().boot_id());
    }

    #[test]
    fn uuids_have_their_version_and_differ() {
        assert_eq!(uuid_v4(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid_v4(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(uuid_v4(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef), "01234567-89ab-4def-8123-456789abcdef");
        let all: HashSet<String> = (0..100).map(|_| SystemRandom.uuid()).collect();
        assert_eq!(all.len(), 100);
        let bits: HashSet<u16> = (0..100).map(|_| SystemRandom.bits16()).collect();
        assert!(bits.len() > 50);
    }
}
