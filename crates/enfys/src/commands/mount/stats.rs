//! `enfys stats`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use store::error_text;

use super::control::client::ask;
use super::control::protocol::{Command, DiskCacheStats, Operation, Reply, Stats};
use crate::size::Size;

const HELP: &str = "\
Examples:
  enfys stats /mnt
      Requests, times, caches and memory since the mount began.
  enfys stats --watch=5 /mnt
      The same every 5 s.
  enfys stats --prometheus /mnt > /var/lib/node_exporter/enfys.prom
      For the textfile collector of node_exporter.
Times are means for one request in milliseconds: queue until it is sent, rtt until its reply, exec both together.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct StatsArguments {
    /// Directory of the mount
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Print everything as one line of JSON to standard output, also errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub prometheus: bool,
    /// Repeat with this interval, in seconds [default without a value: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2")]
    pub watch: Option<NonZeroU32>,
}

/// Prints statistics of a mount.
///
/// # Errors
/// One line that names the directory and the error.
pub fn run(arguments: &StatsArguments) -> Result<(), String> {
    loop {
        let (reply, line) = ask(&arguments.directory, Command::Stats)?;
        let Reply::Stats(stats) = reply else {
            return Err(format!("{}: the response is for another command", arguments.directory.display()));
        };
        let text = match (arguments.json, arguments.prometheus) {
            (true, _) => line,
            (_, true) => prometheus(&stats),
            _ => text(&stats),
        };
        let clear = arguments.watch.is_some() && !arguments.json && io::stdout().is_terminal();
        print(&format!("{}{text}", if clear { "\x1b[H\x1b[2J" } else { "" }))?;
        match arguments.watch {
            Some(seconds) => std::thread::sleep(Duration::from_secs(u64::from(seconds.get()))),
            None => return Ok(()),
        }
    }
}

/// Writes to standard output. A closed pipe is not an error.
fn print(text: &str) -> Result<(), String> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|error| format!("standard output: {}", error_text(&error))),
    }
}

/// The columns of the table of operations.
const COLUMNS: [&str; 10] = [
    "operation",
    "requests",
    "retrans",
    "timeouts",
    "errors",
    "sent",
    "received",
    "queue ms",
    "rtt ms",
    "exec ms",
];

fn text(stats: &Stats) -> String {
    let mount = &stats.mount;
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(stats.operations.iter().map(|(name, operation)| row(name, operation)));
    let size = |bytes: u64| Size(bytes).to_string();
    let caches = stats.caches.all().map(|(name, uses)| {
        let total = uses.hits + uses.misses;
        let part = if total == 0 { 0.0 } else { uses.hits as f64 * 100.0 / total as f64 };
        match name.strip_suffix("_bytes") {
            Some(name) => format!("{name} {} of {} ({part:.0} %)", size(uses.hits), size(total)),
            None => format!("{name} {} of {total} ({part:.0} %)", uses.hits),
        }
    });
    let memory =
        stats.memory.kinds().map(|(name, bytes)| format!("{} {}", name.replace('_', "-"), size(bytes)));
    let (delegations, directories) = (&stats.delegations, &stats.directory_delegations);
    let mut lines = vec![
        format!(
            "{} on {} (NFS {}), {:.0} s",
            mount.source, mount.directory, mount.protocol, stats.age_seconds
        ),
        format!("hits         {}", caches.join(", ")),
        format!("slots        {} in use, {} requests waited for one", stats.slots.in_use, stats.slots.waits),
        format!(
            "delegations  {} held, {} granted, {} recalled, {} returned, {} lost, {} opens without a request",
            delegations.held,
            delegations.granted,
            delegations.recalled,
            delegations.returned,
            delegations.lost,
            delegations.local_opens
        ),
        format!(
            "directories  {} delegated, {} granted, {} recalled, {} returned, {} lost",
            directories.held,
            directories.granted,
            directories.recalled,
            directories.returned,
            directories.lost
        ),
        format!("memory       {} of {}", memory.join(", "), size(stats.memory.budget)),
        format!("kernel       {} inodes, {} open files", stats.known_inodes, stats.open_files),
    ];
    lines.splice(2..2, stats.disk_cache.as_ref().map(disk_cache_line));
    format!("{}\n\n{}", lines.join("\n"), table(&rows))
}

fn disk_cache_line(cache: &DiskCacheStats) -> String {
    format!(
        "disk cache   {} of {} blocks, {} read, {} stored, {} dropped, {} damaged, {} of {}",
        cache.hits,
        cache.hits + cache.misses,
        Size(cache.hit_bytes),
        cache.stored,
        cache.dropped,
        cache.damaged,
        Size(cache.bytes),
        Size(cache.bytes_max)
    )
}

fn row(name: &str, operation: &Operation) -> Vec<String> {
    let mean = |micros: u64| format!("{:.3}", micros as f64 / 1000.0 / operation.requests.max(1) as f64);
    let mut row = vec![name.to_owned()];
    let counts = [operation.requests, operation.retransmissions, operation.timeouts, operation.errors];
    row.extend(counts.map(|count| count.to_string()));
    row.extend([operation.bytes_sent, operation.bytes_received].map(|bytes| Size(bytes).to_string()));
    row.extend([operation.queue_us, operation.round_trip_us, operation.execute_us].map(mean));
    row
}

/// Returns lines whose first column is aligned to the left, the others to the right.
fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A metric of Prometheus.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// Labels besides the mount's, and values.
    samples: Vec<(String, String)>,
}

/// Returns metrics in Prometheus' text format 0.0.4.
fn prometheus(stats: &Stats) -> String {
    let mut text = String::new();
    let directory = escaped(&stats.mount.directory);
    for metric in metrics(stats) {
        let Metric { name, kind, help, samples } = metric;
        let _ = writeln!(text, "# HELP enfys_mount_{name} {help}\n# TYPE enfys_mount_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "enfys_mount_{name}{{mount=\"{directory}\"{labels}}} {value}");
        }
    }
    text
}

fn metrics(stats: &Stats) -> Vec<Metric> {
    let by_operation = |name, help, value: fn(&Operation) -> String| Metric {
        name,
        kind: "counter",
        help,
        samples: stats
            .operations
            .iter()
            .map(|(name, operation)| (format!(",operation=\"{}\"", escaped(name)), value(operation)))
            .collect(),
    };
    let by_cache = |name, help, value: fn((u64, u64)) -> u64| Metric {
        name,
        kind: "counter",
        help,
        samples: stats
            .caches
            .all()
            .map(|(cache, uses)| (format!(",cache=\"{cache}\""), value((uses.hits, uses.misses)).to_string()))
            .to_vec(),
    };
    let (slots, delegations, directories) = (&stats.slots, &stats.delegations, &stats.directory_delegations);
    let memory = stats.memory.kinds().map(|(kind, bytes)| (format!(",kind=\"{kind}\""), bytes.to_string()));
    let mut metrics = vec![
        by_operation("requests_total", "Requests sent, each once.", |of| of.requests.to_string()),
        by_operation("retransmissions_total", "Retransmissions.", |of| of.retransmissions.to_string()),
        by_operation("timeouts_total", "Requests without a reply.", |of| of.timeouts.to_string()),
        by_operation("errors_total", "Replies with an error status.", |of| of.errors.to_string()),
        by_operation("sent_bytes_total", "Bytes of calls.", |of| of.bytes_sent.to_string()),
        by_operation("received_bytes_total", "Bytes of replies.", |of| of.bytes_received.to_string()),
        by_operation("queue_seconds_total", "Time until requests were sent.", |of| in_seconds(of.queue_us)),
        by_operation("round_trip_seconds_total", "Time from sending to the reply.", |of| {
            in_seconds(of.round_trip_us)
        }),
        by_operation("execute_seconds_total", "Time from start to end.", |of| in_seconds(of.execute_us)),
        by_cache("cache_hits_total", "Uses of a cache without a request; bytes for data.", |uses| uses.0),
        by_cache("cache_misses_total", "Uses of a cache that needed a request; bytes for data.", |uses| {
            uses.1
        }),
        plain("slots_in_use", "gauge", "Requests in flight.", slots.in_use as u64),
        plain("slot_waits", "gauge", "Requests of this session that waited for a slot.", slots.waits as u64),
        plain("delegations", "gauge", "Delegations of files held.", delegations.held as u64),
        plain("delegations_granted_total", "counter", "Delegations of files granted.", delegations.granted),
        plain(
            "delegations_recalled_total",
            "counter",
            "Delegations of files recalled.",
            delegations.recalled,
        ),
        plain("delegations_lost_total", "counter", "Delegations of files revoked.", delegations.lost),
        plain("directory_delegations", "gauge", "Delegations of directories held.", directories.held as u64),
        plain("directory_delegations_granted_total", "counter", "As above, granted.", directories.granted),
        plain("directory_delegations_recalled_total", "counter", "As above, recalled.", directories.recalled),
        plain("directory_delegations_lost_total", "counter", "As above, revoked.", directories.lost),
        plain("local_opens_total", "counter", "Opens without a request.", delegations.local_opens),
        Metric { name: "memory_bytes", kind: "gauge", help: "Memory in use.", samples: memory.to_vec() },
        plain("memory_budget_bytes", "gauge", "Limit of the memory.", stats.memory.budget),
        plain("known_inodes", "gauge", "Inodes that the kernel knows.", stats.known_inodes as u64),
        plain("open_files", "gauge", "Files that are open.", stats.open_files as u64),
    ];
    metrics.extend(stats.disk_cache.iter().flat_map(disk_cache_metrics));
    metrics
}

fn disk_cache_metrics(cache: &DiskCacheStats) -> [Metric; 8] {
    [
        plain("disk_cache_hits_total", "counter", "Blocks that were read from the disk cache.", cache.hits),
        plain("disk_cache_misses_total", "counter", "Blocks that the disk cache did not have.", cache.misses),
        plain("disk_cache_hit_bytes_total", "counter", "Bytes read from the disk cache.", cache.hit_bytes),
        plain("disk_cache_stored_total", "counter", "Blocks written to the disk cache.", cache.stored),
        plain("disk_cache_dropped_total", "counter", "Blocks that were not written to it.", cache.dropped),
        plain("disk_cache_damaged_total", "counter", "Damaged blocks of the disk cache.", cache.damaged),
        plain("disk_cache_bytes", "gauge", "Bytes of the disk cache.", cache.bytes),
        plain("disk_cache_limit_bytes", "gauge", "Limit of the disk cache.", cache.bytes_max),
    ]
}

/// Returns a metric with one sample.
fn plain(name: &'static str, kind: &'static str, help: &'static str, value: u64) -> Metric {
    Metric { name, kind, help, samples: vec![(String::new(), value.to_string())] }
}

fn in_seconds(micros: u64) -> String {
    (micros as f64 / 1e6).to_string()
}

/// Returns the value of a label: backslashes, quotes and line feeds are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
