//! `enfys ln`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use client::attributes::SetAttributes;
use client::errno::Errno;
use client::results::NewObject;
use client::url::Url;

use super::mv::Target;
use super::output::run as run_command;
use super::session::{Failure, Session, parse_url, shown};

const HELP: &str = "\
Examples:
  enfys ln nfs://server/export/file nfs://server/export/second-name
  enfys ln -s ../shared/file nfs://server/export/dir/link

A symbolic link contains TARGET as it is given. It may name something that does not exist.";

/// Mode bits of symbolic links, which servers ignore.
const LINK_MODE: u32 = 0o777;

#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct LnArguments {
    /// The file to link to: a URL, or with -s any path
    #[arg(value_name = "TARGET")]
    pub target: OsString,
    /// The new name, or a directory for it
    #[arg(value_name = "URL", value_parser = parse_url)]
    pub link: Url,
    /// Create a symbolic link
    #[arg(short, long)]
    pub symbolic: bool,
    /// Remove an existing object with the new name
    #[arg(short, long)]
    pub force: bool,
    /// Treat the URL as a name even if it is a directory
    #[arg(short = 'T', long)]
    pub no_target_directory: bool,
}

/// Creates hard and symbolic links.
pub fn run(arguments: &LnArguments) -> ExitCode {
    run_command("ln", async |session, output| {
        if let Err(failure) = link(session, arguments).await {
            output.fail(&failure);
        }
    })
}

async fn link(session: &Session, arguments: &LnArguments) -> Result<(), Failure> {
    let target = Target::find(session, &arguments.link, arguments.no_target_directory, 1).await?;
    let text = arguments.target.as_bytes();
    if arguments.symbolic {
        let name = text.split(|byte| *byte == b'/').rfind(|name| !name.is_empty()).unwrap_or_default();
        let link = target.of(name);
        let (parent, name) = link.parent("create link").await?;
        let (client, caller) = (link.fs.client(), link.fs.caller());
        let set = SetAttributes::with_mode(LINK_MODE);
        let new = NewObject::Symlink(Bytes::copy_from_slice(text));
        let mut made = client.create_object(caller, parent.handle, &name, &new, &set).await;
        if arguments.force && made.as_ref().is_err_and(|cause| cause.errno() == Errno::EEXIST) {
            remove(&link).await?;
            made = client.create_object(caller, parent.handle, &name, &new, &set).await;
        }
        return made.map(|_| ()).map_err(|cause| link.refused("create symbolic link", &cause));
    }
    let url = arguments.target.to_str().ok_or("a URL is text").and_then(|text| {
        parse_url(text)
            .map_err(|_| "the target of a hard link is a URL of the same server; -s makes a symbolic link")
    });
    let url = url.map_err(Failure::new)?;
    let file = session.locate(&url).await?;
    let link = target.of(file.name());
    if !file.is_same_server(&link) {
        let (file, link) = (shown(&url), shown(&link.url));
        return Err(Failure::new(format!("cannot link {file} to {link}: they are on different servers")));
    }
    let object = file.object("link", false).await?;
    let (parent, name) = link.parent("create link").await?;
    let (client, caller) = (link.fs.client(), link.fs.caller());
    let mut made = client.link(caller, object.handle, parent.handle, &name).await;
    if arguments.force && made.as_ref().is_err_and(|cause| cause.errno() == Errno::EEXIST) {
        remove(&link).await?;
        made = client.link(caller, object.handle, parent.handle, &name).await;
    }
    made.map(|_| ()).map_err(|cause| link.refused("create hard link", &cause))
}

async fn remove(link: &super::session::Location) -> Result<(), Failure> {
    link.fs.unlink(&link.path).await.map_err(|error| link.failed("remove", &error))
}
