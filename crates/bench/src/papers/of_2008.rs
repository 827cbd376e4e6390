//! NFS versions 3 and 4, synchronous and asynchronous exports (2008).

use super::runs::{Pick, Runs};
use super::{Figure, Judgement, Scale, Verdict};

const TARGETS: &str = "[[target]]\nname = 'sync'\nserver = 'local:enfys'\n\
                       [[target]]\nname = 'async'\nserver = 'local:enfys-async'\n";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "2008:bonnie",
        title: "Bonnie++: empty files created and deleted",
        finding: "An asynchronous export creates 17 times (v3: 182 to 3,031 a second) and 13 times (v4: 98 to 1,314) as many \
                  files.",
        plan: bonnie_plan,
        judge: judge_bonnie,
    },
    Figure {
        name: "2008:tar",
        title: "Unpack and remove a source tree",
        finding: "Unpacking takes 9:44 with v3 and 9:52 with v4, asynchronously 0:31 and 0:40: 19 and 15 times as fast.",
        plan: tar_plan,
        judge: judge_tar,
    },
];

fn bonnie_plan(scale: Scale) -> String {
    let size = scale.pick("8MiB", "256MiB", "4GiB");
    let (seeks, files) = scale.pick((100, 500), (2000, 4096), (8000, 16384));
    format!(
        "[matrix]\nversions = ['3', '4.1']\n{TARGETS}[[workload]]\nname = 'bonnie'\n\
         set = {{ file-size = '{size}', seeks = {seeks}, files = {files} }}\n"
    )
}

fn judge_bonnie(runs: &Runs<'_>) -> Option<Judgement> {
    let rate = |pick: Pick<'_>, target| runs.sample(&pick.target(target), "sequential_create_per_s");
    let (v3_sync, v3_async) = (rate(Pick::v3(), "sync")?, rate(Pick::v3(), "async")?);
    let (v4_sync, v4_async) = (rate(Pick::v41(), "sync")?, rate(Pick::v41(), "async")?);
    let ours = format!(
        "creates a second: v3 {v3_sync:.0} to {v3_async:.0} ({:.1}×), v4.1 {v4_sync:.0} to {v4_async:.0} ({:.1}×)",
        v3_async / v3_sync,
        v4_async / v4_sync
    );
    let verdict = verdict((v3_async / v3_sync).min(v4_async / v4_sync));
    Some(Judgement::new(verdict, ours, "a sync of the directory for each creation, or none"))
}

fn tar_plan(scale: Scale) -> String {
    let files = scale.pick(300, 4000, 24_000);
    format!(
        "[matrix]\nversions = ['3', '4.1']\n{TARGETS}[[workload]]\nname = 'source-tree'\nset = {{ files = {files} }}\n"
    )
}

fn judge_tar(runs: &Runs<'_>) -> Option<Judgement> {
    let time = |pick: Pick<'_>, target| runs.sample(&pick.target(target), "unpack_s");
    let (v3_sync, v3_async) = (time(Pick::v3(), "sync")?, time(Pick::v3(), "async")?);
    let (v4_sync, v4_async) = (time(Pick::v41(), "sync")?, time(Pick::v41(), "async")?);
    let ours = format!(
        "unpacking: v3 {v3_sync:.2} s, async {v3_async:.2} s ({:.1}×); v4.1 {v4_sync:.2} s, async {v4_async:.2} s ({:.1}×)",
        v3_sync / v3_async,
        v4_sync / v4_async
    );
    let verdict = verdict((v3_sync / v3_async).min(v4_sync / v4_async));
    Some(Judgement::new(verdict, ours, "syncs of data and directories"))
}

/// Returns the verdict. The finding is a large difference; its size depends on the disk.
fn verdict(ratio: f64) -> Verdict {
    if ratio >= 1.5 { Verdict::Confirmed } else { Verdict::NotSeen }
}
