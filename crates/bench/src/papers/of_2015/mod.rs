//! Chen et al., Newer Is Sometimes Better: An Evaluation of NFSv4.1 (SIGMETRICS 2015).
//!
//! The paper has five clients with 10 Gbit/s. Data rates are scaled to one client with 1 Gbit/s on a packet link; everything else has five
//! clients (two with `--quick`), which cache as the paper's kernel did.

mod create;
mod data;
mod filebench;
mod hash_cast;
mod list;
mod locks;
mod recall;
mod small_files;

use super::runs::{Pick, Runs};
use super::{ENFYS, Figure, Judgement, Scale, Verdict};

/// Options of clients that cache but accept no delegation.
const NOT_DELEGATED: &str = "caches=on&nodelegations";
/// Options of clients that cache and accept delegations.
const DELEGATED: &str = "caches=on&delegations";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "2015:fig1",
        title: "Random reads over a long link",
        finding: "With 16 threads, 10 ms divide the throughput of 4 KiB reads by 20, that of 64 KiB reads by 2.6, and leave that of \
                  1 MiB reads unchanged. v3 and v4.1 are equal.",
        plan: data::reads_plan,
        judge: data::judge_reads,
    },
    Figure {
        name: "2015:fig2",
        title: "Random reads of 1 MiB, by threads and TCP's buffers",
        finding: "With TCP buffers of 2 MB and 20 to 40 ms, more than 4 threads do not help; with 32 MB, 8 threads fill the line \
                  (1,120 MB/s).",
        plan: data::buffers_plan,
        judge: data::judge_buffers,
    },
    Figure {
        name: "2015:fig3",
        title: "Hash-Cast: clients that scan a file, started a minute apart (a model)",
        finding: "Flows that share one of six transmit queues have half of the others' throughput, until one drains and is hashed \
                  again (client 5 at 270 s). One queue with SFQ is fair, with the same sum. The paper says that two of five flows \
                  share a queue with a probability of roughly 69 %.",
        plan: |_| String::new(),
        judge: |_| hash_cast::judge(),
    },
    Figure {
        name: "2015:fig5",
        title: "Synchronous random writes",
        finding: "v4.1 is slower by 2 %.",
        plan: data::writes_plan,
        judge: data::judge_writes,
    },
    Figure {
        name: "2015:fig6",
        title: "Small files, one thread",
        finding: "v4.1 reads twice as many files as v3 once they are delegated, with 8.3 times fewer requests.",
        plan: |scale| small_files::plan(scale, "0", 1),
        judge: small_files::judge_cached,
    },
    Figure {
        name: "2015:fig7",
        title: "Small files, 16 threads, 10 ms",
        finding: "v4.1 starts at 723 files a second where v3 has 8,100: opens wait for each other. With a patch it starts at 4,655, has \
                  all files within 35 s, and then reads 172 times as many as v3.",
        plan: |scale| small_files::plan(scale, "10ms", 16),
        judge: small_files::judge_slow_start,
    },
    Figure {
        name: "2015:fig8",
        title: "Creation of files, 10 ms",
        finding: "At 1 thread v4.1 and v3 are equal; with 2 to 32 threads v4.1 is 1.1 to 1.5 times as fast, with more 1.1 to 4.6 \
                  times slower, since requests wait for slots; a patched client is 2.5 to 2.9 times as fast.",
        plan: |scale| create::plan(scale, "10ms"),
        judge: |runs| create::judge(runs, 10),
    },
    Figure {
        name: "2015:fig9",
        title: "Outstanding requests of creations, 10 ms",
        finding: "The patched v4.1 is faster because it has more requests outstanding: v3 waits for each creation, v4.1 sends them \
                  from a queue.",
        plan: |scale| create::plan(scale, "10ms"),
        judge: create::judge_outstanding,
    },
    Figure {
        name: "2015:fig10",
        title: "Creation of files, no delay",
        finding: "From 1.76 times as fast to 3 times slower than v3; slots bind from 32 threads.",
        plan: |scale| create::plan(scale, "0"),
        judge: |runs| create::judge(runs, 0),
    },
    Figure {
        name: "2015:fig11",
        title: "Waits for a session slot",
        finding: "Requests wait for a slot from 32 or 64 threads of five clients; with 512 threads for 2,500 ms, where the server \
                  has 160 slots.",
        plan: create::slots_plan,
        judge: create::judge_slots,
    },
    Figure {
        name: "2015:fig12",
        title: "Listings of directories",
        finding: "v4.1 is 15 % slower at 0 ms, since each request takes 10 to 36 % longer, and has 94 to 99 % of v3 with delay.",
        plan: list::plan,
        judge: list::judge,
    },
    Figure {
        name: "2015:table1",
        title: "Requests of locked reads",
        finding: "v3 needs 60,008 requests for 10,000 locked reads, v4.1 88,009 (GETATTR after LOCK, and FREE_STATEID), and with \
                  delegations 3,009.",
        plan: locks::requests_plan,
        judge: locks::judge_requests,
    },
    Figure {
        name: "2015:fig13",
        title: "Time of locked reads",
        finding: "With delegations, v4.1 is 6 to 19 times as fast as v3 at 0 to 10 ms.",
        plan: locks::time_plan,
        judge: locks::judge_time,
    },
    Figure {
        name: "2015:recall",
        title: "Recalls of delegations",
        finding: "Opening 1,000 files that others have delegated takes 100 s instead of 0.2 s, with a delay of 1 to 10 ms 120 s: \
                  the opener waits 100 ms for each file. One to four holders make no difference.",
        plan: recall::plan,
        judge: recall::judge,
    },
    Figure {
        name: "2015:fig14",
        title: "File server",
        finding: "v4.1 is 12 % slower at 0 ms, with 56 % more requests: OPEN and CLOSE; 8 to 18 % slower with delay.",
        plan: filebench::fileserver_plan,
        judge: filebench::judge_fileserver,
    },
    Figure {
        name: "2015:fig15",
        title: "Requests of the file server",
        finding: "v4.1 sends 56 % more requests: OPEN and CLOSE are 58 % of v3's total, GETATTR is 106 % more, LOOKUP 78 % less. It \
                  has 40 to 95 % more requests outstanding.",
        plan: filebench::fileserver_plan,
        judge: filebench::judge_fileserver_requests,
    },
    Figure {
        name: "2015:fig16",
        title: "Web server",
        finding: "v4.1 is 25 % slower at 0 ms, as the round trip of its requests is 19 % longer; with delay it is equal, up to 2.6 % \
                  faster.",
        plan: filebench::webserver_plan,
        judge: filebench::judge_webserver,
    },
    Figure {
        name: "2015:fig17",
        title: "Web server, by threads, with delegations and without",
        finding: "At one thread, delegations make v4.1 7.4 times as fast (18 to 137 thousand operations a second), 2.2 times v3; with \
                  many threads the log is the limit, and they make no difference.",
        plan: filebench::webserver_threads_plan,
        judge: filebench::judge_webserver_threads,
    },
    Figure {
        name: "2015:fig18",
        title: "Mail server",
        finding: "v4.1 and v3 are equal at 0 ms; with 1 to 40 ms v4.1 is 1.3 to 1.4 times as fast, as more of its requests are \
                  outstanding.",
        plan: filebench::varmail_plan,
        judge: filebench::judge_varmail,
    },
    Figure {
        name: "2015:fig19",
        title: "Mail server, by clients",
        finding: "The throughput grows linearly with one to three clients at 0 ms, then the server is the limit; with one to five at \
                  10 ms.",
        plan: filebench::varmail_clients_plan,
        judge: filebench::judge_varmail_clients,
    },
];

/// Returns the ratio of version 4.1 to version 3 in a number.
fn ratio(of: impl Fn(Pick<'static>) -> Option<f64>) -> Option<f64> {
    let v3 = of(Pick::v3())?;
    let v41 = of(Pick::v41())?;
    (v3 > 0.0).then(|| v41 / v3)
}

#[cfg(test)]
mod tests;
