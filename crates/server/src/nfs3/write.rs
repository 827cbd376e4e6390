use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3::{FileHandle, NfsStat, Outcome, StableHow, WccData, WriteArgs, WriteOk};
use vfs::{Authority, Stability};
use xdr::{Decode, Encode, Reader, Writer};

use super::reply::{answer, check_denials, resolve_writable, settle, status, wcc_data};
use crate::nfs4::right::Right;
use crate::nfs4::settle::changing;
use crate::nfs4::state::{Against, IoKind};
use crate::reply_cache::short::SHORT;
use crate::request::{Request, Target};

/// WRITE (RFC 1813 §3.3.7).
pub(super) async fn serve(request: &Request<'_>, args: WriteArgs, reply: &mut Writer) -> NfsStat {
    let target = match resolve_writable(request, &args.file) {
        Ok(target) => target,
        Err(status) => return answer(reply, &Outcome::<WriteOk, _>::Fail(status, WccData::default())),
    };
    match write(request, &target, args).await {
        Ok(ok) => {
            request.server.metrics.write_bytes.fetch_add(u64::from(ok.count), Relaxed);
            answer(reply, &Outcome::<_, WccData>::Ok(ok))
        }
        Err(status) => answer(reply, &Outcome::<WriteOk, _>::Fail(status, Box::pin(target.wcc()).await)),
    }
}

async fn write(request: &Request<'_>, target: &Target<'_>, args: WriteArgs) -> Result<WriteOk, NfsStat> {
    // The count and the length of the data say the same thing twice; where they differ the client is confused.
    if args.count as usize != args.data.len() {
        return Err(NfsStat::INVAL);
    }
    // No file reaches beyond 2^64: "NFS3ERR_FBIG".
    if args.offset.checked_add(u64::from(args.count)).is_none() {
        return Err(NfsStat::FBIG);
    }
    check_denials(request, target, IoKind::Write)?;
    let _changing = changing(request, &target.handle);
    settle(request, target, Against::All, Right::Content(IoKind::Write)).await?;
    let stability = match args.stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let (backend, data) = (&target.export.backend, args.data.into_bytes());
    let (context, handle) = (&target.context, &target.handle);
    // Sampled before the write: if a sync fails in between, data of the old verifier must not be answered with the new one,
    // or a later COMMIT that has nothing left to report would match it.
    let verf = backend.write_verifier();
    let written = backend.write(context, handle, args.offset, &data, stability, Authority::Caller).await;
    // Not by `map_err`, which would move it once more.
    let written = match written {
        Ok(written) => written,
        Err(error) => return Err(status(error)),
    };
    Ok(WriteOk {
        file_wcc: wcc_data(target.export, &written.change),
        count: written.count,
        committed: match written.stability {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        },
        verf,
    })
}

/// In place of `committed` in a short reply that is a failure.
const FAILED: u32 = u32::MAX;

/// What the reply cache keeps of a WRITE's results: of success count, committed and verifier, which are the last there; of
/// a failure its status.
pub(crate) fn shorten(results: &[u8]) -> [u8; SHORT] {
    let mut short = [0; SHORT];
    match (results.first_chunk::<4>(), results.last_chunk::<SHORT>()) {
        (Some([0, 0, 0, 0]), Some(last)) => short = *last,
        (status, _) => {
            short[..4].copy_from_slice(status.unwrap_or(&NfsStat::SERVERFAULT.0.to_be_bytes()));
            short[4..8].copy_from_slice(&FAILED.to_be_bytes());
        }
    }
    short
}

/// Writes the results that were shortened so once more, with attributes as of now.
// RFC 1813 §2.6: attributes are optional, "however, server implementors are strongly encouraged to make best effort".
pub(crate) async fn repeat(request: &Request<'_>, mut arguments: Reader, short: &[u8], reply: &mut Writer) {
    let wcc = match FileHandle::decode(&mut arguments).map(|file| resolve_writable(request, &file)) {
        Ok(Ok(target)) => target.wcc().await,
        _ => WccData::default(),
    };
    let is_failure = short.get(4..8) == Some(&FAILED.to_be_bytes()[..]);
    if is_failure {
        reply.raw(&short[..4]);
    } else {
        reply.u32(NfsStat::OK.0);
    }
    wcc.encode(reply);
    if !is_failure {
        reply.raw(short);
    }
}
