use protocol::nfs2::{Stat, SymlinkArgs};
use vfs::{Create, SetAttributes};
use xdr::{Encode, Writer};

use super::create::create;
use super::reply::{Failure, resolve_writable};
use crate::request::Request;

/// SYMLINK (RFC 1094 §2.2.14): "On UNIX servers the attributes are never used, since symbolic links always have mode 0777."
pub(super) async fn serve(
    request: &Request<'_>,
    args: SymlinkArgs,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve_writable(request, &args.from.dir)?;
    // A copy: a slice would keep the whole receive buffer for as long as a backend in memory keeps the link.
    let what = Create::Symlink(bytes::Bytes::copy_from_slice(&args.to));
    create(request, &target, &args.from, &what, &SetAttributes::default()).await?;
    Stat::OK.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{FileType, Proc, Sattr, Stat, SymlinkArgs};
    use rpc::message::{AcceptStatus, RpcError};
    use xdr::Opaque;

    use crate::programs::nfs2::tests::{Client, found, place};

    #[test]
    fn makes_a_link_whose_attributes_are_the_servers() {
        let client = Client::new();
        assert_eq!(client.symlink(b"link", b"../any where"), Stat::OK);
        assert_eq!(client.symlink(b"link", b"other"), Stat::EXIST);
        let link = found(client.call(Proc::LOOKUP, &place(client.root, b"link"))).attributes;
        assert_eq!((link.file_type, link.size), (FileType::LNK, 12));
    }

    #[test]
    fn a_text_of_more_than_1024_bytes_is_garbage() {
        let client = Client::new();
        let to = Opaque::new(vec![b'a'; 1024]).unwrap();
        let args = SymlinkArgs { from: place(client.root, b"link"), to, attributes: Sattr::NONE };
        let mut bytes = xdr::to_bytes(&args).to_vec();
        let length_at = 32 + 4 + 4;
        bytes[length_at..length_at + 4].copy_from_slice(&1025_u32.to_be_bytes());
        bytes.extend([b'a', 0, 0, 0]);
        let garbage = RpcError::NotExecuted(AcceptStatus::GarbageArguments);
        assert_eq!(client.raw(Proc::SYMLINK, &bytes), Err(garbage));
    }
}
