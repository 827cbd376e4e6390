//! Text output of the commands.

use std::fmt::{self, Write as _};

use super::protocol::{
    Client, Evicted, Grace, Host, Persistence, Recalled, Recalls, Records, Session, Status,
};
use crate::figures::Totals;
use crate::size::Size;

/// Maximum number of characters of the name of a client that a grace period waits for; `--json` has the whole name.
const NAME_WIDTH: usize = 32;
/// Maximum number of clients that are named under a grace period; `--json` has all of them.
const WAITED_FOR_NAMED: usize = 4;

/// `enfys status`.
pub fn status(status: &Status) -> String {
    let mut text = summary(status);
    if !status.clients.is_empty() {
        text.push('\n');
        let rows = status.clients.iter().map(|client| (row(client), identity(client)));
        text.push_str(&table(COLUMNS, rows));
    }
    if status.clients_omitted > 0 {
        let more = status.clients_omitted;
        writeln!(text, "and {more} more, which are not listed").expect("a String takes everything");
    }
    if !status.hosts.is_empty() {
        text.push('\n');
        let rows = status.hosts.iter().map(|host| (host_row(host), named(&host.address, &host.name)));
        text.push_str(&table(HOST_COLUMNS, rows));
    }
    text
}

fn summary(status: &Status) -> String {
    let grace = match &status.grace {
        Some(grace) => format!("grace period for at most {:.0} s more", grace.seconds_left.ceil()),
        None => "no grace period".into(),
    };
    let first = format!("{}, lease {:.0} s, {grace}", status.software, status.lease_seconds);
    let mut text = wrapped("", &first);
    text.push_str(&status.grace.as_ref().map(waited_for).unwrap_or_default());
    lines(status).iter().for_each(|(label, line)| text.push_str(&wrapped(label, line)));
    text
}

/// Returns the lines of the summary: a label and its text.
fn lines(status: &Status) -> Vec<(&'static str, String)> {
    let (totals, recalls) = (&status.totals, &status.recalls);
    let waiting = format!(
        "{} for a lock of another client; {} of free locks sent",
        counted(totals.locks_waiting, "request"),
        counted(totals.locks_notified, "notification")
    );
    let granted = format!(
        "delegations: {} for reading, {} for writing, {} of directories",
        recalls.granted_read, recalls.granted_write, recalls.granted_directory
    );
    let mut lines = vec![
        ("holding", holding(totals)),
        ("waiting", waiting),
        ("slots", slots(totals)),
        ("persist", persistent(totals, status.persistence.as_ref())),
        ("replays", format!("{} answered from a reply cache", counted(totals.replayed, "retransmission"))),
        ("granted", granted),
        ("recalls", recalled_so_far(recalls)),
    ];
    lines.extend(status.records.as_ref().and_then(records).map(|why| ("records", why.to_owned())));
    lines
}

fn holding(totals: &Totals) -> String {
    format!(
        "{}, {}, {}, {}, {}, {} in the background; {} revoked and not acknowledged",
        counted(totals.clients, "client"),
        counted(totals.sessions, "session"),
        counted(totals.opens, "open"),
        counted(totals.locks, "lock"),
        counted(totals.delegations, "delegation"),
        counted(totals.copies, "copy"),
        totals.lost
    )
}

fn slots(totals: &Totals) -> String {
    format!(
        "{} of {} in use; {} used a client's last one, {} delayed for memory; {}",
        totals.slots_in_use,
        totals.slots,
        counted(totals.slots_full, "request"),
        counted(totals.slots_deferred, "request"),
        Size(totals.slot_memory_bytes)
    )
}

fn persistent(totals: &Totals, persistence: Option<&Persistence>) -> String {
    let Some(persistence) = persistence else { return "no session survives a restart".into() };
    format!(
        "{}, {} of earlier servers; {} of {} places in use{}",
        counted(totals.persistent_sessions, "session"),
        totals.dead_sessions,
        persistence.places_taken,
        persistence.places,
        if persistence.written { "" } else { "; none now, because the logs cannot be written" }
    )
}

fn recalled_so_far(recalls: &Recalls) -> String {
    let figures = &recalls.figures;
    let mut took = String::new();
    if let (Some(mean), Some(slowest)) = (recalls.mean_seconds, recalls.slowest_seconds) {
        took = format!(" (mean {}, longest {})", duration(mean), duration(slowest));
    }
    format!(
        "{} recalled; {} returned{took}, {} revoked; {} waited, {} delayed",
        figures.recalled,
        figures.returned,
        figures.revoked,
        counted(figures.operations_waited, "operation"),
        figures.operations_put_off
    )
}

/// Returns the reason why new clients cannot be recorded, if any.
fn records(records: &Records) -> Option<&'static str> {
    match records {
        Records { written: false, .. } => Some("client records cannot be written: see the server's log"),
        Records { room: false, .. } => {
            Some("no disk space for new clients: their opens wait until the state directory has some")
        }
        _ => None,
    }
}

/// Maximum number of columns of the output.
const WIDTH: usize = 100;
/// Columns of the labels.
const LABEL_WIDTH: usize = 10;

/// Returns a label and its text, wrapped between words. Further lines are indented to the text.
fn wrapped(label: &str, text: &str) -> String {
    let mut wrapped = if label.is_empty() { String::new() } else { format!("{label:<LABEL_WIDTH$}") };
    let mut column = wrapped.len();
    let mut is_first = true;
    for word in text.split(' ') {
        let width = word.chars().count();
        if !is_first && column + 1 + width > WIDTH {
            wrapped.push_str(&format!("\n{:LABEL_WIDTH$}", ""));
            column = LABEL_WIDTH;
        } else if !is_first {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
        is_first = false;
    }
    wrapped.push('\n');
    wrapped
}

/// Returns lines about the clients that a grace period waits for, with the first names.
fn waited_for(grace: &Grace) -> String {
    let count = grace.clients_waited_for;
    let mut text = format!("grace     waiting for {} to reclaim\n", counted(count as u64, "client"));
    let named = grace.names.iter().take(WAITED_FOR_NAMED);
    let mut line = |line: fmt::Arguments<'_>| {
        writeln!(text, "          {line}").expect("a String takes everything");
    };
    named.clone().for_each(|name| line(format_args!("\"{}\"", shortened(name, NAME_WIDTH))));
    let more = count.saturating_sub(named.len());
    if more > 0 && named.len() > 0 {
        line(format_args!("and {more} more: see --json"));
    }
    text
}

/// The columns of the table, and whether they are aligned to the right.
const COLUMNS: [(&str, bool); 10] = [
    ("CLIENT", false),
    ("VERS", false),
    ("STATE", false),
    ("LEASE", true),
    ("CALLBACK", false),
    ("OPENS", true),
    ("LOCKS", true),
    ("DELEGS", true),
    ("LOST", true),
    ("SLOTS", true),
];

/// The columns of the table of clients of versions 2 and 3.
const HOST_COLUMNS: [(&str, bool); 4] =
    [("HOST", false), ("CALLBACK", false), ("LOCKS", true), ("WAITING", true)];

/// Returns a line of cells for each row, followed by the line that names it.
fn table<const N: usize>(
    columns: [(&str, bool); N],
    rows: impl Iterator<Item = ([String; N], String)>,
) -> String {
    let head = (columns.map(|(name, _)| name.to_owned()), "  ADDRESS  NAME".to_owned());
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|(row, _)| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (row, identity) in &rows {
        let cells = row.iter().zip(columns).zip(widths);
        let cells: Vec<_> = cells
            .map(|((cell, (_, right)), width)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        text.push_str(identity);
        text.push('\n');
    }
    text
}

fn row(client: &Client) -> [String; COLUMNS.len()] {
    let targets = client.sessions.iter().map(|session| u64::from(session.slots_target));
    let state = if client.reclaiming { "reclaiming" } else { &client.state };
    [
        client.id.clone(),
        client.protocol.clone().unwrap_or_else(|| "-".into()),
        state.to_owned(),
        format!("{:.0}s", client.lease_left_seconds),
        client.callbacks.clone(),
        client.opens.to_string(),
        client.locks.to_string(),
        client.delegations.to_string(),
        client.lost.to_string(),
        match client.sessions.is_empty() {
            true => "-".into(),
            false => format!("{}/{}", client.active, targets.sum::<u64>()),
        },
    ]
}

fn host_row(host: &Host) -> [String; HOST_COLUMNS.len()] {
    let callback = if host.reachable { "up" } else { "none" };
    [host.id.clone(), callback.to_owned(), host.locks.to_string(), host.locks_waiting.to_string()]
}

/// Returns address and name of a client; on another line, notes about its sessions.
fn identity(client: &Client) -> String {
    let sum = |value: fn(&Session) -> u64| client.sessions.iter().map(value).sum::<u64>();
    let (full, replayed) = (sum(|session| session.slots_full), sum(|session| session.replayed));
    let notes = [
        (full, format!("{} used the last slot", counted(full, "request"))),
        (replayed, counted(replayed, "replay")),
    ];
    let notes: Vec<_> = notes.into_iter().filter(|(count, _)| *count > 0).map(|(_, note)| note).collect();
    let notes = if notes.is_empty() { String::new() } else { format!("\n  {}", notes.join(", ")) };
    format!("{}{notes}", named(client.address.as_deref().unwrap_or("-"), &client.name))
}

fn named(address: &str, name: &str) -> String {
    let room = WIDTH.saturating_sub("    …".chars().count() + address.chars().count());
    format!("  {address}  {}", shortened(name, room))
}

/// Returns the first `most` characters of a name; a longer one gets an additional `…`.
fn shortened(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// `enfys evict`.
pub fn evicted(lost: &Evicted) -> String {
    let Some(id) = &lost.id else { return format!("evicted {}: it can no longer reclaim\n", lost.name) };
    if lost.host {
        return format!("evicted {id} ({}): it lost {}\n", lost.name, counted(lost.locks.into(), "lock"));
    }
    format!(
        "evicted {id} ({}): it lost {}, {}, {} and {}\n",
        lost.name,
        counted(lost.sessions as u64, "session"),
        counted(lost.opens.into(), "open"),
        counted(lost.locks.into(), "lock"),
        counted(lost.delegations.into(), "delegation"),
    )
}

/// `enfys recall`.
pub fn recalled(done: &Recalled) -> String {
    match (done.recalled, done.revoked) {
        (0, 0) => "no client has a delegation of it\n".into(),
        (recalled, 0) => format!("recalled {}\n", counted(recalled as u64, "delegation")),
        (recalled, revoked) => format!(
            "recalled {}, revoked {revoked} of clients with an expired lease\n",
            counted(recalled as u64, "delegation")
        ),
    }
}

/// `enfys grace end`.
pub fn grace_ended(waiting: Option<usize>) -> String {
    match waiting {
        Some(waiting) => format!(
            "the grace period has ended; {} had not finished reclaiming\n",
            counted(waiting as u64, "client")
        ),
        None => "there is no grace period\n".into(),
    }
}

/// Returns a number and its noun, in the plural unless it is 1.
fn counted(count: u64, what: &str) -> String {
    match what {
        _ if count == 1 => format!("1 {what}"),
        "copy" => format!("{count} copies"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns a duration with a unit that leaves one to three digits before the point.
fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.1} s"),
        _ if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_clients_of_a_grace_period_are_named() {
        let shown = |count: usize, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            waited_for(&Grace { seconds_left: 1.0, clients_waited_for: count, names })
        };
        let expected = "grace     waiting for 1 client to reclaim\n          \"Linux NFSv4.2 host\"\n";
        assert_eq!(shown(1, &["Linux NFSv4.2 host"]), expected);
        let many = shown(9, &["a", "b", "c", "d", "e"]);
        assert!(many.ends_with("\"c\"\n          \"d\"\n          and 5 more: see --json\n"), "{many}");
        let (long, cut) = ("x".repeat(NAME_WIDTH + 1), "x".repeat(NAME_WIDTH));
        assert!(shown(1, &[&long]).ends_with(&format!(" \"{cut}…\"\n")));
        assert_eq!(shown(3, &[]).lines().count(), 1, "from a server without names");
    }

    #[test]
    fn durations_and_counts_have_fitting_units() {
        let durations = [0.0, 0.000_9, 0.001, 0.25, 12.34].map(duration);
        assert_eq!(durations, ["0 µs", "900 µs", "1.0 ms", "250.0 ms", "12.3 s"]);
        let counted = [counted(1, "open"), counted(2, "open"), counted(1, "copy"), counted(0, "copy")];
        assert_eq!(counted, ["1 open", "2 opens", "1 copy", "0 copies"]);
    }

    /// Returns a status with the largest likely numbers and longest names.
    fn crowded() -> Status {
        let session = serde_json::json!({
            "connections": 16, "persistent": true, "slots": 1024, "slots_target": 1024,
            "slot_reply_max_bytes": 1_052_672, "slots_in_use": 1024, "slots_full": 4_294_967_295_u64,
            "slots_deferred": 0, "reply_bytes": 1, "replayed": 4_294_967_295_u64,
        });
        let client = serde_json::json!({
            "id": "0xffffffffffffffff", "name": "Linux NFSv4.2 ".repeat(20), "principal": "uid:0",
            "address": "[2001:db8:ffff:ffff:ffff:ffff:ffff:ffff]:65535", "protocol": "4.2",
            "state": "unconfirmed", "lease_left_seconds": 3600.0, "reclaiming": false,
            "callbacks": "untried", "active": 1024, "opens": 1_048_576, "locks": 1_048_576,
            "delegations": 131_072, "lost": 1_048_576, "sessions": [session],
        });
        let host = serde_json::json!({
            "id": "0xffffffffffffffff", "name": "host".repeat(256), "reachable": false, "locks": 1_048_576,
            "address": "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "locks_waiting": 1_048_576,
        });
        let most = 4_294_967_295_u64;
        let status = serde_json::json!({
            "software": "enfys 0.1.0", "lease_seconds": 3600.0, "grace": null,
            "persistence": { "written": false, "places": 16_384, "places_taken": 16_384 },
            "totals": {
                "clients": 16_384, "sessions": 16_384, "persistent_sessions": 16_384, "dead_sessions": 16_384,
                "slots": most, "slots_in_use": most, "slots_full": most, "slots_deferred": most,
                "slot_memory_bytes": most, "opens": 1_048_576, "locks": 1_048_576, "locks_waiting": most,
                "locks_notified": most, "delegations": 131_072, "copies": 16_384, "lost": 1_048_576,
                "replayed": most,
            },
            "recalls": {
                "granted_read": most, "granted_write": most, "granted_directory": most, "recalled": most,
                "returned": most, "mean_seconds": 12.3, "slowest_seconds": 89.9, "revoked": most,
                "operations_waited": most, "operations_put_off": most,
            },
            "clients": [client], "clients_omitted": 5, "hosts": [host],
        });
        serde_json::from_value(status).expect("a status")
    }

    #[test]
    fn a_status_fits_100_columns() {
        let text = status(&crowded());
        let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:#?}");
        assert!(text.contains("\n          "), "long lines are indented: {text}");
        assert!(!text.lines().any(|line| line.ends_with(' ')), "{text}");
    }

    #[test]
    fn long_names_are_shortened() {
        assert_eq!(shortened("client", 6), "client");
        assert_eq!(shortened("client", 5), "clien…");
    }
}
