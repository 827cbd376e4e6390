//! Numbers with `+` and `-`, as `find` compares them.

/// How a value compares with a number: `+N` is more, `-N` less, `N` equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    More,
    Less,
    Equal,
}

/// A number that values are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compare {
    comparison: Comparison,
    number: u64,
}

impl Compare {
    /// Parses `[+-]N`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (comparison, number) = split(text);
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { comparison, number: number.parse().ok().filter(|_| is_number)? })
    }

    pub(super) fn holds(self, value: u64) -> bool {
        match self.comparison {
            Comparison::More => value > self.number,
            Comparison::Less => value < self.number,
            Comparison::Equal => value == self.number,
        }
    }
}

/// Splits a sign from a number.
pub(super) fn split(text: &str) -> (Comparison, &str) {
    match text.as_bytes().first() {
        Some(b'+') => (Comparison::More, &text[1..]),
        Some(b'-') => (Comparison::Less, &text[1..]),
        _ => (Comparison::Equal, text),
    }
}

/// A size in units, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    compare: Compare,
    unit: u64,
}

/// Suffixes of `-size` and their bytes.
const UNITS: [(char, u64); 6] =
    [('c', 1), ('w', 2), ('b', 512), ('k', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];

impl Size {
    /// Parses `[+-]N[cwbkMG]`; blocks of 512 bytes without a suffix.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unit = UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(*suffix)?, *unit)));
        let (number, unit) = unit.unwrap_or((text, 512));
        Some(Self { compare: Compare::parse(number)?, unit })
    }

    pub(super) fn holds(self, bytes: u64) -> bool {
        self.compare.holds(bytes.div_ceil(self.unit))
    }
}

/// An age in days or minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    comparison: Comparison,
    nanoseconds: i128,
    unit: AgeUnit,
}

/// The unit of an age, which decides how ages are rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgeUnit {
    /// Rounds down: `+1` is two days or more.
    Days,
    /// Rounds up.
    Minutes,
}

impl AgeUnit {
    fn nanoseconds(self) -> i128 {
        match self {
            Self::Days => 86_400_000_000_000,
            Self::Minutes => 60_000_000_000,
        }
    }
}

impl Age {
    /// Parses `[+-]N`, with a fraction if there is a point.
    pub(super) fn parse(text: &str, unit: AgeUnit) -> Option<Self> {
        let (comparison, number) = split(text);
        let one = unit.nanoseconds();
        let nanoseconds = bench::units::scaled(number, &[("", u64::try_from(one).ok()?)])?;
        Some(Self { comparison, nanoseconds: i128::try_from(nanoseconds).ok()?, unit })
    }

    /// Returns whether it holds for something this many nanoseconds old; negative ages are in the future.
    pub(super) fn holds(self, age: i128) -> bool {
        let (asked, one) = (self.nanoseconds, self.unit.nanoseconds());
        match (self.comparison, self.unit) {
            (Comparison::More, AgeUnit::Days) => age >= asked + one,
            (Comparison::Equal, AgeUnit::Days) => (asked..asked + one).contains(&age),
            (Comparison::More, AgeUnit::Minutes) => age > asked,
            (Comparison::Equal, AgeUnit::Minutes) => (asked - one..asked).contains(&age),
            (Comparison::Less, _) => age < asked,
        }
    }
}
