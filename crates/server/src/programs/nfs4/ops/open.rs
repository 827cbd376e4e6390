//! OPEN (RFC 8881 §18.16): opens a regular file, by name or handle, and creates it if requested.
//!
//! In order: checks that touch nothing; grace; the file (found or created) with the caller's permission; share reservations;
//! truncation, which a reservation may forbid.

use std::sync::Arc;

use protocol::nfs4::ops::DELEGATED_OPEN_BYTES_MAX;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenDelegation, OpenHow, OpenOk, OpenResultFlags,
};
use protocol::nfs4::types::{OpNum, Stateid, Status};
use vfs::{Found, Later, OpenAccess, Opened};
use xdr::{Decode, Encode, Reader, Writer};

use crate::files::object::Object;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::in_place::InPlace;
use crate::programs::nfs4::sequencing;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::{Client, Conflict, OpenGrant, OwnerEffect, OwnerRequest};

mod claim;
mod creation;
mod delegated;
mod existing;
mod share;

use existing::Target;

/// The progress of an OPEN that was tried in place.
pub(crate) enum StartedOpen<'r> {
    /// It looks up its name.
    Lookup(Later<'r, Found>),
    /// It has found its file, and opens it if a backend call has started.
    Open(Box<Target<'r>>, Option<Later<'r, Opened>>),
}

pub(crate) async fn run<'r>(
    compound: &mut Compound<'r>,
    started: Option<StartedOpen<'r>>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result {
    let start = arguments.position();
    let args = OpenArgs::decode(arguments)?;
    if compound.minor == 0 && !is_of_minor_0(&args) {
        return Err(Status::BADXDR.into());
    }
    let turn_asked = sequencing::V40Operation::since(OpNum::OPEN, arguments, start);
    let turn = compound.begin_open_request(&turn_asked, &args.owner, args.seqid, args.claim.is_reclaim())?;
    let body = reply.mark();
    let done = open_in_turn(compound, turn.as_ref(), &args, started, reply).await;
    compound.end_owner_request(turn, done, body, reply)
}

/// Returns whether version 4.0 has this claim and creation mode (RFC 7531).
fn is_of_minor_0(args: &OpenArgs) -> bool {
    let is_claim =
        !matches!(args.claim, OpenClaim::Fh | OpenClaim::DelegatePrevFh | OpenClaim::DelegateCurFh(_));
    is_claim && !matches!(args.how, OpenHow::Create(CreateHow::Exclusive41(_)))
}

/// As [`run`], without a future: only for a file that exists and has no delegation.
pub(crate) fn run_in_place<'r>(
    compound: &mut Compound<'r>,
    arguments: &mut Reader,
    reply: &mut Writer,
) -> Result<InPlace<StartedOpen<'r>>> {
    let Some(delegation) = needs_no_wait(compound, arguments.peek()) else {
        return Ok(InPlace::Pending(None));
    };
    let args = OpenArgs::decode(arguments)?;
    let OpenClaim::Null(name) = &args.claim else { return Ok(InPlace::Pending(None)) };
    let (access, opener) = admit(compound, None, &args)?;
    compound.check_flavor_within()?;
    let Object::File(directory) = compound.current()? else { return Ok(InPlace::Pending(None)) };
    let context = compound.context(directory.export);
    let mut target = match existing::by_name_at_once((&directory, &context), name, access)? {
        Ok(target) => target,
        Err(lookup) => return Ok(InPlace::Pending(lookup.map(StartedOpen::Lookup))),
    };
    target.file = target.file.with_key(compound.server());
    let grant = match share::open_at_once(compound, &context, &opener, (&args, access), &mut target)? {
        Ok(grant) => grant,
        Err(call) => return Ok(InPlace::Pending(Some(StartedOpen::Open(Box::new(target), call)))),
    };
    let granted = Granted { opener: &opener, target: &target, grant, delegation };
    granted.answer(compound, None, &args, reply);
    Ok(InPlace::Done)
}

/// Returns the delegation part of the reply to an OPEN that may run in place.
fn needs_no_wait(compound: &Compound<'_>, encoded: &[u8]) -> Option<OpenDelegation> {
    // Owners of version 4.0 take turns by seqid.
    if compound.minor == 0 || compound.state().has_delegations(Conflict::Any) {
        return None;
    }
    let (access, creates) = OpenArgs::glance(encoded)?;
    let delegation = delegated::nothing(compound.client().ok()?, access.want())?;
    (!creates).then_some(delegation)
}

async fn open_in_turn<'r>(
    compound: &mut Compound<'r>,
    turn: Option<&OwnerRequest>,
    arguments: &OpenArgs,
    started: Option<StartedOpen<'r>>,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    let (access, opener) = admit(compound, turn, arguments)?;
    let (mut target, opening) = match started {
        Some(StartedOpen::Open(target, opening)) => (target, opening),
        started => {
            let lookup = match started {
                Some(StartedOpen::Lookup(lookup)) => Some(lookup),
                _ => None,
            };
            let found = claim::find(compound, arguments, access, lookup).await;
            (found.map_err(|why| not_a_file(why, compound.minor))?, None)
        }
    };
    target.file = target.file.with_key(compound.server());
    let grant = match share::open(compound, &opener, arguments, access, &mut target, opening).await {
        Ok(grant) => grant,
        Err(failure) => {
            if let Some(created) = &target.seen
                && target.is_new
                && failure == Status::DELAY.into()
            {
                Box::pin(creation::undo_create(compound, arguments, &target, created)).await;
            }
            return Err(failure);
        }
    };
    let delegation = match &target.seen {
        Some(attributes)
            if compound.room(reply) >= DELEGATED_OPEN_BYTES_MAX
                && delegated::may_delegate(compound, turn, arguments) =>
        {
            delegated::beside_open(compound, &opener.client, arguments, &target.file, attributes).await
        }
        _ => OpenDelegation::None,
    };
    let delegation = delegated::explained(delegation, arguments.share_access.want());
    let granted = Granted { opener: &opener, target: &target, grant, delegation };
    Ok(granted.answer(compound, turn, arguments, reply))
}

/// Checks the arguments of an OPEN, and that its owner may open a file now.
fn admit(
    compound: &Compound<'_>,
    turn: Option<&OwnerRequest>,
    arguments: &OpenArgs,
) -> Result<(OpenAccess, Opener)> {
    let access = share::check(arguments.share_access, arguments.share_deny, compound.minor)?;
    let opener = Opener::new(compound, turn, arguments)?;
    let reclaim = arguments.claim.is_reclaim();
    compound.state().admit_open(compound.now(), &opener.client, &opener.owner, reclaim)?;
    Ok((access, opener))
}

/// A granted open.
struct Granted<'o, 'r> {
    opener: &'o Opener,
    target: &'o Target<'r>,
    grant: OpenGrant,
    delegation: OpenDelegation,
}

impl<'r> Granted<'_, 'r> {
    /// Writes the result, and makes the file current.
    fn answer(
        self,
        compound: &mut Compound<'r>,
        turn: Option<&OwnerRequest>,
        arguments: &OpenArgs,
        reply: &mut Writer,
    ) -> OwnerEffect {
        let Self { opener, target, grant, delegation } = self;
        let confirm = if turn.is_some_and(OwnerRequest::needs_confirmation) {
            OpenResultFlags::CONFIRM
        } else {
            OpenResultFlags::empty()
        };
        // RFC 8881 §20.11.3: "If the server supports this callback for a given file, it MUST set the OPEN4_RESULT_MAY_NOTIFY_LOCK
        // flag". Without a back channel the flag would only make a client poll less often.
        let may_notify = if compound.state().may_notify_locks(&opener.client) {
            OpenResultFlags::MAY_NOTIFY_LOCK
        } else {
            OpenResultFlags::empty()
        };
        // These attributes are older than the grant, and the file may have changed in between. With a delegation the client would
        // cache them.
        let is_delegated = !matches!(delegation, OpenDelegation::None | OpenDelegation::NoneExt(_));
        let fresh = if is_delegated { None } else { target.seen };
        let instead = delegated::instead_of_open(arguments, &grant, &delegation);
        let no_open = match instead {
            Some(_) => {
                compound.state().withdraw_open(&opener.client, grant);
                OpenResultFlags::NO_OPEN_STATEID
            }
            None => OpenResultFlags::empty(),
        };
        compound.note_open(&opener.client, target.file.key(compound.server()), grant, &delegation);
        OpenOk {
            stateid: if instead.is_some() { Stateid::ANONYMOUS } else { grant.stateid },
            change: target.change,
            // Not PRESERVE_UNLINKED, which keeps an unlinked file over a restart: pins do not outlive the server.
            flags: OpenResultFlags::LOCKTYPE_POSIX | confirm | no_open | may_notify,
            attributes_set: target.attributes_set,
            delegation,
        }
        .encode(reply);
        compound.set_current(Object::File(target.file), fresh);
        compound.set_stateid(instead.unwrap_or(grant.stateid));
        OwnerEffect::Opened(grant.stateid)
    }
}

/// RFC 7530 §16.16.5: "NFS4ERR_SYMLINK is returned for both symlinks and for special files of other types; NFS4ERR_INVAL would
/// be inappropriate".
fn not_a_file(why: Failure, minor: u32) -> Failure {
    if minor == 0 && why == Status::WRONG_TYPE.into() { Status::SYMLINK.into() } else { why }
}

/// The client and owner of an OPEN.
struct Opener {
    client: Arc<Client>,
    /// The open-owner's bytes.
    owner: Arc<[u8]>,
}

impl Opener {
    fn new(compound: &Compound<'_>, turn: Option<&OwnerRequest>, arguments: &OpenArgs) -> Result<Self> {
        let from_turn = turn.map(|turn| Arc::clone(turn.owner()));
        Ok(Self {
            client: Arc::clone(compound.actor(turn)?),
            owner: from_turn.unwrap_or_else(|| Arc::from(&arguments.owner.owner[..])),
        })
    }
}

#[cfg(test)]
mod minor_0_tests;

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::close::CloseArgs;
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{StableHow, Stateid};
    use xdr::Opaque;

    use super::*;
    use crate::testing::{Lab, at, attributes_in, create, getattr, lab, open_args, open_result};

    pub(super) fn creating(text: &'static str, how: CreateHow) -> Op {
        Op::Open(open_args(text, b"owner", ShareAccess::BOTH, OpenHow::Create(how)))
    }

    pub(super) fn opened(lab: &mut Lab, op: Op) -> OpenOk {
        open_result(&lab.last(at(&["export"], vec![op]))).clone()
    }

    #[test]
    fn one_compound_opens_writes_reads_and_closes() {
        let mut lab = lab();
        let write = Op::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::Unstable,
            data: Opaque::from_static(b"data"),
        });
        let read = Op::Read(ReadArgs { stateid: Stateid::CURRENT, offset: 0, count: 10 });
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
        let ops = vec![create("file", b"owner"), write, read, close, getattr(&[n::SIZE])];
        let results = lab.ok(at(&["export"], ops));
        let OpResult::Read(read) = &results[4] else { panic!("{results:?}") };
        assert_eq!(&read.as_result().unwrap().data[..], b"data");
        assert_eq!(attributes_in(&results[6]).size, Some(4));
        assert_eq!(lab.server.shared.state.counts().opens, 0);
    }
}
