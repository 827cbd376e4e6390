use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs2::{FileHandle, Stat, WriteArgs};
use vfs::{Attributes, Authority, Error, Stability};
use xdr::{Decode, Encode, Reader, Writer};

use super::reply::{Failure, answer, check_size, fattr_after_change, resolve, resolve_writable};
use crate::files::recall::announce_change;
use crate::files::stateless::{admit_io, attributes};
use crate::replay::reply_cache::short::SHORT;
use crate::request::{Request, Served, Target};
use crate::state::IoKind;

/// WRITE (RFC 1094 §2.2.9): the data are on stable storage before the reply. `beginoffset` and `totalcount` are unused.
pub(super) async fn serve(request: &Request<'_>, args: WriteArgs, reply: &mut Writer) -> Result<(), Failure> {
    let target = resolve_writable(request, &args.file)?;
    check_size(target.export, u64::from(args.offset) + args.data.len() as u64)?;
    let _changing = announce_change(request, &target.handle);
    admit_io(request, &target, IoKind::Write).await?;
    let written = write_all(&target, u64::from(args.offset), args.data.into_bytes()).await?;
    answer(reply, fattr_after_change(target.export, &written))
}

/// Writes all of the data: the reply has no count, so the client must not assume that some are unwritten. Returns the attributes afterwards.
async fn write_all(
    target: &Target<'_>,
    mut offset: u64,
    mut data: bytes::Bytes,
) -> Result<Attributes, Error> {
    let Target { export, handle, context } = target;
    loop {
        let stable = Stability::FileSync;
        let written = export.backend.write(context, handle, offset, &data, stable, Authority::Caller).await?;
        export.counts.written_bytes.fetch_add(u64::from(written.count), Relaxed);
        let count = data.len().min(written.count as usize);
        data = data.slice(count..);
        offset += count as u64;
        if data.is_empty() {
            return Ok(written.change.after);
        }
        if count == 0 {
            return Err(Error::Io);
        }
    }
}

/// Returns the short form of the results for the reply cache: the status.
pub(crate) fn shorten(results: &[u8]) -> [u8; SHORT] {
    let mut short = [0; SHORT];
    short[..4].copy_from_slice(results.first_chunk().unwrap_or(&Stat::IO.0.to_be_bytes()));
    short
}

/// Writes the results from their short form, with current attributes. If these cannot be read now, there is no reply: the data are
/// written, and IO would report the opposite.
pub(crate) async fn repeat(
    request: &Request<'_>,
    mut arguments: Reader,
    short: &[u8],
    reply: &mut Writer,
) -> Served {
    let mut status = short.first_chunk().map_or(Stat::IO, |status| Stat(u32::from_be_bytes(*status)));
    if status == Stat::OK {
        let start = reply.mark();
        match Box::pin(current(request, &mut arguments, reply)).await {
            Ok(()) => return Served::Done { is_error: false },
            Err(Failure::Status(failed)) => status = failed,
            Err(Failure::Later) => return Served::Drop,
        }
        reply.rewind(start);
    }
    status.encode(reply);
    Served::Done { is_error: true }
}

async fn current(request: &Request<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result<(), Failure> {
    let file = FileHandle::decode(arguments).map_err(|_| Stat::STALE)?;
    let target = resolve(request, &file)?;
    let attributes = attributes(request, &target).await?;
    answer(reply, fattr_after_change(target.export, &attributes))
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{AttrStat, MAXDATA, Proc, Stat, WriteArgs};
    use rpc::message::{AcceptStatus, RpcError};
    use vfs::Error;
    use vfs::fault::{Fault, Faulty, Method, Rule};
    use xdr::Opaque;

    use crate::programs::nfs2::tests::{Client, attributes};

    fn args(file: [u8; 32], offset: u32, data: &[u8]) -> WriteArgs {
        let data = Opaque::new(data.to_vec()).unwrap();
        WriteArgs { file, beginoffset: 7, offset, totalcount: 7, data }
    }

    #[test]
    fn writes_up_to_the_greatest_size() {
        let client = Client::new();
        let file = client.create(b"file");
        let write = |offset, data: &[u8]| client.call::<AttrStat>(Proc::WRITE, &args(file, offset, data));
        assert_eq!(attributes(write(u32::MAX - 3, b"end")).size, u32::MAX);
        assert_eq!(write(u32::MAX - 3, b"over"), AttrStat::Fail(Stat::FBIG));
        assert_eq!(attributes(write(0, b"")).size, u32::MAX);
        let directory = args(client.root, 0, b"x");
        assert_eq!(client.call::<AttrStat>(Proc::WRITE, &directory), AttrStat::Fail(Stat::ISDIR));
    }

    #[test]
    fn more_than_8_kib_are_garbage() {
        let client = Client::new();
        let file = client.create(b"file");
        let mut longest = xdr::to_bytes(&args(file, 0, &[1; MAXDATA])).to_vec();
        assert!(client.raw(Proc::WRITE, &longest).is_ok());
        longest[32 + 12..32 + 16].copy_from_slice(&(MAXDATA as u32 + 1).to_be_bytes());
        longest.extend([1, 0, 0, 0]);
        let garbage = RpcError::NotExecuted(AcceptStatus::GarbageArguments);
        assert_eq!(client.raw(Proc::WRITE, &longest), Err(garbage));
    }

    #[test]
    fn a_late_copy_undoes_nothing() {
        let client = Client::new();
        let file = client.create(b"file");
        let old = args(file, 0, b"old");
        let first = client.call_as::<AttrStat>(100, Proc::WRITE, &old);
        client.write(file, 0, b"newer");
        let again = client.call_as::<AttrStat>(100, Proc::WRITE, &old);
        assert_eq!((attributes(first).size, attributes(again).size), (3, 5));
        assert_eq!(client.content(b"file"), b"newer");
        let (name, none) = (&b"file"[..], Stat::OK);
        assert_eq!(client.remove(name), none);
        let gone = client.call_as::<AttrStat>(100, Proc::WRITE, &old);
        assert_eq!(gone, AttrStat::Fail(Stat::STALE));
    }

    #[test]
    fn a_write_into_a_large_file_succeeds_and_so_does_its_copy() {
        let client = Client::new();
        let data = args(client.large_file(b"large", 1 << 33), 0, b"data");
        for _ in 0..2 {
            assert_eq!(attributes(client.call_as(100, Proc::WRITE, &data)).size, u32::MAX);
        }
    }

    #[test]
    fn a_copy_gets_no_reply_while_there_are_no_attributes() {
        let client = Client::over(|files| {
            let files = Faulty::new(files);
            files.add(Rule::on(Method::Getattr, Fault::Fail(Error::Later)).times(1));
            files
        });
        let data = args(client.create(b"file"), 0, b"data");
        let first = client.call_as::<AttrStat>(100, Proc::WRITE, &data);
        assert!(client.is_dropped(100, Proc::WRITE, &data));
        assert_eq!(client.call_as::<AttrStat>(100, Proc::WRITE, &data), first);
    }
}
