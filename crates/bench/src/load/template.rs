//! Requests built once and sent many times: only the xid and a few counted fields are patched.

use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{self, CallHeader};
use rpc::record;
use xdr::{Encode, Opaque, Writer};

/// Where the xid stands in a record: right after the record mark.
const XID_AT: usize = record::HEADER_LENGTH;

/// A program of ONC RPC and its version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) number: u32,
    pub(crate) version: u32,
}

/// Arguments that are XDR already.
pub(crate) struct Raw<'a>(pub(crate) &'a [u8]);

impl Encode for Raw<'_> {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(self.0);
    }
}

/// One request, complete with its record mark, ready to be copied and patched.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
}

impl Template {
    /// A call by user 0, whom the servers are told not to squash; the last `payload_bytes` bytes of its arguments are
    /// sent from elsewhere.
    pub(crate) fn call(
        program: Program,
        procedure: u32,
        arguments: &impl Encode,
        payload_bytes: u32,
    ) -> Self {
        let credential = AuthSys {
            stamp: 0,
            machine_name: Opaque::from_static(b"enfys-bench"),
            uid: 0,
            gid: 0,
            gids: GroupList::new(&[0]).expect("one group is not too many"),
        };
        let header = CallHeader {
            credential: OpaqueAuth::sys(&credential),
            ..CallHeader::new(0, program.number, program.version, procedure)
        };
        let mut writer = Writer::new();
        message::encode_call(&mut writer, &header, arguments);
        Self::framed(writer.inline(), payload_bytes)
    }

    /// Frames `message` as a single-fragment record whose last `payload_bytes` bytes are sent from elsewhere.
    fn framed(message: &[u8], payload_bytes: u32) -> Self {
        let length = u32::try_from(message.len()).expect("a request head is short") + payload_bytes;
        // RFC 5531 §11: the highest bit says that this fragment is the record's last.
        let mut bytes = (length | record::LAST_FRAGMENT).to_be_bytes().to_vec();
        bytes.extend_from_slice(message);
        Self { bytes }
    }

    /// Appends the request to `out` and returns where it starts there.
    pub(crate) fn append(&self, xid: u32, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        patch(out, start + XID_AT, &xid.to_be_bytes());
        start
    }

    /// Finds the field in which two renderings of the same request differ, as an offset for [`patch`].
    ///
    /// Comparing renderings keeps all knowledge of where a field stands in the encoders.
    pub(crate) fn field(low: &Self, high: &Self) -> usize {
        debug_assert_eq!(low.bytes.len(), high.bytes.len(), "only fields of a fixed length are patched");
        low.bytes.iter().zip(&high.bytes).position(|(a, b)| a != b).expect("the renderings differ")
    }
}

/// Overwrites `out` at `at`.
pub(crate) fn patch(out: &mut [u8], at: usize, value: &[u8]) {
    out[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_request_carries_mark_xid_and_patched_field() {
        let render = |offset: u64| {
            let mut message = vec![0, 0, 0, 0, 0xaa, 0xbb];
            message.extend_from_slice(&offset.to_be_bytes());
            Template::framed(&message, 4096)
        };
        let field = Template::field(&render(0), &render(u64::MAX));
        let mut out = vec![7];
        let start = render(0).append(0x0102_0304, &mut out);
        patch(&mut out, start + field, &0x1122_3344_5566_7788_u64.to_be_bytes());
        assert_eq!(
            out,
            [
                7, // what was there before
                0x80, 0, 0x10, 14, // RFC 5531 §11: last fragment, 4096 + 14 bytes
                1, 2, 3, 4, 0xaa, 0xbb, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
            ]
        );
    }
}
