//! COPY (RFC 7862 §15.2) between files of this server, and [from another one](from_elsewhere).
//!
//! A copy is made in steps, between which other requests run. A short copy is answered when it is done. A longer one continues in
//! the background ([`offload`](crate::copy::offload)) if the client permits that and has a back channel. Otherwise one COPY makes
//! only as many steps as take about as long as the sync of a large WRITE, and reports the bytes copied; Linux's copy_file_range(2)
//! and its client continue from there.

use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::types::{Handle, Stateid, Status, Verifier};
use vfs::{Authority, Stability};
use xdr::{Decode, Encode, Reader, Writer};

use super::allocate::regular_only;
use super::clone::judge;
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::remote_read::Span;
use crate::state::{ChangeGuard, Copied, CopyTask, IoKind, Origin, stable_how};
use crate::wait_limit::WaitPermit;

pub(crate) mod from_elsewhere;

/// Maximum bytes that one COPY copies before its reply, unless a step shares more: half a second of work for a disk.
const MAX_BYTES: u64 = 64 << 20;

/// A copy up to this many bytes is answered when it is done, unless a step shares more: within the page cache that takes some
/// milliseconds, about as long as a callback.
pub(crate) const INLINE_BYTES: u64 = 16 << 20;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = CopyArgs::decode(arguments)?;
    // "If the ca_source_server list is specified, then this is an inter-server COPY operation" (§15.2.3).
    let plan = if arguments.source_servers.is_empty() {
        within(compound, &arguments).await?
    } else {
        from_elsewhere::plan(compound, &arguments).await?
    };
    // The verifier is read before the data are written, as for WRITE.
    let verifier = plan.destination.export.backend.write_verifier();
    let most = if arguments.synchronous { MAX_BYTES } else { plan.inline_bytes };
    let mut done = Done::default();
    copy(compound, &plan, most, &mut done).await?;
    let mut offload = None;
    if !done.is_over && !arguments.synchronous {
        offload = continue_in_background(compound, &plan, verifier, done.copied)?;
        if offload.is_none() {
            copy(compound, &plan, MAX_BYTES, &mut done).await?;
        }
    }
    reply.u32(u32::from(offload.is_some()));
    if let Some(stateid) = offload {
        stateid.encode(reply);
    }
    reply.u64(done.copied.count);
    reply.u32(stable_how(done.copied.stability) as u32);
    reply.opaque_fixed(&verifier);
    // Bytes are always copied in order.
    reply.bool(true);
    reply.bool(offload.is_none());
    Ok(())
}

/// A copy that was checked.
struct Plan<'r> {
    source: Origin,
    span: Span,
    destination: File<'r>,
    destination_stateid: Stateid,
    /// The authority to read the source and to write the destination; both only if the source is on this server.
    authorities: [Authority; 2],
    /// Bytes that are copied before the reply.
    inline_bytes: u64,
    /// The permit of a copy that waits for another server before the reply.
    _permit: Option<WaitPermit<'r>>,
    _changing: ChangeGuard<'r>,
}

/// Plans a copy within this server.
async fn within<'r>(compound: &Compound<'r>, arguments: &CopyArgs) -> Result<Plan<'r>> {
    check_source(compound, arguments.source_stateid)?;
    let stateids = (arguments.source_stateid, arguments.destination_stateid);
    let (range, destination, changing) = judge(compound, stateids).await?;
    let Object::File(source) = compound.saved()? else { return Err(Status::WRONG_TYPE.into()) };
    Ok(Plan {
        source: Origin::Here {
            file: source.key(compound.server()),
            handle: range.source,
            stateid: latest(compound, arguments.source_stateid)?,
        },
        span: span(arguments, &destination),
        destination,
        destination_stateid: latest(compound, arguments.destination_stateid)?,
        authorities: [range.source_authority, range.destination_authority],
        inline_bytes: INLINE_BYTES,
        _permit: None,
        _changing: changing,
    })
}

fn span(arguments: &CopyArgs, destination: &File<'_>) -> Span {
    Span {
        source_offset: arguments.source_offset,
        destination: destination.handle,
        destination_offset: arguments.destination_offset,
        count: arguments.count,
    }
}

/// Returns a stateid with seqid zero, which means "the most recent" (RFC 8881 §8.2.2).
fn latest(compound: &Compound<'_>, given: Stateid) -> Result<Stateid> {
    let stateid = compound.stateid(given)?;
    Ok(if stateid.is_special() { stateid } else { Stateid { seqid: 0, ..stateid } })
}

/// Continues the rest in the background; `None` if it cannot.
fn continue_in_background(
    compound: &Compound<'_>,
    plan: &Plan<'_>,
    verifier: Verifier,
    copied: Copied,
) -> Result<Option<Stateid>> {
    let (server, destination) = (compound.server(), &plan.destination);
    let Ok(handle) = Handle::new(&Object::File(*destination).seal(&server.settings().handle_key)) else {
        return Ok(None);
    };
    let task = CopyTask {
        caller: compound.caller(),
        credentials: compound.context(destination.export).credentials,
        peer: compound.request.peer(),
        export: destination.export.id,
        source: plan.source.clone(),
        destination: destination.key(server),
        destination_stateid: plan.destination_stateid,
        handle,
        span: plan.span,
        verifier,
    };
    Ok(compound.state().begin_offload(compound.client()?, task, copied, compound.session()))
}

/// Checks that the source's stateid is this client's: RFC 7862 §15.2.3 requires it to be "valid for a READ operation". Errors are
/// those of READ, except in one case.
///
/// Linux's client treats two mounts of a server as one even if they have two client IDs (in two network namespaces), and sends a
/// stateid of one to the session of the other. BAD_STATEID makes it test its stateids, find them valid, and retry forever. XDEV
/// makes it read and write instead, although COPY's errors do not include it (§11.2). OFFLOAD_DENIED (§11.1.2.1) would fit, but
/// Linux 6.1 turns it into an I/O error.
fn check_source(compound: &Compound<'_>, stateid: Stateid) -> Result {
    let Object::File(source) = compound.saved()? else { return Err(Status::WRONG_TYPE.into()) };
    match compound.check_io(&source, stateid, IoKind::Read) {
        Err(failure)
            if failure == Status::BAD_STATEID.into()
                && compound.is_other_clients_stateid(&source, stateid)? =>
        {
            Err(Status::XDEV.into())
        }
        other => other.map(drop),
    }
}

/// The part that was copied before the reply.
#[derive(Debug)]
struct Done {
    copied: Copied,
    /// Nothing is left, or an error stops the rest.
    is_over: bool,
}

impl Default for Done {
    fn default() -> Self {
        Self { copied: Copied { count: 0, stability: Stability::FileSync }, is_over: false }
    }
}

/// Copies until all or `most` bytes are done; from another server, the bytes that arrive [in time](from_elsewhere::INLINE_TIME_MAX).
async fn copy(compound: &mut Compound<'_>, plan: &Plan<'_>, most: u64, done: &mut Done) -> Result {
    let context = compound.context(plan.destination.export);
    let mut is_late = false;
    while !is_late && !done.is_over && done.copied.count < most {
        let step = match &plan.source {
            Origin::Here { handle, .. } => {
                let step = plan.span.within(*handle, plan.authorities).behind(done.copied.count);
                let copied = plan.destination.export.backend.copy_range(&context, &step).await;
                copied.map_err(regular_only)
            }
            Origin::There(source) => {
                let step =
                    from_elsewhere::step(compound, &context, (plan, source), (done.copied.count, most));
                step.await.map(|(copied, at)| {
                    is_late = at >= compound.now() + from_elsewhere::INLINE_TIME_MAX;
                    copied
                })
            }
        };
        match step {
            Ok(copied) => {
                compound.set_fresh(copied.change.after);
                done.copied.count += copied.count;
                done.copied.stability = done.copied.stability.min(copied.stability);
                done.is_over = copied.is_all;
            }
            // "If a failure does occur for a synchronous copy, wr_count will be set to the number of bytes copied to the
            // destination file before the error occurred" (§15.2.3), which only a success can carry.
            Err(_) if done.copied.count > 0 => done.is_over = true,
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::commit::CommitArgs;
    use protocol::nfs4::ops::copy::{CopyArgs, CopyOk, CopyResult};
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::types::{Handle, NetLocation, Stateid, Status, Utf8};
    use vfs::fault::{Fault, Method, Rule};
    use xdr::List;

    use crate::programs::nfs4::ops::clone::tests::between_two;
    use crate::testing::{Lab, at, content, faulty, lab_42, lab_of, lookup, open, putfh, sparse};

    fn args(source_offset: u64, destination_offset: u64, count: u64) -> CopyArgs {
        CopyArgs {
            source_stateid: Stateid::ANONYMOUS,
            destination_stateid: Stateid::ANONYMOUS,
            source_offset,
            destination_offset,
            count,
            consecutive: false,
            synchronous: false,
            source_servers: List::default(),
        }
    }

    fn copy(lab: &mut Lab, from: Handle, to: Handle, args: CopyArgs) -> CopyOk {
        match lab.last(vec![putfh(from), Op::SaveFh, putfh(to), Op::Copy(args)]) {
            OpResult::Copy(CopyResult::Ok(ok)) => ok,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn copies_in_order_before_it_answers() {
        let mut lab = lab_42();
        let from = lab.file(&["export", "source"], b"0123456789");
        let to = lab.file(&["export", "destination"], b"abc");
        let done = copy(&mut lab, from, to, args(4, 2, 5));
        assert_eq!((done.response.count, done.response.callback_id.len()), (5, 0));
        assert!(done.requirements.consecutive && done.requirements.synchronous);
        assert_eq!(content(&mut lab, to), b"ab45678");
        let rest = copy(&mut lab, from, to, args(8, 0, 0));
        assert_eq!(rest.response.count, 2, "0 means to the end");
        assert_eq!(content(&mut lab, to), b"8945678");
        let commit = lab.last(vec![putfh(to), Op::Commit(CommitArgs { offset: 0, count: 0 })]);
        let OpResult::Commit(commit) = commit else { panic!("{commit:?}") };
        assert_eq!(commit.into_result().unwrap().verifier, rest.response.verifier);
    }

    #[test]
    fn one_copy_is_bounded_and_the_next_continues() {
        let mut lab = lab_42();
        let size = super::MAX_BYTES + (3 << 20);
        let from = sparse(&mut lab, "source", size - 4096, 4096, size);
        let to = lab.file(&["export", "destination"], b"");
        let first = copy(&mut lab, from, to, args(0, 0, size)).response.count;
        assert!(first >= super::MAX_BYTES && first < size, "{first}");
        let second = copy(&mut lab, from, to, args(first, first, size - first)).response.count;
        assert_eq!(first + second, size);
        assert_eq!(lab.attributes(&["export", "destination"], &[n::SIZE]).size, Some(size));
    }

    #[test]
    fn an_error_after_some_bytes_reports_the_bytes() {
        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        lab.minor = 2;
        let from = sparse(&mut lab, "source", 0, 4096, 3 << 20);
        let to = lab.file(&["export", "destination"], b"");
        let mut with = |rule| {
            backend.heal();
            backend.add(rule);
            lab.run(vec![putfh(from), Op::SaveFh, putfh(to), Op::Copy(args(0, 0, 0))])
        };
        let failing = Rule::on(Method::CopyRange, Fault::Fail(vfs::Error::NoSpace));
        assert_eq!(with(failing.clone()).status, Status::NOSPC);
        match with(failing.after(1)).results.last() {
            Some(OpResult::Copy(CopyResult::Ok(ok))) => assert_eq!(ok.response.count, 1 << 20),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refuses_invalid_sources_and_ranges() {
        let (mut lab, [from, to, elsewhere, directory]) = between_two();
        let mut status =
            |from, to, args| lab.status(vec![putfh(from), Op::SaveFh, putfh(to), Op::Copy(args)]);
        assert_eq!(status(from, to, args(8, 0, 0)), Status::INVAL);
        assert_eq!(status(from, to, args(0, 0, 8)), Status::INVAL);
        assert_eq!(status(from, to, args(u64::MAX, 0, 1)), Status::INVAL);
        assert_eq!(status(from, to, args(0, u64::MAX, 1)), Status::FBIG);
        assert_eq!(status(from, from, args(0, 100, 1)), Status::INVAL);
        assert_eq!(status(from, elsewhere, args(0, 0, 0)), Status::XDEV);
        assert_eq!(status(directory, to, args(0, 0, 0)), Status::WRONG_TYPE);
        assert_eq!(status(from, directory, args(0, 0, 0)), Status::WRONG_TYPE);
        let servers = List::new(vec![NetLocation::Name(Utf8::from_static(b"elsewhere"))]).unwrap();
        let foreign = CopyArgs { source_servers: servers, ..args(0, 0, 0) };
        assert_eq!(status(from, to, foreign), Status::OFFLOAD_DENIED);
        assert_eq!(content(&mut lab, to), b"x");
    }

    #[test]
    fn another_clients_stateid_gets_xdev() {
        let mut lab = lab_42();
        lab.file(&["export", "source"], b"content");
        let to = lab.file(&["export", "destination"], b"");
        let mut other = lab.other(b"other");
        let (from, source_stateid) = other.open(&["export", "source"], b"owner");
        let copy = Op::Copy(CopyArgs { source_stateid, ..args(0, 0, 0) });
        assert_eq!(lab.status(vec![putfh(from), Op::SaveFh, putfh(to), copy]), Status::XDEV);
        let destination_stateid = source_stateid;
        let copy = Op::Copy(CopyArgs { destination_stateid, ..args(0, 0, 0) });
        assert_eq!(lab.status(vec![putfh(from), Op::SaveFh, putfh(to), copy]), Status::BAD_STATEID);
    }

    #[test]
    fn the_source_must_be_readable_and_the_destination_open_for_writing() {
        let mut lab = lab_42();
        lab.file(&["export", "source"], b"content");
        lab.file(&["export", "destination"], b"");
        let with = |destination_stateid| Op::Copy(CopyArgs { destination_stateid, ..args(0, 0, 0) });
        let access = ShareAccess::READ;
        let ops = vec![lookup("source"), Op::SaveFh, Op::PutRootFh, lookup("export")];
        let ops = |access| {
            let mut ops = ops.clone();
            ops.extend([open("destination", b"owner", access), with(Stateid::CURRENT)]);
            at(&["export"], ops)
        };
        assert_eq!(lab.status(ops(access)), Status::OPENMODE);
        assert_eq!(lab.status(ops(ShareAccess::WRITE)), Status::OK);
    }
}
