//! `enfys df`.

use std::process::ExitCode;

use clap::Args;
use client::url::Url;

use super::human::SizeUnit;
use super::output::run as run_command;
use super::session::{Failure, Session, parse_url};
use super::space::{Counted, Space, table};

/// The unit of sizes without an option.
const BLOCK: u64 = 1024;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct DfArguments {
    /// Directories of the file systems to show
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Show sizes as 1.5K, 20M
    #[arg(short, long)]
    pub human_readable: bool,
    /// Show sizes in powers of 1000
    #[arg(short = 'H', long)]
    pub si: bool,
    /// Show files instead of bytes
    #[arg(short, long)]
    pub inodes: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Shows free space.
pub fn run(arguments: &DfArguments) -> ExitCode {
    run_command("df", async |session, output| {
        let mut spaces = Vec::new();
        for url in &arguments.urls {
            match space(session, url).await {
                Ok(space) => spaces.push(space),
                Err(failure) => output.fail(&failure),
            }
        }
        let counted = match (arguments.inodes, arguments.human_readable, arguments.si) {
            (true, ..) => Counted::Files,
            (_, _, true) => Counted::Bytes(SizeUnit::Decimal),
            (_, true, _) => Counted::Bytes(SizeUnit::Binary),
            _ => Counted::Bytes(SizeUnit::Blocks(BLOCK)),
        };
        if !spaces.is_empty() {
            output.print(table(&spaces, counted).as_bytes());
        }
    })
}

async fn space(session: &Session, url: &Url) -> Result<Space, Failure> {
    let location = session.locate(url).await?;
    let found = location.fs.stat_fs(&location.path).await;
    let found = found.map_err(|error| location.failed("show the space of", &error))?;
    Ok(Space {
        source: url.host().to_string(),
        path: super::quote::shell_quoted(url.path()),
        total: found.total_bytes,
        free: found.free_bytes,
        available: found.available_bytes,
        files: found.total_files,
        files_free: found.free_files,
    })
}
