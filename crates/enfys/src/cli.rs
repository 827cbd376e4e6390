use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// NFS in user space: a server, a client and a bench.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve directories over NFSv3 and NFSv4.1
    Serve(Box<ServeArguments>),
    /// Check a configuration file and say what would be served
    CheckConfig(CheckArguments),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  enfys serve /srv/data
      serves /srv/data as /export on 127.0.0.1:2049, to this machine alone; root is squashed to nobody
  enfys serve /srv/a:/a /srv/b:/b --listen 0.0.0.0:2049 --read-only
      serves two directories, read-only, to everyone who reaches this machine
  enfys serve --memory --listen 127.0.0.1:12049
      serves an empty file system in memory, gone with the server

Mount with the kernel's client (as root):
  mount -t nfs -o vers=4.1,port=2049 127.0.0.1:/export /mnt
  mount -t nfs -o vers=3,tcp,port=2049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/export /mnt

Send SIGHUP to read the configuration's exports again, SIGTERM or SIGINT to flush and stop.")]
pub struct ServeArguments {
    /// Directories to serve, each with the path that clients mount it by (default /export)
    #[arg(value_name = "PATH[:/PSEUDO]")]
    pub paths: Vec<String>,
    /// Address to listen on; may be given several times [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Vec<SocketAddr>,
    /// Refuse every change
    #[arg(long)]
    pub read_only: bool,
    /// Whose requests are taken as nobody's: root's (the default), everybody's, or nobody's
    #[arg(long, value_enum)]
    pub squash: Option<SquashArgument>,
    /// Answer before data are on stable storage, as exportfs' `async` does. Fast, but a crash of this machine loses
    /// what clients were told is safe
    #[arg(long)]
    pub r#async: bool,
    /// Serve a file system in memory instead of a directory
    #[arg(long)]
    pub memory: bool,
    /// Answer port mapper calls on port 111 of the listening addresses; where a port mapper runs already, register
    /// with it instead
    #[arg(long)]
    pub portmap: bool,
    /// Where the handle key and other durable state live [default: /var/lib/enfys for root, else
    /// $XDG_STATE_HOME/enfys or ~/.local/state/enfys]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration in TOML; what the command line gives goes before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address to serve Prometheus metrics on, at /metrics; none unless given
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Threads that serve [default: one a core]
    #[arg(long, value_name = "N")]
    pub cores: Option<usize>,
    /// What to log: error, warn, info, debug, trace, or a filter as tracing's EnvFilter takes it
    #[arg(long, value_name = "FILTER", env = "ENFYS_LOG", default_value = "info")]
    pub log: String,
}

#[derive(Debug, Args)]
pub struct CheckArguments {
    /// The configuration
    #[arg(value_name = "FILE")]
    pub config: PathBuf,
}

/// `--squash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SquashArgument {
    /// root becomes nobody
    Root,
    /// everybody becomes nobody
    All,
    /// everybody stays who they say they are
    None,
}
