//! Copies that a server makes itself: by clone, or by copying the data without the network between.

use std::cell::Cell;

use client::errno::Errno;
use client::error::OpError;

use super::super::session::Failure;
use super::super::tree::{RemoteFile, RemoteTree};

/// The condition for shared blocks between files of one server (cp(1), `--reflink`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Reflink {
    /// If the server can; otherwise it copies the data, or this program does.
    #[default]
    Auto,
    /// Always; a file that cannot be cloned is an error.
    Always,
    /// Never, and the server copies nothing itself.
    Never,
}

/// Bytes of one COPY: a server answers a long one in the background.
const COPY_BYTES: u64 = 1 << 30;

/// The server's result for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByServer {
    Cloned,
    Copied,
    /// Nothing: the server does not support it.
    Nothing,
}

/// Operations that the servers of a copy do not support, as far as is known. Each is tried once.
#[derive(Debug, Default)]
pub(super) struct Inability {
    cloning: Cell<bool>,
    copying: Cell<bool>,
}

/// Returns whether a server reports that it does not support this at all, between these file systems, or for these files.
fn is_inability(cause: &OpError) -> bool {
    [Errno::EOPNOTSUPP, Errno::EXDEV, Errno::EINVAL].contains(&cause.errno())
}

impl Inability {
    /// Lets the server of both trees copy a file into an empty one.
    ///
    /// # Errors
    /// The server's error; with [`Reflink::Always`] also that it cannot clone.
    pub(super) async fn copy(
        &self,
        (from, reader): (&RemoteTree, &RemoteFile),
        (to, writer): (&RemoteTree, &RemoteFile),
        (size, keeps_holes): (u64, bool),
        reflink: Reflink,
    ) -> Result<ByServer, Failure> {
        if !self.cloning.get() || reflink == Reflink::Always {
            match to.clone_from(reader, writer, size).await {
                Ok(()) => return Ok(ByServer::Cloned),
                Err(cause) if reflink == Reflink::Auto && is_inability(&cause) => self.cloning.set(true),
                Err(cause) => return Err(to.cannot("clone", writer, &cause)),
            }
        }
        if self.copying.get() {
            return Ok(ByServer::Nothing);
        }
        let ranges = if keeps_holes { from.data_ranges(reader, size).await? } else { vec![(0, size)] };
        for (begins, ends) in ranges {
            let mut offset = begins;
            while offset < ends {
                match to.copy_from(reader, writer, offset, (ends - offset).min(COPY_BYTES)).await {
                    // The file has become shorter: the reader will notice.
                    Ok(0) => return Ok(ByServer::Nothing),
                    Ok(count) => offset += count,
                    Err(cause) if is_inability(&cause) => {
                        self.copying.set(true);
                        return Ok(ByServer::Nothing);
                    }
                    Err(cause) => return Err(to.cannot("copy to", writer, &cause)),
                }
            }
        }
        Ok(ByServer::Copied)
    }
}
