//! MOUNT versions 1 (RFC 1094 appendix A), 2 and 3 (RFC 1813 §5): one procedure, one file. The list of mounts is only for information; nothing
//! depends on it.

mod export;
mod list;
mod mnt;
mod pathconf;
#[cfg(test)]
mod tests;

pub(crate) use list::MountTable;
use protocol::mount::{DirPath, MountStat, Proc, VERSION_2, VERSION_3};
use xdr::{Decode, Encode, Reader, Writer};

use crate::request::{Request, Served};

/// Serves a procedure of a version; the arguments are read from `arguments`, the results appended to `reply`.
pub(crate) async fn procedure(
    request: &Request<'_>,
    table: &MountTable,
    (version, procedure): (u32, u32),
    mut arguments: Reader,
    reply: &mut Writer,
) -> Served {
    let client = request.connection.peer.ip();
    let is_error = match Proc(procedure) {
        Proc::NULL => false,
        Proc::MNT => {
            let Ok(path) = DirPath::decode(&mut arguments) else { return Served::GarbageArguments };
            mnt::serve(request, table, (version, &path), reply).await != MountStat::OK
        }
        Proc::DUMP => {
            table.list().encode(reply);
            false
        }
        Proc::UMNT => {
            let Ok(path) = DirPath::decode(&mut arguments) else { return Served::GarbageArguments };
            table.remove(client, &path);
            false
        }
        Proc::UMNTALL => {
            table.remove_all(client);
            false
        }
        Proc::EXPORT => {
            export::list(request).encode(reply);
            false
        }
        Proc::EXPORTALL if version < VERSION_3 => {
            export::list(request).encode(reply);
            false
        }
        Proc::PATHCONF if version == VERSION_2 => {
            let Ok(path) = DirPath::decode(&mut arguments) else { return Served::GarbageArguments };
            pathconf::serve(request, &path, reply).await
        }
        _ => return Served::NoProcedure,
    };
    request.server.metrics.mount[procedure as usize].count(is_error);
    Served::Done { is_error }
}
