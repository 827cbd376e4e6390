//! LOCKT (RFC 8881 §18.11): tests for a conflicting lock.

use protocol::nfs4::ops::lock::LockTArgs;
use protocol::nfs4::types::Status;
use vfs::FileKind;
use xdr::{Decode, Reader, Writer};

use super::lock::denied;
use crate::files::object::not_regular;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{LockRange, LockTest};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = LockTArgs::decode(arguments)?;
    let file = compound.file(Status::ISDIR)?;
    let range = LockRange::new(arguments.offset, arguments.length).ok_or(Status::INVAL)?;
    // LOCKT has no stateid, so the object's kind is checked here.
    match compound.attributes().await?.kind {
        FileKind::Regular => {}
        kind => return Err(not_regular(kind).into()),
    }
    let test = LockTest {
        file: file.key(compound.server()),
        lock_type: arguments.lock_type,
        range,
        owner: &arguments.owner.owner,
    };
    let client = compound.named(arguments.owner.client_id)?;
    compound.state().lock_test(compound.now(), &client, &test).map_err(|error| denied(error, reply))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::lock::LockType;
    use protocol::nfs4::types::StateOwner;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn only_regular_files_can_be_locked() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let test = |length| {
            let lock_type = LockType::Write;
            Op::LockT(LockTArgs { lock_type, offset: 0, length, owner: StateOwner::default() })
        };
        assert_eq!(lab.status_at(&["export", "file"], test(1)), Status::OK);
        assert_eq!(lab.status_at(&["export", "file"], test(0)), Status::INVAL);
        assert_eq!(lab.status_at(&["export"], test(1)), Status::ISDIR);
        assert_eq!(lab.status_at(&[], test(1)), Status::ISDIR);
    }
}
