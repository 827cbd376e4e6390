//! Single calls, for the preparation and the end of a measurement.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use protocol::nfs3::Proc;
use rpc::{message, record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xdr::{Decode, Encode};

use super::nfs3::NFS3;
use super::replies::{REPLY_BYTES_MAX, Reply};
use super::template::{Program, Template};
use crate::error::LoadError;

/// Time limit for one call outside the measured window.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection that waits for each reply.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: TcpStream,
}

impl Caller {
    /// Connects to `address`, without Nagle's delay.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, LoadError> {
        let failed = |error| LoadError::Connection(format!("connect to {address}"), error);
        let stream = timeout(CALL_TIMEOUT, TcpStream::connect(address))
            .await
            .map_err(|_| LoadError::Silent(format!("connect to {address}")))?
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Self { stream })
    }

    /// Calls `procedure` and returns the results of an accepted, successful reply.
    pub(crate) async fn call<T: Decode>(
        &mut self,
        what: &str,
        xid: u32,
        program: Program,
        procedure: u32,
        arguments: &impl Encode,
    ) -> Result<T, LoadError> {
        let mut record = Vec::new();
        Template::call(program, procedure, arguments).append(xid, &mut record);
        let exchange = async {
            self.stream.write_all(&record).await?;
            self.read_record().await
        };
        let reply = timeout(CALL_TIMEOUT, exchange)
            .await
            .map_err(|_| LoadError::Silent(what.to_owned()))?
            .map_err(|error| LoadError::Connection(what.to_owned(), error))?;
        let reply = Reply { head: &reply, length: reply.len() };
        match reply.xid() {
            Ok(found) if found == xid => reply.results().map_err(|why| LoadError::wrong(what, why)),
            other => Err(LoadError::wrong(what, format!("xid {other:?} instead of {xid}"))),
        }
    }

    async fn read_record(&mut self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mark = self.stream.read_u32().await?;
            let length = (mark & !record::LAST_FRAGMENT) as usize;
            if record.len() + length > REPLY_BYTES_MAX {
                return Err(io::Error::other("reply longer than any requested one"));
            }
            let start = record.len();
            record.resize(start + length, 0);
            self.stream.read_exact(&mut record[start..]).await?;
            if mark & record::LAST_FRAGMENT != 0 {
                return Ok(record);
            }
        }
    }

    /// Returns the connection, with nothing outstanding on it.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

/// Calls NFSv3 NULL on a blocking connection and waits for the reply.
///
/// # Errors
/// A broken connection, or any reply except success.
pub fn null_call(stream: &mut std::net::TcpStream, xid: u32) -> io::Result<()> {
    let mut record = Vec::new();
    Template::call(NFS3, Proc::NULL.0, &()).append(xid, &mut record);
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.write_all(&record)?;
    // RFC 5531 §9: the shortest accepted reply; these servers send no verifier.
    let mut reply = [0; record::HEADER_LENGTH + message::SUCCESS_HEADER_LENGTH];
    stream.read_exact(&mut reply)?;
    let view = Reply { head: &reply[record::HEADER_LENGTH..], length: message::SUCCESS_HEADER_LENGTH };
    view.results::<()>().map_err(io::Error::other)?;
    if view.xid() == Ok(xid) { Ok(()) } else { Err(io::Error::other("another xid")) }
}
