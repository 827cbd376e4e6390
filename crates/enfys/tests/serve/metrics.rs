//! Metrics, as Prometheus scrapes them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use protocol::nfs3::{NfsStat, StableHow};

use crate::client::{Client, Client4};
use crate::promtool;
use crate::server::{Server, TestDir, with};

/// Sends an HTTP request; returns head and body of the response.
fn get(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the metrics are served");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    (head.to_owned(), body.to_owned())
}

/// Scrapes the metrics; returns values by name and labels.
pub fn scrape(address: SocketAddr) -> HashMap<String, f64> {
    let (head, body) = get(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// As [`scrape`], after all connections have ended, since the last calls may be counted that late. Waits at most a minute.
pub fn scrape_at_rest(address: SocketAddr) -> HashMap<String, f64> {
    for _ in 0..6000 {
        let values = scrape(address);
        if values["enfys_connections"] == 0.0 {
            return values;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    scrape(address)
}

#[test]
fn calls_bytes_latencies_and_state_are_counted() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();
    let before = scrape(metrics);
    assert_eq!(before["enfys_connections"], 0.0);
    assert!(!before.keys().any(|name| name.contains("operations_total")), "{before:?}");

    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    client.write(file, b"twelve bytes", StableHow::FileSync).unwrap();
    assert_eq!(client.read(file).unwrap().len(), 12);
    assert_eq!(client.lookup(root, "missing").unwrap_err(), NfsStat::NOENT);
    let mut client4 = Client4::connect(server.address);
    client4.open("export", "file").unwrap();

    let after = scrape(metrics);
    for (name, expected) in [
        ("enfys_operations_total{program=\"mount\",operation=\"MNT\"}", 1.0),
        ("enfys_operations_total{program=\"nfs3\",operation=\"READ\"}", 1.0),
        ("enfys_operations_total{program=\"nfs3\",operation=\"LOOKUP\"}", 1.0),
        ("enfys_operation_errors_total{program=\"nfs3\",operation=\"LOOKUP\"}", 1.0),
        ("enfys_operation_errors_total{program=\"nfs3\",operation=\"READ\"}", 0.0),
        ("enfys_operations_total{program=\"nfs4\",operation=\"OPEN\"}", 1.0),
        ("enfys_operations_total{program=\"nfs4\",operation=\"SEQUENCE\"}", 2.0),
        ("enfys_operation_duration_seconds_count{program=\"nfs3\",operation=\"WRITE\"}", 1.0),
        ("enfys_operation_duration_seconds_count{program=\"nfs4\",operation=\"OPEN\"}", 1.0),
        ("enfys_operation_duration_seconds_count{program=\"nfs4\",operation=\"COMPOUND\"}", 4.0),
        ("enfys_operation_duration_seconds_bucket{le=\"+Inf\",program=\"nfs3\",operation=\"WRITE\"}", 1.0),
        ("enfys_export_read_bytes_total{export=\"/export\"}", 12.0),
        ("enfys_export_written_bytes_total{export=\"/export\"}", 12.0),
        // CREATE, WRITE, READ and LOOKUP of version 3; OPEN arrives by PUTROOTFH and LOOKUP.
        ("enfys_export_requests_total{export=\"/export\"}", 4.0),
        ("enfys_malformed_records_total", 0.0),
        ("enfys_connections", 2.0),
        ("enfys_clients", 1.0),
        ("enfys_sessions", 1.0),
        ("enfys_opens", 1.0),
        ("enfys_slots_in_use", 0.0),
        ("enfys_slots_full_total", 0.0),
        ("enfys_slots_deferred_total", 0.0),
        ("enfys_evicted_clients_total", 0.0),
        ("enfys_listing_cache_hits_total", 0.0),
        ("enfys_listing_cache_insertions_total", 0.0),
        ("enfys_listing_cache_bytes", 0.0),
        ("enfys_listing_cache_directories", 0.0),
        ("enfys_locks", 0.0),
    ] {
        assert_eq!(after.get(name), Some(&expected), "{name} in {after:#?}");
    }
    assert!(after["enfys_slots"] >= 1.0);
    let bytes = |direction: &str, operation: &str| {
        after[&format!("enfys_{direction}_bytes_total{{program=\"nfs3\",operation=\"{operation}\"}}")]
    };
    assert!(bytes("received", "WRITE") >= bytes("received", "READ") + 12.0);
    assert!(bytes("sent", "READ") > 12.0);
    server.stop();
}

#[test]
fn every_kind_of_call_is_counted_with_its_errors() {
    use protocol::nfs3::PROGRAM as NFS;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::lookup::LookupArgs;
    use protocol::nfs4::types::{Component, Status};
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();

    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    for program in [(NFS, 3), (NFS, 4), (protocol::mount::PROGRAM, 3), (protocol::nfsacl::PROGRAM, 3)] {
        client.call::<()>(program, 0, &());
    }
    let mask = protocol::nfsacl::Mask::all();
    let get_acl = protocol::nfsacl::GetAclArgs { fh: root, mask };
    let got: protocol::nfsacl::GetAclResult =
        client.call((protocol::nfsacl::PROGRAM, 3), protocol::nfsacl::Proc::GETACL.0, &get_acl);
    got.into_result().unwrap();
    // Truncated arguments, and unknown procedures, versions and programs.
    client.refused((protocol::nfsacl::PROGRAM, 3), protocol::nfsacl::Proc::GETACL.0, &());
    client.refused((NFS, 3), protocol::nfs3::Proc::ACCESS.0, &());
    client.refused((NFS, 3), 22, &());
    client.refused((NFS, 2), 1, &());
    client.refused((100_020, 1), 1, &());
    let mut client4 = Client4::connect(server.address);
    let missing = LookupArgs { name: Component::from_static(b"missing") };
    assert_eq!(client4.run(vec![Op::PutRootFh, Op::Lookup(missing)]).unwrap_err(), Status::NOENT);

    let after = scrape(metrics);
    for (program, operation, calls, errors) in [
        ("mount", "MNT", 1.0, 0.0),
        ("mount", "NULL", 1.0, 0.0),
        ("nfs3", "NULL", 1.0, 0.0),
        ("nfs3", "ACCESS", 1.0, 1.0),
        ("nfs4", "NULL", 1.0, 0.0),
        ("nfs4", "LOOKUP", 1.0, 1.0),
        ("nfsacl3", "NULL", 1.0, 0.0),
        ("nfsacl3", "GETACL", 2.0, 1.0),
    ] {
        let labels = format!("{{program=\"{program}\",operation=\"{operation}\"}}");
        let reported = |name: &str| after.get(&format!("enfys_{name}_total{labels}")).copied();
        assert_eq!(reported("operations"), Some(calls), "{labels} in {after:#?}");
        assert_eq!(reported("operation_errors"), Some(errors), "{labels} in {after:#?}");
    }
    let compound =
        |name: &str| after[&format!("enfys_{name}_total{{program=\"nfs4\",operation=\"COMPOUND\"}}")];
    // EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE, and the one that failed.
    assert_eq!((compound("operations"), compound("operation_errors")), (4.0, 1.0), "{after:#?}");
    // Received: operation number and name (length, and 7 bytes padded to 8). Sent: operation number and status.
    for (direction, root, lookup) in [("received", 4.0, 4.0 + 4.0 + 8.0), ("sent", 8.0, 8.0)] {
        let moved = |operation: &str| {
            after[&format!("enfys_{direction}_bytes_total{{program=\"nfs4\",operation=\"{operation}\"}}")]
        };
        assert_eq!((moved("PUTROOTFH"), moved("LOOKUP")), (root, lookup), "{direction}");
    }
    let acl_bytes = "enfys_received_bytes_total{program=\"nfsacl3\",operation=\"GETACL\"}";
    assert!(after[acl_bytes] > 0.0);
    assert_eq!(after["enfys_unserved_calls_total"], 3.0);
    assert_eq!(after["enfys_malformed_records_total"], 2.0);
    server.stop();
}

#[test]
fn only_metrics_are_served() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();
    let (head, _) = get(metrics, "GET /secret HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404 Not Found"), "{head}");
    // A request that is too long closes the connection, and others are still served.
    let mut chatty = TcpStream::connect(metrics).unwrap();
    // The server may close it before everything is sent.
    let _ = chatty.write_all(&[b'x'; 16 << 10]);
    let _ = chatty.read_to_end(&mut Vec::new());
    scrape(metrics);
    server.stop();
}

#[test]
fn head_query_strings_and_both_formats_are_served() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();
    let (head, text) = get(metrics, "GET /metrics?name[]=x HTTP/1.1\r\nAccept: */*\r\n\r\n");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(!text.contains("# EOF") && text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
    let accept = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    let (head, text) = get(metrics, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
    assert!(head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"), "{head}");
    assert!(text.ends_with("# EOF\n") && text.contains("# TYPE process_cpu_seconds counter\n"), "{text}");
    let (head, nothing) = get(metrics, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK") && !head.contains("Content-Length: 0"), "{head}");
    assert_eq!(nothing, "");
    let (head, _) = get(metrics, "DELETE /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET, HEAD\r\n"), "{head}");
    server.stop();
}

#[test]
fn silent_peers_do_not_delay_a_scrape() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();
    let connect = || TcpStream::connect(metrics).expect("the metrics are served");
    let silent: Vec<_> = (0..4).map(|_| connect()).collect();
    scrape(metrics);
    let mut last = silent.last().expect("four");
    last.set_nonblocking(true).expect("an option");
    let waits = last.read(&mut [0]).expect_err("the scrape waited until this one was closed");
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    // If there are many, the oldest are closed.
    let many: Vec<_> = (0..50).map(|_| connect()).collect();
    scrape(metrics);
    let mut first = &many[0];
    first.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    assert_eq!(first.read(&mut [0]).expect("closed in order"), 0);
    server.stop();
}

/// One family of an exposition: type, labels in alphabetical order, and help.
type Family = (String, Vec<String>, String);

/// Parses the text format, and fails for anything that Prometheus' own checker reports.
fn families(text: &str) -> std::collections::BTreeMap<String, Family> {
    let mut families = std::collections::BTreeMap::<String, Family>::new();
    let mut present = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("name and help");
            assert!(help.ends_with('.') && help.len() > 20, "{line}: a sentence");
            let family = (String::new(), Vec::new(), help.to_owned());
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} twice");
            present = name.to_owned();
            continue;
        }
        let family = families.get_mut(&present).expect("HELP comes first");
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("name and type");
            assert_eq!(name, present, "TYPE follows HELP");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            for unit in ["micro", "milli", "minutes", "kilo", "percent"] {
                assert!(!name.contains(unit), "{name}: not a base unit");
            }
            kind.clone_into(&mut family.0);
            continue;
        }
        assert!(!line.starts_with('#') && !family.0.is_empty(), "{line}");
        let (sample, value) = line.rsplit_once(' ').expect("a value");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let suffix = name.strip_prefix(&*present).expect("samples follow their TYPE");
        assert!(suffix.is_empty() || family.0 == "histogram", "{line}");
        let labels = labels.strip_suffix('}').expect("the end of the labels");
        // No label value has a comma here.
        let labels =
            labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
        family.1 = labels.filter(|name| name != "le").collect();
        family.1.sort();
    }
    families
}

#[test]
fn the_manual_lists_all_metrics() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &arguments);
    let metrics = server.metrics_address();
    let mut client = Client::connect(server.address);
    client.mount("/export").unwrap();
    let (_, text) = get(metrics, "GET /metrics HTTP/1.1\r\n\r\n");
    let manual =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/manual/metrics.md"));
    let manual = manual.expect("the page");
    // | `name` | type | labels | meaning |
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let listed: std::collections::BTreeMap<String, Family> = rows
        .map(|row| {
            let cells: Vec<_> = row.split(" | ").collect();
            let [name, kind, labels, help] = cells[..] else { panic!("four cells: {row}") };
            let labels = labels.split(", ").filter(|label| *label != "–").map(|label| label.replace('`', ""));
            (name.replace('`', ""), (kind.to_owned(), labels.collect(), help.to_owned()))
        })
        .collect();
    let exposed = families(&text);
    for (name, (kind, labels, help)) in &exposed {
        let row = listed.get(name).unwrap_or_else(|| panic!("the manual lacks {name}"));
        assert_eq!((&row.0, &row.2), (kind, help), "{name}");
        let has_samples = text.lines().any(|line| line.starts_with(&**name));
        assert!(!has_samples || row.1 == *labels, "{name}: {labels:?}, in the manual {:?}", row.1);
    }
    let surplus: Vec<_> = listed.keys().filter(|name| !exposed.contains_key(*name)).collect();
    assert!(surplus.is_empty(), "only in the manual: {surplus:?}");
    promtool::check(&text);
    server.stop();
}

#[test]
fn large_unstable_writes_go_to_the_disk_before_their_commit() {
    const CHUNK: usize = 512 << 10;
    let dir = TestDir::new();
    let export = dir.directory("export");
    let metrics = [export.as_path(), "--metrics".as_ref(), "127.0.0.1:0".as_ref()];
    let mut server = Server::start(&dir, &with(&dir, &metrics));
    let address = server.metrics_address();
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    let file = client.create(root, "file").unwrap();
    let data: &'static [u8] = vec![7; CHUNK].leak();
    for number in 0..48 {
        client.write_at(file, number * CHUNK as u64, data, StableHow::Unstable).unwrap();
    }
    client.commit(file).unwrap();
    let flushes = scrape(address)["enfys_early_flushes_total"];
    assert!((1.0..=3.0).contains(&flushes), "{flushes} for 24 MiB");
    server.stop();
}
