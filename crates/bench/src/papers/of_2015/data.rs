//! Reads and writes of data (§3, Figures 1, 2 and 5).

use super::super::claims::is_equal;
use super::{ENFYS, Judgement, Pick, Runs, Scale, Verdict};

/// Rate of the link, in bytes a second: 1 Gbit/s for one client of 16 threads, as 10 Gbit/s for five.
const RATE: f64 = 125e6;
/// Options of the link of Figure 1.
const LINE: &str = "rate=1gbit";
/// Options of the links of Figure 2: the system's default in the paper, and its remedy.
const SMALL_BUFFERS: &str = "rate=1gbit&tcp_buffer=2MiB";
const LARGE_BUFFERS: &str = "rate=1gbit&tcp_buffer=32MiB";
/// Delays of Figure 2, in milliseconds, the longest first.
const DELAYS_MS: [u64; 2] = [40, 20];
/// Sizes of Figure 5.
const SIZES: [&str; 3] = ["4KiB", "64KiB", "1MiB"];

pub(super) fn reads_plan(scale: Scale) -> String {
    let size = scale.pick("32MiB", "128MiB", "20GiB");
    format!(
        "[matrix]\nversions = ['3', '4.1']\ndelays = ['0', '10ms']\nthreads = [16]\noptions = ['{LINE}']\n{ENFYS}[[workload]]\n\
         name = 'random-read'\nset = {{ io-size = ['4KiB', '64KiB', '1MiB'], file-size = '{size}' }}\n"
    )
}

pub(super) fn judge_reads(runs: &Runs<'_>) -> Option<Judgement> {
    let bytes = |size, delay| runs.bytes(&Pick::v41().delay_ms(delay).with("io-size", size));
    let divided = |size| Some(bytes(size, 0)? / bytes(size, 10)?);
    let (small, middle, large) = (divided("4KiB")?, divided("64KiB")?, divided("1MiB")?);
    let versions = super::ratio(|pick| runs.bytes(&pick.delay_ms(10).with("io-size", "4KiB")))?;
    // Half of the paper's 20 needs a machine that serves 16,000 reads a second at 0 ms.
    let is_seen = small >= 2.0 && small >= 2.0 * large && large <= 1.25 && is_equal(versions);
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!(
        "10 ms divide 4 KiB by {small:.1}, 64 KiB by {middle:.1}, 1 MiB by {large:.2}; v4.1 to v3 at 4 KiB {versions:.2}"
    );
    let outstanding = runs.outstanding(&Pick::v41().delay_ms(10).with("io-size", "4KiB"))?;
    let flight = bytes("1MiB", 10)? * 0.010 / 1e6;
    let counter = format!(
        "{outstanding:.1} of 16 threads have a 4 KiB READ outstanding; 1 MiB reads have {flight:.2} MB on the way, the line takes {:.2}",
        RATE * 0.010 / 1e6
    );
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn buffers_plan(scale: Scale) -> String {
    let size = scale.pick("32MiB", "128MiB", "20GiB");
    let threads = scale.pick("1, 4, 16", "1, 4, 16", "1, 2, 4, 8, 16");
    let delays = scale.pick("'40ms'", "'40ms'", "'20ms', '40ms'");
    format!(
        "{}[matrix]\nversions = ['4.1']\ndelays = [{delays}]\nthreads = [{threads}]\n\
         options = ['{SMALL_BUFFERS}', '{LARGE_BUFFERS}']\n{ENFYS}[[workload]]\nname = 'random-read'\n\
         set = {{ io-size = '1MiB', file-size = '{size}' }}\n",
        // TCP's window grows for a second.
        scale.pick(
            "duration = '2s'\nwarm-up = '1s'\n",
            "duration = '4s'\nwarm-up = '2s'\n",
            "duration = '300s'\nwarm-up = '5s'\n"
        )
    )
}

pub(super) fn judge_buffers(runs: &Runs<'_>) -> Option<Judgement> {
    let delay = *DELAYS_MS.iter().find(|delay| runs.bytes(&Pick::v41().delay_ms(**delay)).is_some())?;
    let bytes = |options, threads| runs.bytes(&Pick::v41().delay_ms(delay).options(options).threads(threads));
    let (four, sixteen) = (bytes(SMALL_BUFFERS, 4)?, bytes(SMALL_BUFFERS, 16)?);
    let (large_four, large) = (bytes(LARGE_BUFFERS, 4)?, bytes(LARGE_BUFFERS, 16)?);
    let is_seen = sixteen <= 1.25 * four && large >= 1.5 * sixteen && large >= 0.8 * RATE;
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    let mb = |bytes: f64| bytes / 1e6;
    let ours = format!(
        "MB/s at {delay} ms with 4 and 16 threads: 2 MiB {:.0} and {:.0}, 32 MiB {:.0} and {:.0} of {:.0}",
        mb(four),
        mb(sixteen),
        mb(large_four),
        mb(large),
        mb(RATE)
    );
    let flight = |rate: f64| mb(rate) * delay as f64 / 1e3;
    let limit = |rate: f64, buffers: f64| match (rate >= 0.8 * RATE, flight(rate) <= buffers) {
        (true, _) => "the line is the limit",
        (false, true) => "the buffers are the limit",
        (false, false) => "neither is the limit",
    };
    let counter = format!(
        "bytes on the way with 16 threads: {:.2} MB with buffers of 2.1 MB ({}), {:.2} MB with 33.6 MB ({}); the line takes {:.2} MB",
        flight(sixteen),
        limit(sixteen, 2.1),
        flight(large),
        limit(large, 33.6),
        flight(RATE)
    );
    Some(Judgement::new(verdict, ours, counter))
}

pub(super) fn writes_plan(scale: Scale) -> String {
    let size = scale.pick("16MiB", "64MiB", "20GiB");
    let sizes = scale.pick("'64KiB'", "'4KiB', '1MiB'", "'4KiB', '64KiB', '1MiB'");
    let local = super::super::ON_LOCAL_DISK;
    format!(
        "[matrix]\nversions = ['3', '4.1']\nthreads = [1, 16]\n{ENFYS}{local}[[workload]]\nname = 'random-write'\n\
         set = {{ io-size = [{sizes}], file-size = '{size}' }}\n"
    )
}

pub(super) fn judge_writes(runs: &Runs<'_>) -> Option<Judgement> {
    let (mut ratios, mut texts) = (Vec::new(), Vec::new());
    for threads in [1, 16] {
        let of = |size| {
            let ratio = super::ratio(|pick| runs.rate(&pick.threads(threads).with("io-size", size)))?;
            Some((ratio, format!("{threads} × {size}: {ratio:.2}")))
        };
        let some: Vec<(f64, String)> = SIZES.into_iter().filter_map(of).collect();
        if some.is_empty() {
            return None;
        }
        for (ratio, text) in some {
            ratios.push(ratio);
            texts.push(text);
        }
    }
    let verdict = if ratios.into_iter().all(is_equal) { Verdict::Confirmed } else { Verdict::NotSeen };
    let mut ours = format!("v4.1 to v3 by threads and size: {}", texts.join(", "));
    if let Some((nfs, disk)) =
        runs.rate(&Pick::v3().threads(1)).zip(runs.rate(&Pick::default().target("local").threads(1)))
    {
        ours += &format!("; v3 with 1 thread has {:.0} % of the local disk's writes", nfs / disk * 100.0);
    }
    let requests = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    Some(Judgement::new(
        verdict,
        ours,
        format!("requests a write: v3 {:.2}, v4.1 {:.2}", requests.0, requests.1),
    ))
}
