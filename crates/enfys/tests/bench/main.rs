//! Tests of `enfys bench`.

mod agents;
mod faults;
mod honesty;
mod link;
mod pages;
mod papers;
mod reports;
mod requests;
mod runs;
mod servers;
mod simulation;
mod traces;

use std::ffi::OsStr;
use std::process::{Command, Output};

/// The program.
pub(crate) const ENFYS: &str = env!("CARGO_BIN_EXE_enfys");

/// Runs `enfys bench` with arguments.
pub(crate) fn bench(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(ENFYS).arg("bench").args(arguments).output().expect("the binary starts")
}

/// Returns the standard output of a successful command.
#[track_caller]
pub(crate) fn printed(output: &Output) -> String {
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{complained}");
    said.into_owned()
}

#[test]
fn hashcast_prints_the_count_and_the_papers_number() {
    let said = printed(&bench(&["hashcast", "--paper", "--duration", "300s", "--every", "30s"]));
    for part in [
        "3,600       46.3 %",
        "720 assignments, 9.3 %",
        "two flows: 69.4 %",
        "\"roughly 69%\"",
        "270 s: client 5 drained, queue 3 to 5",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn hashcast_repeats_itself_with_a_seed() {
    let run = |seed| printed(&bench(&["hashcast", "--duration", "30s", "--interval", "2s", "--seed", seed]));
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn hashcast_refuses_what_it_cannot_model() {
    let output = bench(&["hashcast", "--flows", "33"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("33 flows: the model has 1 to 32"));
    let unit = bench(&["hashcast", "--stall", "50"]);
    assert_eq!(unit.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unit.stderr).contains("expected a time with its unit"));
}
