//! Creation of files (§4.2, Figures 8 to 11).

use super::super::claims::is_equal;
use super::{ENFYS, Judgement, Pick, Runs, Scale, Verdict};

/// Numbers of threads in the paper.
const THREADS: [u32; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// Options of Figure 11: the slots that the server grants, and the paper's number.
const GRANTED: &str = "caches=on";
const AS_IN_PAPER: &str = "caches=on&slots=160";

pub(super) fn plan(scale: Scale, delay: &str) -> String {
    let files = scale.pick(200, 1000, 10_000);
    let threads = scale.pick("1, 16, 128", "1, 4, 16, 64, 256, 512", "1, 2, 4, 8, 16, 32, 64, 128, 256, 512");
    let clients = scale.clients();
    format!(
        "[matrix]\nversions = ['3', '4.1']\ndelays = ['{delay}']\nthreads = [{threads}]\nclients = [{clients}]\n\
         options = ['{GRANTED}']\n{ENFYS}[[workload]]\nname = 'create'\nset = {{ files = {files} }}\n"
    )
}

pub(super) fn judge(runs: &Runs<'_>, delay_ms: u64) -> Option<Judgement> {
    let at = |pick: Pick<'static>, threads| pick.delay_ms(delay_ms).threads(threads);
    let ratio = |threads| Some((threads, super::ratio(|pick| runs.rate(&at(pick, threads)))?));
    let ratios: Vec<(u32, f64)> = THREADS.into_iter().filter_map(ratio).collect();
    let many = ratios.iter().filter(|(threads, _)| *threads > 32);
    let (most, worst) = *many.min_by(|a, b| a.1.total_cmp(&b.1))?;
    // The paper's unpatched client is slower with many threads.
    let verdict = match worst {
        ratio if ratio >= 1.0 => Verdict::Reversed,
        ratio if ratio <= 0.9 => Verdict::Confirmed,
        _ => Verdict::NotSeen,
    };
    let list: Vec<String> = ratios.iter().map(|(threads, ratio)| format!("{threads}: {ratio:.2}")).collect();
    let (v3, v41) = (at(Pick::v3(), most), at(Pick::v41(), most));
    let waits = runs.slot_waits(&v41)?;
    let requests = (runs.requests(&v3)?, runs.requests(&v41)?);
    let mut counter = format!(
        "requests a file: v3 {:.2}, v4.1 {:.2}; {waits:.0} waits for a slot at {most} threads",
        requests.0, requests.1
    );
    let trip = |pick: &Pick<'_>| runs.round_trip_us(pick, None);
    if let Some((v3, v41)) = trip(&v3).zip(trip(&v41)) {
        counter += &format!("; mean round trip there: v3 {v3:.0} µs, v4.1 {v41:.0} µs");
    }
    Some(Judgement::new(verdict, format!("v4.1 to v3 by threads: {}", list.join(", ")), counter))
}

/// Compares outstanding requests where the paper's versions differ, at 2 to 32 threads.
pub(super) fn judge_outstanding(runs: &Runs<'_>) -> Option<Judgement> {
    let mut ratios = Vec::new();
    let mut texts = Vec::new();
    for threads in THREADS {
        let of = |pick: Pick<'static>| runs.outstanding(&pick.threads(threads));
        let Some((v3, v41)) = of(Pick::v3()).zip(of(Pick::v41())) else { continue };
        texts.push(format!("{threads}: {v3:.1} and {v41:.1}"));
        if (2..=32).contains(&threads) {
            ratios.push(v41 / v3);
        }
    }
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    let verdict = match least {
        // The paper's rates differ by 1.9 to 2.9 times, and its outstanding requests as they do.
        least if least >= 1.45 => Verdict::Confirmed,
        _ if ratios.iter().all(|ratio| is_equal(*ratio)) => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let of = |pick: Pick<'_>, operation| runs.queue_us(&pick.threads(16), Some(operation));
    let queue = of(Pick::v3(), "CREATE").zip(of(Pick::v41(), "OPEN"));
    let counter = queue.map_or(String::new(), |(v3, v41)| {
        format!("before it is sent, a CREATE of v3 waits {v3:.0} µs and an OPEN of v4.1 {v41:.0} µs")
    });
    Some(Judgement::new(
        verdict,
        format!("a client's by threads, v3 and v4.1: {}", texts.join(", ")),
        counter,
    ))
}

pub(super) fn slots_plan(scale: Scale) -> String {
    let files = scale.pick(1024, 2048, 10_000);
    let threads = scale.pick("64, 512", "16, 32, 64, 128, 512", "16, 32, 64, 128, 256, 512");
    let clients = scale.pick(1, 5, 5);
    format!(
        "[matrix]\nversions = ['4.1']\nthreads = [{threads}]\nclients = [{clients}]\noptions = ['{GRANTED}', '{AS_IN_PAPER}']\n\
         {ENFYS}[[workload]]\nname = 'create'\nset = {{ files = {files} }}\n"
    )
}

/// Judges from how many threads requests wait: their number, since the time of a wait is not counted.
pub(super) fn judge_slots(runs: &Runs<'_>) -> Option<Judgement> {
    let waits = |options| -> Vec<(u32, f64)> {
        let of = |threads| {
            let waits = runs.slot_waits(&Pick::v41().options(options).threads(threads))?;
            Some((threads, waits))
        };
        THREADS.into_iter().filter_map(of).collect()
    };
    let (granted, papers) = (waits(GRANTED), waits(AS_IN_PAPER));
    let first =
        |waits: &[(u32, f64)]| waits.iter().find(|(_, waits)| *waits > 0.0).map(|(threads, _)| *threads);
    let verdict = match (first(&granted), granted.last()?.0) {
        (Some(threads), _) if threads <= 64 => Verdict::Confirmed,
        (None, 512..) => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let list = |waits: &[(u32, f64)]| {
        waits.iter().map(|(threads, waits)| format!("{threads}: {waits:.0}")).collect::<Vec<_>>().join(", ")
    };
    let (most, _) = *papers.last()?;
    let ours = format!(
        "requests that waited by threads: {}; if the client asks for 160 slots: {}",
        list(&granted),
        list(&papers)
    );
    let rate = |options| runs.rate(&Pick::v41().options(options).threads(most));
    let counter = format!(
        "{most} threads create {:.0} files a second with the slots that the server grants, {:.0} with 160",
        rate(GRANTED)?,
        rate(AS_IN_PAPER)?
    );
    Some(Judgement::new(verdict, ours, counter))
}
