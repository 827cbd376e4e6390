use protocol::nfs2::{DirOpArgs, Stat};
use vfs::Removal;
use xdr::{Encode, Writer};

use super::reply::{Failure, resolve_writable};
use crate::files::stateless::changer;
use crate::request::Request;

/// REMOVE (RFC 1094 §2.2.11).
pub(super) async fn serve(request: &Request<'_>, args: DirOpArgs, reply: &mut Writer) -> Result<(), Failure> {
    if matches!(&args.name[..], b"." | b"..") {
        return Err(Stat::ISDIR.into());
    }
    remove(request, &args, Removal::File, reply).await
}

/// Removes a name: REMOVE and RMDIR.
pub(super) async fn remove(
    request: &Request<'_>,
    args: &DirOpArgs,
    removal: Removal,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let target = resolve_writable(request, &args.dir)?;
    changer(request).remove(target.place(), &args.name, removal).await?;
    Stat::OK.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, Stat};

    use crate::programs::nfs2::tests::{Client, place};

    #[test]
    fn removes_files_and_no_directories() {
        let client = Client::new();
        client.create(b"file");
        client.mkdir(b"directory");
        for (name, expected) in [
            (&b"file"[..], Stat::OK),
            (b"file", Stat::NOENT),
            (b"directory", Stat::ISDIR),
            (b".", Stat::ISDIR),
            (b"..", Stat::ISDIR),
        ] {
            assert_eq!(client.remove(name), expected, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_repeated_remove_succeeds_as_the_first_one() {
        let client = Client::new();
        client.create(b"file");
        let args = place(client.root, b"file");
        assert_eq!(client.call_as::<Stat>(300, Proc::REMOVE, &args), Stat::OK);
        client.create(b"file");
        assert_eq!(client.call_as::<Stat>(300, Proc::REMOVE, &args), Stat::OK);
        assert_eq!(client.content(b"file"), b"", "the new file exists");
        assert_eq!(client.remove(b"file"), Stat::OK);
    }
}
