//! Times as `ls` and `stat` print them, in the local time zone.

use jiff::Zoned;
use jiff::tz::TimeZone;

use super::attributes::Timestamp;

/// Half of a mean year of the Gregorian calendar: older times are shown with their year.
const RECENT_SECONDS: i64 = 31_556_952 / 2;

/// Prints times.
#[derive(Debug, Clone)]
pub struct TimeFormat {
    zone: TimeZone,
    now: Timestamp,
    is_full: bool,
}

impl TimeFormat {
    /// Creates the format of `ls -l`, or with `is_full` that of `ls --full-time`, in the zone that TZ and the system name.
    pub fn local(now: Timestamp, is_full: bool) -> Self {
        Self { zone: TimeZone::system(), now, is_full }
    }

    /// Creates the format in UTC, for tests.
    #[cfg(test)]
    pub fn utc(now: Timestamp, is_full: bool) -> Self {
        Self { zone: TimeZone::UTC, now, is_full }
    }

    /// Prints a time.
    pub fn print(&self, time: Timestamp) -> String {
        let Some(zoned) = self.zoned(time) else { return time.seconds.to_string() };
        if self.is_full {
            return full(&zoned);
        }
        let age = self.now.seconds - time.seconds;
        // The format of the POSIX locale, as POSIX specifies for `ls`.
        let format =
            if (0..=RECENT_SECONDS).contains(&age) && time <= self.now { "%b %e %H:%M" } else { "%b %e  %Y" };
        zoned.strftime(format).to_string()
    }

    /// Prints a time with nanoseconds and zone, as `stat` does.
    pub fn print_full(&self, time: Timestamp) -> String {
        self.zoned(time).map_or_else(|| time.seconds.to_string(), |zoned| full(&zoned))
    }

    /// Returns the local time; `None` outside of the years from -9999 to 9999, which a server may return.
    fn zoned(&self, time: Timestamp) -> Option<Zoned> {
        let nanoseconds = i32::try_from(time.nanoseconds).ok()?;
        Some(jiff::Timestamp::new(time.seconds, nanoseconds).ok()?.to_zoned(self.zone.clone()))
    }
}

fn full(zoned: &Zoned) -> String {
    zoned.strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(is_full: bool) -> TimeFormat {
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        TimeFormat { zone: TimeZone::fixed(jiff::tz::offset(2)), now, is_full }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 123_456_789 }
    }

    /// The output of `TZ=Etc/GMT-2 LC_ALL=C ls -l` at 2023-11-15 00:13:20 local time.
    #[test]
    fn recent_times_have_a_clock_and_others_a_year() {
        for (seconds, shown) in [
            (1_699_999_999, "Nov 15 00:13"),
            (1_699_000_000, "Nov  3 10:26"),
            (1_684_300_000, "May 17 07:06"),
            (1_684_200_000, "May 16  2023"),
            (1_700_000_060, "Nov 15  2023"),
            (0, "Jan  1  1970"),
            (-86_400, "Dec 31  1969"),
        ] {
            assert_eq!(format(false).print(at(seconds)), shown, "{seconds}");
        }
    }

    #[test]
    fn full_times_have_nanoseconds_and_zone() {
        assert_eq!(format(true).print(at(0)), "1970-01-01 02:00:00.123456789 +0200");
        assert_eq!(format(false).print_full(at(-1)), "1970-01-01 01:59:59.123456789 +0200");
    }

    #[test]
    fn impossible_times_are_shown_as_seconds() {
        assert_eq!(format(false).print(at(i64::MAX)), i64::MAX.to_string());
        assert_eq!(format(true).print(at(i64::MIN)), i64::MIN.to_string());
    }
}
