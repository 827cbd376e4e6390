//! The papers' tables and figures: each with its finding, a plan that repeats it, and a rule that judges the finding.
//!
//! Only findings are judged: the winner, the ratio, the scaling. Absolute numbers of other machines are shown
//! with those of this run, not compared. [`FIGURES`] is the registry, [`judge`] applies a rule, [`page`] writes the page.

mod claims;
mod measures;
mod of_1994;
mod of_2002;
mod of_2008;
mod of_2015;
pub mod page;
mod planned;
mod runs;

use std::fmt;
use std::path::Path;
use std::time::Duration;

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

    /// Returns the number of rounds, as the first line of a plan.
    fn rounds(self) -> &'static str {
        self.pick("rounds = 1\n", "rounds = 3\n", "rounds = 3\n")
    }

    /// Returns the times of a plan that has none of its own.
    fn times(self) -> &'static str {
        self.pick(
            "duration = '1s'\nwarm-up = '0'\n",
            "duration = '4s'\nwarm-up = '1s'\n",
            "duration = '300s'\nwarm-up = '5s'\n",
        )
    }

    /// Returns the times of a plan whose subject is the time in which caches fill: without a warm-up.
    fn times_from_cold(self) -> &'static str {
        self.pick(
            "duration = '3s'\nwarm-up = '0'\n",
            "duration = '15s'\nwarm-up = '0'\n",
            "duration = '300s'\nwarm-up = '0'\n",
        )
    }

    /// Returns the number of clients, of which the 2015 paper has five.
    const fn clients(self) -> u32 {
        self.pick(2, 5, 5)
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
    /// The plan that repeats it, as TOML; empty if the figure is computed. It may begin with `duration` and `warm-up`.
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
    /// Returns the plan for a scale; `None` if the figure is computed. `local` is a directory for the runs on a local disk.
    ///
    /// Figures with the same plan have the same results, in the directory of the first one.
    ///
    /// # Errors
    /// An error in the plan, which a test excludes.
    pub fn plan(&self, scale: Scale, local: &Path) -> Result<Option<Plan>, Vec<String>> {
        let own = (self.plan)(scale);
        if own.is_empty() {
            return Ok(None);
        }
        let name = self.first_with_these_runs(scale).replace(':', "-");
        let times = if own.starts_with("duration") { "" } else { scale.times() };
        let own = own.replace(LOCAL, &local.to_string_lossy());
        Plan::parse(self.name, &format!("name = '{name}'\n{}{times}{own}", scale.rounds())).map(Some)
    }

    /// Returns the name of the first figure with the same plan: this one's, if there is no other.
    #[must_use]
    pub fn first_with_these_runs(&self, scale: Scale) -> &'static str {
        let own = (self.plan)(scale);
        let mut all = FIGURES.iter().copied().flatten();
        all.find(|figure| !own.is_empty() && (figure.plan)(scale) == own)
            .map_or(self.name, |figure| figure.name)
    }

    /// Returns the time that the runs take on a machine that does nothing else, roughly.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn planned_time(&self, scale: Scale) -> Result<Duration, Vec<String>> {
        Ok(self.plan(scale, Path::new("/"))?.map_or(planned::COMPUTED, |plan| planned::time(&plan)))
    }

    /// Judges the finding by the results of the plan.
    #[must_use]
    pub fn judge(&self, results: &[RunResult]) -> Judgement {
        (self.judge)(&Runs::new(results)).unwrap_or_else(Judgement::not_measured)
    }
}

/// A target of plans: the server that the bench starts, on disk.
const ENFYS: &str = "[[target]]\nname = 'enfys'\nserver = 'local:enfys'\n";

/// A target of plans: the local disk, which is the papers' baseline.
const ON_LOCAL_DISK: &str = "[[target]]\nname = 'local'\nserver = '<local>'\n";
/// The place of its directory in a plan's text.
const LOCAL: &str = "<local>";

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the planned time of all figures, each plan once.
    fn planned(scale: Scale) -> Duration {
        let all = figures(None).unwrap();
        let firsts = all.iter().filter(|figure| figure.first_with_these_runs(scale) == figure.name);
        firsts.map(|figure| figure.planned_time(scale).unwrap()).sum()
    }

    #[test]
    fn all_figures_are_planned_for_five_minutes_or_an_hour() {
        let (quick, normal) = (planned(Scale::Quick), planned(Scale::Normal));
        assert!(quick <= Duration::from_secs(300), "{quick:?}");
        assert!(normal <= Duration::from_secs(3600), "{normal:?}");
    }

    #[test]
    fn figures_with_the_same_plan_share_their_results() {
        let name = |figure: &str| {
            let plan = figures(Some(figure)).unwrap()[0].plan(Scale::Normal, Path::new("/")).unwrap();
            plan.map(|plan| plan.name)
        };
        assert_eq!(name("2015:fig15").as_deref(), Some("2015-fig14"));
        assert_eq!(name("2015:fig14").as_deref(), Some("2015-fig14"));
        assert_eq!(name("2015:fig3"), None, "it is computed");
    }

    #[test]
    fn the_local_disk_is_a_directory() {
        let plan = figures(Some("2008:tar")).unwrap()[0].plan(Scale::Quick, Path::new("/scratch")).unwrap();
        let cases = plan.unwrap().cases;
        assert!(cases.iter().any(|case| case.target.server == "/scratch" && case.version.is_none()));
    }

    #[test]
    fn every_plan_is_valid_at_every_scale() {
        for figure in figures(None).unwrap() {
            for scale in [Scale::Quick, Scale::Normal, Scale::Full] {
                let plan = figure.plan(scale, Path::new("/"));
                let plan = plan.unwrap_or_else(|errors| panic!("{}: {errors:?}", figure.name));
                assert!(plan.is_none_or(|plan| !plan.cases.is_empty()));
            }
        }
    }

    #[test]
    fn missing_results_are_not_judged() {
        let is_measured = |figure: &&Figure| !(figure.plan)(Scale::Quick).is_empty();
        for figure in figures(None).unwrap().into_iter().filter(is_measured) {
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
