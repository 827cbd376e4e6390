//! Times as people write and read them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bench::units::{TIMES, scaled};

/// A time with its unit, as in `10ms`, `1.5s` or `2min`; at most 100 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

/// The longest time.
const SECONDS_MAX: u64 = 100 * 366 * 86_400;

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("expected a time with its unit (us, ms, s, min or h), as in 10ms or 1.5s, found `{text}`")
        };
        if text == "0" {
            return Ok(Self::default());
        }
        // No space, and no `m`, which could be a month.
        let is_plain = !text.contains(char::is_whitespace) && !text.ends_with('m');
        let nanoseconds = scaled(text, TIMES).filter(|_| is_plain).ok_or_else(wrong)?;
        let span = Duration::from_nanos_u128(nanoseconds.min(u128::from(u64::MAX)));
        if span.as_secs() > SECONDS_MAX { Err(wrong()) } else { Ok(Self(span)) }
    }
}

impl fmt::Display for Span {
    /// Uses the largest unit of which there is at least one, with up to three digits after the point.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let (value, unit) = match seconds {
            0.0 => (0.0, "s"),
            _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
            _ if seconds < 1.0 => (seconds * 1e3, "ms"),
            _ if seconds < 60.0 => (seconds, "s"),
            _ if seconds < 3600.0 => (seconds / 60.0, "min"),
            _ => (seconds / 3600.0, "h"),
        };
        let digits = format!("{value:.3}");
        write!(f, "{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        for (text, nanoseconds, shown) in [
            ("0", 0, "0 s"),
            ("0ms", 0, "0 s"),
            ("250us", 250_000, "250 µs"),
            ("250µs", 250_000, "250 µs"),
            ("10ms", 10_000_000, "10 ms"),
            ("1.5ms", 1_500_000, "1.5 ms"),
            ("30s", 30_000_000_000, "30 s"),
            ("0.5s", 500_000_000, "500 ms"),
            ("2min", 120_000_000_000, "2 min"),
            ("90min", 5_400_000_000_000, "1.5 h"),
            ("1h", 3_600_000_000_000, "1 h"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_nanos(), span.to_string()), (nanoseconds, shown.to_owned()), "{text}");
        }
    }

    #[test]
    fn errors_name_the_units() {
        for wrong in
            ["", "10", "ms", "10 ms", "-1s", "1,5s", ".5s", "1.s", "1.0000000001s", "1e3s", "99999999h", "1M"]
        {
            let error = wrong.parse::<Span>().unwrap_err();
            assert!(error.contains("as in 10ms") && error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
