//! Variable-length types with their bound as a type parameter.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::{Decode, DecodeError, Encode, Reader, Writer};

/// Variable-length opaque data or a string (RFC 4506 §4.10, §4.11) of at most `MAX` bytes, sharing the receive buffer.
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Opaque<const MAX: usize>(Bytes);

impl<const MAX: usize> Opaque<MAX> {
    /// Wraps `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above `MAX` bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Result<Self, DecodeError> {
        let bytes = bytes.into();
        if bytes.len() > MAX {
            return Err(DecodeError::TooLong { length: bytes.len(), max: MAX });
        }
        Ok(Self(bytes))
    }

    /// Wraps a constant.
    ///
    /// # Panics
    /// If it is longer than `MAX`.
    #[must_use]
    pub const fn from_static(bytes: &'static [u8]) -> Self {
        assert!(bytes.len() <= MAX, "constant is longer than its bound");
        Self(Bytes::from_static(bytes))
    }

    /// Returns the shared bytes.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Returns a reference to the shared bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl<const MAX: usize> Deref for Opaque<MAX> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> AsRef<[u8]> for Opaque<MAX> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<const MAX: usize> fmt::Debug for Opaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const MAX: usize> Decode for Opaque<MAX> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        reader.opaque(MAX).map(Self)
    }
}

impl<const MAX: usize> Encode for Opaque<MAX> {
    fn encode(&self, writer: &mut Writer) {
        writer.opaque(&self.0);
    }
}

/// Variable-length opaque data of at most `MAX` (up to 255) bytes, stored inline: file handles and other short keys.
#[derive(Clone, Copy)]
pub struct InlineOpaque<const MAX: usize> {
    length: u8,
    data: [u8; MAX],
}

impl<const MAX: usize> InlineOpaque<MAX> {
    /// Copies `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above `MAX` bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, DecodeError> {
        const { assert!(MAX <= 255, "the length is stored in one byte") };
        if bytes.len() > MAX {
            return Err(DecodeError::TooLong { length: bytes.len(), max: MAX });
        }
        let mut data = [0; MAX];
        data[..bytes.len()].copy_from_slice(bytes);
        Ok(Self { length: bytes.len() as u8, data })
    }
}

impl<const MAX: usize> Default for InlineOpaque<MAX> {
    fn default() -> Self {
        Self { length: 0, data: [0; MAX] }
    }
}

impl<const MAX: usize> Deref for InlineOpaque<MAX> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.data[..usize::from(self.length)]
    }
}

impl<const MAX: usize> PartialEq for InlineOpaque<MAX> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<const MAX: usize> Eq for InlineOpaque<MAX> {}

impl<const MAX: usize> PartialOrd for InlineOpaque<MAX> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<const MAX: usize> Ord for InlineOpaque<MAX> {
    /// Compares the bytes, as slices.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self[..].cmp(&other[..])
    }
}

impl<const MAX: usize> std::hash::Hash for InlineOpaque<MAX> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<const MAX: usize> fmt::Debug for InlineOpaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.iter() {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl<const MAX: usize> Decode for InlineOpaque<MAX> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Self::new(reader.opaque_ref(MAX)?)
    }
}

impl<const MAX: usize> Encode for InlineOpaque<MAX> {
    fn encode(&self, writer: &mut Writer) {
        writer.opaque(self);
    }
}

/// A variable-length array (RFC 4506 §4.13) of at most `MAX` elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct List<T, const MAX: usize>(Vec<T>);

/// A linked list of optional data (RFC 4506 §4.19) of at most `MAX` elements, as in READDIR and EXPORT.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chain<T, const MAX: usize>(Vec<T>);

macro_rules! sequence {
    ($name:ident) => {
        impl<T, const MAX: usize> $name<T, MAX> {
            /// Wraps `items`.
            ///
            /// # Errors
            /// [`DecodeError::TooLong`] above `MAX` elements.
            pub fn new(items: Vec<T>) -> Result<Self, DecodeError> {
                if items.len() > MAX {
                    return Err(DecodeError::TooLong { length: items.len(), max: MAX });
                }
                Ok(Self(items))
            }

            /// Returns the elements.
            #[must_use]
            pub fn into_vec(self) -> Vec<T> {
                self.0
            }
        }

        impl<T, const MAX: usize> Default for $name<T, MAX> {
            fn default() -> Self {
                Self(Vec::new())
            }
        }

        impl<T, const MAX: usize> Deref for $name<T, MAX> {
            type Target = [T];
            fn deref(&self) -> &[T] {
                &self.0
            }
        }

        impl<'a, T, const MAX: usize> IntoIterator for &'a $name<T, MAX> {
            type Item = &'a T;
            type IntoIter = std::slice::Iter<'a, T>;
            fn into_iter(self) -> Self::IntoIter {
                self.0.iter()
            }
        }
    };
}
sequence!(List);
sequence!(Chain);

/// Elements to allocate up front when decoding, so that a large length without data costs little memory.
const RESERVE_AT_MOST: usize = 64;

impl<T: Decode, const MAX: usize> Decode for List<T, MAX> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let count = reader.length(MAX)?;
        let mut items = Vec::with_capacity(count.min(RESERVE_AT_MOST));
        for _ in 0..count {
            items.push(T::decode(reader)?);
        }
        Ok(Self(items))
    }
}

impl<T: Encode, const MAX: usize> Encode for List<T, MAX> {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(u32::try_from(self.0.len()).expect("lists are shorter than 2^32"));
        for item in &self.0 {
            item.encode(writer);
        }
    }
}

impl<T: Decode, const MAX: usize> Decode for Chain<T, MAX> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        let mut items = Vec::new();
        while reader.bool()? {
            if items.len() == MAX {
                return Err(DecodeError::TooLong { length: MAX + 1, max: MAX });
            }
            items.push(T::decode(reader)?);
        }
        Ok(Self(items))
    }
}

impl<T: Encode, const MAX: usize> Encode for Chain<T, MAX> {
    fn encode(&self, writer: &mut Writer) {
        for item in &self.0 {
            writer.bool(true);
            item.encode(writer);
        }
        writer.bool(false);
    }
}
