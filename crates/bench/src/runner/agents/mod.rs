//! Runs whose clients are in several processes, usually on several machines.
//!
//! The coordinator starts each agent by a command, with which it talks over standard input and output: by default ssh, which
//! decides who may do that. It compares the agents' clocks with its own, gives each a part of the clients, and lets all begin at
//! the same time.

mod clock;
mod messages;
mod process;
mod serve;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub use self::serve::serve;

use self::messages::{Job, Order, Part, Report};
use self::process::Agent;
use super::assemble::{failed, unix_ms};
use super::execute::Place;
use crate::plan::{Run, TargetKind};
use crate::result::{ClientResult, Outcome, RunResult};
use crate::server_counters::{Before, Exchanged};
use crate::units::time_text;

/// Time until an agent has answered, or its clients have connected.
const READY_MAX: Duration = Duration::from_secs(120);
/// Time from the order to begin until the beginning, in addition to the longest round trip to an agent.
const BEGIN_AFTER: Duration = Duration::from_millis(50);
/// Time between two checks for an interrupt.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The agents of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agents {
    /// The machines, as the command knows them. The same one may be there several times.
    pub hosts: Vec<String>,
    /// The shell command that starts an agent on the machine `$HOST`.
    pub command: String,
}

impl Agents {
    /// [`Agents::command`] with ssh, which does not ask for passwords, and notices that a machine is gone.
    pub const SSH: &'static str =
        "exec ssh -o BatchMode=yes -o ServerAliveInterval=15 -- \"$HOST\" enfys bench agent";

    /// Checks that agents can do all runs, and that each of them starts.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self, runs: &[Run]) -> Result<(), String> {
        for run in runs {
            let (target, clients) = (&run.case.target, run.case.clients as usize);
            if let TargetKind::Local { .. } = target.kind {
                return Err(format!(
                    "agents cannot reach {}, which only this machine can reach: start a server and give its nfs:// address",
                    target.server
                ));
            }
            if run.case.workload == "recall" && self.hosts.len() > 1 {
                return Err("agents: the clients of `recall` must be in one process".to_owned());
            }
            if run.case.workload == "replay" {
                return Err("agents: one process orders the operations of a trace's clients".to_owned());
            }
            if clients < self.hosts.len() {
                return Err(format!("{} agents for {clients} client(s): use --clients", self.hosts.len()));
            }
        }
        self.start().map(drop)
    }

    /// Starts all agents and compares the clocks.
    fn start(&self) -> Result<Vec<Agent>, String> {
        let started = Instant::now();
        // All at once: connections over a long way take their time.
        let each = thread::scope(|scope| {
            let start = |host: &String| {
                let host = host.clone();
                scope.spawn(move || Agent::start(&host, &self.command, started))
            };
            let running: Vec<_> = self.hosts.iter().map(start).collect();
            let panicked = |_| Err("a thread panicked".to_owned());
            running.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
        });
        each.into_iter().collect()
    }
}

/// Does a run whose files are prepared with agents; `None` if it was interrupted.
///
/// # Errors
/// An agent does not start, or ends before its clients are ready.
pub(super) fn measure_with_agents(
    run: &Run,
    place: &Place,
    agents: &Agents,
) -> Result<Option<RunResult>, String> {
    let counters = place.metrics.as_deref().map(Before::read);
    let mut running = Running { place, agents: agents.start()?, parts: BTreeMap::new() };
    let Some(began) = running.begin(run)? else { return Ok(None) };
    let Some(lost) = running.collect() else { return Ok(None) };
    let (mut result, exchanged) = running.combine(run, began);
    if let Some(why) = lost {
        result.outcome = Outcome::Failed(why);
    }
    result.server_counters = counters.map(|before| before.until_now(exchanged));
    Ok(Some(result))
}

/// The agents of one run.
struct Running<'r> {
    place: &'r Place,
    agents: Vec<Agent>,
    /// Results, by the number of the agent.
    parts: BTreeMap<usize, Part>,
}

/// Why there is no report.
enum NoReport {
    Interrupted,
    Failed(String),
}

impl Running<'_> {
    /// Lets all agents connect their clients, then begin. Returns when they do; `None` if interrupted.
    fn begin(&mut self, run: &Run) -> Result<Option<SystemTime>, String> {
        let count = self.agents.len();
        for (number, agent) in self.agents.iter_mut().enumerate() {
            let clients = part(run.case.clients, number, count);
            let job = Job { plan: self.place.plan.clone(), run: run.clone(), clients };
            agent.order(&Order::Prepare(Box::new(job)))?;
        }
        let deadline = Instant::now() + READY_MAX;
        for number in 0..count {
            match self.next_report(number, Some(deadline)) {
                Ok(Report::Ready) => {}
                // Its clients could not connect.
                Ok(Report::Ended(part)) => {
                    self.parts.insert(number, *part);
                }
                Ok(other) => return Err(self.agents[number].unexpected(&other)),
                Err(NoReport::Failed(why)) => return Err(why),
                Err(NoReport::Interrupted) => return Ok(None),
            }
        }
        if !self.parts.is_empty() {
            self.agents.iter_mut().for_each(Agent::stop);
            return Ok(Some(SystemTime::now()));
        }
        let trip = self.agents.iter().map(|agent| agent.clock.uncertainty * 2).max().unwrap_or_default();
        let after = BEGIN_AFTER + trip;
        for agent in &mut self.agents {
            let at = agent.clock.theirs(agent.now() + after);
            agent.order(&Order::Begin(at))?;
        }
        Ok(Some(SystemTime::now() + after))
    }

    /// Waits for the results of all agents: after one has failed, the others end as they would have. Returns why an agent has no
    /// result; `None` if interrupted.
    fn collect(&mut self) -> Option<Option<String>> {
        let mut lost = None;
        for number in 0..self.agents.len() {
            if self.parts.contains_key(&number) || self.agents[number].is_stopped() {
                continue;
            }
            match self.next_report(number, None) {
                Ok(Report::Ended(part)) => {
                    self.parts.insert(number, *part);
                }
                Ok(other) => lost = lost.or(Some(self.agents[number].unexpected(&other))),
                Err(NoReport::Failed(why)) => lost = lost.or(Some(why)),
                Err(NoReport::Interrupted) => return None,
            }
        }
        Some(lost)
    }

    fn next_report(&mut self, number: usize, deadline: Option<Instant>) -> Result<Report, NoReport> {
        loop {
            if self.place.interrupted.load(Ordering::Relaxed) {
                return Err(NoReport::Interrupted);
            }
            let agent = &mut self.agents[number];
            match agent.report_within(LOOK_EVERY) {
                Ok(Some(report)) => return Ok(report),
                Ok(None) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    let limit = time_text(READY_MAX);
                    let why = format!("agent {}: its clients are not ready after {limit}", agent.host());
                    return Err(NoReport::Failed(why));
                }
                Ok(None) => {}
                Err(why) => return Err(NoReport::Failed(why)),
            }
        }
    }

    /// Puts the parts together. Clients of different agents began apart by what the clocks say.
    fn combine(&self, run: &Run, began: SystemTime) -> (RunResult, Exchanged) {
        let mut all = failed(run, self.place, String::new());
        all.outcome = Outcome::Complete;
        all.started_unix_ms = unix_ms(began);
        let began_at =
            |number: usize, part: &Part| part.began_us.map(|theirs| self.agents[number].clock.ours(theirs));
        let first = self.parts.iter().filter_map(|(number, part)| began_at(*number, part)).min();
        let mut exchanged = Exchanged::default();
        for (number, part) in &self.parts {
            let skew = began_at(*number, part).zip(first).map_or(0, |(began, first)| began.abs_diff(first));
            exchanged.combine(&part.exchanged);
            let own = self::part(run.case.clients, *number, self.agents.len());
            add_part(&mut all, &part.result, own, skew);
        }
        all.options.insert("agents".to_owned(), self.described(run));
        (all, exchanged)
    }

    /// Returns who had which clients, and how well the clocks are known.
    fn described(&self, run: &Run) -> String {
        let count = self.agents.len();
        let each = self.agents.iter().enumerate().map(|(number, agent)| {
            let clients = part(run.case.clients, number, count).len();
            let clock = agent.clock.uncertainty.as_secs_f64() * 1e3;
            format!("{}: {clients} client(s), clock within {clock:.2} ms", agent.host())
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

/// Returns the clients of agent `number` of `count`: the first ones have one more if they are not the same number for all.
fn part(clients: u32, number: usize, count: usize) -> Range<u32> {
    let (number, count) = (number as u32, count as u32);
    let before = |number: u32| clients / count * number + (clients % count).min(number);
    before(number)..before(number + 1)
}

/// Adds an agent's part, whose first client began `skew_us` after the first of all.
fn add_part(all: &mut RunResult, part: &RunResult, own: Range<u32>, skew_us: u64) {
    if let (Outcome::Failed(_), Outcome::Complete) = (&part.outcome, &all.outcome) {
        all.outcome = part.outcome.clone();
    }
    all.seconds = all.seconds.max(part.seconds);
    all.options.extend(part.options.clone());
    all.clients.resize_with(all.clients.len().max(own.end as usize), Default::default);
    for number in own {
        let Some(client) = part.clients.get(number as usize) else { continue };
        let skew_us = client.skew_us + skew_us;
        all.clients[number as usize] = ClientResult { skew_us, ..client.clone() };
    }
    for (name, operation) in &part.operations {
        match all.operations.get_mut(name) {
            Some(sum) => sum.add(operation),
            None => {
                all.operations.insert(name.clone(), operation.clone());
            }
        }
    }
    match part.kernel.first() {
        // Requests of a mount are those of all its users.
        Some(counters) => all.add_kernel(counters.clone(), part.requests.clone()),
        None => {
            for (name, counters) in &part.requests {
                all.requests.entry(name.clone()).or_default().add(counters);
            }
        }
    }
    if let Some(compared) = part.compared {
        let all = all.compared.get_or_insert_default();
        all.reads += compared.reads;
        all.whole += compared.whole;
    }
    for (name, samples) in &part.samples {
        all.samples.entry(name.clone()).or_default().extend(samples);
    }
    // The busiest machine may be the limit.
    let busy = [all.client_busy, part.client_busy].into_iter().flatten();
    all.client_busy = busy.reduce(f64::max);
    all.client_resident_bytes = all.client_resident_bytes.max(part.client_resident_bytes);
    if let Some(counters) = &part.client_counters {
        all.add_client(counters);
    }
    if let Some(seconds) = part.client_cpu_seconds {
        *all.client_cpu_seconds.get_or_insert(0.0) += seconds;
    }
}

#[cfg(test)]
mod tests;
