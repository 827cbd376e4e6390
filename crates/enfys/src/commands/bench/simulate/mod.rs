//! `enfys bench simulate`: workloads in virtual time, with this client and this server.

mod link;
mod world;

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::plan::{NfsVersion, Plan, PlanOptions, Run};
use bench::report;
use bench::result::{RunResult, file};
use bench::runner::{Simulated, Sleeper};
use bench::units::time_text;
use client::Client;
use client::cache::limiter::{Budget, Limiter};
use client::config::{Caches, Caller, Config, Version};
use client::engine::{Engine, RetryPolicy};
use client::fs::FileSystem;
use futures_util::future::{Either, select};
use rpc::auth::{AuthSys, GroupList};
use xdr::Opaque;

use self::link::Behavior;
use self::world::{Clock, Program, World};
use super::arguments::SimulateArguments;
use super::print;

/// Shortest round trip: without one, virtual time would not pass.
const DELAY_MIN: Duration = Duration::from_micros(1);
/// The memory budget of a client in bytes, as of the bench's other clients.
const MEMORY: u64 = 1 << 30;
/// Time until a silent server's connection is made again.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs all cases, and prints a table or all results.
pub fn run(arguments: &SimulateArguments) -> Result<ExitCode, String> {
    let mut results = Vec::new();
    for delay in &arguments.delay {
        if *delay < DELAY_MIN {
            return Err("--delay: at least 1us: virtual time passes on the link alone".to_owned());
        }
        for run in plan(arguments, *delay)?.runs() {
            let outages = arguments.outage.iter().map(|outage| (outage.start, outage.length)).collect();
            let behavior = Behavior { delay: *delay, loss: arguments.loss, outages };
            let began = Instant::now();
            let (result, records) = simulate(&run, &behavior)?;
            eprintln!(
                "{}: {:.3} s simulated in {:.1} s, {records} records",
                run.id,
                result.seconds,
                began.elapsed().as_secs_f64()
            );
            if let Some(directory) = &arguments.results {
                file::save(directory, &result)?;
            }
            results.push(result);
        }
    }
    let mut text = String::new();
    if arguments.json {
        text = serde_json::to_string(&results).map_err(|error| error.to_string())?;
    } else {
        report::write_table(&mut text, &results).map_err(|error| error.to_string())?;
    }
    print(text.trim_end())?;
    Ok(if results.iter().all(RunResult::is_complete) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn plan(arguments: &SimulateArguments, delay: Duration) -> Result<Plan, String> {
    let options = PlanOptions {
        workload: arguments.workload.clone(),
        targets: vec![format!("{}=local:enfys-memory", name(arguments))],
        set: arguments.set.clone(),
        versions: arguments.nfs.clone(),
        delays: vec![time_text(delay)],
        threads: arguments.threads.clone(),
        clients: arguments.clients.clone(),
        rounds: Some(1),
        duration: Some(arguments.duration.clone()),
        warm_up: Some("0".to_owned()),
        seed: Some(arguments.seed),
        ..PlanOptions::default()
    };
    options.plan().map_err(|errors| errors.join("\n  "))
}

/// Returns a name that tells of faults: results with others are other runs.
fn name(arguments: &SimulateArguments) -> String {
    let mut name = "simulation".to_owned();
    if arguments.loss > 0.0 {
        name.push_str(&format!("-loss{}%", arguments.loss * 100.0));
    }
    for outage in &arguments.outage {
        name.push_str(&format!("-out{}+{}", time_text(outage.start), time_text(outage.length)));
    }
    name
}

/// Does one run; returns its result and the number of RPC records that were sent.
fn simulate(run: &Run, behavior: &Behavior) -> Result<(RunResult, u64), String> {
    let clock = Arc::new(Clock::default());
    let (origin, now) = (Instant::now(), Arc::clone(&clock));
    let simulated = Rc::new(Simulated::new(run, Arc::new(move || origin + now.time()))?);
    let mut world = World::new(Arc::clone(&clock), run.seed);
    let version = version(run.case.version);
    // The files are made over a link without delay, before any client starts.
    let own = Rc::clone(&simulated);
    world.add(&Behavior::default(), |engine| {
        let make = move |client, files| async move { own.prepare(client, files).await };
        Box::pin(async move { connected(engine, 0, version, make).await? })
    });
    world.run()?;
    let begin = clock.time();
    let mut link = behavior.clone();
    link.outages.iter_mut().for_each(|(start, _)| *start += begin);
    for number in 0..run.case.clients {
        let own = Rc::clone(&simulated);
        world.add(&link, |engine| {
            Box::pin(async move {
                let (worker, timers) = (Rc::clone(&own), Arc::clone(&engine));
                let sleeper: Sleeper = Rc::new(move |time| Box::pin(timers.sleep(time)));
                let work = |client, files| async move { worker.work(number, client, files, sleeper).await };
                if let Err(why) = connected(engine, number + 1, version, work).await {
                    own.cannot_start(why).await;
                }
                Ok(())
            }) as Program
        });
    }
    world.run()?;
    let records = world.records();
    drop(world);
    let simulated = Rc::into_inner(simulated).ok_or("a client still runs")?;
    let mut result = simulated.result();
    let described = [
        ("link", format!("simulated, round trip {}", time_text(behavior.delay))),
        ("loss", format!("{} %", behavior.loss * 100.0)),
        ("server", "Enfys in memory, takes no time".to_owned()),
    ];
    result.options.extend(described.map(|(name, value)| (name.to_owned(), value)));
    Ok((result, records))
}

/// Connects a client, mounts the export, and lets something be done.
async fn connected<T, F: Future<Output = T>>(
    engine: Arc<Engine>,
    number: u32,
    version: Version,
    work: impl FnOnce(Client, FileSystem) -> F,
) -> Result<T, String> {
    let config = config(number, version);
    let machine = config.machine.clone();
    let client = Client::connect(engine, config).await.map_err(|error| format!("connect: {error}"))?;
    let keeper = client.clone();
    let leaving = client.clone();
    let all = async {
        let mounted = FileSystem::mount(client.clone(), machine, b"export").await;
        let (files, _) = mounted.map_err(|error| error.to_string())?;
        let done = work(client, files).await;
        // The work is done: what the server still knows of the client does not matter.
        let _ = leaving.close().await;
        Ok(done)
    };
    let running = std::pin::pin!(keeper.run());
    let all = std::pin::pin!(all);
    match select(all, running).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err("the client has ended".to_owned()),
    }
}

fn config(number: u32, version: Version) -> Config {
    let machine = Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"simulated"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    });
    let owner = format!("client-{number}");
    let verifier = u64::from(number + 1).to_be_bytes();
    Config {
        version: Some(version),
        mount_port: Some(protocol::nfs3::PORT),
        nlm_port: Some(protocol::nfs3::PORT),
        retry: RetryPolicy { timeout: TIMEOUT, retries: None, fails_fast: false },
        caches: Caches { memory: Limiter::new(Budget::new(MEMORY)), ..Caches::none() },
        ..Config::new("simulation", owner.as_bytes(), verifier, machine)
    }
}

fn version(version: Option<NfsVersion>) -> Version {
    match version {
        Some(NfsVersion::V2) => Version::V2,
        Some(NfsVersion::V3) => Version::V3,
        Some(NfsVersion::V40) => Version::V40,
        None | Some(NfsVersion::V41) => Version::V41,
        Some(NfsVersion::V42) => Version::V42,
    }
}
