use protocol::nfs2::{LinkArgs, Stat};
use vfs::Error;
use xdr::{Encode, Writer};

use super::reply::{Failure, resolve_writable};
use crate::files::stateless::changer;
use crate::request::Request;

/// LINK (RFC 1094 §2.2.13).
pub(super) async fn serve(request: &Request<'_>, args: LinkArgs, reply: &mut Writer) -> Result<(), Failure> {
    let (file, directory) =
        (resolve_writable(request, &args.from)?, resolve_writable(request, &args.to.dir)?);
    if file.export.id != directory.export.id {
        return Err(Error::CrossDevice.into());
    }
    if matches!(&args.to.name[..], b"." | b"..") {
        return Err(Stat::EXIST.into());
    }
    changer(request).link(directory.place(), &file.handle, &args.to.name).await?;
    Stat::OK.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{LinkArgs, Proc, Stat};

    use crate::programs::nfs2::tests::{Client, attributes, found, place};

    #[test]
    fn gives_a_file_another_name() {
        let client = Client::new();
        let file = client.create(b"file");
        let link = |from, name: &[u8]| {
            client.call::<Stat>(Proc::LINK, &LinkArgs { from, to: place(client.root, name) })
        };
        assert_eq!(link(file, b"other"), Stat::OK);
        assert_eq!(found(client.call(Proc::LOOKUP, &place(client.root, b"other"))).file, file);
        assert_eq!(attributes(client.call(Proc::GETATTR, &file)).nlink, 2);
        assert_eq!((link(file, b"other"), link(file, b".")), (Stat::EXIST, Stat::EXIST));
        assert_eq!(link(client.root, b"top"), Stat::ISDIR);
    }
}
