//! Locked reads (§5.2, Table 1 and Figure 13).

use super::super::claims::is_gain_of;
use super::{DELEGATED, Judgement, NOT_DELEGATED, Pick, Runs, Scale, Verdict};

/// Targets with and without delegations: version 3 has none.
const PLAIN: &str = "plain";
const WITH_DELEGATIONS: &str = "delegated";
/// Requests for a locked read in the paper: v3, and v4.1 without delegations and with them.
const PAPERS: [f64; 3] = [6.0, 8.8, 0.3];
/// Calls of a program for a locked read.
const CALLS: f64 = 5.0;
/// Delays of Figure 13, in milliseconds.
const DELAYS_MS: [u64; 3] = [0, 1, 10];

fn plan(versions: &str, matrix: &str, files: u32) -> String {
    format!(
        "[matrix]\n{matrix}\n[[target]]\nname = '{PLAIN}'\nserver = 'local:enfys'\nversions = [{versions}]\noptions = ['{NOT_DELEGATED}']\n\
         [[target]]\nname = '{WITH_DELEGATIONS}'\nserver = 'local:enfys'\nversions = ['4.1']\noptions = ['{DELEGATED}']\n\
         [[workload]]\nname = 'locked-reads'\nset = {{ files = {files} }}\n"
    )
}

pub(super) fn requests_plan(scale: Scale) -> String {
    let clients = scale.clients();
    plan("'3', '4.0', '4.1'", &format!("clients = [{clients}]"), scale.pick(50, 200, 1000))
}

/// Judges by the requests for a locked read, which are five calls of a program.
pub(super) fn judge_requests(runs: &Runs<'_>) -> Option<Judgement> {
    let plain = |pick: Pick<'static>| pick.target(PLAIN);
    let delegated = Pick::v41().target(WITH_DELEGATIONS);
    let each = |pick: &Pick<'_>| Some(runs.requests(pick)? * CALLS);
    let (v3, v40, v41) = (each(&plain(Pick::v3())), each(&plain(Pick::v40())), each(&plain(Pick::v41()))?);
    let with = each(&delegated)?;
    // The finding is that v4.1 without delegations is more verbose than the paper's v3, and a tenth with them.
    let verdict = match (v41 > PAPERS[0], with <= v41 / 5.0) {
        (true, true) => Verdict::Confirmed,
        (false, true) => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let text = |requests: Option<f64>| {
        requests.map_or("not measured".to_owned(), |requests| format!("{requests:.2}"))
    };
    let ours = format!(
        "requests a locked read: v3 {}, v4.0 {}, v4.1 {v41:.2}, delegated {with:.2} (paper: {} and {}, delegated {})",
        text(v3),
        text(v40),
        PAPERS[0],
        PAPERS[1],
        PAPERS[2]
    );
    let of = |operation| runs.each(&plain(Pick::v41()), operation).map(|each| each * CALLS);
    let kinds = ["OPEN", "LOCK", "READ", "LOCKU", "CLOSE", "GETATTR", "FREE_STATEID"];
    let kinds: Vec<String> =
        kinds.into_iter().filter_map(|kind| Some(format!("{kind} {:.2}", of(kind)?))).collect();
    Some(Judgement::new(verdict, ours, format!("of v4.1 without delegations: {}", kinds.join(", "))))
}

pub(super) fn time_plan(scale: Scale) -> String {
    let delays = scale.pick("'0', '1ms'", "'0', '1ms', '10ms'", "'0', '1ms', '10ms'");
    let clients = scale.pick(1, 5, 5);
    plan("'3', '4.1'", &format!("delays = [{delays}]\nclients = [{clients}]"), scale.pick(30, 30, 1000))
}

pub(super) fn judge_time(runs: &Runs<'_>) -> Option<Judgement> {
    let mut gains = Vec::new();
    let mut texts = Vec::new();
    for delay in DELAYS_MS {
        let time = |pick: Pick<'_>, target| runs.seconds(&pick.target(target).delay_ms(delay));
        let (Some(v3), Some(v41), Some(with)) =
            (time(Pick::v3(), PLAIN), time(Pick::v41(), PLAIN), time(Pick::v41(), WITH_DELEGATIONS))
        else {
            continue;
        };
        gains.push(v3 / with);
        texts.push(format!(
            "{delay} ms: v3 {v3:.2}, v4.1 {v41:.2}, delegated {with:.2} ({:.1} times v3)",
            v3 / with
        ));
    }
    let (least, most) =
        (gains.iter().copied().min_by(f64::total_cmp)?, gains.iter().copied().max_by(f64::total_cmp)?);
    let verdict = if is_gain_of(least, 6.0) { Verdict::Confirmed } else { Verdict::NotSeen };
    let requests = |pick: Pick<'_>, target| Some(runs.requests(&pick.target(target))? * CALLS);
    let counter = format!(
        "requests a locked read: v3 {:.2}, delegated {:.2}; {least:.1} to {most:.1} times as fast",
        requests(Pick::v3(), PLAIN)?,
        requests(Pick::v41(), WITH_DELEGATIONS)?
    );
    Some(Judgement::new(verdict, format!("seconds at {}", texts.join("; ")), counter))
}
