//! `enfys mount`, `enfys umount`, and `mount.enfys`.

mod background;
mod control;
mod hand_over;
pub mod helper;
mod options;
mod run;
pub mod stats;
mod stored;
mod table;
pub mod umount;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use client::url::Url;
use store::error_text;
use tracing_subscriber::EnvFilter;

use options::MountOptions;

use crate::systemd;

const HELP: &str = "\
Examples:
  enfys mount nfs://server/export /mnt
      Mount in the background, with the highest version that the server has.
  enfys mount server:/export /mnt -o ro,vers=4.1,actimeo=10
      The same server as mount.nfs(8) writes it, with options of nfs(5).
  enfys mount nfs://server/export ~/remote --map-uid 1000:501
      Files of user 1000 at the server belong to user 501 here.
  enfys mount nfs://server/export /mnt --cache /var/cache/enfys-mnt --cache-size 10GiB
      Keep files that were read on this machine's disk, also for later mounts.
  enfys mount --replace /mnt
      Continue a mount in a new process, for instance after an update. Programs notice only a short pause.
  server:/export  /mnt  enfys  _netdev,nofail  0 0
      A line of /etc/fstab, where /sbin/mount.enfys is a link to this program.
The command returns when the mount works. Unmount with `enfys umount`, umount(8) or `fusermount3 -u`.
Users other than root need fusermount3 (package fuse3), and `user_allow_other` in /etc/fuse.conf for allow_other. Without \
root, the server must accept ports above 1023 (`insecure` in exports(5)).
Signals: SIGTERM and SIGINT unmount, and end the process when everything is written. SIGUSR2 puts the mount into the file descriptor \
store of systemd, and ends the process: the next one continues it (contrib/enfys-mount@.service).";

#[derive(Debug, Clone, Args)]
#[command(after_help = help())]
pub struct MountArguments {
    /// What to mount: nfs://HOST[:PORT]/PATH[?OPTION=VALUE&…] or HOST:/PATH; with --replace the directory of a mount
    #[arg(value_name = "SOURCE")]
    pub source: OsString,
    /// An empty directory
    #[arg(value_name = "DIR", required_unless_present = "replace")]
    pub directory: Option<PathBuf>,
    /// Options separated by commas, see below
    #[arg(short, long, value_name = "LIST")]
    pub options: Vec<String>,
    /// Stay in the foreground, with log lines on standard error
    #[arg(short, long)]
    pub foreground: bool,
    /// A user whose number differs at the server; as -o map_uid
    #[arg(long, value_name = "REMOTE:LOCAL")]
    pub map_uid: Vec<String>,
    /// A group whose number differs at the server; as -o map_gid
    #[arg(long, value_name = "REMOTE:LOCAL")]
    pub map_gid: Vec<String>,
    /// Keep blocks of files in this directory too, also for later mounts; as -o cache
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Limit of the directory of --cache, as 10GiB; as -o cache_size
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<String>,
    /// Append log lines of a mount in the background to this file
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// What to log: error, warn, info, debug or trace, also for single modules, as in `info,client=debug`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Threads that read the kernel's requests, at most 128 [default: the number of cores, from 2 to 8]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,
    /// Continue the mount on a directory in a new process, with the arguments of the old one, which ends
    #[arg(long, conflicts_with_all = ["directory", "options", "map_uid", "map_gid", "cache", "cache_size", "threads"])]
    pub replace: bool,
    /// The process that `enfys mount` starts
    #[arg(long, hide = true)]
    pub in_background: bool,
}

fn help() -> String {
    format!("{HELP}\n{}", options::help())
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().map_err(|error| error.to_string())?;
    if number.get() > fuse::WORKERS_MAX { Err(format!("at most {}", fuse::WORKERS_MAX)) } else { Ok(number) }
}

/// Mounts.
///
/// # Errors
/// One line that names the directory, server or option, and the error.
pub fn run(arguments: &MountArguments) -> Result<ExitCode, String> {
    let arguments = &arguments.clone().with_cache_in_options()?;
    let plan = if arguments.replace { None } else { Some(plan(arguments)?) };
    if !arguments.foreground && !arguments.in_background {
        // Before another process is started: its errors need no process.
        if let Some(plan) = &plan {
            fuse::mount::check(&plan.directory).map_err(|error| error.to_string())?;
        }
        return background::start(&arguments.again()?);
    }
    if arguments.in_background {
        background::detach();
    }
    start_log(&arguments.log)?;
    let ready = |started: &str| {
        systemd::ready();
        if arguments.in_background {
            return background::ready(arguments.log_file.as_deref());
        }
        let line = writeln!(io::stdout(), "mounted {started}").and_then(|()| io::stdout().flush());
        line.map_err(|error| format!("standard output: {}", error_text(&error)))
    };
    match plan {
        Some(plan) => run::run(&plan, ready)?,
        None => run::replace(arguments, ready)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(arguments: &MountArguments) -> Result<run::Plan, String> {
    let mut url = Url::from_mount_source(arguments.source.as_bytes()).map_err(|error| error.to_string())?;
    let mut options = MountOptions::new(url.options.clone());
    arguments.options.iter().try_for_each(|list| options.apply_list(list))?;
    for (pairs, map, flag) in [
        (&arguments.map_uid, &mut options.users, "map-uid"),
        (&arguments.map_gid, &mut options.groups, "map-gid"),
    ] {
        pairs
            .iter()
            .try_for_each(|pair| map.add(pair).map_err(|error| format!("--{flag} {pair}: {error}")))?;
    }
    url.options = options.nfs.clone();
    options.disk_cache()?;
    let directory = arguments.directory.clone().unwrap_or_default();
    let arguments = arguments.clone();
    Ok(run::Plan { url, directory, options, threads: arguments.threads, arguments })
}

impl MountArguments {
    /// Moves the flags of the disk cache to the options, which another process gets too.
    fn with_cache_in_options(mut self) -> Result<Self, String> {
        if let Some(directory) = self.cache.take() {
            let directory = whole(&directory)?;
            let text = directory.to_str().filter(|text| !text.contains(','));
            let text =
                text.ok_or_else(|| format!("--cache {}: a path without commas", directory.display()))?;
            self.options.push(format!("cache={text}"));
        }
        self.options.extend(self.cache_size.take().map(|size| format!("cache_size={size}")));
        Ok(self)
    }

    /// Returns the arguments of the process in the background.
    fn again(&self) -> Result<Vec<OsString>, String> {
        let mut all: Vec<OsString> = vec!["mount".into(), background::FLAG.into()];
        let mut add = |flag: &str, value: &std::ffi::OsStr| all.extend([flag.into(), value.to_owned()]);
        self.options.iter().for_each(|list| add("--options", list.as_ref()));
        self.map_uid.iter().for_each(|pair| add("--map-uid", pair.as_ref()));
        self.map_gid.iter().for_each(|pair| add("--map-gid", pair.as_ref()));
        if let Some(file) = &self.log_file {
            add("--log-file", whole(file)?.as_os_str());
        }
        add("--log", self.log.as_ref());
        if let Some(threads) = self.threads {
            add("--threads", threads.to_string().as_ref());
        }
        if self.replace {
            // The process in the background begins elsewhere.
            all.extend(["--replace".into(), "--".into(), whole(Path::new(&self.source))?.into_os_string()]);
        } else {
            all.extend(["--".into(), self.source.clone()]);
            all.extend(self.directory.clone().map(PathBuf::into_os_string));
        }
        Ok(all)
    }
}

/// Returns the URL of a directory in a mount, with the options of the mount.
///
/// # Errors
/// One line: the directory is in no mount of this program, or its process does not answer.
pub fn watched_url(directory: &Path) -> Result<Url, String> {
    let shown = directory.display();
    let failed = |error: io::Error| format!("{shown}: {}", error_text(&error));
    let (mounted, below) = table::mount_of(directory).map_err(failed)?;
    if !table::find(&mounted).map_err(failed)?.is_some_and(|found| found.is_ours) {
        return Err(format!(
            "{shown}: not in a mount of enfys; for local directories use inotifywait (package inotify-tools), for \
             a directory of a server its URL, nfs://HOST/PATH"
        ));
    }
    let (reply, _) = control::client::ask(&mounted, control::protocol::Command::Stats)?;
    let control::protocol::Reply::Stats(stats) = reply else {
        return Err(format!("{shown}: the response is for another command"));
    };
    let url: Url = stats.mount.url.parse().map_err(|error| format!("{shown}: the mount's URL: {error}"))?;
    Ok(super::session::below(&url, below.as_os_str().as_bytes()))
}

fn whole(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {}", path.display(), error_text(&error)))
}

fn start_log(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log `{filter}`: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}
