use protocol::nfs3::{LookupArgs, LookupOk, NfsStat, Outcome, PostOpAttr};
use vfs::{Error, FileKind, Found, Result};
use xdr::Writer;

use super::reply::{answer, fattr, resolve, status};
use crate::request::{Request, Target};

/// LOOKUP (RFC 1813 §3.3.3).
pub(super) async fn serve(request: &Request<'_>, args: LookupArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.what.dir) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<LookupOk, PostOpAttr>::Fail(status, None)),
    };
    match find(&target, &args.what.name).await {
        Ok(found) => answer(
            reply,
            &Outcome::<_, PostOpAttr>::Ok(LookupOk {
                object: target.seal(request, &found.handle),
                obj_attributes: Some(fattr(target.export, &found.attributes)),
                dir_attributes: Some(fattr(target.export, &found.directory)),
            }),
        ),
        Err(error) => {
            answer(reply, &Outcome::<LookupOk, PostOpAttr>::Fail(status(error), target.post_op().await))
        }
    }
}

async fn find(target: &Target<'_>, name: &[u8]) -> Result<Found> {
    let backend = &target.export.backend;
    match name {
        b"." => itself(target).await,
        // "..": at the top of an export there is nothing above it.
        b".." if target.handle == backend.root() => itself(target).await,
        b".." => backend.parent(&target.context, &target.handle).await,
        name => backend.lookup(&target.context, &target.handle, name).await,
    }
}

async fn itself(target: &Target<'_>) -> Result<Found> {
    let attributes = target.export.backend.getattr(&target.context, &target.handle).await?;
    if attributes.kind != FileKind::Directory {
        return Err(Error::NotDirectory);
    }
    Ok(Found { handle: target.handle, attributes, directory: attributes })
}
