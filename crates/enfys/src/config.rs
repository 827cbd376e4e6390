//! The configuration file: TOML, every key known, every wrong one named with its line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use store::error_text;

use crate::address::Address;
use crate::explain::explain;
use crate::places::Places;

/// What a configuration file can say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<Address>,
    /// Address of the metrics.
    pub metrics: Option<Address>,
    /// Where durable state lives.
    pub state_dir: Option<PathBuf>,
    /// Whether a server without root serves all users of this machine.
    pub local_users: bool,
    /// Whether to answer port mapper calls.
    pub portmap: bool,
    /// Versions of NFS to serve, as mount options name them; all unless given.
    pub versions: Option<Vec<String>>,
    /// Domain of owners' and groups' names in NFSv4; numbers are told unless it is given.
    pub id_domain: Option<String>,
    /// Whether sessions of NFSv4.1 outlive the server and its machine.
    pub persistent_sessions: bool,
    /// Whether NFSv4.2 clients may have other servers read what they may read themselves (COPY_NOTIFY).
    pub copy_source: bool,
    /// Networks of the servers that NFSv4.2 clients may have files copied from (COPY); none unless given.
    pub copy_from: Vec<String>,
    /// The keys of `nfs/HOST`, for exports that take Kerberos; the library's own choice unless given, mostly
    /// `/etc/krb5.keytab`.
    pub keytab: Option<PathBuf>,
    /// Whether the server gives up what serving does not need; it does unless given.
    pub sandbox: Option<bool>,
    /// Where `enfys status` finds the server.
    pub control: Control,
    /// Bounds.
    pub limits: Limits,
    /// What to serve.
    #[serde(rename = "export")]
    pub exports: Vec<ExportConfig>,
    /// Where its keys stand, for messages.
    #[serde(skip)]
    pub places: Arc<Places>,
}

/// `[control]`.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// The socket; one in the state directory unless given.
    pub socket: Option<PathBuf>,
}

/// Bounds on what clients can make the server do.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Connections open at once.
    pub connections: Option<usize>,
    /// Connections of one address open at once.
    pub connections_per_address: Option<usize>,
    /// Bytes that long requests may hold while they arrive or wait, over all connections.
    pub memory_bytes: Option<usize>,
    /// Bytes of a READ or WRITE.
    pub io_bytes: Option<u32>,
    /// Bytes of cached NFSv3 replies.
    pub reply_cache_bytes: Option<usize>,
    /// Bytes of NFSv4.1 slots and the replies cached in them; 64 MiB and 10 KiB a client unless given.
    pub slot_cache_bytes: Option<usize>,
    /// Bytes of listings that are told again, and of what it takes to know whether they are true; 0 for none.
    pub kept_listings_bytes: Option<usize>,
    /// NFSv4 clients.
    pub clients: Option<usize>,
    /// NFSv4 opens, locks and delegations together.
    pub state: Option<usize>,
    /// NFSv4 delegations of all clients; 0 for none at all.
    pub delegations: Option<usize>,
    /// NFSv4 lease in seconds.
    pub lease_seconds: Option<u32>,
    /// Seconds until the connection of a peer that has vanished is closed; at least 9.
    pub silence_seconds: Option<u32>,
    /// Microseconds that a thread looks for the next request of a client that asks for one thing after the other, before it sleeps; 0
    /// for none, 1000 at most.
    pub busy_poll_microseconds: Option<u32>,
    /// Threads that serve.
    pub cores: Option<usize>,
}

/// Values that a limit may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    least: u64,
    /// None where the greatest integer of TOML is fine.
    most: Option<u64>,
}

impl Range {
    const fn from(least: u64) -> Self {
        Self { least, most: None }
    }

    const fn within(least: u64, most: u64) -> Self {
        Self { least, most: Some(most) }
    }

    /// Whether a value is in it.
    pub fn contains(&self, value: u64) -> bool {
        value >= self.least && self.most.is_none_or(|most| value <= most)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.most {
            Some(most) => write!(f, "an integer from {} to {most}", self.least),
            None => write!(f, "an integer of at least {}", self.least),
        }
    }
}

/// READs and WRITEs that make sense: at least a page, at most what the wire types decode.
const IO_BYTES: Range = Range::within(4096, 4 << 20);

impl Limits {
    /// All of them: key, value, and the values that it may have.
    pub fn all(&self) -> [(&'static str, Option<u64>, Range); 14] {
        let size = |value: Option<usize>| value.map(|value| value as u64);
        let some = Range::from(1);
        let any = Range::from(0);
        [
            ("connections", size(self.connections), some),
            ("connections-per-address", size(self.connections_per_address), some),
            ("memory-bytes", size(self.memory_bytes), some),
            ("io-bytes", self.io_bytes.map(u64::from), IO_BYTES),
            ("reply-cache-bytes", size(self.reply_cache_bytes), any),
            ("slot-cache-bytes", size(self.slot_cache_bytes), any),
            ("kept-listings-bytes", size(self.kept_listings_bytes), any),
            ("clients", size(self.clients), some),
            ("state", size(self.state), some),
            ("delegations", size(self.delegations), any),
            ("lease-seconds", self.lease_seconds.map(u64::from), Range::within(1, 3600)),
            ("silence-seconds", self.silence_seconds.map(u64::from), Range::within(9, 3600)),
            ("busy-poll-microseconds", self.busy_poll_microseconds.map(u64::from), Range::within(0, 1000)),
            ("cores", size(self.cores), some),
        ]
    }
}

/// `squash = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SquashConfig {
    /// Root becomes the anonymous user.
    Root,
    /// Everybody does.
    All,
    /// Nobody does.
    None,
}

/// `local-changes = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LocalChangesConfig {
    /// They recall delegations, where they can be seen.
    Recall,
    /// Nobody looks for them.
    Ignore,
}

/// `submounts = "…"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SubmountsConfig {
    /// Clients are refused where another file system is mounted inside.
    Hide,
    /// They go on into it.
    Serve,
}

/// `[[export.client]]`: what an export is to some clients; as the export has it where it says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ClientConfig {
    /// Which clients.
    pub clients: Vec<String>,
    /// Whether their changes are refused.
    pub read_only: Option<bool>,
    /// Whom to squash.
    pub squash: Option<SquashConfig>,
    /// User id of squashed callers.
    pub anonymous_uid: Option<u32>,
    /// Group id of squashed callers.
    pub anonymous_gid: Option<u32>,
    /// Security flavors that may be used, the most preferred first.
    pub sec: Option<Vec<String>>,
    /// Whether AUTH_SYS is taken from any port of theirs.
    pub insecure: Option<bool>,
}

/// `[[export]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ExportConfig {
    /// The directory; none for one in memory.
    pub path: Option<PathBuf>,
    /// Whether it is a file system in memory.
    pub memory: bool,
    /// Bytes that a file system in memory may take.
    pub memory_bytes: Option<u64>,
    /// Bytes that one user other than root may take of it.
    pub quota_bytes: Option<u64>,
    /// The path that clients mount it by.
    pub pseudo: Option<String>,
    /// Its number in handles; made of the path and the file system unless given.
    pub id: Option<u32>,
    /// Whether changes are refused.
    pub read_only: bool,
    /// Whom to squash.
    pub squash: Option<SquashConfig>,
    /// User id of squashed callers.
    pub anonymous_uid: Option<u32>,
    /// Group id of squashed callers.
    pub anonymous_gid: Option<u32>,
    /// Networks that may come; everyone unless given.
    pub clients: Vec<String>,
    /// Security flavors that may be used, the most preferred first; `sys` unless given.
    pub sec: Option<Vec<String>>,
    /// Whether AUTH_SYS is taken from any port of other machines.
    pub insecure: bool,
    /// Whether to answer before data are stable.
    pub r#async: bool,
    /// What is different for some clients.
    pub client: Vec<ClientConfig>,
    /// What local processes' changes do to delegations; they recall them unless given.
    pub local_changes: Option<LocalChangesConfig>,
    /// What clients find where another file system is mounted inside the directory; nothing unless given.
    pub submounts: Option<SubmountsConfig>,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// One line that names the file, the line and the key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {}", path.display(), error_text(&error)))?;
        let config: Self = toml::from_str(&text).map_err(|error| explain(path, &text, &error))?;
        Ok(Self { places: Arc::new(Places::new(path, &text)), ..config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let name = file.path().display().to_string();
        Config::read(file.path()).map_err(|error| error.replace(&name, "FILE"))
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line_and_the_one_that_is_meant() {
        for (text, expected) in [
            (
                "portmap = true\n[limits]\nconnektions = 4\n",
                "FILE:3: unknown key `connektions` (did you mean `connections`?), expected one of `connections`, ",
            ),
            (
                "[[export]]\npath = '/a'\n\n[[export]]\nread_only = true\n",
                "FILE:5: unknown key `read_only` (did you mean `read-only`?), expected one of `path`, ",
            ),
            ("squash = 'all'", "FILE:1: unknown key `squash` (it belongs in [[export]]), expected one of "),
            ("io-bytes = 5", "FILE:1: unknown key `io-bytes` (it belongs in [limits]), expected one of "),
            (
                "[control]\nsockets = '/a'",
                "FILE:2: unknown key `sockets` (did you mean `socket`?), expected `socket`",
            ),
            (
                "connections = 5",
                "FILE:1: unknown key `connections` (it belongs in [limits]), expected one of ",
            ),
            ("xyz = 1", "FILE:1: unknown key `xyz`, expected one of `listen`, `metrics`, "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_and_key_and_what_was_expected() {
        let forms = crate::address::FORMS;
        for (text, expected) in [
            ("listen = ['localhost']", format!("FILE:1: `listen`: expected {forms}, found `localhost`")),
            (
                "listen = [\n'2049',\ntrue]",
                format!("FILE:3: `listen`: expected a list of addresses, each {forms}, found boolean `true`"),
            ),
            ("listen = 'x'", format!("FILE:1: `listen`: expected a list of addresses, each {forms}, found string \"x\"")),
            ("\nmetrics = true", format!("FILE:2: `metrics`: expected {forms}, found boolean `true`")),
            (
                "[[export]]\npath = '/a'\nsquash = 'some'",
                "FILE:3: `squash` in [[export]]: unknown value `some`, expected one of `root`, `all`, `none`".into(),
            ),
            (
                "[[export]]\npath = '/a'\nlocal-changes = 'watch'",
                "FILE:3: `local-changes` in [[export]]: unknown value `watch`, expected `recall` or `ignore`".into(),
            ),
            (
                "[[export]]\npath = '/a'\nsubmounts = 'cross'",
                "FILE:3: `submounts` in [[export]]: unknown value `cross`, expected `hide` or `serve`".into(),
            ),
            (
                "[limits]\nio-bytes = -1",
                "FILE:2: `io-bytes` in [limits]: expected an integer from 4096 to 4194304, found integer `-1`".into(),
            ),
            (
                "[limits]\nclients = '5'",
                "FILE:2: `clients` in [limits]: expected an integer of at least 1, found string \"5\"".into(),
            ),
            (
                "[[export]]\nid = 4294967296",
                "FILE:2: `id` in [[export]]: expected an integer from 1 to 4294967295, found integer `4294967296`".into(),
            ),
            (
                "[[export]]\nmemory = true\nmemory-bytes = '4GiB'",
                "FILE:3: `memory-bytes` in [[export]]: expected a number of bytes, as in 4294967296, found string \"4GiB\"".into(),
            ),
            ("[export]\npath = '/a'", "FILE:1: `export`: expected a list of tables, each with the header [[export]], found a table".into()),
            ("[limits]\nclients = 99999999999999999999", "FILE:2: `clients` in [limits]: expected an integer of at least 1, found integer `99999999999999999999`".into()),
            ("[[export]]\npath = 7", "FILE:2: `path` in [[export]]: expected an absolute path, as in".into()),
            ("[[export]]\npath = '/a'\nasync = 1", "FILE:3: `async` in [[export]]: expected true or false, found".into()),
            ("[[export]]\nclients = [\n7]", "FILE:3: `clients` in [[export]]: expected a list of networks, host names, wildcards and netgroups, as in".into()),
            ("versions = [4.1]", "FILE:1: `versions`: expected a list of versions, as in [\"3\", \"4.1\"], found".into()),
            ("portmap = true\nportmap = true", "FILE:2: not valid TOML: duplicate key, in `portmap = true`".into()),
            ("[[export]]\npath = '/a", "FILE:2: not valid TOML: ".into()),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(&expected), "{text}: {error}, expected {expected}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_port_alone_is_an_address() {
        let config = read("listen = [2049, '2050', 'localhost:2051']\nmetrics = 9100").unwrap();
        let shown: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["127.0.0.1:2049", "127.0.0.1:2050", "localhost:2051"]);
        assert_eq!(config.metrics, Some(Address::local(9100)));
    }

    #[test]
    fn every_limit_has_a_range() {
        let toml = |name: &str| format!("[limits]\n{name} = 9");
        for (name, ..) in Limits::default().all() {
            let config = read(&toml(name)).unwrap();
            let set: Vec<_> =
                config.limits.all().into_iter().filter(|(_, value, _)| value.is_some()).collect();
            assert_eq!((set.len(), set[0].0, set[0].1), (1, name, Some(9)));
        }
    }
}
