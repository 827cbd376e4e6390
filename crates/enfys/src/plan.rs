//! The plan of a server: exports and settings. The command line overrides the configuration file, and that overrides the defaults.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::{ExportTable, Flavor, Network, Settings, Versions};
use store::error_text;

use crate::address::Address;
use crate::cli::ServeArguments;
use crate::config::{Config, KeyLocations, Limits};
use crate::exports::{ExportPlan, Source, check_directories, note_read_only_mounts};
use crate::name_services::id_names::check_domain;
use crate::size::Size;
use crate::state_dir;

/// Port of NFS (RFC 1813 §2.2, RFC 8881 §2.9.3).
const NFS_PORT: u16 = 2049;

/// The resolved settings of `enfys serve`.
#[derive(Debug, Clone)]
pub struct Plan {
    pub listen: Vec<Address>,
    pub metrics: Option<Address>,
    /// The control socket; `None` if it is in the state directory, or there is none.
    pub control: Option<PathBuf>,
    /// The state directory; `None` if only memory is served and no directory was given.
    pub state_dir: Option<PathBuf>,
    /// Whether a server without root privileges serves all users of this machine.
    pub local_users: bool,
    pub wants_port_mapper: bool,
    pub versions: Versions,
    /// Whether versions 2 and 3 and MOUNT are served over UDP too.
    pub udp: bool,
    /// Whether NLM and the status monitor are served, for locks of versions 2 and 3.
    pub nlm: bool,
    /// The port of NLM, if it is not that of NFS.
    pub nlm_port: Option<u16>,
    /// The port of the status monitor, if it is not that of NFS.
    pub nsm_port: Option<u16>,
    /// Domain of the names of owners and groups in NFSv4.
    pub id_domain: Option<String>,
    /// Whether clients may have sessions that survive a restart of the server or its machine.
    pub persistent_sessions: bool,
    /// Whether clients may let other servers read files here.
    pub copy_source: bool,
    /// Servers from which clients may copy files.
    pub copy_from: Vec<Network>,
    /// The server's Kerberos keys; `None` for the library's default.
    pub keytab: Option<PathBuf>,
    /// Whether the server drops privileges that serving does not need.
    pub sandbox: bool,
    pub limits: Limits,
    pub exports: Vec<ExportPlan>,
    /// Settings that are valid but probably not intended.
    pub warnings: Vec<String>,
    /// The lines of the configuration's keys that are in effect.
    pub locations: Arc<KeyLocations>,
}

impl Plan {
    /// Reads and combines configuration and command line, and checks them as far as possible before anything is opened.
    ///
    /// # Errors
    /// One line that names the argument or the key, and what is wrong.
    pub fn new(arguments: &ServeArguments) -> Result<Self, String> {
        let config = match &arguments.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        check_memory(arguments)?;
        let mut exports = exports_of(arguments, &config)?;
        let locations = locations_in_effect(&config, arguments);
        let mut limits = config.limits;
        limits.cores = arguments.cores.or(limits.cores);
        check_limits(&limits, &locations)?;
        let versions = match &arguments.versions[..] {
            [] => parse_versions(config.versions.as_deref())
                .map_err(|(index, why)| locations.error(&format!("versions.{index}"), why))?,
            names => parse_versions(Some(names)).map_err(|(_, why)| format!("--versions: {why}"))?,
        };
        let id_domain = config.id_domain;
        id_domain.as_deref().map_or(Ok(()), check_domain).map_err(|why| locations.error("id-domain", why))?;
        let copy_from = networks(&config.copy_from)
            .map_err(|(index, why)| locations.error(&format!("copy-from.{index}"), why))?;
        let mut listen = if arguments.listen.is_empty() { config.listen } else { arguments.listen.clone() };
        if listen.is_empty() {
            listen.push(Address::local(NFS_PORT));
        }
        let state_dir = state_dir(arguments.state_dir.as_ref().or(config.state_dir.as_ref()), &exports)
            .map_err(|why| locations.error_if_set("state-dir", why))?;
        note_read_only_mounts(&mut exports);
        let mut warnings: Vec<_> = exports.iter_mut().flat_map(|export| export.warnings.drain(..)).collect();
        warnings.extend(check_exports(&exports, state_dir.as_deref())?);
        if config.persistent_sessions && state_dir.is_none() {
            warnings.push(locations.error("persistent-sessions", "has no effect without a state-dir"));
        }
        let local_users = arguments.local_users || config.local_users;
        warnings.extend(local_users_warning(local_users));
        Ok(Self {
            listen,
            metrics: arguments.metrics.clone().or(config.metrics),
            control: arguments.control.clone().or(config.control.socket),
            state_dir,
            local_users,
            wants_port_mapper: arguments.portmap || config.portmap,
            versions,
            udp: arguments.udp || config.udp,
            nlm: config.nlm.unwrap_or(true),
            nlm_port: config.nlm_port.map(NonZeroU16::get),
            nsm_port: config.nsm_port.map(NonZeroU16::get),
            id_domain,
            persistent_sessions: config.persistent_sessions,
            copy_source: config.copy_source,
            copy_from,
            keytab: config.keytab,
            sandbox: !arguments.no_sandbox && config.sandbox.unwrap_or(true),
            limits,
            exports,
            warnings,
            locations: Arc::new(locations),
        })
    }

    /// Returns an error with the line of the key in the configuration file, if the file has the key.
    pub fn error(&self, key: &str, why: String) -> String {
        self.locations.error_if_set(key, why)
    }

    /// Returns whether NLM and the status monitor are served.
    pub fn serves_nlm(&self) -> bool {
        self.nlm && self.versions.intersects(Versions::V2 | Versions::V3)
    }

    /// Returns whether an export allows Kerberos.
    pub fn wants_kerberos(&self) -> bool {
        let takes = |export: &ExportPlan| {
            let mut flavors = export.all_options().flat_map(|options| options.flavors.iter());
            flavors.any(|flavor| matches!(flavor, Flavor::Kerberos(_)))
        };
        self.exports.iter().any(takes)
    }

    /// Returns the keys that differ from `other` and take effect at a start only.
    pub fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = [
            ("listen", self.listen != other.listen),
            ("metrics", self.metrics != other.metrics),
            ("control", self.control != other.control),
            ("state-dir", self.state_dir != other.state_dir),
            ("local-users", self.local_users != other.local_users),
            ("portmap", self.wants_port_mapper != other.wants_port_mapper),
            ("versions", self.versions != other.versions),
            ("udp", self.udp != other.udp),
            ("nlm", self.nlm != other.nlm),
            ("nlm-port", self.nlm_port != other.nlm_port),
            ("nsm-port", self.nsm_port != other.nsm_port),
            ("id-domain", self.id_domain != other.id_domain),
            ("persistent-sessions", self.persistent_sessions != other.persistent_sessions),
            ("copy-source", self.copy_source != other.copy_source),
            ("copy-from", self.copy_from != other.copy_from),
            ("keytab", self.keytab != other.keytab),
            ("sandbox", self.sandbox != other.sandbox),
            ("limits", self.limits != other.limits),
        ];
        pairs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Applies versions, copy rules and limits to the server's settings.
    pub fn apply_limits(&self, settings: &mut Settings) {
        settings.versions = self.versions;
        settings.udp = self.udp;
        (settings.nlm, settings.nlm_port, settings.nsm_port) = (self.nlm, self.nlm_port, self.nsm_port);
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
        settings.cached_listings_bytes = limits.kept_listings_bytes.unwrap_or(settings.cached_listings_bytes);
        settings.max_state = limits.state.unwrap_or(settings.max_state);
        settings.max_delegations = limits.delegations.unwrap_or(settings.max_delegations);
        if let Some(seconds) = limits.lease_seconds {
            settings.lease = Duration::from_secs(u64::from(seconds));
        }
    }

    /// Returns the limits on connections and threads.
    pub fn network_limits(&self) -> net::Limits {
        let (limits, defaults) = (&self.limits, net::Limits::default());
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        let microseconds = |microseconds: u32| Duration::from_micros(u64::from(microseconds));
        net::Limits {
            cores: limits.cores.unwrap_or(defaults.cores),
            max_connections: limits.connections.unwrap_or(defaults.max_connections),
            max_connections_per_address: limits
                .connections_per_address
                .unwrap_or(defaults.max_connections_per_address),
            request_memory_bytes: limits.memory_bytes.unwrap_or(defaults.request_memory_bytes),
            silence: limits.silence_seconds.map_or(defaults.silence, seconds),
            busy_poll: limits.busy_poll_microseconds.map_or(defaults.busy_poll, microseconds),
            ..defaults
        }
    }
}

/// Returns the exports of the command line, or else of the configuration file.
fn exports_of(arguments: &ServeArguments, config: &Config) -> Result<Vec<ExportPlan>, String> {
    let mut exports = ExportPlan::of_arguments(arguments)?;
    if exports.is_empty() {
        exports = ExportPlan::of_config(config, Some(arguments))?;
    }
    if exports.is_empty() {
        return Err(match &arguments.config {
            Some(file) => format!("{}: no [[export]]: nothing to serve", file.display()),
            None => "nothing to serve: give a directory, --memory, or a --config with an [[export]]".into(),
        });
    }
    Ok(exports)
}

/// Returns the lines of the configuration's keys, without those that the command line overrides.
fn locations_in_effect(config: &Config, arguments: &ServeArguments) -> KeyLocations {
    let overridden = [
        ("listen", !arguments.listen.is_empty()),
        ("metrics", arguments.metrics.is_some()),
        ("versions", !arguments.versions.is_empty()),
        ("state-dir", arguments.state_dir.is_some()),
        ("control.socket", arguments.control.is_some()),
        ("limits.cores", arguments.cores.is_some()),
    ];
    let mut locations = (*config.locations).clone();
    overridden.iter().filter(|(_, is)| *is).for_each(|(key, _)| locations.remove(key));
    locations
}

/// Refuses `--memory SIZE`, in which the size would be a directory to serve.
fn check_memory(arguments: &ServeArguments) -> Result<(), String> {
    let is_size = |path: &&String| path.parse::<Size>().is_ok();
    match arguments.paths.iter().find(is_size) {
        Some(size) if arguments.memory == Some(None) => {
            Err(format!("--memory takes its size after `=`: write `--memory={size}`"))
        }
        _ => Ok(()),
    }
}

/// Returns the given state directory, or the default one if one is needed.
fn state_dir(asked: Option<&PathBuf>, exports: &[ExportPlan]) -> Result<Option<PathBuf>, String> {
    let is_transient = exports.iter().all(|export| !matches!(export.source, Source::Directory(_)));
    match asked {
        Some(path) => std::path::absolute(path)
            .map(Some)
            .map_err(|error| format!("state directory {}: {}", path.display(), error_text(&error))),
        None if is_transient => Ok(None),
        None => state_dir::default_path().map(Some),
    }
}

/// Checks that exports do not conflict. Returns warnings.
fn check_exports(exports: &[ExportPlan], state_dir: Option<&Path>) -> Result<Vec<String>, String> {
    for (index, export) in exports.iter().enumerate() {
        for other in &exports[..index] {
            if other.pseudo == export.pseudo {
                let why = "another export has this path: give each its own, \
                           as in `/srv/a:/a /srv/b:/b`, or with `pseudo`";
                return Err(export.key_error("pseudo", why));
            }
            let paths = [&*other.pseudo, &*export.pseudo];
            ExportTable::check_paths(paths).map_err(|error| export.key_error("pseudo", error))?;
            if export.id.is_some() && export.id == other.id {
                return Err(export.key_error("id", format!("the same as that of {}", other.pseudo)));
            }
        }
        ExportTable::check_paths([&*export.pseudo]).map_err(|error| export.key_error("pseudo", error))?;
    }
    check_directories(exports, state_dir)
}

/// Returns a warning if other users can create files but often not write them.
fn local_users_warning(local_users: bool) -> Option<String> {
    let own = rustix::process::geteuid();
    (local_users && !own.is_root()).then(|| {
        format!(
            "--local-users without root: files that other users create belong to uid {}, so these users often cannot write \
             to them",
            own.as_raw()
        )
    })
}

/// Parses networks.
///
/// # Errors
/// The index of the first wrong one, and what is wrong with it.
fn networks(texts: &[String]) -> Result<Vec<Network>, (usize, String)> {
    let networks = texts.iter().enumerate();
    networks.map(|(index, text)| text.parse().map_err(|why| (index, why))).collect()
}

/// Parses the names of versions; `None` is [`Versions::DEFAULT`].
///
/// # Errors
/// The index of the first wrong name, and what is wrong with it.
fn parse_versions(names: Option<&[String]>) -> Result<Versions, (usize, String)> {
    let Some(names) = names else { return Ok(Versions::DEFAULT) };
    let mut versions = Versions::empty();
    for (index, name) in names.iter().enumerate() {
        versions |= Versions::named(name)
            .map(|named| named & Versions::IMPLEMENTED)
            .filter(|named| !named.is_empty())
            .ok_or_else(|| {
                (index, format!("expected \"2\", \"3\", \"4\", \"4.0\", \"4.1\" or \"4.2\", found {name:?}"))
            })?;
    }
    if versions.is_empty() {
        return Err((0, "expected at least one version: remove the key to serve 3 and 4".into()));
    }
    Ok(versions)
}

fn check_limits(limits: &Limits, locations: &KeyLocations) -> Result<(), String> {
    let all = limits.all().into_iter();
    let mut wrong =
        all.filter_map(|(key, value, range)| Some((key, value.filter(|v| !range.contains(*v))?, range)));
    let Some((key, value, range)) = wrong.next() else { return Ok(()) };
    let path = format!("limits.{key}");
    let why = format!("expected {range}, found {value}");
    if locations.has(&path) { Err(locations.error(&path, why)) } else { Err(format!("--{key}: {why}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_config(text: &str) -> Result<Plan, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let config = Some(file.path().to_path_buf());
        let name = file.path().display().to_string();
        let plan = Plan::new(&ServeArguments { config, ..ServeArguments::default() });
        plan.map_err(|error| error.replace(&name, "FILE"))
    }

    #[test]
    fn wrong_values_are_named_with_line_and_expected_value() {
        const MEMORY: &str = "\n[[export]]\nmemory = true\n";
        let wrong = |text: &str, expected: &str| {
            assert_eq!(of_config(&format!("{text}{MEMORY}")).unwrap_err(), expected, "{text}");
        };
        for (key, value, range) in [
            ("io-bytes", 100, "from 4096 to 4194304"),
            ("io-bytes", 5 << 20, "from 4096 to 4194304"),
            ("lease-seconds", 0, "from 1 to 3600"),
            ("silence-seconds", 8, "from 9 to 3600"),
            ("busy-poll-microseconds", 1001, "from 0 to 1000"),
            ("connections", 0, "of at least 1"),
            ("cores", 0, "of at least 1"),
        ] {
            wrong(
                &format!("[limits]\n{key} = {value}"),
                &format!("FILE:2: `{key}` in [limits]: expected an integer {range}, found {value}"),
            );
        }
        let versions = "expected \"2\", \"3\", \"4\", \"4.0\", \"4.1\" or \"4.2\", found \"5\"";
        wrong("versions = [\n'3',\n'5']", &format!("FILE:3: `versions`: {versions}"));
        wrong(
            "versions = []",
            "FILE:1: `versions`: expected at least one version: remove the key to serve 3 and 4",
        );
        wrong(
            "\nid-domain = 'a b'",
            "FILE:2: `id-domain`: expected a DNS domain, as in \"example.org\", found \"a b\"",
        );
        wrong(
            "copy-from = ['10.0.0.0/8', 'server']",
            "FILE:1: `copy-from`: expected an IP address or ADDRESS/PREFIX-LENGTH, found `server`",
        );
        of_config(&format!("[limits]\nio-bytes = 4194304{MEMORY}")).unwrap();
    }

    #[test]
    fn conflicting_exports_are_named_with_the_line_of_the_key() {
        let memory =
            |pseudo: &str, more: &str| format!("[[export]]\nmemory = true\npseudo = '{pseudo}'\n{more}\n");
        let wrong = |first: &str, second: &str| {
            of_config(&format!("{}{}", memory(first, "id = 1"), memory(second, "id = 1"))).unwrap_err()
        };
        assert!(wrong("/a", "/a").starts_with("FILE:7: export /a: `pseudo`: another export has this path"));
        assert_eq!(
            wrong("/a", "/a/b"),
            "FILE:7: export /a/b: `pseudo`: export paths `/a` and `/a/b` overlap"
        );
        assert_eq!(
            wrong("/", "/b"),
            "FILE:7: export /b: `pseudo`: an export at `/` must be the only one: `/b` would be inside of it"
        );
        assert_eq!(wrong("/a", "/b"), "FILE:8: export /b: `id`: the same as that of /a");
        assert!(
            of_config(&memory("a", ""))
                .unwrap_err()
                .starts_with("FILE:3: export a: `pseudo`: export path `a` must be")
        );
        assert_eq!(of_config("portmap = true").unwrap_err(), "FILE: no [[export]]: nothing to serve");
    }

    #[test]
    fn versions_have_the_names_of_mount_options() {
        let parse = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            parse_versions(Some(&names))
        };
        assert_eq!(parse_versions(None), Ok(Versions::DEFAULT));
        assert_eq!(parse(&["2", "4"]), Ok(Versions::V2 | Versions::V4));
        assert_eq!(parse(&["3", "4.1"]), Ok(Versions::V3 | Versions::V4_1));
    }

    #[test]
    fn settings_that_a_reload_does_not_change_are_listed() {
        let plan = |listen: &str, connections| {
            let limits = Limits { connections, ..Limits::default() };
            let listen = vec![listen.parse().unwrap()];
            Plan {
                listen,
                metrics: None,
                control: None,
                state_dir: None,
                local_users: false,
                wants_port_mapper: false,
                versions: Versions::DEFAULT,
                udp: false,
                nlm: true,
                nlm_port: None,
                nsm_port: None,
                id_domain: None,
                persistent_sessions: false,
                copy_source: false,
                copy_from: Vec::new(),
                keytab: None,
                sandbox: true,
                limits,
                exports: Vec::new(),
                warnings: Vec::new(),
                locations: Arc::default(),
            }
        };
        let old = plan("127.0.0.1:2049", None);
        assert!(old.fixed_differences(&plan("127.0.0.1:2049", None)).is_empty());
        assert_eq!(old.fixed_differences(&plan("127.0.0.1:2050", Some(5))), ["listen", "limits"]);
    }
}
