//! One export, as the command line or the configuration describes it.

use std::ffi::CString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use server::{
    ClientPattern, DEFAULT_ANONYMOUS, ExportOptions, Flavors, LargeFiles, Location as ElsewhereLocation,
    Locations, Squash,
};
use store::error_text;
use vfs::journal::{LOG_BYTES_MAX, LOG_BYTES_MIN};
use vfs::{Credentials, MemOptions};

use super::offline::{self, OfflineRule, RecallRule};
use crate::cli::{ServeArguments, SquashArgument};
use crate::config::{
    ClientConfig, Config, ExportConfig, KeyLocations, LargeFilesConfig, LocalChangesConfig,
    LostJournalConfig, SquashConfig, SubmountsConfig,
};
use crate::flavors;
use crate::name_services::hosts::{FORMS, patterns};
use crate::size::Size;

/// The default path of an export.
const DEFAULT_PSEUDO: &str = "/export";

/// Bytes of a new journal.
const JOURNAL_BYTES: u64 = 64 << 20;

/// The journal of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPlan {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of a new file.
    pub bytes: u64,
}

/// One export.
#[derive(Debug, Clone)]
pub struct ExportPlan {
    pub source: Source,
    pub is_async: bool,
    pub journal: Option<JournalPlan>,
    /// Whether the server starts if the journal is lost.
    pub may_lose_journal: bool,
    pub memory: MemoryLimits,
    pub pseudo: String,
    pub id: Option<u32>,
    /// Options for the export's own `clients`.
    pub options: ExportOptions,
    /// Options of each `[[export.client]]`.
    pub entries: Vec<ExportOptions>,
    /// The rule for files whose content is offline.
    pub offline: Option<OfflineRule>,
    /// Whether file systems that are mounted inside are also served.
    pub serves_submounts: bool,
    /// Whether the directory's file system is mounted read-only on this machine.
    pub is_mounted_read_only: bool,
    /// Hosts and netgroups in `clients` that were not found.
    pub warnings: Vec<String>,
    /// The place of its definition in the configuration; none if the command line does.
    location: Option<Location>,
}

/// The table of an export in a configuration.
#[derive(Debug, Clone)]
struct Location {
    keys: Arc<KeyLocations>,
    /// The index of the `[[export]]`.
    index: usize,
}

impl Location {
    /// Returns whether the export has this key.
    fn has(&self, key: &str) -> bool {
        self.keys.has(&format!("export.{}.{key}", self.index))
    }

    /// Returns `FILE:LINE` of a key of the export, or of its header if it has no such key.
    fn of(&self, key: &str) -> String {
        self.keys.location(&format!("export.{}.{key}", self.index))
    }
}

/// The source of an export's files. Equal sources are the same file system after a reload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A directory.
    Directory(PathBuf),
    /// A file system in memory, identified by its export path.
    Memory(String),
    /// None: the files are on other servers. Identified by its export path.
    Elsewhere(String),
}

/// Bounds of a file system in memory; `None` is the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// Bytes of one user.
    pub quota: Option<u64>,
}

impl MemoryLimits {
    /// Returns the size in bytes, and the bytes of one user.
    pub fn bytes_and_quota(self) -> (u64, Option<u64>) {
        (self.bytes.unwrap_or(MemOptions::default().max_bytes), self.quota)
    }
}

impl ExportPlan {
    /// Returns the exports of the command line.
    ///
    /// # Errors
    /// One line that names the argument.
    pub fn of_arguments(arguments: &ServeArguments) -> Result<Vec<Self>, String> {
        let mut plans = match arguments.memory {
            Some(size) => memory(arguments, size)?,
            None => directories(arguments)?,
        };
        plans.iter_mut().try_for_each(|plan| plan.override_by(arguments))?;
        Ok(plans)
    }

    /// Returns the exports of a configuration; options of the command line override it.
    ///
    /// # Errors
    /// One line that names the file and the line.
    pub fn of_config(config: &Config, arguments: Option<&ServeArguments>) -> Result<Vec<Self>, String> {
        let plans = config.exports.iter().enumerate().map(|(index, export)| {
            let mut plan = Self::of_table(export, Location { keys: Arc::clone(&config.locations), index })?;
            arguments.map_or(Ok(()), |arguments| plan.override_by(arguments))?;
            Ok(plan)
        });
        plans.collect()
    }

    fn of_table(config: &ExportConfig, location: Location) -> Result<Self, String> {
        let pseudo = config.pseudo.clone().unwrap_or_else(|| DEFAULT_PSEUDO.into());
        let wrong = |key: &str, why: &str| Err(format!("{}: export {pseudo}: {why}", location.of(key)));
        if let Some((key, why)) = contradiction(config) {
            return wrong(key, &why);
        }
        let source = match &config.path {
            Some(path) => Source::Directory(path.clone()),
            None if config.memory => Source::Memory(pseudo.clone()),
            None => Source::Elsewhere(pseudo.clone()),
        };
        let locations = match locations(config) {
            Ok(locations) => locations,
            Err((key, why)) => return wrong(&key, &why),
        };
        if config.clients.is_empty() && location.has("clients") {
            let why =
                "`clients` is empty, so no client may mount it: write [\"*\"] for all, or remove the key";
            return wrong("clients", why);
        }
        let (mut warnings, mut unknown) = (Vec::new(), Vec::new());
        let clients = match patterns(&config.clients, &mut unknown) {
            Ok(patterns) => patterns,
            Err((index, why)) => return wrong(&format!("clients.{index}"), &format!("`clients`: {why}")),
        };
        let flavors = match config.sec.as_deref().map_or(Ok(Flavors::SYS), flavors::parse) {
            Ok(flavors) => flavors,
            Err(why) => return wrong("sec", &format!("`sec`: {why}")),
        };
        let anonymous = Credentials {
            uid: config.anonymous_uid.unwrap_or(DEFAULT_ANONYMOUS),
            gid: config.anonymous_gid.unwrap_or(DEFAULT_ANONYMOUS),
            groups: Arc::from([]),
        };
        let offline = match offline(config) {
            Ok(offline) => offline,
            Err((key, why)) => return wrong(key, &why),
        };
        let options = ExportOptions {
            read_only: config.read_only,
            squash: config.squash.map_or(Squash::Root, Squash::from),
            anonymous: Arc::new(anonymous),
            clients,
            flavors,
            insecure: config.insecure,
            recall_local_changes: config.local_changes != Some(LocalChangesConfig::Ignore),
            short_handles: config.short_handles,
            v2_large_files: config.v2_large_files.map_or(LargeFiles::Refuse, LargeFiles::from),
            v2_signed_sizes: config.v2_signed_sizes,
            locations,
        };
        let mut warn = |key: &str, unknown: &mut Vec<(usize, String)>| {
            warnings.extend(unknown.drain(..).map(|(index, why)| {
                format!("{}: export {pseudo}: `clients`: {why}", location.of(&format!("{key}.{index}")))
            }));
        };
        warn("clients", &mut unknown);
        let mut entries = Vec::new();
        for (index, client) in config.client.iter().enumerate() {
            match entry(client, &options, &mut unknown) {
                Ok(entry) => entries.push(entry),
                Err((key, why)) => return wrong(&format!("client.{index}.{key}"), &why),
            }
            warn(&format!("client.{index}.clients"), &mut unknown);
        }
        let memory = MemoryLimits { bytes: config.memory_bytes, quota: config.quota_bytes };
        let (is_async, id, location) = (config.r#async, config.id, Some(location));
        let serves_submounts = config.submounts == Some(SubmountsConfig::Serve);
        let bytes = config.journal_bytes.unwrap_or(JOURNAL_BYTES);
        let journal = config.journal.clone().map(|path| JournalPlan { path, bytes });
        let may_lose_journal = config.lost_journal == Some(LostJournalConfig::Ignore);
        let plan = Self { journal, may_lose_journal, ..Self::new(source, pseudo) };
        Ok(Self {
            is_async,
            memory,
            id,
            options,
            entries,
            offline,
            serves_submounts,
            warnings,
            location,
            ..plan
        })
    }

    fn override_by(&mut self, arguments: &ServeArguments) -> Result<(), String> {
        self.is_async |= arguments.r#async && matches!(self.source, Source::Directory(_));
        self.may_lose_journal |= arguments.ignore_lost_journals;
        for options in std::iter::once(&mut self.options).chain(&mut self.entries) {
            options.read_only |= arguments.read_only;
            options.insecure |= arguments.insecure;
            if let Some(squash) = arguments.squash {
                options.squash = squash.into();
            }
            if !arguments.sec.is_empty() {
                options.flavors = flavors::parse(&arguments.sec).map_err(|why| format!("--sec: {why}"))?;
            }
        }
        Ok(())
    }

    /// Returns the options of each entry, and the export's own. An export that has entries and no `clients` of its own is for no
    /// other client.
    pub fn all_options(&self) -> impl Iterator<Item = &ExportOptions> {
        let own = (self.entries.is_empty() || !self.options.clients.is_empty()).then_some(&self.options);
        self.entries.iter().chain(own)
    }

    /// Returns whether every client may mount it.
    pub fn is_for_all_clients(&self) -> bool {
        let means_all = |options: &ExportOptions| {
            options.clients.is_empty() || options.clients.contains(&ClientPattern::Everyone)
        };
        self.all_options().any(means_all)
    }

    fn new(source: Source, pseudo: String) -> Self {
        let (memory, options) = (MemoryLimits::default(), ExportOptions::default());
        let (is_async, serves_submounts, is_mounted_read_only) = (false, false, false);
        let entries = Vec::new();
        Self {
            source,
            is_async,
            journal: None,
            may_lose_journal: false,
            memory,
            pseudo,
            id: None,
            options,
            entries,
            offline: None,
            serves_submounts,
            is_mounted_read_only,
            warnings: Vec::new(),
            location: None,
        }
    }

    /// Returns the directory, if it serves one.
    pub fn directory(&self) -> Option<&Path> {
        match &self.source {
            Source::Directory(path) => Some(path),
            Source::Memory(_) | Source::Elsewhere(_) => None,
        }
    }

    /// Returns whether it serves the directory at `path`, which has no symbolic links.
    pub fn is_at(&self, path: &Path) -> bool {
        self.directory().is_some_and(|own| own == path || own.canonicalize().is_ok_and(|own| own == path))
    }

    /// Returns the export of a file system that is mounted at `path`, which is `below` this export's directory.
    pub fn submount(&self, path: PathBuf, below: &str) -> Self {
        let pseudo = format!("{}/{below}", self.pseudo.trim_end_matches('/'));
        let mut plan = Self {
            source: Source::Directory(path),
            pseudo,
            id: None,
            serves_submounts: false,
            journal: None,
            ..self.clone()
        };
        // Replicas are of one file system.
        for options in std::iter::once(&mut plan.options).chain(&mut plan.entries) {
            options.locations = Locations::Here;
        }
        plan
    }

    /// Returns whether the command line defines it.
    pub fn is_of_command_line(&self) -> bool {
        self.location.is_none()
    }

    /// Returns an error about this export.
    pub fn error(&self, why: impl fmt::Display) -> String {
        self.key_error("", why)
    }

    /// Returns an error about a key of this export.
    pub fn key_error(&self, key: &str, why: impl fmt::Display) -> String {
        match &self.location {
            Some(location) if key.is_empty() => {
                format!("{}: export {}: {why}", location.of(key), self.pseudo)
            }
            Some(location) => format!("{}: export {}: `{key}`: {why}", location.of(key), self.pseudo),
            None => format!("export {}: {why}", self.pseudo),
        }
    }
}

/// Returns the options of an `[[export.client]]`, with the export's options as defaults.
///
/// # Errors
/// The wrong key, and why.
fn entry(
    config: &ClientConfig,
    export: &ExportOptions,
    unknown: &mut Vec<(usize, String)>,
) -> Result<ExportOptions, (String, String)> {
    if config.clients.is_empty() {
        return Err((
            "clients".into(),
            format!("[[export.client]] needs `clients`: expected a list of {FORMS}"),
        ));
    }
    let clients = patterns(&config.clients, unknown)
        .map_err(|(index, why)| (format!("clients.{index}"), format!("`clients`: {why}")))?;
    let flavors = config.sec.as_deref().map_or(Ok(export.flavors), flavors::parse);
    let anonymous = Credentials {
        uid: config.anonymous_uid.unwrap_or(export.anonymous.uid),
        gid: config.anonymous_gid.unwrap_or(export.anonymous.gid),
        groups: Arc::from([]),
    };
    Ok(ExportOptions {
        read_only: config.read_only.unwrap_or(export.read_only),
        squash: config.squash.map_or(export.squash, Squash::from),
        anonymous: Arc::new(anonymous),
        clients,
        flavors: flavors.map_err(|why| ("sec".to_owned(), format!("`sec`: {why}")))?,
        insecure: config.insecure.unwrap_or(export.insecure),
        recall_local_changes: export.recall_local_changes,
        short_handles: export.short_handles,
        v2_large_files: export.v2_large_files,
        v2_signed_sizes: export.v2_signed_sizes,
        locations: export.locations.clone(),
    })
}

/// Returns a key of an export that contradicts another, and why.
fn contradiction(config: &ExportConfig) -> Option<(&'static str, String)> {
    let wrong = |key, why: &str| Some((key, why.to_owned()));
    match (&config.path, config.memory) {
        (Some(path), false) if !path.is_absolute() => {
            return Some(("path", format!("`path` must be absolute, found `{}`", path.display())));
        }
        (Some(_), true) => return wrong("memory", "`path` and `memory` cannot both be set"),
        (None, false) if config.referral.is_none() => {
            return wrong("", "needs a `path`, `memory = true`, or a `referral`");
        }
        (None, true) if config.referral.is_some() => {
            return wrong("referral", "`memory` and `referral` cannot both be set");
        }
        _ if config.referral.is_some() && config.replicas.is_some() => {
            return wrong(
                "replicas",
                "`referral` and `replicas` cannot both be set: the files are here or not",
            );
        }
        _ => {}
    }
    let limit = [("memory-bytes", config.memory_bytes), ("quota-bytes", config.quota_bytes)];
    let is_zero_or_misplaced = |value: &Option<u64>| value.is_some_and(|bytes| bytes == 0 || !config.memory);
    let limit = limit.into_iter().find(|(_, value)| is_zero_or_misplaced(value));
    match limit {
        Some((key, _)) if !config.memory => {
            wrong(key, "`memory-bytes` and `quota-bytes` are for `memory = true`")
        }
        Some((key, Some(0))) => {
            Some((key, format!("`{key}`: expected a number of bytes, at least 1, found 0")))
        }
        _ if config.r#async && config.memory => {
            wrong("async", "`async` is for directories: memory has no stable storage")
        }
        _ if config.local_changes.is_some() && config.memory => {
            wrong("local-changes", "`local-changes` is for directories: local processes cannot change memory")
        }
        _ if config.submounts.is_some() && config.memory => {
            wrong("submounts", "`submounts` is for directories: nothing is mounted inside memory")
        }
        _ if config.journal.is_some() && config.memory => {
            wrong("journal", "`journal` is for directories: memory has no stable storage")
        }
        _ if config.journal.as_ref().is_some_and(|path| !path.is_absolute()) => {
            wrong("journal", "`journal` must be an absolute path")
        }
        _ if config.journal.is_none() && config.journal_bytes.is_some() => {
            wrong("journal-bytes", "`journal-bytes` needs a `journal`")
        }
        _ if config.journal_bytes.is_some_and(|bytes| !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&bytes)) => {
            Some((
                "journal-bytes",
                format!("`journal-bytes`: expected an integer from {LOG_BYTES_MIN} to {LOG_BYTES_MAX}"),
            ))
        }
        _ if config.id == Some(0) => wrong("id", "`id`: expected an integer from 1 to 4294967295, found 0"),
        _ => None,
    }
}

/// Returns the place of the files.
///
/// # Errors
/// The wrong key, and why.
fn locations(config: &ExportConfig) -> Result<Locations, (String, String)> {
    let parse = |key: &str, texts: &[String]| {
        if texts.is_empty() || texts.len() > Locations::COUNT_MAX {
            let why =
                format!("`{key}`: expected 1 to {} locations, found {}", Locations::COUNT_MAX, texts.len());
            return Err((key.to_owned(), why));
        }
        let of = |(index, text): (usize, &String)| {
            text.parse::<ElsewhereLocation>()
                .map_err(|why| (format!("{key}.{index}"), format!("`{key}`: {why}")))
        };
        texts.iter().enumerate().map(of).collect::<Result<Arc<[_]>, _>>()
    };
    match (&config.referral, &config.replicas) {
        (Some(referral), _) => parse("referral", referral).map(Locations::Moved),
        (None, Some(replicas)) => parse("replicas", replicas).map(Locations::Replicated),
        (None, None) => Ok(Locations::Here),
    }
}

/// Default and maximum number of commands at once that recall files of an export.
const RECALLS: (usize, usize) = (4, 64);
/// Default and maximum time of such a command, in seconds.
const RECALL_SECONDS: (u64, u64) = (600, 86_400);
/// XATTR_NAME_MAX of Linux.
const XATTR_NAME_MAX: usize = 255;

/// Returns the rule for files whose content is offline.
///
/// # Errors
/// The wrong key, and why.
fn offline(config: &ExportConfig) -> Result<Option<OfflineRule>, (&'static str, String)> {
    let Some(name) = &config.offline_xattr else {
        let others = [
            ("offline-recall", config.offline_recall.is_some()),
            ("offline-recalls", config.offline_recalls.is_some()),
            ("offline-recall-seconds", config.offline_recall_seconds.is_some()),
        ];
        return match others.into_iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => Err((key, format!("`{key}` needs `offline-xattr`, which marks the files"))),
            None => Ok(None),
        };
    };
    let is_valid = name.strip_prefix(offline::PREFIX).is_some_and(|rest| !rest.is_empty());
    let xattr = CString::new(name.as_str()).ok().filter(|_| is_valid && name.len() <= XATTR_NAME_MAX);
    let xattr = xattr.ok_or_else(|| {
        let why =
            format!("expected an attribute of the `user` name space, as in \"user.offline\", found `{name}`");
        ("offline-xattr", format!("`offline-xattr`: {why}"))
    })?;
    if config.path.is_none() {
        return Err(("offline-xattr", "`offline-xattr` is for directories".into()));
    }
    let at_once = config.offline_recalls.unwrap_or(RECALLS.0);
    if !(1..=RECALLS.1).contains(&at_once) {
        let why = format!("`offline-recalls`: expected an integer from 1 to {}, found {at_once}", RECALLS.1);
        return Err(("offline-recalls", why));
    }
    let seconds = config.offline_recall_seconds.unwrap_or(RECALL_SECONDS.0);
    if !(1..=RECALL_SECONDS.1).contains(&seconds) {
        let most = RECALL_SECONDS.1;
        let why = format!("`offline-recall-seconds`: expected an integer from 1 to {most}, found {seconds}");
        return Err(("offline-recall-seconds", why));
    }
    let recall = config.offline_recall.clone().map(|command| match command.first() {
        Some(program) if program.starts_with('/') && !command.iter().any(|word| word.contains('\0')) => {
            Ok(RecallRule { command, at_once, limit: Duration::from_secs(seconds) })
        }
        _ => {
            let why = "`offline-recall`: expected a program by its absolute path, and its arguments";
            Err(("offline-recall", why.to_owned()))
        }
    });
    Ok(Some(OfflineRule { xattr, recall: recall.transpose()? }))
}

/// Writes locations, for people.
fn write_locations(f: &mut fmt::Formatter<'_>, locations: &[ElsewhereLocation]) -> fmt::Result {
    let texts: Vec<_> = locations.iter().map(ToString::to_string).collect();
    f.write_str(&texts.join(", "))
}

/// Writes the options for some clients, for people.
fn write_options(
    f: &mut fmt::Formatter<'_>,
    options: &ExportOptions,
    is_mounted_read_only: bool,
) -> fmt::Result {
    let access = match (options.read_only, is_mounted_read_only) {
        (true, _) => "read-only",
        (false, true) => "read-only (its file system is mounted read-only here)",
        (false, false) => "read-write",
    };
    let squash = match options.squash {
        Squash::None => "no user squashed",
        Squash::Root => "root squashed",
        Squash::All => "all users squashed",
    };
    write!(f, "{access}, {squash}, for ")?;
    match options.clients.as_slice() {
        [] | [ClientPattern::Everyone] => f.write_str("any client that reaches it")?,
        patterns => {
            let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            f.write_str(&patterns.join(", "))?;
        }
    }
    if options.insecure {
        f.write_str(", from any port")?;
    }
    // The default is omitted.
    if options.flavors == Flavors::SYS { Ok(()) } else { write!(f, ", by sec={}", options.flavors) }
}

/// One line for people.
impl fmt::Display for ExportPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Locations::Moved(elsewhere) = &self.options.locations {
            write!(f, "{}: a referral to ", self.pseudo)?;
            return write_locations(f, elsewhere);
        }
        match &self.source {
            Source::Directory(path) => {
                write!(f, "{} ({})", path.display(), if self.is_async { "async" } else { "sync" })?;
            }
            Source::Memory(_) => match self.memory.bytes_and_quota() {
                (bytes, None) => write!(f, "memory ({})", Size(bytes))?,
                (bytes, Some(quota)) => write!(f, "memory ({}, {} a user)", Size(bytes), Size(quota))?,
            },
            Source::Elsewhere(_) => {}
        }
        write!(f, " as {}: ", self.pseudo)?;
        for (index, options) in self.all_options().enumerate() {
            f.write_str(if index > 0 { "; " } else { "" })?;
            write_options(f, options, self.is_mounted_read_only)?;
        }
        if !self.options.recall_local_changes {
            f.write_str(", local changes ignored")?;
        }
        if self.options.short_handles {
            f.write_str(", short handles")?;
        }
        if let Some(journal) = &self.journal {
            write!(f, ", journal {}", journal.path.display())?;
        }
        if self.serves_submounts {
            f.write_str(", with what is mounted inside")?;
        }
        if let Some(rule) = &self.offline {
            let how = if rule.recall.is_some() { "recalled" } else { "waited for" };
            write!(f, ", files with {} are {how}", rule.xattr.to_string_lossy())?;
        }
        if let Locations::Replicated(elsewhere) = &self.options.locations {
            f.write_str(", with replicas at ")?;
            write_locations(f, elsewhere)?;
        }
        Ok(())
    }
}

impl From<SquashArgument> for Squash {
    fn from(argument: SquashArgument) -> Self {
        match argument {
            SquashArgument::Root => Self::Root,
            SquashArgument::All => Self::All,
            SquashArgument::None => Self::None,
        }
    }
}

impl From<LargeFilesConfig> for LargeFiles {
    fn from(config: LargeFilesConfig) -> Self {
        match config {
            LargeFilesConfig::Refuse => Self::Refuse,
            LargeFilesConfig::Clamp => Self::Clamp,
        }
    }
}

impl From<SquashConfig> for Squash {
    fn from(config: SquashConfig) -> Self {
        match config {
            SquashConfig::Root => Self::Root,
            SquashConfig::All => Self::All,
            SquashConfig::None => Self::None,
        }
    }
}

/// Returns the exports of `--memory[=SIZE]`, alone or with one or more `:/PSEUDO`.
fn memory(arguments: &ServeArguments, size: Option<Size>) -> Result<Vec<ExportPlan>, String> {
    let pseudos = arguments.paths.iter().map(|argument| match argument.strip_prefix(':') {
        Some(pseudo) => Ok(pseudo.to_owned()),
        None => Err(format!(
            "--memory serves no directory: remove `{argument}`, or give an export path as `:/PSEUDO`"
        )),
    });
    let mut pseudos: Vec<String> = pseudos.collect::<Result<_, _>>()?;
    if pseudos.is_empty() {
        pseudos.push(DEFAULT_PSEUDO.into());
    }
    let memory = MemoryLimits { bytes: size.map(|size| size.0), quota: None };
    let plan =
        |pseudo: String| ExportPlan { memory, ..ExportPlan::new(Source::Memory(pseudo.clone()), pseudo) };
    Ok(pseudos.into_iter().map(plan).collect())
}

/// Returns the exports of the directories on the command line.
fn directories(arguments: &ServeArguments) -> Result<Vec<ExportPlan>, String> {
    let plans = arguments.paths.iter().map(|argument| {
        let (path, pseudo) = match argument.rsplit_once(":/") {
            Some((path, pseudo)) => (path, format!("/{pseudo}")),
            None => (argument.as_str(), DEFAULT_PSEUDO.to_string()),
        };
        if path.is_empty() {
            return Err(format!(
                "`{argument}` names no directory: give one, or --memory for a file system in memory"
            ));
        }
        let path =
            std::path::absolute(path).map_err(|error| format!("`{argument}`: {}", error_text(&error)))?;
        Ok(ExportPlan::new(Source::Directory(path), pseudo))
    });
    plans.collect()
}

#[cfg(test)]
mod tests;
