//! The papers' tables and figures: each with its finding, a plan that repeats it, and a rule that judges the finding.
//!
//! Only findings are judged: the winner, the ratio, the scaling. Absolute numbers of other machines are shown
//! with those of this run, not compared. [`FIGURES`] is the registry, [`judge`] applies a rule, [`page`] writes the page.

mod of_1994;
mod of_2002;
mod of_2008;
mod of_2015;
pub mod page;
mod runs;

use std::fmt;

pub use self::runs::{Pick, Runs};
use crate::plan::Plan;
use crate::result::RunResult;

/// The amount of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds for each figure: enough to see a large effect.
    Quick,
    /// Minutes for each figure.
    Normal,
    /// The paper's sizes and times.
    Full,
}

impl Scale {
    /// Returns the value for this scale.
    const fn pick<T: Copy>(self, quick: T, normal: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Normal => normal,
            Self::Full => full,
        }
    }

    /// Returns rounds and times, as the first lines of a plan.
    fn times(self) -> &'static str {
        self.pick(
            "rounds = 1\nduration = '2s'\nwarm-up = '0'\n",
            "rounds = 3\nduration = '10s'\nwarm-up = '1s'\n",
            "rounds = 3\nduration = '300s'\nwarm-up = '5s'\n",
        )
    }
}

/// The verdict on a paper's finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The finding is seen here too.
    Confirmed,
    /// The opposite is seen, because the cause is missing here.
    Reversed,
    /// Neither.
    NotSeen,
    /// Runs are missing or failed.
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Reversed => "reversed",
            Self::NotSeen => "not seen",
            Self::NotMeasured => "not measured",
        })
    }
}

/// A judged finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers of this run.
    pub ours: String,
    /// The counter that explains the verdict.
    pub counter: String,
}

impl Judgement {
    fn new(verdict: Verdict, ours: impl Into<String>, counter: impl Into<String>) -> Self {
        Self { verdict, ours: ours.into(), counter: counter.into() }
    }

    fn not_measured() -> Self {
        Self::new(Verdict::NotMeasured, "runs are missing or failed", "")
    }
}

/// One table or figure.
pub struct Figure {
    /// Its name: `2015:fig8`.
    pub name: &'static str,
    /// Its subject.
    pub title: &'static str,
    /// The paper's finding, with its numbers.
    pub finding: &'static str,
    /// The plan that repeats it, as TOML.
    plan: fn(Scale) -> String,
    /// The rule; `None` if a number is missing.
    judge: fn(&Runs<'_>) -> Option<Judgement>,
}

/// All figures that can be repeated, in order of years.
pub const FIGURES: &[&[Figure]] = &[of_1994::FIGURES, of_2002::FIGURES, of_2008::FIGURES, of_2015::FIGURES];

/// Returns the figures whose name begins with `name`; all for `None`.
///
/// # Errors
/// The known names.
pub fn figures(name: Option<&str>) -> Result<Vec<&'static Figure>, String> {
    let all = || FIGURES.iter().copied().flatten();
    let Some(name) = name else { return Ok(all().collect()) };
    let exact: Vec<&Figure> = all().filter(|figure| figure.name == name).collect();
    let found =
        if exact.is_empty() { all().filter(|figure| figure.name.starts_with(name)).collect() } else { exact };
    if found.is_empty() {
        let known = all().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
        return Err(format!("no figure `{name}`, expected one of {known}"));
    }
    Ok(found)
}

impl Figure {
    /// Returns the plan for a scale.
    ///
    /// # Errors
    /// An error in the plan, which a test excludes.
    pub fn plan(&self, scale: Scale) -> Result<Plan, Vec<String>> {
        let name = self.name.replace(':', "-");
        Plan::parse(self.name, &format!("name = '{name}'\n{}{}", scale.times(), (self.plan)(scale)))
    }

    /// Judges the finding by the results of the plan.
    #[must_use]
    pub fn judge(&self, results: &[RunResult]) -> Judgement {
        (self.judge)(&Runs::new(results)).unwrap_or_else(Judgement::not_measured)
    }
}

/// A target of plans: the server that the bench starts, on disk.
const ENFYS: &str = "[[target]]\nname = 'enfys'\nserver = 'local:enfys'\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_valid_at_every_scale() {
        for figure in figures(None).unwrap() {
            for scale in [Scale::Quick, Scale::Normal, Scale::Full] {
                let plan = figure.plan(scale).unwrap_or_else(|errors| panic!("{}: {errors:?}", figure.name));
                assert!(!plan.cases.is_empty());
            }
        }
    }

    #[test]
    fn missing_results_are_not_judged() {
        for figure in figures(None).unwrap() {
            assert_eq!(figure.judge(&[]).verdict, Verdict::NotMeasured, "{}", figure.name);
        }
    }

    #[test]
    fn names_are_unique_and_prefixes_select() {
        let all = figures(None).unwrap();
        let names: std::collections::BTreeSet<&str> = all.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(figures(Some("2015")).unwrap().len() > 1);
        assert_eq!(figures(Some("1994:table2")).unwrap().len(), 1);
        assert!(figures(Some("2016")).err().unwrap().contains("2015:fig8"));
    }
}
