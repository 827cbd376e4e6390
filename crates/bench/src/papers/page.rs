//! The page of findings.

use std::fmt::{self, Write};

use super::{Figure, Judgement, Scale, Verdict};
use crate::result::RunResult;

/// A judged figure with its results.
pub struct Entry<'e> {
    /// The figure.
    pub figure: &'static Figure,
    /// Its verdict.
    pub judgement: Judgement,
    /// Its runs.
    pub results: &'e [RunResult],
}

/// Writes the page as Markdown: how it was measured, then a table with a row for each figure: the paper's numbers, this run's, the
/// verdict, and the counter that explains it.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, entries: &[Entry<'_>], scale: Scale) -> fmt::Result {
    writeln!(out, "# The papers' findings, measured again\n")?;
    if let Some(first) = entries.iter().find_map(|entry| entry.results.first()) {
        writeln!(out, "{}, enfys {}.", first.machine, first.enfys_version)?;
    }
    if cfg!(debug_assertions) {
        writeln!(out, "**Measured with a debug build: no number below means anything.**")?;
    }
    let scaled = match scale {
        Scale::Quick => {
            "Sizes and times are scaled down to seconds (`--quick`), with one round: only large effects can be seen."
        }
        Scale::Normal => {
            "Sizes and times are scaled to this machine, with three rounds: intervals of 95 % need six."
        }
        Scale::Full => "Sizes and times are the papers'.",
    };
    writeln!(out, "{scaled} Only findings are judged; the papers' machines were others.\n")?;
    writeln!(
        out,
        "Delay is carried by a packet link between two kernels' TCP on this machine, without a limit of its rate unless a figure says so.\n"
    )?;
    writeln!(out, "{}\n", counted(entries))?;
    writeln!(out, "| figure | subject | the paper | here | verdict | counter |\n|---|---|---|---|---|---|")?;
    for entry in entries {
        write_row(out, entry)?;
    }
    writeln!(out, "\n`enfys bench paper FIGURE` repeats a figure.")
}

/// Returns how many figures have each verdict.
fn counted(entries: &[Entry<'_>]) -> String {
    let all = [Verdict::Confirmed, Verdict::Reversed, Verdict::NotSeen, Verdict::NotMeasured];
    let count = |verdict| entries.iter().filter(|entry| entry.judgement.verdict == verdict).count();
    let counts = all.map(|verdict| (verdict, count(verdict)));
    let words = counts.into_iter().filter(|(_, count)| *count > 0);
    let list: Vec<String> = words.map(|(verdict, count)| format!("{count} {verdict}")).collect();
    format!("{} figures: {}.", entries.len(), list.join(", "))
}

fn write_row(out: &mut impl Write, entry: &Entry<'_>) -> fmt::Result {
    let Entry { figure, judgement, results } = entry;
    let failed = results.iter().filter(|result| !result.is_complete()).count();
    let mut ours = cell(&judgement.ours);
    if failed > 0 {
        ours += &format!(" ({failed} of {} runs failed and are not included)", results.len());
    }
    let counter = if judgement.counter.is_empty() { "–".to_owned() } else { cell(&judgement.counter) };
    let (name, title, finding) = (figure.name, cell(figure.title), cell(figure.finding));
    writeln!(out, "| `{name}` | {title} | {finding} | {ours} | **{}** | {counter} |", judgement.verdict)
}

/// Returns a text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::result::Outcome;
    use crate::result::tests::result;

    #[test]
    fn every_figure_has_a_row_with_numbers_verdict_and_counter() {
        let mut failed = result("enfys", "3", 1, 1000);
        failed.outcome = Outcome::Failed("no space".to_owned());
        let results = [result("enfys", "4.1", 1, 1000), failed];
        let all = figures(None).unwrap();
        let entry = |figure: &'static Figure| {
            let judgement = match figure.name {
                "2015:fig8" => Judgement::new(Verdict::Reversed, "2.5 | 1", "3 waits"),
                _ => Judgement::not_measured(),
            };
            Entry { figure, judgement, results: &results }
        };
        let entries: Vec<Entry<'_>> = all.iter().map(|figure| entry(figure)).collect();
        let mut text = String::new();
        write(&mut text, &entries, Scale::Quick).unwrap();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), all.len());
        for (row, figure) in rows.iter().zip(&all) {
            assert!(row.contains(figure.finding), "the paper's numbers: {row}");
            assert_eq!(row.replace("\\|", "").matches('|').count(), 7, "{row}");
        }
        let row = rows.iter().find(|row| row.contains("2015:fig8")).unwrap();
        for part in ["2.5 \\| 1 (1 of 2 runs failed", "**reversed**", "| 3 waits |"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(text.contains(&format!(
            "{} figures: 1 reversed, {} not measured.",
            all.len(),
            all.len() - 1
        )));
        assert!(text.contains("one round"), "how it was measured");
        assert_eq!(text.contains("debug build"), cfg!(debug_assertions));
    }
}
