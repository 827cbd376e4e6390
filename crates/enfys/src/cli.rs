use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::address::Address;
use crate::size::Size;

/// Paragraphs are one line each, so that clap wraps them to the terminal; lines of commands fit 80 columns.
const SERVE_HELP: &str = "\
Examples:
  enfys serve /srv/data
      Serve /srv/data as /export on 127.0.0.1:2049, to this machine alone. Root is squashed to nobody.
  enfys serve /srv/a:/a /srv/b:/b --listen 0.0.0.0:2049 --read-only
      Serve two directories, read-only, to every machine that reaches this one.
  enfys serve /srv/data:/
      Serve one directory as the root: clients mount HOST:/.
  enfys serve --memory=4GiB --listen 0
      Serve an empty file system in memory, gone with the server, on a free port, which is printed.
  enfys serve --config /etc/enfys.toml
      Serve what the file says; `enfys check-config` shows that first. Only a file can say which clients may come, or \
squash one export and not another.

Mount with the kernel's client (as root); the server prints these lines with its own addresses and ports:
  mount -t nfs -o vers=4.1,port=2049 127.0.0.1:/export /mnt
  mount -t nfs \\
    -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nolock \\
    127.0.0.1:/export /mnt

Kerberos: with --sec krb5 (or krb5i, krb5p) users need tickets, and the server the key of nfs/HOSTNAME in \
/etc/krb5.keytab; mount with sec=krb5. --sec krb5p,sys lets clients choose, and names the better one first.

Who acts: started as root, the server acts as each caller, and the kernel judges. Started by anybody else, all new \
files belong to that user, and callers get what permission bits give them.

Authentication (AUTH_SYS): a process on this machine may act as the user that owns its socket, with that user's groups; \
root's processes may act as any user. Without root, other users of this machine are refused, unless --local-users \
is given. Calls of other machines are accepted from a port below 1024, or from any with --insecure.

Signals: SIGHUP reads the exports again without dropping a client; a mistake changes nothing and is logged. SIGTERM or \
SIGINT answers what was taken, flushes and ends; a second one ends at once.";

const STATUS_HELP: &str = "\
Examples:
  enfys status
      The server of this user (for root: of /var/lib/enfys).
  enfys status --state-dir /srv/state --watch 2
      The one with this state directory, every two seconds.
  enfys status --json | jq '.status.clients[] | select(.delegations > 0)'

LEASE is the time until the lease expires. STATE is `courteous` where it has expired, and what the client holds is kept \
until another client needs it. CALLBACK tells whether the server can call the client: delegations need it. SLOTS are \
requests in progress, of those that the client may have at once. LOST is what was revoked and the client has not \
acknowledged. The second line of a client is its address and name. A third line counts requests that used the last free \
slot (further requests wait in the client), and replays (replies sent again), if there were any.";

const EVICT_HELP: &str = "\
Examples:
  enfys evict 0x53ae10c500000002
      The client with this id, as `enfys status` shows it.
  enfys evict 10.0.0.7
      The one at this address; where there are several, they are listed and nothing is done.
  enfys evict 'Linux NFSv4.1 workstation'

What it held is free at once. The client is told so by its next request, and its programs may see errors on open files \
and locks. It is not shut out: it makes itself known again when it needs something. Requests under way end. To keep it \
out, take it from the export's `clients`, and reload.";

const RECALL_HELP: &str = "\
Examples:
  enfys recall /export/projects/plan.txt
      Ask all clients for their delegations of this file; one that does not return its own loses it after the lease \
time.

The file is not delegated again for a while, as after any conflict.";

/// An NFS server in user space.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFSv3, NFSv4.0, NFSv4.1 and NFSv4.2
    Serve(Box<ServeArguments>),
    /// Check a configuration file and print everything that would be in force, as TOML
    CheckConfig(CheckArguments),
    /// Show the clients of a server that runs, and what they hold
    Status(StatusArguments),
    /// Take away at once what a client holds: sessions, opens, locks, delegations
    Evict(EvictArguments),
    /// Ask for the delegations of a file back
    Recall(RecallArguments),
    /// End the grace period of a server that has restarted
    #[command(subcommand)]
    Grace(GraceCommand),
}

impl Command {
    /// Whether its answer is for a program, and an error too.
    pub fn wants_json(&self) -> bool {
        match self {
            Self::Serve(_) => false,
            Self::CheckConfig(arguments) => arguments.json,
            Self::Status(arguments) => arguments.json,
            Self::Evict(arguments) => arguments.json,
            Self::Recall(arguments) => arguments.json,
            Self::Grace(GraceCommand::End(arguments)) => arguments.json,
        }
    }
}

#[derive(Debug, Default, Args)]
#[command(after_help = SERVE_HELP)]
pub struct ServeArguments {
    /// Directories to serve, each with the path that clients mount it by (default /export); in place of the
    /// configuration's exports
    #[arg(value_name = "PATH[:/PSEUDO]")]
    pub paths: Vec<String>,
    /// Address to listen on: PORT (of 127.0.0.1), ADDRESS:PORT, or HOST:PORT, looked up at the start; may be given
    /// several times; port 0 takes a free one [default: 127.0.0.1:2049]
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub listen: Vec<Address>,
    /// Refuse every change
    #[arg(long)]
    pub read_only: bool,
    /// Which users are mapped to `nobody` [default: root]
    #[arg(long, value_enum)]
    pub squash: Option<SquashArgument>,
    /// How callers show who they are, the most preferred way first: sys (their machine says so), krb5 (Kerberos
    /// proves it), krb5i (and nothing is changed on the way), krb5p (nor read), none (everybody is nobody). Others
    /// are refused [default: sys]
    #[arg(long, value_name = "FLAVOR,…", value_delimiter = ',')]
    pub sec: Vec<String>,
    /// Take AUTH_SYS from any port of other machines, as exportfs' `insecure` does: any of their users may then claim to
    /// be anybody. Without it their calls must come from ports below 1024, which only their root can use
    #[arg(long)]
    pub insecure: bool,
    /// Without root: serve all users of this machine, not only the one who runs the server and root. What they do
    /// happens by the rights of the user who runs the server
    #[arg(long)]
    pub local_users: bool,
    /// Answer before data are on stable storage, as exportfs' `async` does. Fast, but a crash of this machine loses
    /// what clients were told is safe
    #[arg(long)]
    pub r#async: bool,
    /// Serve a file system in memory instead of a directory, of at most this size: a number of bytes, or with KiB, MiB,
    /// GiB or TiB behind it [default: 1GiB]; for several, give `:/PSEUDO` for each
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true)]
    pub memory: Option<Option<Size>>,
    /// Answer port mapper calls on port 111 of the listening addresses; where a port mapper runs already, register
    /// with it instead
    #[arg(long)]
    pub portmap: bool,
    /// Where the key of file handles and other durable state live; one server uses it at a time [default:
    /// /var/lib/enfys for root, else $XDG_STATE_HOME/enfys or ~/.local/state/enfys; none for --memory]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration in TOML; what the command line gives goes before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket at which `enfys status`, `evict`, `recall` and `grace` find this server [default: control.sock in the
    /// state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Address to serve Prometheus metrics on, at /metrics; none unless given
    #[arg(long, value_name = "[ADDR:]PORT")]
    pub metrics: Option<Address>,
    /// Keep every capability and system call, for debugging; else the server gives up what serving does not need, and
    /// logs what that is
    #[arg(long)]
    pub no_sandbox: bool,
    /// Threads that serve [default: one a core]
    #[arg(long, value_name = "N")]
    pub cores: Option<usize>,
    /// What to log, to standard error: error, warn, info, debug, trace, or a filter as tracing's EnvFilter takes it.
    /// `info` tells of mounts, `debug` of connections
    #[arg(long, value_name = "FILTER", env = "ENFYS_LOG", default_value = "info")]
    pub log: String,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The configuration
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
    /// Print one line of JSON, on standard output; an error too, as {"error": "…"}
    #[arg(long)]
    pub json: bool,
}

/// Which server is meant.
#[derive(Debug, Default, Args)]
pub struct ControlArguments {
    /// The server's control socket [default: control.sock in the state directory]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// The server's state directory [default: as for `enfys serve`: /var/lib/enfys for root, else
    /// $XDG_STATE_HOME/enfys or ~/.local/state/enfys]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The server's configuration, which says where these are
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArguments {
    /// Print one line of JSON, with everything, on standard output; an error too, as {"error": "…"}
    #[arg(long)]
    pub json: bool,
    /// Again every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub watch: Option<NonZeroU32>,
    #[command(flatten)]
    pub control: ControlArguments,
}

/// Reads the value of `--watch`.
fn seconds(text: &str) -> Result<NonZeroU32, &'static str> {
    let seconds = text.parse().map_err(|_| "expected a whole number of seconds")?;
    NonZeroU32::new(seconds).ok_or("expected at least 1")
}

#[derive(Debug, Args)]
#[command(after_help = EVICT_HELP)]
pub struct EvictArguments {
    /// Its id, address or name
    #[arg(value_name = "CLIENT")]
    pub client: String,
    /// Print one line of JSON on standard output; an error too, as {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

#[derive(Debug, Args)]
#[command(after_help = RECALL_HELP)]
pub struct RecallArguments {
    /// The file as clients see it; links are not followed
    #[arg(value_name = "/EXPORT/DIRECTORY/FILE")]
    pub file: String,
    /// Print one line of JSON on standard output; an error too, as {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

#[derive(Debug, Subcommand)]
pub enum GraceCommand {
    /// End it now: new opens and locks need not wait any more, and what was not reclaimed is lost
    End(GraceEndArguments),
}

#[derive(Debug, Args)]
pub struct GraceEndArguments {
    /// Print one line of JSON on standard output; an error too, as {"error": "…"}
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: ControlArguments,
}

/// `--squash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArgument {
    /// root becomes nobody
    Root,
    /// everybody becomes nobody
    All,
    /// no user is mapped
    None,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The help of the program, or of a command of it, in a terminal of this width.
    fn help(path: &[&str], width: usize) -> String {
        let mut command = Cli::command().term_width(width);
        command.build();
        let found = path.iter().try_fold(&mut command, |command, name| command.find_subcommand_mut(name));
        found.expect("the command is there").render_long_help().to_string()
    }

    const COMMANDS: [&[&str]; 8] = [
        &[],
        &["serve"],
        &["check-config"],
        &["status"],
        &["evict"],
        &["recall"],
        &["grace"],
        &["grace", "end"],
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
                // A command below a command begins a line of its own.
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
