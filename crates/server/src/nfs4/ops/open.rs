//! OPEN (RFC 8881 §18.16): opens a regular file, by name or by handle, new or not.
//!
//! In order: what can be refused without touching anything; grace; the file (found or created) with the caller's
//! permission to open it; share reservations; truncation, which must not happen where a reservation forbids it.

use std::sync::Arc;

use protocol::nfs4::attributes::number;
use protocol::nfs4::ops::open::{
    CreateHow, OpenArgs, OpenClaim, OpenDelegation, OpenHow, OpenOk, OpenResultFlags, ShareAccess, ShareDeny,
};
use protocol::nfs4::types::{Bitmap, ChangeInfo, OpNum, Stateid, Status};
use vfs::{Attributes, Authority, Create, CreateMode, FileKind, OpenAccess, Opened, Removal, SetAttributes};
use xdr::{Decode, Encode, Reader, Writer};

use super::lookup::{child, not_directory};
use crate::IdNames;
use crate::nfs4::attributes::{can_set_with_creation, can_set_with_exclusive};
use crate::nfs4::compound::Compound;
use crate::nfs4::delegation::{beside_open, instead_of_open};
use crate::nfs4::names;
use crate::nfs4::object::{File, Object, not_regular};
use crate::nfs4::rows::DELEGATED_OPEN;
use crate::nfs4::sequencing::Asked;
use crate::nfs4::set_attributes::Wanted;
use crate::nfs4::state::{Against, Client, Effect, OpenGrant, OpenRequest, Turn};
use crate::nfs4::status::{Failure, Result};

/// How often an OPEN looks for delegations in its way: others may be granted while it waits, but none to a file that was just
/// recalled.
const LOOKS_MAX: u32 = 4;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let args = OpenArgs::decode(arguments)?;
    if compound.minor == 0 && !is_of_minor_0(&args) {
        return Err(Status::BADXDR.into());
    }
    let asked = Asked::since(OpNum::OPEN, arguments, start);
    let turn = compound.open_turn(&asked, &args.owner, args.seqid, args.claim.is_reclaim())?;
    let body = reply.mark();
    let done = open_in_turn(compound, turn.as_ref(), &args, reply).await;
    compound.end_turn(turn, done, body, reply)
}

/// Whether version 4.0 has such a claim and such a creation (RFC 7531).
fn is_of_minor_0(args: &OpenArgs) -> bool {
    let is_claim =
        !matches!(args.claim, OpenClaim::Fh | OpenClaim::DelegatePrevFh | OpenClaim::DelegateCurFh(_));
    is_claim && !matches!(args.how, OpenHow::Create(CreateHow::Exclusive41(_)))
}

async fn open_in_turn(
    compound: &mut Compound<'_>,
    turn: Option<&Turn>,
    arguments: &OpenArgs,
    reply: &mut Writer,
) -> Result<Effect> {
    let access = check_share(arguments.share_access, arguments.share_deny, compound.minor)?;
    let opener = Opener::new(compound, turn, arguments)?;
    if turn.is_some() {
        compound.set_opener(Arc::clone(&opener.client));
    }
    let reclaim = arguments.claim.is_reclaim();
    compound.state().admit_open(compound.now(), &opener.client, &opener.owner, reclaim)?;
    let target = find(compound, arguments, access).await.map_err(|why| not_a_file(why, compound.minor))?;
    let (grant, attributes) = match open(compound, &opener, arguments, access, &target).await {
        Ok(opened) => opened,
        Err(failure) => {
            if let Some(created) = target.created.filter(|_| failure == Status::DELAY.into()) {
                take_back(compound, arguments, &target, created).await;
            }
            return Err(failure);
        }
    };
    let delegation = if compound.room(reply) >= DELEGATED_OPEN && may_delegate(turn, arguments) {
        beside_open(compound, &opener.client, arguments, &target.file, &attributes).await
    } else {
        OpenDelegation::None
    };
    let confirm = if turn.is_some_and(Turn::needs_confirmation) {
        OpenResultFlags::CONFIRM
    } else {
        OpenResultFlags::empty()
    };
    // They are from before the grant, and others may have changed the file between the two. What the client sees beside a
    // delegation it keeps for as long as it has that.
    let is_delegated = matches!(delegation, OpenDelegation::Read(_) | OpenDelegation::Write(_));
    let fresh = (!is_delegated).then_some(attributes);
    let instead = instead_of_open(arguments, &grant, &delegation);
    let no_open = match instead {
        Some(_) => {
            compound.state().withdraw_open(&opener.client, grant);
            OpenResultFlags::NO_OPEN_STATEID
        }
        None => OpenResultFlags::empty(),
    };
    OpenOk {
        stateid: if instead.is_some() { Stateid::ANONYMOUS } else { grant.stateid },
        change: target.change,
        // Not PRESERVE_UNLINKED, which promises an unlinked file even over a restart: pins do not outlive the server.
        flags: OpenResultFlags::LOCKTYPE_POSIX | confirm | no_open,
        attributes_set: target.attributes_set,
        delegation,
    }
    .encode(reply);
    compound.set_current(Object::File(target.file), fresh);
    compound.set_stateid(instead.unwrap_or(grant.stateid));
    Ok(Effect::Opened(grant.stateid))
}

/// RFC 7530 §16.16.5: "NFS4ERR_SYMLINK is returned for both symlinks and for special files of other types; NFS4ERR_INVAL would
/// be inappropriate".
fn not_a_file(why: Failure, minor: u32) -> Failure {
    if minor == 0 && why == Status::WRONG_TYPE.into() { Status::SYMLINK.into() } else { why }
}

/// Who opens.
struct Opener {
    client: Arc<Client>,
    /// The open-owner's bytes.
    owner: Arc<[u8]>,
}

impl Opener {
    fn new(compound: &Compound<'_>, turn: Option<&Turn>, arguments: &OpenArgs) -> Result<Self> {
        let from_turn = turn.map(|turn| Arc::clone(turn.owner()));
        Ok(Self {
            client: Arc::clone(compound.actor(turn)?),
            owner: from_turn.unwrap_or_else(|| Arc::from(&arguments.owner.owner[..])),
        })
    }
}

/// RFC 8881 §18.16.3: share_access without wishes "MUST be one of" READ, WRITE or BOTH, share_deny one of its four values;
/// "If not, the server MUST return NFS4ERR_INVAL". Version 4.0 has no wishes.
fn check_share(access: ShareAccess, deny: ShareDeny, minor: u32) -> std::result::Result<OpenAccess, Status> {
    let wishes = ShareAccess::WANT_DELEG_MASK
        | ShareAccess::WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL.bits()
        | ShareAccess::WANT_PUSH_DELEG_WHEN_UNCONTENDED.bits();
    let wishes = match minor {
        0 => 0,
        1 => wishes,
        // RFC 9754: both are wishes; that for delegated times is not granted.
        _ => {
            let of_9754 = ShareAccess::WANT_OPEN_XOR_DELEGATION | ShareAccess::WANT_DELEG_TIMESTAMPS;
            wishes | of_9754.bits()
        }
    };
    let share = access.access();
    if share.is_empty() || access.bits() & !wishes != share.bits() || !ShareDeny::BOTH.contains(deny) {
        return Err(Status::INVAL);
    }
    Ok(OpenAccess { read: share.contains(ShareAccess::READ), write: share.contains(ShareAccess::WRITE) })
}

/// A regular file to open.
#[derive(Debug)]
struct Target<'r> {
    file: File<'r>,
    /// On whose word: a file that this OPEN created is open for its creator, whatever its mode says.
    authority: Authority,
    /// As it was when this OPEN had created it; `None` where it was there before.
    created: Option<Attributes>,
    /// The directory around a creation; the same twice where none was.
    change: ChangeInfo,
    attributes_set: Bitmap,
    /// The size to set when the open is granted.
    size: Option<u64>,
}

impl<'r> Target<'r> {
    fn found(file: File<'r>, change: ChangeInfo) -> Self {
        let (authority, attributes_set) = (Authority::Caller, Bitmap::EMPTY);
        Self { file, authority, created: None, change, attributes_set, size: None }
    }
}

/// Finds or creates what `arguments` want opened.
async fn find<'r>(
    compound: &mut Compound<'r>,
    arguments: &OpenArgs,
    access: OpenAccess,
) -> Result<Target<'r>> {
    let named = match &arguments.claim {
        OpenClaim::Null(name) => Some(name),
        OpenClaim::Fh | OpenClaim::Previous(_) => None,
        // RFC 8881 §18.16.3: the server "MAY support" these, and with DELEGPURGE only.
        OpenClaim::DelegatePrev(_) | OpenClaim::DelegatePrevFh => return Err(Status::NOTSUPP.into()),
        OpenClaim::DelegateCur(claim) => Some(&claim.file),
        OpenClaim::DelegateCurFh(_) => None,
    };
    let target = match (named, &arguments.how) {
        (Some(name), OpenHow::NoCreate) => by_name(compound, name, access).await?,
        // §18.16.3 lets CLAIM_DELEGATE_CUR create; what is delegated is there already.
        (Some(name), OpenHow::Create(how)) => create(compound, name, how, access).await?,
        (None, OpenHow::NoCreate) => by_handle(compound, access).await?,
        // "If opentype is OPEN4_CREATE, then the claim field … MUST be one of" those with a name (§18.16.3).
        (None, OpenHow::Create(_)) => return Err(Status::INVAL.into()),
    };
    let held = match &arguments.claim {
        OpenClaim::DelegateCur(claim) => claim.delegate_stateid,
        OpenClaim::DelegateCurFh(stateid) => *stateid,
        _ => return Ok(target),
    };
    let (held, key) = (compound.stateid(held)?, target.file.key(compound.server()));
    let access = arguments.share_access.access().bits() as u8;
    let client = compound.named(arguments.owner.client_id)?;
    compound.state().check_delegation(&client, key, &held, access)?;
    Ok(target)
}

/// CLAIM_FH and CLAIM_PREVIOUS: the current object itself.
async fn by_handle<'r>(compound: &mut Compound<'r>, access: OpenAccess) -> Result<Target<'r>> {
    let file = compound.file(Status::ISDIR)?;
    check_writable(&file, access)?;
    let attributes = compound.attributes().await?;
    check_regular(&attributes)?;
    Ok(Target::found(file, ChangeInfo::default()))
}

/// CLAIM_NULL without creation.
async fn by_name<'r>(compound: &mut Compound<'r>, name: &[u8], access: OpenAccess) -> Result<Target<'r>> {
    names::check(name)?;
    let directory = match compound.current()? {
        Object::File(directory) => directory,
        Object::Pseudo(node) => {
            let status = child(compound, node, name).map_or(Status::NOENT, |_| Status::ISDIR);
            return Err(status.into());
        }
    };
    let context = compound.context(directory.export);
    match directory.export.backend.lookup(&context, &directory.handle, name).await {
        Ok(found) => {
            check_regular(&found.attributes)?;
            let file = directory.with(found.handle);
            check_writable(&file, access)?;
            let change = found.directory.change;
            Ok(Target::found(file, ChangeInfo { atomic: true, before: change, after: change }))
        }
        Err(vfs::Error::NotDirectory) => Err(not_directory(compound, &directory).await),
        Err(error) => Err(error.into()),
    }
}

fn check_writable(file: &File<'_>, access: OpenAccess) -> std::result::Result<(), Status> {
    if access.write && file.export.options.read_only { Err(Status::ROFS) } else { Ok(()) }
}

/// RFC 8881 §18.16.3: SYMLINK, ISDIR, or for what "is neither of those but not an ordinary file", WRONG_TYPE.
fn check_regular(attributes: &Attributes) -> std::result::Result<(), Status> {
    match attributes.kind {
        FileKind::Regular => Ok(()),
        kind => Err(not_regular(kind)),
    }
}

/// What a `createhow4` means to the backend.
struct Creation {
    mode: CreateMode,
    wanted: Wanted,
}

impl Creation {
    fn parse(how: &CreateHow, minor: u32, names: Option<&IdNames>) -> std::result::Result<Self, Status> {
        let attributes = can_set_with_creation(minor);
        Ok(match how {
            CreateHow::Unchecked(set) => {
                Self { mode: CreateMode::Unchecked, wanted: Wanted::parse(set, minor, attributes, names)? }
            }
            CreateHow::Guarded(set) => {
                Self { mode: CreateMode::Guarded, wanted: Wanted::parse(set, minor, attributes, names)? }
            }
            CreateHow::Exclusive(verifier) => {
                Self { mode: CreateMode::Exclusive(*verifier), wanted: Wanted::default() }
            }
            // "If the client attempts to set in cva_attrs an attribute that is not in suppattr_exclcreat, the server MUST
            // return NFS4ERR_INVAL" (§18.16.3).
            CreateHow::Exclusive41(how) => Self {
                mode: CreateMode::Exclusive(how.verifier),
                wanted: Wanted::parse(&how.attributes, minor, can_set_with_exclusive(minor), names)?,
            },
        })
    }
}

/// CLAIM_NULL with creation.
async fn create<'r>(
    compound: &mut Compound<'r>,
    name: &[u8],
    how: &CreateHow,
    access: OpenAccess,
) -> Result<Target<'r>> {
    let creation = Creation::parse(how, compound.minor, compound.id_names())?;
    let directory = match compound.current()? {
        Object::File(directory) if !directory.export.options.read_only => directory,
        // What is there can be opened all the same, as open(2) with O_CREAT does on a read-only file system.
        _ => return existing_on_read_only(compound, name, &creation, access).await,
    };
    names::check(name)?;
    // Truncation waits for the share reservation; in a new file nobody holds one.
    let size = creation.wanted.set.size;
    let set = SetAttributes { size: None, ..creation.wanted.set };
    let context = compound.context(directory.export);
    let what = Create::File(creation.mode);
    let created = compound.once().create(directory.place(&context), name, &what, &set).await;
    let created = match created {
        Ok(created) => created,
        Err(vfs::Error::NotDirectory) => return Err(not_directory(compound, &directory).await),
        // A name that is no regular file's.
        Err(vfs::Error::Exists) if creation.mode == CreateMode::Unchecked => {
            by_name(compound, name, access).await?;
            return Err(Status::EXIST.into());
        }
        Err(error) => return Err(error.into()),
    };
    check_regular(&created.attributes)?;
    let is_ours = created.is_new || is_own_retry(&creation, &created.attributes, context.credentials.uid);
    let (size, attributes_set) = if is_ours {
        let mask = told_as_set(creation.wanted.mask, created.verifier_in_times);
        (size.filter(|size| *size != created.attributes.size), mask)
    } else {
        // "When an UNCHECKED4 create encounters an existing file, the attributes specified by createattrs are not used,
        // except that when createattrs specifies the size attribute with a size of zero, the existing file is truncated."
        let size = size.filter(|size| *size == 0 && creation.mode == CreateMode::Unchecked);
        (size, if size.is_some() { Bitmap::of(&[number::SIZE]) } else { Bitmap::EMPTY })
    };
    Ok(Target {
        file: directory.with(created.handle),
        authority: if is_ours { Authority::Opened } else { Authority::Caller },
        created: created.is_new.then_some(created.attributes),
        change: ChangeInfo {
            atomic: created.directory.atomic,
            before: created.directory.before.change,
            after: created.directory.after.change,
        },
        attributes_set,
        size,
    })
}

/// What `attrset` tells of a creation.
///
/// RFC 8881 §18.16.3: "The response field, attrset, indicates both which attributes the server set from cva_attrs and
/// which attributes the server used to store the verifier."
fn told_as_set(set: Bitmap, verifier_in_times: bool) -> Bitmap {
    let times = Bitmap::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);
    if verifier_in_times { set.union(times) } else { set }
}

/// Whether an exclusive creation that found its verifier is the creator's own, come again: then the file is still as
/// creation left it, and is open whatever its mode says.
///
/// RFC 8881 §18.16.3: "If the object does exist and the stored verifier matches the client provided verifier, the server
/// uses the existing object as the newly created object." The verifier is no secret, though (a backend may keep it where
/// everybody can read it), so that it vouches for nothing: any other OPEN that brings it is judged as the caller's, and
/// changes no size.
fn is_own_retry(creation: &Creation, found: &Attributes, caller: u32) -> bool {
    let owner = creation.wanted.set.uid.unwrap_or(caller);
    matches!(creation.mode, CreateMode::Exclusive(_)) && found.size == 0 && found.uid == owner
}

/// Removes a file whose OPEN is told to come again: found by its repetition, it would be EXIST for a guarded one, and
/// closed to its creator where its mode is. Best effort, and only while the name is still that file's, and the file as
/// it was `created`: others may have found it meanwhile, opened it and written to it.
async fn take_back(compound: &Compound<'_>, arguments: &OpenArgs, target: &Target<'_>, created: Attributes) {
    let (OpenClaim::Null(name), Ok(Object::File(directory))) = (&arguments.claim, compound.current()) else {
        return;
    };
    let context = compound.context(directory.export);
    let backend = &directory.export.backend;
    // Nothing is delegated from here on; and what a holder has changed may not have come here yet.
    let _changing = compound.changing(&target.file);
    let Ok(found) = backend.lookup(&context, &directory.handle, name).await else { return };
    let state = |attributes: &Attributes| (attributes.change, attributes.size);
    let is_untouched = found.handle == target.file.handle && state(&found.attributes) == state(&created);
    if is_untouched && !compound.state().is_file_held(target.file.key(compound.server())) {
        let _ = backend.remove(&context, &directory.handle, name, Removal::File).await;
    }
}

/// A create where nothing can be created.
async fn existing_on_read_only<'r>(
    compound: &mut Compound<'r>,
    name: &[u8],
    creation: &Creation,
    access: OpenAccess,
) -> Result<Target<'r>> {
    match by_name(compound, name, access).await {
        Ok(_) if creation.mode != CreateMode::Unchecked => Err(Status::EXIST.into()),
        // RFC 8881 §18.16.3: with a size of zero "the existing file is truncated", which it cannot be.
        Ok(_) if creation.wanted.set.size == Some(0) => Err(Status::ROFS.into()),
        Err(failure) if failure == Status::NOENT.into() => Err(Status::ROFS.into()),
        other => other,
    }
}

/// Opens the file with the backend and takes the share reservation; then truncates.
async fn open(
    compound: &mut Compound<'_>,
    opener: &Opener,
    arguments: &OpenArgs,
    access: OpenAccess,
    target: &Target<'_>,
) -> Result<(OpenGrant, Attributes)> {
    let file = &target.file;
    let context = compound.context(file.export);
    let backend = &file.export.backend;
    // The truncation comes before anybody may have the file delegated.
    let _changing = target.size.map(|_| compound.changing(file));
    compound.settle(file, against(arguments, target)).await?;
    // To truncate is to write, whatever the share access says.
    let wanted = OpenAccess { write: access.write || target.size.is_some(), ..access };
    let opened = match backend.open(&context, &file.handle, wanted, target.authority).await {
        // The backend may be short of what opens hold, descriptors: those of clients whose lease is over go.
        Err(vfs::Error::Later) => {
            compound.state().press(compound.now());
            backend.open(&context, &file.handle, wanted, target.authority).await?
        }
        opened => opened?,
    };
    let grant = reserve(compound, opener, arguments, target, &opened).await?;
    if target.size.is_none() {
        return Ok((grant, opened.attributes));
    }
    let set = SetAttributes { size: target.size, ..SetAttributes::default() };
    match backend.setattr(&context, &file.handle, &set, None, Authority::Opened).await {
        Ok(change) => Ok((grant, change.after)),
        Err(error) => {
            compound.state().withdraw_open(&opener.client, grant);
            Err(error.into())
        }
    }
}

/// Which delegations of others an OPEN conflicts with (RFC 8881 §10.4).
fn against(arguments: &OpenArgs, target: &Target<'_>) -> Against {
    let writes = arguments.share_access.contains(ShareAccess::WRITE) || target.size.is_some();
    let changes = writes || !arguments.share_deny.is_empty();
    if changes { Against::All } else { Against::Writers }
}

/// Takes the share reservation. Where something was delegated since the last look, it waits for that once more.
async fn reserve(
    compound: &Compound<'_>,
    opener: &Opener,
    arguments: &OpenArgs,
    target: &Target<'_>,
    opened: &Opened,
) -> Result<OpenGrant> {
    let against = against(arguments, target);
    let mut looks = 1;
    loop {
        let request = OpenRequest {
            file: target.file.key(compound.server()),
            owner: Arc::clone(&opener.owner),
            opener: compound.caller(),
            access: arguments.share_access,
            deny: arguments.share_deny,
            truncates: target.size.is_some(),
            reclaim: arguments.claim.is_reclaim(),
            pin: Arc::clone(&opened.pin),
        };
        match compound.state().open(compound.now(), &opener.client, request) {
            Err(Status::DELAY) if looks < LOOKS_MAX && compound.state().has_delegations(against) => {
                compound.settle(&target.file, against).await?;
                looks += 1;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Whether anything may be delegated beside an open of version 4.0. RFC 7530 §9.1.11: "The server must not bestow a delegation
/// for any open that would require confirmation." Nothing is delegated for writing there: who asks for attributes, and might
/// hold that delegation itself, is not known.
fn may_delegate(turn: Option<&Turn>, arguments: &OpenArgs) -> bool {
    let is_reader = !arguments.share_access.contains(ShareAccess::WRITE);
    turn.is_none_or(|turn| is_reader && !turn.needs_confirmation())
}

#[cfg(test)]
mod minor_0_tests;

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{FileAttributes, number as n};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::close::CloseArgs;
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::open::{
        CreateVerifierAttributes, DelegationWant, NoDelegation, WhyNoDelegation,
    };
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::setattr::SetAttrArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{Mode, StableHow, Stateid};
    use vfs::fault::{Fault, Method, Rule};
    use xdr::Opaque;

    use super::*;
    use crate::testing::{
        Lab, at, attributes_in, create, export, faulty, getattr, lab, lab_of, lab_with, lookup, mode, name,
        open, open_args, open_result, putfh, size,
    };

    fn creating(text: &'static str, how: CreateHow) -> Op {
        Op::Open(open_args(text, b"owner", ShareAccess::BOTH, OpenHow::Create(how)))
    }

    fn opened(lab: &mut Lab, op: Op) -> OpenOk {
        open_result(&lab.last(at(&["export"], vec![op]))).clone()
    }

    #[test]
    fn creates_and_the_new_file_is_open_whatever_its_mode() {
        let mut lab = lab();
        lab.ok(at(
            &["export"],
            vec![Op::SetAttr(protocol::nfs4::ops::setattr::SetAttrArgs {
                stateid: Stateid::ANONYMOUS,
                attributes: mode(0o777),
            })],
        ));
        lab.uid = 1000;
        let done = opened(&mut lab, creating("new", CreateHow::Guarded(mode(0))));
        assert!(done.change.atomic && done.change.before != done.change.after);
        assert_eq!(done.attributes_set, Bitmap::of(&[n::MODE]));
        assert_eq!(done.flags, OpenResultFlags::LOCKTYPE_POSIX);
        assert_eq!(done.delegation, OpenDelegation::None);
        // Opening it again is judged by the mode.
        let again = open("new", b"other", ShareAccess::READ);
        assert_eq!(lab.status_at(&["export"], again), Status::ACCESS);
    }

    #[test]
    fn unchecked_takes_what_is_there_and_truncates_only_to_zero() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let done = opened(&mut lab, creating("file", CreateHow::Unchecked(size(3))));
        assert_eq!(done.attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(5));
        let done = opened(&mut lab, creating("file", CreateHow::Unchecked(size(0))));
        assert_eq!(done.attributes_set, Bitmap::of(&[n::SIZE]));
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(0));
        let done = opened(&mut lab, creating("new", CreateHow::Unchecked(size(7))));
        assert_eq!(done.attributes_set, Bitmap::of(&[n::SIZE]));
        assert_eq!(lab.attributes(&["export", "new"], &[n::SIZE]).size, Some(7));
        let guarded = creating("new", CreateHow::Guarded(FileAttributes::default()));
        assert_eq!(lab.status_at(&["export"], guarded), Status::EXIST);
    }

    #[test]
    fn exclusive_creation_can_be_repeated_with_its_verifier_alone() {
        let mut lab = lab();
        let how = |verifier| {
            CreateHow::Exclusive41(CreateVerifierAttributes {
                verifier: [verifier; 8],
                attributes: mode(0o640),
            })
        };
        let first = opened(&mut lab, creating("file", how(1)));
        assert_eq!(first.attributes_set, Bitmap::of(&[n::MODE]));
        let again = opened(&mut lab, creating("file", how(1)));
        assert_eq!(again.stateid.other, first.stateid.other, "the same owner, the same file");
        assert_eq!(lab.status_at(&["export"], creating("file", how(2))), Status::EXIST);
        let times = protocol::nfs4::attributes::SetAttributes {
            time_modify_set: Some(protocol::nfs4::attributes::values::SetTime::ServerTime),
            ..Default::default()
        };
        let with_times = CreateHow::Exclusive41(CreateVerifierAttributes {
            verifier: [1; 8],
            attributes: times.to_file_attributes(),
        });
        assert_eq!(lab.status_at(&["export"], creating("other", with_times)), Status::INVAL);
        let bare = opened(&mut lab, creating("bare", CreateHow::Exclusive([5; 8])));
        assert_eq!(bare.attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.status_at(&["export"], creating("bare", CreateHow::Exclusive([6; 8]))), Status::EXIST);
    }

    #[test]
    fn times_that_hold_the_verifier_are_told_beside_what_was_set() {
        let mode = Bitmap::of(&[n::MODE]);
        assert_eq!(told_as_set(mode, true), Bitmap::of(&[n::MODE, n::TIME_ACCESS, n::TIME_MODIFY]));
        assert_eq!(told_as_set(mode, false), mode);
        // RFC 8881 §18.16.4: "any bits set in the former but not the latter identify the attributes used to store the verifier."
        let told = told_as_set(can_set_with_exclusive(1), true).difference(can_set_with_exclusive(1));
        assert_eq!(told, Bitmap::of(&[n::TIME_ACCESS, n::TIME_MODIFY]));
    }

    #[test]
    fn an_exclusive_verifier_opens_nobody_else_s_file_and_truncates_nothing() {
        let mut lab = lab();
        let writable = SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o777) };
        lab.ok(at(&["export"], vec![Op::SetAttr(writable)]));
        let exclusive = |length| {
            let set = protocol::nfs4::attributes::SetAttributes {
                mode: Some(Mode::from_bits_retain(0o600)),
                size: length,
                ..Default::default()
            };
            let attributes = set.to_file_attributes();
            creating(
                "file",
                CreateHow::Exclusive41(CreateVerifierAttributes { verifier: [7; 8], attributes }),
            )
        };
        lab.uid = 1000;
        opened(&mut lab, exclusive(None));
        lab.uid = 2000;
        assert_eq!(lab.status_at(&["export"], exclusive(None)), Status::ACCESS);
        lab.uid = 1000;
        let write = Op::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::FileSync,
            data: Opaque::from_static(b"data"),
        });
        lab.ok(at(&["export"], vec![exclusive(None), write]));
        lab.uid = 2000;
        assert_eq!(lab.status_at(&["export"], exclusive(Some(0))), Status::ACCESS);
        lab.uid = 1000;
        assert_eq!(opened(&mut lab, exclusive(Some(0))).attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(4));
    }

    #[test]
    fn what_is_told_to_come_again_leaves_no_file() {
        let mut lab = lab_with(vec![export(1, "/export")], |settings| settings.max_state = 2);
        lab.ok(at(&["export"], vec![create("a", b"owner")]));
        lab.ok(at(&["export"], vec![create("b", b"owner")]));
        assert_eq!(lab.status_at(&["export"], create("c", b"owner")), Status::DELAY);
        assert_eq!(lab.status_at(&["export"], lookup("c")), Status::NOENT);

        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        backend.add(Rule::on(Method::Open, Fault::Fail(vfs::Error::Later)));
        assert_eq!(lab.status_at(&["export"], create("file", b"owner")), Status::DELAY);
        backend.heal();
        assert_eq!(lab.status_at(&["export"], create("file", b"owner")), Status::OK, "not EXIST");
    }

    #[test]
    fn a_backend_that_is_short_gets_back_what_expired_clients_hold() {
        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        lab.file(&["export", "file"], b"");
        let mut gone = lab.other(b"gone");
        gone.open(&["export", "file"], b"owner");
        lab.seconds += 60;
        lab.ok(at(&["export"], vec![]));
        lab.seconds += 60;
        backend.add(Rule::on(Method::Open, Fault::Fail(vfs::Error::Later)).times(1));
        lab.open(&["export", "file"], b"owner");
        assert_eq!(lab.server.counts().opens, 1);
    }

    #[test]
    fn opens_regular_files_only() {
        let mut lab = lab();
        for (kind, text) in [
            (CreateType::DIRECTORY, "directory"),
            (CreateType::FIFO, "fifo"),
            (CreateType::Link(Opaque::from_static(b"x")), "link"),
        ] {
            let args = CreateArgs { object_type: kind, name: name(text), attributes: mode(0o777) };
            lab.ok(at(&["export"], vec![Op::Create(args)]));
        }
        for (text, status) in
            [("directory", Status::ISDIR), ("fifo", Status::WRONG_TYPE), ("link", Status::SYMLINK)]
        {
            let plain = open(text, b"owner", ShareAccess::READ);
            assert_eq!(lab.status_at(&["export"], plain), status);
            let unchecked = creating(text, CreateHow::Unchecked(FileAttributes::default()));
            assert_eq!(lab.status_at(&["export"], unchecked), status);
            let mut by_handle = open_args("", b"owner", ShareAccess::READ, OpenHow::NoCreate);
            by_handle.claim = OpenClaim::Fh;
            assert_eq!(lab.status_at(&["export", text], Op::Open(by_handle)), status);
        }
        lab.file(&["export", "file"], b"");
        let inside = open("x", b"owner", ShareAccess::READ);
        assert_eq!(lab.status_at(&["export", "file"], inside), Status::NOTDIR);
    }

    #[test]
    fn refuses_names_shares_and_claims_that_cannot_be() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let at_export = |lab: &mut Lab, op| lab.status_at(&["export"], op);
        for (text, status) in [("", Status::INVAL), ("..", Status::BADNAME), ("absent", Status::NOENT)] {
            assert_eq!(at_export(&mut lab, open(text, b"o", ShareAccess::READ)), status);
        }
        for bits in [0, 4, 7, 0x8000_0001] {
            let access = ShareAccess::from_bits_retain(bits);
            assert_eq!(at_export(&mut lab, open("file", b"o", access)), Status::INVAL, "{bits}");
        }
        let with = |claim, how| {
            let mut args = open_args("file", b"o", ShareAccess::READ, how);
            args.claim = claim;
            Op::Open(args)
        };
        let create = || OpenHow::Create(CreateHow::Unchecked(FileAttributes::default()));
        for (claim, how, status) in [
            (OpenClaim::Fh, create(), Status::INVAL),
            (OpenClaim::DelegatePrevFh, OpenHow::NoCreate, Status::NOTSUPP),
            (OpenClaim::DelegateCurFh(Stateid::ANONYMOUS), OpenHow::NoCreate, Status::BAD_STATEID),
            // The server remembers no client from before its start: there is no grace period.
            (
                OpenClaim::Previous(protocol::nfs4::ops::open::DelegationType::NONE),
                OpenHow::NoCreate,
                Status::NO_GRACE,
            ),
        ] {
            assert_eq!(lab.status_at(&["export", "file"], with(claim.clone(), how)), status, "{claim:?}");
        }
        let mut denying = open_args("file", b"o", ShareAccess::READ, OpenHow::NoCreate);
        denying.share_deny = ShareDeny::from_bits_retain(4);
        assert_eq!(at_export(&mut lab, Op::Open(denying)), Status::INVAL);
    }

    #[test]
    fn says_why_there_is_no_delegation_when_asked() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let wanting = |lab: &mut Lab, want| {
            let access = ShareAccess::READ.with_want(want);
            opened(lab, open("file", b"owner", access)).delegation
        };
        assert_eq!(wanting(&mut lab, DelegationWant::NO_PREFERENCE), OpenDelegation::None);
        let not_wanted = NoDelegation::Other(WhyNoDelegation::NOT_WANTED.0);
        assert_eq!(wanting(&mut lab, DelegationWant::NO_DELEG), OpenDelegation::NoneExt(not_wanted));
        let resource = NoDelegation::Resource(false);
        assert_eq!(wanting(&mut lab, DelegationWant::READ_DELEG), OpenDelegation::NoneExt(resource));
    }

    #[test]
    fn share_reservations_hold_before_truncation() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let mut denying = open_args("file", b"denier", ShareAccess::READ, OpenHow::NoCreate);
        denying.share_deny = ShareDeny::WRITE;
        lab.ok(at(&["export"], vec![Op::Open(denying)]));
        for access in [ShareAccess::READ, ShareAccess::BOTH] {
            let how = OpenHow::Create(CreateHow::Unchecked(size(0)));
            let truncating = Op::Open(open_args("file", b"owner", access, how));
            assert_eq!(lab.status_at(&["export"], truncating), Status::SHARE_DENIED);
        }
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(5));
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
        assert_eq!(lab.server.nfs4.counts().opens, 0);
    }

    #[test]
    fn opens_by_handle() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"hello");
        let mut args = open_args("", b"owner", ShareAccess::READ, OpenHow::NoCreate);
        args.claim = OpenClaim::Fh;
        let ops = vec![putfh(file), Op::Open(args.clone()), Op::GetFh];
        assert_eq!(lab.last(ops), OpResult::GetFh(Ok(file).into()));
        assert_eq!(lab.status(vec![Op::PutRootFh, Op::Open(args)]), Status::ISDIR);
    }

    #[test]
    fn the_pseudo_file_system_and_read_only_exports_create_nothing() {
        let mut exported = export(1, "/export");
        let mut lab = lab_of(vec![exported.clone()]);
        lab.file(&["export", "file"], b"hello");
        exported.options.read_only = true;
        lab.server.replace_exports(crate::ExportTable::new(vec![exported]).unwrap());
        let unchecked = |access, text| {
            let how = CreateHow::Unchecked(FileAttributes::default());
            Op::Open(open_args(text, b"owner", access, OpenHow::Create(how)))
        };
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::READ, "file")), Status::OK);
        let how = OpenHow::Create(CreateHow::Unchecked(size(0)));
        let truncating = Op::Open(open_args("file", b"owner", ShareAccess::READ, how));
        assert_eq!(lab.status_at(&["export"], truncating), Status::ROFS);
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::BOTH, "file")), Status::ROFS);
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::READ, "new")), Status::ROFS);
        assert_eq!(lab.status_at(&[], unchecked(ShareAccess::READ, "new")), Status::ROFS);
        assert_eq!(lab.status_at(&[], unchecked(ShareAccess::READ, "export")), Status::ISDIR);
        assert_eq!(lab.status_at(&[], open("absent", b"o", ShareAccess::READ)), Status::NOENT);
    }
}
