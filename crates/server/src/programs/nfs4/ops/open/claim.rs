//! The file that the claim of an OPEN names (RFC 8881 §18.16.1, `open_claim4`).

use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenHow};
use protocol::nfs4::types::Status;
use vfs::{Found, Later, OpenAccess, boxed};

use super::creation::create;
use super::existing::{Target, by_handle, by_name};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// Finds or creates the file that `arguments` name; `lookup` may have been started before. Boxed: a target is large and passes
/// through several functions.
pub(super) async fn find<'r>(
    compound: &mut Compound<'r>,
    arguments: &OpenArgs,
    access: OpenAccess,
    lookup: Option<Later<'r, Found>>,
) -> Result<Box<Target<'r>>> {
    let named = match &arguments.claim {
        OpenClaim::Null(name) => Some(name),
        OpenClaim::Fh | OpenClaim::Previous(_) => None,
        // RFC 8881 §18.16.3: the server "MAY support" these, and with DELEGPURGE only.
        OpenClaim::DelegatePrev(_) | OpenClaim::DelegatePrevFh => return Err(Status::NOTSUPP.into()),
        OpenClaim::DelegateCur(claim) => Some(&claim.file),
        OpenClaim::DelegateCurFh(_) => None,
    };
    if named.is_some() {
        compound.check_flavor_within()?;
    }
    let target = match (named, &arguments.how) {
        (Some(name), OpenHow::NoCreate) => by_name(compound, name, access, lookup).await?,
        // §18.16.3 permits CLAIM_DELEGATE_CUR to create; a delegated file exists already.
        (Some(name), OpenHow::Create(how)) => boxed(|| create(compound, name, (how, access))).await?,
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

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::FileAttributes;
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::open::{CreateHow, ShareAccess, ShareDeny};
    use protocol::nfs4::types::Stateid;
    use xdr::Opaque;

    use super::super::tests::creating;
    use super::*;
    use crate::testing::{Lab, at, lab, mode, name, open, open_args, putfh};

    #[test]
    fn opens_only_regular_files() {
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
    fn refuses_invalid_names_shares_and_claims() {
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
            // The server has no clients from before its start, so there is no grace period.
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
}
