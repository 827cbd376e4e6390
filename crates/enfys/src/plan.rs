//! What to serve and how: the command line over the configuration file over the defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use server::{DEFAULT_ANONYMOUS, ExportOptions, Network, Settings, Squash};
use vfs::Credentials;

use crate::cli::{ServeArguments, SquashArgument};
use crate::config::{self, Config, ExportConfig, Limits, SquashConfig};

/// Port of NFS (RFC 1813 §2.2, RFC 8881 §2.9.3).
const NFS_PORT: u16 = 2049;

/// The path an export is mounted by unless told otherwise.
const DEFAULT_PSEUDO: &str = "/export";

/// Everything that `enfys serve` was told.
#[derive(Debug)]
pub struct Plan {
    pub listen: Vec<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub state_dir: Option<PathBuf>,
    pub port_mapper: PortMapper,
    pub limits: Limits,
    pub exports: Vec<ExportPlan>,
}

/// One export.
#[derive(Debug, Clone)]
pub struct ExportPlan {
    pub source: Source,
    pub pseudo: String,
    pub id: Option<u32>,
    pub options: ExportOptions,
}

/// What is behind an export; equal sources are one and the same file system when exports are read again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A directory, and whether changes are on stable storage before they are answered.
    Directory { path: PathBuf, is_async: bool },
    /// Memory, told apart by the path it is mounted by.
    Memory { pseudo: String, bytes: Option<u64> },
}

/// Who tells clients where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortMapper {
    /// Nobody: clients are told port numbers by people.
    None,
    /// The server itself.
    Own,
    /// One that runs on this machine already, with which the server registers.
    Other,
}

impl PortMapper {
    fn choose(is_wanted: bool) -> Self {
        let is_running =
            || std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, protocol::portmap::PORT)).is_ok();
        match is_wanted {
            false => Self::None,
            true if is_running() => Self::Other,
            true => Self::Own,
        }
    }
}

impl Plan {
    /// Puts command line and configuration together.
    ///
    /// # Errors
    /// One line that says what is wrong with which of them.
    pub fn new(arguments: &ServeArguments) -> Result<Self, String> {
        let config = match &arguments.config {
            Some(path) => config::read(path)?,
            None => Config::default(),
        };
        let mut exports = exports_of_arguments(arguments)?;
        if exports.is_empty() {
            exports = exports_of(&config)?;
        }
        if exports.is_empty() {
            return Err(
                "nothing to serve: give a directory, --memory, or a configuration with an [[export]]".into(),
            );
        }
        let mut listen = if arguments.listen.is_empty() { config.listen } else { arguments.listen.clone() };
        if listen.is_empty() {
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT)));
        }
        let mut limits = config.limits;
        limits.cores = arguments.cores.or(limits.cores);
        check_limits(&limits)?;
        Ok(Self {
            listen,
            metrics: arguments.metrics.or(config.metrics),
            state_dir: arguments.state_dir.clone().or(config.state_dir),
            port_mapper: PortMapper::choose(arguments.portmap || config.portmap),
            limits,
            exports,
        })
    }

    /// The port that clients are told.
    pub fn port(&self) -> u16 {
        self.listen.first().map_or(NFS_PORT, SocketAddr::port)
    }

    /// Whether nothing served outlives the server.
    pub fn is_transient(&self) -> bool {
        self.exports.iter().all(|export| matches!(export.source, Source::Memory { .. }))
    }
}

/// `enfys check-config`.
///
/// # Errors
/// One line that names what is wrong.
pub fn check(path: &Path) -> Result<(), String> {
    let config = config::read(path)?;
    check_limits(&config.limits)?;
    let exports = exports_of(&config)?;
    if exports.is_empty() {
        return Err(format!("{}: no [[export]]: nothing to serve", path.display()));
    }
    for export in &exports {
        if let Source::Directory { path, .. } = &export.source {
            let metadata = std::fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
            if !metadata.is_dir() {
                return Err(format!("{}: not a directory", path.display()));
            }
        }
        println!("{}", export.describe());
    }
    Ok(())
}

impl ExportPlan {
    /// One line for people.
    pub fn describe(&self) -> String {
        let source = match &self.source {
            Source::Directory { path, is_async } => {
                format!("{} ({})", path.display(), if *is_async { "async" } else { "sync" })
            }
            Source::Memory { .. } => "memory".into(),
        };
        let squash = match self.options.squash {
            Squash::None => "nobody squashed",
            Squash::Root => "root squashed",
            Squash::All => "all squashed",
        };
        let access = if self.options.read_only { "read-only" } else { "read-write" };
        let clients = match self.options.clients.as_slice() {
            [] => "any client that reaches it".into(),
            networks => networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        format!("{source} as {}: {access}, {squash}, for {clients}", self.pseudo)
    }
}

fn exports_of_arguments(arguments: &ServeArguments) -> Result<Vec<ExportPlan>, String> {
    let options = ExportOptions {
        read_only: arguments.read_only,
        squash: match arguments.squash {
            None | Some(SquashArgument::Root) => Squash::Root,
            Some(SquashArgument::All) => Squash::All,
            Some(SquashArgument::None) => Squash::None,
        },
        ..ExportOptions::default()
    };
    if arguments.memory {
        let pseudo = match arguments.paths.as_slice() {
            [] => DEFAULT_PSEUDO.to_string(),
            [pseudo] if pseudo.starts_with(":/") => pseudo[1..].to_string(),
            [directory, ..] => {
                return Err(format!(
                    "--memory serves no directory: leave out `{directory}`, or give `:/PSEUDO`"
                ));
            }
        };
        let source = Source::Memory { pseudo: pseudo.clone(), bytes: None };
        return Ok(vec![ExportPlan { source, pseudo, id: None, options }]);
    }
    let plans = arguments.paths.iter().map(|argument| {
        let (path, pseudo) = match argument.rsplit_once(":/") {
            Some((path, pseudo)) => (path, format!("/{pseudo}")),
            None => (argument.as_str(), DEFAULT_PSEUDO.to_string()),
        };
        let path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
        let source = Source::Directory { path, is_async: arguments.r#async };
        Ok(ExportPlan { source, pseudo, id: None, options: options.clone() })
    });
    plans.collect()
}

fn exports_of(config: &Config) -> Result<Vec<ExportPlan>, String> {
    config.export.iter().map(export_of).collect()
}

fn export_of(config: &ExportConfig) -> Result<ExportPlan, String> {
    let pseudo = config.pseudo.clone().unwrap_or_else(|| DEFAULT_PSEUDO.into());
    let wrong = |what: &str| format!("export {pseudo}: {what}");
    let source = match (&config.path, config.memory) {
        (Some(path), false) if !path.is_absolute() => return Err(wrong("`path` must be absolute")),
        (Some(path), false) => Source::Directory { path: path.clone(), is_async: config.r#async },
        (None, true) => Source::Memory { pseudo: pseudo.clone(), bytes: config.memory_bytes },
        (Some(_), true) => return Err(wrong("`path` and `memory` exclude each other")),
        (None, false) => return Err(wrong("needs a `path`, or `memory = true`")),
    };
    if config.id == Some(0) {
        return Err(wrong("`id` must not be 0"));
    }
    let clients: Result<Vec<Network>, String> =
        config.clients.iter().map(|network| network.parse()).collect();
    let anonymous = Credentials {
        uid: config.anonymous_uid.unwrap_or(DEFAULT_ANONYMOUS),
        gid: config.anonymous_gid.unwrap_or(DEFAULT_ANONYMOUS),
        groups: Arc::from([]),
    };
    let options = ExportOptions {
        read_only: config.read_only,
        squash: match config.squash {
            None | Some(SquashConfig::Root) => Squash::Root,
            Some(SquashConfig::All) => Squash::All,
            Some(SquashConfig::None) => Squash::None,
        },
        anonymous: Arc::new(anonymous),
        clients: clients.map_err(|why| wrong(&format!("`clients`: {why}")))?,
    };
    Ok(ExportPlan { source, pseudo, id: config.id, options })
}

/// Smallest and greatest READ or WRITE that make sense: a page, and what the wire types decode.
const IO_BYTES: std::ops::RangeInclusive<u32> = 4096..=4 << 20;

fn check_limits(limits: &Limits) -> Result<(), String> {
    if limits.io_bytes.is_some_and(|bytes| !IO_BYTES.contains(&bytes)) {
        return Err(format!("limits: `io-bytes` must be {} to {}", IO_BYTES.start(), IO_BYTES.end()));
    }
    if limits.lease_seconds.is_some_and(|seconds| !(1..=3600).contains(&seconds)) {
        return Err("limits: `lease-seconds` must be 1 to 3600".into());
    }
    let zero = [("connections", limits.connections), ("clients", limits.clients), ("cores", limits.cores)];
    match zero.iter().find(|(_, value)| *value == Some(0)) {
        Some((name, _)) => Err(format!("limits: `{name}` must not be 0")),
        None => Ok(()),
    }
}

/// Applies configured bounds to the server's settings.
pub fn apply(limits: &Limits, settings: &mut Settings) {
    if let Some(bytes) = limits.io_bytes {
        settings.max_io = bytes;
        settings.max_record = bytes + Settings::RECORD_OVERHEAD;
    }
    settings.reply_cache_bytes = limits.reply_cache_bytes.unwrap_or(settings.reply_cache_bytes);
    settings.slot_cache_bytes = limits.slot_cache_bytes.unwrap_or(settings.slot_cache_bytes);
    settings.max_clients = limits.clients.unwrap_or(settings.max_clients);
    settings.max_state = limits.state.unwrap_or(settings.max_state);
    if let Some(seconds) = limits.lease_seconds {
        settings.lease = std::time::Duration::from_secs(u64::from(seconds));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(toml: &str) -> Result<Vec<ExportPlan>, String> {
        exports_of(&toml::from_str(toml).unwrap())
    }

    #[test]
    fn exports_say_what_is_wrong_with_them() {
        let wrong = |text, expected: &str| {
            let error = plan(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        wrong("[[export]]\npseudo = '/a'", "export /a: needs a `path`");
        wrong("[[export]]\npath = 'relative'", "must be absolute");
        wrong("[[export]]\npath = '/a'\nmemory = true", "exclude each other");
        wrong("[[export]]\npath = '/a'\nclients = ['10.0.0.0/40']", "`40` is not a prefix length");
        wrong("[[export]]\npath = '/a'\nid = 0", "must not be 0");
    }

    #[test]
    fn an_export_without_options_squashes_root_and_writes() {
        let exports = plan("[[export]]\npath = '/srv'").unwrap();
        assert_eq!(exports[0].pseudo, "/export");
        assert_eq!(exports[0].options, ExportOptions::default());
    }

    #[test]
    fn a_wrong_key_is_named_with_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "portmap = true\n[limits]\nconnektions = 4\n").unwrap();
        let error = config::read(file.path()).unwrap_err();
        assert!(error.contains(":3: ") && error.contains("connektions"), "{error}");
    }
}
