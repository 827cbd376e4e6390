//! COMMIT (RFC 8881 §18.3): writes data to stable storage. An fsync error reaches the client.

use protocol::nfs4::types::Status;
use xdr::{Reader, Writer};

use super::read::wrong_kind;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let (offset, count) = (arguments.u64()?, arguments.u32()?);
    // Also on an export that has become read-only: earlier writes must be kept, and RFC 8881 §15.2 does not list ROFS for COMMIT.
    let file = compound.file(Status::ISDIR)?;
    let context = compound.changing_context(file.export);
    let backend = &file.export.backend;
    // RFC 8881 §18.3.3: "If the count is zero, a flush from the offset to the end of the file is done": the backend has the same
    // rule.
    match backend.commit(&context, &file.handle, offset, u64::from(count)).await {
        Ok(_) => {
            reply.opaque_fixed(&backend.write_verifier());
            Ok(())
        }
        Err(error) => Err(wrong_kind(compound, error).await),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::commit::CommitArgs;
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{StableHow, Stateid, Status};
    use xdr::Opaque;

    use crate::testing::{at, lab, mode, name, putfh, read_only};

    const WHOLE: Op = Op::Commit(CommitArgs { offset: 0, count: 0 });

    #[test]
    fn returns_the_verifier_of_writes() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"");
        let write = Op::Write(WriteArgs {
            stateid: Stateid::ANONYMOUS,
            offset: 0,
            stable: StableHow::Unstable,
            data: Opaque::from_static(b"data"),
        });
        let results = lab.ok(vec![putfh(file), write, WHOLE]);
        match &results[1..] {
            [OpResult::Write(write), OpResult::Commit(commit)] => {
                assert_eq!(write.as_result().unwrap().verifier, commit.as_result().unwrap().verifier);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commits_earlier_writes_on_an_export_that_became_read_only() {
        let (mut lab, file) = read_only();
        assert_eq!(lab.status(vec![putfh(file), WHOLE]), Status::OK);
    }

    #[test]
    fn only_regular_files_have_data() {
        let mut lab = lab();
        let fifo = CreateArgs { object_type: CreateType::FIFO, name: name("fifo"), attributes: mode(0o600) };
        lab.ok(at(&["export"], vec![Op::Create(fifo)]));
        assert_eq!(lab.status_at(&["export"], WHOLE), Status::ISDIR);
        assert_eq!(lab.status_at(&["export", "fifo"], WHOLE), Status::WRONG_TYPE);
    }
}
