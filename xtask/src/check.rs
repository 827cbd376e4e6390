//! `cargo xtask check`: layer and module rules, format, lints, and the tests that need neither root nor network.

mod layers;
pub(crate) mod modules;
mod source;
mod suite;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::report::{Outcome, Tally, workspace_root};
use crate::setup::has_program;

/// Options of `cargo xtask check`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Check rules, format and lints only
    #[arg(long)]
    no_tests: bool,
}

/// A step of the check: its name, and its function of the workspace's path.
type Step = (&'static str, fn(&Path) -> Result<(), String>);

/// The steps, fastest first. All run even if one fails, so that one run shows all errors.
const STEPS: &[Step] = &[("layers", layers), ("modules", modules), ("format", format), ("lints", lints)];

/// Runs the steps, then the tests; each step counts as one test.
pub(crate) fn run(options: &Options) -> Outcome {
    let root = workspace_root();
    let mut tally = Tally::default();
    for (name, step) in STEPS {
        let started = Instant::now();
        let result = step(&root);
        let verdict = if result.is_ok() { "pass" } else { "FAIL" };
        println!("{verdict}  check  {name}  {:.1} s", started.elapsed().as_secs_f64());
        if let Err(why) = &result {
            println!("{why}");
        }
        tally.count(result.is_ok());
    }
    if kerberos().is_empty() {
        tally.skip(1, "Kerberos", "needs krb5-config of the package libkrb5-dev; run cargo xtask setup");
    }
    if !options.no_tests {
        tally += suite::run(&root)?;
    }
    Ok(tally)
}

fn layers(root: &Path) -> Result<(), String> {
    report(layers::check(root)?)
}

fn modules(root: &Path) -> Result<(), String> {
    report(modules::check(root)?)
}

fn report(findings: layers::Findings) -> Result<(), String> {
    for warning in &findings.warnings {
        println!("warning: {warning}");
    }
    if findings.errors.is_empty() { Ok(()) } else { Err(findings.errors.join("\n")) }
}

fn format(root: &Path) -> Result<(), String> {
    cargo(root, &["fmt", "--all", "--", "--check"])
}

fn lints(root: &Path) -> Result<(), String> {
    let strictly = ["--all-targets", "--quiet", "--", "-D", "warnings"];
    cargo(root, &[&["clippy", "--workspace"], kerberos(), &strictly].concat())?;
    // The default features, which most builds use.
    cargo(root, &[&["clippy", "--package", "enfys"][..], &strictly].concat())
}

/// Returns the arguments that build the server with Kerberos, if this machine has the library.
fn kerberos() -> &'static [&'static str] {
    if has_program("krb5-config") { &["--features", "enfys/krb5"] } else { &[] }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments[0])) }
}
