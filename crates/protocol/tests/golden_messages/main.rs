//! Recorded messages of others' programs are decoded to what tshark says about them, and encoded to the same bytes.
//!
//! The exchanges are those of a Linux 6.1 kernel client, libnfs, showmount and rpcinfo with NFS-Ganesha, knfsd and rpcbind; what no program
//! could be made to ask (errors, rare procedures) was asked by hand or by pynfs, and the replies kept.

#[path = "../common/golden.rs"]
mod golden;
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

/// Takes the header off a recorded message; returns what follows it, and the header encoded again.
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

/// Decodes to the last byte, and encodes to the same bytes.
fn same_bytes<T: Decode + Encode + Debug>(golden: &Golden) -> T {
    let (mut reader, mut writer) = body(golden);
    let value = T::decode(&mut reader).unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    reader.finish().unwrap_or_else(|error| panic!("{}: {error}", golden.name));
    value.encode(&mut writer);
    assert_eq!(writer.into_bytes(), golden.message, "{}: {value:?}", golden.name);
    value
}

/// As [`same_bytes`], and sees what tshark sees.
fn same_as_tshark<T: Decode + Encode + Debug + Shown>(golden: &Golden) {
    let mut shows = Shows::default();
    same_bytes::<T>(golden).show(&mut shows);
    shows.must_be(golden);
}
