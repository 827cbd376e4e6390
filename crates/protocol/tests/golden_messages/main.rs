//! Messages recorded from other programs: they decode to the fields that tshark shows, and encode to the same bytes.
//!
//! The exchanges are between a Linux 6.1 kernel client, libnfs, showmount and rpcinfo, and NFS-Ganesha, knfsd and rpcbind. Errors
//! and rare procedures were called by hand or by pynfs.

#[path = "../common/golden.rs"]
mod golden;
mod nfs2;
mod nfs3;
mod nfs4;
mod services;
mod shown;
mod side;

use std::fmt::Debug;

use golden::Golden;
use rpc::message::{CallHeader, ReplyHeader};
use shown::{Shown, Shows};
use xdr::{Decode, Encode, Reader, Writer};

/// Decodes the header of a recorded message; returns a reader after it, and a writer with the header encoded again.
fn body(golden: &Golden) -> (Reader, Writer) {
    let mut reader = Reader::new(golden.message.clone());
    let mut writer = Writer::new();
    if golden.name.contains("_call") {
        CallHeader::parse(&mut reader).unwrap().encode(&mut writer);
    } else {
        let header = ReplyHeader::parse(&mut reader).unwrap();
        header.success().unwrap();
        header.encode(&mut writer);
    }
    (reader, writer)
}

/// Checks that the message decodes completely and encodes to the same bytes.
fn same_bytes<T: Decode + Encode + Debug>(golden: &Golden) -> T {
    let (mut reader, mut writer) = body(golden);
    let value = T::decode(&mut reader).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    reader.finish().unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    value.encode(&mut writer);
    assert_eq!(writer.into_bytes(), golden.message, "{}: {value:?}", golden.name);
    value
}

/// Checks [`same_bytes`] and that the fields match tshark's.
fn same_as_tshark<T: Decode + Encode + Debug + Shown>(golden: &Golden) {
    let mut shows = Shows::default();
    same_bytes::<T>(golden).show(&mut shows);
    shows.must_be(golden);
}
