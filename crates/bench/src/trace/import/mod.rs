//! Operations from a packet capture of NFS 3 and 4 over TCP.
//!
//! `capture` reads packets, `streams` makes RPC records of TCP segments and joins calls and replies, `names` has the paths of
//! handles, `v3` and `v4` make operations of calls, and `lanes` distributes those of a client over streams that do not overlap.

mod capture;
mod lanes;
mod names;
mod streams;
mod v3;
mod v4;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use protocol::{mount, nfs3, nfs4};
use rpc::auth::AuthFlavor;
use rpc::gss::{GssCredential, Service};
use rpc::message::{CallHeader, ReplyHeader};
use xdr::{Decode as _, DecodeError, Reader};

use self::lanes::Lanes;
use self::names::Names;
use self::streams::{Calls, Exchange, Streams};
use super::format::Record;
use super::writer::TraceWriter;

/// What an import found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Packets of the capture.
    pub packets: u64,
    /// Calls of NFS with their replies.
    pub calls: u64,
    /// Operations of the trace.
    pub operations: u64,
    /// The clients, by number.
    pub clients: Vec<IpAddr>,
    /// Calls whose reply was not captured.
    pub unanswered: u64,
    /// Calls that could not be decoded.
    pub undecodable: u64,
    /// Calls with integrity or privacy of RPCSEC_GSS, which are not decoded.
    pub protected: u64,
    /// Times that packets were missing.
    pub gaps: u64,
    /// Packets that were not captured whole. What is missing counts as zeros, as good as any data, but calls may be missing.
    pub cut: u64,
    /// Why the packets after some could not be read.
    pub damage: Option<String>,
}

/// Operations of one call, in the order in which they were done.
struct Found {
    client: IpAddr,
    began_us: u64,
    ended_us: u64,
    records: Vec<Record>,
}

/// Imports a capture into a trace.
///
/// # Errors
/// If the capture cannot be read, has no NFS, or the trace cannot be written.
pub fn import(capture: &Path, trace: &Path) -> Result<Imported, String> {
    let mut import = Import::default();
    let read = capture::read(capture, |segment| {
        for record in import.streams.add(segment) {
            if let Some(exchange) = import.calls.add(record) {
                import.exchange(exchange);
            }
        }
    })?;
    for record in import.streams.finish() {
        if let Some(exchange) = import.calls.add(record) {
            import.exchange(exchange);
        }
    }
    let Import { streams, calls, found, mut imported, .. } = import;
    imported.packets = read.packets;
    imported.damage = read.damage;
    imported.unanswered = calls.unanswered() as u64;
    (imported.gaps, imported.cut) = (streams.gaps, streams.cut);
    let mut lanes = Lanes::default();
    let records = lanes.distribute(found);
    if records.is_empty() {
        let why = imported.damage.as_deref().unwrap_or("no operations of NFS 3 or 4 over TCP");
        return Err(format!("{}: {why}", capture.display()));
    }
    let writer = TraceWriter::create(trace, &format!("imported from {}", capture.display()))?;
    records.iter().for_each(|record| writer.add(record));
    let incomplete = imported.damage.as_ref().map(|why| format!("the capture ends at {why}"));
    imported.operations = writer.finish(incomplete.as_deref())?;
    imported.clients = lanes.clients;
    Ok(imported)
}

#[derive(Default)]
struct Import {
    streams: Streams,
    calls: Calls,
    names: Names,
    state: v4::State,
    listings: v3::Listings,
    found: Vec<Found>,
    imported: Imported,
}

impl Import {
    fn exchange(&mut self, exchange: Exchange) {
        let mut call = Reader::new(exchange.call.record.clone());
        let Ok(header) = CallHeader::parse(&mut call) else { return };
        if ![nfs3::PROGRAM, mount::PROGRAM].contains(&header.program) {
            return;
        }
        self.imported.calls += 1;
        let gss = || GssCredential::parse(&header.credential.body).ok().and_then(|gss| gss.service());
        if header.credential.flavor == AuthFlavor::RPCSEC_GSS && gss() != Some(Service::None) {
            self.imported.protected += 1;
            return;
        }
        let mut reply = Reader::new(exchange.reply.record.clone());
        let is_executed = ReplyHeader::parse(&mut reply).is_ok_and(|header| header.success().is_ok());
        if !is_executed {
            return;
        }
        let server = exchange.call.to;
        match self.records(&header, &exchange, (&mut call, &mut reply), server) {
            Ok(records) if records.is_empty() => {}
            Ok(records) => self.found.push(Found {
                client: exchange.call.from.ip(),
                began_us: exchange.call.began_us,
                ended_us: exchange.reply.ended_us,
                records,
            }),
            Err(_) => self.imported.undecodable += 1,
        }
    }

    fn records(
        &mut self,
        header: &CallHeader,
        exchange: &Exchange,
        (call, reply): (&mut Reader, &mut Reader),
        server: SocketAddr,
    ) -> Result<Vec<Record>, DecodeError> {
        let client = exchange.call.from.ip();
        match (header.program, header.version) {
            (mount::PROGRAM, 3) if header.procedure == mount::Proc::MNT.0 => {
                // The root of a trace is what the clients have mounted.
                if let Ok(handle) = mounted(reply) {
                    self.names.root(&handle);
                }
                Ok(Vec::new())
            }
            (nfs3::PROGRAM, 3) => {
                let listings = &mut self.listings;
                v3::operation(header.procedure, call, reply, &mut self.names, listings, client)
            }
            (nfs4::PROGRAM, 4) if header.procedure == nfs4::PROC_COMPOUND => {
                let call = nfs4::compound::CompoundArgs::decode(call)?;
                let reply = nfs4::compound::CompoundResult::decode(reply)?;
                Ok(self.state.compound(&call, &reply, &mut self.names, (client, server)))
            }
            _ => Ok(Vec::new()),
        }
    }
}

fn mounted(reply: &mut Reader) -> Result<Vec<u8>, DecodeError> {
    match mount::MountResult::decode(reply)? {
        mount::MountResult::Ok(mounted) => Ok(mounted.fhandle.to_vec()),
        mount::MountResult::Fail(_) => Ok(Vec::new()),
    }
}

/// Returns the error number of a status of NFS 3 or 4; `None` for those that a client repeats or recovers from.
fn errno(status: u32) -> Option<i32> {
    Some(match status {
        1 => libc::EPERM,
        2 => libc::ENOENT,
        5 => libc::EIO,
        6 => libc::ENXIO,
        13 => libc::EACCES,
        17 => libc::EEXIST,
        18 => libc::EXDEV,
        19 => libc::ENODEV,
        20 => libc::ENOTDIR,
        21 => libc::EISDIR,
        22 => libc::EINVAL,
        27 => libc::EFBIG,
        28 => libc::ENOSPC,
        30 => libc::EROFS,
        31 => libc::EMLINK,
        63 => libc::ENAMETOOLONG,
        66 => libc::ENOTEMPTY,
        69 => libc::EDQUOT,
        70 => libc::ESTALE,
        10_004 => libc::EOPNOTSUPP,
        10_029 => libc::ELOOP,
        _ => return None,
    })
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, calls, operations, .. } = self;
        writeln!(f, "{packets} packets, {calls} calls with replies, {operations} operations")?;
        for (number, address) in self.clients.iter().enumerate() {
            writeln!(f, "client {number}: {address}")?;
        }
        for (count, what) in [
            (self.unanswered, "calls without a reply"),
            (self.undecodable, "calls that could not be decoded"),
            (self.protected, "calls with integrity or privacy, which are not decoded"),
            (self.gaps, "gaps: packets are missing"),
            (self.cut, "packets that were not captured whole: calls in them may be missing"),
        ] {
            if count > 0 {
                writeln!(f, "{count} {what}")?;
            }
        }
        if let Some(why) = &self.damage {
            writeln!(f, "the capture ends at {why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
