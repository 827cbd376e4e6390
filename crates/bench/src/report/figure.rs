//! The data of a plot, independent of the drawing.

use std::collections::BTreeMap;

use super::groups::{Group, Property, group, varying};
use crate::hashcast::Simulated;
use crate::result::{Measure, RunResult};
use crate::statistics::MedianInterval;

/// An axis is logarithmic if its greatest value is at least this many times the least.
const LOG_RATIO: f64 = 30.0;
/// Maximum number of series of one figure; more are cut into several figures.
const SERIES_MAX: usize = 8;

/// A plot with the numbers that it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
    /// Whether points are marked; a line by the second has too many.
    pub marks: bool,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Label with the unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub is_log: bool,
    /// Names of the values 1, 2, 3, …, if the axis has names.
    pub names: Vec<String>,
}

/// One line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by rising `x`.
    pub points: Vec<Point>,
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Place on the horizontal axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Interval of the value; `None` for a value without.
    pub interval: Option<(f64, f64)>,
    /// Rounds that the value comes from.
    pub rounds: usize,
}

impl Figure {
    /// Returns the names of the points on the horizontal axis, in order.
    #[must_use]
    pub fn x_values(&self) -> Vec<f64> {
        let mut values: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.x)).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    }

    /// Returns the text of a place on the horizontal axis.
    #[must_use]
    pub fn x_text(&self, x: f64) -> String {
        let name = (x >= 1.0).then(|| self.x.names.get(x as usize - 1)).flatten();
        name.cloned().unwrap_or_else(|| x.to_string())
    }
}

/// Returns the plots of results: for each workload and measure, one for each combination of other parameters.
#[must_use]
pub fn of_results(results: &[RunResult]) -> Vec<Figure> {
    let groups = group(results);
    let mut figures = Vec::new();
    for workload in by_text(&groups, |group| group.case.workload.clone()).into_values() {
        let properties = varying(&workload);
        let x = axis_property(&workload, &properties);
        // Other properties that vary: targets and versions are lines, everything else makes plots of its own.
        let is_line = |property: &Property<'_>| matches!(property, Property::Target | Property::Version);
        let lines: Vec<Property<'_>> =
            properties.iter().copied().filter(|p| is_line(p) && Some(*p) != x).collect();
        let facets: Vec<Property<'_>> =
            properties.iter().copied().filter(|p| !is_line(p) && Some(*p) != x).collect();
        let texts = |properties: &[Property<'_>], group: &Group<'_>| {
            let named = |p: &Property<'_>| match p {
                Property::Target => p.text(group.case),
                Property::Version => format!("v{}", p.text(group.case)),
                _ => format!("{} {}", p.name(), p.text(group.case)),
            };
            properties.iter().map(named).collect::<Vec<_>>().join(", ")
        };
        for (facet, part) in by_text(&workload, |group| texts(&facets, group)) {
            let series = by_text(&part, |group| texts(&lines, group));
            for measure in [Measure::Operations, Measure::Latency(9900)] {
                let mut title = part[0].case.workload.clone();
                if !facet.is_empty() {
                    title = format!("{title}, {facet}");
                }
                figures.extend(plots(&title, &series, x, measure));
            }
        }
    }
    figures
}

/// Returns the first property that is a number in all cases and makes a horizontal axis.
fn axis_property<'r>(groups: &[Group<'r>], varying: &[Property<'r>]) -> Option<Property<'r>> {
    let rank = |property: &Property<'_>| match property {
        Property::Threads => 0,
        Property::Delay => 1,
        Property::Clients => 2,
        _ => 3,
    };
    let is_number = |p: &&Property<'r>| groups.iter().all(|group| p.number(group.case).is_some());
    varying.iter().filter(is_number).min_by_key(|property| rank(property)).copied()
}

/// Groups by a text, in the order of the texts' first occurrence.
fn by_text<'g, 'r>(
    groups: &'g [Group<'r>],
    text: impl Fn(&Group<'r>) -> String,
) -> indexed::Indexed<Vec<Group<'r>>>
where
    'r: 'g,
{
    let mut found: indexed::Indexed<Vec<Group<'r>>> = indexed::Indexed::default();
    for group in groups {
        found.entry(text(group)).push(group.clone());
    }
    found
}

/// A map that keeps the order of insertion.
mod indexed {
    use super::BTreeMap;

    #[derive(Debug, Default)]
    pub(super) struct Indexed<T> {
        places: BTreeMap<String, usize>,
        entries: Vec<(String, T)>,
    }

    impl<T: Default> Indexed<T> {
        pub(super) fn entry(&mut self, key: String) -> &mut T {
            let place = *self.places.entry(key.clone()).or_insert(self.entries.len());
            if place == self.entries.len() {
                self.entries.push((key, T::default()));
            }
            &mut self.entries[place].1
        }

        pub(super) fn into_values(self) -> impl Iterator<Item = T> {
            self.entries.into_iter().map(|(_, value)| value)
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
            self.entries.iter().map(|(key, value)| (key.as_str(), value))
        }
    }

    impl<T> IntoIterator for Indexed<T> {
        type Item = (String, T);
        type IntoIter = std::vec::IntoIter<(String, T)>;

        fn into_iter(self) -> Self::IntoIter {
            self.entries.into_iter()
        }
    }
}

/// Returns the plots of one measure, with at most [`SERIES_MAX`] lines each.
fn plots(
    title: &str,
    lines: &indexed::Indexed<Vec<Group<'_>>>,
    x: Option<Property<'_>>,
    measure: Measure,
) -> Vec<Figure> {
    let mut series: Vec<Series> = Vec::new();
    let mut names = Vec::new();
    for (name, groups) in lines.iter() {
        let mut points: Vec<Point> = Vec::new();
        for group in groups {
            let values: Vec<f64> =
                group.samples(measure).into_iter().map(|value| measure.in_unit(value)).collect();
            let Some(median) = MedianInterval::of(&values) else { continue };
            // Without an axis of numbers, each line is one name on the axis.
            let place = x.map_or(Some((names.len() + 1) as f64), |x| x.number(group.case));
            let Some(place) = place else { continue };
            let interval = (median.count > 1).then_some((median.low, median.high));
            points.push(Point { x: place, y: median.median, interval, rounds: median.count });
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        if !points.is_empty() {
            let name = if name.is_empty() { measure.title() } else { name.to_owned() };
            names.push(name.clone());
            series.push(Series { name, points });
        }
    }
    let parts: Vec<&[Series]> = series.chunks(SERIES_MAX).collect();
    let count = parts.len();
    let figure = |(number, part): (usize, &&[Series])| {
        let part_of = if count > 1 { format!(" ({} of {count})", number + 1) } else { String::new() };
        let mut figure = Figure {
            title: format!("{title}: {}{part_of}", measure.title()),
            x: Axis { label: x.map_or(String::new(), Property::axis), ..Axis::default() },
            y: Axis { label: measure.title(), ..Axis::default() },
            series: part.to_vec(),
            marks: true,
        };
        if x.is_none() {
            figure.x.names.clone_from(&names);
        } else {
            figure.x.is_log = spans_decades(figure.x_values().into_iter());
        }
        figure.y.is_log = spans_decades(part.iter().flat_map(|s| s.points.iter().map(|point| point.y)));
        figure
    };
    parts.iter().enumerate().map(figure).collect()
}

/// Returns whether positive values spread so far that a linear axis would hide the small ones.
fn spans_decades(values: impl Iterator<Item = f64>) -> bool {
    let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(least, most), v| (least.min(v), most.max(v)));
    least > 0.0 && most >= LOG_RATIO * least
}

/// Returns the throughput of each client over time, as in Figure 3 of the 2015 paper; points are means of `every` seconds.
#[must_use]
pub fn of_simulation(title: &str, simulated: &Simulated, every: usize) -> Figure {
    let every = every.max(1);
    let series = simulated.series.iter().enumerate().map(|(client, rates)| {
        let point = |(number, part): (usize, &[f64])| Point {
            x: (number * every) as f64 + part.len() as f64 / 2.0,
            y: part.iter().sum::<f64>() / part.len() as f64 / 1e6,
            interval: None,
            rounds: 1,
        };
        // A client that has not started has no throughput; one that stalls has 0.
        let points = rates.chunks(every).enumerate().map(point).skip_while(|point| point.y == 0.0).collect();
        Series { name: format!("client {}", client + 1), points }
    });
    Figure {
        title: title.to_owned(),
        x: Axis { label: "time (s)".to_owned(), ..Axis::default() },
        y: Axis { label: "MB/s".to_owned(), ..Axis::default() },
        series: series.collect(),
        marks: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::result;

    /// Returns three rounds of both versions at 1, 16 and 512 threads.
    fn threads() -> Vec<RunResult> {
        let mut results = Vec::new();
        for (threads, count) in [(512, 100_000), (1, 1000), (16, 9000)] {
            for (version, factor) in [("3", 1), ("4.1", 2)] {
                for round in 1..=3 {
                    let mut run = result("enfys", version, round, count * factor + u64::from(round) * 10);
                    run.run.case.threads = threads;
                    results.push(run);
                }
            }
        }
        results
    }

    #[test]
    fn threads_make_the_axis_and_versions_the_lines() {
        let figures = of_results(&threads());
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(titles, ["random-read: operations/s", "random-read: p99 ms"]);
        let figure = &figures[0];
        assert_eq!(figure.x.label, "threads of each client");
        assert!(figure.x.is_log && figure.y.is_log);
        let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["v3", "v4.1"]);
        let first = figure.series[0].points[0];
        assert_eq!((first.x, first.y, first.interval, first.rounds), (1.0, 102.0, Some((101.0, 103.0)), 3));
        assert_eq!(figure.x_values(), [1.0, 16.0, 512.0]);
    }

    #[test]
    fn without_numbers_the_axis_has_names() {
        let results = [result("enfys", "3", 1, 1000), result("ganesha", "3", 1, 500)];
        let figure = &of_results(&results)[0];
        assert_eq!(figure.x.names, ["enfys", "ganesha"]);
        assert_eq!((figure.x_text(2.0), figure.series[1].points[0].x), ("ganesha".to_owned(), 2.0));
        assert_eq!(figure.series[0].points[0].interval, None, "one round has no interval");
    }

    #[test]
    fn other_parameters_make_other_plots() {
        let mut results = threads();
        for run in &mut threads() {
            run.run.case.clients = 5;
            results.push(run.clone());
        }
        let figures = of_results(&results);
        assert_eq!(figures.len(), 4);
        assert_eq!(figures[2].title, "random-read, clients 5: operations/s");
    }

    #[test]
    fn plots_omit_failed_runs() {
        let mut failed = result("enfys", "3", 1, 1000);
        failed.outcome = crate::result::Outcome::Failed("why".to_owned());
        assert_eq!(of_results(&[failed]), []);
    }
}
