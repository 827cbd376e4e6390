//! `enfys mv`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::url::Url;

use super::output::{Output, run as run_command};
use super::session::{Failure, Location, Session, parse_url, shown};

#[derive(Debug, Args)]
pub struct MvArguments {
    /// What to rename, and at the end its new name or the directory to move it to
    #[arg(value_name = "URL", num_args = 2.., required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Do not replace an existing file
    #[arg(short, long)]
    pub no_clobber: bool,
    /// Treat the last URL as a name even if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
    /// Print a line for each rename
    #[arg(short, long)]
    pub verbose: bool,
    /// Ignored: `mv` never asks
    #[arg(short, long)]
    pub force: bool,
}

/// Renames files and directories.
pub fn run(arguments: &MvArguments) -> ExitCode {
    run_command("mv", async |session, output| {
        let Some((target, sources)) = arguments.urls.split_last() else { return };
        let target = match Target::find(session, target, arguments.no_target_directory, sources.len()).await {
            Ok(target) => target,
            Err(failure) => return output.fail(&failure),
        };
        for source in sources {
            if let Err(failure) = rename(session, output, source, &target, arguments).await {
                output.fail(&failure);
            }
        }
    })
}

/// The target of sources: a directory in which they keep their names, or a new name.
pub struct Target {
    location: Location,
    is_directory: bool,
}

impl Target {
    /// Finds the kind of target of a URL.
    ///
    /// # Errors
    /// There are several sources, and it is not a directory.
    pub async fn find(session: &Session, url: &Url, is_name: bool, sources: usize) -> Result<Self, Failure> {
        let location = session.locate(url).await?;
        let is_directory = !is_name
            && match location.object("access", true).await {
                Ok(object) => object.attributes.kind == FileKind::Directory,
                Err(failure) if failure.is_missing() => false,
                Err(failure) => return Err(failure),
            };
        if !is_directory && sources > 1 {
            return Err(Failure::new(format!(
                "{} is not a directory, and there are {sources} sources",
                shown(url)
            )));
        }
        Ok(Self { location, is_directory })
    }

    /// Returns the new name of a source.
    pub fn of(&self, name: &[u8]) -> Location {
        if self.is_directory { self.location.join(name) } else { self.location.clone() }
    }
}

async fn rename(
    session: &Session,
    output: &Output,
    source: &Url,
    target: &Target,
    arguments: &MvArguments,
) -> Result<(), Failure> {
    let from = session.locate(source).await?;
    let to = target.of(from.name());
    if !from.is_same_server(&to) {
        return Err(Failure::new(format!(
            "cannot move {} to {}: they are on different servers: use `enfys cp -r -p`, then `enfys rm -r`",
            shown(source),
            shown(&to.url)
        )));
    }
    if arguments.no_clobber {
        match to.object("access", false).await {
            Ok(_) => return Ok(()),
            Err(failure) if failure.is_missing() => {}
            Err(failure) => return Err(failure),
        }
    }
    let (from_parent, from_name) = from.parent("move").await?;
    let (to_parent, to_name) = to.parent("move to").await?;
    let (client, caller) = (from.fs.client(), from.fs.caller());
    let renamed = client.rename(caller, (from_parent.handle, &from_name), (to_parent.handle, &to_name)).await;
    renamed.map_err(|cause| {
        let failure = from.refused("move", &cause);
        Failure::new(format!("{failure} (to {})", shown(&to.url)))
    })?;
    if arguments.verbose {
        output.print(format!("renamed {} -> {}\n", shown(source), shown(&to.url)).as_bytes());
    }
    Ok(())
}
