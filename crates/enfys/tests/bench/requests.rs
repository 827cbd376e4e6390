//! Requests for each operation, of every workload and version, by a client without caches. Every request is expected for a reason of the
//! protocol, and no other one is sent.
//!
//! - Versions 2 and 3 look up one name with a request (RFC 1094 §2.2.5, RFC 1813 §3.3.3); in version 4, a compound looks up all
//!   directories of a path.
//! - An open is a LOOKUP in versions 2 and 3, then ACCESS in version 3 (RFC 1813 §3.3.4). Version 2 has no ACCESS: the client looks at
//!   the attributes. In version 4 it is OPEN, and each file is closed. A new file is looked up before CREATE, since CREATE needs
//!   permissions that an existing file must not need.
//! - A removal is preceded by a LOOKUP: a file that is open here must not be removed at the server.
//! - Data that were written without O_SYNC are committed once, by fsync or close. Version 2 has no COMMIT, and 8 KiB of data at most in
//!   a request (RFC 1094 §2.3.1).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::runs::{count, read_results, run, run_with};
use crate::{bench, printed};

const VERSIONS: [&str; 5] = ["2", "3", "4.0", "4.1", "4.2"];
/// Threads of [`run`].
const THREADS: u64 = 2;

/// What the versions need for the same thing.
#[derive(Clone, Copy)]
struct Of {
    v2: &'static [(&'static str, u64)],
    v3: &'static [(&'static str, u64)],
    v4: &'static [(&'static str, u64)],
}

/// Returns the requests of a result by operation. Those that a client sends once, whatever the workload does, are left out: port
/// mappers and NULL of the lock manager, and in 4.0 the confirmation of each owner of opens (RFC 7530 §16.18), of which threads use one
/// each at the same time.
#[track_caller]
fn sent(result: &Value) -> BTreeMap<String, u64> {
    for (name, operation) in result["operations"].as_object().expect("operations") {
        assert_eq!((&operation["errors"], &operation["short"]), (&0.into(), &0.into()), "{name}");
    }
    let operations = result["requests"].as_object().expect("requests");
    let requests = |value: &Value| value["requests"].as_u64().unwrap_or(0);
    let mut sent: BTreeMap<String, u64> =
        operations.iter().map(|(name, of)| (name.clone(), requests(of))).collect();
    let confirmed = sent.remove("OPEN_CONFIRM").unwrap_or(0);
    assert!(confirmed <= THREADS, "{confirmed} owners are confirmed");
    assert!(
        sent.remove("NULL").unwrap_or(0) <= 1 && sent.remove("other").unwrap_or(0) <= 3,
        "{operations:?}"
    );
    sent
}

/// Checks that a run has sent `times` what its version needs, and `more` in version 4, and nothing else.
#[track_caller]
fn is_sent(result: &Value, version: &str, times: u64, needed: Of, more: &[(&str, u64)]) {
    let of_version = match version {
        "2" => needed.v2,
        "3" => needed.v3,
        _ => needed.v4,
    };
    let mut expected: BTreeMap<String, u64> =
        of_version.iter().map(|(name, each)| ((*name).to_owned(), each * times)).collect();
    for (name, number) in more.iter().filter(|_| version.starts_with('4')) {
        *expected.entry((*name).to_owned()).or_default() += number;
    }
    let workload = &result["run"]["case"]["workload"];
    assert_eq!(sent(result), expected, "{workload} {version}, {times} times");
}

/// Returns how often a thread has done something whose only request of this name is one.
fn rounds(result: &Value, request: &str) -> u64 {
    *sent(result).get(request).unwrap_or_else(|| panic!("no {request}"))
}

#[test]
fn creation() {
    let needed = Of {
        v2: &[("LOOKUP", 1), ("CREATE", 1), ("WRITE", 1)],
        v3: &[("LOOKUP", 1), ("CREATE", 1), ("WRITE", 1), ("COMMIT", 1)],
        v4: &[("OPEN", 1), ("WRITE", 1), ("COMMIT", 1), ("CLOSE", 1)],
    };
    for version in VERSIONS {
        let result = run("create", version, &["files=40", "size=4KiB"]);
        is_sent(&result, version, 40, needed, &[]);
    }
}

/// An open file is read and written; version 4 closes it at the end.
#[test]
fn data_of_open_files() {
    const CLOSED: &[(&str, u64)] = &[("CLOSE", THREADS)];
    let read = Of { v2: &[("READ", 8)], v3: &[("READ", 1)], v4: &[("READ", 1)] };
    let written = Of { v2: &[("WRITE", 8)], v3: &[("WRITE", 1)], v4: &[("WRITE", 1)] };
    for version in VERSIONS {
        // 64 KiB are eight requests in version 2.
        for (workload, needed, request) in [
            ("random-read", read, "READ"),
            ("sequential-read", read, "READ"),
            ("random-write", written, "WRITE"),
            ("sequential-write", written, "WRITE"),
        ] {
            let result = run(workload, version, &["file-size=256KiB", "io-size=64KiB"]);
            let times = rounds(&result, request) / if version == "2" { 8 } else { 1 };
            is_sent(&result, version, times, needed, CLOSED);
            let done = count(&result, &request.to_lowercase());
            assert!((done..=done + THREADS).contains(&times), "{workload} {version}: {times} for {done}");
        }
        let streams = Of {
            v2: &[("WRITE", 8)],
            v3: &[("WRITE", 8), ("COMMIT", 1)],
            v4: &[("WRITE", 8), ("COMMIT", 1), ("CLOSE", 1)],
        };
        let result = run("stream-write", version, &["file-size=64KiB", "io-size=8KiB"]);
        is_sent(&result, version, THREADS, streams, &[]);
    }
}

#[test]
fn small_files() {
    let needed = Of {
        v2: &[("LOOKUP", 1), ("GETATTR", 1), ("READ", 1)],
        v3: &[("LOOKUP", 1), ("ACCESS", 1), ("READ", 1)],
        v4: &[("OPEN", 1), ("READ", 1), ("CLOSE", 1)],
    };
    for version in VERSIONS {
        let result = run("small-files", version, &["files=20"]);
        let (files, done) = (rounds(&result, "READ"), count(&result, "read-file"));
        is_sent(&result, version, files, needed, &[]);
        assert!((done..=done + THREADS).contains(&files), "{version}: {files} for {done}");
    }
}

/// Locks of versions 2 and 3 are those of the lock manager. 4.0 releases the owner of locks of each closed file (RFC 7530 §16.37).
#[test]
fn locked_reads() {
    let needed = Of {
        v2: &[("LOOKUP", 1), ("GETATTR", 1), ("LOCK", 1), ("READ", 1), ("UNLOCK", 1)],
        v3: &[("LOOKUP", 1), ("ACCESS", 1), ("LOCK", 1), ("READ", 1), ("UNLOCK", 1)],
        v4: &[("OPEN", 1), ("LOCK", 1), ("READ", 1), ("LOCKU", 1), ("CLOSE", 1)],
    };
    for version in VERSIONS {
        let result = run("locked-reads", version, &["files=10", "repeats=3"]);
        let released: &[(&str, u64)] = if version == "4.0" { &[("RELEASE_LOCKOWNER", 30)] } else { &[] };
        is_sent(&result, version, 30, needed, released);
    }
}

/// 12 KiB are two requests in version 2, which does not commit them.
#[test]
fn creation_with_more_data_than_a_request_of_version_2_has() {
    let needed = Of {
        v2: &[("LOOKUP", 1), ("CREATE", 1), ("WRITE", 2)],
        v3: &[("LOOKUP", 1), ("CREATE", 1), ("WRITE", 1), ("COMMIT", 1)],
        v4: &[("OPEN", 1), ("WRITE", 1), ("COMMIT", 1), ("CLOSE", 1)],
    };
    for version in ["2", "3"] {
        let result = run("create", version, &["files=40", "size=12KiB"]);
        is_sent(&result, version, 40, needed, &[]);
    }
}

/// Without delegations, nothing is recalled: the opens of one client, and in version 4 the closes of the holder too.
#[test]
fn opens_of_files_that_others_have_open() {
    let needed = Of {
        v2: &[("LOOKUP", 1), ("GETATTR", 1)],
        v3: &[("LOOKUP", 1), ("ACCESS", 1)],
        v4: &[("OPEN", 1), ("CLOSE", 2)],
    };
    for version in VERSIONS {
        let result = run_with("recall", version, &["files=30"], &["--threads", "1", "--clients", "2"]);
        assert_eq!(count(&result, "open"), 30, "{version}");
        is_sent(&result, version, 30, needed, &[]);
    }
}

/// All files are in one directory, which one reply has. Its attributes say that it is one. Version 2 has no READDIRPLUS: each of the five
/// entries is looked up.
#[test]
fn listings() {
    let needed = Of {
        v2: &[("GETATTR", 1), ("READDIR", 1), ("LOOKUP", 5)],
        v3: &[("GETATTR", 1), ("READDIRPLUS", 1)],
        v4: &[("GETATTR", 1), ("READDIR", 1)],
    };
    for version in VERSIONS {
        let result = run("list", version, &["files=5", "directory-width=5"]);
        let (lists, done) = (rounds(&result, "GETATTR"), count(&result, "list"));
        is_sent(&result, version, lists, needed, &[]);
        assert!((done..=done + THREADS).contains(&lists), "{version}: {lists} for {done}");
    }
}

/// A tree of 60 files in 6 directories, searched by each thread. The root's attributes are asked for, and the directories looked up.
/// In version 2 also their entries: 6 of the root, and each of 60 files with its directory.
#[test]
fn searches() {
    let needed = Of {
        v2: &[("GETATTR", 1), ("READDIR", 7), ("LOOKUP", 6 + 6 + 2 * 60)],
        v3: &[("GETATTR", 1), ("READDIRPLUS", 7), ("LOOKUP", 6)],
        v4: &[("GETATTR", 1), ("READDIR", 7), ("LOOKUP", 6)],
    };
    for version in VERSIONS {
        let result = run("find", version, &["files=60", "directory-width=10"]);
        is_sent(&result, version, THREADS, needed, &[]);
    }
}

/// 30 files in 6 directories, which are in 2. Lookups of version 3: of the parents of 6 directories; of two directories and the name of 30
/// files; of 2 and 6 directories with one and two names, which are listed; of 30 files as before their creation; of the parents of
/// 6 directories. Version 2 also looks up the entries that are listed: 2, 6 with two names, 30 with three. Version 4 needs one compound
/// for the directories of a path, and one for the name before each removal; REMOVE removes files and directories (RFC 8881 §18.25), so
/// that the kind of the 8 directories must be known before.
#[test]
fn source_trees() {
    const V3: u64 = 6 + 30 * 3 + (2 + 6 * 2) + 30 * 3 + 6;
    const V2: u64 = V3 + 2 + 6 * 2 + 30 * 3;
    const V4: u64 = 6 + 30 + 8 + 30 * 2 + 6 + 8;
    let needed = Of {
        v2: &[
            ("MKDIR", 8),
            ("CREATE", 30),
            ("WRITE", 30),
            ("GETATTR", 1),
            ("READDIR", 9),
            ("REMOVE", 30),
            ("RMDIR", 8),
            ("LOOKUP", V2),
        ],
        v3: &[
            ("MKDIR", 8),
            ("CREATE", 30),
            ("WRITE", 30),
            ("COMMIT", 30),
            ("GETATTR", 1),
            ("READDIRPLUS", 9),
            ("REMOVE", 30),
            ("RMDIR", 8),
            ("LOOKUP", V3),
        ],
        v4: &[
            ("CREATE", 8),
            ("OPEN", 30),
            ("WRITE", 30),
            ("COMMIT", 30),
            ("CLOSE", 30),
            ("GETATTR", 1),
            ("READDIR", 9),
            ("REMOVE", 38),
            ("LOOKUP", V4),
        ],
    };
    for version in VERSIONS {
        let result = run("source-tree", version, &["files=30", "mean-size=1KiB", "directory-width=5"]);
        is_sent(&result, version, THREADS, needed, &[]);
    }
}

/// Bonnie++ with 8 blocks of 8 KiB, 20 seeks of which 2 are followed by a write, and twice 10 files. The large file is created, and
/// opened three times. It is committed twice by fsync, and once by the close after the seeks.
#[test]
fn bonnie() {
    const READS: u64 = 8 + 8 + 20;
    const WRITES: u64 = 8 + 8 + 2;
    // Creations, other opens, stats and removals.
    const LOOKUPS: u64 = 21 + 3 + 20 + 20;
    let needed = Of {
        v2: &[
            ("CREATE", 21),
            ("GETATTR", 3),
            ("READ", READS),
            ("WRITE", WRITES),
            ("REMOVE", 20),
            ("LOOKUP", LOOKUPS),
        ],
        v3: &[
            ("CREATE", 21),
            ("ACCESS", 3),
            ("READ", READS),
            ("WRITE", WRITES),
            ("COMMIT", 3),
            ("REMOVE", 20),
            ("LOOKUP", LOOKUPS),
        ],
        v4: &[
            ("OPEN", 24),
            ("CLOSE", 24),
            ("READ", READS),
            ("WRITE", WRITES),
            ("COMMIT", 3),
            ("REMOVE", 20),
            ("LOOKUP", 40),
        ],
    };
    for version in VERSIONS {
        let result = run("bonnie", version, &["file-size=64KiB", "io-size=8KiB", "seeks=20", "files=10"]);
        is_sent(&result, version, THREADS, needed, &[]);
    }
}

/// Removes from a result the requests whose number depends on the sizes of files: those for data in version 2.
fn without_data_of_version_2(mut result: Value, version: &str) -> Value {
    let requests = result["requests"].as_object_mut().expect("requests");
    if version == "2" {
        assert!(requests.remove("READ").is_some() && requests.remove("WRITE").is_some());
    }
    result
}

/// Filebench's file server in two directories: a file is created and written, one appended to, one read, one removed, one looked at.
/// Each of these needs its directory, and all but the removal one LOOKUP or OPEN of its name; the removal needs a LOOKUP too.
#[test]
fn file_server() {
    let needed = Of {
        v2: &[("CREATE", 1), ("GETATTR", 2), ("REMOVE", 1), ("LOOKUP", 5 * 2)],
        v3: &[
            ("CREATE", 1),
            ("ACCESS", 2),
            ("READ", 1),
            ("WRITE", 2),
            ("COMMIT", 2),
            ("REMOVE", 1),
            ("LOOKUP", 5 * 2),
        ],
        // The directory of three opens; directory and name of a removal in two compounds, of a stat in one.
        v4: &[
            ("OPEN", 3),
            ("CLOSE", 3),
            ("READ", 1),
            ("WRITE", 2),
            ("COMMIT", 2),
            ("REMOVE", 1),
            ("LOOKUP", 3 + 2 + 1),
        ],
    };
    for version in VERSIONS {
        let result = run("fileserver", version, &["files=40", "mean-size=4KiB"]);
        let result = without_data_of_version_2(result, version);
        let (loops, done) = (rounds(&result, "REMOVE"), count(&result, "delete"));
        is_sent(&result, version, loops, needed, &[]);
        assert!((done..=done + THREADS).contains(&loops), "{version}: {loops} for {done}");
    }
}

/// Filebench's web server: ten files are read, and an entry is appended to a log, which is open and committed at the end.
#[test]
fn web_server() {
    let needed = Of {
        v2: &[("LOOKUP", 10), ("GETATTR", 10)],
        v3: &[("LOOKUP", 10), ("ACCESS", 10), ("READ", 10), ("WRITE", 1)],
        v4: &[("OPEN", 10), ("READ", 10), ("CLOSE", 10), ("WRITE", 1)],
    };
    for version in VERSIONS {
        let mut result = run("webserver", version, &["files=20"]);
        if version != "2" {
            let requests = result["requests"].as_object_mut().expect("requests");
            let commits = requests.remove("COMMIT").expect("of the logs");
            assert_eq!(commits["requests"], THREADS, "{version}");
        }
        let result = without_data_of_version_2(result, version);
        let (request, of_loop) = if version.starts_with('4') { ("OPEN", 10) } else { ("LOOKUP", 10) };
        let loops = rounds(&result, request) / of_loop;
        is_sent(&result, version, loops, needed, &[("CLOSE", THREADS)]);
        let done = count(&result, "append");
        assert!((done..=done + THREADS).contains(&loops), "{version}: {loops} for {done}");
    }
}

/// Filebench's mail server in one directory: a file is removed; one is created, written and synced; one is read, appended to and synced;
/// one is read.
#[test]
fn mail_server() {
    let needed = Of {
        v2: &[("REMOVE", 1), ("CREATE", 1), ("GETATTR", 2), ("LOOKUP", 4)],
        v3: &[
            ("REMOVE", 1),
            ("CREATE", 1),
            ("ACCESS", 2),
            ("READ", 2),
            ("WRITE", 2),
            ("COMMIT", 2),
            ("LOOKUP", 4),
        ],
        v4: &[
            ("REMOVE", 1),
            ("OPEN", 3),
            ("CLOSE", 3),
            ("READ", 2),
            ("WRITE", 2),
            ("COMMIT", 2),
            ("LOOKUP", 1),
        ],
    };
    for version in VERSIONS {
        let result = run("varmail", version, &["files=20"]);
        let result = without_data_of_version_2(result, version);
        let (loops, done) = (rounds(&result, "REMOVE"), count(&result, "delete"));
        is_sent(&result, version, loops, needed, &[]);
        assert!((done..=done + THREADS).contains(&loops), "{version}: {loops} for {done}");
    }
}

/// The mix is random, so that the requests follow from the operations that were done, and from those that ended after the measured time:
/// at most one of each thread. Files and links are in directories, files that are created and removed are not.
#[test]
fn request_mix() {
    for version in VERSIONS {
        let result = run("request-mix", version, &["files=60", "rate=500"]);
        let of = |operation: &str| count(&result, operation);
        let opens = of("read") + of("write");
        // With a directory and a name each.
        let both = of("stat") + opens + of("readlink") + of("chmod");
        let expected: &[(&str, u64)] = match version {
            // LOOKUP also of the entries of listed directories, which are random.
            "2" => &[
                ("GETATTR", opens + of("statfs")),
                ("READ", of("read")),
                ("WRITE", of("write")),
                ("READDIR", of("list")),
                ("READLINK", of("readlink")),
                ("CREATE", of("create")),
                ("REMOVE", of("remove")),
                ("SETATTR", of("chmod")),
                ("STATFS", of("statfs")),
            ],
            "3" => &[
                ("LOOKUP", 2 * both + of("list") + of("create") + of("remove")),
                ("ACCESS", opens),
                ("READ", of("read")),
                ("WRITE", of("write")),
                ("COMMIT", of("write")),
                ("READDIRPLUS", of("list")),
                ("READLINK", of("readlink")),
                ("CREATE", of("create")),
                ("REMOVE", of("remove")),
                ("SETATTR", of("chmod")),
                ("GETATTR", of("statfs")),
                ("FSSTAT", of("statfs")),
            ],
            // One compound for directory and name, but OPEN is one of its own. Free space is an attribute.
            _ => &[
                ("LOOKUP", both + of("list") + of("remove")),
                ("OPEN", opens + of("create")),
                ("CLOSE", opens + of("create")),
                ("READ", of("read")),
                ("WRITE", of("write")),
                ("COMMIT", of("write")),
                ("READDIR", of("list")),
                ("READLINK", of("readlink")),
                ("REMOVE", of("remove")),
                ("SETATTR", of("chmod")),
                ("GETATTR", 2 * of("statfs")),
            ],
        };
        let mut sent = sent(&result);
        if version == "2" {
            assert!(sent.remove("LOOKUP") >= Some(2 * both), "{version}");
        }
        for (name, number) in expected {
            let found = sent.get(*name).copied().unwrap_or(0);
            // No operation needs a request of a kind more than twice.
            let most = number + 2 * THREADS;
            assert!((*number..=most).contains(&found), "{version}: {found} {name} for {number}");
        }
        let others: Vec<&String> =
            sent.keys().filter(|name| expected.iter().all(|(expected, _)| expected != name)).collect();
        assert!(others.is_empty(), "{version}: {others:?}");
    }
}

/// A replay sends what its operations need: here those of creation, below a directory, whatever version the trace was recorded with.
#[test]
fn replays() {
    let needed = Of {
        v2: &[("LOOKUP", 2), ("CREATE", 1), ("WRITE", 1)],
        v3: &[("LOOKUP", 2), ("CREATE", 1), ("WRITE", 1), ("COMMIT", 1)],
        v4: &[("LOOKUP", 1), ("OPEN", 1), ("WRITE", 1), ("COMMIT", 1), ("CLOSE", 1)],
    };
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let trace = path("x.trace");
    let recorded = ["run", "create", "--target", "local:enfys-memory", "--nfs", "4.1", "--rounds", "1"];
    let size = ["--threads", "2", "--set", "files=40", "--set", "size=4KiB", "--record", &trace];
    printed(&bench(&[&recorded[..], &size, &["--results", &path("recorded")]].concat()));
    for version in VERSIONS {
        let results = path(version);
        let replay = ["trace", "replay", &trace, "--target", "local:enfys-memory", "--nfs", version];
        printed(&bench(&[&replay[..], &["--rounds", "1", "--no-think", "--results", &results]].concat()));
        let result = read_results(results.as_ref()).remove(0);
        assert_eq!(count(&result, "write"), 40, "{version}");
        is_sent(&result, version, 40, needed, &[]);
    }
}

/// What SQLite does in a transaction: `workloads::database::model` has the list.
#[test]
fn a_transaction_has_the_requests_of_a_rollback_journal() {
    const ROWS: u64 = 3;
    for version in &VERSIONS[1..] {
        let result = run("database", version, &[&format!("rows={ROWS}"), "table-rows=50"]);
        let is_3 = *version == "3";
        let requests = |name: &str| result["requests"][name]["requests"].as_u64().unwrap_or(0);
        // The removal of the journal is the commit. Each of two threads may end one after the measured time.
        let done = requests("REMOVE");
        let counted = count(&result, "transaction");
        assert!(counted > 0 && (counted..=counted + 2).contains(&done), "{version}: {done} of {counted}");
        let mut expected = vec![
            // PENDING, SHARED, RESERVED; PENDING, SHARED; SHARED.
            ("LOCK", 6 * done),
            // PENDING; PENDING and RESERVED; all. Version 3 has another protocol for locks.
            (if is_3 { "UNLOCK" } else { "LOCKU" }, 3 * done),
            // The journal, the write-ahead log, and the database, whose attributes the reply has. A client looks up what it removes,
            // which may be open; and in version 3 what it creates: CREATE needs more permissions than an existing file.
            ("LOOKUP", (3 + 1 + u64::from(is_3)) * done),
            // The change counter, and the pages of the rows.
            ("READ", (1 + ROWS) * done),
            (if is_3 { "CREATE" } else { "OPEN" }, done),
            // The journal's header, the rows' pages and the first page, the header again; then the same pages of the database.
            ("WRITE", (1 + (ROWS + 1) + 1 + (ROWS + 1)) * done),
            // The journal twice, and the database.
            ("COMMIT", 3 * done),
            ("REMOVE", done),
        ];
        if !is_3 {
            // The journals, and at the end two databases.
            expected.push(("CLOSE", done + 2));
        }
        if *version == "4.0" {
            // Without locks an owner is forgotten: RFC 7530 §16.37. RFC 8881 §18.38 does it in the compound of LOCKU.
            expected.push(("RELEASE_LOCKOWNER", done));
        }
        expected.sort_unstable();
        let sent = result["requests"].as_object().expect("operations").keys();
        // Not by transaction: leases are kept, the lock manager of version 3 is found, owners of version 4.0 are confirmed.
        let once = ["other", "RENEW", "SEQUENCE", "NULL", "OPEN_CONFIRM"];
        let sent = sent.map(String::as_str).filter(|name| !once.contains(name));
        let sent: Vec<(&str, u64)> = sent.map(|name| (name, requests(name))).collect();
        assert_eq!(sent, expected, "{version}");
    }
}
