//! BACKCHANNEL_CTL (RFC 8881 §18.33): changes the program number or security of callbacks.

use protocol::nfs4::ops::backchannel::{BackchannelCtlArgs, CallbackSecParms, SecParmsList};
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let BackchannelCtlArgs { program, sec_parms } = BackchannelCtlArgs::decode(arguments)?;
    compound.client()?.admit(OpNum::BACKCHANNEL_CTL, &compound.credential())?;
    // RFC 8881 §18.33.3: "If the RPCSEC_GSS handle identified by gcbp_handle_from_server does not exist on the server, the
    // server MUST return NFS4ERR_NOENT."
    if !has_contexts(compound, &sec_parms) {
        return Err(Status::NOENT.into());
    }
    let session = compound.session().ok_or(Status::OP_NOT_IN_SESSION)?;
    compound.state().control_back_channel(session, program, &sec_parms);
    Ok(())
}

/// Returns whether every GSS context that is offered for callbacks exists. None is used: see the back channel's `credential`.
pub(super) fn has_contexts(compound: &Compound<'_>, offered: &SecParmsList) -> bool {
    let gss = compound.server().gss.as_ref();
    let exists = |handle: &[u8]| gss.is_some_and(|gss| gss.contexts.has(handle, compound.now()));
    offered.iter().all(|parms| match parms {
        CallbackSecParms::Gss(handles) => exists(&handles.handle_from_server),
        CallbackSecParms::None | CallbackSecParms::Sys(_) => true,
    })
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
    fn replaces_the_program_and_finds_no_context_without_gss() {
        let mut lab = lab();
        let with = |parms| {
            let sec_parms = List::new(vec![parms]).unwrap();
            Op::BackchannelCtl(BackchannelCtlArgs { program: 0x4000_0001, sec_parms })
        };
        assert_eq!(lab.server.shared.state.callback_program(&lab.session), Some(0x4000_0000));
        assert_eq!(lab.status(vec![with(CallbackSecParms::None)]), Status::OK);
        assert_eq!(lab.server.shared.state.callback_program(&lab.session), Some(0x4000_0001));
        let gss = CallbackSecParms::Gss(GssCallbackHandles {
            service: GssService::None,
            handle_from_server: Default::default(),
            handle_from_client: Default::default(),
        });
        assert_eq!(lab.status(vec![with(gss)]), Status::NOENT);
    }
}
