//! The options of nfs(5) as a table.

use core::net::IpAddr;

use super::error::UrlError;
use super::percent;
use super::values::{
    Bounds, LocalLock, LookupCache, ReaddirPlus, Recovery, Security, Transport, Value, Version,
};

/// Options of a mount. `None` means the default of the part that uses the option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Protocol version; without it the highest that both sides support. `version=`, `vers=`, `nfsvers=`, `minorversion=`.
    pub version: Option<Version>,
    /// Port of the server; without it 2049, and for version 3 the port from its port mapper.
    pub port: Option<u16>,
    /// Port of MOUNT, for version 3.
    pub mount_port: Option<u16>,
    /// Port of the lock manager (NLM), for version 3. `nlmport=`.
    pub nlm_port: Option<u16>,
    /// The transport of calls. `proto=`, `tcp`, `udp`.
    pub transport: Option<Transport>,
    /// How calls of MOUNT travel; without it as those of NFS. `mountproto=`.
    pub mount_transport: Option<Transport>,
    /// How calls authenticate the user. `sec=`.
    pub security: Option<Security>,
    /// User that calls are made for. Default: the user of the process.
    pub uid: Option<u32>,
    /// Group that calls are made for. Default: the group of the process.
    pub gid: Option<u32>,
    /// Connections to one address of the server. `nconnect=`.
    pub connections: Option<u32>,
    /// Requests under way at the same time in versions 4.1 and 4.2: slots to request. `slots=`.
    pub slots: Option<u32>,
    /// The same in the versions without slots: calls. `v3_calls=`.
    pub v3_calls: Option<u32>,
    /// Maximum number of bytes of a READ.
    pub read_size: Option<u32>,
    /// Maximum number of bytes of a WRITE.
    pub write_size: Option<u32>,
    /// Time until a request is sent again, in tenths of a second. `timeo=`.
    pub timeout_deciseconds: Option<u32>,
    /// Repetitions before further recovery. `retrans=`.
    pub retransmissions: Option<u32>,
    /// Pause after an answer of JUKEBOX in version 3, in tenths of a second. `jukebox=`.
    pub jukebox_deciseconds: Option<u32>,
    /// `hard`, `soft` or `softerr`.
    pub recovery: Option<Recovery>,
    /// Minimum time for which attributes of a file are cached, in seconds. `acregmin=`; `actimeo=` sets all four.
    pub file_attributes_min_seconds: Option<u32>,
    /// Maximum of that time. `acregmax=`.
    pub file_attributes_max_seconds: Option<u32>,
    /// Minimum time for which attributes of a directory are cached, in seconds. `acdirmin=`.
    pub directory_attributes_min_seconds: Option<u32>,
    /// Maximum of that time. `acdirmax=`.
    pub directory_attributes_max_seconds: Option<u32>,
    /// Whether attributes are cached at all. `ac`, `noac`.
    pub attribute_cache: Option<bool>,
    /// Whether close-to-open consistency is kept. `cto`, `nocto`.
    pub close_to_open: Option<bool>,
    /// Which results of lookups are cached. `lookupcache=`.
    pub lookup_cache: Option<LookupCache>,
    /// `rdirplus`, `rdirplus=force` or `nordirplus`.
    pub readdir_plus: Option<ReaddirPlus>,
    /// Whether calls come from a port below 1024. `resvport`, `noresvport`.
    pub reserved_port: Option<bool>,
    /// Which locks are kept on this machine. `local_lock=`; `nolock` is `local_lock=all`, `lock` is `local_lock=none`.
    pub local_lock: Option<LocalLock>,
    /// Whether delegations are used; they are unless switched off. `delegations`, `nodelegations`.
    pub delegations: Option<bool>,
    /// This machine's address for callbacks of version 4.0. `clientaddr=`.
    pub client_address: Option<IpAddr>,
    /// The port for callbacks of version 4.0. `callback_port=`.
    pub callback_port: Option<u16>,
}

/// Bounds of ports.
const PORTS: Bounds = Bounds(1, 65535);
/// Bounds of user and group numbers; the largest one means none (chown(2)).
const IDS: Bounds = Bounds(0, u32::MAX - 1);
/// Bounds of connections, as in the kernel's client.
const CONNECTIONS: Bounds = Bounds(1, 16);
/// Maximum number of slots of a session.
pub const SLOTS_MAX: u32 = 1024;
/// The greatest maximum of calls in flight in versions without slots.
pub const V3_CALLS_MAX: u32 = 65_536;
/// Bounds of slots.
const SLOTS: Bounds = Bounds(1, SLOTS_MAX);
/// Bounds of calls under way without slots.
const CALLS: Bounds = Bounds(1, V3_CALLS_MAX);
/// Bounds of sizes of READ and WRITE in bytes.
const SIZES: Bounds = Bounds(1024, 16 << 20);
/// Bounds of a timeout in tenths of a second.
const TIMEOUTS: Bounds = Bounds(1, 6000 * 60);
/// Bounds of repetitions.
const REPETITIONS: Bounds = Bounds(0, 1000);
/// Bounds of the times of attributes in seconds.
const CACHE_SECONDS: Bounds = Bounds(0, 86_400 * 366);

/// The effect of an option.
enum Effect {
    /// Takes a value.
    Value(fn(&mut Options, &str, &str) -> Result<(), UrlError>),
    /// Takes no value.
    Flag(fn(&mut Options)),
    /// Takes an optional value.
    Either(fn(&mut Options), fn(&mut Options, &str, &str) -> Result<(), UrlError>),
    /// Accepted without an effect, because it is the default; with these values, or with none if the list is empty.
    Ignored(&'static [&'static str]),
    /// Is recognized and refused, with this explanation.
    Refused(&'static str),
}

use Effect::{Either, Flag, Ignored, Refused, Value as Takes};

/// Assigns a number within bounds.
macro_rules! number {
    ($field:ident, $bounds:expr) => {
        Takes(|options, name, text| {
            options.$field = Some($bounds.parse(name, text)?.try_into().expect("within the bounds"));
            Ok(())
        })
    };
}

/// Assigns a word.
macro_rules! word {
    ($field:ident) => {
        Takes(|options, name, text| {
            options.$field = Some(Value::parse(name, text)?);
            Ok(())
        })
    };
}

const NO_RDMA: &str = "NFS over RDMA is not supported: use TCP";
const NO_DISK_CACHE: &str = "there is no cache on a local disk";
const OF_MOUNT: &str = "it belongs to mount(8), not to this client";

/// All options of nfs(5), and those of URLs.
#[rustfmt::skip]
const OPTIONS: &[(&str, Effect)] = &[
    ("version", Takes(version)), ("vers", Takes(version)), ("nfsvers", Takes(version)), ("minorversion", Takes(minor_version)),
    ("v2", Flag(|options| options.version = Some(Version::V2))),
    ("v3", Flag(|options| options.version = Some(Version::V3))),
    ("v4", Flag(|options| options.version = Some(Version::V4))),
    ("v4.0", Flag(|options| options.version = Some(Version::V4_0))),
    ("v4.1", Flag(|options| options.version = Some(Version::V4_1))),
    ("v4.2", Flag(|options| options.version = Some(Version::V4_2))),
    ("port", number!(port, PORTS)), ("nfsport", number!(port, PORTS)), ("mountport", number!(mount_port, PORTS)),
    ("nlmport", number!(nlm_port, PORTS)),
    ("sec", Takes(security)), ("xprtsec", Takes(transport_security)),
    ("uid", number!(uid, IDS)), ("gid", number!(gid, IDS)),
    ("nconnect", number!(connections, CONNECTIONS)), ("max_connect", Ignored(&["1"])),
    ("slots", number!(slots, SLOTS)), ("v3_calls", number!(v3_calls, CALLS)),
    ("rsize", number!(read_size, SIZES)), ("wsize", number!(write_size, SIZES)),
    ("timeo", number!(timeout_deciseconds, TIMEOUTS)), ("retrans", number!(retransmissions, REPETITIONS)),
    ("jukebox", number!(jukebox_deciseconds, TIMEOUTS)),
    ("hard", Flag(|options| options.recovery = Some(Recovery::Hard))),
    ("soft", Flag(|options| options.recovery = Some(Recovery::Soft))),
    ("softerr", Flag(|options| options.recovery = Some(Recovery::Softerr))),
    ("acregmin", number!(file_attributes_min_seconds, CACHE_SECONDS)),
    ("acregmax", number!(file_attributes_max_seconds, CACHE_SECONDS)),
    ("acdirmin", number!(directory_attributes_min_seconds, CACHE_SECONDS)),
    ("acdirmax", number!(directory_attributes_max_seconds, CACHE_SECONDS)),
    ("actimeo", Takes(attribute_timeouts)),
    ("ac", Flag(|options| options.attribute_cache = Some(true))),
    ("noac", Flag(|options| options.attribute_cache = Some(false))),
    ("cto", Flag(|options| options.close_to_open = Some(true))),
    ("nocto", Flag(|options| options.close_to_open = Some(false))),
    ("lookupcache", Takes(lookup_cache)),
    ("rdirplus", Either(|options| options.readdir_plus = Some(ReaddirPlus::Heuristic), readdir_plus)),
    ("nordirplus", Flag(|options| options.readdir_plus = Some(ReaddirPlus::Never))),
    ("resvport", Flag(|options| options.reserved_port = Some(true))),
    ("noresvport", Flag(|options| options.reserved_port = Some(false))),
    ("local_lock", word!(local_lock)),
    ("lock", Flag(|options| options.local_lock = Some(LocalLock::None))),
    ("nolock", Flag(|options| options.local_lock = Some(LocalLock::All))),
    ("delegations", Flag(|options| options.delegations = Some(true))),
    ("nodelegations", Flag(|options| options.delegations = Some(false))),
    ("clientaddr", Takes(client_address)), ("callback_port", number!(callback_port, PORTS)),
    ("proto", Takes(|options, name, text| transport(&mut options.transport, name, text))),
    ("mountproto", Takes(|options, name, text| transport(&mut options.mount_transport, name, text))),
    ("tcp", Flag(|options| options.transport = Some(Transport::Tcp))),
    ("udp", Flag(|options| options.transport = Some(Transport::Udp))), ("rdma", Refused(NO_RDMA)),
    ("mountvers", Ignored(&["1", "3"])),
    ("intr", Ignored(&[])), ("nointr", Ignored(&[])),
    ("sharecache", Ignored(&[])),
    ("nosharecache", Refused("connections and caches of one server are shared inside a process")),
    ("nofsc", Ignored(&[])), ("fsc", Refused(NO_DISK_CACHE)),
    ("mounthost", Refused("MOUNT is asked at the server itself")),
    ("bg", Refused(OF_MOUNT)), ("fg", Refused(OF_MOUNT)), ("retry", Refused(OF_MOUNT)),
];

/// Minimum similarity of an unknown option to a known one that the error suggests.
const SIMILARITY_MIN: f64 = 0.8;
/// Maximum number of known options that an error names.
const SUGGESTIONS_MAX: usize = 2;

impl Options {
    /// Applies a comma-separated list, as after `mount -o`.
    ///
    /// # Errors
    /// One sentence about the first option that is unknown, wrong or refused; earlier ones are applied.
    pub fn apply_list(&mut self, list: &str) -> Result<(), UrlError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.apply(option))
    }

    /// Applies `NAME` or `NAME=VALUE`.
    ///
    /// # Errors
    /// One sentence: the option is unknown, has a wrong value, or is refused.
    pub fn apply(&mut self, option: &str) -> Result<(), UrlError> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let Some((_, effect)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
            return Err(unknown(name));
        };
        match (effect, value) {
            (Takes(apply) | Either(_, apply), Some(value)) => apply(self, name, value),
            (Flag(apply) | Either(apply, _), None) => {
                apply(self);
                Ok(())
            }
            (Ignored([]), None) => Ok(()),
            (Ignored(values), Some(value)) if values.contains(&value) => Ok(()),
            (Ignored(values @ [_, ..]), _) => {
                Err(UrlError::new(format!("`{option}`: only {name}={} is supported", values.join(", "))))
            }
            (Refused(why), _) => Err(UrlError::new(format!("`{option}`: {why}"))),
            (Takes(_), None) => Err(UrlError::new(format!("`{name}` needs a value: {name}=…"))),
            (Flag(_) | Ignored([]), Some(_)) => Err(UrlError::new(format!("`{name}` takes no value"))),
        }
    }

    /// Applies a percent-encoded option.
    pub(super) fn apply_encoded(&mut self, option: &str) -> Result<(), UrlError> {
        let decoded = String::from_utf8(percent::decode(option)?);
        self.apply(&decoded.map_err(|_| UrlError::new(format!("`{option}`: options are text")))?)
    }

    /// Returns the options that are set, each as `NAME` or `NAME=VALUE`.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let numbers: [(&str, Option<u32>); 18] = [
            ("port", self.port.map(u32::from)),
            ("mountport", self.mount_port.map(u32::from)),
            ("nlmport", self.nlm_port.map(u32::from)),
            ("callback_port", self.callback_port.map(u32::from)),
            ("uid", self.uid),
            ("gid", self.gid),
            ("nconnect", self.connections),
            ("slots", self.slots),
            ("v3_calls", self.v3_calls),
            ("rsize", self.read_size),
            ("wsize", self.write_size),
            ("timeo", self.timeout_deciseconds),
            ("retrans", self.retransmissions),
            ("jukebox", self.jukebox_deciseconds),
            ("acregmin", self.file_attributes_min_seconds),
            ("acregmax", self.file_attributes_max_seconds),
            ("acdirmin", self.directory_attributes_min_seconds),
            ("acdirmax", self.directory_attributes_max_seconds),
        ];
        let values = [
            ("version", self.version.map(Version::word)),
            ("proto", self.transport.map(Transport::word)),
            ("mountproto", self.mount_transport.map(Transport::word)),
            ("sec", self.security.map(Security::word)),
            ("lookupcache", self.lookup_cache.map(LookupCache::word)),
            ("local_lock", self.local_lock.map(LocalLock::word)),
        ];
        let flag = |value: Option<bool>, yes: &'static str, no: &'static str| {
            value.map(|value| if value { yes } else { no })
        };
        let flags = [
            self.recovery.map(Recovery::word),
            flag(self.attribute_cache, "ac", "noac"),
            flag(self.close_to_open, "cto", "nocto"),
            self.readdir_plus.map(|value| match value {
                ReaddirPlus::Force => "rdirplus=force",
                other => other.word(),
            }),
            flag(self.reserved_port, "resvport", "noresvport"),
            flag(self.delegations, "delegations", "nodelegations"),
        ];
        let values = values.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let numbers = numbers.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let address = self.client_address.map(|address| format!("clientaddr={address}"));
        values.chain(numbers).chain(address).chain(flags.into_iter().flatten().map(String::from)).collect()
    }
}

fn version(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    let version = Version::parse(name, text)?;
    let has_minor = matches!(options.version, Some(Version::V4_0 | Version::V4_1 | Version::V4_2));
    // `minorversion=1,vers=4` means 4.1, in either order.
    if !(version == Version::V4 && has_minor) {
        options.version = Some(version);
    }
    Ok(())
}

fn minor_version(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    options.version = Some(match Bounds(0, 2).parse(name, text)? {
        0 => Version::V4_0,
        1 => Version::V4_1,
        _ => Version::V4_2,
    });
    Ok(())
}

fn security(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    if ["krb5", "krb5i", "krb5p"].contains(&text) {
        return Err(UrlError::new(format!(
            "`{name}={text}`: Kerberos is not supported by this client yet: use sec=sys"
        )));
    }
    options.security = Some(Security::parse(name, text)?);
    Ok(())
}

fn transport_security(_: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    match text {
        "none" => Ok(()),
        "tls" | "mtls" => Err(UrlError::new(format!(
            "`{name}={text}`: TLS is not supported by this client yet: use xprtsec=none"
        ))),
        _ => Err(UrlError::new(format!("`{name}={text}`: expected one of none, tls, mtls"))),
    }
}

fn transport(option: &mut Option<Transport>, name: &str, text: &str) -> Result<(), UrlError> {
    // The address determines the family.
    *option = Some(match text.strip_suffix('6').unwrap_or(text) {
        "rdma" => return Err(UrlError::new(format!("`{name}={text}`: {NO_RDMA}"))),
        text => Transport::parse(name, text)?,
    });
    Ok(())
}

fn client_address(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    let address = text.parse();
    let address = address.map_err(|_| UrlError::new(format!("`{name}={text}`: expected an IP address")))?;
    options.client_address = Some(address);
    Ok(())
}

fn attribute_timeouts(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    let seconds = Some(CACHE_SECONDS.parse(name, text)?);
    options.file_attributes_min_seconds = seconds;
    options.file_attributes_max_seconds = seconds;
    options.directory_attributes_min_seconds = seconds;
    options.directory_attributes_max_seconds = seconds;
    Ok(())
}

fn lookup_cache(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    // nfs(5) has both words.
    let text = if text == "positive" { "pos" } else { text };
    options.lookup_cache = Some(LookupCache::parse(name, text)?);
    Ok(())
}

fn readdir_plus(options: &mut Options, name: &str, text: &str) -> Result<(), UrlError> {
    options.readdir_plus = Some(match text {
        "force" => ReaddirPlus::Force,
        "none" => ReaddirPlus::Never,
        _ => return Err(UrlError::new(format!("`{name}={text}`: expected one of force, none"))),
    });
    Ok(())
}

/// Returns the error about an unknown option, with the likely ones.
fn unknown(name: &str) -> UrlError {
    let mut near: Vec<(f64, &str)> = OPTIONS
        .iter()
        .filter(|(_, effect)| !matches!(effect, Refused(_)))
        .map(|(known, _)| (strsim::jaro_winkler(name, known), *known))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .collect();
    near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let near: Vec<_> = near.iter().take(SUGGESTIONS_MAX).map(|(_, known)| format!("`{known}`")).collect();
    let hint = if near.is_empty() {
        "see nfs(5)".to_owned()
    } else {
        format!("did you mean {}?", near.join(" or "))
    };
    UrlError::new(format!("unknown option `{name}`: {hint}"))
}
