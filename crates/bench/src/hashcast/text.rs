//! The report of `enfys bench hashcast` in a terminal.

use std::fmt::{self, Write};

use super::outcomes::Outcomes;
use super::simulation::{Discipline, Event, Simulated};
use super::{Report, SFQ_PERTURB_SECONDS, SFQ_QUEUES};
use crate::statistics::clusters;

/// Maximum number of outcomes of a table; the others are improbable.
const OUTCOMES_SHOWN_MAX: usize = 20;

/// Writes a report; throughputs are means of `every` seconds.
///
/// # Errors
/// Errors of `out`.
pub fn write_report(out: &mut impl Write, report: &Report, every: usize) -> fmt::Result {
    write_outcomes(out, &report.outcomes)?;
    writeln!(out)?;
    writeln!(out, "Throughput in MB/s, {}:", hashed_title(report.hashed.simulation.queues))?;
    write_series(out, &report.hashed, every)?;
    writeln!(out)?;
    writeln!(
        out,
        "One transmit queue, SFQ with {SFQ_QUEUES} queues, perturbed every {SFQ_PERTURB_SECONDS:.0} s:"
    )?;
    write_series(out, &report.fair, every)?;
    let seed = report.hashed.simulation.seed;
    writeln!(out, "\nRepeat with --seed {seed}: the same parameters give the same numbers.")
}

fn hashed_title(queues: usize) -> String {
    format!("{queues} transmit queue(s) chosen by hash, kept while packets wait")
}

fn write_outcomes(out: &mut impl Write, outcomes: &Outcomes) -> fmt::Result {
    let ways = outcomes.assignments.map_or("more than 2^128".to_owned(), grouped);
    writeln!(out, "{} flows in {} transmit queues, {ways} assignments:\n", outcomes.flows, outcomes.queues)?;
    let shown = &outcomes.outcomes[..outcomes.outcomes.len().min(OUTCOMES_SHOWN_MAX)];
    let names: Vec<String> = shown.iter().map(|outcome| occupancy_text(&outcome.occupancy)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(15);
    writeln!(
        out,
        "{:width$}  {:>13}  {:>11}  {:>9}  {:>15}  {:>5}",
        "flows per queue", "assignments", "probability", "simulated", "fastest/slowest", "Jain"
    )?;
    for (outcome, name) in shown.iter().zip(names) {
        let assignments = outcome.assignments.map_or("> 2^128".to_owned(), grouped);
        writeln!(
            out,
            "{name:width$}  {assignments:>13}  {:>9.1} %  {:>7.1} %  {:>15.2}  {:>5.3}",
            outcome.probability * 100.0,
            outcome.simulated * 100.0,
            outcome.spread,
            outcome.jain
        )?;
    }
    if outcomes.outcomes.len() > shown.len() {
        writeln!(out, "… and {} less probable ones", outcomes.outcomes.len() - shown.len())?;
    }
    writeln!(out)?;
    write_summary(out, outcomes)
}

fn write_summary(out: &mut impl Write, outcomes: &Outcomes) -> fmt::Result {
    let percent = |probability: f64| format!("{:.1} %", probability * 100.0);
    let apart = outcomes.without_collision().map_or("> 2^128".to_owned(), grouped);
    writeln!(out, "No two flows share a queue: {apart} assignments, {}.", percent(outcomes.fullest(1)))?;
    writeln!(out, "The fullest queue has two flows: {}.", percent(outcomes.fullest(2)))?;
    if (outcomes.flows, outcomes.queues) == (5, 6) {
        writeln!(
            out,
            "The 2015 paper gives \"roughly 69%\" for {{0,0,1,1,1,2}}. By count that outcome has {}; 69.4 % is the\n\
             probability that the fullest queue has two flows, which {{0,0,0,1,2,2}} has too.",
            percent(outcomes.outcomes[0].probability)
        )?;
    }
    Ok(())
}

/// Writes `{0,0,1,1,1,2}`; many empty queues as `{0×1018,1×6}`.
fn occupancy_text(occupancy: &[usize]) -> String {
    let long = occupancy.len() > 12;
    let group = |group: &[usize]| match (long, group.len()) {
        (true, 2..) => format!("{}×{}", group[0], group.len()),
        _ => group.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    };
    format!("{{{}}}", occupancy.chunk_by(|a, b| a == b).map(group).collect::<Vec<_>>().join(","))
}

/// Writes a number with commas between thousands.
fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

fn write_series(out: &mut impl Write, simulated: &Simulated, every: usize) -> fmt::Result {
    let clients = simulated.series.len();
    let seconds = simulated.series.first().map_or(0, Vec::len);
    write!(out, "{:>9}", "second")?;
    for client in 1..=clients {
        write!(out, "  {:>8}", format!("client {client}"))?;
    }
    writeln!(out, "  {:>6}", "sum")?;
    for from in (0..seconds).step_by(every.max(1)) {
        let to = (from + every.max(1)).min(seconds);
        write!(out, "{:>9}", format!("{from}–{to}"))?;
        let rate = |series: &[f64]| series[from..to].iter().sum::<f64>() / (to - from) as f64 / 1e6;
        for series in &simulated.series {
            write!(out, "  {:>8.0}", rate(series))?;
        }
        let sum: f64 = simulated.series.iter().map(|series| rate(series)).sum();
        write!(out, "  {sum:>6.0}")?;
        let happened = simulated.events.iter().filter(|event| (from..to).contains(&(event.second as usize)));
        for (number, event) in happened.enumerate() {
            write!(out, "{} {}", if number == 0 { "  " } else { ";" }, event_text(event))?;
        }
        writeln!(out)?;
    }
    write_fairness(out, simulated)
}

fn event_text(event: &Event) -> String {
    let client = event.client + 1;
    match event.from {
        None => format!("client {client} starts in queue {}", event.to),
        Some(from) => {
            format!("{:.0} s: client {client} drained, queue {from} to {}", event.second, event.to)
        }
    }
}

fn write_fairness(out: &mut impl Write, simulated: &Simulated) -> fmt::Result {
    let Some(jain) = simulated.jain else { return Ok(()) };
    write!(out, "With all clients: Jain's index {jain:.3}")?;
    let one_based = |clients: &[usize]| {
        clients.iter().map(|client| (client + 1).to_string()).collect::<Vec<_>>().join(", ")
    };
    if let Some(found) = clusters(&simulated.shares) {
        writeln!(
            out,
            "; winners {}, losers {}, ratio {:.2}.",
            one_based(&found.winners),
            one_based(&found.losers),
            found.ratio
        )?;
        if simulated.simulation.discipline == Discipline::Hashed {
            writeln!(
                out,
                "Advice: one transmit queue (`ethtool -L DEV combined 1`) and\n\
                 `tc qdisc replace dev DEV root sfq perturb 10`."
            )?;
        }
        return Ok(());
    }
    writeln!(out, "; no clusters of winners and losers.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashcast::Simulation;

    fn text(simulation: &Simulation) -> String {
        let mut text = String::new();
        write_report(&mut text, &Report::of(simulation, 1000).unwrap(), 5).unwrap();
        text
    }

    #[test]
    fn paper_and_count_are_shown_together() {
        let text =
            text(&Simulation { interval_seconds: 2.0, duration_seconds: 15.0, ..Simulation::papers() });
        for part in [
            "7,776 assignments",
            "3,600",
            "46.3 %",
            "720 assignments, 9.3 %",
            "two flows: 69.4 %",
            "roughly 69%",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("client 4 starts in queue 0"), "{text}");
    }

    #[test]
    fn another_card_has_no_remark_about_the_paper() {
        let text = text(&Simulation {
            flows: 3,
            queues: 64,
            interval_seconds: 1.0,
            duration_seconds: 4.0,
            ..Simulation::default()
        });
        assert!(!text.contains("2015 paper"), "{text}");
        assert!(text.contains("{0×61,1×3}"), "{text}");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([7, 720, 7776, 1_000_000].map(grouped), ["7", "720", "7,776", "1,000,000"]);
    }
}
