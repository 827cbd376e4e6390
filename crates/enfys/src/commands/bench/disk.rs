//! `enfys bench disk`: a server on a modelled disk, which runs until it is killed and tells the disk's counters.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use bench::targets::local::{DISK_SYNCED_BYTES, DISK_SYNCS};
use net::modelled_disk::{Counts, Disk, DiskServer, Syncs};

/// Serves at `address`, and tells the counters at `metrics`.
pub(super) fn run(
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    disk: Disk,
    syncs: Syncs,
    has_journal: bool,
) -> io::Result<()> {
    let listener = metrics.map(TcpListener::bind).transpose()?;
    let server = DiskServer::start(address, disk, syncs, has_journal)?;
    let mut output = io::stdout();
    writeln!(output, "'{}'", server.url())?;
    output.flush()?;
    loop {
        match listener.as_ref().map(TcpListener::accept) {
            // A client that went away reads no counters.
            Some(accepted) => drop(accepted.and_then(|(client, _)| tell(client, server.counts()))),
            None => std::thread::park(),
        }
    }
}

/// Answers one request for the counters.
fn tell(mut client: TcpStream, counts: &Counts) -> io::Result<()> {
    let mut request = [0; 1024];
    let _ = client.read(&mut request)?;
    let (syncs, bytes) = (counts.syncs(), counts.bytes());
    write!(client, "HTTP/1.0 200 OK\r\n\r\n{DISK_SYNCS} {syncs}\n{DISK_SYNCED_BYTES} {bytes}\n")
}
