//! GET_DIR_DELEGATION (RFC 8881 §18.39): there are no delegations of directories.

use protocol::nfs4::ops::delegation::{DirDelegation, GetDirDelegationArgs};
use protocol::nfs4::types::Status;
use vfs::FileKind;
use xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::compound::Compound;
use crate::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    GetDirDelegationArgs::decode(arguments)?;
    if compound.attributes().await?.kind != FileKind::Directory {
        return Err(Status::NOTDIR.into());
    }
    // GDD4_UNAVAIL is no error; nothing will tell when there is one.
    DirDelegation::Unavailable(false).encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::types::{Bitmap, Time};

    use super::*;
    use crate::testing::lab;

    #[test]
    fn directories_are_not_delegated() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let now = Time { seconds: 0, nanoseconds: 0 };
        let args = GetDirDelegationArgs {
            signal_available: true,
            notification_types: Bitmap::EMPTY,
            child_attribute_delay: now,
            directory_attribute_delay: now,
            child_attributes: Bitmap::EMPTY,
            directory_attributes: Bitmap::EMPTY,
        };
        assert_eq!(lab.status_at(&["export", "file"], Op::GetDirDelegation(args)), Status::NOTDIR);
        let ops = crate::testing::at(&["export"], vec![Op::GetDirDelegation(args)]);
        let OpResult::GetDirDelegation(result) = lab.last(ops) else { panic!() };
        assert_eq!(result.into_result(), Ok(DirDelegation::Unavailable(false)));
    }
}
