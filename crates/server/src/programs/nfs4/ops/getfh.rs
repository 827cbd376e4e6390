//! GETFH (RFC 8881 §18.8): returns the current file handle.

use xdr::Writer;

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, reply: &mut Writer) -> Result {
    let object = compound.current()?;
    reply.opaque(&object.seal(&compound.server().settings().handle_key));
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::types::Status;

    use crate::testing::{at, create, lab};

    #[test]
    fn needs_a_current_file_handle() {
        assert_eq!(lab().status(vec![Op::GetFh]), Status::NOFILEHANDLE);
    }

    #[test]
    fn handles_fit_version_3_and_survive_a_restart() {
        let mut before = lab();
        let handle = before.handle(&["export"]);
        assert!(handle.len() <= 64);
        assert_eq!(lab().handle(&[]), before.handle(&[]));
    }

    #[test]
    fn an_opened_file_has_the_handle_of_its_name() {
        let mut lab = lab();
        let result = lab.last(at(&["export"], vec![create("file", b"owner"), Op::GetFh]));
        let OpResult::GetFh(reported) = result else { panic!("{result:?}") };
        let handle = reported.into_result().expect("a handle");
        assert_eq!(handle, lab.handle(&["export", "file"]));
    }
}
