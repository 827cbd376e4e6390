//! Sizes in bytes, as people write and read them.

use std::fmt;
use std::str::FromStr;

use bench::units::{BINARY, scaled};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    /// Parses a number of bytes, or of the unit that follows it.
    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = scaled(text, BINARY).or_else(|| scaled(text, &[("", 1)]));
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        match bytes.filter(|bytes| *bytes > 0 && !text.contains('.')) {
            Some(bytes) => Ok(Self(bytes)),
            None => {
                Err("expected a number of bytes, or one followed by KiB, MiB, GiB or TiB, as in 4GiB".into())
            }
        }
    }
}

impl fmt::Display for Size {
    /// Uses the largest unit of which there is at least one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match BINARY.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((suffix, unit)) if self.0.is_multiple_of(*unit) => write!(f, "{} {suffix}", self.0 / unit),
            Some((suffix, unit)) => write!(f, "{:.1} {suffix}", self.0 as f64 / *unit as f64),
            None if self.0 == 1 => f.write_str("1 byte"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_with_or_without_a_unit() {
        for (text, bytes, shown) in [
            ("1", 1, "1 byte"),
            ("1000", 1000, "1000 bytes"),
            ("64KiB", 64 << 10, "64 KiB"),
            ("4GiB", 4 << 30, "4 GiB"),
            ("4 GiB", 4 << 30, "4 GiB"),
            ("2TiB", 2 << 40, "2 TiB"),
            ("1536MiB", 1536 << 20, "1.5 GiB"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size, size.to_string()), (Size(bytes), shown.to_owned()));
        }
        for wrong in ["", "0", "GiB", "4G", "4gib", "-1", "1.5GiB", "18446744073709551616", "16777216TiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }
}
