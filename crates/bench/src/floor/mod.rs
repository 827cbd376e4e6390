//! The floor: the least that a server can do for the measured operations.
//!
//! One tokio current-thread runtime parses record marks, finds the arguments, makes the same system calls on prepared
//! files as any server must, and answers all complete records of a read with one write. It has no file handles, no
//! caches, no credentials, no reply cache, no limits: it serves for comparison only. The functions of [`calls`] document its
//! system calls for each operation.

mod calls;
mod connection;
mod listing;
mod replies;
mod unsynced;

use std::io;
use std::net::TcpListener;
use std::path::Path;

use protocol::nfs3::Proc;

use calls::Files;
pub use calls::LargeRead;

/// A procedure in addition to those of NFSv3: `openat`, `fstat`, `pread` and `close` of a file by its directory
/// and name. Its arguments are a `diropargs3` and a count; it is answered like a READ from the start of the file.
pub(crate) const OPEN_READ_CLOSE: Proc = Proc(100);
/// An additional procedure that only sends data. Its argument is a count; its result is an opaque of that many arbitrary bytes, which are
/// already in memory.
pub(crate) const SEND: Proc = Proc(101);

/// Options of the floor.
#[derive(Clone, Copy, Debug)]
pub struct FloorOptions {
    /// The implementation of a large READ.
    pub large_read: LargeRead,
    /// Whether CREATE and REMOVE are on disk before they are answered, as RFC 1813 §4.8 requires.
    pub durability: Durability,
}

/// The time at which CREATE and REMOVE are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When their system calls have returned.
    None,
    /// When the changes of all calls of the batch are on disk: each new file, and their directory once.
    Batch,
}

/// Serves the prepared files (see [`crate::layout::prepare`]) below `export` until the process ends, to all clients of `listener`.
///
/// # Errors
/// Returns an error if a file cannot be opened, or accepting fails.
pub fn serve(export: &Path, listener: TcpListener, options: FloorOptions) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Leaked on purpose: it lives as long as the process, and connections reach it without counting references.
    let files: &'static Files = Box::leak(Box::new(Files::open(export, options)?));
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        println!("floor on {}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(connection::run(stream, files));
        }
    })
}
