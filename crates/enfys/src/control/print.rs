//! Answers as people read them.

use std::fmt::{self, Write as _};

use super::protocol::{Client, Evicted, Grace, MAX_CLIENTS, Recalled, Records, Status};

/// Characters of a client's name in the table; the whole of it is in `--json`.
const NAME_WIDTH: usize = 32;
/// Clients that a grace period waits for, named in the text at most; all of them are in `--json`.
const WAITED_FOR_NAMED: usize = 4;

/// `enfys status`.
pub fn status(status: &Status) -> String {
    let mut text = summary(status);
    if !status.clients.is_empty() {
        text.push('\n');
        text.push_str(&table(&status.clients));
    }
    if status.clients_omitted > 0 {
        let more = status.clients_omitted;
        writeln!(text, "and {more} more: {MAX_CLIENTS} are listed at most")
            .expect("a String takes everything");
    }
    text
}

fn summary(status: &Status) -> String {
    let (totals, recalls) = (&status.totals, &status.recalls);
    let grace = match &status.grace {
        Some(grace) => format!("grace period for {:.0} s more at most", grace.seconds_left.ceil()),
        None => "no grace period".into(),
    };
    let waited_for = status.grace.as_ref().map(waited_for).unwrap_or_default();
    let persistent = match &status.persistence {
        Some(persistence) => format!(
            "{}, {} of before; {} of {} places taken{}",
            counted(totals.persistent_sessions, "session"),
            totals.dead_sessions,
            persistence.places_taken,
            persistence.places,
            if persistence.written { "" } else { "; none at present: the logs cannot be written" }
        ),
        None => "no session outlives the server".into(),
    };
    let records = match &status.records {
        Some(Records { written: false, .. }) => {
            "records   the log of clients cannot be written: see the server's log\n"
        }
        Some(Records { room: false, .. }) => {
            "records   no space for new clients: their opens wait until there is some in the state directory\n"
        }
        Some(_) | None => "",
    };
    let mut took = String::new();
    if let (Some(mean), Some(slowest)) = (recalls.mean_seconds, recalls.slowest_seconds) {
        took = format!(" in {} on average, {} at most", duration(mean), duration(slowest));
    }
    format!(
        "{software}, lease {lease:.0} s, {grace}\n\
         {waited_for}\
         holding   {clients}, {sessions}, {opens}, {locks}, {delegations}, {copies} copies in the background; {lost} lost and not acknowledged\n\
         waiting   {locks_waiting} for locks of others; {locks_notified} were told that theirs may be had\n\
         slots     {slots_in_use} of {slots} in use; {slots_full} requests took a client's last one, {deferred} were put off for memory; {memory}\n\
         persist   {persistent}\n\
         {records}\
         replays   {replayed} retransmissions answered from a reply cache\n\
         granted   {granted_read} delegations for reading, {granted_write} for writing, {granted_directory} of directories\n\
         recalls   {recalled}; {returned} returned{took}, {revoked} revoked; {waited} operations waited, {put_off} were put off\n",
        software = status.software,
        lease = status.lease_seconds,
        clients = counted(totals.clients, "client"),
        sessions = counted(totals.sessions, "session"),
        opens = counted(totals.opens, "open"),
        locks = counted(totals.locks, "lock"),
        delegations = counted(totals.delegations, "delegation"),
        locks_waiting = totals.locks_waiting,
        locks_notified = totals.locks_notified,
        copies = totals.copies,
        lost = totals.lost,
        slots_in_use = totals.slots_in_use,
        slots = totals.slots,
        slots_full = totals.slots_full,
        deferred = totals.slots_deferred,
        memory = bytes(totals.slot_memory_bytes),
        replayed = totals.replayed,
        granted_read = recalls.granted_read,
        granted_write = recalls.granted_write,
        granted_directory = recalls.granted_directory,
        recalled = recalls.recalled,
        returned = recalls.returned,
        revoked = recalls.revoked,
        waited = recalls.operations_waited,
        put_off = recalls.operations_put_off,
    )
}

/// Lines that say which clients a grace period waits for, the first of them by name.
fn waited_for(grace: &Grace) -> String {
    let count = grace.clients_waited_for;
    let mut text = format!("grace     waiting for {} to reclaim\n", counted(count as u64, "client"));
    let named = grace.names.iter().take(WAITED_FOR_NAMED);
    let mut line = |line: fmt::Arguments<'_>| {
        writeln!(text, "          {line}").expect("a String takes everything");
    };
    named.clone().for_each(|name| line(format_args!("\"{}\"", shortened(name))));
    let more = count.saturating_sub(named.len());
    if more > 0 && named.len() > 0 {
        line(format_args!("and {more} more: see --json"));
    }
    text
}

/// The first characters of a client's name.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_WIDTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Columns, and whether what is in them stands at the right.
const COLUMNS: [(&str, bool); 14] = [
    ("CLIENT", false),
    ("ADDRESS", false),
    ("VERS", false),
    ("STATE", false),
    ("LEASE", true),
    ("CALLBACK", false),
    ("SLOTS", true),
    ("FULL", true),
    ("REPLAYS", true),
    ("OPENS", true),
    ("LOCKS", true),
    ("DELEGS", true),
    ("LOST", true),
    ("NAME", false),
];

fn table(clients: &[Client]) -> String {
    let rows: Vec<_> =
        std::iter::once(COLUMNS.map(|(name, _)| name.to_owned())).chain(clients.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS.len()] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(COLUMNS).zip(widths);
        let cells: Vec<_> = cells
            .map(|((cell, (_, right)), width)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn row(client: &Client) -> [String; COLUMNS.len()] {
    let sessions = &client.sessions;
    let sum = |value: fn(&super::protocol::Session) -> u64| sessions.iter().map(value).sum::<u64>();
    let state = if client.reclaiming { "reclaiming" } else { &client.state };
    [
        client.id.clone(),
        client.address.clone().unwrap_or_else(|| "-".into()),
        client.protocol.clone().unwrap_or_else(|| "-".into()),
        state.to_owned(),
        format!("{:.0} s", client.lease_left_seconds),
        client.callbacks.clone(),
        match sessions.is_empty() {
            true => "-".into(),
            false => format!("{}/{}", client.active, sum(|session| session.slots_target.into())),
        },
        sum(|session| session.slots_full).to_string(),
        sum(|session| session.replayed).to_string(),
        client.opens.to_string(),
        client.locks.to_string(),
        client.delegations.to_string(),
        client.lost.to_string(),
        shortened(&client.name),
    ]
}

/// `enfys evict`.
pub fn evicted(lost: &Evicted) -> String {
    format!(
        "evicted {} ({}): it lost {}, {}, {} and {}\n",
        lost.id,
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
        (0, 0) => "nobody has a delegation of it\n".into(),
        (recalled, 0) => format!("recalled {}\n", counted(recalled as u64, "delegation")),
        (recalled, revoked) => format!(
            "recalled {}, revoked {revoked} of clients whose lease had expired\n",
            counted(recalled as u64, "delegation")
        ),
    }
}

/// `enfys grace end`.
pub fn grace_ended(waiting: Option<usize>) -> String {
    match waiting {
        Some(waiting) => format!(
            "the grace period is over; {} had not reclaimed everything\n",
            counted(waiting as u64, "client")
        ),
        None => "no grace period runs\n".into(),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// With the unit that leaves one to three digits before the point.
fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 1.0 => format!("{seconds:.1} s"),
        _ if seconds >= 1e-3 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{:.0} µs", seconds * 1e6),
    }
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{count} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_names_the_first_clients_that_it_waits_for() {
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
        assert_eq!(shown(3, &[]).lines().count(), 1, "of a server that tells no names");
    }

    #[test]
    fn amounts_have_units_that_fit() {
        let durations = [0.0, 0.000_9, 0.001, 0.25, 12.34].map(duration);
        assert_eq!(durations, ["0 µs", "900 µs", "1.0 ms", "250.0 ms", "12.3 s"]);
        assert_eq!([0, 1023, 1024, 5 << 20].map(bytes), ["0 bytes", "1023 bytes", "1.0 KiB", "5.0 MiB"]);
        assert_eq!([counted(1, "open"), counted(2, "open")], ["1 open", "2 opens"]);
    }
}
