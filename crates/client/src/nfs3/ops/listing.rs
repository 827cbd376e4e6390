//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).

use std::sync::atomic::Ordering;

use bytes::Bytes;
use protocol::nfs3::{PostOpAttr, PostOpFh, ReaddirArgs, ReaddirplusArgs};
use protocol::nfs4::types::Status;
use rpc::message::{AcceptStatus, RpcError};

use super::super::Nfs3;
use super::super::calls::{from_wire, to_wire};
use super::super::convert::{attributes, post_op};
use crate::config::Caller;
use crate::engine::CallError;
use crate::error::OpError;
use crate::results::{DirEntry, DirPage, FileHandle, Object};

/// An entry of either procedure.
struct WireEntry {
    fileid: u64,
    name: Bytes,
    cookie: u64,
    object: (PostOpFh, PostOpAttr),
}

/// A reply of either procedure.
struct WirePage {
    directory: PostOpAttr,
    verifier: [u8; 8],
    entries: Vec<WireEntry>,
    eof: bool,
}

impl Nfs3 {
    /// Lists a part of a directory of at most `bytes`. `plus` asks for handles and attributes too; a server without
    /// READDIRPLUS lists names alone.
    pub(crate) async fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        position: (u64, [u8; 8]),
        bytes: u32,
        plus: bool,
    ) -> Result<DirPage, OpError> {
        let bytes = bytes.min(self.config.transfer_max());
        if plus && !self.lacks_readdirplus.load(Ordering::Relaxed) {
            match self.readdirplus(caller, directory, position, bytes).await {
                Err(error) if is_unsupported(&error) => {
                    self.lacks_readdirplus.store(true, Ordering::Relaxed);
                }
                listed => return page(position.0, listed?),
            }
        }
        page(position.0, self.readdir(caller, directory, position, bytes).await?)
    }

    async fn readdirplus(
        &self,
        caller: &Caller,
        directory: FileHandle,
        (cookie, cookieverf): (u64, [u8; 8]),
        bytes: u32,
    ) -> Result<WirePage, OpError> {
        let dir = to_wire(&directory)?;
        let arguments = ReaddirplusArgs { dir, cookie, cookieverf, dircount: bytes, maxcount: bytes };
        let ok = self.call(caller, &arguments).await?;
        let entries = ok.reply.entries.into_vec().into_iter().map(|entry| WireEntry {
            fileid: entry.fileid,
            name: entry.name.into_bytes(),
            cookie: entry.cookie,
            object: (entry.name_handle, entry.name_attributes),
        });
        Ok(WirePage {
            directory: ok.dir_attributes,
            verifier: ok.cookieverf,
            entries: entries.collect(),
            eof: ok.reply.eof,
        })
    }

    async fn readdir(
        &self,
        caller: &Caller,
        directory: FileHandle,
        (cookie, cookieverf): (u64, [u8; 8]),
        bytes: u32,
    ) -> Result<WirePage, OpError> {
        let arguments = ReaddirArgs { dir: to_wire(&directory)?, cookie, cookieverf, count: bytes };
        let ok = self.call(caller, &arguments).await?;
        let entries = ok.reply.entries.into_vec().into_iter().map(|entry| WireEntry {
            fileid: entry.fileid,
            name: entry.name.into_bytes(),
            cookie: entry.cookie,
            object: (None, None),
        });
        Ok(WirePage {
            directory: ok.dir_attributes,
            verifier: ok.cookieverf,
            entries: entries.collect(),
            eof: ok.reply.eof,
        })
    }
}

/// Returns whether the server does not have READDIRPLUS, here or at all.
fn is_unsupported(error: &OpError) -> bool {
    matches!(
        error,
        OpError::Status(Status::NOTSUPP)
            | OpError::Call(CallError::Rpc(RpcError::NotExecuted(AcceptStatus::ProcedureUnavailable)))
    )
}

/// Converts a reply to the request for entries after `cookie`.
fn page(cookie: u64, wire: WirePage) -> Result<DirPage, OpError> {
    let next_cookie = match wire.entries.last() {
        Some(last) => last.cookie,
        None if wire.eof => cookie,
        None => return Err(OpError::BadReply("a listing without entries that does not end")),
    };
    if !wire.eof && next_cookie == cookie {
        return Err(OpError::BadReply("a listing whose cookies form a loop"));
    }
    let entries = wire.entries.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    Ok(DirPage {
        entries: entries.into_iter().flatten().collect(),
        next_cookie,
        verifier: wire.verifier,
        eof: wire.eof,
        directory: post_op(&wire.directory)?,
    })
}

/// Converts an entry; `None` for those that name no entry of this directory.
fn entry(wire: WireEntry) -> Result<Option<DirEntry>, OpError> {
    if !crate::names::is_safe(&wire.name) {
        return match &wire.name[..] {
            b"." | b".." => Ok(None),
            // A name with `/` would leave the directory.
            _ => Err(OpError::BadReply("an entry whose name is not allowed")),
        };
    }
    let object = match &wire.object {
        (Some(handle), Some(wire)) => {
            Some(Object { handle: from_wire(handle)?, attributes: attributes(wire)? })
        }
        _ => None,
    };
    Ok(Some(DirEntry { name: wire.name, fileid: wire.fileid, cookie: wire.cookie, object }))
}
