//! The command line of `enfys bench`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bench::link::{Outage, QUEUE_PACKETS_DEFAULT};
use bench::units::{parse_percent, parse_rate, parse_size, parse_time};
use clap::{Args, Subcommand, ValueEnum};

const HASHCAST_HELP: &str = "\
Examples:
  enfys bench hashcast
      Five clients and six queues, as in the paper, with random hashes.
  enfys bench hashcast --paper
      The paper's Figure 3: the hashes and the drain at 270 s that it tells of.
  enfys bench hashcast --flows 8 --queues 64 --html hashcast.html

A system hashes a TCP flow to a transmit queue of its network card, and keeps it there while packets of the flow wait. \
All queues send at the same rate, so flows that share a queue get half of what others get: some clients win, some lose, \
and it lasts for minutes. The command counts how likely that is, and plays clients that start one after another, first \
with the card's queues, then with one queue and SFQ.";

const LINK_HELP: &str = "\
Examples:
  enfys bench link --delay 10ms -- ping -c 3 10.77.0.1
      Three round trips over a link of 10 ms.
  enfys bench link --delay 40ms --rate 1gbit \\
    --server 'enfys serve --memory --listen 10.77.0.1:2049 --insecure' \\
    --ready-port 2049 -- sh -c 'nfs-ls nfs://$LINK_SERVER/export'
      A server at one end, and a client at the other.
  enfys bench link --delay 10ms --rate 100mbit --loss 1% --measure
      Measure the link itself: does it have the requested properties?
  enfys bench link --delay 10ms --proxy nas:2049 -- sh -c \
    'enfys ls nfs://$LINK_SERVER:$LINK_PORT/export'
      A server elsewhere, by a proxy; the report says what it cannot show.

The link joins two network namespaces of this machine by TUN devices, whose packets this process carries. Both ends are \
the kernel's TCP: it sees the delay, and its buffers, its coalescing and its recovery of losses are real. The server's end \
is 10.77.0.1, the client's 10.77.0.2; commands find them in $LINK_SERVER and $LINK_CLIENT. They reach nothing else.

Delay and jitter are of the round trip. Rate, loss, reordering and queue are of each direction. A lost packet has used \
the line. Packets stay in order, unless --reorder says otherwise.

It runs as root, or without root where user namespaces are allowed. It ends with the status of the client's command.";

const LIST_HELP: &str = "\
Examples:
  enfys bench list
      All workloads.
  enfys bench list create
      The parameters of one.";

const RUN_HELP: &str = "\
Examples:
  enfys bench run random-read --target local:enfys --nfs 3,4.1 --rounds 6
      Two versions on a server that the bench starts, six rounds each.
  enfys bench run create --target nfs://server/export --threads 1,16,64 \
    --set size=4KiB
      Three numbers of threads on a server that runs already.
  enfys bench run small-files --target local:enfys --target /mnt/nfs --clients 5
      The same on a mounted directory, with five clients.
  enfys bench run create --target local:enfys --threads 64 \
    --options slots=16,slots=64,slots=256
      Three sizes of the session.
  enfys bench run plan.toml --results results/plan
      A plan from a file. The same command continues an interrupted one.
  enfys bench run random-read --target nfs://server/export --clients 4 \
    --agents one,two
      Two clients on each of two machines, which ssh reaches without a password.

A target is `nfs://HOST/EXPORT` with the options of nfs(5) after a question mark (Enfys's client, one for each client of \
the run), the absolute path of a mounted directory, or `local:` with the name of a server that the bench starts: enfys, \
enfys-async, enfys-memory, enfys-disk-1994 and enfys-disks-1994 (also with -gathering, -journal, -gathering-journal), ganesha, knfsd (`enfys bench setup` says what the latter need). `NAME=` before it names it in \
reports.

Each round runs every case once. A run has a result file of its own in the results directory; runs that have one are not \
done again. An interrupted run is done again by the same command. A run that failed says why, has no rates, and is done \
again too.

Files are made in the directory enfys-bench of the target, which is removed at the end.";

const SIMULATE_HELP: &str = "\
Examples:
  enfys bench simulate create --nfs 3,4.1 --delay 1ms,100ms --threads 1,16 \
    --set files=100
      How the round trip limits creation.
  enfys bench simulate small-files --clients 1000 --delay 50ms --duration 1s
  enfys bench simulate sequential-write --delay 10ms --loss 1% \
    --outage 5s+10s --set file-size=8MiB

Client and server are Enfys's own, in one thread and virtual time. The server is in memory and takes no time, and links have no limit \
of rate: the numbers show round trips, waits for slots, losses and outages, and nothing of a machine's speed. A lost segment \
delays its record and those after it by a round trip, or by TCP's timeout where too little follows it. Each client has a \
link of its own. The same seed has the same numbers on every machine. Clients cache nothing.";

const TRACE_HELP: &str = "\
Examples:
  enfys bench run varmail --target local:enfys --rounds 1 --record mail.trace
      Record what the clients of a run do.
  enfys bench trace import load.pcap load.trace
      Find what the clients in a packet capture did.
  enfys bench trace show mail.trace
  enfys bench trace replay mail.trace --target nfs://server/export";

const IMPORT_HELP: &str = "\
Examples:
  tcpdump -i eth0 -w load.pcap tcp port 2049
  enfys bench trace import load.pcap load.trace
  enfys bench trace replay load.trace --target nfs://server/export

Each address is a client. A capture has only the requests that the clients' caches did not answer, so a replay without caches \
(the default) sends about the same requests. Handles get the paths with which LOOKUP, OPEN, CREATE and listings show them, others \
names as unknown-00001. Capture packets whole: calls may be missing otherwise. Calls with integrity or \
privacy of Kerberos are counted, and not decoded. A damaged capture is imported as far as it can be read; the status is 1 then.";

const REPLAY_HELP: &str = "\
Examples:
  enfys bench trace replay mail.trace --target local:enfys --target nfs://nas/x
      The same operations on two servers, with the times between them.
  enfys bench trace replay mail.trace --target /mnt/nfs --speed 10
      On a mounted directory, with a tenth of the times between operations.
  enfys bench trace replay mail.trace --target local:enfys --no-think

Files that the operations need and do not create are made first, which is not measured. Each stream of the trace is a thread \
of its client. It keeps its order, and waits for operations of other streams which created what it uses. An operation \
that succeeded in the trace and fails now is an error, one that failed and fails in the same way is counted apart. \
A damaged trace is replayed as far as it can be read; the run has failed then, and has no rates.";

const PAPER_HELP: &str = "\
Examples:
  enfys bench paper --list
      The tables and figures that can be repeated.
  enfys bench paper --quick
      All of them in some minutes: only large effects can be seen.
  enfys bench paper 2015:fig8 --page fig8.md

Each figure is a plan whose results are kept in its directory, so that an interrupted command continues. The page has the \
paper's finding, our numbers and a verdict: confirmed, not seen, or reversed because its cause is missing.";

const HONESTY_HELP: &str = "\
Examples:
  enfys bench honesty /mnt/nfs
      Six rounds on a kernel mount; some ten minutes.
  enfys bench honesty /srv/disk --only data --threads 4 --rounds 12
  enfys bench honesty /dev/shm --only cpu

Both sides do the same work in turns, with the same sizes, threads and system calls. Data: sequential write with fsync at the end, sequential \
read, random read and O_SYNC write of 4 KiB, with fio. Names: creation, stat and deletion of empty files in random order, with Bonnie++, by one \
thread. CPU: cached reads of 4 KiB by 64 threads, with a loop of pread without a harness.

Root drops the caches of this machine before each measurement; others drop those of the file. The status is 1 if a data rate differs by \
more than 5 %, one of names by more than 10 %, or if the harness takes more than 10 % of the CPU: significantly, by an interval of 95 % \
that needs at least six rounds. Undecided measures are shown as that.

Everything is made in a directory below DIR, which is removed at the end.";

const REPORT_HELP: &str = "\
Examples:
  enfys bench report results/
      A table of all results in a directory.
  enfys bench report results/ --html report.html
      A page that stands alone, with a figure for each workload.
  enfys bench report results/ --format fio-json > fio.json
      Latencies for the tools around fio: fio_jsonplus_clat2csv fio.json out.csv

A run that failed is named, and is in no figure.";

const COMPARE_HELP: &str = "\
Examples:
  enfys bench compare before/ after/
  enfys bench compare before/ after/ --fail-if-slower 5%
      End with status 1 if a workload does at least 5 % fewer operations a second, significantly.

Cases are compared that both sides have. If each side has one target, the targets may have different names. A difference \
is significant if the Mann-Whitney test gives it less than 5 % by chance; otherwise `~` is shown. Each side needs at \
least four rounds for that, and six for intervals of 95 %.";

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Show how hashing of flows to transmit queues makes some clients slow
    Hashcast(HashcastArguments),
    /// Run a server and a client at the ends of a link with delay, rate and loss
    Link(Box<LinkArguments>),
    /// Show the workloads, or the parameters of one
    List(ListArguments),
    /// Run a plan, or one workload
    Run(Box<RunArguments>),
    /// Run a workload in virtual time: many clients, long links, losses and outages, in seconds
    Simulate(Box<SimulateArguments>),
    /// Show and replay recorded operations of clients
    #[command(subcommand, after_help = TRACE_HELP)]
    Trace(TraceCommand),
    /// Repeat tables and figures of the papers, and judge their findings
    Paper(PaperArguments),
    /// Compare this bench with fio and Bonnie++ in a directory, and measure its own CPU time
    Honesty(HonestyArguments),
    /// Show the programs that measurements need, and how to install them
    Setup,
    /// Have the clients of a run that another `enfys bench run` leads, as its --agents says
    #[command(hide = true)]
    Agent {
        /// Do the run in this file, at the end of a link
        job: Option<PathBuf>,
    },
    /// Serve files in memory on a modelled disk of 1994, for `local:enfys-disk-1994`
    #[command(hide = true)]
    Disk {
        /// Address of NFS and MOUNT
        #[arg(long)]
        listen: SocketAddr,
        /// Address of the counters
        #[arg(long)]
        metrics: Option<SocketAddr>,
        /// Four faster disks, striped, instead of one
        #[arg(long)]
        striped: bool,
        /// Let WRITEs that wait for the disk share a sync
        #[arg(long)]
        gather: bool,
        /// Answer changes when they are in a journal
        #[arg(long)]
        journal: bool,
    },
    /// Show results as a table, a page, or in the formats of other tools
    Report(ReportArguments),
    /// Compare two sets of results
    Compare(CompareArguments),
}

#[derive(Debug, Args)]
#[command(after_help = HASHCAST_HELP)]
pub struct HashcastArguments {
    /// Clients, one flow each
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub flows: usize,
    /// Transmit queues of the server's card
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub queues: usize,
    /// Use the paper's hashes and its drain at 270 s, and no other stalls
    #[arg(long, conflicts_with_all = ["flows", "queues", "stall_every"])]
    pub paper: bool,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Random assignments of flows to queues, to check the exact probabilities
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub trials: u32,
    /// Simulated time
    #[arg(long, value_name = "TIME", default_value = "360s", value_parser = parse_time)]
    pub duration: Duration,
    /// Time between the starts of two clients
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub interval: Duration,
    /// Rate of the link
    #[arg(long, value_name = "RATE", default_value = "1177MB/s", value_parser = parse_rate)]
    pub rate: u64,
    /// Round trip without waiting
    #[arg(long, value_name = "TIME", default_value = "0.2ms", value_parser = parse_time)]
    pub round_trip: Duration,
    /// Bytes that a flow has on its way: the size of TCP's buffers
    #[arg(long, value_name = "SIZE", default_value = "2MiB", value_parser = size_u32)]
    pub window: u32,
    /// Bytes of one packet: what TCP hands to the card at once
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = size_u32)]
    pub packet: u32,
    /// Mean time between two stalls of a client; 0 for none
    #[arg(long, value_name = "TIME", default_value = "300s", value_parser = parse_time)]
    pub stall_every: Duration,
    /// Length of a stall; if it drains the flow's queue, the flow is hashed again
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_time)]
    pub stall: Duration,
    /// Time of one line of the tables, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub every: Duration,
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
    /// Write a page with both figures
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = LINK_HELP)]
pub struct LinkArguments {
    /// Additional round trip; half of it in each direction
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time)]
    pub delay: Duration,
    /// The round trip varies by at most so much, up or down
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_time)]
    pub jitter: Duration,
    /// Rate of each direction, as in 100mbit, 1gbit or 50MB/s [default: as fast as this machine]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate: Option<u64>,
    /// Part of packets that are lost, in each direction
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_percent)]
    pub loss: f64,
    /// Part of packets that skip the delay, and so overtake others
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_percent)]
    pub reorder: f64,
    /// Packets that wait for the line at most; those beyond are dropped
    #[arg(long, value_name = "PACKETS", default_value_t = QUEUE_PACKETS_DEFAULT)]
    pub queue: u32,
    /// Drop everything for a time: START+LENGTH, counted from the link's start; can be given several times
    #[arg(long, value_name = "TIME+TIME")]
    pub outage: Vec<Outage>,
    /// Largest packet of the link, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    pub mtu: u32,
    /// Largest TCP buffers at both ends, instead of the system's
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub tcp_buffer: Option<u64>,
    /// Seed of losses, jitter and reordering
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Shell command for the server's end; it is stopped when the client's command ends
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// Start the client when the server accepts TCP connections on this port
    #[arg(long, value_name = "PORT", requires = "server")]
    pub ready_port: Option<u16>,
    /// Relay TCP connections to a server that runs already, at HOST:PORT, instead of carrying packets; the client finds
    /// the proxy in $LINK_SERVER and $LINK_PORT
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["server", "measure", "mtu", "tcp_buffer"])]
    pub proxy: Option<String>,
    /// Measure round trip, rate and loss of the link instead of running commands
    #[arg(long, conflicts_with_all = ["server", "client"])]
    pub measure: bool,
    /// Print what the link carried, or measured, as one line of JSON to standard error
    #[arg(long)]
    pub json: bool,
    /// Command for the client's end, with its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "measure")]
    pub client: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(after_help = HONESTY_HELP)]
pub struct HonestyArguments {
    /// A local disk or a mount
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Compare these alone
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',', default_values_t = [HonestyPart::Data, HonestyPart::Names, HonestyPart::Cpu])]
    pub only: Vec<HonestyPart>,
    /// Rounds; both sides of each measure once
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub rounds: u32,
    /// Measured time of reads and random writes
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub duration: Duration,
    /// Size of each file of data; larger than what a random read reaches, or it measures the cache
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    pub file_size: u64,
    /// Threads of data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u32,
    /// Empty files; Bonnie++ prints no rate of a phase below half a second
    #[arg(long, value_name = "N", default_value_t = 64 << 10)]
    pub files: u64,
    /// Leave caches as they are
    #[arg(long)]
    pub warm: bool,
    /// Print one line of JSON to standard output, also for errors: {"error": "…"}
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HonestyPart {
    Data,
    Names,
    Cpu,
}

#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub struct ListArguments {
    /// A workload
    #[arg(value_name = "WORKLOAD")]
    pub workload: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct RunArguments {
    /// A plan file, or the name of a workload
    #[arg(value_name = "PLAN|WORKLOAD")]
    pub what: String,
    /// Parameter of a workload; with several values, each is a case
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub set: Vec<String>,
    /// Threads of each client [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub threads: Vec<u32>,
    /// Clients [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub clients: Vec<u32>,
    /// Measured time of a run, unless it ends with its work [default: 60s]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Time before that, which is not measured [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub warm_up: Option<String>,
    /// Record the operations of the clients as a trace, for `enfys bench trace`; of one run in this process
    #[arg(long, value_name = "FILE", conflicts_with = "agents")]
    pub record: Option<PathBuf>,
    /// Machines that have the clients, in parts of the same size; each needs this program and, for a directory, the same mount
    #[arg(long, value_name = "HOST,…", value_delimiter = ',')]
    pub agents: Vec<String>,
    /// Shell command that starts an agent on $HOST and reaches it by standard input and output [default: ssh]
    #[arg(long, value_name = "COMMAND", requires = "agents", default_value = bench::runner::Agents::SSH, hide_default_value = true)]
    pub agent_command: String,
    #[command(flatten)]
    pub runs: RunsArguments,
}

/// Targets and runs of a workload or a trace.
#[derive(Clone, Debug, Args)]
pub struct RunsArguments {
    /// Target; can be given several times
    #[arg(long, value_name = "[NAME=]SERVER")]
    pub target: Vec<String>,
    /// Versions of NFS [default: 3,4.1]
    #[arg(long, value_name = "VERSION,…", value_delimiter = ',')]
    pub nfs: Vec<String>,
    /// Alternative options of the client, each a case: those of nfs(5), and slots=N, v3_calls=N, caches=on|off; several
    /// together as in slots=16&nconnect=2
    #[arg(long, value_name = "OPTION[&OPTION]…,…", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Additional round trips, as in 0,10ms
    #[arg(long, value_name = "TIME,…", value_delimiter = ',')]
    pub delay: Vec<String>,
    /// Runs of each case
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Empty caches before each run: new-client, restart, drop-caches, or command: and a shell command
    #[arg(long, value_name = "HOW")]
    pub cold: Option<String>,
    /// Read the server's counters before and after each run, and write by how much they grew, one line of JSON for each
    /// run; `-` is standard output. Enfys, if the bench starts it, then measures each call
    #[arg(long, value_name = "FILE|-")]
    pub metrics: Option<PathBuf>,
    /// Where a server that runs already has its counters for Prometheus
    #[arg(long, value_name = "HOST:PORT[/PATH]")]
    pub scrape: Option<String>,
    /// Directory of the result files [default: results/ and the name of the plan]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Where local servers have their files [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// Leave the files at the targets
    #[arg(long)]
    pub keep_files: bool,
    /// Show the runs, and do none
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show clients, operations, bytes and duration of a trace
    Show {
        /// A trace
        #[arg(value_name = "TRACE")]
        trace: PathBuf,
    },
    /// Make a trace of a packet capture of NFS 3 and 4 over TCP
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// A capture, in pcap or pcapng
        #[arg(value_name = "CAPTURE")]
        capture: PathBuf,
        /// The trace that is written [default: the name of the capture, with .trace]
        #[arg(value_name = "TRACE")]
        trace: Option<PathBuf>,
    },
    /// Replay a trace: its operations in their order, with the times between them
    Replay(Box<ReplayArguments>),
}

#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub struct SimulateArguments {
    /// A workload
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,
    /// Parameter of the workload; with several values, each is a case
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub set: Vec<String>,
    /// Versions of NFS [default: 3,4.1]
    #[arg(long, value_name = "VERSION,…", value_delimiter = ',')]
    pub nfs: Vec<String>,
    /// Round trips, each a case
    #[arg(long, value_name = "TIME,…", value_delimiter = ',', default_value = "10ms", value_parser = parse_time)]
    pub delay: Vec<Duration>,
    /// Part of TCP segments that are lost, in each direction
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = parse_percent)]
    pub loss: f64,
    /// Lose everything for a time: START+LENGTH, counted from the start of the clients; can be given several times
    #[arg(long, value_name = "TIME+TIME")]
    pub outage: Vec<Outage>,
    /// Threads of each client [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub threads: Vec<u32>,
    /// Clients [default: 1]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub clients: Vec<u32>,
    /// Virtual time of a run, unless it ends with its work
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub duration: String,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Save a result file of each run into this directory, for `enfys bench report`
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Print all results as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub struct ReplayArguments {
    /// A trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Divide the times between operations by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    pub speed: f64,
    /// Do not wait between operations, except for operations of other streams
    #[arg(long, conflicts_with = "speed")]
    pub no_think: bool,
    #[command(flatten)]
    pub runs: RunsArguments,
}

#[derive(Debug, Args)]
#[command(after_help = PAPER_HELP)]
pub struct PaperArguments {
    /// A figure, or the beginning of its name [default: all]
    #[arg(value_name = "FIGURE")]
    pub figure: Option<String>,
    /// Show the figures with their planned times, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Sizes and times of seconds, and one round
    #[arg(long, conflicts_with = "scale")]
    pub quick: bool,
    /// Sizes and times
    #[arg(long, value_enum, default_value_t = PaperScale::Normal)]
    pub scale: PaperScale,
    /// Write the page into a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Directory of the result files
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// Where local servers have their files [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
}

/// `--scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PaperScale {
    /// Scaled to a small machine; three rounds
    Normal,
    /// The papers' sizes and times
    Full,
}

#[derive(Debug, Args)]
#[command(after_help = REPORT_HELP)]
pub struct ReportArguments {
    /// Result files, or directories of them
    #[arg(value_name = "RESULTS", required = true)]
    pub results: Vec<PathBuf>,
    /// What to print to standard output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with_all = ["format", "csv"])]
    pub json: bool,
    /// The same as --format csv
    #[arg(long, conflicts_with = "format")]
    pub csv: bool,
    /// Write a page that stands alone
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write each figure as PNG into this directory
    #[cfg(feature = "png")]
    #[arg(long, value_name = "DIR")]
    pub png: Option<PathBuf>,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One line for each case, with intervals and warnings
    Table,
    /// All results as one list
    Json,
    /// One line for each run
    Csv,
    /// The output of fio --output-format=json+
    FioJson,
}

#[derive(Debug, Args)]
#[command(after_help = COMPARE_HELP)]
pub struct CompareArguments {
    /// Results before: a file, or a directory of them
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// Results after
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// End with status 1 if a case is slower by at least this part
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_if_slower: Option<f64>,
}

/// Parses a factor from 0.01 to 1,000,000.
fn speed(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.01..=1e6).contains(factor));
    factor.ok_or_else(|| format!("`{text}`: expected a factor from 0.01 to 1000000"))
}

/// Parses a size that fits 32 bits.
fn size_u32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| format!("`{text}`: less than 4GiB"))
}
