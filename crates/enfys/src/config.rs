//! The configuration file: TOML, every key known, every wrong one named with its line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

/// What a configuration file can say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Address of the metrics.
    pub metrics: Option<SocketAddr>,
    /// Where durable state lives.
    pub state_dir: Option<PathBuf>,
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
    /// Where `enfys status` finds the server.
    pub control: Control,
    /// Bounds.
    pub limits: Limits,
    /// What to serve.
    export: Vec<Spanned<ExportConfig>>,
    /// Where it was read, and its text: for messages.
    #[serde(skip)]
    source: (PathBuf, String),
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
    /// Whether to answer before data are stable.
    pub r#async: bool,
    /// What local processes' changes do to delegations; they recall them unless given.
    pub local_changes: Option<LocalChangesConfig>,
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// One line that names the file, the line and the key.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {}", path.display(), crate::said(&error)))?;
        let parsed: Result<Self, toml::de::Error> = toml::from_str(&text);
        let source = (path.to_path_buf(), text);
        match parsed {
            Ok(config) => Ok(Self { source, ..config }),
            Err(error) => {
                let at = error.span().map_or(0, |span| span.start);
                Err(format!("{}: {}", place(&source, at), error.message().replace('\n', ", ")))
            }
        }
    }

    /// All exports, each with its place (`FILE:LINE`) for messages.
    pub fn exports(&self) -> impl Iterator<Item = (String, &ExportConfig)> {
        self.export.iter().map(|export| (place(&self.source, export.span().start), export.get_ref()))
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.source.0
    }
}

/// `FILE:LINE` of a byte of a file's text.
fn place((path, text): &(PathBuf, String), at: usize) -> String {
    let before = text.get(..at).unwrap_or_default();
    format!("{}:{}", path.display(), before.matches('\n').count() + 1)
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
    fn a_wrong_key_is_named_with_its_line() {
        let error = read("portmap = true\n[limits]\nconnektions = 4\n").unwrap_err();
        assert!(error.starts_with("FILE:3: ") && error.contains("connektions"), "{error}");
        let error = read("[[export]]\npath = '/a'\n\n[[export]]\nreadonly = true\n").unwrap_err();
        assert!(error.starts_with("FILE:5: ") && error.contains("readonly"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line() {
        for (text, line) in [
            ("listen = ['localhost']", 1),
            ("\nmetrics = 9100", 2),
            ("[[export]]\npath = '/a'\nsquash = 'some'", 3),
            ("[[export]]\npath = '/a'\nlocal-changes = 'watch'", 3),
            ("[limits]\nio-bytes = -1", 2),
            ("portmap = true\nportmap = true", 2),
            ("[[export]]\npath = '/a", 2),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(&format!("FILE:{line}: ")), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn exports_know_their_places() {
        let config = read("portmap = false\n\n[[export]]\npath = '/a'\n[[export]]\nmemory = true\n").unwrap();
        let places: Vec<_> =
            config.exports().map(|(place, _)| place.rsplit(':').next().unwrap().to_owned()).collect();
        assert_eq!(places, ["3", "5"]);
    }
}
