//! SECINFO (RFC 8881 §18.29): lists the security flavors of an entry.

use protocol::nfs4::ops::secinfo::{AUTH_NONE, AUTH_SYS, GssInfo, GssService, SecInfo};
use rpc::gss::Service;
use xdr::{Encode, Opaque, Reader, Writer};

use super::lookup::find;
use crate::files::object::Object;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::{Flavor, Flavors};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let longest = arguments.remaining();
    let name = arguments.opaque_ref(longest)?;
    let flavors = match compound.current()? {
        // RFC 8881 §2.6.3.1.1.5: "MUST NOT return NFS4ERR_WRONGSEC from SECINFO": a caller with the wrong flavor learns the right
        // ones, but not whether the name exists.
        export @ Object::File(_) if !compound.allows(&export) => compound.flavors(&export),
        // "SECINFO should apply the same access methodology used for LOOKUP" (§18.29.3).
        _ => compound.flavors(&find(compound, name).await?.0),
    };
    put_flavors(flavors, reply);
    // "On success, the current filehandle is consumed" (§18.29.3); RFC 7530 §16.31 keeps it.
    if compound.minor > 0 {
        compound.consume_current();
    }
    Ok(())
}

/// Kerberos version 5, 1.2.840.113554.1.2.2 (RFC 4121 §1), as the contents of its DER encoding.
const KERBEROS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];

/// Writes the flavors, "the most preferred being first" (§18.29.3).
pub(super) fn put_flavors(flavors: Flavors, reply: &mut Writer) {
    let allowed = flavors.allowed();
    reply.u32(allowed.iter().count() as u32);
    allowed.iter().for_each(|flavor| sec_info(flavor).encode(reply));
}

fn sec_info(flavor: Flavor) -> SecInfo {
    let service = match flavor {
        Flavor::None => return SecInfo::Flavor(AUTH_NONE),
        Flavor::Sys => return SecInfo::Flavor(AUTH_SYS),
        Flavor::Kerberos(Service::None) => GssService::None,
        Flavor::Kerberos(Service::Integrity) => GssService::Integrity,
        Flavor::Kerberos(Service::Privacy) => GssService::Privacy,
    };
    // RFC 2743 §2.3: the default quality of protection is 0.
    SecInfo::Gss(GssInfo { oid: Opaque::from_static(KERBEROS), qop: 0, service })
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
    fn finds_the_same_names_as_lookup() {
        let mut lab = lab();
        assert_eq!(lab.status_at(&["export"], secinfo("absent")), Status::NOENT);
        assert_eq!(lab.status_at(&[], secinfo("absent")), Status::NOENT);
        assert_eq!(lab.status_at(&[], secinfo("")), Status::INVAL);
    }

    #[test]
    fn version_4_0_keeps_the_handle() {
        let mut lab = crate::testing::minor0::v40_lab();
        assert_eq!(lab.status(at(&["export"], vec![secinfo("file"), Op::GetFh])), Status::OK);
    }
}
