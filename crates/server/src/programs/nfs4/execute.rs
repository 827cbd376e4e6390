//! The dispatch of operations to functions: one exhaustive match, so that a forgotten operation does not compile.
//!
//! An operation runs in place where it can. One that may have to wait for a backend becomes a [`Pending`], which the compound's
//! future finishes: only compounds that wait need a future.

use protocol::nfs4::types::{Opcode, Status};
use vfs::{Attributes, Later, Read, boxed};
use xdr::{Reader, Writer};

use super::compound::Compound;
use super::in_place::InPlace;
use super::ops::{self, open::StartedOpen};
use super::status::Result;

/// The progress of an operation.
pub(crate) enum Execution<'r> {
    /// Its results are written.
    Done,
    /// It has to wait: nothing is written, and no arguments are read.
    Pending(Pending<'r>),
}

/// An operation that waits for a backend.
pub(crate) enum Pending<'r> {
    Getattr(Option<Later<'r, Attributes>>),
    Read(Option<Later<'r, Read>>),
    Open(Option<StartedOpen<'r>>),
    Access,
    Commit,
    Lookup,
    Remove,
    Write,
    /// An operation that is rare or long: its future is allocated, so that the future of the others stays small.
    Rare(Rare),
}

/// A rare operation that waits for a backend.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rare {
    Allocate,
    Clone,
    Copy,
    CopyNotify,
    Create,
    Deallocate,
    GetDirDelegation,
    Getxattr,
    IoAdvise,
    Link,
    Listxattrs,
    Lockt,
    Lookupp,
    Nverify,
    OffloadCancel,
    Openattr,
    ReadPlus,
    Readdir,
    Readlink,
    Removexattr,
    Rename,
    Secinfo,
    SecinfoNoName,
    Seek,
    Setattr,
    Setxattr,
    Verify,
    WantDelegation,
    WriteSame,
}

impl<'r> Compound<'r> {
    /// Executes an operation, in place where it needs no wait.
    pub(crate) fn execute(
        &mut self,
        opcode: Opcode,
        arguments: &mut Reader,
        reply: &mut Writer,
    ) -> Result<Execution<'r>> {
        let rare = |rare| Ok(Execution::Pending(Pending::Rare(rare)));
        let done = match opcode {
            Opcode::BackchannelCtl => ops::backchannel_ctl::run(self, arguments),
            Opcode::BindConnToSession => ops::bind_conn_to_session::run(self, arguments, reply),
            Opcode::Close => ops::close::run(self, arguments, reply),
            Opcode::CreateSession => ops::create_session::run(self, arguments, reply),
            Opcode::Delegpurge => ops::delegpurge::run(arguments),
            Opcode::Delegreturn => ops::delegreturn::run(self, arguments),
            Opcode::DestroyClientid => ops::destroy_clientid::run(self, arguments),
            Opcode::DestroySession => ops::destroy_session::run(self, arguments),
            Opcode::ExchangeId => ops::exchange_id::run(self, arguments, reply),
            Opcode::FreeStateid => ops::free_stateid::run(self, arguments),
            Opcode::Getfh => ops::getfh::run(self, reply),
            Opcode::Lock => ops::lock::run(self, arguments, reply),
            Opcode::Locku => ops::locku::run(self, arguments, reply),
            Opcode::OffloadStatus => ops::offload_status::run(self, arguments, reply),
            Opcode::OpenConfirm => ops::open_confirm::run(self, arguments, reply),
            Opcode::OpenDowngrade => ops::open_downgrade::run(self, arguments, reply),
            Opcode::Putfh => ops::putfh::run(self, arguments).and_then(|()| self.check_put(arguments)),
            Opcode::Putpubfh => ops::putpubfh::run(self).and_then(|()| self.check_put(arguments)),
            Opcode::Putrootfh => ops::putrootfh::run(self).and_then(|()| self.check_put(arguments)),
            Opcode::ReclaimComplete => ops::reclaim_complete::run(self, arguments),
            Opcode::ReleaseLockowner => ops::release_lockowner::run(self, arguments),
            Opcode::Renew => ops::renew::run(self, arguments),
            Opcode::Restorefh => ops::restorefh::run(self).and_then(|()| self.check_put(arguments)),
            Opcode::Savefh => ops::savefh::run(self),
            Opcode::Sequence => ops::sequence::run(self, arguments, reply),
            Opcode::SetSsv => ops::set_ssv::run(arguments),
            Opcode::Setclientid => ops::setclientid::run(self, arguments, reply),
            Opcode::SetclientidConfirm => ops::setclientid_confirm::run(self, arguments),
            Opcode::TestStateid => ops::test_stateid::run(self, arguments, reply),

            Opcode::Getattr => {
                return tried(arguments, Pending::Getattr, |arguments| {
                    ops::getattr::run_in_place(self, arguments, reply)
                });
            }
            Opcode::Open => {
                return tried(arguments, Pending::Open, |arguments| {
                    ops::open::run_in_place(self, arguments, reply)
                });
            }
            Opcode::Read => {
                return tried(arguments, Pending::Read, |arguments| {
                    ops::read::run_in_place(self, arguments, reply)
                });
            }

            Opcode::Access => return Ok(Execution::Pending(Pending::Access)),
            Opcode::Commit => return Ok(Execution::Pending(Pending::Commit)),
            Opcode::Lookup => return Ok(Execution::Pending(Pending::Lookup)),
            Opcode::Remove => return Ok(Execution::Pending(Pending::Remove)),
            Opcode::Write => return Ok(Execution::Pending(Pending::Write)),

            Opcode::Allocate => return rare(Rare::Allocate),
            Opcode::Clone => return rare(Rare::Clone),
            Opcode::Copy => return rare(Rare::Copy),
            Opcode::CopyNotify => return rare(Rare::CopyNotify),
            Opcode::Create => return rare(Rare::Create),
            Opcode::Deallocate => return rare(Rare::Deallocate),
            Opcode::GetDirDelegation => return rare(Rare::GetDirDelegation),
            Opcode::Getxattr => return rare(Rare::Getxattr),
            Opcode::IoAdvise => return rare(Rare::IoAdvise),
            Opcode::Link => return rare(Rare::Link),
            Opcode::Listxattrs => return rare(Rare::Listxattrs),
            Opcode::Lockt => return rare(Rare::Lockt),
            Opcode::Lookupp => return rare(Rare::Lookupp),
            Opcode::Nverify => return rare(Rare::Nverify),
            Opcode::OffloadCancel => return rare(Rare::OffloadCancel),
            Opcode::Openattr => return rare(Rare::Openattr),
            Opcode::ReadPlus => return rare(Rare::ReadPlus),
            Opcode::Readdir => return rare(Rare::Readdir),
            Opcode::Readlink => return rare(Rare::Readlink),
            Opcode::Removexattr => return rare(Rare::Removexattr),
            Opcode::Rename => return rare(Rare::Rename),
            Opcode::Secinfo => return rare(Rare::Secinfo),
            Opcode::SecinfoNoName => return rare(Rare::SecinfoNoName),
            Opcode::Seek => return rare(Rare::Seek),
            Opcode::Setattr => return rare(Rare::Setattr),
            Opcode::Setxattr => return rare(Rare::Setxattr),
            Opcode::Verify => return rare(Rare::Verify),
            Opcode::WantDelegation => return rare(Rare::WantDelegation),
            Opcode::WriteSame => return rare(Rare::WriteSame),

            // RFC 8881 §15.1.1.5: operations that exist and are not supported here.
            Opcode::Getdeviceinfo
            | Opcode::Getdevicelist
            | Opcode::Layoutcommit
            | Opcode::Layouterror
            | Opcode::Layoutget
            | Opcode::Layoutreturn
            | Opcode::Layoutstats => Err(Status::NOTSUPP.into()),
        };
        done.map(|()| Execution::Done)
    }

    /// Executes an operation that waits for a backend.
    pub(crate) async fn finish(
        &mut self,
        pending: Pending<'r>,
        arguments: &mut Reader,
        reply: &mut Writer,
    ) -> Result {
        match pending {
            Pending::Getattr(call) => ops::getattr::run(self, call, arguments, reply).await,
            Pending::Read(call) => ops::read::run(self, call, arguments, reply).await,
            Pending::Access => ops::access::run(self, arguments, reply).await,
            Pending::Commit => ops::commit::run(self, arguments, reply).await,
            Pending::Lookup => ops::lookup::run(self, arguments).await,
            Pending::Write => ops::write::run(self, arguments, reply).await,
            // Allocated separately: they are frequent, and much smaller than the largest of the rare ones.
            Pending::Open(call) => boxed(|| ops::open::run(self, call, arguments, reply)).await,
            Pending::Remove => boxed(|| ops::remove::run(self, arguments, reply)).await,
            Pending::Rare(rare) => boxed(|| self.finish_rare(rare, arguments, reply)).await,
        }
    }

    async fn finish_rare(&mut self, rare: Rare, arguments: &mut Reader, reply: &mut Writer) -> Result {
        match rare {
            Rare::Allocate => ops::allocate::run(self, arguments).await,
            Rare::Clone => ops::clone::run(self, arguments).await,
            Rare::Copy => ops::copy::run(self, arguments, reply).await,
            Rare::CopyNotify => ops::copy_notify::run(self, arguments, reply).await,
            Rare::Create => ops::create::run(self, arguments, reply).await,
            Rare::Deallocate => ops::deallocate::run(self, arguments).await,
            Rare::GetDirDelegation => ops::get_dir_delegation::run(self, arguments, reply).await,
            Rare::Getxattr => ops::getxattr::run(self, arguments, reply).await,
            Rare::IoAdvise => ops::io_advise::run(self, arguments, reply).await,
            Rare::Link => ops::link::run(self, arguments, reply).await,
            Rare::Listxattrs => ops::listxattrs::run(self, arguments, reply).await,
            Rare::Lockt => ops::lockt::run(self, arguments, reply).await,
            Rare::Lookupp => ops::lookupp::run(self).await,
            Rare::Nverify => ops::nverify::run(self, arguments).await,
            Rare::OffloadCancel => ops::offload_cancel::run(self, arguments).await,
            Rare::Openattr => ops::openattr::run(self, arguments).await,
            Rare::ReadPlus => ops::read_plus::run(self, arguments, reply).await,
            Rare::Readdir => ops::readdir::run(self, arguments, reply).await,
            Rare::Readlink => ops::readlink::run(self, reply).await,
            Rare::Removexattr => ops::removexattr::run(self, arguments, reply).await,
            Rare::Rename => ops::rename::run(self, arguments, reply).await,
            Rare::Secinfo => ops::secinfo::run(self, arguments, reply).await,
            Rare::SecinfoNoName => ops::secinfo_no_name::run(self, arguments, reply).await,
            Rare::Seek => ops::seek::run(self, arguments, reply).await,
            Rare::Setattr => ops::setattr::run(self, arguments, reply).await,
            Rare::Setxattr => ops::setxattr::run(self, arguments, reply).await,
            Rare::Verify => ops::verify::run(self, arguments).await,
            Rare::WantDelegation => ops::want_delegation::run(self, arguments, reply).await,
            Rare::WriteSame => ops::write_same::run(self, arguments, reply).await,
        }
    }
}

/// Tries an operation in place. If it has to wait, its arguments are read again.
fn tried<'r, T>(
    arguments: &mut Reader,
    pending: impl FnOnce(Option<T>) -> Pending<'r>,
    run_in_place: impl FnOnce(&mut Reader) -> Result<InPlace<T>>,
) -> Result<Execution<'r>> {
    let start = arguments.position();
    Ok(match run_in_place(arguments)? {
        InPlace::Done => Execution::Done,
        InPlace::Pending(call) => {
            arguments.rewind(start);
            Execution::Pending(pending(call))
        }
    })
}
