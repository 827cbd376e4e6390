//! One step of a copy from another server (RFC 7862 §4.5): it reads some bytes there and writes them here.

use bytes::Bytes;
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::Status;
use vfs::{Authority, COPIED_HOLE_BYTES, Change, Context, Copied, Stability, Written};

use crate::remote_read::{FETCH_BYTES, Fetches, Reading, Span};
use crate::{Export, FetchError, Now};

/// The greatest length of a file, in bytes.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Some bytes of a source, and their place in the destination.
#[derive(Debug)]
pub(crate) struct Piece {
    content: Vec<Extent>,
    destination: vfs::Handle,
    offset: u64,
    /// Whether they are the last bytes.
    is_last: bool,
    /// The time of their arrival, or later.
    pub(crate) at: Now,
}

impl Piece {
    /// Reads the bytes after the first `done` ones, and reads ahead up to `most` bytes of the copy.
    pub(crate) async fn fetch(
        fetches: &Fetches,
        reading: &Reading,
        span: &Span,
        (done, most): (u64, u64),
    ) -> Result<Self, FetchError> {
        // Before the first byte is written: if the source is too short, none is.
        let judge =
            |size| if is_beyond(span, size) { Err(FetchError::Refused(Status::INVAL)) } else { Ok(()) };
        let fetched = reading.next(fetches, span, (done, most), judge).await?;
        let length = fetched.content.iter().map(Extent::length).sum::<u64>();
        Ok(Self {
            // A source that became shorter is not a failure: a copy that begins now would end there too.
            is_last: fetched.is_end || done + length == span.end(),
            content: fetched.content,
            at: fetched.at,
            destination: span.destination,
            offset: span.destination_offset.saturating_add(done),
        })
    }

    /// Writes the bytes, or as many as the backend takes at once.
    pub(crate) async fn write(
        &self,
        export: &Export,
        context: &Context,
        authority: Authority,
    ) -> vfs::Result<Copied> {
        let length = self.content.iter().map(Extent::length).sum::<u64>();
        if self.offset.checked_add(length).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(vfs::Error::TooLarge);
        }
        let nothing = Extent::Data(Bytes::new());
        let (first, others) = self.content.split_first().unwrap_or((&nothing, &[]));
        let mut all = self.write_extent(export, (context, authority), 0, first).await?;
        let mut wanted = first.length();
        for extent in others {
            if u64::from(all.count) < wanted {
                break;
            }
            // Report the bytes before an error; the next step gets the error itself.
            let written = self.write_extent(export, (context, authority), wanted, extent).await;
            let Ok(written) = written else { break };
            wanted += extent.length();
            all = Written {
                count: all.count + written.count,
                stability: all.stability.min(written.stability),
                change: Change { before: all.change.before, after: written.change.after, atomic: false },
            };
        }
        let count = all.count.into();
        let is_all = self.is_last && count == length;
        Ok(Copied { count, stability: all.stability, is_all, change: all.change })
    }

    /// Writes one extent, `from` bytes after the first.
    async fn write_extent(
        &self,
        export: &Export,
        (context, authority): (&Context, Authority),
        from: u64,
        extent: &Extent,
    ) -> vfs::Result<Written> {
        let (backend, file, offset) = (&export.backend, &self.destination, self.offset + from);
        let zeros;
        let data = match extent {
            Extent::Data(data) => data,
            Extent::Hole(length) => {
                let most = (*length).min(FETCH_BYTES.into()) as u32;
                if *length >= COPIED_HOLE_BYTES {
                    match backend.write_hole(context, file, offset, most, authority).await {
                        Err(vfs::Error::NotSupported) => {}
                        written => return written,
                    }
                }
                zeros = Bytes::from(vec![0; most as usize]);
                &zeros
            }
        };
        backend.write(context, file, offset, data, Stability::Unstable, authority).await
    }
}

/// RFC 7862 §15.2.3: "If the source offset or the source offset plus count is greater than the size of the source file, the
/// operation MUST fail with NFS4ERR_INVAL."
fn is_beyond(span: &Span, size: u64) -> bool {
    span.source_offset.checked_add(span.count).is_none_or(|end| end > size)
}

/// Returns the status for a source that fails after `done` bytes; DELAY if the copy may try again.
///
/// The client must not confuse a source's statuses about stateids and rights with those of the destination. RFC 7862 §11.1.2.1 has
/// OFFLOAD_DENIED mean that it "should fall back to the normal copy semantics"; Linux's client does so, and converts most other statuses to
/// an I/O error.
pub(crate) fn of_source(error: FetchError, is_given_up: bool, done: u64) -> Status {
    let is_passing = match error {
        FetchError::Busy | FetchError::Refused(Status::DELAY | Status::GRACE) => true,
        // Before the first byte the client can copy by itself, so the server fails at once.
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
            // The client's arguments; after the first byte it is the source's own error.
            Status::INVAL if done == 0 => status,
            Status::ISDIR | Status::SYMLINK | Status::WRONG_TYPE => Status::WRONG_TYPE,
            Status::STALE | Status::BADHANDLE | Status::FHEXPIRED => Status::STALE,
            // A restarted source has forgotten COPY_NOTIFY, and the client can send it again.
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
