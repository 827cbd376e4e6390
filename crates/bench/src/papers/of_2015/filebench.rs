//! Filebench's file, web and mail servers (§6, Figures 14 to 19).

use super::super::claims::{is_equal, is_gain_of, is_loss_of, of_loss};
use super::{DELEGATED, ENFYS, Judgement, NOT_DELEGATED, Pick, Runs, Scale, Verdict};

/// Losses of the file server and the web server at 0 ms, and the longest with delay.
const FILESERVER_LOSS: f64 = 0.12;
const FILESERVER_LOSS_DELAYED: f64 = 0.13;
const WEBSERVER_LOSS: f64 = 0.25;
/// Requests of the file server in v4.1 as a multiple of v3's, and round trips of the web server.
const MORE_REQUESTS: f64 = 1.56;
const LONGER: f64 = 1.19;
/// Gain of the mail server with delay.
const VARMAIL_GAIN: f64 = 1.3;
/// Gains of the web server at one thread: by delegations, and against version 3.
const DELEGATIONS_GAIN: f64 = 7.4;
const WEBSERVER_GAIN: f64 = 2.2;

/// Returns a plan with a personality's files, for clients with these options.
fn plan(scale: Scale, workload: &str, options: &[&str], versions: &str, matrix: &str) -> String {
    let files = scale.pick(100, 500, if workload == "fileserver" { 10_000 } else { 1000 });
    let options = options.join("', '");
    format!(
        "[matrix]\nversions = [{versions}]\n{matrix}\noptions = ['{options}']\n{ENFYS}[[workload]]\nname = '{workload}'\n\
         set = {{ files = {files} }}\n"
    )
}

const BOTH: &str = "'3', '4.1'";

fn delayed(scale: Scale, threads: u32) -> String {
    let delays = scale.pick("'0', '10ms'", "'0', '10ms'", "'0', '1ms', '10ms', '40ms'");
    format!("delays = [{delays}]\nthreads = [{threads}]\nclients = [{}]", scale.clients())
}

pub(super) fn fileserver_plan(scale: Scale) -> String {
    plan(scale, "fileserver", &[DELEGATED], BOTH, &delayed(scale, 50))
}

pub(super) fn webserver_plan(scale: Scale) -> String {
    // The paper opens files for writing, which Linux does not delegate; this server and this client do.
    plan(scale, "webserver", &[NOT_DELEGATED], BOTH, &delayed(scale, 100))
}

pub(super) fn webserver_threads_plan(scale: Scale) -> String {
    let threads = scale.pick("1, 16", "1, 16, 64", "1, 4, 16, 64, 128");
    let matrix = format!("threads = [{threads}]\nclients = [{}]", scale.clients());
    plan(scale, "webserver", &[DELEGATED, NOT_DELEGATED], BOTH, &matrix)
}

pub(super) fn varmail_plan(scale: Scale) -> String {
    plan(scale, "varmail", &[DELEGATED], BOTH, &delayed(scale, 16))
}

pub(super) fn varmail_clients_plan(scale: Scale) -> String {
    let clients = scale.pick("1, 3, 5", "1, 3, 5", "1, 2, 3, 4, 5");
    plan(
        scale,
        "varmail",
        &[DELEGATED],
        "'4.1'",
        &format!("delays = ['0', '10ms']\nthreads = [16]\nclients = [{clients}]"),
    )
}

/// The ratio of rates of both versions at 0 and 10 ms.
fn ratios(runs: &Runs<'_>) -> Option<(f64, f64, String)> {
    let of = |delay| super::ratio(|pick| runs.rate(&pick.delay_ms(delay)));
    let (near, far) = (of(0)?, of(10)?);
    Some((near, far, format!("v4.1 to v3: {near:.2} at 0 ms, {far:.2} at 10 ms")))
}

/// The requests for each operation at 0 ms, in both versions.
fn requests(runs: &Runs<'_>) -> Option<(f64, f64)> {
    Some((runs.requests(&Pick::v3().delay_ms(0))?, runs.requests(&Pick::v41().delay_ms(0))?))
}

/// The outstanding requests of a client at a delay, as a text, and their ratio.
fn outstanding(runs: &Runs<'_>, delay: u64) -> Option<(f64, String)> {
    let of = |pick: Pick<'_>| runs.outstanding(&pick.delay_ms(delay));
    let (v3, v41) = (of(Pick::v3())?, of(Pick::v41())?);
    Some((v41 / v3, format!("outstanding at {delay} ms: v3 {v3:.1}, v4.1 {v41:.1}")))
}

pub(super) fn judge_fileserver(runs: &Runs<'_>) -> Option<Judgement> {
    let (near, far, ours) = ratios(runs)?;
    let (v3, v41) = requests(runs)?;
    let verdict = match of_loss(near, FILESERVER_LOSS, v41 / v3, MORE_REQUESTS) {
        Verdict::Confirmed if !is_loss_of(far, FILESERVER_LOSS_DELAYED) => Verdict::NotSeen,
        verdict => verdict,
    };
    let counter = format!("requests an operation: v3 {v3:.2}, v4.1 {v41:.2}; {}", outstanding(runs, 10)?.1);
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn judge_fileserver_requests(runs: &Runs<'_>) -> Option<Judgement> {
    let (v3, v41) = requests(runs)?;
    let of = |pick: Pick<'_>, operation| runs.each(&pick.delay_ms(0), operation).unwrap_or(0.0);
    let both = |operation| (of(Pick::v3(), operation), of(Pick::v41(), operation));
    let state = (of(Pick::v41(), "OPEN") + of(Pick::v41(), "CLOSE")) / v3;
    let more = v41 / v3;
    let verdict = match more {
        more if is_gain_of(more, MORE_REQUESTS) => Verdict::Confirmed,
        more if more <= 1.05 => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let (getattr, lookup) = (both("GETATTR"), both("LOOKUP"));
    let ours = format!(
        "v4.1 sends {more:.2} times v3's requests; OPEN and CLOSE are {:.0} % of v3's; {}",
        state * 100.0,
        outstanding(runs, 10)?.1
    );
    let counter = format!(
        "for each operation of a program, v3 and v4.1: GETATTR {:.3}, {:.3}; LOOKUP {:.3}, {:.3}; OPEN {:.3}, CLOSE {:.3}",
        getattr.0,
        getattr.1,
        lookup.0,
        lookup.1,
        of(Pick::v41(), "OPEN"),
        of(Pick::v41(), "CLOSE")
    );
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn judge_webserver(runs: &Runs<'_>) -> Option<Judgement> {
    let (near, far, ours) = ratios(runs)?;
    let trip = |pick: Pick<'_>| runs.round_trip_us(&pick.delay_ms(0), None);
    let (trip_v3, trip_v41) = (trip(Pick::v3())?, trip(Pick::v41())?);
    let verdict = match of_loss(near, WEBSERVER_LOSS, trip_v41 / trip_v3, LONGER) {
        Verdict::Confirmed if !is_equal(far) => Verdict::NotSeen,
        verdict => verdict,
    };
    let (v3, v41) = requests(runs)?;
    let counter = format!(
        "mean round trip at 0 ms: v3 {trip_v3:.0} µs, v4.1 {trip_v41:.0} µs; requests an operation: {v3:.2}, {v41:.2}"
    );
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn judge_webserver_threads(runs: &Runs<'_>) -> Option<Judgement> {
    let at = |pick: Pick<'static>, threads, options| pick.threads(threads).options(options);
    let gain = |threads| {
        Some(
            runs.rate(&at(Pick::v41(), threads, DELEGATED))?
                / runs.rate(&at(Pick::v41(), threads, NOT_DELEGATED))?,
        )
    };
    let one = gain(1)?;
    let against_v3 = super::ratio(|pick| runs.rate(&at(pick, 1, DELEGATED)))?;
    let (most, many) = [128, 64, 16].into_iter().find_map(|threads| Some((threads, gain(threads)?)))?;
    let is_seen = is_gain_of(one, DELEGATIONS_GAIN) && is_gain_of(against_v3, WEBSERVER_GAIN) && many < one;
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!(
        "delegations make v4.1 {one:.1} times as fast with 1 thread ({against_v3:.1} times v3), {many:.1} times with {most}"
    );
    let each = |options| {
        let of = |operation| runs.each(&at(Pick::v41(), 1, options), operation).unwrap_or(0.0);
        format!("GETATTR {:.3}, OPEN {:.3}, CLOSE {:.3}", of("GETATTR"), of("OPEN"), of("CLOSE"))
    };
    let counter = format!(
        "for each operation of a program: {}; with delegations {}",
        each(NOT_DELEGATED),
        each(DELEGATED)
    );
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn judge_varmail(runs: &Runs<'_>) -> Option<Judgement> {
    let (near, far, ours) = ratios(runs)?;
    let (more, text) = outstanding(runs, 10)?;
    let verdict = match (is_equal(near), far) {
        (true, far) if is_gain_of(far, VARMAIL_GAIN) => Verdict::Confirmed,
        // Version 3 does not wait where the paper's did.
        (_, far) if far <= 1.0 && more < 1.1 => Verdict::Reversed,
        _ => Verdict::NotSeen,
    };
    let (v3, v41) = requests(runs)?;
    Some(Judgement::new(verdict, ours, format!("{text}; requests an operation: {v3:.2}, {v41:.2}")))
}

pub(super) fn judge_varmail_clients(runs: &Runs<'_>) -> Option<Judgement> {
    let rate = |delay, clients| runs.rate(&Pick::v41().delay_ms(delay).clients(clients));
    let growth = |delay, clients| Some(rate(delay, clients)? / rate(delay, 1)?);
    let (near, far) = (growth(0, 3)?, growth(10, 5)?);
    // Linear is three and five times; confirmed by half of the growth.
    let is_seen = is_gain_of(near, 3.0) && is_gain_of(far, 5.0);
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!(
        "three clients have {near:.2} times the rate of one at 0 ms, five {:.2} times; five at 10 ms {far:.2} times",
        growth(0, 5)?
    );
    let busy =
        |delay, clients| Some(runs.client_busy(&Pick::v41().delay_ms(delay).clients(clients))? * 100.0);
    let counter = format!(
        "the clients use {:.0} % of their processors with three at 0 ms, {:.0} % with five at 10 ms: this machine is the server too",
        busy(0, 3)?,
        busy(10, 5)?
    );
    Some(Judgement::new(verdict, ours, counter))
}
