//! Copies that a server makes itself: by clone, or by copying the data without the network between.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::errno::Errno;
use crate::error::{Error, OpError};
use crate::tree::{ServerFile, ServerTree};

/// The condition for shared blocks between files of one server (cp(1), `--reflink`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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

/// How a server has copied a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByServer {
    /// The files share their blocks.
    Cloned,
    /// It copied the data.
    Copied,
}

/// Operations that the servers of a copy do not support, as far as is known. Each is tried once.
#[derive(Debug, Default)]
pub(super) struct Unsupported {
    cloning: AtomicBool,
    copying: AtomicBool,
}

/// Returns whether a server reports that it does not support this at all, between these file systems, or for these files.
fn is_unsupported(cause: &OpError) -> bool {
    [Errno::EOPNOTSUPP, Errno::EXDEV, Errno::EINVAL].contains(&cause.errno())
}

impl Unsupported {
    /// Lets the server of both trees copy a file into an empty one; `None` if it does not support it.
    ///
    /// # Errors
    /// The server's error; with [`Reflink::Always`] also that it cannot clone.
    pub(super) async fn copy(
        &self,
        (from, reader): (&ServerTree, &ServerFile),
        (to, writer): (&ServerTree, &ServerFile),
        (size, keeps_holes): (u64, bool),
        reflink: Reflink,
    ) -> Result<Option<ByServer>, Error> {
        if !self.cloning.load(Relaxed) || reflink == Reflink::Always {
            match to.clone_from(reader, writer, size).await {
                Ok(()) => return Ok(Some(ByServer::Cloned)),
                Err(cause) if reflink == Reflink::Auto && is_unsupported(&cause) => {
                    self.cloning.store(true, Relaxed)
                }
                Err(cause) => return Err(to.cannot("clone", writer, cause)),
            }
        }
        if self.copying.load(Relaxed) {
            return Ok(None);
        }
        let ranges = if keeps_holes { from.data_ranges(reader, size).await? } else { vec![(0, size)] };
        for (begins, ends) in ranges {
            let mut offset = begins;
            while offset < ends {
                match to.copy_from(reader, writer, offset, (ends - offset).min(COPY_BYTES)).await {
                    // The file has become shorter: the reader will notice.
                    Ok(0) => return Ok(None),
                    Ok(count) => offset += count,
                    Err(cause) if is_unsupported(&cause) => {
                        self.copying.store(true, Relaxed);
                        return Ok(None);
                    }
                    Err(cause) => return Err(to.cannot("copy to", writer, cause)),
                }
            }
        }
        Ok(Some(ByServer::Copied))
    }
}
