//! `enfys rm`.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::error::OpError;
use client::fs::FileSystem;
use client::results::{FileHandle, Object};
use client::url::Url;
use futures_util::stream::{self, StreamExt};
use tokio::sync::Semaphore;

use super::output::{Output, run as run_command};
use super::session::{Failure, Session, below, failed, parse_url, shown};
use super::walk::list;

/// Requests that are under way together.
const REQUESTS: usize = 128;
/// Subdirectories of one directory that are emptied together.
const DIRECTORIES: usize = 16;

const HELP: &str = "\
Examples:
  enfys rm nfs://server/export/file
  enfys rm -r nfs://server/export/directory

Nothing is asked before: there is no -i. With -r, many objects are removed at the same time; one that cannot be removed \
is reported, and the others still go.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct RmArguments {
    /// What to remove
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Remove directories and everything below
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// Do not complain about what is missing
    #[arg(short, long)]
    pub force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub dir: bool,
    /// Print a line for everything that is removed
    #[arg(short, long)]
    pub verbose: bool,
}

/// Removes files and trees.
pub fn run(arguments: &RmArguments) -> ExitCode {
    run_command("rm", async |session, output| {
        for url in &arguments.urls {
            match remove(session, output, url, arguments).await {
                Err(failure) if arguments.force && failure.is_missing() => {}
                Err(failure) => output.fail(&failure),
                Ok(()) => {}
            }
        }
    })
}

async fn remove(
    session: &Session,
    output: &Output,
    url: &Url,
    arguments: &RmArguments,
) -> Result<(), Failure> {
    let location = session.locate(url).await?;
    let (parent, name) = location.parent("remove").await?;
    let object = location.object("remove", false).await?;
    let is_directory = object.attributes.kind == FileKind::Directory;
    if is_directory && !arguments.recursive && !arguments.dir {
        return Err(Failure::new(format!("cannot remove {}: Is a directory (-r removes it)", shown(url))));
    }
    let remover = Remover {
        fs: &location.fs,
        output,
        is_recursive: arguments.recursive,
        is_verbose: arguments.verbose,
        requests: Semaphore::new(REQUESTS),
    };
    remover.remove(parent.handle, name, object, url.clone()).await;
    Ok(())
}

/// Removes trees with many requests under way.
pub struct Remover<'a> {
    pub fs: &'a FileSystem,
    pub output: &'a Output,
    pub is_recursive: bool,
    pub is_verbose: bool,
    pub requests: Semaphore,
}

impl<'a> Remover<'a> {
    /// Creates the remover of whole trees.
    pub fn of_trees(fs: &'a FileSystem, output: &'a Output) -> Self {
        Self { fs, output, is_recursive: true, is_verbose: false, requests: Semaphore::new(REQUESTS) }
    }

    /// Removes an object, and reports what remains. Returns whether it is gone.
    pub fn remove<'s>(
        &'s self,
        parent: FileHandle,
        name: Vec<u8>,
        object: Object,
        url: Url,
    ) -> Pin<Box<dyn Future<Output = bool> + 's>> {
        Box::pin(async move {
            let is_directory = object.attributes.kind == FileKind::Directory;
            if is_directory && self.is_recursive && !self.remove_entries(&object, &url).await {
                return false;
            }
            let (client, caller) = (self.fs.client(), self.fs.caller());
            let removed = {
                let _permit = self.requests.acquire().await;
                if is_directory {
                    client.remove_directory(caller, parent, &name).await
                } else {
                    client.remove_file(caller, parent, &name).await
                }
            };
            match removed {
                Ok(_) => {
                    if self.is_verbose {
                        self.output.print(format!("removed {}\n", shown(&url)).as_bytes());
                    }
                    true
                }
                // Another process has removed it.
                Err(cause) if is_missing(&cause) && self.is_recursive => true,
                Err(cause) => {
                    self.output.fail(&failed("remove", &url, &cause));
                    false
                }
            }
        })
    }

    /// Removes the entries of a directory; returns whether all are gone.
    async fn remove_entries(&self, directory: &Object, url: &Url) -> bool {
        let listed = {
            let _permit = self.requests.acquire().await;
            list(self.fs, directory).await
        };
        let listing = match listed {
            Ok(listing) => listing,
            Err(cause) => {
                self.output.fail(&failed("list", url, &cause));
                return false;
            }
        };
        let (directories, files): (Vec<_>, Vec<_>) =
            listing.into_iter().partition(|(_, object)| object.attributes.kind == FileKind::Directory);
        let remove = async |(name, object): (Vec<u8>, Object)| {
            let url = below(url, &name);
            self.remove(directory.handle, name, object, url).await
        };
        let of_files = stream::iter(files).map(&remove).buffer_unordered(REQUESTS);
        let files_gone = of_files.fold(true, async |all, gone| all && gone);
        let of_directories = stream::iter(directories).map(&remove).buffer_unordered(DIRECTORIES);
        let directories_gone = of_directories.fold(true, async |all, gone| all && gone);
        let (files_gone, directories_gone) = futures_util::future::join(files_gone, directories_gone).await;
        files_gone && directories_gone
    }
}

fn is_missing(cause: &OpError) -> bool {
    cause.errno() == client::errno::Errno::ENOENT
}
