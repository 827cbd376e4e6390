//! The load generator: one operation, in a closed loop, over a fixed number of connections.
//!
//! It runs on one thread, which should have its own core. Requests are copies of templates. All ready requests leave in
//! one write, and all arrived replies are read at once. Every reply is checked before it counts: a wrong reply ends the
//! measurement with an error.

mod caller;
mod connection;
mod nfs2;
mod nfs3;
mod nfs4;
mod replies;
mod shapes;
mod small_files;
mod template;
mod workload;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};

/// Parameters of the generator's requests.
pub mod requests {
    pub use super::nfs3::NFS3;
    pub use super::nfs4::{ATTRIBUTES, NFS4, arguments, component, open, session_config};
    pub use super::template::{Program, Template, patch};
}

use self::caller::Caller;
pub use self::caller::null_call;
use self::connection::{Connection, Phase, Tally};
use self::workload::Workload;
pub use self::workload::{DEPTH_MAX, Xids};
use crate::error::LoadError;
use crate::operation::{Operation, Version};
use crate::process;
use crate::results::{Measurement, Shape};

/// Maximum time until outstanding requests end after the window.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for each outstanding request to be answered once.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of that check.
const TURN_POLL: Duration = Duration::from_millis(5);
/// Maximum number of connections of one measurement.
pub const CONNECTIONS_MAX: u32 = 99;

/// The load to measure, and its server.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Address of the NFS programs.
    pub server: SocketAddr,
    /// Address of MOUNT; often the same.
    pub mount: SocketAddr,
    /// Path to mount, which contains the files of [`crate::layout::prepare`].
    pub export: String,
    /// The operation.
    pub operation: Operation,
    /// Number of connections, and of outstanding requests on each.
    pub shape: Shape,
    /// Time before the window.
    pub warm_up: Duration,
    /// The window.
    pub window: Duration,
    /// The process whose CPU time is taken, when it runs on this machine.
    pub server_pid: Option<u32>,
    /// Source of transaction IDs; one for the whole program, so that no reply cache takes a request for an older one.
    pub xids: Rc<Xids>,
}

/// Measures as planned, on the calling thread.
///
/// # Errors
/// When the server cannot be reached, breaks a connection, stays silent, or sends one wrong reply.
pub fn run(plan: &LoadPlan) -> Result<Measurement, LoadError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| LoadError::Connection("start the runtime".into(), error))?;
    // A local set, because the connections share their tally without locks.
    LocalSet::new().block_on(&runtime, measure(plan))
}

async fn measure(plan: &LoadPlan) -> Result<Measurement, LoadError> {
    let tally = Rc::new(Tally::new());
    let prepared = prepare(plan).await?;
    let depth = prepared.depth;
    let mut running = JoinSet::new();
    for (index, (stream, workload)) in prepared.connections.into_iter().enumerate() {
        let connection = Connection::new(stream, workload, depth, Rc::clone(&tally), Rc::clone(&plan.xids));
        running.spawn_local(async move { connection.run().await.map(|stream| (index, stream)) });
    }
    let window = observe(plan, &tally, &mut running).await?;
    let streams = drain(&mut running).await?;
    nfs4::end_all(prepared.sessions, streams).await?;
    let shape = Shape { depth: depth as u32, ..plan.shape };
    Ok(window.into_measurement(plan.operation, shape, &tally))
}

/// Connections that are ready to be loaded.
struct Prepared {
    connections: Vec<(TcpStream, Box<dyn Workload>)>,
    /// The sessions, one for each connection, in versions that have them.
    sessions: Vec<nfs4::Session>,
    /// Slots of each connection: as requested, or fewer if a session grants fewer.
    depth: usize,
}

async fn prepare(plan: &LoadPlan) -> Result<Prepared, LoadError> {
    let mut connections = Vec::new();
    let mut depth = plan.shape.depth as usize;
    let mut sessions = Vec::new();
    let handles = nfs3::Handles::find(plan.server, plan.mount, &plan.export, &plan.xids).await;
    if let Some(minor_version) = plan.operation.version().minor() {
        // Missing files are made over version 3. A server without it must have them; the lookups below check that.
        drop(handles);
        for index in 0..plan.shape.connections {
            let (stream, session, workload) = nfs4::connect(plan, minor_version, index).await?;
            depth = depth.min(session.depth());
            connections.push((stream, workload));
            sessions.push(session);
        }
    } else if plan.operation.version() == Version::V2 {
        // Missing files were made over version 3.
        handles?;
        let handles = nfs2::Handles::find(plan.server, plan.mount, &plan.export, &plan.xids).await?;
        for index in 0..plan.shape.connections {
            let stream = Caller::connect(plan.server).await?.into_stream();
            connections.push((stream, nfs2::workload(plan.operation, &handles, index, depth)));
        }
    } else {
        let handles = handles?;
        for index in 0..plan.shape.connections {
            let stream = Caller::connect(plan.server).await?.into_stream();
            connections.push((stream, nfs3::workload(plan.operation, &handles, index, depth)));
        }
    }
    Ok(Prepared { connections, sessions, depth })
}

/// Counters at the beginning and the end of the window.
struct Window {
    length: Duration,
    operations: u64,
    server_cpu: Option<Duration>,
    load_cpu: Duration,
}

impl Window {
    fn into_measurement(self, operation: Operation, shape: Shape, tally: &Tally) -> Measurement {
        let histogram = tally.latency_ns.borrow();
        let microseconds = |ns: u64| ns as f64 / 1e3;
        let operations = self.operations;
        let seconds = self.length.as_secs_f64();
        Measurement {
            operation,
            shape,
            operations,
            seconds,
            rate: operations as f64 / seconds,
            p50_us: microseconds(histogram.value_at_quantile(0.5)),
            p99_us: microseconds(histogram.value_at_quantile(0.99)),
            max_us: microseconds(histogram.max()),
            server_cpu_us: self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / operations as f64),
            server_busy: self.server_cpu.map(|cpu| cpu.as_secs_f64() / seconds),
            load_busy: self.load_cpu.as_secs_f64() / seconds,
        }
    }
}

/// The connections' tasks; each ends with its number and its connection.
type Running = JoinSet<Result<(usize, TcpStream), LoadError>>;

async fn observe(plan: &LoadPlan, tally: &Tally, running: &mut Running) -> Result<Window, LoadError> {
    let window = async {
        wait(plan, tally, plan.warm_up).await?;
        let (started, cpu) = clocks(plan)?;
        tally.finished.set(0);
        tally.phase.set(Phase::Measure);
        wait(plan, tally, plan.window).await?;
        let (ended, cpu_after) = clocks(plan)?;
        tally.phase.set(Phase::Drain);
        Ok(Window {
            length: ended - started,
            operations: tally.finished.get(),
            server_cpu: cpu.server.zip(cpu_after.server).map(|(before, after)| after - before),
            load_cpu: cpu_after.load - cpu.load,
        })
    };
    tokio::select! {
        window = window => window,
        // No connection ends before the window does, unless by an error.
        Some(ended) = running.join_next() => match ended {
            Ok(Err(error)) => Err(error),
            other => Err(LoadError::Silent(format!("a connection that ended early: {other:?}"))),
        },
    }
}

/// Waits for `least`, or longer until each of many large outstanding requests was answered: otherwise only the first few
/// would be counted.
async fn wait(plan: &LoadPlan, tally: &Tally, least: Duration) -> Result<(), LoadError> {
    let outstanding = u64::from(plan.shape.connections * plan.shape.depth);
    tokio::time::sleep(least).await;
    let deadline = Instant::now() + TURN_TIMEOUT;
    while tally.finished.get() < outstanding {
        if Instant::now() > deadline {
            return Err(LoadError::Silent(format!("some of {outstanding} requests in {TURN_TIMEOUT:?}")));
        }
        tokio::time::sleep(TURN_POLL).await;
    }
    Ok(())
}

struct Cpu {
    server: Option<Duration>,
    load: Duration,
}

fn clocks(plan: &LoadPlan) -> Result<(Instant, Cpu), LoadError> {
    let failed = |error| LoadError::Connection("read the CPU clock of the server".into(), error);
    let server = plan.server_pid.map(process::cpu_time).transpose().map_err(failed)?;
    let load = process::cpu_time(std::process::id()).map_err(failed)?;
    Ok((Instant::now(), Cpu { server, load }))
}

async fn drain(running: &mut Running) -> Result<Vec<TcpStream>, LoadError> {
    let all = async {
        let mut streams = Vec::new();
        while let Some(ended) = running.join_next().await {
            let stream =
                ended.map_err(|error| LoadError::Connection("a connection's task".into(), error.into()))?;
            streams.push(stream?);
        }
        streams.sort_by_key(|(index, _)| *index);
        Ok(streams.into_iter().map(|(_, stream)| stream).collect())
    };
    tokio::time::timeout(DRAIN_TIMEOUT, all)
        .await
        .map_err(|_| LoadError::Silent("requests outstanding at the end".into()))?
}
