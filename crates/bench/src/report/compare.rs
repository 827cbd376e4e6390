//! Two sets of results side by side.

use std::fmt;

use super::groups::{Group, Property, group, varying};
use super::table::{interval_text, new_table};
use crate::result::{Measure, RunResult};
use crate::statistics::{Better, Change, MedianInterval, Verdict};

/// The compared figures, and whether larger values are better.
const MEASURES: &[(Measure, Better)] =
    &[(Measure::Operations, Better::Higher), (Measure::Latency(9900), Better::Lower)];

/// The comparison of two sets of results.
#[derive(Clone, Debug)]
pub struct Comparison {
    rows: Vec<Row>,
    /// Cases that only one side has, by their names.
    unmatched: Vec<String>,
}

#[derive(Clone, Debug)]
struct Row {
    case: String,
    measure: Measure,
    change: Change,
}

/// Compares cases that both sides have. If each side has one target, their names may differ.
///
/// # Errors
/// If no case is in both.
pub fn compare(before: &[RunResult], after: &[RunResult]) -> Result<Comparison, String> {
    let (before, after) = (group(before), group(after));
    let ignores_target = targets(&before) == 1 && targets(&after) == 1;
    let same = |a: &Group<'_>, b: &Group<'_>| {
        let mut other = b.case.clone();
        if ignores_target || a.case.target.name == other.target.name {
            // Its address may have changed.
            other.target = a.case.target.clone();
        }
        *a.case == other
    };
    let all: Vec<Group<'_>> = before.iter().chain(&after).cloned().collect();
    let mut properties = varying(&all);
    properties.retain(|property| !(ignores_target && *property == Property::Target));
    let mut comparison = Comparison { rows: Vec::new(), unmatched: Vec::new() };
    for old in &before {
        match after.iter().find(|new| same(old, new)) {
            Some(new) => comparison.add(old, new, &properties),
            None => comparison.unmatched.push(format!("only before: {}", old.case.label())),
        }
    }
    let added = after.iter().filter(|new| !before.iter().any(|old| same(old, new)));
    comparison.unmatched.extend(added.map(|new| format!("only after: {}", new.case.label())));
    if comparison.rows.is_empty() {
        return Err(format!("no case has complete runs on both sides\n{}", comparison.unmatched.join("\n")));
    }
    Ok(comparison)
}

fn targets(groups: &[Group<'_>]) -> usize {
    let mut names: Vec<&str> = groups.iter().map(|group| group.case.target.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

impl Comparison {
    fn add(&mut self, before: &Group<'_>, after: &Group<'_>, properties: &[Property<'_>]) {
        let name: Vec<String> = properties.iter().map(|property| property.text(after.case)).collect();
        let case = if name.is_empty() { after.case.workload.clone() } else { name.join(" ") };
        for (measure, better) in MEASURES {
            let values = |group: &Group<'_>| -> Vec<f64> {
                group.samples(*measure).into_iter().map(|value| measure.in_unit(value)).collect()
            };
            match Change::of(&values(before), &values(after), *better) {
                Some(change) => self.rows.push(Row { case: case.clone(), measure: *measure, change }),
                None => {
                    self.unmatched.push(format!("no complete runs on both sides: {}", after.case.label()))
                }
            }
        }
        self.unmatched.dedup();
    }

    /// Returns the cases whose operations a second fell significantly, by at least this part, one line each.
    #[must_use]
    pub fn slower(&self, part: f64) -> Vec<String> {
        let is_slower = |row: &&Row| {
            let Row { measure, change, .. } = row;
            *measure == Measure::Operations && change.verdict == Verdict::Worse && change.loss() >= part
        };
        self.rows.iter().filter(is_slower).map(|row| format!("{}: {}", row.case, row.change)).collect()
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["case", "measure", "before", "after", "change", "p"].map(str::to_owned);
        let mut table = new_table(header.to_vec(), 2);
        for Row { case, measure, change } in &self.rows {
            let median = |interval: &MedianInterval| interval_text(interval);
            table.add_row([
                case.clone(),
                measure.title(),
                median(&change.before),
                median(&change.after),
                change.to_string(),
                format!("{:.3}", change.p),
            ]);
        }
        writeln!(f, "{table}\n")?;
        writeln!(
            f,
            "Medians with 95 % by order statistics; change by Hodges and Lehmann, p by Mann-Whitney. `~`: chance explains it."
        )?;
        let few = self.rows.iter().any(|row| row.change.before.count.min(row.change.after.count) < 4);
        if few {
            writeln!(f, "Fewer than four rounds on each side cannot decide.")?;
        }
        for line in &self.unmatched {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::result;

    const COUNTS: [u64; 6] = [1000, 1010, 990, 1005, 995, 1002];

    fn runs(target: &str, factor: f64) -> Vec<RunResult> {
        let rounds = (1..).zip(COUNTS);
        rounds.map(|(round, count)| result(target, "3", round, (count as f64 * factor) as u64)).collect()
    }

    #[test]
    fn a_tenth_less_fails_at_five_percent_and_not_at_twenty() {
        let comparison = compare(&runs("enfys", 1.0), &runs("enfys", 0.9)).unwrap();
        assert_eq!(comparison.slower(0.05).len(), 1);
        assert_eq!(comparison.slower(0.2), Vec::<String>::new());
        assert!(comparison.to_string().contains("-10."), "{comparison}");
    }

    #[test]
    fn equal_rounds_are_undecided_and_gains_do_not_fail() {
        let same = compare(&runs("enfys", 1.0), &runs("enfys", 1.0)).unwrap();
        assert!(same.to_string().contains(" ~ ") && same.slower(0.0).is_empty(), "{same}");
        let faster = compare(&runs("enfys", 1.0), &runs("enfys", 1.5)).unwrap();
        assert!(faster.slower(0.0).is_empty());
    }

    #[test]
    fn one_target_on_each_side_may_have_another_name() {
        assert!(compare(&runs("ganesha", 1.0), &runs("enfys", 2.0)).is_ok());
    }

    #[test]
    fn cases_of_only_one_side_are_named() {
        let mut after = runs("enfys", 1.0);
        after.push(result("enfys", "4.2", 1, 1000));
        let comparison = compare(&runs("enfys", 1.0), &after).unwrap();
        assert!(
            comparison.to_string().contains("only after: random-read-enfys-v4.2-0-t1-c1"),
            "{comparison}"
        );
        let nothing = compare(&runs("enfys", 1.0), &[result("enfys", "4.2", 1, 1000)]);
        assert!(nothing.unwrap_err().starts_with("no case has complete runs"));
    }
}
