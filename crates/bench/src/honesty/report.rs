//! The comparison: rates of each round, their ratios, and what follows from them.

use std::fmt;

use serde::Serialize;

use super::ours::ReadCost;
use super::{CPU_SHARE_MAX, CPU_THREADS, DATA_TOLERANCE, Data, NAMES, NAMES_TOLERANCE, Part, Settings};
use crate::report::{new_table, short};
use crate::statistics::{CONFIDENCE, MedianInterval, median};

/// What follows from the rounds so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// With 95 % the median is inside of the limits.
    Agrees,
    /// With 95 % it is outside.
    Differs,
    /// The interval has a limit inside, or there are too few rounds for an interval.
    Undecided,
}

impl Verdict {
    /// Judges a median against the limits of what is allowed.
    fn of(samples: &[f64], least: f64, most: f64) -> Self {
        match MedianInterval::of(samples).filter(|interval| interval.confidence >= CONFIDENCE) {
            Some(interval) if interval.low >= least && interval.high <= most => Self::Agrees,
            Some(interval) if interval.high < least || interval.low > most => Self::Differs,
            _ => Self::Undecided,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Undecided => "undecided",
        })
    }
}

/// The rates of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// What was measured.
    pub name: &'static str,
    /// The unit of the rates.
    pub unit: &'static str,
    /// The other program.
    pub program: &'static str,
    /// The part by which rates may differ.
    pub tolerance: f64,
    /// This side's rates, one for each round.
    pub ours: Vec<f64>,
    /// The other program's.
    pub theirs: Vec<f64>,
    /// Rounds in which a phase was too short for a rate.
    pub too_short: u32,
}

impl Pair {
    fn new(name: &'static str, unit: &'static str, program: &'static str, tolerance: f64) -> Self {
        Self { name, unit, program, tolerance, ours: Vec::new(), theirs: Vec::new(), too_short: 0 }
    }

    pub(super) fn add(&mut self, ours: f64, theirs: f64) {
        self.ours.push(ours);
        self.theirs.push(theirs);
    }

    /// Returns this side's rate divided by the other's, of each round.
    #[must_use]
    pub fn ratios(&self) -> Vec<f64> {
        self.ours.iter().zip(&self.theirs).map(|(ours, theirs)| ours / theirs).collect()
    }

    /// Returns the verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.ratios(), 1.0 - self.tolerance, 1.0 + self.tolerance)
    }

    fn row(&self) -> Vec<String> {
        let middle = |rates: &[f64]| median(rates.to_vec()).map_or("–".to_owned(), short);
        let ratio = match MedianInterval::of(&self.ratios()) {
            Some(ratio) => format!("{:.3} ({:.3} … {:.3})", ratio.median, ratio.low, ratio.high),
            None if self.too_short > 0 => "too short: more --files".to_owned(),
            None => "–".to_owned(),
        };
        vec![
            self.name.to_owned(),
            self.unit.to_owned(),
            self.program.to_owned(),
            middle(&self.ours),
            middle(&self.theirs),
            ratio,
            format!("±{:.0} %", self.tolerance * 100.0),
            self.verdict().to_string(),
        ]
    }
}

/// CPU time of a cached read, with the harness and without, in nanoseconds; one value for each round.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuShare {
    /// With the harness: outside of the kernel.
    pub ours_user_ns: Vec<f64>,
    /// With the harness: all.
    pub ours_total_ns: Vec<f64>,
    /// The bare loop: outside of the kernel.
    pub bare_user_ns: Vec<f64>,
    /// The bare loop: all.
    pub bare_total_ns: Vec<f64>,
}

impl CpuShare {
    pub(super) fn add(&mut self, ours: &ReadCost, bare: &ReadCost) {
        let of_read = |cost: &ReadCost, time: std::time::Duration| time.as_nanos() as f64 / cost.reads as f64;
        self.ours_user_ns.push(of_read(ours, ours.times.user));
        self.ours_total_ns.push(of_read(ours, ours.times.user + ours.times.system));
        self.bare_user_ns.push(of_read(bare, bare.times.user));
        self.bare_total_ns.push(of_read(bare, bare.times.user + bare.times.system));
    }

    /// Returns the harness's part of the CPU time of each round: the time outside of the kernel that the bare loop does not need.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let users = self.ours_user_ns.iter().zip(&self.bare_user_ns);
        users.zip(&self.ours_total_ns).map(|((ours, bare), total)| (ours - bare) / total).collect()
    }

    /// Returns the verdict: `Agrees` if the share is at most [`CPU_SHARE_MAX`].
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(&self.shares(), f64::NEG_INFINITY, CPU_SHARE_MAX)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(share) = MedianInterval::of(&self.shares()) else { return Ok(()) };
        let ns = |values: &[f64]| median(values.to_vec()).unwrap_or_default();
        writeln!(
            f,
            "CPU time of a cached read of 4 KiB with {CPU_THREADS} threads: {:.0} ns with the harness ({:.0} ns outside of the kernel), \
             {:.0} ns without ({:.0} ns)",
            ns(&self.ours_total_ns),
            ns(&self.ours_user_ns),
            ns(&self.bare_total_ns),
            ns(&self.bare_user_ns),
        )?;
        let percent = |part: f64| part * 100.0;
        writeln!(
            f,
            "the harness takes {:.1} % of the CPU ({:.1} … {:.1}), allowed {:.0} %: {}",
            percent(share.median),
            percent(share.low),
            percent(share.high),
            percent(CPU_SHARE_MAX),
            self.verdict()
        )
    }
}

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Rounds.
    pub rounds: u32,
    /// Data rates, with fio; without samples if they were not measured.
    pub data: Vec<Pair>,
    /// Creation, stat and deletion, with Bonnie++.
    pub names: Vec<Pair>,
    /// The CPU time of the harness.
    pub cpu: CpuShare,
}

impl Report {
    pub(super) fn new(settings: &Settings) -> Self {
        let has = |part| settings.parts.contains(&part);
        let data = Data::ALL.iter().filter(|_| has(Part::Data));
        let names = NAMES.iter().filter(|_| has(Part::Names));
        Self {
            rounds: settings.rounds,
            data: data.map(|data| Pair::new(data.name(), data.unit(), "fio", DATA_TOLERANCE)).collect(),
            names: names.map(|name| Pair::new(name, "files/s", "bonnie++", NAMES_TOLERANCE)).collect(),
            cpu: CpuShare::default(),
        }
    }

    /// Returns all verdicts of what was measured.
    pub fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        let cpu = (!self.cpu.shares().is_empty()).then(|| self.cpu.verdict());
        self.data.iter().chain(&self.names).map(Pair::verdict).chain(cpu)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !(self.data.is_empty() && self.names.is_empty()) {
            let header =
                ["measure", "unit", "against", "enfys", "other", "ratio (95 %)", "allowed", "verdict"];
            let mut table = new_table(header.map(str::to_owned).to_vec(), 3);
            for pair in self.data.iter().chain(&self.names) {
                table.add_row(pair.row());
            }
            writeln!(f, "{table}")?;
            writeln!(
                f,
                "rates: medians. ratio: median of the rounds' ratios, with its interval by order statistics."
            )?;
        }
        self.cpu.write(f)?;
        let undecided = self.verdicts().filter(|verdict| *verdict == Verdict::Undecided).count();
        if undecided > 0 {
            writeln!(
                f,
                "{undecided} undecided: {} round(s); intervals of 95 % need at least 6, narrow ones more",
                self.rounds
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::CpuTimes;

    fn pair(ratios: &[f64]) -> Pair {
        let mut pair = Pair::new("x", "MB/s", "fio", 0.05);
        ratios.iter().for_each(|ratio| pair.add(100.0 * ratio, 100.0));
        pair
    }

    #[test]
    fn a_verdict_needs_an_interval_on_one_side_of_the_limit() {
        let verdict = |ratios: &[f64]| pair(ratios).verdict();
        assert_eq!(verdict(&[0.96, 0.99, 1.0, 1.01, 1.03, 1.04]), Verdict::Agrees);
        assert_eq!(verdict(&[1.06, 1.07, 1.08, 1.09, 1.1, 1.2]), Verdict::Differs);
        assert_eq!(verdict(&[0.8, 0.81, 0.82, 0.83, 0.84, 0.94]), Verdict::Differs);
        // One round of six beyond the limit may be chance.
        assert_eq!(verdict(&[0.99, 1.0, 1.0, 1.01, 1.03, 1.08]), Verdict::Undecided);
        // Five rounds have no interval of 95 %.
        assert_eq!(verdict(&[1.0; 5]), Verdict::Undecided);
        assert_eq!(verdict(&[2.0; 5]), Verdict::Undecided);
        assert_eq!(verdict(&[]), Verdict::Undecided);
    }

    #[test]
    fn the_share_of_the_harness_is_what_the_bare_loop_does_not_need() {
        let cost = |reads, user, system| ReadCost {
            reads,
            times: CpuTimes { user: Duration::from_micros(user), system: Duration::from_micros(system) },
        };
        let mut share = CpuShare::default();
        for _ in 0..6 {
            // 250 ns of 1,000 ns are outside of the kernel, 150 ns of them also in the bare loop.
            share.add(&cost(1000, 250, 750), &cost(2000, 300, 1600));
        }
        assert_eq!(share.shares(), [0.1; 6]);
        assert_eq!(share.verdict(), Verdict::Agrees);
        for _ in 0..60 {
            share.add(&cost(1000, 300, 700), &cost(2000, 300, 1600));
        }
        assert_eq!(share.verdict(), Verdict::Differs);
    }

    #[test]
    fn the_table_has_a_line_for_each_measure() {
        let report = Report {
            rounds: 2,
            data: vec![pair(&[1.0, 1.02])],
            names: vec![Pair { too_short: 2, ..Pair::new("create", "files/s", "bonnie++", 0.1) }],
            cpu: CpuShare::default(),
        };
        let text = report.to_string();
        let line = |start: &str| {
            text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default().to_owned()
        };
        let words: Vec<String> = line("x").split_whitespace().map(str::to_owned).collect();
        assert_eq!(words.join(" "), "x MB/s fio 101 100 1.010 (1.000 … 1.020) ±5 % undecided");
        assert!(line("create").contains("too short: more --files"), "{text}");
        assert!(text.contains("2 undecided: 2 round(s)"), "{text}");
    }
}
