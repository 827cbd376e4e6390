//! Listings of directories (§4.3, Figure 12).

use super::super::claims::{is_loss_of, of_loss};
use super::{DELEGATED, ENFYS, Judgement, Pick, Runs, Scale, Verdict};

/// The paper's loss at 0 ms, and the longer time of requests that causes it.
const LOSS: f64 = 0.15;
const LONGER: f64 = 1.27;

pub(super) fn plan(scale: Scale) -> String {
    let files = scale.pick(1000, 5000, 50_000);
    let (clients, threads) = (scale.clients(), scale.pick("1", "1, 16", "1, 16"));
    format!(
        "{}[matrix]\nversions = ['3', '4.1']\ndelays = ['0', '10ms']\nthreads = [{threads}]\nclients = [{clients}]\n\
         options = ['{DELEGATED}']\n{ENFYS}[[workload]]\nname = 'list'\nset = {{ files = {files} }}\n",
        scale.pick("duration = '2s'\nwarm-up = '0'\n", "duration = '6s'\nwarm-up = '0'\n", scale.times())
    )
}

pub(super) fn judge(runs: &Runs<'_>) -> Option<Judgement> {
    let of = |delay| super::ratio(|pick| runs.rate(&pick.delay_ms(delay).threads(1)));
    let (near, far) = (of(0)?, of(10)?);
    let trip = |pick: Pick<'_>| runs.round_trip_us(&pick.delay_ms(0).threads(1), None);
    let (v3, v41) = (trip(Pick::v3())?, trip(Pick::v41())?);
    let verdict = match of_loss(near, LOSS, v41 / v3, LONGER) {
        // The paper's loss at 0 ms nearly ends with a delay.
        Verdict::Confirmed if is_loss_of(far, LOSS) => Verdict::NotSeen,
        verdict => verdict,
    };
    let mut ours = format!("v4.1 to v3: {near:.2} at 0 ms, {far:.2} at 10 ms");
    if let Some(many) = super::ratio(|pick| runs.rate(&pick.delay_ms(10).threads(16))) {
        ours += &format!(", there with 16 threads {many:.2}");
    }
    let requests = |pick: Pick<'_>| runs.requests(&pick.delay_ms(0).threads(1));
    let counter = format!(
        "mean round trip at 0 ms: v3 {v3:.0} µs, v4.1 {v41:.0} µs; requests a listing: {:.3}, {:.3}",
        requests(Pick::v3())?,
        requests(Pick::v41())?
    );
    Some(Judgement::new(verdict, ours, counter))
}
