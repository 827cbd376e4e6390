//! What a step of a copy from another server does (RFC 7862 §4.5): it has some bytes read there, and writes them here.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::types::Status;
use vfs::{Authority, Context, Copied, Stability};

use super::state::Span;
use crate::fetch::{FETCH_BYTES, Fetches};
use crate::{Export, FetchError, Now, SourceFile};

/// The greatest length of a file, in bytes.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Some bytes of a source, and where they belong.
#[derive(Debug)]
pub(crate) struct Piece {
    data: Bytes,
    destination: vfs::Handle,
    offset: u64,
    /// Whether they are the last ones.
    is_last: bool,
    /// When they came.
    pub(crate) at: Now,
}

impl Piece {
    /// Has the next bytes read, behind the first `done` ones.
    pub(crate) async fn fetch(
        fetches: &Fetches,
        source: &Arc<SourceFile>,
        span: &Span,
        done: u64,
    ) -> Result<Self, FetchError> {
        let left = if span.count == 0 { u64::MAX } else { span.count - done };
        let count = left.min(u64::from(FETCH_BYTES)) as u32;
        let offset = span.source_offset.checked_add(done).ok_or(FetchError::Refused(Status::INVAL))?;
        // Before the first byte is written: nothing is, where the source is too short.
        let fetched = fetches.fetch(source, (offset, count), done == 0).await?;
        if fetched.size.is_some_and(|size| is_beyond(span, size)) {
            return Err(FetchError::Refused(Status::INVAL));
        }
        Ok(Self {
            // What is missing of a source that became shorter is no failure: a copy that begins now would end there too.
            is_last: fetched.is_end || fetched.data.len() as u64 == left,
            data: fetched.data,
            at: fetched.at,
            destination: span.destination,
            offset: span.destination_offset.saturating_add(done),
        })
    }

    /// Writes them, or as many as the backend takes at once.
    pub(crate) async fn write(
        &self,
        export: &Export,
        context: &Context,
        authority: Authority,
    ) -> vfs::Result<Copied> {
        if self.offset.checked_add(self.data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(vfs::Error::TooLarge);
        }
        let backend = &export.backend;
        let (file, data) = (&self.destination, &self.data);
        let write = backend.write(context, file, self.offset, data, Stability::Unstable, authority);
        let written = write.await?;
        let is_all = self.is_last && written.count as usize == data.len();
        Ok(Copied {
            count: written.count.into(),
            stability: written.stability,
            is_all,
            change: written.change,
        })
    }
}

/// RFC 7862 §15.2.3: "If the source offset or the source offset plus count is greater than the size of the source file, the
/// operation MUST fail with NFS4ERR_INVAL."
fn is_beyond(span: &Span, size: u64) -> bool {
    span.source_offset.checked_add(span.count).is_none_or(|end| end > size)
}

/// What a client is told where its source gives nothing, `done` bytes having been copied; DELAY where the copy may come again.
///
/// The client must not take a source's words about stateids and rights for ones about the destination. RFC 7862 §11.1.2.1 has
/// OFFLOAD_DENIED mean that it "should fall back to the normal copy semantics"; Linux's client does so, and makes an I/O error
/// of most other statuses.
pub(crate) fn of_source(error: FetchError, is_given_up: bool, done: u64) -> Status {
    let is_passing = match error {
        FetchError::Busy | FetchError::Refused(Status::DELAY | Status::GRACE) => true,
        // Before the first byte the client may copy as well by itself, and is told so at once.
        FetchError::Unreachable => done > 0,
        FetchError::Refused(_) | FetchError::Unsupported => false,
    };
    if is_passing && !is_given_up {
        return Status::DELAY;
    }
    match error {
        FetchError::Unsupported => Status::PARTNER_NOTSUPP,
        FetchError::Refused(status) => match status {
            Status::PARTNER_NO_AUTH | Status::IO => status,
            // Of what the client has asked for; behind the first byte it is the source's own.
            Status::INVAL if done == 0 => status,
            Status::ISDIR | Status::SYMLINK | Status::WRONG_TYPE => Status::WRONG_TYPE,
            Status::STALE | Status::BADHANDLE | Status::FHEXPIRED => Status::STALE,
            // A source that was started again has forgotten COPY_NOTIFY, and the client can say it again.
            _ if done > 0 && is_of_stateid(status) => Status::PARTNER_NO_AUTH,
            _ => Status::OFFLOAD_DENIED,
        },
        FetchError::Busy | FetchError::Unreachable => Status::OFFLOAD_DENIED,
    }
}

fn is_of_stateid(status: Status) -> bool {
    [
        Status::BAD_STATEID,
        Status::OLD_STATEID,
        Status::STALE_STATEID,
        Status::EXPIRED,
        Status::ADMIN_REVOKED,
        Status::DELEG_REVOKED,
    ]
    .contains(&status)
}
