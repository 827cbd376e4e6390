//! Properties of a link.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{parse_time, rate_text, time_text};

/// Largest round trip.
pub const DELAY_MAX: Duration = Duration::from_secs(60);
/// Packets that wait for the line by default, as in netem.
pub const QUEUE_PACKETS_DEFAULT: u32 = 1000;
/// Longest queue, in packets.
pub const QUEUE_PACKETS_MAX: u32 = 1_000_000;
/// Maximum number of outages.
pub const OUTAGES_MAX: usize = 1000;
/// Smallest packet size that IPv6 allows on a link, and the largest of IPv4.
const MTU_RANGE: std::ops::RangeInclusive<u32> = 1280..=65_535;

/// The treatment of packets by a link; the same in both directions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Round trip; half of it in each direction.
    #[serde(with = "crate::units::time_format")]
    pub delay: Duration,
    /// The round trip varies by at most this much in either direction, uniformly.
    #[serde(with = "crate::units::time_format")]
    pub jitter: Duration,
    /// Rate of each direction, in bits a second; `None` for as fast as possible.
    pub bits_per_second: Option<u64>,
    /// Probability that a packet is lost, in each direction.
    pub loss: f64,
    /// Probability that a packet skips the delay, and so overtakes others.
    pub reorder: f64,
    /// Maximum number of packets that wait for the line.
    pub queue_packets: u32,
    /// Times in which the link drops everything.
    pub outages: Vec<Outage>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Seed of losses, jitter and reordering.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            bits_per_second: None,
            loss: 0.0,
            reorder: 0.0,
            queue_packets: QUEUE_PACKETS_DEFAULT,
            outages: Vec::new(),
            mtu: 1500,
            seed: 1,
        }
    }
}

/// A time in which a link is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outage {
    /// When it begins, after the link's start.
    #[serde(with = "crate::units::time_format")]
    pub start: Duration,
    /// How long it lasts.
    #[serde(with = "crate::units::time_format")]
    pub length: Duration,
}

impl Outage {
    /// Returns whether the link is down at `now`.
    #[must_use]
    pub fn covers(&self, now: Duration) -> bool {
        now >= self.start && now - self.start < self.length
    }
}

impl std::str::FromStr for Outage {
    type Err = String;

    /// Parses `10s+2s`: two seconds from the tenth on.
    fn from_str(text: &str) -> Result<Self, String> {
        let (start, length) =
            text.split_once('+').ok_or_else(|| format!("`{text}`: expected START+LENGTH, as in 10s+2s"))?;
        Ok(Self { start: parse_time(start)?, length: parse_time(length)? })
    }
}

impl Settings {
    /// Checks all bounds.
    ///
    /// # Errors
    /// Which one is exceeded.
    pub fn check(&self) -> Result<(), String> {
        if self.delay > DELAY_MAX {
            return Err(format!("a delay of {}: at most {}", time_text(self.delay), time_text(DELAY_MAX)));
        }
        if self.jitter > self.delay {
            let (jitter, delay) = (time_text(self.jitter), time_text(self.delay));
            return Err(format!("a jitter of {jitter} is more than the delay of {delay}"));
        }
        if self.reorder > 0.0 && self.delay.is_zero() {
            return Err("reordering needs a delay: a reordered packet skips it".to_owned());
        }
        for (name, probability) in [("loss", self.loss), ("reordering", self.reorder)] {
            if !(0.0..=1.0).contains(&probability) {
                return Err(format!("a {name} of {probability}: expected 0 to 1"));
            }
        }
        if !(1..=QUEUE_PACKETS_MAX).contains(&self.queue_packets) {
            return Err(format!(
                "a queue of {} packets: expected 1 to {QUEUE_PACKETS_MAX}",
                self.queue_packets
            ));
        }
        if self.bits_per_second == Some(0) {
            return Err("a rate of 0: nothing would arrive".to_owned());
        }
        if self.outages.len() > OUTAGES_MAX {
            return Err(format!("{} outages: at most {OUTAGES_MAX}", self.outages.len()));
        }
        if !MTU_RANGE.contains(&self.mtu) {
            let (least, most) = (MTU_RANGE.start(), MTU_RANGE.end());
            return Err(format!("packets of {} bytes: expected {least} to {most}", self.mtu));
        }
        Ok(())
    }

    /// Returns whether large packets may pass uncut. Loss and reordering must hit packets of the wire.
    #[must_use]
    pub fn allows_large_packets(&self) -> bool {
        self.loss == 0.0 && self.reorder == 0.0
    }
}

impl std::fmt::Display for Settings {
    /// Writes the settings that differ from the default: `delay 10ms, rate 1gbit`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "round trip {}", time_text(self.delay))?;
        if !self.jitter.is_zero() {
            write!(f, " ± {}", time_text(self.jitter))?;
        }
        if let Some(rate) = self.bits_per_second {
            write!(f, ", rate {}, queue {} packets", rate_text(rate), self.queue_packets)?;
        }
        for (name, probability) in [("loss", self.loss), ("reordering", self.reorder)] {
            if probability > 0.0 {
                write!(f, ", {name} {} %", probability * 100.0)?;
            }
        }
        for outage in &self.outages {
            write!(f, ", down from {} for {}", time_text(outage.start), time_text(outage.length))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn bounds_are_checked() {
        let good = Settings { delay: MS(10), jitter: MS(10), loss: 1.0, reorder: 0.5, ..Settings::default() };
        assert_eq!(good.check(), Ok(()));
        for (wrong, named) in [
            (Settings { delay: MS(61_000), ..good.clone() }, "delay"),
            (Settings { jitter: MS(11), ..good.clone() }, "jitter"),
            (Settings { delay: MS(0), jitter: MS(0), ..good.clone() }, "reordering needs a delay"),
            (Settings { loss: 1.1, ..good.clone() }, "loss"),
            (Settings { queue_packets: 0, ..good.clone() }, "queue"),
            (Settings { bits_per_second: Some(0), ..good.clone() }, "rate"),
            (Settings { mtu: 1000, ..good.clone() }, "1280"),
        ] {
            assert!(wrong.check().unwrap_err().contains(named), "{wrong:?}");
        }
    }

    #[test]
    fn outages_are_parsed() {
        let outage: Outage = "10s+2s".parse().unwrap();
        assert_eq!(outage, Outage { start: MS(10_000), length: MS(2000) });
        assert!(outage.covers(MS(10_000)) && outage.covers(MS(11_999)) && !outage.covers(MS(12_000)));
        assert!("10s".parse::<Outage>().is_err() && "10s+2".parse::<Outage>().is_err());
    }

    #[test]
    fn text_names_what_differs_from_a_plain_wire() {
        let outages = vec!["1s+100ms".parse().unwrap()];
        let settings = Settings {
            delay: MS(10),
            bits_per_second: Some(1_000_000_000),
            loss: 0.005,
            outages,
            ..Settings::default()
        };
        assert_eq!(
            settings.to_string(),
            "round trip 10ms, rate 1gbit, queue 1000 packets, loss 0.5 %, down from 1s for 100ms"
        );
    }
}
