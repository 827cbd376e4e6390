//! `enfys stat`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use client::attributes::FileKind;
use client::url::Url;

use super::attributes::now;
use super::names::OwnerNames;
use super::output::{Output, run as run_command};
use super::session::{Failure, Session, parse_url, text};
use super::stat_format::{StatFormat, Subject};
use super::time::TimeFormat;

const HELP: &str = "\
Formats: %n name, %N quoted name, %s size, %b blocks of 512 bytes, %F type, %f raw mode, %a octal mode, %A mode, %u %U \
user, %g %G group, %h links, %i file number, %d file system, %t %T device, %o transfer size, %x %X access, %y %Y \
modification, %z %Z change (capitals: seconds since 1970), %%. A width may follow the percent sign, as in %-10s.";

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct StatArguments {
    /// What to show
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// Print this format and a newline for each URL
    #[arg(short = 'c', long, value_name = "FORMAT")]
    pub format: Option<OsString>,
    /// Print this format, with escapes as \n and \t, for each URL
    #[arg(long, value_name = "FORMAT", conflicts_with = "format")]
    pub printf: Option<OsString>,
}

/// Shows attributes.
pub fn run(arguments: &StatArguments) -> ExitCode {
    run_command("stat", async |session, output| {
        let format = match (&arguments.format, &arguments.printf) {
            (Some(format), _) => StatFormat::line(format.as_encoded_bytes()),
            (None, Some(format)) => StatFormat::printf(format.as_encoded_bytes()),
            (None, None) => Ok(StatFormat::default_format()),
        };
        let format = match format {
            Ok(format) => format,
            Err(why) => return output.fail(&Failure::new(why)),
        };
        for url in &arguments.urls {
            if let Err(failure) = print(session, output, url, arguments.dereference, &format).await {
                output.fail(&failure);
            }
        }
    })
}

async fn print(
    session: &Session,
    output: &Output,
    url: &Url,
    follow: bool,
    format: &StatFormat,
) -> Result<(), Failure> {
    let location = session.locate(url).await?;
    let object = location.object("stat", follow).await?;
    let target = match object.attributes.kind {
        FileKind::Symlink => {
            let read = location.fs.client().read_link(location.fs.caller(), object.handle).await;
            Some(read.map_err(|cause| location.refused("read the link", &cause))?)
        }
        _ => None,
    };
    let name = text(url);
    let subject = Subject {
        name: name.as_bytes(),
        attributes: &object.attributes,
        target: target.as_deref(),
        io_size: location.fs.info().read_max.into(),
    };
    output.print(&format.print(&subject, &TimeFormat::local(now(), true), &OwnerNames::new(false)));
    Ok(())
}
