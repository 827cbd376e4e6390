//! The cases and runs of an expanded plan.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;

use super::client_options::{ClientOptions, LinkOptions};
use super::file::{Caches, NfsVersion};
use super::value::Value;
use crate::units::time_text;

/// Maximum characters of the readable part of an id: file names have 255 bytes, and a suffix follows.
const ID_CHARACTERS_MAX: usize = 180;

/// The kind of target that an address names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetKind {
    /// A server that runs already, through Enfys's client: `nfs://HOST[:PORT]/EXPORT`.
    Remote {
        /// Host and port.
        host: String,
        /// The exported path.
        export: String,
    },
    /// A server that the bench starts: `local:NAME`.
    Local {
        /// The server's name.
        server: String,
    },
    /// A mounted directory: an absolute path.
    Directory {
        /// Its path.
        path: String,
    },
}

/// The method that empties the caches of a target before a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cold {
    /// Each run has a new client, which has nothing cached; the server keeps its caches.
    NewClient,
    /// The server is restarted, and each run has a new client.
    Restart,
    /// The kernel drops its caches (`/proc/sys/vm/drop_caches`); needs root.
    DropCaches,
    /// A shell command, which must succeed.
    Command(String),
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its name in reports.
    pub name: String,
    /// Its address.
    pub server: String,
    /// The kind of that address.
    pub kind: TargetKind,
    /// The method that empties its caches, if the plan requests it.
    pub cold: Option<Cold>,
    /// Where its counters are, as `HOST:PORT[/PATH]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
}

/// One combination of everything that a plan varies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Name of the workload.
    pub workload: String,
    /// All its parameters, those with default values too.
    pub parameters: BTreeMap<String, Value>,
    /// The target.
    pub target: Target,
    /// Version of NFS; `None` for a mounted directory.
    pub version: Option<NfsVersion>,
    /// Options of the client, as in a URL's query; empty for the default, and for a mounted directory.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub options: String,
    /// Additional round trip.
    #[serde(with = "crate::units::time_format")]
    pub delay: Duration,
    /// Threads of each client.
    pub threads: u32,
    /// Clients.
    pub clients: u32,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its name, which is that of its result file: the same for the same case, round, times and seed.
    pub id: String,
    /// The round, from 1.
    pub round: u32,
    /// The measured workload.
    pub case: Case,
    /// Seed of the run: all cases of a round have the same one.
    pub seed: u64,
    /// Measured time.
    #[serde(with = "crate::units::time_format")]
    pub duration: Duration,
    /// Time before that, which is not measured.
    #[serde(with = "crate::units::time_format")]
    pub warm_up: Duration,
    /// Whether the run starts with cold caches.
    pub caches: Caches,
}

impl Run {
    /// Creates a run, and its id.
    pub(super) fn new(
        case: &Case,
        round: u32,
        seed: u64,
        times: (Duration, Duration),
        caches: Caches,
    ) -> Self {
        let (duration, warm_up) = times;
        let mut run = Self { id: String::new(), round, case: case.clone(), seed, duration, warm_up, caches };
        // Everything that affects the result is in the JSON, whose maps are sorted.
        let canonical = serde_json::to_string(&run).expect("a run has only strings and numbers");
        let mut hasher = SipHasher24::new();
        hasher.write(canonical.as_bytes());
        run.id = format!("{}-r{round}-{:08x}", case.label(), hasher.finish() >> 32);
        run
    }
}

impl Case {
    /// Returns the properties of the link that the client's options ask for; the plan has checked them.
    #[must_use]
    pub fn link(&self) -> LinkOptions {
        ClientOptions::parse("nfs://localhost/", &self.options)
            .map(|options| options.link)
            .unwrap_or_default()
    }

    /// Returns a readable name that is valid as a file name: `create-enfys-v4.1-10ms-t16-c5`.
    #[must_use]
    pub fn label(&self) -> String {
        let version = self.version.map_or("mounted".to_owned(), |version| format!("v{version}"));
        let delay = time_text(self.delay);
        let Self { workload, target, options, threads, clients, .. } = self;
        let options = if options.is_empty() { String::new() } else { format!("-{options}") };
        let label = format!("{workload}-{}-{version}-{delay}-t{threads}-c{clients}{options}", target.name);
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        label.chars().take(ID_CHARACTERS_MAX).map(allowed).collect()
    }
}
