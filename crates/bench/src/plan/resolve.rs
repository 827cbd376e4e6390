//! Resolves a plan's text into its runs, or returns all its errors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::case::{Case, Cold, Run, Target, TargetKind};
use super::catalogue::{Kind, WORKLOADS, Workload, contradiction};
use super::client_options::ClientOptions;
use super::errors::{Source, did_you_mean};
use super::file::{Caches, NfsVersion, PlanFile, TargetTable, Time, WorkloadTable};
use super::requirements::{GANESHA, KNFSD, Machine, Requirement, SQLITE};
use super::value::Value;
use super::{CASES_MAX, CLIENTS_MAX, ROUNDS_MAX, THREADS_MAX};
use crate::statistics::ROUNDS_MIN;

/// Measured time of a run, unless the plan says otherwise.
const DURATION_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest measured time.
const DURATION_MIN: Duration = Duration::from_secs(1);
/// Warm-up before the measured time.
const WARM_UP_DEFAULT: Duration = Duration::from_secs(5);
/// Versions, unless the plan says otherwise.
const VERSIONS_DEFAULT: &[NfsVersion] = &[NfsVersion::V3, NfsVersion::V41];
/// A server that `local:` names.
struct LocalRow {
    name: &'static str,
    /// What it needs in addition to this program; if that is anything, also root.
    needs: &'static [Requirement],
    versions: &'static [NfsVersion],
    /// Whether it keeps its files when it is started again.
    can_restart: bool,
}

/// All of them.
const LOCAL_SERVERS: &[LocalRow] = &[
    LocalRow { name: "enfys", needs: &[], versions: ENFYS_VERSIONS, can_restart: true },
    LocalRow { name: "enfys-async", needs: &[], versions: ENFYS_VERSIONS, can_restart: true },
    LocalRow { name: "enfys-memory", needs: &[], versions: ENFYS_VERSIONS, can_restart: true },
    on_modelled_disk("enfys-disk-1994"),
    on_modelled_disk("enfys-disk-1994-gathering"),
    on_modelled_disk("enfys-disk-1994-journal"),
    on_modelled_disk("enfys-disk-1994-gathering-journal"),
    on_modelled_disk("enfys-disks-1994"),
    on_modelled_disk("enfys-disks-1994-gathering"),
    on_modelled_disk("enfys-disks-1994-journal"),
    on_modelled_disk("enfys-disks-1994-gathering-journal"),
    LocalRow { name: "ganesha", needs: GANESHA, versions: KERNEL_VERSIONS, can_restart: true },
    LocalRow { name: "knfsd", needs: KNFSD, versions: KERNEL_VERSIONS, can_restart: false },
];

const fn on_modelled_disk(name: &'static str) -> LocalRow {
    LocalRow { name, needs: &[], versions: ENFYS_VERSIONS, can_restart: true }
}

const KERNEL_VERSIONS: &[NfsVersion] = &[NfsVersion::V3, NfsVersion::V40, NfsVersion::V41, NfsVersion::V42];
const ENFYS_VERSIONS: &[NfsVersion] =
    &[NfsVersion::V2, NfsVersion::V3, NfsVersion::V40, NfsVersion::V41, NfsVersion::V42];

/// A valid plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name, or that of its file.
    pub name: String,
    /// Number of runs of each case.
    pub rounds: u32,
    /// The cases, in the order of the plan.
    pub cases: Vec<Case>,
    duration: Duration,
    warm_up: Duration,
    seed: u64,
    caches: Caches,
    /// Requirements of the plan, each with its place in the text.
    needs: Vec<(String, Need)>,
}

/// A requirement on the machine.
#[derive(Clone, Debug, PartialEq)]
enum Need {
    Installed(&'static Requirement),
    Directory(String),
    File(String),
    /// A directory where processes can share memory by a file.
    SharedMemory(String),
    Root,
}

impl Plan {
    /// Reads a plan from its text; `file` is its name in messages.
    ///
    /// # Errors
    /// All errors, one message each, with file and line.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<String>> {
        let source = Source { file, text };
        let parsed: PlanFile = toml::from_str(text).map_err(|error| vec![source.reworded(&error)])?;
        let mut resolver = Resolver { source, errors: Vec::new(), needs: Vec::new() };
        let plan = resolver.plan(parsed);
        if resolver.errors.is_empty() { Ok(plan) } else { Err(resolver.errors) }
    }

    /// Returns the reasons why the plan cannot run here, one message for each reason, with file and line.
    #[must_use]
    pub fn check(&self, machine: &impl Machine) -> Vec<String> {
        let mut missing = Vec::new();
        for (place, need) in &self.needs {
            match need {
                Need::Installed(what) if !what.is_met(machine) => {
                    missing.push(format!("{place}: `{}` is not installed: {}", what.name, what.remedy()));
                }
                Need::Installed(_) => {}
                Need::Directory(path) => {
                    if let Err(why) = machine.can_write(Path::new(path)) {
                        missing.push(format!("{place}: {path}: {why}"));
                    }
                }
                Need::File(path) if !machine.has_file(Path::new(path)) => {
                    missing.push(format!("{place}: no file `{path}`"));
                }
                Need::File(_) => {}
                Need::SharedMemory(path) if machine.is_remote(Path::new(path)) => missing.push(format!(
                    "{place}: journal = \"wal\" needs memory that processes share by a file, which {path} on a server does not have"
                )),
                Need::SharedMemory(_) => {}
                Need::Root if !machine.is_root() => missing.push(format!("{place}: only root can do this")),
                Need::Root => {}
            }
        }
        missing
    }

    /// Returns all runs in order of execution: round by round, each beginning with another case, so that
    /// no case always follows the same other.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let count = self.cases.len();
        let times = (self.duration, self.warm_up);
        let runs_of = |round: u32| {
            let first = (round as usize - 1) * count / self.rounds as usize;
            let (behind, ahead) = self.cases.split_at(first);
            // Another seed for each round, so that rounds differ as much as their random numbers do.
            let seed = fastrand::Rng::with_seed(self.seed.wrapping_add(u64::from(round))).u64(..);
            let cases: Vec<&Case> = ahead.iter().chain(behind).collect();
            cases.into_iter().map(move |case| Run::new(case, round, seed, times, self.caches))
        };
        (1..=self.rounds).flat_map(runs_of).collect()
    }

    /// Returns the runs that an interrupted plan must still execute.
    #[must_use]
    pub fn remaining(&self, done: &BTreeSet<String>) -> Vec<Run> {
        self.runs().into_iter().filter(|run| !done.contains(&run.id)).collect()
    }

    /// Returns the minimum time that the runs take.
    #[must_use]
    pub fn least_time(&self) -> Duration {
        (self.duration + self.warm_up) * self.rounds * u32::try_from(self.cases.len()).unwrap_or(u32::MAX)
    }

    /// Returns advice about a valid plan whose results would be weak.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let few = (self.rounds as usize) < ROUNDS_MIN;
        few.then(|| format!("{} round(s): intervals of 95 % need at least {ROUNDS_MIN}", self.rounds))
    }
}

struct Resolver<'t> {
    source: Source<'t>,
    errors: Vec<String>,
    needs: Vec<(String, Need)>,
}

/// A target with its versions and delays.
struct Column {
    target: Target,
    versions: Vec<Option<NfsVersion>>,
    options: Vec<String>,
    delays: Vec<Duration>,
}

/// A workload with its parameters, and where the plan names it.
struct Row {
    workload: &'static str,
    parameters: BTreeMap<String, Value>,
    at: Range<usize>,
}

/// The lists of a matrix that targets may replace.
struct Lists {
    versions: Vec<NfsVersion>,
    options: Vec<String>,
    delays: Vec<Duration>,
}

impl Resolver<'_> {
    fn error(&mut self, at: &Range<usize>, why: impl std::fmt::Display) {
        self.errors.push(self.source.error(at, why));
    }

    fn plan(&mut self, file: PlanFile) -> Plan {
        let rounds = file.rounds.as_ref().map_or(ROUNDS_MIN as u32, |rounds| *rounds.get_ref());
        if let Some(at) = file.rounds.filter(|_| !(1..=ROUNDS_MAX).contains(&rounds)).map(|r| r.span()) {
            self.error(&at, format_args!("{rounds} rounds: expected 1 to {ROUNDS_MAX}"));
        }
        let duration = file.duration.as_ref().map_or(DURATION_DEFAULT, |time| time.get_ref().0);
        if let Some(at) = file.duration.filter(|_| duration < DURATION_MIN).map(|time| time.span()) {
            self.error(&at, "a run is measured for at least 1s");
        }
        let lists = Lists {
            versions: self.list(file.matrix.versions.as_ref(), VERSIONS_DEFAULT, |_| None),
            options: self.options(file.matrix.options.as_ref()),
            delays: self.delays(file.matrix.delays.as_ref()),
        };
        let threads =
            self.list(file.matrix.threads.as_ref(), &[1], |n| out_of_range("threads", *n, THREADS_MAX));
        let clients =
            self.list(file.matrix.clients.as_ref(), &[1], |n| out_of_range("clients", *n, CLIENTS_MAX));
        let columns = self.columns(&file.target, &lists, file.caches);
        let rows = self.rows(&file.workload);
        self.check_sqlite(&rows, &columns);
        let cases = self.cases(&rows, &columns, &threads, &clients);
        Plan {
            name: file.name.unwrap_or_else(|| self.stem()),
            rounds: rounds.max(1),
            cases,
            duration,
            warm_up: file.warm_up.map_or(WARM_UP_DEFAULT, |time| time.0),
            seed: file.seed.unwrap_or(1),
            caches: file.caches,
            needs: std::mem::take(&mut self.needs),
        }
    }

    fn stem(&self) -> String {
        let stem = Path::new(self.source.file).file_stem();
        stem.map_or("plan".to_owned(), |stem| stem.to_string_lossy().into_owned())
    }

    /// Returns a list of the matrix: not empty, without repetition, each value valid.
    fn list<T: Clone + PartialEq>(
        &mut self,
        list: Option<&Spanned<Vec<Spanned<T>>>>,
        default: &[T],
        wrong: impl Fn(&T) -> Option<String>,
    ) -> Vec<T> {
        let Some(list) = list else { return default.to_vec() };
        let mut values: Vec<T> = Vec::new();
        if list.get_ref().is_empty() {
            self.error(&list.span(), "an empty list: nothing would run");
        }
        for value in list.get_ref() {
            if let Some(why) = wrong(value.get_ref()) {
                self.error(&value.span(), why);
            } else if values.contains(value.get_ref()) {
                self.error(&value.span(), "the same value twice");
            } else {
                values.push(value.get_ref().clone());
            }
        }
        values
    }

    fn delays(&mut self, list: Option<&Spanned<Vec<Spanned<Time>>>>) -> Vec<Duration> {
        self.list(list, &[Time(Duration::ZERO)], |_| None).into_iter().map(|time| time.0).collect()
    }

    /// Returns alternative options of clients, each of which must be valid.
    fn options(&mut self, list: Option<&Spanned<Vec<Spanned<String>>>>) -> Vec<String> {
        self.list(list, &[String::new()], |options| ClientOptions::parse("nfs://localhost/", options).err())
    }

    fn columns(&mut self, tables: &[Spanned<TargetTable>], lists: &Lists, caches: Caches) -> Vec<Column> {
        if tables.is_empty() {
            self.errors.push(self.source.whole("no [[target]]: nothing would run"));
        }
        let mut names = BTreeSet::new();
        let mut columns = Vec::new();
        for table in tables {
            let at = table.span();
            let table = table.get_ref();
            if !names.insert(table.name.get_ref()) {
                self.error(&table.name.span(), format_args!("a second target `{}`", table.name.get_ref()));
            }
            let Some(kind) = self.kind(&table.server) else { continue };
            let cold = self.cold(table, &kind);
            if caches == Caches::Cold && cold.is_none() && table.cold.is_none() {
                self.error(
                    &at,
                    "caches = \"cold\", but this target does not say how: cold = \"new-client\", \"restart\", \
                     \"drop-caches\" or \"command: …\"",
                );
            }
            let server = table.server.get_ref().clone();
            let metrics = self.metrics(table, &kind);
            let target = Target { name: table.name.get_ref().clone(), server, kind, cold, metrics };
            columns.push(self.column(table, target, lists));
        }
        columns
    }

    /// Returns a target with its own versions, options and delays, or those of the matrix as far as they apply.
    fn column(&mut self, table: &TargetTable, target: Target, lists: &Lists) -> Column {
        if let TargetKind::Directory { .. } = target.kind {
            // The matrix does not apply: the mount of the directory determines them.
            let own = [
                table.versions.as_ref().map(Spanned::span),
                table.options.as_ref().map(Spanned::span),
                table.delays.as_ref().map(Spanned::span),
            ];
            for at in own.into_iter().flatten() {
                self.error(
                    &at,
                    "a mounted directory has the version, the options and the delay of its mount",
                );
            }
            let (options, delays) = (vec![String::new()], vec![Duration::ZERO]);
            return Column { target, versions: vec![None], options, delays };
        }
        let versions = self.list(table.versions.as_ref(), &lists.versions, |_| None);
        let options = table.options.as_ref().map_or(lists.options.clone(), |list| self.options(Some(list)));
        let delays = table.delays.as_ref().map_or(lists.delays.clone(), |list| self.delays(Some(list)));
        self.check_lists(table, &target.kind, &versions, &delays);
        let has_link = |options: &String| {
            ClientOptions::parse("nfs://localhost/", options).is_ok_and(|options| !options.link.is_empty())
        };
        if matches!(target.kind, TargetKind::Remote { .. }) && options.iter().any(has_link) {
            let at = table.options.as_ref().map_or(table.server.span(), Spanned::span);
            self.error(&at, "`rate` and `tcp_buffer` apply to the links of local: servers only");
        }
        Column { target, versions: versions.into_iter().map(Some).collect(), options, delays }
    }

    /// Checks that a server has the versions, and that the bench can delay its packets.
    fn check_lists(
        &mut self,
        table: &TargetTable,
        kind: &TargetKind,
        versions: &[NfsVersion],
        delays: &[Duration],
    ) {
        let server = table.server.span();
        match kind {
            TargetKind::Remote { .. } if delays.iter().any(|delay| !delay.is_zero()) => {
                let at = table.delays.as_ref().map_or(server, Spanned::span);
                self.error(&at, "the bench delays packets of local: servers only; set delays = [\"0\"] here");
            }
            TargetKind::Local { server: name } => {
                let serves =
                    LOCAL_SERVERS.iter().find(|row| row.name == *name).map_or(&[][..], |row| row.versions);
                for version in versions.iter().filter(|version| !serves.contains(version)) {
                    let at = table.versions.as_ref().map_or(server.clone(), Spanned::span);
                    self.error(
                        &at,
                        format_args!("{name} does not serve version {version}; set versions here"),
                    );
                }
            }
            _ => {}
        }
    }

    /// Returns file and line for a message.
    fn place(&self, at: &Range<usize>) -> String {
        self.source.error(at, "").trim_end_matches([':', ' ']).to_owned()
    }

    fn kind(&mut self, server: &Spanned<String>) -> Option<TargetKind> {
        let text = server.get_ref().as_str();
        let place = self.place(&server.span());
        if let Some(name) = text.strip_prefix("local:") {
            let Some(row) = LOCAL_SERVERS.iter().find(|row| row.name == name) else {
                let known = || LOCAL_SERVERS.iter().map(|row| row.name);
                let expected = known().collect::<Vec<_>>().join(", ");
                let meant = did_you_mean(name, known());
                self.error(
                    &server.span(),
                    format_args!("no local server `{name}`{meant}, expected one of {expected}"),
                );
                return None;
            };
            self.needs.extend(row.needs.iter().map(|what| (place.clone(), Need::Installed(what))));
            if !row.needs.is_empty() {
                self.needs.push((format!("{place}: {name}"), Need::Root));
            }
            return Some(TargetKind::Local { server: row.name.to_owned() });
        }
        if let Some((host, export)) = text.strip_prefix("nfs://").and_then(|rest| rest.split_once('/'))
            && !host.is_empty()
        {
            return Some(TargetKind::Remote { host: host.to_owned(), export: format!("/{export}") });
        }
        if text.starts_with('/') {
            self.needs.push((place, Need::Directory(text.to_owned())));
            return Some(TargetKind::Directory { path: text.to_owned() });
        }
        self.error(
            &server.span(),
            format_args!("`{text}`: expected nfs://HOST/EXPORT, local:NAME, or the absolute path of a mounted directory"),
        );
        None
    }

    fn cold(&mut self, table: &TargetTable, kind: &TargetKind) -> Option<Cold> {
        let text = table.cold.as_ref()?;
        let at = text.span();
        let is_local = matches!(kind, TargetKind::Local { .. });
        let is_directory = matches!(kind, TargetKind::Directory { .. });
        let can_restart = |name: &str| LOCAL_SERVERS.iter().any(|row| row.name == name && row.can_restart);
        let keeps_files = matches!(kind, TargetKind::Local { server } if can_restart(server));
        match text.get_ref().as_str() {
            "new-client" if !is_directory => return Some(Cold::NewClient),
            "restart" if is_local && keeps_files => return Some(Cold::Restart),
            "restart" if is_local => self.error(&at, "each run has a server of its own, whose files it makes"),
            "drop-caches" => {
                let place = self.source.error(&at, "cold = \"drop-caches\"");
                self.needs.push((place, Need::Root));
                return Some(Cold::DropCaches);
            }
            "new-client" => self.error(&at, "the client of a mounted directory is the kernel's"),
            "restart" => self.error(&at, "the bench restarts local: servers only"),
            other => match other.strip_prefix("command:").map(str::trim) {
                Some(command) if !command.is_empty() => return Some(Cold::Command(command.to_owned())),
                _ => self.error(
                    &at,
                    format_args!("`{other}`: expected new-client, restart, drop-caches, or command: and a shell command"),
                ),
            },
        }
        None
    }

    /// Returns where a target's counters are.
    fn metrics(&mut self, table: &TargetTable, kind: &TargetKind) -> Option<String> {
        let text = table.metrics.as_ref()?;
        if let TargetKind::Local { .. } = kind {
            self.error(&text.span(), "the bench reads the counters of its own servers with --metrics");
        }
        let rest = text.get_ref().strip_prefix("http://").unwrap_or(text.get_ref());
        let port = rest.split('/').next().and_then(|host| host.rsplit_once(':')).map(|(_, port)| port);
        if port.is_none_or(|port| port.parse::<u16>().is_err()) {
            let text = text.get_ref().clone();
            let at = table.metrics.as_ref().map(Spanned::span).unwrap_or_default();
            self.error(&at, format_args!("`{text}`: expected HOST:PORT or http://HOST:PORT/PATH"));
        }
        Some(text.get_ref().clone())
    }

    /// Returns each workload with every combination of its parameters.
    fn rows(&mut self, tables: &[Spanned<WorkloadTable>]) -> Vec<Row> {
        if tables.is_empty() {
            self.errors.push(self.source.whole("no [[workload]]: nothing would run"));
        }
        let mut rows: Vec<Row> = Vec::new();
        for table in tables {
            let table = table.get_ref();
            let name = table.name.get_ref();
            let Some(workload) = WORKLOADS.iter().find(|workload| workload.name == name) else {
                let known = || WORKLOADS.iter().map(|workload| workload.name);
                let meant = did_you_mean(name, known());
                let expected = known().collect::<Vec<_>>().join(", ");
                self.error(
                    &table.name.span(),
                    format_args!("no workload `{name}`{meant}, expected one of {expected}"),
                );
                continue;
            };
            let Some(combinations) = self.combinations(workload, table) else { continue };
            let at = table.name.span();
            for parameters in combinations {
                let is_same = |row: &Row| row.workload == workload.name && row.parameters == parameters;
                if rows.iter().any(is_same) {
                    self.error(&at, format_args!("workload `{name}` twice with the same parameters"));
                } else if let Some(why) = contradiction(workload.name, &parameters) {
                    self.error(&at, format_args!("{name}: {why}"));
                } else {
                    rows.push(Row { workload: workload.name, parameters, at: at.clone() });
                }
            }
        }
        rows
    }

    /// Checks that programs which use files themselves have a directory for it, and notes what they need.
    fn check_sqlite(&mut self, rows: &[Row], columns: &[Column]) {
        for Row { parameters, at, .. } in rows {
            let is = |name: &str, word: &str| matches!(parameters.get(name), Some(Value::Text(text)) if text == word);
            if !is("engine", "sqlite3") {
                continue;
            }
            let place = self.place(at);
            let program = (place.clone(), Need::Installed(&SQLITE));
            if !self.needs.contains(&program) {
                self.needs.push(program);
            }
            for Target { kind, server, .. } in columns.iter().map(|column| &column.target) {
                match kind {
                    TargetKind::Directory { path } if is("journal", "wal") => {
                        self.needs.push((place.clone(), Need::SharedMemory(path.clone())));
                    }
                    TargetKind::Directory { .. } => {}
                    _ => self.error(
                        at,
                        format_args!("engine = \"sqlite3\" needs a mounted directory, and {server} is none"),
                    ),
                }
            }
        }
    }

    fn combinations(
        &mut self,
        workload: &Workload,
        table: &WorkloadTable,
    ) -> Option<Vec<BTreeMap<String, Value>>> {
        let defaults = workload.parameters.iter().map(|p| (p.name.to_owned(), p.default_value()));
        let mut combinations: Vec<BTreeMap<String, Value>> = vec![defaults.collect()];
        for (key, values) in &table.set {
            let Some(parameter) = workload.parameters.iter().find(|p| p.name == key.get_ref()) else {
                let known = || workload.parameters.iter().map(|p| p.name);
                let meant = did_you_mean(key.get_ref(), known());
                let expected = known().collect::<Vec<_>>().join(", ");
                let key_text = key.get_ref();
                self.error(
                    &key.span(),
                    format_args!(
                        "{} has no parameter `{key_text}`{meant}, expected one of {expected}",
                        workload.name
                    ),
                );
                continue;
            };
            let mut valid = Vec::new();
            for value in &values.get_ref().0 {
                match parameter.kind.check(value) {
                    Ok(value) => {
                        if parameter.kind == Kind::Path {
                            let place = self.place(&values.span());
                            self.needs.push((place, Need::File(value.to_string())));
                        }
                        valid.push(value);
                    }
                    Err(why) => self.error(&values.span(), format_args!("{}: {why}", parameter.name)),
                }
            }
            if combinations.len().saturating_mul(valid.len()) > CASES_MAX {
                self.error(&key.span(), format_args!("more than {CASES_MAX} cases"));
                return None;
            }
            let with = |value: &Value| {
                let set = |mut combination: BTreeMap<String, Value>| {
                    combination.insert(parameter.name.to_owned(), value.clone());
                    combination
                };
                combinations.iter().cloned().map(set).collect::<Vec<_>>()
            };
            combinations = valid.iter().flat_map(with).collect();
        }
        for missing in workload.parameters.iter().filter(|p| p.kind == Kind::Path) {
            if combinations.iter().any(|set| set.get(missing.name) == Some(&missing.default_value())) {
                self.error(&table.name.span(), format_args!("{} needs `{}`", workload.name, missing.name));
            }
        }
        Some(combinations)
    }

    fn cases(&mut self, rows: &[Row], columns: &[Column], threads: &[u32], clients: &[u32]) -> Vec<Case> {
        let size = |column: &Column| column.versions.len() * column.options.len() * column.delays.len();
        let per_row: usize = columns.iter().map(size).sum();
        let count =
            [per_row, threads.len(), clients.len()].into_iter().fold(rows.len(), usize::saturating_mul);
        if count > CASES_MAX {
            self.errors.push(self.source.whole(format_args!("{count} cases: at most {CASES_MAX}")));
            return Vec::new();
        }
        let mut cases = Vec::with_capacity(count);
        for Row { workload, parameters, .. } in rows {
            for delay_index in 0..columns.iter().map(|column| column.delays.len()).max().unwrap_or(0) {
                for (threads, clients) in threads.iter().flat_map(|t| clients.iter().map(move |c| (*t, *c))) {
                    // Targets and versions innermost: compared cases run close together in time.
                    for column in columns {
                        let Some(delay) = column.delays.get(delay_index) else { continue };
                        let options = |version| column.options.iter().map(move |options| (version, options));
                        cases.extend(column.versions.iter().flat_map(options).map(|(version, options)| {
                            Case {
                                workload: (*workload).to_owned(),
                                parameters: parameters.clone(),
                                target: column.target.clone(),
                                version: *version,
                                options: options.clone(),
                                delay: *delay,
                                threads,
                                clients,
                            }
                        }));
                    }
                }
            }
        }
        cases
    }
}

fn out_of_range(what: &str, value: u32, most: u32) -> Option<String> {
    (!(1..=most).contains(&value)).then(|| format!("{value} {what}: expected 1 to {most}"))
}

#[cfg(test)]
mod tests;
