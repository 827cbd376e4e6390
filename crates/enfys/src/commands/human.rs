//! Sizes as `ls`, `du` and `df` print them.

/// The unit of printed sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeUnit {
    /// Blocks of this many bytes, rounded up.
    Blocks(u64),
    /// With a suffix, powers of 1024 (`-h`).
    Binary,
    /// With a suffix, powers of 1000 (`--si`).
    Decimal,
}

const BINARY_SUFFIXES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
/// `--si` has a small `k`.
const DECIMAL_SUFFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

impl SizeUnit {
    /// Prints a number of bytes. Like coreutils, it rounds up, so that nothing looks smaller than it is.
    pub fn print(self, bytes: u64) -> String {
        match self {
            Self::Blocks(size) => bytes.div_ceil(size).to_string(),
            Self::Binary => scaled(bytes, 1024, &BINARY_SUFFIXES),
            Self::Decimal => scaled(bytes, 1000, &DECIMAL_SUFFIXES),
        }
    }
}

fn scaled(bytes: u64, base: u64, suffixes: &[&str]) -> String {
    if bytes < base {
        return bytes.to_string();
    }
    let (bytes, mut unit) = (u128::from(bytes), 1_u128);
    for suffix in &suffixes[1..] {
        unit *= u128::from(base);
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 {
            return format!("{}.{}{suffix}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < u128::from(base) {
            return format!("{whole}{suffix}");
        }
    }
    // 2^64 is 16 E.
    format!("{}{}", bytes.div_ceil(unit), suffixes[suffixes.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `numfmt --to=iec --round=up` of GNU coreutils, and of `--to=si`.
    #[test]
    fn sizes_have_two_or_three_digits_and_are_rounded_up() {
        for (bytes, binary, decimal) in [
            (0, "0", "0"),
            (999, "999", "999"),
            (1000, "1000", "1.0k"),
            (1023, "1023", "1.1k"),
            (1024, "1.0K", "1.1k"),
            (1025, "1.1K", "1.1k"),
            (10_188, "10K", "11k"),
            (10_240, "10K", "11k"),
            (10_241, "11K", "11k"),
            (1_048_575, "1.0M", "1.1M"),
            (1_048_576, "1.0M", "1.1M"),
            (999_999_999, "954M", "1.0G"),
            (u64::MAX, "16E", "19E"),
        ] {
            assert_eq!(SizeUnit::Binary.print(bytes), binary, "{bytes}");
            assert_eq!(SizeUnit::Decimal.print(bytes), decimal, "{bytes}");
        }
    }

    #[test]
    fn a_partial_block_counts_as_a_block() {
        assert_eq!([0, 1, 1024, 1025].map(|bytes| SizeUnit::Blocks(1024).print(bytes)), ["0", "1", "1", "2"]);
    }
}
