//! `cargo xtask test`: all rungs of the test ladder.

use crate::report::Outcome;
use crate::{check, kernel, setup};

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Do not install packages
    #[arg(long)]
    no_setup: bool,
}

/// Installs missing packages and runs all rungs. The last line is `N passed, N failed`.
pub(crate) fn run(options: &Options) -> Outcome {
    if !options.no_setup
        && let Err(why) = setup::run(&setup::Options::default())
    {
        println!("setup: {why}");
    }
    let mut total = check::run(&check::Options::default())?;
    total += kernel::run_rung()?;
    total.print();
    Ok(total)
}
