//! `enfys chown`.

use std::process::ExitCode;

use clap::Args;
use client::attributes::SetAttributes;
use client::results::Object;
use client::url::Url;

use super::change::change;
use super::names::{OwnerNames, login_group};
use super::output::run as run_command;
use super::owner::OwnerChange;
use super::session::{Failure, Location, Session, parse_url};

const HELP: &str = "\
Examples:
  enfys chown alice:staff nfs://server/export/file
  enfys chown -R :1000 nfs://server/export/directory

Names are looked up on this machine. With -R, symbolic links are changed themselves.";

#[derive(Debug, Args)]
#[command(after_help = HELP, disable_help_flag = true)]
pub struct ChownArguments {
    /// USER, USER:GROUP, USER: (with the group of the account) or :GROUP; names or numbers
    #[arg(value_name = "OWNER")]
    pub owner: String,
    /// What to change
    #[arg(value_name = "URL", required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Change directories and everything below
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Change symbolic links themselves
    #[arg(short = 'h', long)]
    pub no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    pub help: Option<bool>,
}

/// Changes owners.
pub fn run(arguments: &ChownArguments) -> ExitCode {
    run_command("chown", async |session, output| {
        let owner = match OwnerChange::parse(&arguments.owner, &OwnerNames::new(false), login_group) {
            Ok(owner) => owner,
            Err(why) => return output.fail(&Failure::new(why)),
        };
        let set = SetAttributes { uid: owner.uid, gid: owner.gid, ..SetAttributes::default() };
        let new = |_: &client::attributes::Attributes| (!set.is_empty()).then_some(set);
        let follow = !arguments.no_dereference && !arguments.recursive;
        for url in &arguments.urls {
            match find(session, url, follow).await {
                Ok((location, object)) => change(&location, object, arguments.recursive, &new, output).await,
                Err(failure) => output.fail(&failure),
            }
        }
    })
}

async fn find(session: &Session, url: &Url, follow: bool) -> Result<(Location, Object), Failure> {
    let location = session.locate(url).await?;
    let object = location.object("change the owner of", follow).await?;
    Ok((location, object))
}
