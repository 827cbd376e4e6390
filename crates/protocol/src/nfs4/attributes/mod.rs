//! File attributes: `fattr4` and the value of every attribute.
//!
//! On the wire, attributes are a bitmap and an opaque that holds the values in ascending order, without lengths of
//! their own: [`FileAttributes`]. Operations keep it in this form, so that a server can tell an attribute that it does
//! not support (ATTRNOTSUPP) from bytes that do not decode (BADXDR). [`Attributes`] and [`SetAttributes`] are the
//! values taken apart. A server that answers GETATTR writes them one by one: [`write_attributes`].

use std::fmt;

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use super::types::{Bitmap, Status};

pub mod acl;
pub mod locations;
mod table;
pub mod values;

pub use table::{Access, AttributeRow, Attributes, LayoutTypes, SetAttributes, TABLE, number};

/// Greatest length of one object's attribute values, in bytes. The RFCs set none; the largest value is an ACL, and
/// [`acl::MAX_ACES`] entries with owners of 200 bytes fit.
pub const MAX_ATTRIBUTE_VALUES: usize = 1 << 20;

/// `fattr4`: which attributes, and their values in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct FileAttributes {
    /// Which attributes.
    pub mask: Bitmap,
    /// Their values.
    pub values: Opaque<MAX_ATTRIBUTE_VALUES>,
}

impl FileAttributes {
    /// Joins a mask with values that are XDR already.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above [`MAX_ATTRIBUTE_VALUES`] bytes.
    pub fn new(mask: Bitmap, values: impl Into<bytes::Bytes>) -> Result<Self, DecodeError> {
        Ok(Self { mask, values: Opaque::new(values)? })
    }

    /// A reader over the values.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.values.bytes().clone())
    }

    /// Finds the first attribute that is not in `supported`, or else not in `settable`.
    fn check(&self, supported: Bitmap, settable: Bitmap) -> Result<(), AttributeError> {
        if let Some(number) = self.mask.difference(supported).iter().next() {
            return Err(AttributeError::Unsupported(number));
        }
        if self.mask.has_beyond() {
            return Err(AttributeError::Unsupported(Bitmap::LIMIT));
        }
        match self.mask.difference(settable).iter().next() {
            Some(number) => Err(AttributeError::NotSettable(number)),
            None => Ok(()),
        }
    }
}

impl From<&Attributes> for FileAttributes {
    fn from(attributes: &Attributes) -> Self {
        attributes.to_file_attributes()
    }
}

impl From<&SetAttributes> for FileAttributes {
    fn from(attributes: &SetAttributes) -> Self {
        attributes.to_file_attributes()
    }
}

/// Why attribute values could not be taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeError {
    /// The attribute of this number is not supported, or ([`Bitmap::LIMIT`]) one that no bitmap here can hold.
    Unsupported(u32),
    /// The attribute of this number can be read, but not set.
    NotSettable(u32),
    /// The values do not decode.
    Malformed(DecodeError),
}

impl AttributeError {
    /// The status by which SETATTR, CREATE, OPEN and VERIFY answer.
    #[must_use]
    pub const fn status(&self) -> Status {
        match self {
            // RFC 8881 §18.30.4: "If the server does not support an attribute as requested by the client, the server
            // SHOULD return NFS4ERR_ATTRNOTSUPP."
            Self::Unsupported(_) => Status::ATTRNOTSUPP,
            // RFC 8881 §5.5: "If a client attempts to set a get-only attribute or get a set-only attributes, the server
            // MUST return NFS4ERR_INVAL."
            Self::NotSettable(_) => Status::INVAL,
            Self::Malformed(_) => Status::BADXDR,
        }
    }
}

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(number) => write!(f, "attribute {} is not supported", name(*number)),
            Self::NotSettable(number) => write!(f, "attribute {} cannot be set", name(*number)),
            Self::Malformed(error) => write!(f, "attribute values: {error}"),
        }
    }
}

impl std::error::Error for AttributeError {}

/// The RFC's name of attribute `number`, or `unknown`.
#[must_use]
pub fn name(number: u32) -> &'static str {
    TABLE.get(number as usize).map_or("unknown", |row| row.name)
}

const fn select(access_read: bool, access_write: bool, minor_version: u32) -> Bitmap {
    let mut set = Bitmap::EMPTY;
    let mut i = 0;
    while i < TABLE.len() {
        let row = TABLE[i];
        if row.minor_version <= minor_version
            && (access_read && row.readable() || access_write && row.settable())
        {
            set.insert(row.number);
        }
        i += 1;
    }
    set
}

/// All attributes that minor version `minor_version` defines.
#[must_use]
pub const fn known(minor_version: u32) -> Bitmap {
    select(true, true, minor_version)
}

/// All attributes of `minor_version` that can be read.
#[must_use]
pub const fn readable(minor_version: u32) -> Bitmap {
    select(true, false, minor_version)
}

/// All attributes of `minor_version` that can be set.
#[must_use]
pub const fn settable(minor_version: u32) -> Bitmap {
    select(false, true, minor_version)
}

/// Writes a `fattr4`: `mask`, then what `write` appends for each of its numbers in ascending order. Nothing is
/// allocated, and no value is copied.
///
/// # Errors
/// What `write` returns; the writer is then as it was before.
pub fn write_attributes<E>(
    writer: &mut Writer,
    mask: Bitmap,
    mut write: impl FnMut(u32, &mut Writer) -> Result<(), E>,
) -> Result<(), E> {
    let start = writer.mark();
    mask.encode(writer);
    let length_at = writer.reserve_u32();
    let values = writer.mark();
    for number in &mask {
        if let Err(error) = write(number, writer) {
            writer.rewind(start);
            return Err(error);
        }
    }
    let length = writer.length_since(values);
    debug_assert!(length.is_multiple_of(4), "attribute values are whole XDR values");
    writer.patch_u32(length_at, u32::try_from(length).expect("attribute values are shorter than 4 GiB"));
    Ok(())
}
