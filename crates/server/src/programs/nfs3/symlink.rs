use protocol::nfs3::{NfsStat, SymlinkArgs};
use vfs::Create;
use xdr::Writer;

use super::create::create;
use crate::request::Request;

/// SYMLINK (RFC 1813 §3.3.10). The server does not interpret the text.
pub(super) async fn serve(request: &Request<'_>, args: SymlinkArgs, reply: &mut Writer) -> NfsStat {
    // A copy: a slice would keep the whole receive buffer for as long as a backend in memory keeps the link.
    let text = bytes::Bytes::copy_from_slice(&args.symlink_data);
    create(request, &args.where_, &Create::Symlink(text), &args.symlink_attributes, reply).await
}
