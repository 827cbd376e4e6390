//! NFS versions 3 and 4, synchronous and asynchronous exports, and the local disk (2008).

use super::claims::is_gain_of;
use super::runs::{Pick, Runs};
use super::{Figure, Judgement, ON_LOCAL_DISK, Scale, Verdict};

const TARGETS: &str = "[[target]]\nname = 'sync'\nserver = 'local:enfys'\n\
                       [[target]]\nname = 'async'\nserver = 'local:enfys-async'\n";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "2008:bonnie",
        title: "Bonnie++: empty files created and deleted",
        finding: "An asynchronous export creates 17 times (v3: 182 to 3,031 a second) and 13 times (v4: 98 to 1,314) as many \
                  files. A block write has 48 to 50 MB/s, asynchronous 84 to 86, and on the local disk 92.",
        plan: bonnie_plan,
        judge: judge_bonnie,
    },
    Figure {
        name: "2008:tar",
        title: "Unpack and remove a source tree",
        finding: "Unpacking takes 9:44 with v3 and 9:52 with v4, asynchronously 0:31 and 0:40: 19 and 15 times as fast; \
                  on the local disk 0:01. Removing takes 2:36 and 2:27, 0:10 and 0:08, local 0:03.",
        plan: tar_plan,
        judge: judge_tar,
    },
];

/// Asynchronous against synchronous creations, the smaller of both versions.
const CREATION_GAIN: f64 = 13.0;
/// Asynchronous against synchronous unpacking, the smaller of both versions.
const UNPACK_GAIN: f64 = 15.0;

fn bonnie_plan(scale: Scale) -> String {
    let size = scale.pick("8MiB", "128MiB", "4GiB");
    let (seeks, files) = scale.pick((100, 200), (1000, 1024), (8000, 16384));
    format!(
        "[matrix]\nversions = ['3', '4.0']\n{TARGETS}{ON_LOCAL_DISK}[[workload]]\nname = 'bonnie'\n\
         set = {{ file-size = '{size}', seeks = {seeks}, files = {files} }}\n"
    )
}

/// The same number of versions 3 and 4, each of the synchronous and of the asynchronous export; and of the local disk.
struct Numbers {
    v3: (f64, f64),
    v4: (f64, f64),
    local: f64,
}

impl Numbers {
    fn of(runs: &Runs<'_>, name: &str) -> Option<Self> {
        let of = |pick: Pick<'_>| {
            let number = |target| runs.sample(&pick.target(target), name);
            Some((number("sync")?, number("async")?))
        };
        let local = runs.sample(&Pick::default().target("local"), name)?;
        Some(Self { v3: of(Pick::v3())?, v4: of(Pick::v40())?, local })
    }

    /// Returns the ratios of the asynchronous export to the synchronous one, of versions 3 and 4.
    fn ratios(&self) -> (f64, f64) {
        (self.v3.1 / self.v3.0, self.v4.1 / self.v4.0)
    }
}

fn judge_bonnie(runs: &Runs<'_>) -> Option<Judgement> {
    let creates = Numbers::of(runs, "sequential_create_per_s")?;
    let writes = Numbers::of(runs, "block_write_mb_per_s")?;
    let (v3, v4) = creates.ratios();
    let ours = format!(
        "creates a second: v3 {:.0} to {:.0} ({v3:.1}×), v4 {:.0} to {:.0} ({v4:.1}×), local {:.0}; block write v3 {:.0} to {:.0}, \
         v4 {:.0} to {:.0}, local {:.0} MB/s",
        creates.v3.0,
        creates.v3.1,
        creates.v4.0,
        creates.v4.1,
        creates.local,
        writes.v3.0,
        writes.v3.1,
        writes.v4.0,
        writes.v4.1,
        writes.local
    );
    Some(Judgement::new(
        verdict(v3.min(v4), CREATION_GAIN),
        ours,
        times(runs, &[("v3", "CREATE"), ("v4", "OPEN")])?,
    ))
}

fn tar_plan(scale: Scale) -> String {
    let files = scale.pick(200, 2000, 24_000);
    format!(
        "[matrix]\nversions = ['3', '4.0']\n{TARGETS}{ON_LOCAL_DISK}[[workload]]\nname = 'source-tree'\nset = {{ files = {files} }}\n"
    )
}

fn judge_tar(runs: &Runs<'_>) -> Option<Judgement> {
    let (unpack, remove) = (Numbers::of(runs, "unpack_s")?, Numbers::of(runs, "remove_s")?);
    let (v3, v4) = unpack.ratios();
    let text = |name: &str, all: &Numbers| {
        format!(
            "{name}: v3 {:.2} s, async {:.2} s; v4 {:.2} s, async {:.2} s; local {:.2} s",
            all.v3.0, all.v3.1, all.v4.0, all.v4.1, all.local
        )
    };
    let ours = format!(
        "{} ({:.1} and {:.1} times as fast); {}",
        text("unpacking", &unpack),
        1.0 / v3,
        1.0 / v4,
        text("removing", &remove)
    );
    let all = [
        ("v3", "CREATE"),
        ("v3", "WRITE"),
        ("v3", "COMMIT"),
        ("v4", "OPEN"),
        ("v4", "WRITE"),
        ("v4", "COMMIT"),
    ];
    Some(Judgement::new(verdict((1.0 / v3).min(1.0 / v4), UNPACK_GAIN), ours, times(runs, &all)?))
}

/// Returns the mean times of some requests on both exports, which syncs make longer.
fn times(runs: &Runs<'_>, operations: &[(&str, &str)]) -> Option<String> {
    let of = |(version, operation): &(&str, &str)| {
        let pick = if *version == "v3" { Pick::v3() } else { Pick::v40() };
        let time = |target| runs.round_trip_us(&pick.target(target), Some(operation));
        // Whether there are such requests depends on the client.
        Some(format!("{version} {operation} {:.0} and {:.0}", time("sync")?, time("async")?))
    };
    let all: Vec<String> = operations.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| format!("mean round trip on both exports in µs: {}", all.join(", ")))
}

/// Returns the verdict. The gain depends on the disk: a fast one, as most today, has far less to save.
fn verdict(ratio: f64, claimed: f64) -> Verdict {
    if is_gain_of(ratio, claimed) { Verdict::Confirmed } else { Verdict::NotSeen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::result::RunResult;
    use crate::result::tests::result;

    /// Results of both versions on both exports and on the local disk.
    fn results(synchronous: f64, asynchronous: f64, names: [&str; 2]) -> Vec<RunResult> {
        let of = |target: &str, version: &str, number: f64| {
            let mut run = result(target, version, 1, 100);
            for name in names {
                run.samples.insert(name.to_owned(), vec![number]);
            }
            for name in ["CREATE", "OPEN"] {
                let counters = crate::result::RequestCounters {
                    requests: 10,
                    round_trip_us: 5000,
                    ..Default::default()
                };
                run.requests.insert(name.to_owned(), counters);
            }
            run
        };
        let mut all = vec![of("local", "3", 100.0)];
        for version in ["3", "4.0"] {
            all.extend([of("sync", version, synchronous), of("async", version, asynchronous)]);
        }
        all
    }

    #[test]
    fn half_of_the_gain_of_asynchronous_exports_confirms_it() {
        let judge = |figure, synchronous, asynchronous, names| {
            figures(Some(figure)).unwrap()[0].judge(&results(synchronous, asynchronous, names))
        };
        let creates = ["sequential_create_per_s", "block_write_mb_per_s"];
        assert_eq!(judge("2008:bonnie", 100.0, 700.0, creates).verdict, Verdict::Confirmed);
        assert_eq!(judge("2008:bonnie", 100.0, 200.0, creates).verdict, Verdict::NotSeen);
        let seconds = ["unpack_s", "remove_s"];
        assert_eq!(judge("2008:tar", 800.0, 100.0, seconds).verdict, Verdict::Confirmed);
        assert_eq!(judge("2008:tar", 200.0, 100.0, seconds).verdict, Verdict::NotSeen);
        assert!(judge("2008:tar", 800.0, 100.0, seconds).counter.contains("v3 CREATE 500 and 500"));
        assert!(judge("2008:tar", 800.0, 100.0, seconds).ours.contains("local 100.00 s"));
    }
}
