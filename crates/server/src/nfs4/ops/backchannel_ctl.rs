//! BACKCHANNEL_CTL (RFC 8881 §18.33): another program number or security for callbacks.

use protocol::nfs4::ops::backchannel::{BackchannelCtlArgs, CallbackSecParms};
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Reader};

use crate::nfs4::compound::Compound;
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let BackchannelCtlArgs { program, sec_parms } = BackchannelCtlArgs::decode(arguments)?;
    compound.client()?.admit(OpNum::BACKCHANNEL_CTL, &compound.credential())?;
    // "If the RPCSEC_GSS handle identified by gcbp_handle_from_server does not exist on the server, the server MUST
    // return NFS4ERR_NOENT" (§18.33.3): none does.
    if sec_parms.iter().any(|parms| matches!(parms, CallbackSecParms::Gss(_))) {
        return Err(Status::NOENT.into());
    }
    // RFC 8881 §18.33.3: "The BACKCHANNEL_CTL operation replaces the backchannel's callback program number".
    compound.session().ok_or(Status::OP_NOT_IN_SESSION)?.control_back_channel(program, &sec_parms);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::backchannel::GssCallbackHandles;
    use protocol::nfs4::ops::secinfo::GssService;
    use xdr::List;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn replaces_the_program_and_knows_no_gss_handle() {
        let mut lab = lab();
        let with = |parms| {
            let sec_parms = List::new(vec![parms]).unwrap();
            Op::BackchannelCtl(BackchannelCtlArgs { program: 0x4000_0001, sec_parms })
        };
        assert_eq!(lab.server.nfs4.callback_program(&lab.session), Some(0x4000_0000));
        assert_eq!(lab.status(vec![with(CallbackSecParms::None)]), Status::OK);
        assert_eq!(lab.server.nfs4.callback_program(&lab.session), Some(0x4000_0001));
        let gss = CallbackSecParms::Gss(GssCallbackHandles {
            service: GssService::None,
            handle_from_server: Default::default(),
            handle_from_client: Default::default(),
        });
        assert_eq!(lab.status(vec![with(gss)]), Status::NOENT);
    }
}
