//! Values of the options of `enfys proxy`.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use bench::units::scaled;
use net::proxy::Outage;

use crate::duration::Span;

/// Units of a rate, and their size in millionths of a byte.
const RATES: [(&str, u64); 10] = [
    ("kbit", 125_000_000),
    ("Mbit", 125_000_000_000),
    ("Gbit", 125_000_000_000_000),
    ("bit", 125_000),
    ("KiB", 1_024_000_000),
    ("MiB", 1_048_576_000_000),
    ("GiB", 1_073_741_824_000_000),
    ("kB", 1_000_000_000),
    ("MB", 1_000_000_000_000),
    ("GB", 1_000_000_000_000_000),
];

/// Parts of [`RATES`] in a byte, and of a loss in one.
const MILLION: u64 = 1_000_000;

/// Bytes a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub NonZeroU64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a rate with its unit, as in 100Mbit/s or 12.5MB/s (units: kbit, Mbit, Gbit, kB, MB, GB, KiB, \
                 MiB, GiB; `/s` may be left out), found `{text}`"
            )
        };
        let number = text.strip_suffix("/s").unwrap_or(text);
        let bytes = scaled(number, &RATES).ok_or_else(wrong)? / u128::from(MILLION);
        u64::try_from(bytes).ok().and_then(NonZeroU64::new).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.0.get() as f64 * 8.0;
        let (value, unit) = match bits {
            _ if bits >= 1e9 => (bits / 1e9, "Gbit/s"),
            _ if bits >= 1e6 => (bits / 1e6, "Mbit/s"),
            _ => (bits / 1e3, "kbit/s"),
        };
        let digits = format!("{value:.3}");
        write!(f, "{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Lost segments in a million, given in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss(pub u32);

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected a percentage from 0% to less than 100%, as in 0.1% (steps of 0.0001%), found `{text}`"
            )
        };
        let parts = scaled(text, &[("%", MILLION / 100)]).ok_or_else(wrong)?;
        let is_zero = text.bytes().all(|byte| b"0. %".contains(&byte));
        match u32::try_from(parts) {
            Ok(parts) if u64::from(parts) < MILLION && (parts > 0 || is_zero) => Ok(Self(parts)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:.4}", f64::from(self.0) / 10_000.0);
        write!(f, "{} %", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A time without traffic: `every 30s for 5s` or `at 10s for 5s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutageArgument(pub Outage);

impl FromStr for OutageArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [kind @ ("every" | "at"), time, "for", length] = words[..] else {
            return Err(format!("expected `every TIME for TIME` or `at TIME for TIME`, found `{text}`"));
        };
        let (first, length) = (time.parse::<Span>()?.0, length.parse::<Span>()?.0);
        if length == Duration::ZERO {
            return Err("an outage lasts longer than 0".into());
        }
        let period = (kind == "every").then_some(first);
        if period.is_some_and(|period| period <= length) {
            return Err(format!("outages of {} must be more than that apart: see `every`", Span(length)));
        }
        Ok(Self(Outage { first, period, length }))
    }
}

impl fmt::Display for OutageArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outage { first, period, length } = self.0;
        match period {
            Some(period) => write!(f, "an outage of {} every {}", Span(length), Span(period)),
            None => write!(f, "an outage of {} after {}", Span(length), Span(first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_of_bits_or_bytes() {
        for (text, bytes, shown) in [
            ("100Mbit/s", 12_500_000, "100 Mbit/s"),
            ("100Mbit", 12_500_000, "100 Mbit/s"),
            ("1Gbit/s", 125_000_000, "1 Gbit/s"),
            ("9600bit/s", 1_200, "9.6 kbit/s"),
            ("1.5MB/s", 1_500_000, "12 Mbit/s"),
            ("1MiB/s", 1_048_576, "8.389 Mbit/s"),
            ("64KiB", 65_536, "524.288 kbit/s"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.0.get(), rate.to_string()), (bytes, shown.to_owned()), "{text}");
        }
        for wrong in ["", "100", "0Mbit/s", "1bit/s", "Mbit", "-1MB/s", "100mb", "99999999999999999999GB"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_loss_is_a_percentage() {
        for (text, parts, shown) in
            [("0%", 0, "0 %"), ("0.1%", 1_000, "0.1 %"), ("1%", 10_000, "1 %"), ("0.0001%", 1, "0.0001 %")]
        {
            let loss: Loss = text.parse().unwrap();
            assert_eq!((loss.0, loss.to_string()), (parts, shown.to_owned()), "{text}");
        }
        for wrong in ["", "0.1", "100%", "101%", "-1%", "0.00001%", "one%"] {
            assert!(wrong.parse::<Loss>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_outage_is_repeated_or_single() {
        let parsed = |text: &str| text.parse::<OutageArgument>();
        let seconds = Duration::from_secs;
        assert_eq!(
            parsed("every 30s for 5s"),
            Ok(OutageArgument(Outage { first: seconds(30), period: Some(seconds(30)), length: seconds(5) }))
        );
        assert_eq!(
            parsed("at 10s for 5s"),
            Ok(OutageArgument(Outage { first: seconds(10), period: None, length: seconds(5) }))
        );
        for wrong in ["", "5s", "every 30s", "at 10s for", "at 10 for 5s", "at 10s for 0s", "every 5s for 5s"]
        {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
