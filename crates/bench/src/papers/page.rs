//! The page of findings.

use std::fmt::{self, Write};

use super::{Figure, Judgement, Scale};
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

/// Writes the page as Markdown: a table of verdicts, then each figure with our numbers and the counter.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, entries: &[Entry<'_>], scale: Scale) -> fmt::Result {
    writeln!(out, "# The papers' findings, measured again\n")?;
    if let Some(first) = entries.iter().find_map(|entry| entry.results.first()) {
        writeln!(out, "{}, enfys {}.", first.machine, first.enfys_version)?;
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
        "Delay is carried by a packet link between two kernels' TCP on this machine, without a limit of its rate.\n"
    )?;
    writeln!(out, "| | | verdict |\n|---|---|---|")?;
    for Entry { figure, judgement, .. } in entries {
        writeln!(out, "| `{}` | {} | {} |", figure.name, figure.title, judgement.verdict)?;
    }
    for Entry { figure, judgement, results } in entries {
        writeln!(out, "\n## {}: {}\n", figure.name, figure.title)?;
        writeln!(out, "- Paper: {}", figure.finding)?;
        writeln!(out, "- Here: {}", judgement.ours)?;
        if !judgement.counter.is_empty() {
            writeln!(out, "- Counter: {}", judgement.counter)?;
        }
        let failed = results.iter().filter(|result| !result.is_complete()).count();
        if failed > 0 {
            writeln!(out, "- {failed} run(s) of {} failed and are not included", results.len())?;
        }
        writeln!(out, "- Verdict: **{}**", judgement.verdict)?;
    }
    Ok(())
}
