//! `enfys mkdir`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::errno::Errno;
use client::url::Url;

use super::mode::{ALL_BITS, ModeChange};
use super::output::{Output, run as run_command};
use super::session::{Failure, Session, parse_url};
use super::umask::umask;

/// Mode of new directories before the umask.
const MODE: u32 = 0o777;

#[derive(Debug, Args)]
pub struct MkdirArguments {
    /// Directories to create
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Create missing directories above, and accept one that exists
    #[arg(short, long)]
    pub parents: bool,
    /// Mode of the new directories, octal or symbolic [default: a=rwx less the umask]
    #[arg(short, long, value_name = "MODE")]
    pub mode: Option<String>,
    /// Print a line for each new directory
    #[arg(short, long)]
    pub verbose: bool,
}

/// Creates directories.
pub fn run(arguments: &MkdirArguments) -> ExitCode {
    run_command("mkdir", async |session, output| {
        let change = arguments.mode.as_ref().map(|mode| ModeChange::parse(mode, umask())).transpose();
        let mode = match change {
            Ok(change) => change.map_or(MODE & !umask(), |change| change.apply(MODE, true)),
            Err(why) => return output.fail(&Failure::new(why)),
        };
        for url in &arguments.urls {
            if let Err(failure) = make(session, output, url, arguments, mode & ALL_BITS).await {
                output.fail(&failure);
            }
        }
    })
}

async fn make(
    session: &Session,
    output: &Output,
    url: &Url,
    arguments: &MkdirArguments,
    mode: u32,
) -> Result<(), Failure> {
    const CREATE: &str = "create directory";
    let location = session.locate(url).await?;
    let names: Vec<&[u8]> =
        location.path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let first = if arguments.parents { 1 } else { names.len() };
    for count in first..=names.len() {
        // Directories above get the default mode and remain accessible to their creator (mkdir(1)).
        let mode = if count == names.len() { mode } else { MODE & !umask() | 0o300 };
        let path = names[..count].join(&b'/');
        match location.fs.mkdir(&path, mode).await {
            Ok(_) if arguments.verbose => {
                output.print(format!("created directory {}\n", super::session::shown(url)).as_bytes());
            }
            Ok(_) => {}
            Err(error) if arguments.parents && matches!(error.errno(), Errno::EEXIST | Errno::EBUSY) => {
                let found = location.fs.stat(&path).await.map_err(|error| location.failed(CREATE, &error))?;
                if found.kind != FileKind::Directory {
                    return Err(location.failed(CREATE, &error));
                }
            }
            Err(error) => return Err(location.failed(CREATE, &error)),
        }
    }
    if names.is_empty() && !arguments.parents {
        let shown = super::session::shown(url);
        return Err(Failure::new(format!("cannot {CREATE} {shown}: File exists")));
    }
    Ok(())
}
