//! The agent: does its part of a run, as the coordinator at its standard input says.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::messages::{Job, Order, Part, Report, read, write};
use crate::plan::TargetKind;
use crate::runner::assemble::Measured;
use crate::runner::execute::{Access, Clients, Place, measure_part};
use crate::targets::nfs::Server;

/// Writes reports, from several threads.
struct Output<W>(Mutex<W>);

impl<W: Write> Output<W> {
    fn report(&self, report: &Report) -> Result<(), String> {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut *to, report).map_err(|error| format!("the coordinator does not read: {error}"))
    }
}

/// Does the part of one run that the coordinator asks for. Ends with its input.
///
/// # Errors
/// The coordinator sends something else, or does not read.
pub fn serve(from: impl BufRead + Send + 'static, to: impl Write + Send + 'static) -> Result<(), String> {
    let started = Instant::now();
    let output = Arc::new(Output(Mutex::new(to)));
    output.report(&Report::Hello { enfys_version: env!("CARGO_PKG_VERSION").to_owned() })?;
    let interrupted = Arc::new(AtomicBool::new(false));
    let (jobs, begins) = {
        let (output, interrupted) = (Arc::clone(&output), Arc::clone(&interrupted));
        take_orders(from, started, output, interrupted)
    };
    let Ok(job) = jobs.recv() else { return Ok(()) };
    let job = job?;
    let mut place = Place::new(Access::Directory(PathBuf::from("/")), &job.plan, interrupted);
    let found = find_target(&mut place, &job);
    let gate = || {
        output.report(&Report::Ready)?;
        let at: u64 = begins.recv().map_err(|_| "the coordinator has stopped the run".to_owned())?;
        thread::sleep((started + Duration::from_micros(at)).saturating_duration_since(Instant::now()));
        Ok(())
    };
    let clients = Clients { own: job.clients.clone(), gate: Some(&gate) };
    let part = match found {
        Ok(()) => measure_part(&job.run, &place, &clients),
        Err(why) => Some(Measured::failed(&job.run, &place, why)),
    };
    let Some(part) = part else { return Ok(()) };
    let began = part.began.map(|began| began.saturating_duration_since(started));
    let began_us = began.and_then(|began| u64::try_from(began.as_micros()).ok());
    let part = Part { result: part.result, exchanged: part.exchanged, began_us };
    output.report(&Report::Ended(Box::new(part)))
}

/// Reads orders in a thread of its own, which tells the time at once. Jobs and times to begin come from the channels; they
/// are closed when the coordinator stops the run.
fn take_orders(
    mut from: impl BufRead + Send + 'static,
    started: Instant,
    output: Arc<Output<impl Write + Send + 'static>>,
    interrupted: Arc<AtomicBool>,
) -> (Receiver<Result<Job, String>>, Receiver<u64>) {
    let (to_jobs, jobs) = mpsc::channel();
    let (to_begins, begins) = mpsc::channel();
    thread::spawn(move || {
        loop {
            let done = match read(&mut from) {
                Ok(Some(Order::Time)) => {
                    let now = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                    output.report(&Report::Time(now))
                }
                Ok(Some(Order::Prepare(job))) => to_jobs.send(Ok(*job)).map_err(|_| String::new()),
                Ok(Some(Order::Begin(at))) => to_begins.send(at).map_err(|_| String::new()),
                Ok(Some(Order::Stop) | None) => break,
                Err(why) => Err(why),
            };
            if let Err(why) = done {
                let _ = to_jobs.send(Err(why));
                break;
            }
        }
        interrupted.store(true, Ordering::Relaxed);
    });
    (jobs, begins)
}

/// Sets where the job's clients work.
fn find_target(place: &mut Place, job: &Job) -> Result<(), String> {
    let target = &job.run.case.target;
    match (&target.kind, job.run.case.version) {
        (TargetKind::Directory { path }, _) => {
            place.access = Access::Directory(Path::new(path).to_owned());
            place.export = Some(PathBuf::from(path));
            Ok(())
        }
        (TargetKind::Remote { .. }, Some(version)) => {
            let server = Server::resolve(&target.server, &job.run.case.options, version)?;
            place.options.extend(server.options().described());
            place.access = Access::Nfs(Box::new(server));
            Ok(())
        }
        _ => Err(format!("agents cannot reach {}", target.server)),
    }
}
