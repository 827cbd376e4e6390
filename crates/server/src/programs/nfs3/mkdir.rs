use protocol::nfs3::{MkdirArgs, NfsStat};
use vfs::Create;
use xdr::Writer;

use super::create::create;
use crate::request::Request;

/// MKDIR (RFC 1813 §3.3.9).
pub(super) async fn serve(request: &Request<'_>, args: MkdirArgs, reply: &mut Writer) -> NfsStat {
    create(request, &args.where_, &Create::Directory, &args.attributes, reply).await
}
