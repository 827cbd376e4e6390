use protocol::nfs2::FileHandle;
use xdr::Writer;

use super::reply::{Failure, answer, fattr, resolve_at_mount};
use crate::files::stateless::attributes;
use crate::request::Request;

/// GETATTR (RFC 1094 §2.2.2).
pub(super) async fn serve(
    request: &Request<'_>,
    file: FileHandle,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve_at_mount(request, &file)?;
    let attributes = attributes(request, &target).await?;
    answer(reply, fattr(target.export, &attributes)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{AttrStat, FileType, Proc, Stat};

    use crate::programs::nfs2::tests::{Client, attributes};

    #[test]
    fn attributes_of_a_directory_and_of_a_file() {
        let client = Client::new();
        let root = attributes(client.call(Proc::GETATTR, &client.root));
        assert_eq!((root.file_type, root.mode & 0o170_000), (FileType::DIR, 0o040_000));
        let file = client.create(b"file");
        client.write(file, 0, b"12345");
        let shown = attributes(client.call(Proc::GETATTR, &file));
        assert_eq!((shown.file_type, shown.mode, shown.size), (FileType::REG, 0o100_644, 5));
        assert_eq!(shown.fsid, root.fsid);
        assert_ne!(shown.fileid, root.fileid);
    }

    #[test]
    fn a_forged_handle_is_stale() {
        let client = Client::new();
        let mut forged = client.root;
        forged[20] ^= 1;
        for handle in [forged, [0; 32], [0xff; 32]] {
            assert_eq!(client.call::<AttrStat>(Proc::GETATTR, &handle), AttrStat::Fail(Stat::STALE));
        }
    }
}
