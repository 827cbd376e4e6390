//! The effective configuration, with all defaults, for `enfys check-config`.

use std::path::PathBuf;

use serde::Serialize;
use server::{ExportOptions, HandleKey, LargeFiles, Settings, Squash, Versions};

use crate::control;
use crate::exports::{ExportPlan, Source};
use crate::plan::Plan;

/// Every key that has a value. Printed as TOML, it is equivalent to the original file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct EffectiveConfig {
    listen: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<PathBuf>,
    local_users: bool,
    portmap: bool,
    versions: Vec<&'static str>,
    udp: bool,
    nlm: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    nlm_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nsm_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id_domain: Option<String>,
    persistent_sessions: bool,
    copy_source: bool,
    copy_from: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keytab: Option<PathBuf>,
    sandbox: bool,
    control: EffectiveControl,
    limits: EffectiveLimits,
    export: Vec<EffectiveExport>,
}

#[derive(Debug, Serialize)]
struct EffectiveControl {
    #[serde(skip_serializing_if = "Option::is_none")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct EffectiveLimits {
    connections: usize,
    connections_per_address: usize,
    memory_bytes: usize,
    io_bytes: u32,
    reply_cache_bytes: usize,
    slot_cache_bytes: usize,
    kept_listings_bytes: usize,
    clients: usize,
    state: usize,
    delegations: usize,
    lease_seconds: u64,
    silence_seconds: u64,
    busy_poll_microseconds: u64,
    cores: usize,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct EffectiveExport {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    memory: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
    pseudo: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    referral: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replicas: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    read_only: bool,
    squash: &'static str,
    anonymous_uid: u32,
    anonymous_gid: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clients: Vec<String>,
    sec: Vec<&'static str>,
    insecure: bool,
    short_handles: bool,
    v2_large_files: &'static str,
    v2_signed_sizes: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    offline_xattr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offline_recall: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offline_recalls: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offline_recall_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#async: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_journal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_changes: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    submounts: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    client: Vec<EffectiveClient>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct EffectiveClient {
    clients: Vec<String>,
    read_only: bool,
    squash: &'static str,
    anonymous_uid: u32,
    anonymous_gid: u32,
    sec: Vec<&'static str>,
    insecure: bool,
}

impl EffectiveClient {
    fn new(options: &ExportOptions) -> Self {
        Self {
            clients: options.clients.iter().map(ToString::to_string).collect(),
            read_only: options.read_only,
            squash: squash_name(options.squash),
            anonymous_uid: options.anonymous.uid,
            anonymous_gid: options.anonymous.gid,
            sec: options.flavors.iter().map(server::Flavor::name).collect(),
            insecure: options.insecure,
        }
    }
}

fn squash_name(squash: Squash) -> &'static str {
    match squash {
        Squash::Root => "root",
        Squash::All => "all",
        Squash::None => "none",
    }
}

impl EffectiveConfig {
    /// Returns the effective configuration of a plan.
    pub fn new(plan: &Plan) -> Self {
        let in_state_dir = plan.state_dir.as_ref().map(|directory| directory.join(control::IN_STATE_DIR));
        Self {
            listen: plan.listen.iter().map(ToString::to_string).collect(),
            metrics: plan.metrics.as_ref().map(ToString::to_string),
            state_dir: plan.state_dir.clone(),
            local_users: plan.local_users,
            portmap: plan.wants_port_mapper,
            versions: names(plan.versions),
            udp: plan.udp,
            nlm: plan.nlm,
            nlm_port: plan.nlm_port,
            nsm_port: plan.nsm_port,
            id_domain: plan.id_domain.clone(),
            persistent_sessions: plan.persistent_sessions,
            copy_source: plan.copy_source,
            copy_from: plan.copy_from.iter().map(ToString::to_string).collect(),
            keytab: plan.keytab.clone(),
            sandbox: plan.sandbox,
            control: EffectiveControl { socket: plan.control.clone().or(in_state_dir) },
            limits: EffectiveLimits::new(plan),
            export: plan.exports.iter().map(EffectiveExport::new).collect(),
        }
    }
}

impl EffectiveLimits {
    fn new(plan: &Plan) -> Self {
        // Key and secrets have no effect on limits.
        let mut settings = Settings::new(HandleKey([0; 16]), 0, [0; 16], Vec::new());
        plan.apply_limits(&mut settings);
        let network = plan.network_limits();
        Self {
            connections: network.max_connections,
            connections_per_address: network.max_connections_per_address,
            memory_bytes: network.request_memory_bytes,
            io_bytes: settings.max_io,
            reply_cache_bytes: settings.reply_cache_bytes,
            slot_cache_bytes: settings.slot_cache_bytes,
            kept_listings_bytes: settings.cached_listings_bytes,
            clients: settings.max_clients,
            state: settings.max_state,
            delegations: settings.max_delegations,
            lease_seconds: settings.lease.as_secs(),
            silence_seconds: network.silence.as_secs(),
            busy_poll_microseconds: u64::try_from(network.busy_poll.as_micros()).unwrap_or(u64::MAX),
            cores: network.cores,
        }
    }
}

impl EffectiveExport {
    fn new(plan: &ExportPlan) -> Self {
        let options = &plan.options;
        let elsewhere: Vec<_> = options.locations.elsewhere().iter().map(ToString::to_string).collect();
        let (referral, replicas) =
            if options.locations.is_absent() { (elsewhere, Vec::new()) } else { (Vec::new(), elsewhere) };
        let recall = plan.offline.as_ref().and_then(|rule| rule.recall.as_ref());
        let common = Self {
            referral,
            replicas,
            offline_xattr: plan.offline.as_ref().map(|rule| rule.xattr.to_string_lossy().into_owned()),
            offline_recall: recall.map(|recall| recall.command.clone()),
            offline_recalls: recall.map(|recall| recall.at_once),
            offline_recall_seconds: recall.map(|recall| recall.limit.as_secs()),
            pseudo: plan.pseudo.clone(),
            id: plan.id,
            read_only: options.read_only,
            squash: squash_name(options.squash),
            anonymous_uid: options.anonymous.uid,
            anonymous_gid: options.anonymous.gid,
            clients: if plan.is_for_all_clients() && options.clients.is_empty() {
                vec!["*".into()]
            } else {
                options.clients.iter().map(ToString::to_string).collect()
            },
            sec: options.flavors.iter().map(server::Flavor::name).collect(),
            insecure: options.insecure,
            short_handles: options.short_handles,
            v2_large_files: match options.v2_large_files {
                LargeFiles::Refuse => "refuse",
                LargeFiles::Clamp => "clamp",
            },
            v2_signed_sizes: options.v2_signed_sizes,
            client: plan.entries.iter().map(EffectiveClient::new).collect(),
            ..Self::default()
        };
        match &plan.source {
            Source::Directory(path) => Self {
                path: Some(path.clone()),
                r#async: Some(plan.is_async),
                journal: plan.journal.as_ref().map(|journal| journal.path.clone()),
                journal_bytes: plan.journal.as_ref().map(|journal| journal.bytes),
                lost_journal: Some(if plan.may_lose_journal { "ignore" } else { "refuse" }),
                local_changes: Some(if options.recall_local_changes { "recall" } else { "ignore" }),
                submounts: Some(if plan.serves_submounts { "serve" } else { "hide" }),
                ..common
            },
            Source::Elsewhere(_) => common,
            Source::Memory(_) => {
                let (bytes, quota) = plan.memory.bytes_and_quota();
                Self { memory: true, memory_bytes: Some(bytes), quota_bytes: quota, ..common }
            }
        }
    }
}

/// Returns the names of versions, lowest first.
pub fn names(versions: Versions) -> Vec<&'static str> {
    let all = ["2", "3", "4.0", "4.1", "4.2"].into_iter();
    all.filter(|name| Versions::named(name).is_some_and(|version| versions.contains(version))).collect()
}
