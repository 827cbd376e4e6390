//! COPY_NOTIFY (RFC 7862 §15.3): permits another server to read a file for the client.
//!
//! The server must be configured for it, only the address that the client names may read, and the export must admit that address.

use core::net::{IpAddr, SocketAddr};

use protocol::nfs4::ops::copy::{CopyNotifyArgs, CopyNotifyOk};
use protocol::nfs4::types::{NetAddress, NetLocation, Stateid, Status, Time, Utf8};
use rpc::address::{NetId, UniversalAddress};
use vfs::{Access, Authority};
use xdr::{Decode, Encode, List, Reader, Writer};

use crate::files::object::File;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;
use crate::state::{CopyNotify, IoKind};

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let CopyNotifyArgs { source_stateid, destination_server } = CopyNotifyArgs::decode(arguments)?;
    if !compound.server().settings().copy_source {
        return Err(Status::NOTSUPP.into());
    }
    let file = compound.file(Status::WRONG_TYPE)?;
    let stateid = compound.stateid(source_stateid)?;
    // "The cna_src_stateid MUST refer to either open or locking states provided earlier by the server."
    if stateid.is_special() {
        return Err(Status::BAD_STATEID.into());
    }
    // Not `compound.check_io`: it accepts COPY_NOTIFY stateids, which must not permit access by further servers.
    let (state, client, key) = (compound.state(), compound.client()?, file.key(compound.server()));
    let permit = state.check_io(compound.now(), client, key, &stateid, IoKind::Read)?;
    // Another user's open, or a write-only open that a delegation widened, needs a check: the other server reads by this permission.
    if permit.for_caller(compound.caller()).authority != Authority::Opened {
        may_read(compound, &file).await?;
    }
    // Only addresses are accepted: host names would need a lookup.
    let reader = address(&destination_server).ok_or(Status::NOTSUPP)?;
    let request = CopyNotify {
        client: std::sync::Arc::clone(compound.client()?),
        caller: compound.caller(),
        file: file.key(compound.server()),
        stateid: Stateid { seqid: 0, ..stateid },
        reader,
    };
    let (stateid, lease) = compound.state().add_copy_notify(compound.now(), request)?;
    let lease_time = Time { seconds: lease.as_secs().cast_signed(), nanoseconds: lease.subsec_nanos() };
    let source_servers = List::new(vec![here(compound)]).unwrap_or_default();
    CopyNotifyOk { lease_time, stateid, source_servers }.encode(reply);
    Ok(())
}

/// Checks that the caller may read the file without an open.
async fn may_read(compound: &mut Compound<'_>, file: &File<'_>) -> Result {
    let context = compound.context(file.export);
    let (granted, attributes) = file.export.backend.access(&context, &file.handle, Access::READ).await?;
    compound.set_fresh(attributes);
    if granted.contains(Access::READ) { Ok(()) } else { Err(Status::ACCESS.into()) }
}

fn address(location: &NetLocation) -> Option<IpAddr> {
    let NetLocation::Address(address) = location else { return None };
    NetId::from_bytes(&address.netid)?;
    let address = UniversalAddress::from_bytes(&address.address).ok()?;
    Some(address.0.ip().to_canonical())
}

/// Returns the address at which the client reached this server.
fn here(compound: &Compound<'_>) -> NetLocation {
    let local = compound.request.connection.local;
    // A dual-stack listener reports IPv4 addresses as mapped into IPv6; other hosts cannot connect to those.
    let local = SocketAddr::new(local.ip().to_canonical(), local.port());
    let text = |text: String| Utf8::new(text).unwrap_or_default();
    NetLocation::Address(NetAddress {
        netid: text(NetId::tcp(&local).as_str().to_owned()),
        address: text(UniversalAddress(local).to_string()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::close::CloseArgs;
    use protocol::nfs4::ops::copy::OffloadArgs;
    use protocol::nfs4::ops::open::ShareAccess;
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::setattr::SetAttrArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{Handle, StableHow};
    use xdr::Opaque;

    use super::*;
    use crate::programs::nfs4::tests::delegations::hold;
    use crate::testing::{Lab, export, lab_42, lab_with, mode, putfh};
    use crate::{Connection, Transport};

    /// The address of all test clients, and another one.
    const READER: &[u8] = b"127.0.0.1.8.1";
    const ELSEWHERE: &[u8] = b"192.0.2.7.8.1";

    fn scene() -> (Lab, Lab, Handle, Stateid) {
        let mut lab = lab_with(vec![export(1, "/export")], |settings| settings.copy_source = true);
        lab.minor = 2;
        lab.file(&["export", "file"], b"content");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let mut reader = lab.other(b"the other server");
        reader.minor = 2;
        (lab, reader, file, stateid)
    }

    fn notify(source_stateid: Stateid, address: &'static [u8]) -> Op {
        let (netid, address) = (Utf8::from_static(b"tcp"), Utf8::from_static(address));
        let destination_server = NetLocation::Address(NetAddress { netid, address });
        Op::CopyNotify(CopyNotifyArgs { source_stateid, destination_server })
    }

    fn promised(lab: &mut Lab, file: Handle, stateid: Stateid, address: &'static [u8]) -> CopyNotifyOk {
        match lab.last(vec![putfh(file), notify(stateid, address)]) {
            OpResult::CopyNotify(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn read(file: Handle, stateid: Stateid) -> Vec<Op> {
        vec![putfh(file), Op::Read(ReadArgs { stateid, offset: 0, count: 100 })]
    }

    #[test]
    fn the_named_server_reads_by_its_own_stateid() {
        let (mut lab, mut reader, file, open) = scene();
        assert_eq!(reader.status(read(file, open)), Status::BAD_STATEID);
        let ok = promised(&mut lab, file, open, READER);
        assert_eq!((ok.lease_time.seconds, ok.source_servers.len()), (90, 1));
        assert_ne!(ok.stateid.seqid, 0);
        let NetLocation::Address(source) = &ok.source_servers[0] else { panic!("{ok:?}") };
        assert_eq!((&source.netid[..], &source.address[..]), (&b"tcp"[..], &b"127.0.0.1.8.1"[..]));
        // The mode does not matter for the other server's user: it reads for the client's user.
        reader.uid = 4242;
        let OpResult::Read(result) = reader.last(read(file, ok.stateid)) else { panic!("READ") };
        assert_eq!(&result.into_result().unwrap().data[..], b"content");
        let (stable, data) = (StableHow::FileSync, Opaque::from_static(b"x"));
        let write = Op::Write(WriteArgs { stateid: ok.stateid, offset: 0, stable, data });
        assert_eq!(reader.status(vec![putfh(file), write]), Status::BAD_STATEID);
        let other = lab.file(&["export", "other"], b"secret");
        assert_eq!(reader.status(read(other, ok.stateid)), Status::BAD_STATEID, "only the named file");
        assert_eq!(promised(&mut lab, file, open, READER).stateid, ok.stateid, "renewed");
        let elsewhere = promised(&mut lab, file, open, ELSEWHERE);
        assert_ne!(elsewhere.stateid, ok.stateid);
        assert_eq!(
            reader.status(read(file, elsewhere.stateid)),
            Status::BAD_STATEID,
            "only the named server"
        );
    }

    #[test]
    fn names_its_ipv4_address_on_a_dual_stack_listener() {
        let (mut lab, _, file, open) = scene();
        let mapped = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
            IpAddr::V6(_) => panic!("{address}"),
        };
        let Connection { id, peer, local, .. } = *lab.connection;
        let connection = Connection::new(id, mapped(peer), mapped(local), Transport::Tcp, false);
        lab.connection = Arc::new(connection);
        let ok = promised(&mut lab, file, open, READER);
        let NetLocation::Address(source) = &ok.source_servers[0] else { panic!("{ok:?}") };
        assert_eq!((&source.netid[..], &source.address[..]), (&b"tcp"[..], &b"127.0.0.1.8.1"[..]));
    }

    #[test]
    fn the_permission_ends_by_time_close_or_cancel() {
        let (mut lab, mut reader, file, open) = scene();
        let ok = promised(&mut lab, file, open, READER);
        // A copy that starts in time continues.
        for seconds in [80, 160] {
            (lab.seconds, reader.seconds) = (seconds, seconds);
            lab.ok(vec![putfh(file)]);
            assert_eq!(reader.status(read(file, ok.stateid)), Status::OK);
        }
        let cancel = vec![putfh(file), Op::OffloadCancel(OffloadArgs { stateid: ok.stateid })];
        assert_eq!(reader.status(cancel.clone()), Status::BAD_STATEID, "it is not the reader's");
        assert_eq!(lab.status(cancel.clone()), Status::OK);
        assert_eq!(lab.status(cancel), Status::BAD_STATEID);
        assert_eq!(reader.status(read(file, ok.stateid)), Status::BAD_STATEID);
        let late = promised(&mut lab, file, open, READER);
        reader.seconds += 90;
        assert_eq!(reader.status(read(file, late.stateid)), Status::PARTNER_NO_AUTH);
        lab.seconds = reader.seconds;
        let closed = promised(&mut lab, file, open, READER);
        let close = Op::Close(CloseArgs { seqid: 0, open_stateid: open });
        assert_eq!(lab.status(vec![putfh(file), close]), Status::OK);
        assert_eq!(reader.status(read(file, closed.stateid)), Status::PARTNER_NO_AUTH);
    }

    #[test]
    fn a_write_only_open_with_a_delegation_needs_read_permission() {
        let (mut lab, mut reader, ..) = scene();
        let file = lab.file(&["export", "written"], b"content");
        let mut writer = lab.reachable(b"writer", 11);
        writer.minor = 2;
        let delegation = hold(&mut writer, "written", ShareAccess::WRITE);
        let ok = promised(&mut writer, file, delegation, READER);
        // The reader acts as the client's user, regardless of its own credential.
        reader.uid = 4242;
        assert_eq!(reader.status(read(file, ok.stateid)), Status::OK);
    }

    #[test]
    fn permissions_are_bounded_and_end_with_their_client() {
        let (mut lab, mut reader, file, open) = scene();
        let first = promised(&mut lab, file, open, READER);
        let names = (0..).map(|number| {
            let address = Utf8::new(format!("192.0.2.{number}.8.1")).unwrap();
            let destination_server =
                NetLocation::Address(NetAddress { netid: Utf8::from_static(b"tcp"), address });
            Op::CopyNotify(CopyNotifyArgs { source_stateid: open, destination_server })
        });
        let statuses = names.map(|op| lab.status(vec![putfh(file), op])).take(70);
        let statuses: Vec<_> = statuses.collect();
        assert_eq!(statuses.iter().filter(|status| **status == Status::OK).count(), 63);
        assert_eq!(statuses.last(), Some(&Status::DELAY));
        assert_eq!(reader.status(read(file, first.stateid)), Status::OK);
        lab.server.evict(lab.now(), "client").unwrap();
        assert_eq!(reader.status(read(file, first.stateid)), Status::BAD_STATEID);
    }

    #[test]
    fn refuses_invalid_stateids_and_addresses() {
        let mut lab = lab_42();
        lab.file(&["export", "file"], b"content");
        let (file, open) = lab.open(&["export", "file"], b"owner");
        assert_eq!(lab.status(vec![putfh(file), notify(open, READER)]), Status::NOTSUPP, "unless configured");
        let (mut lab, _, file, open) = scene();
        let special = notify(Stateid::ANONYMOUS, READER);
        assert_eq!(lab.status(vec![putfh(file), special]), Status::BAD_STATEID);
        let destination_server = NetLocation::Name(Utf8::from_static(b"elsewhere"));
        let named = Op::CopyNotify(CopyNotifyArgs { source_stateid: open, destination_server });
        assert_eq!(lab.status(vec![putfh(file), named]), Status::NOTSUPP);
        assert_eq!(lab.status(vec![putfh(file), notify(open, b"no address")]), Status::NOTSUPP);
        lab.ok(vec![putfh(file), Op::SetAttr(SetAttrArgs { stateid: open, attributes: mode(0o600) })]);
        lab.uid = 1000;
        assert_eq!(
            lab.status(vec![putfh(file), notify(open, READER)]),
            Status::ACCESS,
            "another user's open"
        );
        assert_eq!(lab.status_at(&[], notify(open, READER)), Status::WRONG_TYPE);
    }
}
