use protocol::nfs2::{FileHandle, Path, Stat};
use xdr::Writer;

use super::reply::{Failure, answer, resolve};
use crate::request::Request;

/// READLINK (RFC 1094 §2.2.6).
pub(super) async fn serve(
    request: &Request<'_>,
    link: FileHandle,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve(request, &link)?;
    let (text, _) = target.export.backend.readlink(&target.context, &target.handle).await?;
    answer(reply, Path::new(text).map_err(|_| Stat::NAMETOOLONG)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, ReadlinkRes, Stat};

    use crate::programs::nfs2::tests::{Client, found, place};

    #[test]
    fn returns_the_text_as_it_was_given() {
        let client = Client::new();
        let text = [b'a'; 1024];
        assert_eq!(client.symlink(b"link", &text), Stat::OK);
        let link = found(client.call(Proc::LOOKUP, &place(client.root, b"link"))).file;
        match client.call::<ReadlinkRes>(Proc::READLINK, &link) {
            ReadlinkRes::Ok(path) => assert_eq!(*path, text),
            ReadlinkRes::Fail(status) => panic!("{status:?}"),
        }
    }

    #[test]
    fn a_text_that_is_too_long_for_version_2_is_refused() {
        let client = Client::new();
        client.symlink3(b"link", &[b'a'; 1025]);
        let link = found(client.call(Proc::LOOKUP, &place(client.root, b"link"))).file;
        assert_eq!(client.call::<ReadlinkRes>(Proc::READLINK, &link), ReadlinkRes::Fail(Stat::NAMETOOLONG));
        let file = client.create(b"file");
        assert_eq!(client.call::<ReadlinkRes>(Proc::READLINK, &file), ReadlinkRes::Fail(Stat::IO));
    }
}
