//! Times, sizes, rates and percentages as text: `10ms`, `4KiB`, `1gbit`, `5%`.

use std::fmt::Write as _;
use std::time::Duration;

/// Units of time, in nanoseconds.
const TIMES: &[(&str, f64)] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("h", 3600e9),
];
/// Units of sizes, in bytes.
const SIZES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
/// Units of rates, in bits a second: those of tc(8), others in use, and bytes a second.
const RATES: &[(&str, f64)] = &[
    ("bit", 1.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("kbit/s", 1e3),
    ("Mbit/s", 1e6),
    ("Gbit/s", 1e9),
    ("B/s", 8.0),
    ("kB/s", 8e3),
    ("MB/s", 8e6),
    ("GB/s", 8e9),
    ("MiB/s", 8.0 * 1_048_576.0),
    ("GiB/s", 8.0 * 1_073_741_824.0),
];
/// Longest time that is accepted: a hundred days.
const TIME_MAX_SECONDS: f64 = 8_640_000.0;

/// Parses a time with its unit; `0` needs none.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let expected = || format!("`{text}`: expected a time with its unit, as in 10ms, 1.5s or 2m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let nanoseconds = parse(text, TIMES).ok_or_else(expected)?;
    if nanoseconds > TIME_MAX_SECONDS * 1e9 {
        return Err(format!("`{text}`: at most a hundred days"));
    }
    Ok(Duration::from_nanos(nanoseconds.round() as u64))
}

/// Parses a size in bytes.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = parse(text, SIZES).filter(|bytes| *bytes < 9e18);
    bytes
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| format!("`{text}`: expected a size, as in 4096, 4KiB or 1MB"))
}

/// Parses a rate, in bits a second; more than 0.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let bits = parse(text, RATES).filter(|bits| *bits >= 1.0 && *bits < 9e18);
    bits.map(|bits| bits.round() as u64)
        .ok_or_else(|| format!("`{text}`: expected a rate, as in 100mbit, 1gbit or 50MB/s"))
}

/// Parses a percentage from 0 to 100, as a part of 1.
///
/// # Errors
/// The forms that are accepted.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = parse(text, &[("%", 1.0)]).filter(|percent| *percent <= 100.0);
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| format!("`{text}`: expected a percentage from 0% to 100%, as in 0.5%"))
}

/// Parses a number that is not negative, followed by one of the units.
fn parse(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = units.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    Some(number.parse::<f64>().ok()? * factor)
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
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or(bytes.to_string(), |(name, shift)| format!("{}{name}", bytes >> shift))
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
