//! XDR (RFC 4506): bounded decoding and encoding of values.
//!
//! [`Reader`] decodes a received record without copying it. [`Writer`] encodes a reply and can refer to payloads that it
//! does not hold ([`External`]). Types derive [`Decode`] and [`Encode`]. No length is trusted: every variable-length type
//! has its bound as a parameter.
#![forbid(unsafe_code)]

mod bounded;
mod constants;
mod error;
mod reader;
mod writer;

pub use bounded::{Chain, InlineOpaque, List, Opaque};
pub use error::DecodeError;
pub use reader::Reader;
pub use writer::{External, Mark, Part, PlacedExternals, Writer};
pub use xdr_derive::{Decode, Encode};

/// A type that can be decoded from XDR.
pub trait Decode: Sized {
    /// Reads one value and advances `reader` past it.
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError>;
}

/// A type that can be encoded as XDR.
pub trait Encode {
    /// Appends the value to `writer`.
    fn encode(&self, writer: &mut Writer);
}

/// Decodes one value that must fill `bytes` to the last byte.
///
/// # Errors
/// Any [`DecodeError`]; [`DecodeError::TrailingBytes`] if bytes follow the value.
pub fn from_bytes<T: Decode>(bytes: impl Into<bytes::Bytes>) -> Result<T, DecodeError> {
    let mut reader = Reader::new(bytes.into());
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Encodes one value into a new buffer.
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> bytes::Bytes {
    let mut writer = Writer::new();
    value.encode(&mut writer);
    writer.into_bytes()
}

/// Returns the number of padding bytes after opaque data of `length` bytes (RFC 4506 §4.10: to a multiple of four).
#[must_use]
pub const fn padding(length: usize) -> usize {
    (4 - length % 4) % 4
}

macro_rules! primitive {
    ($type:ty, $method:ident) => {
        impl Decode for $type {
            fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
                reader.$method()
            }
        }
        impl Encode for $type {
            fn encode(&self, writer: &mut Writer) {
                writer.$method(*self);
            }
        }
    };
}
primitive!(u32, u32);
primitive!(i32, i32);
primitive!(u64, u64);
primitive!(i64, i64);
primitive!(bool, bool);

impl Decode for () {
    fn decode(_: &mut Reader) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Writer) {}
}

/// Fixed-length opaque data (RFC 4506 §4.9).
impl<const N: usize> Decode for [u8; N] {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.opaque_fixed()
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, writer: &mut Writer) {
        writer.opaque_fixed(self);
    }
}

/// Optional data (RFC 4506 §4.19): a boolean, then the value if it is true.
impl<T: Decode> Decode for Option<T> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(if reader.bool()? { Some(T::decode(reader)?) } else { None })
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, writer: &mut Writer) {
        writer.bool(self.is_some());
        if let Some(value) = self {
            value.encode(writer);
        }
    }
}

impl<T: Decode> Decode for Box<T> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        T::decode(reader).map(Box::new)
    }
}

impl<T: Encode> Encode for Box<T> {
    fn encode(&self, writer: &mut Writer) {
        (**self).encode(writer);
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, writer: &mut Writer) {
        (**self).encode(writer);
    }
}
