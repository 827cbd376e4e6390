//! Requests of the kernel as values. Each structure documents when the kernel sends it; [`decode`] checks every length.

use std::fmt;

use bytes::{Buf, Bytes};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::abi::{self, InHeader, opcode};
use crate::types::{Caller, NAME_MAX, Name, NodeId};

/// Longest value of an extended attribute in bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_MAX: usize = 65536;
/// Maximum number of bytes that a READ, a listing or an attribute may request. The kernel's own limit is `fs.fuse.max_pages_limit`.
pub const REPLY_DATA_MAX: u32 = 16 << 20;

/// A request that does not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than its structure, or than a length in it.
    Truncated,
    /// Longer than its content.
    TrailingBytes,
    /// The header's length is not that of the message.
    Length,
    /// A name without NUL at its end, empty, or with a slash.
    Name,
    /// A length above its bound.
    TooLong,
    /// A number that has no meaning.
    Value,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "request is shorter than its arguments",
            Self::TrailingBytes => "request is longer than its arguments",
            Self::Length => "length in the header differs from the length of the request",
            Self::Name => "name is empty, not terminated, or contains a slash",
            Self::TooLong => "length exceeds its bound",
            Self::Value => "argument has an undefined value",
        })
    }
}

impl std::error::Error for Malformed {}

/// Reads arguments.
pub(crate) struct Arguments<'a> {
    header: &'a InHeader,
    rest: Bytes,
    /// Whether SETXATTR has its longer form.
    setxattr_ext: bool,
}

impl Arguments<'_> {
    fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let (value, _) = T::read_from_prefix(&self.rest).map_err(|_| Malformed::Truncated)?;
        self.rest.advance(size_of::<T>());
        Ok(value)
    }

    /// Takes bytes to a NUL.
    fn terminated(&mut self, max: usize) -> Result<Name, Malformed> {
        let length = self.rest.iter().position(|byte| *byte == 0).ok_or(Malformed::Name)?;
        if length > max {
            return Err(Malformed::TooLong);
        }
        let name = self.rest.split_to(length);
        self.rest.advance(1);
        Ok(Name(name))
    }

    /// Takes the name of a directory entry.
    fn name(&mut self) -> Result<Name, Malformed> {
        let name = self.terminated(NAME_MAX)?;
        if name.is_empty() || name.contains(&b'/') { Err(Malformed::Name) } else { Ok(name) }
    }

    /// Takes the name of an extended attribute.
    fn attribute_name(&mut self) -> Result<Name, Malformed> {
        let name = self.terminated(NAME_MAX)?;
        if name.is_empty() { Err(Malformed::Name) } else { Ok(name) }
    }

    fn data(&mut self, length: u32, max: usize) -> Result<Bytes, Malformed> {
        let length = length as usize;
        if length > max {
            return Err(Malformed::TooLong);
        }
        if length > self.rest.len() {
            return Err(Malformed::Truncated);
        }
        Ok(self.rest.split_to(length))
    }

    fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::TrailingBytes) }
    }
}

fn reply_size(size: u32) -> Result<u32, Malformed> {
    if size > REPLY_DATA_MAX { Err(Malformed::TooLong) } else { Ok(size) }
}

/// A request's arguments.
pub(crate) trait Decode: Sized {
    fn decode(arguments: &mut Arguments<'_>) -> Result<Self, Malformed>;
}

/// Defines a request and its decoder: each field with its value. The values take the arguments, in the order of the fields.
macro_rules! request {
    (
        $(#[$doc:meta])*
        $name:ident |$arguments:ident| {
            $(let $local:ident: $local_type:ty = $init:expr;)*
            $($(#[$field_doc:meta])+ $field:ident: $type:ty = $value:expr,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])+ pub $field: $type,)*
        }

        impl Decode for $name {
            fn decode($arguments: &mut Arguments<'_>) -> Result<Self, Malformed> {
                $(let $local: $local_type = $init;)*
                Ok(Self { $($field: $value,)* })
            }
        }
    };
}

mod attributes;
mod content;
mod names;
#[cfg(test)]
mod tests;

pub use attributes::*;
pub use content::*;
pub use names::*;

/// Lookups that the kernel has forgotten. No reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The inode.
    pub node: NodeId,
    /// Number of lookups to forget.
    pub lookups: u64,
}

/// Reads the header, and checks it against the length of the message. Extensions after the arguments are cut off.
pub(crate) fn split_header(mut message: Bytes) -> Result<(InHeader, Bytes), Malformed> {
    let (header, _) = InHeader::read_from_prefix(&message).map_err(|_| Malformed::Truncated)?;
    if header.len as usize != message.len() {
        return Err(Malformed::Length);
    }
    message.advance(size_of::<InHeader>());
    // In units of eight bytes.
    let extensions = usize::from(header.total_extlen) * 8;
    let arguments = message.len().checked_sub(extensions).ok_or(Malformed::Truncated)?;
    message.truncate(arguments);
    Ok((header, message))
}

/// Decodes all of the arguments of one request.
pub(crate) fn decode<T: Decode>(header: &InHeader, rest: Bytes, setxattr_ext: bool) -> Result<T, Malformed> {
    let mut arguments = Arguments { header, rest, setxattr_ext };
    let value = T::decode(&mut arguments)?;
    arguments.finish()?;
    Ok(value)
}

/// Decodes FORGET and BATCH_FORGET.
pub(crate) fn decode_forgets(header: &InHeader, rest: Bytes) -> Result<Vec<Forget>, Malformed> {
    let mut arguments = Arguments { header, rest, setxattr_ext: false };
    if header.opcode == opcode::FORGET {
        let lookups = arguments.take::<abi::ForgetIn>()?.nlookup;
        arguments.finish()?;
        return Ok(vec![Forget { node: NodeId(header.nodeid), lookups }]);
    }
    let count = arguments.take::<abi::BatchForgetIn>()?.count;
    let mut next = || {
        let abi::ForgetOne { nodeid, nlookup } = arguments.take()?;
        Ok(Forget { node: NodeId(nodeid), lookups: nlookup })
    };
    // A count that exceeds the entries ends with an error, without memory for all.
    let forgets = (0..count).map(|_| next()).collect::<Result<_, _>>()?;
    arguments.finish()?;
    Ok(forgets)
}

/// Decodes INTERRUPT: the number of the request that is interrupted.
pub(crate) fn decode_interrupt(header: &InHeader, rest: Bytes) -> Result<u64, Malformed> {
    let mut arguments = Arguments { header, rest, setxattr_ext: false };
    let unique = arguments.take::<abi::InterruptIn>()?.unique;
    arguments.finish()?;
    Ok(unique)
}

/// Returns the thread that made a request.
pub(crate) fn caller(header: &InHeader) -> Caller {
    let is_resent = header.unique & abi::UNIQUE_RESEND != 0;
    Caller { uid: header.uid, gid: header.gid, tid: header.pid, is_resent }
}
