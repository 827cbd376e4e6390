//! A block with its key and a checksum, as bytes: a record that is torn, swapped or damaged is recognized.
//!
//! A mark of the format, the CRC-32C of all that follows, the lengths of key and data (4 bytes each, big-endian), key, data.

use bytes::Bytes;

/// The mark of the format. Change it with the format.
pub const MARK: [u8; 8] = *b"enfysB1\n";
/// Bytes before the key.
pub const HEADER: usize = MARK.len() + 4 + 8;

/// Returns the part of a record that precedes the data.
#[must_use]
pub fn head(key: &[u8], data: &[u8]) -> Vec<u8> {
    let lengths = [(key.len() as u32).to_be_bytes(), (data.len() as u32).to_be_bytes()].concat();
    let checksum = checksum(&[&lengths, key, data]);
    [&MARK[..], &checksum.to_be_bytes(), &lengths, key].concat()
}

/// Returns the data of a record; `None` if it is damaged or has another key.
#[must_use]
pub fn data(key: &[u8], record: &Bytes) -> Option<Bytes> {
    let start = HEADER + key.len();
    let data = record.get(start..)?;
    (record[..start] == head(key, data)[..]).then(|| record.slice(start..))
}

fn checksum(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |checksum, part| crc32c::crc32c_append(checksum, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &[u8], data: &[u8]) -> Bytes {
        [&head(key, data)[..], data].concat().into()
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_recognized() {
        let whole = record(b"key", b"some data");
        assert_eq!(data(b"key", &whole), Some(Bytes::from_static(b"some data")));
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.to_vec();
                flipped[at] ^= 1 << bit;
                assert_eq!(data(b"key", &flipped.into()), None, "byte {at}, bit {bit}");
            }
            assert_eq!(data(b"key", &whole.slice(..at)), None, "cut at {at}");
        }
        assert_eq!(data(b"key", &[&whole[..], b"\0"].concat().into()), None);
    }

    #[test]
    fn a_record_of_another_block_is_not_taken() {
        let other = record(b"kez", b"some data");
        assert_eq!(data(b"key", &other), None);
        // The same bytes, divided in another way.
        assert_eq!(data(b"keys", &record(b"key", b"some data")), None);
    }
}
