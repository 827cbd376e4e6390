//! `enfys chmod`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::{FileKind, SetAttributes};
use client::url::Url;

use super::change::change;
use super::mode::ModeChange;
use super::output::run as run_command;
use super::session::{Failure, Session, parse_url};
use super::umask::umask;

const HELP: &str = "\
Examples:
  enfys chmod 640 nfs://server/export/file
  enfys chmod -R u+rwX,go-w nfs://server/export/directory

Symbolic links below a directory are left alone.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ChmodArguments {
    /// Octal mode, or changes as in u+rwX,g-w,o=
    #[arg(value_name = "MODE", allow_hyphen_values = true)]
    pub mode: String,
    /// What to change
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Change directories and everything below
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// Changes modes.
pub fn run(arguments: &ChmodArguments) -> ExitCode {
    run_command("chmod", async |session, output| {
        let mode = match ModeChange::parse(&arguments.mode, umask()) {
            Ok(mode) => mode,
            Err(why) => return output.fail(&Failure::new(why)),
        };
        let new = |attributes: &client::attributes::Attributes| {
            let is_directory = attributes.kind == FileKind::Directory;
            let changed = mode.apply(attributes.mode, is_directory);
            (attributes.kind != FileKind::Symlink).then(|| SetAttributes::with_mode(changed))
        };
        for url in &arguments.urls {
            match find(session, url).await {
                Ok((location, object)) => change(&location, object, arguments.recursive, &new, output).await,
                Err(failure) => output.fail(&failure),
            }
        }
    })
}

async fn find(
    session: &Session,
    url: &Url,
) -> Result<(super::session::Location, client::results::Object), Failure> {
    let location = session.locate(url).await?;
    let object = location.object("change the mode of", true).await?;
    Ok((location, object))
}
