use protocol::nfs3::{CreateOk, DeviceData, MknodArgs, MknodData, NfsStat, Outcome, WccData};
use vfs::{Create, Device};
use xdr::Writer;

use super::create::create;
use crate::nfs3_reply::{answer, resolve_writable};
use crate::request::Request;

/// MKNOD (RFC 1813 §3.3.11).
pub(super) async fn serve(request: &Request<'_>, args: MknodArgs, reply: &mut Writer) -> NfsStat {
    let device = |data: &DeviceData| Device { major: data.spec.major, minor: data.spec.minor };
    let (what, attributes) = match &args.what {
        MknodData::CharacterDevice(data) => (Create::CharDevice(device(data)), data.dev_attributes),
        MknodData::BlockDevice(data) => (Create::BlockDevice(device(data)), data.dev_attributes),
        MknodData::Socket(attributes) => (Create::Socket, *attributes),
        MknodData::Fifo(attributes) => (Create::Fifo, *attributes),
        // "NFS3ERR_BADTYPE": regular files, directories and links have procedures of their own.
        MknodData::Other(_) => {
            let wcc = match resolve_writable(request, &args.where_.dir) {
                Ok(target) => target.wcc().await,
                Err(status) => {
                    return answer(reply, &Outcome::<CreateOk, _>::Fail(status, WccData::default()));
                }
            };
            return answer(reply, &Outcome::<CreateOk, _>::Fail(NfsStat::BADTYPE, wcc));
        }
    };
    create(request, &args.where_, &what, &attributes, reply).await
}
