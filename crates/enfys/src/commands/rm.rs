//! `enfys rm`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::error::Error;
use client::tree::{Removal, RemoveError, TreePath};
use client::url::Url;

use super::output::{Output, run as run_command};
use super::session::{Failure, Session, parse_url, shown};
use super::tree::{Names, RemoteTree};

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
    /// Ignore missing objects
    #[arg(short, long)]
    pub force: bool,
    /// Remove empty directories
    #[arg(short, long)]
    pub dir: bool,
    /// Print a line for each removed object
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
    let RemoteTree { tree, url } = RemoteTree::new(&location.above(), &parent);
    let path = TreePath::root().join(&name).map_err(|error| Failure::new(error.to_string()))?;
    let report = |path: &TreePath, removed: Result<(), RemoveError<Error>>| match removed {
        Ok(()) if arguments.verbose => output.print(format!("removed {}\n", url.show(path)).as_bytes()),
        Ok(()) => {}
        Err(RemoveError::Tree(error)) => output.fail(&url.failure(&error)),
        Err(error @ (RemoveError::Name(_) | RemoveError::Kept)) => {
            output.fail(&Failure::new(error.to_string()));
        }
    };
    let keeps = |_: &TreePath, _: &_| false;
    let removal = Removal { tree: &tree, is_recursive: arguments.recursive, keeps: &keeps, report: &report };
    removal.remove(vec![(path, object.attributes)]).await;
    Ok(())
}
