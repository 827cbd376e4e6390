//! `enfys sync`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::copy::{CopyOptions, Reflink, Same};

use super::cp::{Argument, TreeObject, copy_one};
use super::progress::{self, Progress};
use super::session::{Failure, Session};
use super::umask::umask;

const HELP: &str = "\
Examples:
  enfys sync project nfs://server/export/project
  enfys sync --delete nfs://server/export/project backup

TARGET becomes like SOURCE: the content of a directory goes into TARGET itself, with times, modes, owners, hard links \
and holes as of `cp -a`. A file whose size and time of modification are equal on both sides is left out.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct SyncArguments {
    /// Path of this machine or URL
    #[arg(value_name = "SOURCE")]
    pub source: OsString,
    /// Path of this machine or URL; created if it is missing
    #[arg(value_name = "TARGET")]
    pub target: OsString,
    /// Compare contents instead of times; reads both sides
    #[arg(long)]
    pub checksum: bool,
    /// Remove from TARGET what SOURCE does not have
    #[arg(long)]
    pub delete: bool,
    /// Print progress and errors as lines of JSON
    #[arg(long)]
    pub json: bool,
    /// Print a summary at the end
    #[arg(short, long)]
    pub verbose: bool,
}

/// Makes a target like a source.
pub fn run(arguments: &SyncArguments) -> ExitCode {
    progress::run("sync", arguments.json, arguments.verbose, async |session, progress| {
        sync(session, arguments, progress).await
    })
}

async fn sync(session: &Session, arguments: &SyncArguments, progress: &Progress) -> Result<(), Failure> {
    let (source, target) = (Argument::parse(&arguments.source)?, Argument::parse(&arguments.target)?);
    let (object, found) = TreeObject::find(session, &target).await?;
    let options = CopyOptions {
        is_recursive: true,
        preserves: true,
        umask: umask(),
        skips: Some(if arguments.checksum { Same::Content } else { Same::SizeAndTime }),
        deletes: arguments.delete,
        reflink: Reflink::Auto,
    };
    // Without a target, its directory is made by the copy.
    let keeps_name = false;
    if found.is_some_and(|found| found.kind != FileKind::Directory && arguments.delete) {
        return Err(Failure::new("--delete needs a target that is a directory"));
    }
    copy_one(session, &source, (&target, &object), keeps_name, options, progress).await
}
