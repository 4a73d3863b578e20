//! Durations as people write them: `90s`, `45m`, `1h30m`.

use super::time::Millis;

/// Why a text is no duration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a duration; write it like 90s, 45m or 1h30m")]
pub struct InvalidDuration(pub String);

/// The longest duration that is accepted: a year, so that sums never overflow.
const MAX_MS: u64 = 366 * 24 * 3600 * 1000;

/// Reads a duration: numbers with the units `ms`, `s`, `m`, `h`, `d`, each unit at most once and
/// from large to small. A number without a unit is refused, since readers would guess differently.
pub fn parse_duration(text: &str) -> Result<Millis, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut last_unit = u64::MAX;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits).ok_or_else(invalid)?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at_checked(letters).ok_or_else(invalid)?;
        let unit_ms = unit_ms(unit).ok_or_else(invalid)?;
        if unit_ms >= last_unit {
            return Err(invalid());
        }
        let number: u64 = number.parse().map_err(|_| invalid())?;
        total = number
            .checked_mul(unit_ms)
            .and_then(|part| total.checked_add(part))
            .filter(|sum| *sum <= MAX_MS)
            .ok_or_else(invalid)?;
        last_unit = unit_ms;
        rest = tail;
    }
    Ok(Millis(total))
}

fn unit_ms(unit: &str) -> Option<u64> {
    match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    }
}

/// Writes a length the way [`parse_duration`] reads it.
pub fn format_duration(length: Millis) -> String {
    let mut rest = length.0;
    let mut text = String::new();
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        let count = rest / unit_ms;
        rest %= unit_ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_forms() {
        assert_eq!(parse_duration("90s"), Ok(Millis(90_000)));
        assert_eq!(parse_duration("45m"), Ok(Millis(2_700_000)));
        assert_eq!(parse_duration("1h30m"), Ok(Millis(5_400_000)));
        for bad in ["", "5", "m", "1m1h", "1m1m", "-1s", "1.5h", "99999999999999999999s", "1y"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn format_and_parse_agree(ms in 0u64..MAX_MS) {
            prop_assert_eq!(parse_duration(&format_duration(Millis(ms))), Ok(Millis(ms)));
        }

        #[test]
        fn any_text_is_answered(text in ".*") {
            let _ = parse_duration(&text);
        }
    }
}
