//! Agents of this machine: runs in a directory.

use std::io::{BufReader, PipeReader, PipeWriter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::plan::PlanOptions;
use crate::runner::execute::{Access, prepare};

fn run_of(target: &Path, clients: u32) -> Run {
    let options = PlanOptions {
        workload: "create".to_owned(),
        targets: vec![target.display().to_string()],
        set: vec!["files=20".to_owned()],
        threads: vec![2],
        clients: vec![clients],
        rounds: Some(1),
        ..PlanOptions::default()
    };
    options.plan().unwrap().runs().remove(0)
}

/// Returns a run whose files are prepared.
fn prepared(target: &Path, clients: u32) -> Run {
    let run = run_of(target, clients);
    let place = Place::new(Access::Directory(target.to_owned()), "test", Arc::default());
    prepare(&run, &place).unwrap();
    run
}

/// Starts an agent in a thread; returns where it takes orders, and its reports.
fn serving() -> (thread::JoinHandle<Result<(), String>>, PipeWriter, BufReader<PipeReader>) {
    let (from, orders) = std::io::pipe().unwrap();
    let (reports, to) = std::io::pipe().unwrap();
    (thread::spawn(move || serve(BufReader::new(from), to)), orders, BufReader::new(reports))
}

#[test]
fn clients_are_spread_evenly_over_agents() {
    let parts = |clients, count| (0..count).map(|number| part(clients, number, count)).collect::<Vec<_>>();
    assert_eq!(parts(5, 3), [0..2, 2..4, 4..5]);
    assert_eq!(parts(4, 2), [0..2, 2..4]);
    assert_eq!(part(u32::MAX, 0, 1), 0..u32::MAX);
}

#[test]
fn an_agent_does_its_part_when_it_is_told_to() {
    let directory = tempfile::tempdir().unwrap();
    let run = prepared(directory.path(), 3);
    let (agent, mut orders, mut reports) = serving();
    let mut next = || messages::read::<Report>(&mut reports).unwrap();
    assert!(matches!(next(), Some(Report::Hello { .. })));
    let job = Job { plan: "test".to_owned(), run, clients: 1..3 };
    messages::write(&mut orders, &Order::Prepare(Box::new(job))).unwrap();
    assert!(matches!(next(), Some(Report::Ready)));
    let files = || walk(directory.path());
    assert_eq!(files(), 0, "it waits");
    messages::write(&mut orders, &Order::Begin(0)).unwrap();
    let Some(Report::Ended(part)) = next() else { panic!("no result") };
    agent.join().unwrap().unwrap();
    assert_eq!(part.result.outcome, Outcome::Complete);
    assert_eq!(part.result.operations["create"].count, 2 * 20);
    assert_eq!(files(), 2 * 20);
    assert!(part.began_us.is_some());
    assert_eq!(part.result.clients[0], ClientResult::default());
    assert_eq!(part.result.clients[2].operations.iter().sum::<u64>(), 20);
}

/// Counts regular files below a directory.
fn walk(directory: &Path) -> usize {
    let count = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() { walk(&entry.path()) } else { 1 }
    };
    std::fs::read_dir(directory).unwrap().map(count).sum()
}

#[test]
fn an_agent_that_is_left_ends() {
    let directory = tempfile::tempdir().unwrap();
    let run = prepared(directory.path(), 1);
    let (agent, mut orders, mut reports) = serving();
    let job = Job { plan: "test".to_owned(), run, clients: 0..1 };
    messages::write(&mut orders, &Order::Prepare(Box::new(job))).unwrap();
    drop(orders);
    agent.join().unwrap().unwrap();
    let mut last = None;
    while let Some(report) = messages::read::<Report>(&mut reports).unwrap() {
        last = Some(report);
    }
    assert!(!matches!(last, Some(Report::Ended(_))), "nobody would read a result");
}

fn started_by(command: &str) -> Result<Vec<Agent>, String> {
    Agents { hosts: vec!["a".to_owned()], command: command.to_owned() }.start()
}

#[test]
fn what_is_no_agent_is_named() {
    let said = |command| started_by(command).err().expect("no agent");
    let other = r#"echo '{"hello":{"enfys_version":"0.0.1"}}'; cat"#;
    assert!(said(other).starts_with("agent a is enfys 0.0.1, this is "), "{}", said(other));
    assert_eq!(
        said("echo \"ssh: connect to host $HOST: No route to host\" >&2; exit 255"),
        "agent a has ended (exit status: 255): ssh: connect to host a: No route to host"
    );
    assert!(said("echo Welcome").starts_with("agent a: `Welcome`: "), "{}", said("echo Welcome"));
    let early = r#"echo '"ready"'; cat"#;
    assert_eq!(said(early), "agent a: sends that it is ready, which is not what it was asked");
}

#[test]
fn runs_that_agents_cannot_do_are_refused() {
    let agents = Agents { hosts: vec!["a".to_owned(), "b".to_owned()], command: "false".to_owned() };
    let directory = tempfile::tempdir().unwrap();
    let few = agents.check(&[run_of(directory.path(), 1)]).unwrap_err();
    assert_eq!(few, "2 agents for 1 client(s): use --clients");
    let options = PlanOptions {
        workload: "create".to_owned(),
        targets: vec!["local:enfys".to_owned()],
        clients: vec![2],
        ..PlanOptions::default()
    };
    let local = agents.check(&options.plan().unwrap().runs()).unwrap_err();
    assert!(local.starts_with("agents cannot reach local:enfys"), "{local}");
}

#[test]
fn an_interrupt_ends_a_run_of_agents() {
    let directory = tempfile::tempdir().unwrap();
    let interrupted = Arc::new(AtomicBool::new(true));
    let place = Place::new(Access::Directory(directory.path().to_owned()), "test", interrupted);
    let command =
        r#"echo '{"hello":{"enfys_version":"VERSION"}}'; while read order; do echo '{"time":1}'; done"#;
    let command = command.replace("VERSION", env!("CARGO_PKG_VERSION"));
    let agents = Agents { hosts: vec!["a".to_owned()], command };
    let done = measure_with_agents(&run_of(directory.path(), 1), &place, &agents).unwrap();
    assert!(done.is_none());
}
