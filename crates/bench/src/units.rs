//! Times, sizes, rates and percentages as text: `10ms`, `4KiB`, `1gbit`, `5%`.
//!
//! [`scaled`] is the parser; each kind has a table of its units. All numbers are exact.

use std::fmt::Write as _;
use std::time::Duration;

/// Units of time, in nanoseconds.
pub const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// Binary units of sizes, in bytes, the largest first.
pub const BINARY: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
/// Other units of sizes, in bytes.
const DECIMAL: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];
/// Units of rates, in bits a second: those of tc(8), others in use, and bytes a second.
const RATES: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
    ("MiB/s", 8 << 20),
    ("GiB/s", 8 << 30),
];
/// Parts of 1 in which percentages are counted.
const PARTS: u64 = 1_000_000_000;
/// Largest size and rate.
const MAX: u128 = 9_000_000_000_000_000_000;
/// Longest time that is accepted: a hundred days.
const TIME_MAX_NANOSECONDS: u128 = 8_640_000 * 1_000_000_000;
/// Digits after the point at most.
const FRACTION_DIGITS: usize = 9;

/// Parses a decimal number followed by one of the units, with or without a space between, and returns it in the tables' unit,
/// rounded down. `None` if it is not in this form, or has more than 9 digits after the point.
#[must_use]
pub fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let is_unit = |name: &str| name == unit || !name.is_empty() && name == unit.trim_start();
    let factor = units.iter().find(|(name, _)| is_unit(name))?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > FRACTION_DIGITS {
        return None;
    }
    let factor = u128::from(factor);
    let whole = u128::from(whole.parse::<u64>().ok()?) * factor;
    let scale = 10_u128.pow(fraction.len() as u32);
    Some(whole + u128::from(fraction.parse::<u64>().ok()?) * factor / scale)
}

/// Parses a time with its unit; `0` needs none.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = || format!("`{text}`: expected a time with its unit, as in 10ms, 1.5s or 2m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let nanoseconds = scaled(text, TIMES).ok_or_else(expected)?;
    if nanoseconds > TIME_MAX_NANOSECONDS {
        return Err(format!("`{text}`: at most a hundred days"));
    }
    Ok(Duration::from_nanos_u128(nanoseconds))
}

/// Parses a size in bytes.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = scaled(text, DECIMAL).or_else(|| scaled(text, BINARY)).filter(|bytes| *bytes < MAX);
    bytes
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(|| format!("`{text}`: expected a size, as in 4096, 4KiB or 1MB"))
}

/// Parses a rate, in bits a second; more than 0.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let bits = scaled(text, RATES).filter(|bits| (1..MAX).contains(bits));
    bits.and_then(|bits| u64::try_from(bits).ok())
        .ok_or_else(|| format!("`{text}`: expected a rate, as in 100mbit, 1gbit or 50MB/s"))
}

/// Parses a percentage from 0 to 100, as a part of 1.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let parts = scaled(text, &[("%", PARTS / 100)]).filter(|parts| *parts <= u128::from(PARTS));
    parts
        .map(|parts| parts as f64 / PARTS as f64)
        .ok_or_else(|| format!("`{text}`: expected a percentage from 0% to 100%, as in 0.5%"))
}

/// Writes a time with the largest unit that needs no more than three decimals: `10ms`, `1.5s`.
#[must_use]
pub fn time_text(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let (unit, size) = match nanoseconds {
        0 => return "0".to_owned(),
        1_000_000_000.. if nanoseconds.is_multiple_of(1_000_000) => ("s", 1e9),
        1_000_000.. if nanoseconds.is_multiple_of(1_000) => ("ms", 1e6),
        1_000.. => ("us", 1e3),
        _ => ("ns", 1.0),
    };
    let mut text = format!("{:.3}", nanoseconds as f64 / size);
    text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    text + unit
}

/// Writes a size with the largest binary unit that divides it: `4KiB`, `1000`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let unit = BINARY.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or(bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// Writes a rate with the largest unit that divides it: `1gbit`, `1500kbit`.
#[must_use]
pub fn rate_text(bits_per_second: u64) -> String {
    let units = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000)];
    let unit =
        units.into_iter().find(|(_, size)| bits_per_second > 0 && bits_per_second.is_multiple_of(*size));
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match unit {
        Some((name, size)) => write!(text, "{}{name}", bits_per_second / size),
        None => write!(text, "{bits_per_second}bit"),
    };
    text
}

/// Times in files as text with their unit, for serde's `with`.
pub mod time_format {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes a time as [`time_text`](super::time_text) does.
    ///
    /// # Errors
    /// Errors of the serializer.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::time_text(*time))
    }

    /// Reads a time as [`parse_time`](super::parse_time) does.
    ///
    /// # Errors
    /// Errors of the deserializer, and of the form.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        super::parse_time(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_forms_are_parsed() {
        assert_eq!(parse_time("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(parse_time("0.2ms"), Ok(Duration::from_micros(200)));
        assert_eq!(parse_time("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0"), Ok(Duration::ZERO));
        assert_eq!(
            [parse_size("4096"), parse_size("4KiB"), parse_size("1MB")],
            [Ok(4096), Ok(4096), Ok(1_000_000)]
        );
        for rate in ["1gbit", "1Gbit/s", "1000 Mbit/s", "125MB/s"] {
            assert_eq!(parse_rate(rate), Ok(1_000_000_000), "{rate}");
        }
        assert_eq!(parse_percent("5%"), Ok(0.05));
    }

    #[test]
    fn numbers_are_exact_and_rounded_down() {
        let units = &[("", 1), ("k", 1_000)];
        assert_eq!(scaled("18446744073709551615k", units), Some(u128::from(u64::MAX) * 1_000));
        assert_eq!(scaled("0.0019 k", units), Some(1));
        assert_eq!(scaled("9007199254740993", units), Some(9_007_199_254_740_993), "2^53 + 1");
        for wrong in ["18446744073709551616", ".5", "1.", "1.0000000001", "-1", "1e3", "1K", "k", ""] {
            assert_eq!(scaled(wrong, units), None, "{wrong}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_an_example() {
        for wrong in ["10", "ms", "-1ms", "1e3ms", "10 parsecs", "1.2.3s", "", "99999999999h"] {
            let why = parse_time(wrong).unwrap_err();
            assert!(why.contains("10ms") || why.contains("hundred days"), "{wrong}: {why}");
        }
        assert!(parse_size("4kib").is_err() && parse_size("-1").is_err());
        assert!(parse_rate("1").is_err() && parse_rate("0gbit").is_err());
        assert!(parse_percent("5").is_err() && parse_percent("101%").is_err());
    }

    #[test]
    fn texts_are_parsed_back() {
        for nanoseconds in [0, 7, 1500, 200_000, 10_000_000, 1_500_000_000, 60_000_000_000, 1_000_001_000] {
            let time = Duration::from_nanos(nanoseconds);
            assert_eq!(parse_time(&time_text(time)), Ok(time), "{}", time_text(time));
        }
        for bytes in [0, 1, 1000, 4096, 1 << 20, 3 << 30] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        for rate in [1, 1500, 1_500_000, 10_000_000_000] {
            assert_eq!(parse_rate(&rate_text(rate)), Ok(rate));
        }
        assert_eq!((time_text(Duration::from_millis(10)), size_text(4096)), ("10ms".into(), "4KiB".into()));
    }
}
