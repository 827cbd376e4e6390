//! Requests built once and sent many times: only the xid and a few counted fields are patched.

use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{self, CallHeader};
use rpc::record;
use xdr::{Encode, Opaque, Writer};

/// Offset of the xid in a record: right after the record mark.
const XID_AT: usize = record::HEADER_LENGTH;

/// A program of ONC RPC and its version.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its number.
    pub number: u32,
    /// Its version.
    pub version: u32,
}

/// The user of all calls; the servers are configured not to squash it.
pub(super) fn user() -> AuthSys {
    AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys-bench"),
        uid: 0,
        gid: 0,
        gids: GroupList::new(&[0]).expect("one group is allowed"),
    }
}

/// One request, complete with its record mark, ready to be copied and patched.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
}

impl Template {
    /// Returns a call by user 0.
    #[must_use]
    pub fn call(program: Program, procedure: u32, arguments: &impl Encode) -> Self {
        let header = CallHeader {
            credential: OpaqueAuth::sys(&user()),
            ..CallHeader::new(0, program.number, program.version, procedure)
        };
        let mut writer = Writer::new();
        let start = record::start_record(&mut writer);
        message::encode_call(&mut writer, &header, arguments);
        record::finish_record(&mut writer, start);
        Self { bytes: writer.into_bytes().to_vec() }
    }

    /// Cuts off the last `bytes` bytes, which are sent from elsewhere; the record mark still counts them.
    pub(crate) fn without_payload(mut self, bytes: usize) -> Self {
        self.bytes.truncate(self.bytes.len() - bytes);
        self
    }

    /// Appends the request to `out` and returns where it starts there.
    pub fn append(&self, xid: u32, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        patch(out, start + XID_AT, &xid.to_be_bytes());
        start
    }

    /// Finds the field in which two encodings of the same request differ, as an offset for [`patch`].
    ///
    /// Because encodings are compared, only the encoders need to know the offsets of fields.
    ///
    /// # Panics
    /// If they do not differ.
    #[must_use]
    pub fn field(low: &Self, high: &Self) -> usize {
        debug_assert_eq!(low.bytes.len(), high.bytes.len(), "only fields of a fixed length are patched");
        low.bytes.iter().zip(&high.bytes).position(|(a, b)| a != b).expect("the renderings differ")
    }
}

/// Overwrites `out` at `at`.
///
/// # Panics
/// If `out` ends before the end of `value`.
pub fn patch(out: &mut [u8], at: usize, value: &[u8]) {
    out[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_request_carries_mark_xid_and_patched_field() {
        let program = Program { number: 0x0001_86a3, version: 3 };
        let render = |offset: u64| {
            let words = [offset.to_be_bytes(), [0x5a; 8]].concat();
            let arguments: [u8; 16] = words.try_into().unwrap();
            Template::call(program, 7, &arguments).without_payload(8)
        };
        let field = Template::field(&render(0), &render(u64::MAX));
        let mut out = vec![7];
        let start = render(0).append(0x0102_0304, &mut out);
        patch(&mut out, start + field, &0x1122_3344_5566_7788_u64.to_be_bytes());
        assert_eq!(out[0], 7, "earlier content");
        let request = &out[1..];
        // RFC 5531 §11: the last fragment's bit, and the length of all that follows, the payload among it.
        let mark = u32::from_be_bytes(request[..4].try_into().unwrap());
        assert_eq!(mark, 0x8000_0000 | (request.len() - 4 + 8) as u32);
        // RFC 5531 §9: xid, CALL, RPC version 2, program, version, procedure, AUTH_SYS.
        let words = [0x0102_0304, 0, 2, 0x0001_86a3, 3, 7, 1].map(u32::to_be_bytes);
        assert!(request[4..].starts_with(words.as_flattened()));
        assert!(request.ends_with(&[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]));
    }
}
