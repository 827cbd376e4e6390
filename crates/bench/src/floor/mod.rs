//! The floor: the least that a server can do for the measured operations.
//!
//! One tokio current-thread runtime parses record marks, finds the arguments, makes the same system calls on prepared
//! files as any server must, and answers all complete records of a read with one write. It has no file handles, no
//! caches, no credentials, no reply cache, no limits: it is a yardstick, never a server. What it does for each
//! operation stands at the functions of [`calls`].

mod calls;
mod connection;
mod replies;

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use protocol::nfs3::Proc;
use tokio::net::TcpListener;

use calls::Files;
pub use calls::LargeRead;

/// A call of the floor's own, beside those of NFSv3: `openat`, `fstat`, `pread` and `close` of a file by its directory
/// and name. Its arguments are a `diropargs3` and a count; it is answered like a READ from the start of the file.
pub(crate) const OPEN_READ_CLOSE: Proc = Proc(100);

/// Serves the prepared files (see [`crate::layout::prepare`]) below `export` until the process is ended.
///
/// # Errors
/// When a file or the address cannot be opened.
pub fn serve(export: &Path, listen: SocketAddr, large_read: LargeRead) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Leaked on purpose: it lives as long as the process, and connections reach it without counting references.
    let files: &'static Files = Box::leak(Box::new(Files::open(export, large_read)?));
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await?;
        println!("floor on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(connection::run(stream, files));
        }
    })
}
