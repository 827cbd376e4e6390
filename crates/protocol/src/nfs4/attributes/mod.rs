//! File attributes: `fattr4` and the value of every attribute.
//!
//! On the wire, attributes are a bitmap and an opaque with the values in ascending order, without individual lengths:
//! [`FileAttributes`]. Operations keep this form, so that a server can distinguish an unsupported attribute (ATTRNOTSUPP) from
//! undecodable bytes (BADXDR). [`Attributes`] and [`SetAttributes`] are the decoded values. For GETATTR, a server writes values
//! one by one with [`write_attributes`].

use std::fmt;

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use super::types::{Bitmap, Status};

pub mod acl;
pub mod locations;
mod table;
pub mod values;

pub use table::{Access, AttributeRow, Attributes, LayoutTypes, SetAttributes, TABLE, number};

/// Maximum length of one object's attribute values, in bytes. The RFCs set none; the largest value is an ACL, and
/// [`acl::MAX_ACES`] entries with owners of 200 bytes fit.
pub const MAX_ATTRIBUTE_VALUES: usize = 1 << 20;

/// `fattr4`: the set of attributes, and their values in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct FileAttributes {
    /// The attribute numbers.
    pub mask: Bitmap,
    /// Their values.
    pub values: Opaque<MAX_ATTRIBUTE_VALUES>,
}

impl FileAttributes {
    /// Creates attributes from a mask and encoded values.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above [`MAX_ATTRIBUTE_VALUES`] bytes.
    pub fn new(mask: Bitmap, values: impl Into<bytes::Bytes>) -> Result<Self, DecodeError> {
        Ok(Self { mask, values: Opaque::new(values)? })
    }

    /// Returns a reader over the values.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.values.bytes().clone())
    }

    /// Returns an error for the first attribute that is not in `supported`, or else not in `settable`.
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

/// Why attribute values cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttributeError {
    /// The attribute with this number is not supported; [`Bitmap::LIMIT`] for any number that a bitmap cannot hold.
    Unsupported(u32),
    /// The attribute with this number is read-only.
    NotSettable(u32),
    /// The values cannot be decoded.
    Malformed(DecodeError),
}

impl AttributeError {
    /// Returns the status for SETATTR, CREATE, OPEN and VERIFY.
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

/// Returns the RFC's name of attribute `number`, or `unknown`.
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

/// Returns all attributes of `minor_version`.
#[must_use]
pub const fn known(minor_version: u32) -> Bitmap {
    select(true, true, minor_version)
}

/// Returns all readable attributes of `minor_version`.
#[must_use]
pub const fn readable(minor_version: u32) -> Bitmap {
    select(true, false, minor_version)
}

/// Returns all settable attributes of `minor_version`.
#[must_use]
pub const fn settable(minor_version: u32) -> Bitmap {
    select(false, true, minor_version)
}

/// Writes a `fattr4`: `mask`, then the value that `write` appends for each number in ascending order, without allocation or
/// copy.
///
/// # Errors
/// The error of `write`; nothing is written then.
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
