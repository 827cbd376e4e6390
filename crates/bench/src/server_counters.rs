//! Counters of a server before and after a run, from an endpoint for Prometheus, and their comparison with the client's own.
//!
//! Both count from before the first client connects until the last one has left, so that for a server without other clients the
//! numbers must be equal: requests, and the bytes of calls and replies without record marks.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Time limit for the connection, and for each read.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer at most.
const ANSWER_MAX: u64 = 16 << 20;
/// A server counts a call after it has sent the reply: how often its counters are read again, and the time between.
const AGAIN: (u32, Duration) = (20, Duration::from_millis(50));

/// Bytes of the mark before a record of TCP (RFC 5531 §11).
const RECORD_MARK: u64 = 4;

/// Counters by series, as `name{label="value"}`.
pub type Series = BTreeMap<String, f64>;

/// What clients or a server exchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exchanged {
    /// Calls; a retransmission is another one.
    pub requests: u64,
    /// Bytes of calls.
    pub call_bytes: u64,
    /// Bytes of replies.
    pub reply_bytes: u64,
}

/// The counters of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerCounters {
    /// By how much each of the server's counters grew; those that did not are left out.
    pub growth: Series,
    /// What the clients of the run exchanged.
    pub client: Exchanged,
    /// The same by the server; `None` if its counters are not known here.
    pub server: Option<Exchanged>,
    /// Why there are no counters.
    pub problem: Option<String>,
}

impl Exchanged {
    /// Adds what others exchanged.
    pub fn combine(&mut self, other: &Self) {
        self.requests += other.requests;
        self.call_bytes += other.call_bytes;
        self.reply_bytes += other.reply_bytes;
    }

    /// Returns what Enfys's counters say; `None` if there are none of them.
    fn of_enfys(growth: &Series) -> Option<Self> {
        let sum = |name: &str| {
            let of = growth.iter().filter(|(series, _)| series.starts_with(name) && is_call(series));
            of.map(|(_, value)| *value).sum::<f64>().round() as u64
        };
        let requests = sum("enfys_operations_total{");
        let exchanged = Self {
            requests,
            call_bytes: sum("enfys_received_bytes_total{"),
            // Enfys counts a reply with its record mark (`net::Call::sent`), and a call without.
            reply_bytes: sum("enfys_sent_bytes_total{").saturating_sub(requests * RECORD_MARK),
        };
        growth.keys().any(|series| series.starts_with("enfys_operations_total{")).then_some(exchanged)
    }
}

/// Returns whether a series counts calls: operations of NFSv4 are counted in addition to the COMPOUND that has them, and a client's
/// answers to callbacks, which arrive on the same connection, as another program.
fn is_call(series: &str) -> bool {
    let has = |label: &str| series.contains(label);
    if has("program=\"other\"") {
        return false;
    }
    !has("program=\"nfs4\"") || has("operation=\"COMPOUND\"") || has("operation=\"NULL\"")
}

impl ServerCounters {
    /// Returns how the client's numbers differ from the server's, as a sentence; `None` if they agree or are unknown.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        if let Some(problem) = &self.problem {
            return Some(format!("no counters of the server: {problem}"));
        }
        let (client, server) = (self.client, self.server?);
        if client == server || client == Exchanged::default() {
            return None;
        }
        let words = [
            ("requests", client.requests, server.requests),
            ("bytes of calls", client.call_bytes, server.call_bytes),
            ("bytes of replies", client.reply_bytes, server.reply_bytes),
        ];
        let differ = words.into_iter().filter(|(_, own, theirs)| own != theirs);
        let list: Vec<String> =
            differ.map(|(what, own, theirs)| format!("{own} {what} against {theirs}")).collect();
        Some(format!(
            "the clients' counters differ from the server's: {}. Others may have used the server, or a counter is wrong.",
            list.join(", ")
        ))
    }
}

/// The counters of a server at one time, at an address that can be read again.
#[derive(Debug)]
pub struct Before {
    address: String,
    read: Result<Series, String>,
}

impl Before {
    /// Reads a server's counters at `HOST:PORT[/PATH]`, which may begin with `http://`; the usual path is `/metrics`.
    #[must_use]
    pub fn read(address: &str) -> Self {
        Self { address: address.to_owned(), read: scrape(address) }
    }

    /// Returns the growth since then, compared with what the clients have counted.
    #[must_use]
    pub fn until_now(self, client: Exchanged) -> ServerCounters {
        let mut counters = ServerCounters { client, ..ServerCounters::default() };
        let (tries, pause) = AGAIN;
        for _ in 0..tries {
            match self.read.clone().and_then(|before| Ok(growth(&before, &scrape(&self.address)?))) {
                Ok(growth) => {
                    counters.server = Exchanged::of_enfys(&growth);
                    counters.growth = growth;
                }
                Err(why) => counters.problem = Some(why),
            }
            // Without growth, none of Enfys's counters are known yet.
            let has_agreed = counters.server.is_some() && counters.difference().is_none();
            if has_agreed || counters.problem.is_some() {
                break;
            }
            thread::sleep(pause);
        }
        counters
    }
}

fn growth(before: &Series, after: &Series) -> Series {
    let grown = |(series, value): (&String, &f64)| {
        let growth = value - before.get(series).copied().unwrap_or(0.0);
        (growth != 0.0).then(|| (series.clone(), growth))
    };
    after.iter().filter_map(grown).collect()
}

/// Reads all counters of an endpoint.
fn scrape(address: &str) -> Result<Series, String> {
    let (host, path) = split(address);
    let failed = |error: std::io::Error| format!("http://{host}{path}: {error}");
    let addresses = host.to_socket_addrs().map_err(failed)?;
    let mut stream = Err(std::io::Error::other("no address"));
    for address in addresses {
        stream = TcpStream::connect_timeout(&address, TIMEOUT);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream.map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    // HTTP/1.0: the answer ends with the connection, in one piece.
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| format!("http://{host}{path}: not HTTP"))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("http://{host}{path}: {}", head.lines().next().unwrap_or_default()));
    }
    Ok(parse(body))
}

/// Splits an address into host with port, and path.
fn split(address: &str) -> (&str, &str) {
    let rest = address.strip_prefix("http://").unwrap_or(address);
    match rest.find('/') {
        Some(slash) if slash + 1 < rest.len() => rest.split_at(slash),
        Some(slash) => (&rest[..slash], "/metrics"),
        None => (rest, "/metrics"),
    }
}

/// Parses the counters of Prometheus' text format 0.0.4: lines of `name{labels} value [time]`.
fn parse(text: &str) -> Series {
    let counter = |line: &str| {
        // Labels may have spaces and braces, a value neither.
        let end = line.rfind('}').map_or_else(|| line.find(' '), |brace| Some(brace + 1))?;
        let (series, rest) = line.split_at(end);
        let is_counter = series.split('{').next().is_some_and(|name| name.ends_with("_total"));
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        is_counter.then(|| (series.to_owned(), value))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    /// Prometheus' documentation of the format has such lines, with escapes and times.
    const TEXT: &str = "# HELP enfys_operations_total Calls.\n# TYPE enfys_operations_total counter\n\
        enfys_operations_total{program=\"nfs4\",operation=\"COMPOUND\"} 10\n\
        enfys_operations_total{program=\"nfs4\",operation=\"READ\"} 7\n\
        enfys_operations_total{program=\"mount\",operation=\"MNT\"} 1 1395066363000\n\
        enfys_received_bytes_total{operation=\"COMPOUND\",program=\"nfs4\"} 1e3\n\
        enfys_sent_bytes_total{operation=\"COMPOUND\",program=\"nfs4\"} 2000\n\
        enfys_received_bytes_total{operation=\"OTHER\",program=\"other\"} 24\n\
        other_total{path=\"C:\\\\{a b}\\n\"} 3\nplain_total 4\nenfys_connections 9\n";

    #[test]
    fn counters_are_parsed_and_calls_added() {
        let series = parse(TEXT);
        assert_eq!(series.len(), 8, "no gauges: {series:?}");
        assert_eq!(series["plain_total"], 4.0);
        assert_eq!(series["other_total{path=\"C:\\\\{a b}\\n\"}"], 3.0);
        let exchanged = Exchanged { requests: 11, call_bytes: 1000, reply_bytes: 2000 - 11 * 4 };
        assert_eq!(Exchanged::of_enfys(&series), Some(exchanged));
        assert_eq!(Exchanged::of_enfys(&parse("plain_total 4\n")), None, "another program's counters");
    }

    /// Answers each of some requests with the next text.
    fn serve(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let request: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                assert!(request[0].starts_with("GET /metrics HTTP/1."), "{request:?}");
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n\
        enfys_operations_total{program=\"nfs3\",operation=\"READ\"} 5\n";

    #[test]
    fn growth_is_compared_with_what_the_clients_counted() {
        const LATER: &str = "HTTP/1.1 200 OK\r\n\r\n\
            enfys_operations_total{program=\"nfs3\",operation=\"READ\"} 8\n\
            enfys_received_bytes_total{program=\"nfs3\",operation=\"READ\"} 300\n\
            enfys_sent_bytes_total{program=\"nfs3\",operation=\"READ\"} 900\n";
        let client = Exchanged { requests: 3, call_bytes: 300, reply_bytes: 900 - 3 * 4 };
        let counters = Before::read(&serve(&[OK, OK, LATER])).until_now(client);
        assert_eq!(
            (counters.server, counters.difference()),
            (Some(client), None),
            "read again until they agree"
        );
        let other = ServerCounters { client: Exchanged { reply_bytes: 800, ..client }, ..counters };
        let said = other.difference().unwrap();
        assert!(
            said.contains("800 bytes of replies against 888") && !said.contains("requests against"),
            "{said}"
        );
    }

    #[test]
    fn an_endpoint_that_does_not_answer_is_a_problem_and_no_failure() {
        let counters =
            Before::read(&serve(&["HTTP/1.1 404 Not Found\r\n\r\n"])).until_now(Exchanged::default());
        assert!(counters.difference().unwrap().contains("404 Not Found"), "{counters:?}");
        assert_eq!((counters.server, counters.growth.len()), (None, 0));
    }

    #[test]
    fn addresses_may_have_scheme_and_path() {
        assert_eq!(split("host:1"), ("host:1", "/metrics"));
        assert_eq!(split("http://host:1/"), ("host:1", "/metrics"));
        assert_eq!(split("http://host:1/a/b"), ("host:1", "/a/b"));
    }
}
