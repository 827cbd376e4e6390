//! Pawlowski et al., NFS Version 3: Design and Implementation (USENIX Summer 1994).

use super::runs::{Pick, Runs};
use super::{ENFYS, Figure, Judgement, Scale, Verdict};

pub(super) const FIGURES: &[Figure] = &[
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
