//! The configuration file: TOML, every key known, every wrong one named.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

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
    /// Bounds.
    pub limits: Limits,
    /// What to serve.
    pub export: Vec<ExportConfig>,
}

/// Bounds on what clients can make the server do.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Connections open at once.
    pub connections: Option<usize>,
    /// Bytes of a READ or WRITE.
    pub io_bytes: Option<u32>,
    /// Bytes of cached NFSv3 replies.
    pub reply_cache_bytes: Option<usize>,
    /// Bytes of cached NFSv4.1 replies.
    pub slot_cache_bytes: Option<usize>,
    /// NFSv4 clients.
    pub clients: Option<usize>,
    /// NFSv4 opens, locks and delegations.
    pub state: Option<usize>,
    /// NFSv4 lease in seconds.
    pub lease_seconds: Option<u32>,
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
    /// Whether to answer before data are stable.
    pub r#async: bool,
}

/// Reads a configuration file.
///
/// # Errors
/// One line that names the file, the line and the key.
pub fn read(path: &Path) -> Result<Config, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        format!("{}:{line}: {}", path.display(), error.message().replace('\n', ", "))
    })
}
