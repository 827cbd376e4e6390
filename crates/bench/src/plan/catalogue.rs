//! The workloads that plans may name, with their parameters.
//!
//! Sizes and counts are those of the papers; the 2015 paper unless another year is given.

use std::collections::BTreeMap;

use super::value::Value;
use crate::units::{parse_size, size_text};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name in plans.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
}

/// A parameter of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in plans.
    pub name: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its value if a plan does not set it, as in a plan.
    pub default: &'static str,
    /// What it means, in one line.
    pub about: &'static str,
}

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A size in bytes, with minimum and maximum.
    Size(u64, u64),
    /// A count, with minimum and maximum.
    Count(u64, u64),
    /// true or false.
    Boolean,
    /// A file on the machine of the clients.
    Path,
    /// One of some words.
    Word(&'static [&'static str]),
}

impl Kind {
    /// Checks a value, and returns it in its canonical form: sizes in bytes with the largest unit.
    ///
    /// # Errors
    /// The expected value.
    pub fn check(self, value: &Value) -> Result<Value, String> {
        let (number, is_size) = match (self, value) {
            (Self::Path, Value::Text(_)) => return Ok(value.clone()),
            (Self::Path, Value::Count(number)) => return Ok(Value::Text(number.to_string())),
            (Self::Boolean, Value::Boolean(_)) => return Ok(value.clone()),
            (Self::Word(words), Value::Text(text)) if words.contains(&text.as_str()) => {
                return Ok(value.clone());
            }
            (Self::Size(..), Value::Text(text)) => (parse_size(text)?, true),
            (Self::Size(..), Value::Count(bytes)) => (*bytes, true),
            (Self::Count(..), Value::Count(count)) => (*count, false),
            _ => return Err(format!("`{value}`: expected {}", self.expected())),
        };
        let (Self::Size(least, most) | Self::Count(least, most)) = self else {
            return Err(format!("`{value}`: expected {}", self.expected()));
        };
        if !(least..=most).contains(&number) {
            return Err(format!("`{value}`: expected {}", self.expected()));
        }
        Ok(if is_size { Value::Text(size_text(number)) } else { Value::Count(number) })
    }

    fn expected(self) -> String {
        match self {
            Self::Size(least, most) => format!("a size from {} to {}", size_text(least), size_text(most)),
            Self::Count(least, most) => format!("a count from {least} to {most}"),
            Self::Boolean => "true or false".to_owned(),
            Self::Path => "the name of a file".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

impl Parameter {
    /// Returns the default as a value.
    #[must_use]
    pub fn default_value(&self) -> Value {
        match self.kind {
            Kind::Boolean => Value::Boolean(self.default == "true"),
            Kind::Count(..) => Value::Count(self.default.parse().unwrap_or_default()),
            Kind::Size(..) | Kind::Path | Kind::Word(_) => Value::Text(self.default.to_owned()),
        }
    }
}

const fn size(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Size(0, 1 << 50), default, about }
}

const fn io_size(default: &'static str) -> Parameter {
    Parameter { name: "io-size", kind: Kind::Size(1, 1 << 30), default, about: "bytes of one call" }
}

const fn count(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Count(1, 1_000_000_000), default, about }
}

const fn switch(name: &'static str, default: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Boolean, default, about }
}

const O_SYNC: Parameter = switch("o-sync", "true", "write with O_SYNC");
const FILE_SIZE: Parameter = size("file-size", "20GiB", "size of the file");
const FILES: Parameter = count("files", "10000", "files of each client");
const APPEND: Parameter = size("append", "16KiB", "bytes of one append");
const DELEGATIONS: Parameter = switch("delegations", "true", "accept delegations");
const DIRECTORY_WIDTH: Parameter = count("directory-width", "20", "entries of a directory, in the mean");

/// Returns the parameters of Filebench's personalities, with the number and mean size of files.
const fn filebench(files: &'static str, mean: &'static str, width: &'static str) -> [Parameter; 5] {
    [
        count("files", files, "files of each client"),
        size("mean-size", mean, "mean size of a file; sizes have a gamma distribution"),
        count("directory-width", width, "entries of a directory, in the mean"),
        io_size("1MiB"),
        APPEND,
    ]
}

const DATABASE: &[Parameter] = &[
    Parameter {
        name: "engine",
        kind: Kind::Word(&["model", "sqlite3"]),
        default: "model",
        about: "the requests of SQLite on any target, or the program sqlite3 in a mounted directory",
    },
    Parameter {
        name: "rows",
        kind: Kind::Count(1, 1000),
        default: "4",
        about: "rows that a transaction changes, each on a page of its own",
    },
    count("table-rows", "4096", "rows of a database, each on a page of 4 KiB"),
    Parameter {
        name: "journal",
        kind: Kind::Word(&["delete", "truncate", "persist", "wal"]),
        default: "delete",
        about: "SQLite's journal_mode; others than delete need engine=sqlite3",
    },
    switch("shared", "false", "all threads and clients use one database"),
];

const FILESERVER: &[Parameter] = &filebench("10000", "128KiB", "20");
const VARMAIL: &[Parameter] = &filebench("1000", "16KiB", "1000000");
const WEBSERVER: &[Parameter] = &[
    count("files", "1000", "files of each client"),
    size("mean-size", "16KiB", "mean size of a file; sizes have a gamma distribution"),
    DIRECTORY_WIDTH,
    io_size("1MiB"),
    APPEND,
    DELEGATIONS,
];

/// All workloads.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "random-read",
        about: "read one file at random offsets (Figures 1 and 2)",
        parameters: &[io_size("1MiB"), FILE_SIZE],
    },
    Workload {
        name: "sequential-read",
        about: "read one file from start to end, repeatedly (Figure 3)",
        parameters: &[io_size("1MiB"), FILE_SIZE],
    },
    Workload {
        name: "random-write",
        about: "write in place at random offsets (Figure 5)",
        parameters: &[io_size("64KiB"), FILE_SIZE, O_SYNC],
    },
    Workload {
        name: "sequential-write",
        about: "write in place from start to end, repeatedly",
        parameters: &[io_size("1MiB"), FILE_SIZE, O_SYNC],
    },
    Workload {
        name: "small-files",
        about: "read whole small files at random (Figures 6 and 7)",
        parameters: &[FILES, size("size", "4KiB", "size of a file")],
    },
    Workload {
        name: "create",
        about: "create files (Figures 8 to 11)",
        parameters: &[FILES, size("size", "0", "size of a file")],
    },
    Workload {
        name: "list",
        about: "list random directories of a tree of empty files (Figure 12)",
        parameters: &[
            count("files", "50000", "files of the tree"),
            count("directory-width", "5", "entries of a directory, in the mean"),
        ],
    },
    Workload {
        name: "locked-reads",
        about: "open, lock, read, unlock and close each file several times (Table 1)",
        parameters: &[
            count("files", "1000", "files, shared by all clients"),
            count("repeats", "10", "times that a client works on each file"),
            size("size", "4KiB", "size of a file"),
        ],
    },
    Workload {
        name: "recall",
        about: "clients have files open for reading, others open them for writing (Section 5.3)",
        parameters: &[
            count("files", "1000", "files, shared by all clients"),
            count("holders", "1", "clients that have them open"),
            Parameter {
                name: "openers",
                kind: Kind::Count(0, 10_000),
                default: "0",
                about: "clients that open them for writing, 0 for all further ones; the rest is idle",
            },
        ],
    },
    Workload {
        name: "stream-write",
        about: "write a fresh file, fsync, close; three cumulative throughputs (2002)",
        parameters: &[io_size("8KiB"), size("file-size", "100MiB", "size of the file")],
    },
    Workload {
        name: "fileserver",
        about: "Filebench's file server (Figures 14 and 15)",
        parameters: FILESERVER,
    },
    Workload {
        name: "webserver",
        about: "Filebench's web server (Figures 16 and 17)",
        parameters: WEBSERVER,
    },
    Workload { name: "varmail", about: "Filebench's mail server (Figures 18 and 19)", parameters: VARMAIL },
    Workload {
        name: "database",
        about: "transactions of SQLite, each of which changes random rows and is stable at its end",
        parameters: DATABASE,
    },
    Workload { name: "basic", about: "the operations of Connectathon's Basic tests (1994)", parameters: &[] },
    Workload {
        name: "find",
        about: "search a tree as find(1) does (1994, Table 2)",
        parameters: &[
            count("files", "9612", "files of the tree"),
            count("directory-width", "64", "entries of a directory at most"),
        ],
    },
    Workload {
        name: "source-tree",
        about: "unpack, search and remove a tree of source files (2008)",
        parameters: &[
            count("files", "24000", "files of each thread's tree"),
            size("mean-size", "11KiB", "mean size of a file; sizes have a gamma distribution"),
            DIRECTORY_WIDTH,
        ],
    },
    Workload {
        name: "bonnie",
        about: "the tests of Bonnie++: a large file, and many empty ones (2008)",
        parameters: &[
            io_size("8KiB"),
            size(
                "file-size",
                "4GiB",
                "size of each thread's file; twice the memory, so that no cache holds it",
            ),
            count("seeks", "8000", "random reads; each tenth is followed by a write"),
            count("files", "16384", "empty files of each thread"),
            switch("sync", "false", "sync(2) after creation and deletion in a mounted directory"),
        ],
    },
    Workload {
        name: "replay",
        about: "replay a trace; clients and threads are those of the trace",
        parameters: &[
            Parameter { name: "trace", kind: Kind::Path, default: "", about: "the trace" },
            count("speed-percent", "100", "think times are divided by this; 200 is twice as fast"),
            switch("think", "true", "wait as long between two operations as the program did"),
        ],
    },
    Workload {
        name: "request-mix",
        about: "operations in the proportions of SPEC SFS 97, at a given rate",
        parameters: &[
            count("rate", "100", "operations a second of each client"),
            count("files", "1000", "files of each client"),
        ],
    },
];

/// Returns why a workload cannot have these parameters together, each of which is valid.
pub(super) fn contradiction(workload: &str, parameters: &BTreeMap<String, Value>) -> Option<String> {
    if workload != "database" {
        return None;
    }
    let is = |name: &str, value: &str| parameters.get(name) == Some(&Value::Text(value.to_owned()));
    let count = |name: &str| match parameters.get(name) {
        Some(Value::Count(count)) => *count,
        _ => 0,
    };
    if is("engine", "model") && !is("journal", "delete") {
        return Some("the model has the journal mode `delete` alone: set engine = \"sqlite3\"".to_owned());
    }
    let (rows, all) = (count("rows"), count("table-rows"));
    (rows > all).then(|| format!("a transaction of {rows} rows, and the table has {all}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_valid_and_canonical() {
        for parameter in WORKLOADS.iter().flat_map(|workload| workload.parameters) {
            let value = parameter.default_value();
            assert_eq!(parameter.kind.check(&value), Ok(value), "{}", parameter.name);
        }
    }

    #[test]
    fn names_are_unique() {
        for (index, workload) in WORKLOADS.iter().enumerate() {
            assert!(WORKLOADS[..index].iter().all(|other| other.name != workload.name));
            for (index, parameter) in workload.parameters.iter().enumerate() {
                assert!(workload.parameters[..index].iter().all(|other| other.name != parameter.name));
            }
        }
    }

    #[test]
    fn words_are_those_of_a_list() {
        let kind = Kind::Word(&["delete", "wal"]);
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(kind.check(&text("wal")), Ok(text("wal")));
        assert_eq!(kind.check(&text("Wal")), Err("`Wal`: expected one of delete, wal".to_owned()));
        assert!(kind.check(&Value::Count(1)).is_err());
    }

    #[test]
    fn sizes_have_one_form() {
        let kind = Kind::Size(1, 1 << 20);
        let text = |text: &str| Value::Text(text.to_owned());
        for same in [text("4KiB"), text("4096"), Value::Count(4096)] {
            assert_eq!(kind.check(&same), Ok(text("4KiB")));
        }
        for wrong in [Value::Count(0), text("2MiB"), text("four"), Value::Boolean(true)] {
            assert!(kind.check(&wrong).is_err(), "{wrong}");
        }
    }
}
