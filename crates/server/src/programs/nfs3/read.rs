use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3::{FATTR_LENGTH, Fattr, NfsStat, Outcome, PostOpAttr, ReadArgs, ReadOk};
use vfs::{Authority, ReadRequest};
use xdr::Writer;

use crate::nfs3_reply::{admit_io, answer, fattr, resolve, status};
use crate::payload;
use crate::request::Request;
use crate::state::IoKind;

/// Bytes before the data of a successful reply: status, attributes after their flag, count, end-of-file, length.
const HEAD: usize = 4 + 4 + FATTR_LENGTH + 4 + 4 + 4;

/// READ (RFC 1813 §3.3.6).
///
/// The backend appends the data to the reply itself, after room for the head, which is filled in afterwards.
pub(super) async fn serve(request: &Request<'_>, args: ReadArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.file) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<ReadOk, PostOpAttr>::Fail(status, None)),
    };
    if let Err(status) = admit_io(request, &target, IoKind::Read).await {
        return answer(reply, &Outcome::<ReadOk, _>::Fail(status, target.post_op().await));
    }
    let start = reply.mark();
    reply.raw(&[0; HEAD]);
    let wanted = ReadRequest {
        offset: args.offset,
        count: args.count.min(request.max_io()),
        may_splice: request.may_splice,
        authority: Authority::Caller,
    };
    let backend = &target.export.backend;
    match backend.read(&target.context, &target.handle, wanted, reply.buffer_mut()).await {
        Ok(read) => {
            let attributes = fattr(target.export, &read.attributes);
            reply.patch(start, 0, &head(&attributes, read.count, read.eof));
            payload::attach(reply, read.payload, read.count);
            target.export.counts.read_bytes.fetch_add(u64::from(read.count), Relaxed);
            NfsStat::OK
        }
        Err(error) => {
            reply.rewind(start);
            answer(reply, &Outcome::<ReadOk, _>::Fail(status(error), target.post_op().await))
        }
    }
}

fn head(attributes: &Fattr, count: u32, eof: bool) -> [u8; HEAD] {
    const COUNT: usize = 8 + FATTR_LENGTH;
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&NfsStat::OK.0.to_be_bytes());
    head[4..8].copy_from_slice(&1u32.to_be_bytes());
    head[8..COUNT].copy_from_slice(&attributes.to_wire());
    head[COUNT..COUNT + 4].copy_from_slice(&count.to_be_bytes());
    head[COUNT + 4..COUNT + 8].copy_from_slice(&u32::from(eof).to_be_bytes());
    head[COUNT + 8..].copy_from_slice(&count.to_be_bytes());
    head
}
