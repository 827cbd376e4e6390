//! Recalls of delegations (§5.3).

use super::{DELEGATED, ENFYS, Judgement, NOT_DELEGATED, Pick, Runs, Scale, Verdict};

/// Holders and openers in the paper.
const NUMBERS: [&str; 4] = ["1", "2", "3", "4"];
/// Clients of each run: four holders and four openers; those that a run does not need are idle.
const CLIENTS: u32 = 8;

pub(super) fn plan(scale: Scale) -> String {
    let files = scale.pick(50, 100, 1000);
    let (holders, openers) = scale.pick(("1, 4", "1"), ("1, 2, 4", "1, 4"), ("1, 2, 3, 4", "1, 2, 3, 4"));
    format!(
        "[matrix]\nversions = ['4.1']\ndelays = ['0', '10ms']\nclients = [{CLIENTS}]\noptions = ['{NOT_DELEGATED}', '{DELEGATED}']\n\
         {ENFYS}[[workload]]\nname = 'recall'\nset = {{ files = {files}, holders = [{holders}], openers = [{openers}] }}\n"
    )
}

pub(super) fn judge(runs: &Runs<'_>) -> Option<Judgement> {
    let at = |delay, options, holders, openers| {
        Pick::v41().delay_ms(delay).options(options).with("holders", holders).with("openers", openers)
    };
    let slower = |delay, holders, openers| {
        let time = |options| {
            let pick = at(delay, options, holders, openers);
            Some(runs.latency_us(&pick, "open")? + runs.latency_us(&pick, "close")?)
        };
        Some(time(DELEGATED)? / time(NOT_DELEGATED)?)
    };
    let (mut ratios, mut texts) = (Vec::new(), Vec::new());
    for delay in [0, 10] {
        let mut of_delay = Vec::new();
        for (holders, openers) in
            NUMBERS.iter().flat_map(|holders| NUMBERS.iter().map(move |openers| (holders, openers)))
        {
            if let Some(ratio) = slower(delay, holders, openers) {
                ratios.push(ratio);
                of_delay.push(format!("{holders}/{openers}: {ratio:.1}"));
            }
        }
        if of_delay.is_empty() {
            return None;
        }
        texts.push(format!("{delay} ms {}", of_delay.join(", ")));
    }
    let (least, most) =
        (ratios.iter().copied().min_by(f64::total_cmp)?, ratios.iter().copied().max_by(f64::total_cmp)?);
    let verdict = match (least, most) {
        (_, most) if most <= 5.0 => Verdict::Reversed,
        (least, _) if least >= 100.0 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let ours = format!(
        "with recalls an open and its close take as many times as long, by holders/openers: {}",
        texts.join("; ")
    );
    let one = |options| at(0, options, "1", "1");
    let returned = runs.request_count(&one(DELEGATED), Some("DELEGRETURN"))?;
    let opens = (runs.each(&one(NOT_DELEGATED), "OPEN")?, runs.each(&one(DELEGATED), "OPEN")?);
    let counter = format!(
        "1/1 at 0 ms: {returned:.0} DELEGRETURNs; OPENs for each open of a file: {:.2} without delegations, {:.2} with them",
        // Opens and closes are operations alike.
        opens.0 * 2.0,
        opens.1 * 2.0
    );
    Some(Judgement::new(verdict, ours, counter))
}
