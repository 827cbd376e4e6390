//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::address::Address;
use crate::commands::bench::BenchCommand;
use crate::commands::cat::{self, CatArguments};
use crate::commands::chmod::{self, ChmodArguments};
use crate::commands::chown::{self, ChownArguments};
use crate::commands::cp::{self, CpArguments};
use crate::commands::df::{self, DfArguments};
use crate::commands::du::{self, DuArguments};
use crate::commands::find::{self, FindArguments};
use crate::commands::ln::{self, LnArguments};
use crate::commands::ls::{self, LsArguments};
use crate::commands::mkdir::{self, MkdirArguments};
use crate::commands::mount::MountArguments;
use crate::commands::mount::stats::StatsArguments;
use crate::commands::mount::umount::UmountArguments;
use crate::commands::mv::{self, MvArguments};
use crate::commands::proxy::ProxyArguments;
use crate::commands::rm::{self, RmArguments};
use crate::commands::stat::{self, StatArguments};
use crate::commands::sync::{self, SyncArguments};
use crate::commands::touch::{self, TouchArguments};
use crate::commands::watch::{self, WatchArguments};
use crate::size::Size;

/// Each paragraph is one line, which clap wraps to the terminal. Lines with commands fit 80 columns.
const SERVE_HELP: &str = "\
Examples:
  enfys serve /srv/data
      Serve /srv/data as /export on 127.0.0.1:2049, to this machine only. Root is squashed to nobody.
  enfys serve /srv/a:/a /srv/b:/b --listen 0.0.0.0:2049 --read-only
      Serve two directories, read-only, to every machine that reaches this one.
  enfys serve /srv/data:/
      Serve one directory as the root: clients mount HOST:/.
  enfys serve --memory=4GiB --listen 0
      Serve an empty file system in memory on a free port, which is printed. Its content is lost when the server ends.
  enfys serve --config /etc/enfys.toml
      Serve the exports of a configuration file, which `enfys check-config` shows. Only a file can limit the clients, or \
set options for one export.

Mount with the kernel's client (as root). The server prints these commands with its own addresses and ports:
  mount -t nfs -o vers=4.1,port=2049 127.0.0.1:/export /mnt
  mount -t nfs \\
    -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nolock \\
    127.0.0.1:/export /mnt

Kerberos: with --sec krb5 (or krb5i, krb5p), users need tickets, and the server needs the key of nfs/HOSTNAME in \
/etc/krb5.keytab. Mount with sec=krb5. With --sec krb5p,sys, clients choose; list the preferred one first.

Permissions: started as root, the server acts as each caller, and the kernel checks permissions. Started by another \
user, new files belong to that user, and the server checks the permission bits for each caller.

Authentication (AUTH_SYS): a process on this machine may act as the user that owns its socket, with that user's groups. \
Processes of root may act as any user. A server without root refuses other users of this machine, unless --local-users \
is given. Calls from other machines must come from a port below 1024, unless --insecure is given.

Signals: SIGHUP reloads the exports without disconnecting clients; after an error nothing changes, and the error is \
logged. SIGTERM or SIGINT finishes requests in progress, flushes and ends; a second signal ends at once.";

const STATUS_HELP: &str = "\
Examples:
  enfys status
      The server of this user (for root: of /var/lib/enfys).
  enfys status --state-dir /srv/state --watch 2
      The server with this state directory, every two seconds.
  enfys status --json | jq '.status.clients[] | select(.delegations > 0)'

LEASE is the time until the lease expires. STATE is `courteous` if the lease has expired, and the client's state is kept \
until another client needs it. CALLBACK shows whether the server can call the client back, which delegations need. SLOTS \
are requests in progress, and the most that the client may send at once. LOST counts revoked state that the client has \
not acknowledged. The second line of a client is its address and name. A third line, if needed, counts requests that \
used the last slot (further requests wait in the client), and replies that were sent again. HOST is a client of version 2 \
or 3 that locks files: WAITING counts its requests for locks of others, and CALLBACK shows whether the server can call it \
when it gets one.";

const EVICT_HELP: &str = "\
Examples:
  enfys evict 0x53ae10c500000002
      The client with this ID, as `enfys status` shows it.
  enfys evict 10.0.0.7
      The client or host at this address. If there are several, they are listed, and none is evicted.
  enfys evict 'Linux NFSv4.1 workstation'

Its state is free for other clients at once. Its next request gets an error, and its programs may see errors on open \
files and locks. Requests in progress are finished. A client that a grace period waits for can no longer reclaim. The \
client can connect again; to keep it out, remove it from the export's `clients`, and reload.

A host, a client of version 2 or 3 that locks files, loses its locks and share reservations. The protocol has no message for \
this, so its programs go on as if they had them.";

const RECALL_HELP: &str = "\
Examples:
  enfys recall /export/projects/plan.txt
      Ask all clients to return their delegations of this file. A client that does not return its delegation loses it \
after the lease time.

The file is not delegated again for a while, as after any conflict.";

/// An NFS server in user space.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line of this process. The parser of a server knows no other command: the definitions of all would stay
    /// in its memory.
    ///
    /// # Errors
    /// The error to print, or the help.
    pub fn from_command_line() -> Result<Self, clap::Error> {
        if std::env::args_os().nth(1).is_some_and(|command| command == "serve") {
            let ServeCli { command: ServeCommand::Serve(arguments) } = ServeCli::try_parse()?;
            return Ok(Self { command: Command::Serve(arguments) });
        }
        Self::try_parse()
    }
}

/// [`Cli`] of `enfys serve`.
#[derive(Debug, Parser)]
#[command(name = "enfys", version, about, max_term_width = 100)]
struct ServeCli {
    #[command(subcommand)]
    command: ServeCommand,
}

#[derive(Debug, Subcommand)]
enum ServeCommand {
    /// Serve directories over NFSv3, NFSv4.0, NFSv4.1 and NFSv4.2, and NFSv2 on request
    Serve(Box<ServeArguments>),
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFSv3, NFSv4.0, NFSv4.1 and NFSv4.2, and NFSv2 on request
    Serve(Box<ServeArguments>),
    /// Check a configuration file and print the effective configuration as TOML
    CheckConfig(CheckArguments),
    /// Show the clients of a running server, and their state
    Status(StatusArguments),
    /// Remove a client with its sessions, opens, locks and delegations
    Evict(EvictArguments),
    /// Recall the delegations of a file
    Recall(RecallArguments),
    /// End the grace period after a restart
    #[command(subcommand)]
    Grace(GraceCommand),
    /// Mount a directory of an NFS server, without the kernel's client
    Mount(MountArguments),
    /// Unmount a directory that `enfys mount` mounted
    Umount(UmountArguments),
    /// Show requests, times, caches and memory of a mount
    Stats(StatsArguments),
    /// Relay TCP with the delay, rate, losses and outages of a long link
    Proxy(ProxyArguments),
    /// Model, emulate and measure: links, results, and reports about them
    #[command(subcommand)]
    Bench(BenchCommand),
    #[command(flatten)]
    Client(ClientCommand),
}

/// Commands on files of any NFS server.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// List directories of a server
    Ls(LsArguments),
    /// Print files
    Cat(CatArguments),
    /// Show attributes
    Stat(StatArguments),
    /// Create directories
    Mkdir(MkdirArguments),
    /// Remove files and trees
    Rm(RmArguments),
    /// Rename files and directories
    Mv(MvArguments),
    /// Create hard and symbolic links
    Ln(LnArguments),
    /// Set times, and create missing files
    Touch(TouchArguments),
    /// Change modes
    Chmod(ChmodArguments),
    /// Change owners
    Chown(ChownArguments),
    /// Copy files and trees between servers and this machine
    Cp(CpArguments),
    /// Make a tree like another one
    Sync(SyncArguments),
    /// Show free space
    Df(DfArguments),
    /// Show the storage that trees use
    Du(DuArguments),
    /// Find entries by name, size, time and more
    Find(FindArguments),
    /// Print changes of a tree as they happen
    Watch(WatchArguments),
}

impl ClientCommand {
    /// Runs the command; it has printed its errors.
    pub fn run(&self) -> ExitCode {
        match self {
            Self::Ls(arguments) => ls::run(arguments),
            Self::Cat(arguments) => cat::run(arguments),
            Self::Stat(arguments) => stat::run(arguments),
            Self::Mkdir(arguments) => mkdir::run(arguments),
            Self::Rm(arguments) => rm::run(arguments),
            Self::Mv(arguments) => mv::run(arguments),
            Self::Ln(arguments) => ln::run(arguments),
            Self::Touch(arguments) => touch::run(arguments),
            Self::Chmod(arguments) => chmod::run(arguments),
            Self::Chown(arguments) => chown::run(arguments),
            Self::Cp(arguments) => cp::run(arguments),
            Self::Sync(arguments) => sync::run(arguments),
            Self::Df(arguments) => df::run(arguments),
            Self::Du(arguments) => du::run(arguments),
            Self::Find(arguments) => find::run(arguments),
            Self::Watch(arguments) => watch::run(arguments),
        }
    }
}

impl Command {
    /// Returns whether output and errors are JSON.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Serve(_) | Self::Mount(_) | Self::Umount(_) | Self::Proxy(_) | Self::Client(_) => false,
            Self::CheckConfig(arguments) => arguments.json,
            Self::Status(arguments) => arguments.json,
            Self::Stats(arguments) => arguments.json,
            Self::Evict(arguments) => arguments.json,
            Self::Recall(arguments) => arguments.json,
            Self::Grace(GraceCommand::End(arguments)) => arguments.json,
            Self::Bench(command) => command.wants_json(),
        }
    }
}

#[derive(Debug, Default, Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArguments {
    /// Directories to serve, each with the path that clients mount [default: /export]; these replace the
    /// exports of the configuration
    #[arg(value_name = "PATH[:/PSEUDO]")]
    pub paths: Vec<String>,
    /// Address to listen on: PORT (of 127.0.0.1), ADDRESS:PORT, or HOST:PORT, resolved at the start. Can be given
    /// several times; port 0 is any free port [default: 127.0.0.1:2049]
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub listen: Vec<Address>,
    /// Refuse all changes
    #[arg(long)]
    pub read_only: bool,
    /// Which users are mapped to `nobody` [default: root]
    #[arg(long, value_enum)]
    pub squash: Option<SquashArgument>,
    /// Allowed security flavors, the preferred one first: sys (the client machine names the user), krb5 (Kerberos
    /// authentication), krb5i (with integrity), krb5p (with encryption), none (every user is nobody)
    /// [default: sys]
    #[arg(long, value_name = "FLAVOR,…", value_delimiter = ',')]
    pub sec: Vec<String>,
    /// Accept AUTH_SYS from any port of other machines, as with `insecure` in exports(5): each of their users can then
    /// act as any user. Otherwise calls must come from ports below 1024, which only root can use
    #[arg(long)]
    pub insecure: bool,
    /// Without root: serve all users of this machine, not only root and the user who runs the server. All access uses
    /// the rights of the user who runs the server
    #[arg(long)]
    pub local_users: bool,
    /// Reply before data are on stable storage, as with `async` in exports(5). Fast, but a crash of this machine loses
    /// data that clients consider safe
    #[arg(long)]
    pub r#async: bool,
    /// Start although an export's journal is missing or damaged. Changes that clients were told are safe may be lost
    #[arg(long)]
    pub ignore_lost_journals: bool,
    /// Serve a file system in memory of at most this size: a number of bytes, or followed by KiB, MiB, GiB or TiB
    /// [default: 1GiB]; for several, give `:/PSEUDO` for each
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    pub memory: Option<Option<Size>>,
    /// Versions of NFS to serve: 2, 3, 4, 4.0, 4.1, 4.2 [default: 3,4]
    #[arg(long, value_name = "VERSION,…", value_delimiter = ',')]
    pub versions: Vec<String>,
    /// Serve versions 2 and 3 over UDP too, on the same ports. Calls must come from ports below 1024, also those of this
    /// machine, unless --insecure is given
    #[arg(long)]
    pub udp: bool,
    /// Answer port mapper calls on port 111 of the listening addresses, or register with the port mapper that runs
    /// there
    #[arg(long)]
    pub portmap: bool,
    /// Directory of the key of file handles and other durable state, for one server at a time [default:
    /// /var/lib/enfys for root, else $XDG_STATE_HOME/enfys or ~/.local/state/enfys; none for --memory]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration file in TOML; the command line overrides it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket for `enfys status`, `evict`, `recall` and `grace` [default: control.sock in the state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Address to serve Prometheus metrics on, at /metrics [default: none]
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub metrics: Option<Address>,
    /// Keep all capabilities and system calls, for debugging; otherwise the server drops those that serving does not
    /// need
    #[arg(long)]
    pub no_sandbox: bool,
    /// Serving threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub cores: Option<usize>,
    /// Log level on standard error: error, warn, info, debug, trace, or a filter in the format of tracing's EnvFilter.
    /// `info` includes mounts, `debug` connections
    #[arg(long, value_name = "FILTER", env = "ENFYS_LOG", default_value = "info")]
    pub log: String,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Configuration file
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
}

/// Options that select a server.
#[derive(Debug, Default, Args)]
pub struct ControlArguments {
    /// Control socket of the server [default: control.sock in the state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// State directory of the server [default: /var/lib/enfys for root, else $XDG_STATE_HOME/enfys or
    /// ~/.local/state/enfys]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration file of the server, which may have both
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArguments {
    /// Print everything as one line of JSON to standard output, also errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    /// Repeat with this interval, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<NonZeroU32>,
    #[command(flatten)]
    pub control: ControlArguments,
}

/// Parses the value of `--watch`.
fn seconds(text: &str) -> Result<NonZeroU32, &'static str> {
    let seconds = text.parse().map_err(|_| "expected a whole number of seconds")?;
    NonZeroU32::new(seconds).ok_or("expected at least 1")
}

#[derive(Debug, Args)]
#[command(after_help = EVICT_HELP)]
pub struct EvictArguments {
    /// ID, address or name of the client
    #[arg(value_name = "CLIENT")]
    pub client: String,
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

#[derive(Debug, Args)]
#[command(after_help = RECALL_HELP)]
pub struct RecallArguments {
    /// Path of the file as clients see it; symbolic links are not followed
    #[arg(value_name = "/EXPORT/DIRECTORY/FILE")]
    pub file: String,
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

#[derive(Debug, Subcommand)]
pub enum GraceCommand {
    /// End it now: new opens and locks no longer wait, and state that was not reclaimed is lost
    End(GraceEndArguments),
}

#[derive(Debug, Args)]
pub struct GraceEndArguments {
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

/// `--squash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArgument {
    /// Root is mapped to nobody
    Root,
    /// All users are mapped to nobody
    All,
    /// No user is mapped
    None,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Returns the help of the program or a command, in a terminal of this width.
    fn help(path: &[&str], width: usize) -> String {
        let mut command = Cli::command().term_width(width);
        command.build();
        let found = path.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
        found.expect("the command exists").render_long_help().to_string()
    }

    const COMMANDS: [&[&str]; 30] = [
        &[],
        &["serve"],
        &["check-config"],
        &["status"],
        &["evict"],
        &["recall"],
        &["grace"],
        &["grace", "end"],
        &["proxy"],
        &["bench"],
        &["bench", "hashcast"],
        &["bench", "honesty"],
        &["bench", "link"],
        &["bench", "report"],
        &["bench", "compare"],
        &["ls"],
        &["cat"],
        &["stat"],
        &["mkdir"],
        &["rm"],
        &["mv"],
        &["ln"],
        &["touch"],
        &["chmod"],
        &["chown"],
        &["cp"],
        &["sync"],
        &["df"],
        &["du"],
        &["find"],
    ];

    #[test]
    fn help_fits_the_terminal() {
        for (width, path) in [80, 100].into_iter().flat_map(|width| COMMANDS.map(|path| (width, path))) {
            let help = help(path, width);
            let wide: Vec<_> = help.lines().filter(|line| line.chars().count() > width).collect();
            assert!(wide.is_empty(), "{path:?} at {width}: {wide:#?}");
        }
    }

    #[test]
    fn help_has_no_ragged_lines() {
        for (width, path) in [80, 100].into_iter().flat_map(|width| COMMANDS.map(|path| (width, path))) {
            let help = help(path, width);
            let lines: Vec<_> = help.lines().collect();
            for pair in lines.windows(2) {
                let is_prose = |line: &str| line.split_whitespace().count() > 3 && !line.ends_with('\\');
                let indent = |line: &str| line.len() - line.trim_start().len();
                let goes_on = is_prose(pair[0])
                    && indent(pair[0]) == indent(pair[1])
                    && pair[1].trim_start().starts_with(|c: char| c.is_ascii_lowercase());
                let next = pair[1].split_whitespace().next().unwrap_or_default();
                let room = width.saturating_sub(pair[0].chars().count() + 1);
                // A command begins a new line.
                let is_command = ["enfys", "mount"].contains(&next);
                let is_entry = pair[1].trim_start().split("  ").count() > 1;
                assert!(
                    !goes_on || is_command || is_entry || next.chars().count() > room,
                    "{path:?} at {width}: `{}` has room for `{next}`",
                    pair[0]
                );
            }
        }
    }
}
