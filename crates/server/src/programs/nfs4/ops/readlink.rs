//! READLINK (RFC 8881 §18.24).

use protocol::nfs4::types::Status;
use xdr::Writer;

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, reply: &mut Writer) -> Result {
    let file = compound.file(Status::WRONG_TYPE)?;
    let context = compound.context(file.export);
    match file.export.backend.readlink(&context, &file.handle).await {
        Ok((text, attributes)) => {
            reply.opaque(&text);
            compound.set_fresh(attributes);
            Ok(())
        }
        // RFC 8881 §15.1.2.9: "an invalid type for the current operation"; version 4.0 has INVAL.
        Err(vfs::Error::Invalid) => Err(Status::WRONG_TYPE.into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::types::Status;
    use xdr::Opaque;

    use crate::testing::{at, lab, mode, name};

    #[test]
    fn returns_the_text_unchanged() {
        let mut lab = lab();
        let text = Opaque::from_static(b"../any \xff text");
        let link = CreateArgs {
            object_type: CreateType::Link(text.clone()),
            name: name("link"),
            attributes: mode(0o777),
        };
        lab.ok(at(&["export"], vec![Op::Create(link)]));
        let read = lab.last(at(&["export", "link"], vec![Op::ReadLink]));
        assert_eq!(read, OpResult::ReadLink(Ok(text).into()));
    }

    #[test]
    fn only_symbolic_links_have_a_text() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        for path in [&["export", "file"][..], &["export"], &[]] {
            assert_eq!(lab.status_at(path, Op::ReadLink), Status::WRONG_TYPE);
        }
    }
}
