use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs2::{Fattr, MAXDATA, ReadArgs, Stat};
use vfs::{Authority, ReadRequest};
use xdr::{Encode, Writer};

use super::reply::{Failure, fattr, resolve};
use crate::files::stateless::admit_io;
use crate::payload;
use crate::request::Request;
use crate::state::IoKind;

/// Bytes of the attributes on the wire: seventeen words.
const FATTR_BYTES: usize = 17 * 4;

/// Bytes before the data of a successful reply: status, attributes, length.
const HEAD: usize = 4 + FATTR_BYTES + 4;

/// READ (RFC 1094 §2.2.7). `totalcount` is unused.
///
/// The backend appends the data to the reply itself, after room for the head, which is filled in afterwards.
pub(super) async fn serve(request: &Request<'_>, args: ReadArgs, reply: &mut Writer) -> Result<(), Failure> {
    let target = resolve(request, &args.file)?;
    admit_io(request, &target, IoKind::Read).await?;
    let start = reply.mark();
    reply.raw(&[0; HEAD]);
    // If sizes are clamped, the file ends at the greatest one.
    let left = target.export.options.v2_max_size().saturating_sub(args.offset);
    let wanted = ReadRequest {
        offset: u64::from(args.offset),
        count: args.count.min(MAXDATA as u32).min(left),
        may_splice: request.may_splice,
        authority: Authority::Caller,
    };
    let backend = &target.export.backend;
    let read = backend.read(&target.context, &target.handle, wanted, reply.buffer_mut()).await?;
    let attributes = fattr(target.export, &read.attributes)?;
    reply.patch(start, 0, &head(&attributes, read.count));
    payload::attach(reply, read.payload, read.count);
    target.export.counts.read_bytes.fetch_add(u64::from(read.count), Relaxed);
    Ok(())
}

fn head(attributes: &Fattr, count: u32) -> [u8; HEAD] {
    let mut writer = Writer::new();
    Stat::OK.encode(&mut writer);
    attributes.encode(&mut writer);
    writer.u32(count);
    writer.inline().try_into().expect("status, seventeen words, length")
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, ReadArgs, ReadRes, Stat};

    use crate::programs::nfs2::tests::Client;

    impl Client {
        fn read(&self, file: [u8; 32], offset: u32, count: u32) -> Result<(u32, Vec<u8>), Stat> {
            let args = ReadArgs { file, offset, count, totalcount: 0 };
            match self.call::<ReadRes>(Proc::READ, &args) {
                ReadRes::Ok(ok) => Ok((ok.attributes.size, ok.data.to_vec())),
                ReadRes::Fail(status) => Err(status),
            }
        }
    }

    #[test]
    fn reads_up_to_the_end_and_to_the_limit() {
        let client = Client::new();
        let file = client.create(b"file");
        let bytes: Vec<u8> = (0..9000_u32).map(|at| at as u8).collect();
        client.write(file, 0, &bytes[..8192]);
        client.write(file, 8192, &bytes[8192..]);
        assert_eq!(client.read(file, 0, 8192), Ok((9000, bytes[..8192].to_vec())));
        assert_eq!(client.read(file, 0, u32::MAX), Ok((9000, bytes[..8192].to_vec())), "8 KiB at most");
        assert_eq!(client.read(file, 8191, 8192), Ok((9000, bytes[8191..].to_vec())));
        assert_eq!(client.read(file, 1, 3), Ok((9000, bytes[1..4].to_vec())));
        assert_eq!(client.read(file, 9000, 1), Ok((9000, vec![])));
        assert_eq!(client.read(file, u32::MAX, 8192), Ok((9000, vec![])));
        assert_eq!(client.read(client.root, 0, 1), Err(Stat::ISDIR));
    }

    #[test]
    fn a_clamped_file_ends_at_the_greatest_size() {
        let client = Client::with(|options| {
            options.v2_large_files = crate::LargeFiles::Clamp;
            options.v2_signed_sizes = true;
        });
        let file = client.large_file(b"large", 1 << 33);
        let last = (1 << 31) - 2;
        assert_eq!(client.read(file, last, 8192), Ok((last + 1, vec![0])));
        assert_eq!(client.read(file, last + 1, 8192), Ok((last + 1, vec![])));
        assert_eq!(client.read(file, u32::MAX, 8192), Ok((last + 1, vec![])));
    }
}
