use protocol::nfs2::CreateArgs;
use vfs::{Create, SetAttributes};
use xdr::Writer;

use super::create::create;
use super::reply::{Failure, answer, fattr_after_change, object, resolve_writable, set_attributes};
use crate::request::Request;

/// MKDIR (RFC 1094 §2.2.15). A size is ignored.
pub(super) async fn serve(
    request: &Request<'_>,
    args: CreateArgs,
    reply: &mut Writer,
) -> Result<(), Failure> {
    let set = SetAttributes { size: None, ..set_attributes(&args.attributes)? };
    let target = resolve_writable(request, &args.where_.dir)?;
    let created = create(request, &target, &args.where_, &Create::Directory, &set).await?;
    let shown = fattr_after_change(target.export, &created.attributes);
    answer(reply, object(request, target.export, &created.handle, shown)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{CreateArgs, DirOpRes, FileType, Proc, Sattr, Stat};

    use crate::programs::nfs2::tests::{Client, found, place};

    #[test]
    fn makes_a_directory_once() {
        let client = Client::new();
        let attributes = Sattr { mode: 0o040_750, size: 0, ..Sattr::NONE };
        let args = CreateArgs { where_: place(client.root, b"directory"), attributes };
        let made = found(client.call(Proc::MKDIR, &args)).attributes;
        assert_eq!((made.file_type, made.mode, made.nlink), (FileType::DIR, 0o040_750, 2));
        assert_eq!(client.call::<DirOpRes>(Proc::MKDIR, &args), DirOpRes::Fail(Stat::EXIST));
    }
}
