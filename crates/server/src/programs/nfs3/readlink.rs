use protocol::nfs3::{NfsPath, NfsStat, Outcome, PostOpAttr, ReadlinkArgs, ReadlinkOk};
use xdr::Writer;

use crate::nfs3_reply::{answer, fattr, resolve, status};
use crate::request::Request;

/// READLINK (RFC 1813 §3.3.5).
pub(super) async fn serve(request: &Request<'_>, args: ReadlinkArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.symlink) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<ReadlinkOk, PostOpAttr>::Fail(status, None)),
    };
    let read = target.export.backend.readlink(&target.context, &target.handle).await;
    let read = read.map_err(status).and_then(|(text, attributes)| {
        let data = NfsPath::new(text).map_err(|_| NfsStat::NAMETOOLONG)?;
        Ok(ReadlinkOk { symlink_attributes: Some(fattr(target.export, &attributes)), data })
    });
    match read {
        Ok(ok) => answer(reply, &Outcome::<_, PostOpAttr>::Ok(ok)),
        Err(status) => answer(reply, &Outcome::<ReadlinkOk, _>::Fail(status, target.post_op().await)),
    }
}
