//! What to serve and how: the command line over the configuration file over the defaults.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use server::{ExportTable, Flavor, Network, Settings, Versions};

use crate::cli::ServeArguments;
use crate::config::{Config, Limits};
use crate::directories;
use crate::export_plan::{ExportPlan, Source};
use crate::id_names::check_domain;
use crate::kerberos;
use crate::state_dir;

/// Port of NFS (RFC 1813 §2.2, RFC 8881 §2.9.3).
const NFS_PORT: u16 = 2049;

/// Everything that `enfys serve` was told.
#[derive(Debug, Clone)]
pub struct Plan {
    pub listen: Vec<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    /// Where `enfys status` finds the server; `None` for in the state directory, if there is one.
    pub control: Option<PathBuf>,
    /// Where durable state lives; `None` where nothing served outlives the server and no place was asked for.
    pub state_dir: Option<PathBuf>,
    pub wants_port_mapper: bool,
    pub versions: Versions,
    /// Domain of owners' and groups' names in NFSv4.
    pub id_domain: Option<String>,
    /// Whether sessions outlive the server and its machine, where clients ask for that.
    pub persistent_sessions: bool,
    /// Whether clients may have other servers read here.
    pub copy_source: bool,
    /// Servers that clients may have files copied from.
    pub copy_from: Vec<Network>,
    /// The server's keys for Kerberos; where the library looks for them unless given.
    pub keytab: Option<PathBuf>,
    pub limits: Limits,
    pub exports: Vec<ExportPlan>,
    /// What works and is likely not meant.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Puts command line and configuration together, and checks what can be checked before anything is opened.
    ///
    /// # Errors
    /// One line that says what is wrong with which of them.
    pub fn new(arguments: &ServeArguments) -> Result<Self, String> {
        let config = match &arguments.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        let mut exports = ExportPlan::of_arguments(arguments)?;
        if exports.is_empty() {
            exports = ExportPlan::of_config(&config, Some(arguments))?;
        }
        if exports.is_empty() {
            return Err(match &arguments.config {
                Some(_) => format!("{}: no [[export]]: nothing to serve", config.file().display()),
                None => {
                    "nothing to serve: give a directory, --memory, or a --config with an [[export]]".into()
                }
            });
        }
        let mut limits = config.limits;
        limits.cores = arguments.cores.or(limits.cores);
        check_limits(&limits)?;
        let versions = parse_versions(config.versions.as_deref())?;
        let id_domain = config.id_domain;
        id_domain.as_deref().map_or(Ok(()), check_domain)?;
        let mut listen = if arguments.listen.is_empty() { config.listen } else { arguments.listen.clone() };
        if listen.is_empty() {
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, NFS_PORT)));
        }
        let state_dir = state_dir(arguments.state_dir.as_ref().or(config.state_dir.as_ref()), &exports)?;
        directories::note_read_only_mounts(&mut exports);
        let mut warnings = check_exports(&exports, state_dir.as_deref())?;
        if config.persistent_sessions && state_dir.is_none() {
            warnings.push("persistent-sessions: of no use without a state-dir".into());
        }
        Ok(Self {
            listen,
            metrics: arguments.metrics.or(config.metrics),
            control: arguments.control.clone().or(config.control.socket),
            state_dir,
            wants_port_mapper: arguments.portmap || config.portmap,
            versions,
            id_domain,
            persistent_sessions: config.persistent_sessions,
            copy_source: config.copy_source,
            copy_from: networks(&config.copy_from).map_err(|why| format!("copy-from: {why}"))?,
            keytab: config.keytab,
            limits,
            exports,
            warnings,
        })
    }

    /// Whether callers may come by Kerberos.
    pub fn wants_kerberos(&self) -> bool {
        let takes = |export: &ExportPlan| {
            export.options.flavors.iter().any(|flavor| matches!(flavor, Flavor::Kerberos(_)))
        };
        self.exports.iter().any(takes)
    }

    /// Names what differs from `other` and takes effect at a start only.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = [
            ("listen", self.listen != other.listen),
            ("metrics", self.metrics != other.metrics),
            ("control", self.control != other.control),
            ("state-dir", self.state_dir != other.state_dir),
            ("portmap", self.wants_port_mapper != other.wants_port_mapper),
            ("versions", self.versions != other.versions),
            ("id-domain", self.id_domain != other.id_domain),
            ("persistent-sessions", self.persistent_sessions != other.persistent_sessions),
            ("copy-source", self.copy_source != other.copy_source),
            ("copy-from", self.copy_from != other.copy_from),
            ("keytab", self.keytab != other.keytab),
            ("limits", self.limits != other.limits),
        ];
        pairs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// The bounds that the configuration sets, over the server's own.
    pub fn apply_limits(&self, settings: &mut Settings) {
        settings.versions = self.versions;
        settings.copy_source = self.copy_source;
        settings.copy_from.clone_from(&self.copy_from);
        let limits = &self.limits;
        if let Some(bytes) = limits.io_bytes {
            settings.max_io = bytes;
            settings.max_record = bytes + Settings::RECORD_OVERHEAD;
        }
        settings.reply_cache_bytes = limits.reply_cache_bytes.unwrap_or(settings.reply_cache_bytes);
        settings.max_clients = limits.clients.unwrap_or(settings.max_clients);
        settings.slot_cache_bytes =
            limits.slot_cache_bytes.unwrap_or_else(|| Settings::slot_cache_for(settings.max_clients));
        settings.kept_listings_bytes = limits.kept_listings_bytes.unwrap_or(settings.kept_listings_bytes);
        settings.max_state = limits.state.unwrap_or(settings.max_state);
        settings.max_delegations = limits.delegations.unwrap_or(settings.max_delegations);
        if let Some(seconds) = limits.lease_seconds {
            settings.lease = std::time::Duration::from_secs(u64::from(seconds));
        }
    }
}

/// `enfys check-config`: everything that a start would find wrong, short of listening.
///
/// # Errors
/// One line that names what is wrong.
pub fn check(path: &Path) -> Result<(), String> {
    let plan = Plan::new(&ServeArguments { config: Some(path.to_path_buf()), ..ServeArguments::default() })?;
    if let Some(directory) = &plan.state_dir {
        state_dir::check(directory)?;
    }
    kerberos::mechanism(&plan)?;
    for export in &plan.exports {
        println!("{export}");
    }
    for warning in &plan.warnings {
        println!("warning: {warning}");
    }
    Ok(())
}

/// The place that was asked for, or the usual one where one is needed.
fn state_dir(asked: Option<&PathBuf>, exports: &[ExportPlan]) -> Result<Option<PathBuf>, String> {
    let is_transient = exports.iter().all(|export| matches!(export.source, Source::Memory(_)));
    match asked {
        Some(path) => std::path::absolute(path)
            .map(Some)
            .map_err(|error| format!("state directory {}: {}", path.display(), crate::said(&error))),
        None if is_transient => Ok(None),
        None => state_dir::default_path().map(Some),
    }
}

/// Whether exports can stand beside each other; returns warnings.
fn check_exports(exports: &[ExportPlan], state_dir: Option<&Path>) -> Result<Vec<String>, String> {
    for (index, export) in exports.iter().enumerate() {
        for other in &exports[..index] {
            if other.pseudo == export.pseudo {
                let why = "another export is mounted by this path already; give each its own, \
                           as in `/srv/a:/a /srv/b:/b` or by `pseudo`";
                return Err(export.blame(why));
            }
            let paths = [&*other.pseudo, &*export.pseudo];
            ExportTable::check_paths(paths).map_err(|error| export.blame(error))?;
            if export.id.is_some() && export.id == other.id {
                return Err(export.blame(format!("has the same `id` as {}", other.pseudo)));
            }
        }
        ExportTable::check_paths([&*export.pseudo]).map_err(|error| export.blame(error))?;
    }
    directories::check(exports, state_dir)
}

/// Networks as people write them.
///
/// # Errors
/// What is wrong with the first that is none.
pub fn networks(texts: &[String]) -> Result<Vec<Network>, String> {
    texts.iter().map(|text| text.parse()).collect()
}

/// Smallest and greatest READ or WRITE that make sense: a page, and what the wire types decode.
const IO_BYTES: std::ops::RangeInclusive<u32> = 4096..=4 << 20;

/// The versions that are asked for by name.
fn parse_versions(names: Option<&[String]>) -> Result<Versions, String> {
    let Some(names) = names else { return Ok(Versions::IMPLEMENTED) };
    let mut versions = Versions::empty();
    for name in names {
        versions |= Versions::named(name)
            .map(|named| named & Versions::IMPLEMENTED)
            .filter(|named| !named.is_empty())
            .ok_or_else(|| format!("versions: {name:?} is none that can be served"))?;
    }
    if versions.is_empty() { Err("versions: nothing is left to serve".into()) } else { Ok(versions) }
}

fn check_limits(limits: &Limits) -> Result<(), String> {
    if limits.io_bytes.is_some_and(|bytes| !IO_BYTES.contains(&bytes)) {
        return Err(format!("limits: `io-bytes` must be {} to {}", IO_BYTES.start(), IO_BYTES.end()));
    }
    if limits.lease_seconds.is_some_and(|seconds| !(1..=3600).contains(&seconds)) {
        return Err("limits: `lease-seconds` must be 1 to 3600".into());
    }
    if limits.silence_seconds.is_some_and(|seconds| !(9..=3600).contains(&seconds)) {
        return Err("limits: `silence-seconds` must be 9 to 3600".into());
    }
    if limits.busy_poll_microseconds.is_some_and(|microseconds| microseconds > 1000) {
        return Err("limits: `busy-poll-microseconds` must be 0 to 1000".into());
    }
    let zero = [
        ("connections", limits.connections),
        ("connections-per-address", limits.connections_per_address),
        ("memory-bytes", limits.memory_bytes),
        ("clients", limits.clients),
        ("state", limits.state),
        ("cores", limits.cores),
    ];
    match zero.iter().find(|(_, value)| *value == Some(0)) {
        Some((name, _)) => Err(format!("limits: `{name}` must not be 0")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_bounded() {
        let wrong = |limits: Limits, name: &str| {
            assert!(check_limits(&limits).unwrap_err().contains(name), "{name}");
        };
        wrong(Limits { io_bytes: Some(100), ..Limits::default() }, "io-bytes");
        wrong(Limits { io_bytes: Some(5 << 20), ..Limits::default() }, "io-bytes");
        wrong(Limits { lease_seconds: Some(0), ..Limits::default() }, "lease-seconds");
        wrong(Limits { silence_seconds: Some(8), ..Limits::default() }, "silence-seconds");
        wrong(Limits { busy_poll_microseconds: Some(1001), ..Limits::default() }, "busy-poll-microseconds");
        wrong(Limits { connections: Some(0), ..Limits::default() }, "connections");
        assert_eq!(check_limits(&Limits { io_bytes: Some(4 << 20), ..Limits::default() }), Ok(()));
    }

    #[test]
    fn what_is_no_network_is_named() {
        let parse = |text: &str| networks(&[text.to_owned()]);
        assert_eq!(parse("10.0.0.0/8").map(|networks| networks.len()), Ok(1));
        assert!(parse("10.0.0.0/40").unwrap_err().contains("`40`"));
        assert!(parse("server.example.org").unwrap_err().contains("server.example.org"));
    }

    #[test]
    fn versions_are_named_as_mount_options_name_them() {
        let parse = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            parse_versions(Some(&names))
        };
        assert_eq!(parse_versions(None), Ok(Versions::IMPLEMENTED));
        assert_eq!(parse(&["3", "4.1"]), Ok(Versions::V3 | Versions::V4_1));
        assert!(parse(&["3", "5"]).unwrap_err().contains("\"5\""));
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn says_what_a_reload_does_not_change() {
        let plan = |listen: &str, connections| {
            let limits = Limits { connections, ..Limits::default() };
            let listen = vec![listen.parse().unwrap()];
            Plan {
                listen,
                metrics: None,
                control: None,
                state_dir: None,
                wants_port_mapper: false,
                versions: Versions::IMPLEMENTED,
                id_domain: None,
                persistent_sessions: false,
                copy_source: false,
                copy_from: Vec::new(),
                keytab: None,
                limits,
                exports: Vec::new(),
                warnings: Vec::new(),
            }
        };
        let old = plan("127.0.0.1:2049", None);
        assert!(old.fixed_differences(&plan("127.0.0.1:2049", None)).is_empty());
        assert_eq!(old.fixed_differences(&plan("127.0.0.1:2050", Some(5))), ["listen", "limits"]);
    }
}
