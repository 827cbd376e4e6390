//! Pawlowski et al., NFS Version 3: Design and Implementation (USENIX Summer 1994).

use super::runs::{Pick, Runs};
use super::{ENFYS, Figure, Judgement, Scale, Verdict};
use crate::targets::local::{DISK_SYNCED_BYTES, DISK_SYNCS};

/// The targets of the sequential write.
const SERVERS: [(&str, &str); 4] = [
    ("plain", "local:enfys-disk-1994"),
    ("gathering", "local:enfys-disk-1994-gathering"),
    ("journal", "local:enfys-disk-1994-journal"),
    ("both", "local:enfys-disk-1994-gathering-journal"),
];
/// The targets of the sequential write to striped disks, with their versions.
const STRIPED: [(&str, &str, &str); 3] = [
    ("plain", "local:enfys-disks-1994", "3"),
    ("journal", "local:enfys-disks-1994-journal", "3"),
    ("both", "local:enfys-disks-1994-gathering-journal", "2"),
];
/// Version 3 against version 2 on striped disks: 22 % more.
const STRIPED_MIN: f64 = 1.1;
/// Version 3 against version 2: "7 times".
const RATIO_MIN: f64 = 7.0;
/// Version 2 with gathering and journal against version 3: the paper's is 1 % faster.
const BOTH_MIN: f64 = 0.9;
/// Replies of listings have at most 8 KB, as in the paper; then without READDIRPLUS.
const PLUS: &str = "caches=on&rsize=8192";
const NO_PLUS: &str = "caches=on&rsize=8192&nordirplus";
/// Version 3's requests against those of version 2: a tenth in the paper.
const FIND_RATIO_MAX: f64 = 0.2;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "1994:fig2",
        title: "Sequential write of a 10 MB file to one slow disk",
        finding: "Version 3, whose WRITEs need no sync of their own, writes 2,323 KB/s, 7 times as much as version 2 (320 KB/s). \
                  Gathering and a fast log together bring version 2 to 2,346 KB/s.",
        plan: write_plan,
        judge: judge_write,
    },
    Figure {
        name: "1994:fig3",
        title: "Sequential write of a 40 MB file to four striped disks",
        finding: "Where the disk is not the limit, version 3 (6,105 KB/s) writes 22 % more than version 2 with gathering and a fast \
                  log (5,022 KB/s), at a similar CPU time of the server; with the log, 6,425 KB/s.",
        plan: striped_plan,
        judge: judge_striped,
    },
    Figure {
        name: "1994:table1",
        title: "Requests of Connectathon's Basic tests",
        finding: "Version 3 saves requests, since its replies have attributes: 11,032 against 13,166 of version 2, with GETATTR and \
                  LOOKUP together 6,781 against 11,012 in all passes.",
        plan: basic_plan,
        judge: judge_basic,
    },
    Figure {
        name: "1994:fig4",
        title: "Requests of Connectathon's tests by procedure",
        finding: "In all passes version 3 sends 1,282 GETATTR instead of 4,058, and 5,499 LOOKUP instead of 6,954; ACCESS (309), COMMIT \
                  (65) and READDIRPLUS (18) are new and few.",
        plan: basic_plan,
        judge: judge_procedures,
    },
    Figure {
        name: "1994:table2",
        title: "find(1) over a tree of 9,612 files",
        finding: "READDIRPLUS brings attributes with names: 1,133 requests against 10,559 of version 2, which asks for each \
                  file; a tenth. Without READDIRPLUS version 3 sends 10,877.",
        plan: find_plan,
        judge: judge_find,
    },
];

/// Seven writers of 8 KB, as the paper's client had. The disk is a model.
fn write_plan(scale: Scale) -> String {
    let size = scale.pick("4MB", "10MB", "10MB");
    let target = |(name, server)| format!("[[target]]\nname = '{name}'\nserver = '{server}'\n");
    let targets = SERVERS.map(target).concat();
    format!(
        "[matrix]\nversions = ['2', '3']\noptions = ['caches=on&wsize=8192&v3_calls=7']\n{targets}[[workload]]\n\
         name = 'stream-write'\nset = {{ file-size = '{size}', io-size = '8KiB' }}\n"
    )
}

/// Compares rates until close, and counts syncs.
fn judge_write(runs: &Runs<'_>) -> Option<Judgement> {
    let [plain, gathering, journal, both] = SERVERS.map(|(name, _)| Pick::v2().target(name));
    let series = [
        ("v2", plain),
        ("v2 gathering", gathering),
        ("v2 journal", journal),
        ("v2 both", both),
        ("v3", Pick::v3().target(SERVERS[0].0)),
    ];
    let (mut rates, mut ours, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for (name, pick) in series {
        let rate = runs.sample(&pick, "until_close_mb_per_s")?;
        let per_mb = runs.median(&pick, |result| {
            let growth = &result.server_counters.as_ref()?.growth;
            Some(growth.get(DISK_SYNCS)? / (growth.get(DISK_SYNCED_BYTES)? / 1e6))
        })?;
        ours.push(format!("{name} {:.0} KB/s", rate * 1e3));
        syncs.push(format!("{name} {per_mb:.1}"));
        rates.push(rate);
    }
    let [v2, _, _, both, v3] = rates[..] else { return None };
    let (of_v3, of_both) = (v3 / v2, both / v3);
    let verdict =
        if of_v3 >= RATIO_MIN && of_both >= BOTH_MIN { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(
        verdict,
        format!("{}; v3 is {of_v3:.1} times v2, both {of_both:.2} times v3", ours.join(", ")),
        format!(
            "syncs per MB: {}; the disk and the gathering are a model, the journal is Enfys's on a device that takes no time",
            syncs.join(", ")
        ),
    ))
}

/// Fifteen writers of 8 KB, as the paper's client had then.
fn striped_plan(scale: Scale) -> String {
    let size = scale.pick("10MB", "40MB", "40MB");
    let target = |(name, server, version)| {
        format!("[[target]]\nname = '{name}'\nserver = '{server}'\nversions = ['{version}']\n")
    };
    let targets = STRIPED.map(target).concat();
    format!(
        "[matrix]\noptions = ['caches=on&wsize=8192&v3_calls=15']\n{targets}[[workload]]\nname = 'stream-write'\n\
         set = {{ file-size = '{size}', io-size = '8KiB' }}\n"
    )
}

/// Compares rates until close, and CPU times of the server.
fn judge_striped(runs: &Runs<'_>) -> Option<Judgement> {
    let [plain, journal, both] = STRIPED.map(|(name, _, _)| name);
    let series = [
        ("v3", Pick::v3().target(plain)),
        ("v3 journal", Pick::v3().target(journal)),
        ("v2 both", Pick::v2().target(both)),
    ];
    let (mut rates, mut ours, mut times) = (Vec::new(), Vec::new(), Vec::new());
    for (name, pick) in series {
        let rate = runs.sample(&pick, "until_close_mb_per_s")?;
        let cpu = runs.median(&pick, |result| result.server_cpu_seconds)?;
        ours.push(format!("{name} {:.0} KB/s", rate * 1e3));
        times.push(format!("{name} {cpu:.2} s"));
        rates.push(rate);
    }
    let of_both = rates[0] / rates[2];
    let verdict = if of_both >= STRIPED_MIN { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(
        verdict,
        format!("{}; v3 is {of_both:.2} times v2 with both", ours.join(", ")),
        format!(
            "server's CPU time: {}. The disks and the gathering are a model. The paper's server was limited by its CPU, ours \
             by the disks; a write to our log takes no time",
            times.join(", ")
        ),
    ))
}

/// Transfers of 8 KB, as the paper's client had.
fn basic_plan(_: Scale) -> String {
    format!(
        "[matrix]\nversions = ['2', '3', '4.1']\noptions = ['caches=on&rsize=8192&wsize=8192']\n{ENFYS}[[workload]]\nname = 'basic'\n"
    )
}

/// Compares the sums of all requests.
fn judge_basic(runs: &Runs<'_>) -> Option<Judgement> {
    let [v2, v3] = [Pick::v2(), Pick::v3()].map(|pick| runs.request_count(&pick, None));
    let (v2, v3, v41) = (v2?, v3?, runs.request_count(&Pick::v41(), None)?);
    let verdict = if v3 < v2 { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(
        verdict,
        format!("{v2:.0} requests in v2, {v3:.0} in v3, {v41:.0} in v4.1"),
        "Basic alone; nothing is read: the data written are still in the cache".to_owned(),
    ))
}

/// Compares GETATTR and LOOKUP of versions 2 and 3, and prints the requests of each procedure.
fn judge_procedures(runs: &Runs<'_>) -> Option<Judgement> {
    let versions = [("v2", Pick::v2()), ("v3", Pick::v3())];
    let (mut of_both, mut ours, mut details) = (Vec::new(), Vec::new(), Vec::new());
    for (name, pick) in versions {
        let [getattr, lookup] =
            ["GETATTR", "LOOKUP"].map(|procedure| runs.request_count(&pick, Some(procedure)));
        let (getattr, lookup) = (getattr?, lookup?);
        ours.push(format!("{name} {getattr:.0} GETATTR, {lookup:.0} LOOKUP"));
        details.push(format!("{name}: {}", request_counts(runs, &pick)));
        of_both.push((getattr, lookup));
    }
    let [(getattr, lookup), (getattr_3, lookup_3)] = of_both[..] else { return None };
    let is_less = getattr_3 < getattr && lookup_3 < lookup;
    let verdict = if is_less { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(verdict, ours.join("; "), format!("Basic alone; {}", details.join("; "))))
}

/// Returns the number of requests of each procedure that was called, by names.
fn request_counts(runs: &Runs<'_>, pick: &Pick<'_>) -> String {
    let count = |name| Some(format!("{name} {:.0}", runs.request_count(pick, Some(name))?));
    runs.request_kinds(pick).into_iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

fn find_plan(scale: Scale) -> String {
    let files = scale.pick(1000, 9612, 9612);
    format!(
        "[matrix]\nversions = ['2', '3', '4.1']\noptions = ['{PLUS}', '{NO_PLUS}']\n{ENFYS}[[workload]]\nname = 'find'\n\
         set = {{ files = {files} }}\n"
    )
}

/// Compares the numbers of requests, and prints those of each procedure and the bytes, as Table 2 does.
fn judge_find(runs: &Runs<'_>) -> Option<Judgement> {
    let series = [
        ("v2", Pick::v2().options(PLUS)),
        ("v3", Pick::v3().options(PLUS)),
        ("v3 without READDIRPLUS", Pick::v3().options(NO_PLUS)),
        ("v4.1", Pick::v41().options(PLUS)),
    ];
    let (mut counts, mut ours, mut details) = (Vec::new(), Vec::new(), Vec::new());
    for (name, pick) in series {
        let (count, bytes) = (runs.request_count(&pick, None)?, runs.wire_bytes(&pick)?);
        ours.push(format!("{name} {count:.0} requests, {:.2} MB", bytes / 1e6));
        details.push(format!("{name}: {}", request_counts(runs, &pick)));
        counts.push(count);
    }
    let [v2, v3, without, _] = counts[..] else { return None };
    let verdict =
        if v3 <= FIND_RATIO_MAX * v2 && without >= v2 { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(verdict, ours.join("; "), details.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::figures;
    use crate::result::RequestCounters;
    use crate::result::tests::result;

    #[test]
    fn version_3_saves_requests_of_both_procedures() {
        let judge = |getattr, lookup| {
            let of = |version, counts: [(&str, u64); 3]| {
                let mut run = result("enfys", version, 1, 100);
                let one = |requests| RequestCounters { requests, ..Default::default() };
                run.requests = counts.map(|(name, count)| (name.to_owned(), one(count))).into();
                run
            };
            let results = [
                of("2", [("GETATTR", 1634), ("LOOKUP", 1842), ("WRITE", 1280)]),
                of("3", [("GETATTR", getattr), ("LOOKUP", lookup), ("ACCESS", 19)]),
            ];
            figures(Some("1994:fig4")).unwrap()[0].judge(&results)
        };
        assert_eq!(judge(100, 516).verdict, Verdict::Confirmed);
        assert_eq!(judge(1700, 516).verdict, Verdict::NotSeen);
        assert_eq!(judge(100, 1900).verdict, Verdict::NotSeen);
        assert!(judge(100, 516).counter.contains("v3: ACCESS 19, GETATTR 100, LOOKUP 516"));
    }
}
