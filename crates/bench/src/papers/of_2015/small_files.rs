//! Reads of small files that all clients share (§4.1, Figures 6 and 7).

use super::super::claims::is_gain_of;
use super::{DELEGATED, ENFYS, Judgement, Pick, Runs, Scale, Verdict};

pub(super) fn plan(scale: Scale, delay: &str, threads: u32) -> String {
    let files = scale.pick(500, 5000, 10_000);
    let clients = scale.clients();
    format!(
        "{}[matrix]\nversions = ['3', '4.1']\ndelays = ['{delay}']\nthreads = [{threads}]\nclients = [{clients}]\n\
         options = ['{DELEGATED}']\n{ENFYS}[[workload]]\nname = 'small-files'\nset = {{ files = {files} }}\n",
        scale.times_from_cold()
    )
}

/// Returns the requests for each file that was read: all, and OPENs of version 4.1.
fn counters(runs: &Runs<'_>) -> Option<(f64, f64, String)> {
    let (v3, v41) = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    let opens = runs.each(&Pick::v41(), "OPEN")?;
    let text = format!(
        "requests a file: v3 {v3:.3}, v4.1 {v41:.3}; {:.1} % of v4.1's opens use a delegation",
        (1.0 - opens).max(0.0) * 100.0
    );
    Some((v3, v41, text))
}

pub(super) fn judge_cached(runs: &Runs<'_>) -> Option<Judgement> {
    let late = super::ratio(|pick| runs.late_rate(&pick))?;
    let (v3, v41, counter) = counters(runs)?;
    let fewer = v3 / v41.max(1e-9);
    // Without fewer requests the cause of the finding, files that are read locally, is missing.
    let is_seen = is_gain_of(late, 2.0) && is_gain_of(fewer, 8.3);
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours =
        format!("v4.1 to v3 in the last third: {late:.2}, with {fewer:.1} times fewer requests over all");
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn judge_slow_start(runs: &Runs<'_>) -> Option<Judgement> {
    let first = (runs.first_second(&Pick::v3())?, runs.first_second(&Pick::v41())?);
    let late = (runs.late_rate(&Pick::v3())?, runs.late_rate(&Pick::v41())?);
    let (_, _, counter) = counters(runs)?;
    let verdict = match first.1 / first.0 {
        ratio if ratio >= 0.9 => Verdict::Reversed,
        // The paper's is 0.09.
        ratio if ratio <= 0.18 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let ours = format!(
        "files in the first second: v3 {:.0}, v4.1 {:.0}; a second in the last third: {:.0}, {:.0} ({:.1} times)",
        first.0,
        first.1,
        late.0,
        late.1,
        late.1 / late.0
    );
    let queue = runs.queue_us(&Pick::v41(), Some("OPEN"))?;
    let waits = runs.slot_waits(&Pick::v41())?;
    let counter = format!(
        "{counter}; an OPEN waits {queue:.0} µs before it is sent, {waits:.0} requests waited for a slot"
    );
    Some(Judgement::new(verdict, ours, counter))
}
