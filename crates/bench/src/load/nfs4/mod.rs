//! NFSv4.1 and 4.2: a session for each connection, and requests that use all its slots.

mod create_remove;
mod getattr;
mod lock_unlock;
mod open_read_close;
mod readdir;
mod session;
mod slots;

use protocol::nfs4;
use protocol::nfs4::attributes::number;
use protocol::nfs4::ops::open::{DelegationWant, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::types::{Bitmap, Component, StateOwner};
use tokio::net::TcpStream;
use xdr::Opaque;

pub use self::session::session_config;
pub(super) use self::session::{Session, end_all};
use self::session::{Setup, carrier};
pub use self::slots::arguments;
use super::LoadPlan;
use super::caller::Caller;
use super::template::Program;
use super::workload::Workload;
use crate::error::LoadError;
use crate::operation::Operation;

/// Version 4.
pub const NFS4: Program = Program { number: nfs4::PROGRAM, version: nfs4::VERSION };

/// The attributes that a Linux client requests for stat: those of a fattr3, the change attribute, the mounted-on file ID.
pub const ATTRIBUTES: Bitmap = Bitmap::of(&[
    number::TYPE,
    number::CHANGE,
    number::SIZE,
    number::FSID,
    number::FILEID,
    number::MODE,
    number::NUMLINKS,
    number::OWNER,
    number::OWNER_GROUP,
    number::RAWDEV,
    number::SPACE_USED,
    number::TIME_ACCESS,
    number::TIME_METADATA,
    number::TIME_MODIFY,
    number::MOUNTED_ON_FILEID,
]);

/// Connects, creates a session with as many slots as the plan's depth, and prepares the operation.
///
/// `connection` makes names and ranges differ between connections.
///
/// # Errors
/// If the server cannot be reached, or refuses a request.
pub(super) async fn connect(
    plan: &LoadPlan,
    minor_version: u32,
    connection: u32,
) -> Result<(TcpStream, Session, Box<dyn Workload>), LoadError> {
    let mut carrier = carrier(Caller::connect(plan.server).await?.into_stream());
    let mut session = Session::open(&mut carrier, plan, minor_version).await?;
    let mut setup = Setup::new(plan, connection, &mut carrier, &mut session);
    let workload: Box<dyn Workload> = match plan.operation {
        Operation::SequenceGetattr41 => Box::new(getattr::SequenceGetattr::new(&mut setup).await?),
        Operation::OpenReadClose41 | Operation::OpenReadClose42 => {
            Box::new(open_read_close::OpenReadClose::new(&mut setup).await?)
        }
        Operation::CreateRemove41 | Operation::CreateRemove42 => {
            Box::new(create_remove::CreateRemove::new(&mut setup).await?)
        }
        Operation::LockUnlock41 | Operation::LockUnlock42 => {
            Box::new(lock_unlock::LockUnlock::new(&mut setup).await?)
        }
        Operation::Readdir41 | Operation::Readdir42 => Box::new(readdir::Readdir::new(&mut setup).await?),
        other => unreachable!("{other} is not an operation of version 4"),
    };
    Ok((carrier.into_stream(), session, workload))
}

/// Returns a name of this generator.
///
/// # Panics
/// If it is longer than names may be.
#[must_use]
pub fn component(name: &str) -> Component {
    Opaque::new(name.to_owned().into_bytes()).expect("the names are short")
}

/// Returns the open- or lock-owner of a slot: one of its own, as for each process of a client, so that no slot changes the state
/// of another. RFC 8881 §18.16.3: the client id in it is ignored, the session names the client.
fn owner(slot: usize) -> StateOwner {
    StateOwner {
        client_id: 0,
        owner: Opaque::new((slot as u64).to_be_bytes().to_vec()).expect("eight bytes"),
    }
}

/// OPEN of a name in the current directory by the owner of `slot`. No delegation is requested: there is no back channel.
#[must_use]
pub fn open(slot: usize, share_access: ShareAccess, how: OpenHow, name: Component) -> OpenArgs {
    OpenArgs {
        seqid: 0,
        share_access: share_access.with_want(DelegationWant::NO_DELEG),
        share_deny: ShareDeny::empty(),
        owner: owner(slot),
        how,
        claim: OpenClaim::Null(name),
    }
}
