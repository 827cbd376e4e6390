//! `enfys cat`.

use std::process::ExitCode;

use clap::Args;
use client::fs::{File, OpenOptions};
use client::url::Url;
use futures_util::stream::{self, StreamExt};

use super::output::{Output, run as run_command};
use super::session::{Failure, Location, Session, parse_url};

/// Reads of one file that are under way.
const READS: usize = 8;

#[derive(Debug, Args)]
pub struct CatArguments {
    /// Files to print
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
}

/// Prints files one after the other.
pub fn run(arguments: &CatArguments) -> ExitCode {
    run_command("cat", async |session, output| {
        for url in &arguments.urls {
            if let Err(failure) = print(session, output, url).await {
                output.fail(&failure);
            }
        }
    })
}

async fn print(session: &Session, output: &Output, url: &Url) -> Result<(), Failure> {
    let location = session.locate(url).await?;
    let file = location.fs.open(&location.path, &OpenOptions::READ).await;
    let file = file.map_err(|error| location.failed("open", &error))?;
    let copied = copy(&location, &file, output).await;
    let closed = file.close().await.map_err(|error| location.failed("close", &error));
    copied.and(closed)
}

/// Prints a file. Reads up to the size that it had when it was opened are under way together; data added meanwhile follow.
async fn copy(location: &Location, file: &File, output: &Output) -> Result<(), Failure> {
    let part = location.fs.info().read_max.max(1) as usize;
    let size = file.opened_attributes().size;
    let offsets = (0..size).step_by(part);
    let mut reads = stream::iter(offsets).map(|offset| file.read_at(offset, part)).buffered(READS);
    let mut offset = 0;
    while let Some(read) = reads.next().await {
        let parts = read.map_err(|error| location.failed("read", &error))?;
        offset += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        parts.iter().for_each(|part| output.print(part));
    }
    if offset < size {
        // It was truncated.
        return Ok(());
    }
    loop {
        let parts = file.read_at(offset, part).await.map_err(|error| location.failed("read", &error))?;
        if parts.is_empty() {
            return Ok(());
        }
        offset += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        parts.iter().for_each(|part| output.print(part));
    }
}
