use protocol::nfs2::{RenameArgs, Stat};
use vfs::Error;
use xdr::{Encode, Writer};

use super::reply::{Failure, resolve_writable};
use crate::files::stateless::changer;
use crate::request::Request;

/// RENAME (RFC 1094 §2.2.12).
pub(super) async fn serve(
    request: &Request<'_>,
    args: RenameArgs,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let (from, to) = (resolve_writable(request, &args.from.dir)?, resolve_writable(request, &args.to.dir)?);
    if from.export.id != to.export.id {
        return Err(Error::CrossDevice.into());
    }
    if [&args.from.name, &args.to.name].iter().any(|name| matches!(&name[..], b"." | b"..")) {
        return Err(Stat::ACCES.into());
    }
    let names = ((&from.handle, &args.from.name[..]), (&to.handle, &args.to.name[..]));
    changer(request).rename(from.export, &from.context, names.0, names.1).await?;
    Stat::OK.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, RenameArgs, Stat};

    use crate::programs::nfs2::tests::{Client, place};

    #[test]
    fn renames_and_replaces() {
        let client = Client::new();
        let directory = client.mkdir(b"directory");
        let file = client.create(b"file");
        client.write(file, 0, b"content");
        client.create(b"other");
        let rename = |from: &[u8], to: ([u8; 32], &[u8])| {
            let args = RenameArgs { from: place(client.root, from), to: place(to.0, to.1) };
            client.call::<Stat>(Proc::RENAME, &args)
        };
        assert_eq!(rename(b"file", (client.root, b"other")), Stat::OK);
        assert_eq!(client.content(b"other"), b"content");
        assert_eq!(rename(b"file", (client.root, b"name")), Stat::NOENT);
        assert_eq!(rename(b"other", (directory, b"inside")), Stat::OK);
        assert_eq!(rename(b"directory", (directory, b"itself")), Stat::IO, "EINVAL has no status");
        assert_eq!(rename(b".", (directory, b"name")), Stat::ACCES);
        assert_eq!(rename(b"directory", (client.root, b"..")), Stat::ACCES);
    }
}
