//! SECINFO (RFC 8881 §18.29): which security flavors an entry can be reached with.

use protocol::nfs4::ops::secinfo::{AUTH_NONE, AUTH_SYS};
use xdr::{Reader, Writer};

use super::lookup::find;
use crate::nfs4::compound::Compound;
use crate::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let longest = arguments.remaining();
    let name = arguments.opaque_ref(longest)?;
    // "SECINFO should apply the same access methodology used for LOOKUP" (§18.29.3).
    find(compound, name).await?;
    put_flavors(reply);
    // "On success, the current filehandle is consumed" (§18.29.3); RFC 7530 §16.31 leaves it.
    if compound.minor > 0 {
        compound.consume_current();
    }
    Ok(())
}

/// The flavors, "the most preferred being first" (§18.29.3): the same everywhere, so that nothing is WRONGSEC.
pub(super) fn put_flavors(reply: &mut Writer) {
    reply.u32(2);
    reply.u32(AUTH_SYS);
    reply.u32(AUTH_NONE);
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::secinfo::{SecInfo, SecInfoArgs};
    use protocol::nfs4::types::Status;

    use crate::testing::{at, lab, name};

    fn secinfo(text: &'static str) -> Op {
        Op::SecInfo(SecInfoArgs { name: name(text) })
    }

    #[test]
    fn prefers_the_system_flavor_everywhere_and_consumes_the_handle() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        for (path, text) in [(&[][..], "export"), (&["export"], "file")] {
            let OpResult::SecInfo(flavors) = lab.last(at(path, vec![secinfo(text)])) else { panic!() };
            let flavors = flavors.into_result().unwrap();
            assert_eq!(flavors.first(), Some(&SecInfo::Flavor(1)));
            assert_eq!(lab.status(at(path, vec![secinfo(text), Op::GetFh])), Status::NOFILEHANDLE);
        }
    }

    #[test]
    fn finds_what_lookup_finds() {
        let mut lab = lab();
        assert_eq!(lab.status_at(&["export"], secinfo("absent")), Status::NOENT);
        assert_eq!(lab.status_at(&[], secinfo("absent")), Status::NOENT);
        assert_eq!(lab.status_at(&[], secinfo("")), Status::INVAL);
    }

    #[test]
    fn version_4_0_leaves_the_handle() {
        let mut lab = crate::testing0::lab0();
        assert_eq!(lab.status(at(&["export"], vec![secinfo("file"), Op::GetFh])), Status::OK);
    }
}
