use protocol::nfs2::{DirOpArgs, Stat};
use vfs::Removal;
use xdr::Writer;

use super::remove::remove;
use super::reply::Failure;
use crate::request::Request;

/// RMDIR (RFC 1094 §2.2.16).
pub(super) async fn serve(request: &Request<'_>, args: DirOpArgs, reply: &mut Writer) -> Result<(), Failure> {
    match &args.name[..] {
        b"." => Err(Stat::ACCES.into()),
        b".." => Err(Stat::NOTEMPTY.into()),
        _ => remove(request, &args, Removal::Directory, reply).await,
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{Proc, Stat};

    use crate::programs::nfs2::tests::{Client, place};

    #[test]
    fn removes_empty_directories_only() {
        let client = Client::new();
        client.create(b"file");
        let directory = client.mkdir(b"directory");
        client.create_in(directory, b"inside");
        let rmdir = |name: &[u8]| client.call::<Stat>(Proc::RMDIR, &place(client.root, name));
        assert_eq!(rmdir(b"file"), Stat::NOTDIR);
        assert_eq!(rmdir(b"directory"), Stat::NOTEMPTY);
        assert_eq!((rmdir(b"."), rmdir(b"..")), (Stat::ACCES, Stat::NOTEMPTY));
        assert_eq!(client.call::<Stat>(Proc::REMOVE, &place(directory, b"inside")), Stat::OK);
        assert_eq!((rmdir(b"directory"), rmdir(b"directory")), (Stat::OK, Stat::NOENT));
    }
}
