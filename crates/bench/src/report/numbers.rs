//! Numbers as reports show them: three significant digits and a unit.

use crate::result::Measure;

/// Writes a number with three significant digits; thousands as `k`, `M`, `G`.
pub(crate) fn short(value: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // A number that three digits round up to the next step gets the unit of that step.
    let step = steps.into_iter().find(|(size, _)| value.abs() >= size * 0.9995);
    let (size, unit) = step.unwrap_or((1.0, ""));
    let scaled = value / size;
    let decimals = match scaled.abs() {
        0.0 => 0,
        99.95.. => 0,
        9.995.. => 1,
        0.9995.. => 2,
        _ => 3,
    };
    format!("{scaled:.decimals$}{unit}")
}

impl Measure {
    /// Returns the name of the measure, with its unit.
    pub(super) fn title(self) -> String {
        match self {
            Self::Operations => "operations/s".to_owned(),
            Self::Bytes => "MB/s".to_owned(),
            Self::Latency(ten_thousandths) => {
                let percentile = f64::from(ten_thousandths) / 100.0;
                format!("p{percentile} ms")
            }
            Self::Requests => "requests/operation".to_owned(),
            Self::SlotWaits => "slot waits/operation (deviation)".to_owned(),
            Self::SlotWaitTime => "slot wait ms".to_owned(),
            Self::Outstanding => "outstanding requests".to_owned(),
            Self::Retransmissions => "retransmissions".to_owned(),
            Self::Timeouts => "timeouts".to_owned(),
        }
    }

    /// Converts a value into the unit of the title.
    pub(super) fn in_unit(self, value: f64) -> f64 {
        match self {
            Self::Bytes | Self::Latency(_) => value / 1e6,
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (0.01234, "0.012"),
            (1.0, "1.00"),
            (9.994, "9.99"),
            (12.34, "12.3"),
            (123.4, "123"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (1_177_000_000.0, "1.18G"),
            (-1500.0, "-1.50k"),
        ] {
            assert_eq!(short(value), text, "{value}");
        }
    }

    #[test]
    fn units_are_those_of_the_titles() {
        assert_eq!(Measure::Latency(9990).title(), "p99.9 ms");
        assert_eq!(Measure::Latency(9999).title(), "p99.99 ms");
        assert_eq!(Measure::Latency(5000).in_unit(1_500_000.0), 1.5);
        assert_eq!(Measure::Bytes.in_unit(1_177_000_000.0), 1177.0);
    }
}
