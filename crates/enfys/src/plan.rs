//! What to serve and how: the command line over the configuration file over the defaults.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::{ExportTable, Flavor, Network, Settings, Versions};
use store::error_text;

use crate::address::Address;
use crate::cli::{CheckArguments, ServeArguments};
use crate::config::{Config, Limits};
use crate::directories;
use crate::export_plan::{ExportPlan, Source};
use crate::id_names::check_domain;
use crate::in_force::InForce;
use crate::kerberos;
use crate::places::Places;
use crate::size::Size;
use crate::state_dir;

/// Port of NFS (RFC 1813 §2.2, RFC 8881 §2.9.3).
const NFS_PORT: u16 = 2049;

/// Everything that `enfys serve` was told.
#[derive(Debug, Clone)]
pub struct Plan {
    pub listen: Vec<Address>,
    pub metrics: Option<Address>,
    /// Where `enfys status` finds the server; `None` for in the state directory, if there is one.
    pub control: Option<PathBuf>,
    /// Where durable state lives; `None` where nothing served outlives the server and no place was asked for.
    pub state_dir: Option<PathBuf>,
    /// Whether a server without root serves all users of this machine.
    pub local_users: bool,
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
    /// Whether the server gives up what serving does not need.
    pub sandbox: bool,
    pub limits: Limits,
    pub exports: Vec<ExportPlan>,
    /// What works and is likely not meant.
    pub warnings: Vec<String>,
    /// Where the configuration file has the keys that count here.
    pub places: Arc<Places>,
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
        check_memory(arguments)?;
        let mut exports = ExportPlan::of_arguments(arguments)?;
        if exports.is_empty() {
            exports = ExportPlan::of_config(&config, Some(arguments))?;
        }
        if exports.is_empty() {
            return Err(match &arguments.config {
                Some(file) => format!("{}: no [[export]]: nothing to serve", file.display()),
                None => {
                    "nothing to serve: give a directory, --memory, or a --config with an [[export]]".into()
                }
            });
        }
        let places = places_that_count(&config, arguments);
        let mut limits = config.limits;
        limits.cores = arguments.cores.or(limits.cores);
        check_limits(&limits, &places)?;
        let versions = parse_versions(config.versions.as_deref())
            .map_err(|(index, why)| places.wrong(&format!("versions.{index}"), why))?;
        let id_domain = config.id_domain;
        id_domain.as_deref().map_or(Ok(()), check_domain).map_err(|why| places.wrong("id-domain", why))?;
        let copy_from = networks(&config.copy_from)
            .map_err(|(index, why)| places.wrong(&format!("copy-from.{index}"), why))?;
        let mut listen = if arguments.listen.is_empty() { config.listen } else { arguments.listen.clone() };
        if listen.is_empty() {
            listen.push(Address::local(NFS_PORT));
        }
        let state_dir = state_dir(arguments.state_dir.as_ref().or(config.state_dir.as_ref()), &exports)
            .map_err(|why| places.blame("state-dir", why))?;
        directories::note_read_only_mounts(&mut exports);
        let mut warnings = check_exports(&exports, state_dir.as_deref())?;
        if config.persistent_sessions && state_dir.is_none() {
            warnings.push(places.wrong("persistent-sessions", "of no use without a state-dir"));
        }
        Ok(Self {
            listen,
            metrics: arguments.metrics.clone().or(config.metrics),
            control: arguments.control.clone().or(config.control.socket),
            state_dir,
            local_users: arguments.local_users || config.local_users,
            wants_port_mapper: arguments.portmap || config.portmap,
            versions,
            id_domain,
            persistent_sessions: config.persistent_sessions,
            copy_source: config.copy_source,
            copy_from,
            keytab: config.keytab,
            sandbox: !arguments.no_sandbox && config.sandbox.unwrap_or(true),
            limits,
            exports,
            warnings,
            places: Arc::new(places),
        })
    }

    /// Why something failed, with the place of the key in the configuration file that asked for it, if one did.
    pub fn blame(&self, key: &str, why: String) -> String {
        self.places.blame(key, why)
    }

    /// Whether callers may come by Kerberos.
    pub fn wants_kerberos(&self) -> bool {
        let takes = |export: &ExportPlan| {
            let mut flavors = export.all_options().flat_map(|options| options.flavors.iter());
            flavors.any(|flavor| matches!(flavor, Flavor::Kerberos(_)))
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
            ("local-users", self.local_users != other.local_users),
            ("portmap", self.wants_port_mapper != other.wants_port_mapper),
            ("versions", self.versions != other.versions),
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
            settings.lease = Duration::from_secs(u64::from(seconds));
        }
    }

    /// The bounds on connections and threads, the defaults where the configuration sets none.
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

/// `enfys check-config`: everything that a start would find wrong, short of listening.
///
/// # Errors
/// One line that names what is wrong.
pub fn check(arguments: &CheckArguments) -> Result<(), String> {
    let config = Some(arguments.config.clone());
    let plan = Plan::new(&ServeArguments { config, ..ServeArguments::default() })?;
    if let Some(directory) = &plan.state_dir {
        store::state_dir::check(directory).map_err(|why| plan.blame("state-dir", why))?;
    }
    for address in plan.listen.iter().chain(&plan.metrics) {
        let key = if plan.listen.contains(address) { "listen" } else { "metrics" };
        address.resolve().map_err(|why| plan.blame(key, why))?;
    }
    kerberos::mechanism(&plan).map_err(|why| plan.blame("keytab", why))?;
    let in_force = InForce::new(&plan);
    let text = match arguments.json {
        true => format!("{}\n", serde_json::json!({ "config": in_force, "warnings": plan.warnings })),
        false => as_toml(&in_force, &plan)?,
    };
    print!("{text}");
    Ok(())
}

/// The configuration in force as TOML, with what it means for each export, and warnings, as comments.
fn as_toml(in_force: &InForce, plan: &Plan) -> Result<String, String> {
    let mut text = toml::to_string(in_force).map_err(|error| format!("cannot be shown as TOML: {error}"))?;
    text.push('\n');
    plan.exports.iter().for_each(|export| text.push_str(&format!("# serves {export}\n")));
    plan.warnings.iter().for_each(|warning| text.push_str(&format!("# warning: {warning}\n")));
    Ok(text)
}

/// Where the configuration file has keys, without those that the command line overrides.
fn places_that_count(config: &Config, arguments: &ServeArguments) -> Places {
    let overridden = [
        ("listen", !arguments.listen.is_empty()),
        ("metrics", arguments.metrics.is_some()),
        ("state-dir", arguments.state_dir.is_some()),
        ("control.socket", arguments.control.is_some()),
        ("limits.cores", arguments.cores.is_some()),
    ];
    let mut places = (*config.places).clone();
    overridden.iter().filter(|(_, is)| *is).for_each(|(key, _)| places.forget(key));
    places
}

/// Refuses `--memory SIZE`, where the size is read as a directory to serve.
fn check_memory(arguments: &ServeArguments) -> Result<(), String> {
    let is_size = |path: &&String| path.parse::<Size>().is_ok();
    match arguments.paths.iter().find(is_size) {
        Some(size) if arguments.memory == Some(None) => {
            Err(format!("--memory takes its size after `=`: write `--memory={size}`"))
        }
        _ => Ok(()),
    }
}

/// The place that was asked for, or the usual one where one is needed.
fn state_dir(asked: Option<&PathBuf>, exports: &[ExportPlan]) -> Result<Option<PathBuf>, String> {
    let is_transient = exports.iter().all(|export| matches!(export.source, Source::Memory(_)));
    match asked {
        Some(path) => std::path::absolute(path)
            .map(Some)
            .map_err(|error| format!("state directory {}: {}", path.display(), error_text(&error))),
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
                return Err(export.blame_key("pseudo", why));
            }
            let paths = [&*other.pseudo, &*export.pseudo];
            ExportTable::check_paths(paths).map_err(|error| export.blame_key("pseudo", error))?;
            if export.id.is_some() && export.id == other.id {
                return Err(export.blame_key("id", format!("the same as that of {}", other.pseudo)));
            }
        }
        ExportTable::check_paths([&*export.pseudo]).map_err(|error| export.blame_key("pseudo", error))?;
    }
    directories::check(exports, state_dir)
}

/// Networks as people write them.
///
/// # Errors
/// The index of the first that is none, and what is wrong with it.
pub fn networks(texts: &[String]) -> Result<Vec<Network>, (usize, String)> {
    let networks = texts.iter().enumerate();
    networks.map(|(index, text)| text.parse().map_err(|why| (index, why))).collect()
}

/// The versions that are asked for by name; on an error the index of the name, and why.
fn parse_versions(names: Option<&[String]>) -> Result<Versions, (usize, String)> {
    let Some(names) = names else { return Ok(Versions::IMPLEMENTED) };
    let mut versions = Versions::empty();
    for (index, name) in names.iter().enumerate() {
        versions |= Versions::named(name)
            .map(|named| named & Versions::IMPLEMENTED)
            .filter(|named| !named.is_empty())
            .ok_or_else(|| {
                (index, format!("expected \"3\", \"4\", \"4.0\", \"4.1\" or \"4.2\", found {name:?}"))
            })?;
    }
    if versions.is_empty() {
        return Err((0, "expected at least one version: leave the key out to serve all".into()));
    }
    Ok(versions)
}

fn check_limits(limits: &Limits, places: &Places) -> Result<(), String> {
    let all = limits.all().into_iter();
    let mut wrong =
        all.filter_map(|(key, value, range)| Some((key, value.filter(|v| !range.contains(*v))?, range)));
    let Some((key, value, range)) = wrong.next() else { return Ok(()) };
    let path = format!("limits.{key}");
    let why = format!("expected {range}, found {value}");
    if places.has(&path) { Err(places.wrong(&path, why)) } else { Err(format!("--{key}: {why}")) }
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
    fn wrong_values_are_named_with_their_line_and_what_was_expected() {
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
        let versions = "expected \"3\", \"4\", \"4.0\", \"4.1\" or \"4.2\", found \"5\"";
        wrong("versions = [\n'3',\n'5']", &format!("FILE:3: `versions`: {versions}"));
        wrong(
            "versions = []",
            "FILE:1: `versions`: expected at least one version: leave the key out to serve all",
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
    fn wrong_exports_are_named_with_the_line_of_the_key() {
        let memory =
            |pseudo: &str, more: &str| format!("[[export]]\nmemory = true\npseudo = '{pseudo}'\n{more}\n");
        let wrong = |first: &str, second: &str| {
            of_config(&format!("{}{}", memory(first, "id = 1"), memory(second, "id = 1"))).unwrap_err()
        };
        assert!(
            wrong("/a", "/a")
                .starts_with("FILE:7: export /a: `pseudo`: another export is mounted by this path already")
        );
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
    fn versions_are_named_as_mount_options_name_them() {
        let parse = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            parse_versions(Some(&names))
        };
        assert_eq!(parse_versions(None), Ok(Versions::IMPLEMENTED));
        assert_eq!(parse(&["3", "4.1"]), Ok(Versions::V3 | Versions::V4_1));
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
                local_users: false,
                wants_port_mapper: false,
                versions: Versions::IMPLEMENTED,
                id_domain: None,
                persistent_sessions: false,
                copy_source: false,
                copy_from: Vec::new(),
                keytab: None,
                sandbox: true,
                limits,
                exports: Vec::new(),
                warnings: Vec::new(),
                places: Arc::default(),
            }
        };
        let old = plan("127.0.0.1:2049", None);
        assert!(old.fixed_differences(&plan("127.0.0.1:2049", None)).is_empty());
        assert_eq!(old.fixed_differences(&plan("127.0.0.1:2050", Some(5))), ["listen", "limits"]);
    }
}
