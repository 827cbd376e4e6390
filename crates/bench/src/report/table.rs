//! The table for the terminal.

use std::fmt::{self, Write};

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};

use super::details::{Detail, details};
use super::groups::{Group, Property, group, varying};
use super::numbers::short;
use crate::result::{Measure, RunResult};
use crate::statistics::{Mean, MedianInterval};

/// Maximum number of cases whose counters are written, several lines each.
const DETAILED_MAX: usize = 8;
/// Measures of the table after operations a second.
const MEASURES: &[Measure] = &[
    Measure::Bytes,
    Measure::Latency(5000),
    Measure::Latency(9900),
    Measure::Latency(9990),
    Measure::Latency(9999),
    Measure::Requests,
    Measure::Outstanding,
    Measure::SlotWaits,
    Measure::SlotWaitTime,
    Measure::Retransmissions,
    Measure::Timeouts,
];

/// Writes one line for each case, then the warnings.
///
/// # Errors
/// Those of `out`.
pub fn write_table(out: &mut impl Write, results: &[RunResult]) -> fmt::Result {
    let groups = group(results);
    let mut properties = varying(&groups);
    // Two columns that every table has.
    for always in [Property::Version, Property::Target] {
        if !properties.contains(&always) {
            properties.insert(0, always);
        }
    }
    properties.sort_unstable();
    let shown: Vec<Measure> =
        MEASURES.iter().copied().filter(|measure| is_shown(*measure, &groups)).collect();
    let mut header: Vec<String> = properties.iter().map(|property| property.name()).collect();
    header.extend(["rounds", "operations/s", "median (95 %)"].map(str::to_owned));
    header.extend(shown.iter().map(|measure| measure.title()));
    let mut table = new_table(header, properties.len());
    for group in &groups {
        table.add_row(row(group, &properties, &shown));
    }
    write_common(out, &groups, &properties)?;
    writeln!(out, "{table}\n")?;
    writeln!(out, "operations/s: mean ± 95 % by Student's t. median (95 %): interval by order statistics.")?;
    write_details(out, &groups, &properties)?;
    write_warnings(out, &groups, &properties)
}

/// Returns whether a column says something: cases have the measure, and at least one has waited for slots or sent again.
fn is_shown(measure: Measure, groups: &[Group<'_>]) -> bool {
    let mut samples = groups.iter().flat_map(|group| group.samples(measure));
    match measure {
        Measure::SlotWaits | Measure::Retransmissions | Measure::Timeouts => samples.any(|count| count > 0.0),
        _ => samples.next().is_some(),
    }
}

/// Returns a table whose first columns are text and whose others are numbers.
pub(crate) fn new_table(header: Vec<String>, text_columns: usize) -> Table {
    let mut table = Table::new();
    let line = || LineStyle::none().fill('─').junction('─');
    table.load_style(TableStyle::new().top_border(line()).header_separator(line()).bottom_border(line()));
    table.set_header(header);
    for column in table.column_iter_mut().skip(text_columns) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(group: &Group<'_>, properties: &[Property<'_>], measures: &[Measure]) -> Vec<String> {
    let operations = group.samples(Measure::Operations);
    let mut cells: Vec<String> = properties.iter().map(|property| property.text(group.case)).collect();
    cells.push(group.runs.len().to_string());
    cells.push(Mean::of(&operations).map_or("–".to_owned(), |mean| mean_text(&mean)));
    cells.push(MedianInterval::of(&operations).map_or("–".to_owned(), |median| interval_text(&median)));
    cells.extend(measures.iter().map(|measure| {
        if *measure == Measure::SlotWaits {
            let waits = Mean::of(&group.samples(*measure));
            return waits.map_or("–".to_owned(), |waits| {
                format!("{} ({})", short(waits.mean), short(waits.deviation))
            });
        }
        let median = MedianInterval::of(&group.samples(*measure));
        median.map_or("–".to_owned(), |median| short(measure.in_unit(median.median)))
    }));
    cells
}

/// Writes `12.3k ± 1.2 %`.
fn mean_text(mean: &Mean) -> String {
    match mean.half_width {
        Some(half_width) if mean.mean != 0.0 => {
            format!("{} ± {:.1} %", short(mean.mean), half_width / mean.mean.abs() * 100.0)
        }
        _ => short(mean.mean),
    }
}

/// Writes `12.3k (12.1k … 12.6k)`.
pub(super) fn interval_text(median: &MedianInterval) -> String {
    format!("{} ({} … {})", short(median.median), short(median.low), short(median.high))
}

/// Writes the properties that all cases share.
fn write_common(out: &mut impl Write, groups: &[Group<'_>], shown: &[Property<'_>]) -> fmt::Result {
    let Some(first) = groups.iter().find_map(|group| group.runs.first().or(group.failed.first())) else {
        return writeln!(out, "no runs");
    };
    let case = &first.run.case;
    writeln!(out, "{} · {} · enfys {}", first.plan, first.machine, first.enfys_version)?;
    let mut fixed = vec![Property::Workload, Property::Delay, Property::Threads, Property::Clients];
    if !case.options.is_empty() {
        fixed.push(Property::Options);
    }
    let parameters = case.parameters.keys().map(|name| Property::Parameter(name));
    let common: Vec<String> = fixed
        .into_iter()
        .chain(parameters)
        .filter(|property| !shown.contains(property))
        .map(|property| format!("{} {}", property.name(), property.text(case)))
        .collect();
    writeln!(out, "{}\n", common.join(", "))
}

fn case_text(group: &Group<'_>, properties: &[Property<'_>]) -> String {
    properties.iter().map(|property| property.text(group.case)).collect::<Vec<_>>().join(" ")
}

/// Writes the counters of each case, if there are few.
fn write_details(out: &mut impl Write, groups: &[Group<'_>], properties: &[Property<'_>]) -> fmt::Result {
    if groups.len() > DETAILED_MAX {
        return writeln!(out, "The counters of {} cases are on the page that --html writes.", groups.len());
    }
    for group in groups {
        let details = details(group);
        if !details.is_empty() {
            writeln!(out, "\n{}", case_text(group, properties))?;
        }
        for Detail { subject, text } in details {
            writeln!(out, "  {subject:<22} {text}")?;
        }
    }
    writeln!(out)
}

fn write_warnings(out: &mut impl Write, groups: &[Group<'_>], properties: &[Property<'_>]) -> fmt::Result {
    for group in groups {
        for warning in group.warnings() {
            writeln!(out, "warning: {}: {warning}", case_text(group, properties))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Outcome;
    use crate::result::tests::result;

    fn text(results: &[RunResult]) -> String {
        let mut text = String::new();
        write_table(&mut text, results).unwrap();
        text
    }

    #[test]
    fn a_line_for_each_case_with_mean_and_median() {
        let counts = [1000, 1010, 990, 1005, 995, 1002];
        let mut results = Vec::new();
        for (round, count) in (1..).zip(counts) {
            results.push(result("enfys", "3", round, count));
            results.push(result("enfys", "4.1", round, count * 2));
        }
        let text = text(&results);
        let line = |version: &str| {
            text.lines().find(|line| line.contains(&format!(" {version} "))).unwrap().to_owned()
        };
        // Mean 100.03, deviation 0.709, t(5) = 2.571: ± 0.74 %.
        assert!(line("3").contains("100 ± 0.7 %"), "{text}");
        assert!(line("3").contains("100 (99.0 … 101)"), "{text}");
        assert!(line("4.1").contains("200 ± 0.7 %"), "{text}");
        assert!(
            text.contains(
                "workload random-read, delay 0, threads 1, clients 1, file-size 20GiB, io-size 4KiB"
            )
        );
        assert!(!text.contains("warning"), "{text}");
    }

    #[test]
    fn waits_for_slots_have_their_deviation() {
        let waiting = |round, waits| {
            let mut run = result("enfys", "4.1", round, 1000);
            run.run.case.options = "slots=1".to_owned();
            run.slot_waits = Some(waits);
            run
        };
        // 0.1, 0.2 and 0.3 for each operation: mean 0.2, deviation 0.1.
        let table = text(&[waiting(1, 100), waiting(2, 200), waiting(3, 300)]);
        assert!(
            table.contains("slot waits/operation (deviation)") && table.contains("0.200 (0.100)"),
            "{table}"
        );
        assert!(table.contains("options slots=1"), "{table}");
        assert!(!text(&[waiting(1, 0)]).contains("slot waits"), "nothing has waited");
    }

    #[test]
    fn failed_cases_have_no_numbers() {
        let mut failed = result("enfys", "3", 1, 1000);
        failed.outcome = Outcome::Failed("no space".to_owned());
        let text = text(&[failed]);
        assert!(text.contains('–') && text.contains("warning: enfys 3: round 1 failed: no space"), "{text}");
    }
}
