//! COPY from another server (RFC 7862 §4.5): this one reads the source as that one's client.
//!
//! A client that may send COPY chooses the address that this server connects to. So the configuration must permit the address, and
//! the server reads only by a stateid that COPY_NOTIFY returned there: by another one, a client could read files that the source
//! allows for this server's address but not for the client's. One step is made before the reply, so that a client learns at once that
//! its source cannot be read from here, and copies the data itself.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::types::{Handle, NetLocation, Status};
use rpc::address::{NetId, UniversalAddress};
use vfs::{Authority, Context};

use super::{Plan, latest, span};
use crate::copy::inter_server::{Piece, of_source};
use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::{Compound, FileHandle};
use crate::programs::nfs4::ops::allocate::regular_only;
use crate::programs::nfs4::status::Result;
use crate::remote_read::Reading;
use crate::state::{IoKind, Origin};
use crate::{Network, SourceFile};

/// Maximum number of addresses of one source.
const ADDRESSES_MAX: usize = 4;
/// COPYs of one connection that may wait for other servers before their replies. They must leave room for calls that wait for disks
/// and delegations.
const COPYING_MAX: u32 = 8;
/// Time limit of a copy before its reply. Afterwards the rest is copied in the background, or the client requests it.
pub(super) const INLINE_TIME_MAX: Duration = Duration::from_secs(10);
/// Minimum prefix length of a configured network that permits addresses [nearby](is_near), or this machine by the address that
/// clients use: that of 127.0.0.0/8.
const NEAR_BITS: u8 = 8;
/// Bytes of a step of a copy before the reply, for copies that continue in the background.
const INLINE_BYTES: u64 = 1;

/// Checks such a copy without a request to the source.
pub(super) async fn plan<'r>(compound: &Compound<'r>, arguments: &CopyArgs) -> Result<Plan<'r>> {
    let local = compound.request.connection.local.ip();
    let addresses = permitted(&compound.server().settings().copy_from, local, &arguments.source_servers);
    // §11.1.2.1: "the destination is not allowing it for this file"; also if it allows no such copies. After NOTSUPP Linux's client would never
    // send COPY again.
    if addresses.is_empty() {
        return Err(Status::OFFLOAD_DENIED.into());
    }
    // "the ca_src_stateid MUST be the cnr_stateid returned from the earlier COPY_NOTIFY operation" (§15.2.3).
    if arguments.source_stateid.is_special() {
        return Err(Status::BAD_STATEID.into());
    }
    let connection = compound.request.connection;
    let wait_permit = connection.copy_waits.enter(COPYING_MAX).ok_or(Status::DELAY)?;
    let destination = compound.writable(Status::WRONG_TYPE)?;
    let handle = source_handle(compound, &destination)?;
    let stateid = arguments.destination_stateid;
    let changing = compound.announce_change(&destination);
    let permit = compound.admit_io(&destination, stateid, IoKind::Write).await?;
    let credentials = compound.context(destination.export).credentials;
    let source = SourceFile {
        addresses,
        local: connection.local.ip(),
        client: connection.peer.ip(),
        handle,
        stateid: arguments.source_stateid,
        credentials,
    };
    Ok(Plan {
        source: Origin::There(Arc::new(Reading::new(source))),
        span: span(arguments, &destination),
        destination,
        destination_stateid: latest(compound, stateid)?,
        authorities: [Authority::Opened, permit.authority],
        inline_bytes: INLINE_BYTES,
        _permit: Some(wait_permit),
        _changing: changing,
    })
}

/// Copies the next bytes after the first `done` ones; `most` will be copied before the reply. Returns their time of arrival too.
///
/// The source may have taken many seconds, so the right to write is checked again, as for a WRITE that arrives now. No delegation was
/// granted meanwhile, because the change is announced.
pub(super) async fn step(
    compound: &Compound<'_>,
    context: &Context,
    (plan, source): (&Plan<'_>, &Reading),
    (done, most): (u64, u64),
) -> Result<(vfs::Copied, Duration)> {
    let piece = Piece::fetch(&compound.server().fetches, source, &plan.span, (done, most)).await;
    let piece = piece.map_err(|error| of_source(error, false, done))?;
    let (destination, stateid) = (&plan.destination, plan.destination_stateid);
    let (server, client) = (compound.server(), compound.client()?);
    server.check_export(destination.export.id, client)?;
    let (now, key) = (piece.at.monotonic, destination.key(server));
    let permit = compound.state().check_io(now, client, key, &stateid, IoKind::Write)?;
    let authority = permit.for_caller(compound.caller()).authority;
    let context = Context { now: piece.at.wall, ..context.clone() };
    let copied = piece.write(destination.export, &context, authority).await.map_err(regular_only)?;
    Ok((copied, now))
}

/// Returns the source as its server knows it.
fn source_handle(compound: &Compound<'_>, destination: &File<'_>) -> Result<Handle> {
    let stale = |_| Status::STALE.into();
    match compound.saved_handle()? {
        FileHandle::Foreign(handle) => Handle::new(handle).map_err(stale),
        // A client may not know that both of its servers are the same.
        FileHandle::Own(Object::File(file)) => {
            let server = compound.server();
            // "SAVED_FH and CURRENT_FH must be different files."
            if file.key(server) == destination.key(server) {
                return Err(Status::INVAL.into());
            }
            Handle::new(&Object::File(file).seal(&server.settings().handle_key)).map_err(stale)
        }
        FileHandle::Own(Object::Pseudo(_)) => Err(Status::WRONG_TYPE.into()),
    }
}

/// Returns the permitted addresses among those that the client names, given the address `local` by which it reaches this server. Names
/// and URLs are not resolved, because the client would choose the name server.
pub(crate) fn permitted(networks: &[Network], local: IpAddr, servers: &[NetLocation]) -> Vec<SocketAddr> {
    let is_local = |ip| ip == local.to_canonical();
    let is_permitted = |address: &SocketAddr| {
        let ip = address.ip().to_canonical();
        let is_own = |(own, bits)| bits >= NEAR_BITS && (is_near(own) || is_local(ip));
        let is_far = !is_near(ip) && !is_local(ip);
        let permits = |network: &Network| network.contains(ip) && (is_far || is_own(network.parts()));
        address.port() != 0 && networks.iter().any(permits)
    };
    servers.iter().filter_map(address).filter(is_permitted).take(ADDRESSES_MAX).collect()
}

/// Returns whether an address leads to this machine or its neighborhood, whose services may trust such connections. A
/// configuration that permits all networks does not permit these; they need a network of their own.
fn is_near(ip: IpAddr) -> bool {
    match ip {
        // Connecting to the unspecified address connects to this machine.
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    }
}

/// Returns the socket address of a TCP netaddr.
fn address(location: &NetLocation) -> Option<SocketAddr> {
    let NetLocation::Address(location) = location else { return None };
    let address = UniversalAddress::from_bytes(&location.address).ok()?.0;
    (NetId::from_bytes(&location.netid)? == NetId::tcp(&address)).then_some(address)
}
