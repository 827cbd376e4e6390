use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3::{FileHandle, NfsStat, Outcome, StableHow, WccData, WriteArgs, WriteOk};
use vfs::{Authority, Op, Stability, Verifier, Written};
use xdr::{Decode, Encode, Reader, Writer};

use crate::Export;
use crate::files::recall::announce_change;
use crate::nfs3_reply::{admit_io, answer, check_denials, resolve_writable, status, wcc_data};
use crate::replay::reply_cache::short::SHORT;
use crate::request::{Request, Target};
use crate::state::{ChangeGuard, Conflict, IoKind};

/// The progress of a WRITE that has to wait.
pub(super) enum Waiting<'r> {
    /// Opens or delegations of other clients may conflict.
    Before(Target<'r>, WriteArgs),
    /// It failed, and the reply needs attributes.
    Failed(Target<'r>, NfsStat),
    /// The backend writes.
    Writing(Target<'r>, Writing<'r>),
}

/// A write in the backend, and the guards that must live until it is done.
pub(super) struct Writing<'r> {
    /// Nothing is delegated from the check for conflicts until the data are written.
    _changing: ChangeGuard<'r>,
    verf: Verifier,
    written: Op<'r, Written>,
}

/// Begins a WRITE (RFC 1813 §3.3.7) without a future. It is the most frequent change, and mostly completes at once.
pub(super) fn begin<'r>(
    request: &'r Request<'_>,
    args: WriteArgs,
    reply: &mut Writer,
) -> Result<NfsStat, Box<Waiting<'r>>> {
    let target = match resolve_writable(request, &args.file) {
        Ok(target) => target,
        Err(status) => return Ok(answer(reply, &Outcome::<WriteOk, _>::Fail(status, WccData::default()))),
    };
    if let Err(status) = check(&args).and_then(|()| check_denials(request, &target, IoKind::Write)) {
        return Err(Box::new(Waiting::Failed(target, status)));
    }
    let changing = announce_change(request, &target.handle);
    let state = &request.server.state;
    if state.has_delegations(Conflict::Any) || state.pending_change(None).is_some() {
        return Err(Box::new(Waiting::Before(target, args)));
    }
    let mut writing = write(changing, &target, args);
    match writing.written.take_ready() {
        Some(Ok(written)) => Ok(succeed(&target, (&written, writing.verf), reply)),
        Some(Err(error)) => Err(Box::new(Waiting::Failed(target, status(error)))),
        None => Err(Box::new(Waiting::Writing(target, writing))),
    }
}

impl Waiting<'_> {
    /// Executes the rest of the WRITE.
    pub(super) async fn serve(self, request: &Request<'_>, reply: &mut Writer) -> NfsStat {
        let (target, writing) = match self {
            Self::Before(target, args) => {
                let changing = announce_change(request, &target.handle);
                if let Err(status) = admit_io(request, &target, IoKind::Write).await {
                    return fail(&target, status, reply).await;
                }
                let writing = write(changing, &target, args);
                (target, writing)
            }
            Self::Failed(target, status) => return fail(&target, status, reply).await,
            Self::Writing(target, writing) => (target, writing),
        };
        match writing.written.await {
            Ok(written) => succeed(&target, (&written, writing.verf), reply),
            Err(error) => fail(&target, status(error), reply).await,
        }
    }
}

/// Checks the arguments.
fn check(args: &WriteArgs) -> Result<(), NfsStat> {
    // The count must be the length of the data.
    if args.count as usize != args.data.len() {
        return Err(NfsStat::INVAL);
    }
    // No file reaches beyond 2^64: "NFS3ERR_FBIG".
    if args.offset.checked_add(u64::from(args.count)).is_none() {
        return Err(NfsStat::FBIG);
    }
    Ok(())
}

/// Starts the write in the backend.
fn write<'r>(changing: ChangeGuard<'r>, target: &Target<'r>, args: WriteArgs) -> Writing<'r> {
    let stability = match args.stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    };
    let export: &'r Export = target.export;
    let (backend, data) = (&export.backend, args.data.into_bytes());
    let (context, handle) = (&target.context, &target.handle);
    // Sampled before the write: if a sync fails in between, data of the old verifier must not be answered with the new one,
    // or a later COMMIT without an error to report would match it.
    let verf = backend.write_verifier();
    let written = backend.write(context, handle, args.offset, &data, stability, Authority::Caller);
    Writing { _changing: changing, verf, written }
}

async fn fail(target: &Target<'_>, status: NfsStat, reply: &mut Writer) -> NfsStat {
    answer(reply, &Outcome::<WriteOk, _>::Fail(status, target.wcc().await))
}

fn succeed(target: &Target<'_>, (written, verf): (&Written, Verifier), reply: &mut Writer) -> NfsStat {
    target.export.counts.written_bytes.fetch_add(u64::from(written.count), Relaxed);
    let ok = WriteOk {
        file_wcc: wcc_data(target.export, &written.change),
        count: written.count,
        committed: match written.stability {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        },
        verf,
    };
    answer(reply, &Outcome::<_, WccData>::Ok(ok))
}

/// The value of `committed` in the short form of a failure.
const FAILED: u32 = u32::MAX;

/// Returns the short form of a WRITE's results for the reply cache: count, committed and verifier, which come last in a success, or the
/// status of a failure.
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

/// Writes the results from their short form, with current attributes.
// RFC 1813 §2.6: attributes are optional, "however, server implementors are strongly encouraged to make best effort".
pub(crate) async fn repeat(
    request: &Request<'_>,
    mut arguments: Reader,
    short: &[u8],
    reply: &mut Writer,
) -> NfsStat {
    let wcc = match FileHandle::decode(&mut arguments).map(|file| resolve_writable(request, &file)) {
        Ok(Ok(target)) => target.wcc().await,
        _ => WccData::default(),
    };
    let is_failure = short.get(4..8) == Some(&FAILED.to_be_bytes()[..]);
    let status = match short.first_chunk() {
        Some(status) if is_failure => NfsStat(u32::from_be_bytes(*status)),
        _ => NfsStat::OK,
    };
    reply.u32(status.0);
    wcc.encode(reply);
    if !is_failure {
        reply.raw(short);
    }
    status
}
