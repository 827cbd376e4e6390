//! Pawlowski et al., NFS Version 3: Design and Implementation (USENIX Summer 1994).

use super::runs::{Pick, Runs};
use super::{ENFYS, Figure, Judgement, Scale, Verdict};
use crate::plan::NfsVersion;
use crate::targets::local::{DISK_SYNCED_BYTES, DISK_SYNCS};

/// The targets of the sequential write. A journal is another one: with gathering and without.
const SERVERS: [(&str, &str); 2] =
    [("plain", "local:enfys-disk-1994"), ("gathering", "local:enfys-disk-1994-gathering")];
/// Version 3 against version 2: "7 times".
const RATIO_MIN: f64 = 7.0;

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
        name: "1994:table1",
        title: "Requests of Connectathon's Basic tests",
        finding: "Version 3 saves requests: 11,032 against 13,166 of version 2.",
        plan: basic_plan,
        judge: judge_basic,
    },
    Figure {
        name: "1994:table2",
        title: "find(1) over a tree of 9,612 files",
        finding: "READDIRPLUS brings attributes with names: 1,133 requests against 10,559 of version 2, which asks for each \
                  file; a tenth.",
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
    let v2 = Pick { version: Some(NfsVersion::V2), ..Pick::default() };
    let [plain, gathering] = SERVERS.map(|(name, _)| name);
    let series =
        [("v2", v2.target(plain)), ("v2 gathering", v2.target(gathering)), ("v3", Pick::v3().target(plain))];
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
    let ratio = rates[2] / rates[0];
    let verdict = if ratio >= RATIO_MIN { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(
        verdict,
        format!("{}; v3 is {ratio:.1} times v2", ours.join(", ")),
        format!("syncs per MB: {}; the disk and the gathering are a model", syncs.join(", ")),
    ))
}

fn basic_plan(_: Scale) -> String {
    format!("[matrix]\nversions = ['3', '4.1']\n{ENFYS}[[workload]]\nname = 'basic'\n")
}

/// This client has no version 2, so its version 3 is compared with the paper's.
fn judge_basic(runs: &Runs<'_>) -> Option<Judgement> {
    let (v3, v41) = (runs.request_count(&Pick::v3(), None)?, runs.request_count(&Pick::v41(), None)?);
    let getattr = runs.request_count(&Pick::v3(), Some("GETATTR"))?;
    let verdict = if v3 <= 13_166.0 { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!("v3 {v3:.0} requests, v4.1 {v41:.0}");
    Some(Judgement::new(verdict, ours, format!("GETATTR in v3: {getattr:.0}; replies carry attributes")))
}

fn find_plan(scale: Scale) -> String {
    let files = scale.pick(1000, 9612, 9612);
    format!(
        "[matrix]\nversions = ['3', '4.1']\n{ENFYS}[[workload]]\nname = 'find'\nset = {{ files = {files} }}\n"
    )
}

fn judge_find(runs: &Runs<'_>) -> Option<Judgement> {
    let (v3, v41) = (runs.requests(&Pick::v3())?, runs.requests(&Pick::v41())?);
    let plus = runs.request_count(&Pick::v3(), Some("READDIRPLUS"))?;
    let lookups = runs.request_count(&Pick::v3(), Some("LOOKUP"))?;
    // Version 2 needs a request for each file, of which a directory of the tree has some 60.
    let verdict = if v3 < 10.0 { Verdict::Confirmed } else { Verdict::NotSeen };
    let ours = format!("requests a directory: v3 {v3:.2}, v4.1 {v41:.2}");
    Some(Judgement::new(
        verdict,
        ours,
        format!("READDIRPLUS {plus:.0}, LOOKUP {lookups:.0}, none for each file"),
    ))
}
