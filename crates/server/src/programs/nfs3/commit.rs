use protocol::nfs3::{CommitArgs, CommitOk, NfsStat, Outcome, WccData};
use xdr::Writer;

use crate::nfs3_reply::{answer, resolve, status, wcc_data};
use crate::request::Request;

/// COMMIT (RFC 1813 §3.3.21): succeeds only if the data are on stable storage.
pub(super) async fn serve(request: &Request<'_>, args: CommitArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve(request, &args.file) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<CommitOk, _>::Fail(status, WccData::default())),
    };
    let backend = &target.export.backend;
    match backend.commit(&target.context, &target.handle, args.offset, u64::from(args.count)).await {
        Ok(change) => {
            let file_wcc = wcc_data(target.export, &change);
            answer(reply, &Outcome::<_, WccData>::Ok(CommitOk { file_wcc, verf: backend.write_verifier() }))
        }
        Err(error) => answer(reply, &Outcome::<CommitOk, _>::Fail(status(error), target.wcc().await)),
    }
}
