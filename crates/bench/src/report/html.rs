//! A self-contained page: figures as SVG, light and dark, the data under each figure, and the commands to repeat it.

use std::collections::BTreeSet;

use askama::Template;

use super::details::{Detail, details};
use super::figure::{self, Figure};
use super::groups::group;
use super::numbers::short;
use super::svg::{COLORS, GRID, INK, PAPER, draw};
use crate::hashcast;
use crate::result::RunResult;

/// Rows of a data table that is shown at once; longer ones are folded.
const ROWS_OPEN_MAX: usize = 12;
/// Colors of a dark page: ink, muted text, grid, paper, and the lines.
const DARK: [&str; 4] = ["#e6edf3", "#9aa4af", "#30363d", "#0d1117"];
const DARK_COLORS: &[&str] =
    &["#4aa8ff", "#ff8a4c", "#3ddc97", "#f29ac2", "#ffc53d", "#8fd3ff", "#b79cff", "#d2b48c"];
/// Muted text of a light page.
const MUTED: &str = "#59636e";

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'p> {
    title: &'p str,
    light: String,
    dark: String,
    facts: Vec<String>,
    warnings: Vec<String>,
    plots: Vec<Plot>,
    counters: Vec<Counters>,
    repeat: String,
    notes: Vec<String>,
}

struct Plot {
    title: String,
    svg: String,
    facts: Vec<String>,
    is_open: bool,
    header: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// What the counters of one case say.
struct Counters {
    case: String,
    details: Vec<Detail>,
}

struct Cell {
    value: String,
    interval: String,
}

/// Returns the page about results.
///
/// # Errors
/// Errors of the template, which cannot fail with these values.
pub fn of_results(results: &[RunResult]) -> Result<String, String> {
    let groups = group(results);
    let warnings = groups.iter().flat_map(|group| {
        group.warnings().into_iter().map(|warning| format!("{}: {warning}", group.case.label()))
    });
    let told = groups.iter().map(|group| Counters { case: group.case.label(), details: details(group) });
    let versions = versions(results);
    let plots =
        figure::of_results(results).iter().map(|figure| plot(figure, vec![versions.clone()])).collect();
    let plans: BTreeSet<&str> = results.iter().map(|result| result.plan.as_str()).collect();
    let title = format!("Results of {}", plans.into_iter().collect::<Vec<_>>().join(", "));
    let machines: BTreeSet<String> = results.iter().map(|result| result.machine.to_string()).collect();
    let mut facts: Vec<String> = machines.into_iter().collect();
    facts.push(format!("{} runs of {} cases.", results.len(), groups.len()));
    let page = Page {
        title: &title,
        light: light(),
        dark: dark(),
        facts,
        warnings: warnings.collect(),
        plots,
        counters: told.filter(|told| !told.details.is_empty()).collect(),
        repeat: repeat(results),
        notes: vec![
            "Points are medians of rounds; bars enclose the true median with 95 % (order statistics; with fewer than six \
             rounds they are the extremes)."
                .to_owned(),
        ],
    };
    page.render().map_err(|error| error.to_string())
}

/// Returns the page about Hash-Cast; `command` is the command line that made it.
///
/// # Errors
/// Errors of the template, which cannot fail with these values.
pub fn of_hashcast(report: &hashcast::Report, every: usize, command: &str) -> Result<String, String> {
    let simulation = &report.hashed.simulation;
    let figures = [
        (format!("{} transmit queue(s) chosen by hash", simulation.queues), &report.hashed),
        ("One transmit queue and SFQ".to_owned(), &report.fair),
    ];
    let plots = figures.map(|(title, simulated)| {
        let index = simulated
            .jain
            .map_or(String::new(), |index| format!("Jain's index with all clients: {index:.3}."));
        plot(&figure::of_simulation(&title, simulated, every), vec![index])
    });
    let likeliest = report.outcomes.outcomes.first();
    let mut facts = vec![
        "The model of §3.2 of \"Newer Is Sometimes Better: An Evaluation of NFSv4.1\" (2015): a flow keeps its transmit \
         queue while packets wait in it."
            .to_owned(),
    ];
    facts.extend(likeliest.map(|likeliest| {
        format!(
            "The most probable outcome, {:?}, has {:.1} %; the fullest queue has two flows with {:.1} %; no two flows share \
             a queue with {:.1} %.",
            likeliest.occupancy,
            likeliest.probability * 100.0,
            report.outcomes.fullest(2) * 100.0,
            report.outcomes.fullest(1) * 100.0
        )
    }));
    let page = Page {
        title: "Hash-Cast",
        light: light(),
        dark: dark(),
        facts,
        warnings: Vec::new(),
        plots: plots.into(),
        counters: Vec::new(),
        repeat: command.to_owned(),
        notes: vec!["The same seed gives the same numbers.".to_owned()],
    };
    page.render().map_err(|error| error.to_string())
}

fn plot(figure: &Figure, facts: Vec<String>) -> Plot {
    let xs = figure.x_values();
    let first = if figure.x.names.is_empty() { figure.x.label.clone() } else { String::new() };
    let header = std::iter::once(first).chain(figure.series.iter().map(|series| series.name.clone()));
    let row = |x: &f64| {
        let place = Cell { value: figure.x_text(*x), interval: String::new() };
        let cells = figure.series.iter().map(|series| {
            let point = series.points.iter().find(|point| point.x == *x);
            let value = point.map_or("–".to_owned(), |point| short(point.y));
            let interval = point.and_then(|point| point.interval);
            let interval =
                interval.map_or(String::new(), |(low, high)| format!("{} … {}", short(low), short(high)));
            Cell { value, interval }
        });
        std::iter::once(place).chain(cells).collect()
    };
    Plot {
        title: figure.title.clone(),
        svg: draw(figure),
        facts: facts.into_iter().filter(|fact| !fact.is_empty()).collect(),
        is_open: xs.len() <= ROWS_OPEN_MAX,
        header: header.collect(),
        rows: xs.iter().map(row).collect(),
    }
}

/// Returns the versions of client, servers and protocol.
fn versions(results: &[RunResult]) -> String {
    let list = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(", ");
    let enfys = list(results.iter().map(|result| result.enfys_version.clone()).collect());
    let server = |result: &RunResult| {
        let name = &result.run.case.target.name;
        result.server_version.as_ref().map_or(name.clone(), |version| format!("{name} {version}"))
    };
    let servers = list(results.iter().map(server).collect());
    let kernels = list(results.iter().map(|result| result.machine.kernel.clone()).collect());
    format!("enfys {enfys}; targets: {servers}; Linux {kernels}")
}

/// Returns the plans with everything that affects the numbers.
fn repeat(results: &[RunResult]) -> String {
    let lines: BTreeSet<String> = results
        .iter()
        .map(|result| {
            let run = &result.run;
            let parameters = run.case.parameters.iter().map(|(name, value)| format!("{name}={value}"));
            format!(
                "plan {}: {} on {}; {}; duration {}, warm-up {}, {:?} caches; round {} has seed {}",
                result.plan,
                run.case.label(),
                run.case.target.server,
                parameters.collect::<Vec<_>>().join(" "),
                crate::units::time_text(run.duration),
                crate::units::time_text(run.warm_up),
                run.caches,
                run.round,
                run.seed
            )
        })
        .collect();
    lines.into_iter().collect::<Vec<_>>().join("\n")
}

fn light() -> String {
    variables([INK, MUTED, GRID, PAPER], COLORS)
}

fn dark() -> String {
    variables(DARK, DARK_COLORS)
}

fn variables([ink, muted, grid, paper]: [&str; 4], series: &[&str]) -> String {
    let fixed = format!("--ink: {ink}; --muted: {muted}; --grid: {grid}; --paper: {paper};");
    let colors = series.iter().enumerate().map(|(number, color)| format!(" --series-{number}: {color};"));
    std::iter::once(fixed).chain(colors).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::result;

    #[test]
    fn a_page_is_self_contained() {
        let page = of_results(&[result("enfys", "3", 1, 1000), result("<ganesha>", "3", 1, 500)]).unwrap();
        for outside in ["http://", "https://", "src=", "@import", "<script", "url(http"] {
            let own =
                page.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "");
            assert!(!own.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
        assert!(page.contains("&#60;ganesha&#62;") || page.contains("&lt;ganesha&gt;"));
        assert!(!page.contains("<ganesha>"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(page.matches("<table>").count(), 2);
        assert_eq!(page.matches("<dt>requests/operation</dt><dd>READ 1.00</dd>").count(), 2, "of each case");
    }

    #[test]
    fn light_and_dark_have_the_same_variables() {
        let names = |text: String| {
            text.split(';')
                .filter_map(|part| Some(part.split_once(':')?.0.trim().to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(light()), names(dark()));
        assert_eq!(names(light()).len(), 12);
    }

    #[test]
    fn doubts_and_seeds_are_on_the_page() {
        let page = of_results(&[result("enfys", "3", 1, 1000)]).unwrap();
        assert!(page.contains("1 round(s) only") && page.contains("has seed "));
    }

    #[test]
    fn hash_cast_has_both_figures() {
        let simulation = hashcast::Simulation {
            interval_seconds: 1.0,
            duration_seconds: 8.0,
            ..hashcast::Simulation::papers()
        };
        let report = hashcast::Report::of(&simulation, 100).unwrap();
        let page = of_hashcast(&report, 1, "enfys bench hashcast --seed 1").unwrap();
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("46.3 %") && page.contains("69.4 %") && page.contains("9.3 %"));
        assert!(page.contains("<pre>enfys bench hashcast --seed 1</pre>"));
    }
}
