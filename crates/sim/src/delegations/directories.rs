//! Directories instead of files: a write creates an entry whose name is the value, and a read finds the greatest one.
//!
//! Values grow, so a directory is a register like a file: a read without an entry that was acknowledged before it began has read an
//! overwritten value.

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::delegation::GetDirDelegationArgs;
use protocol::nfs4::ops::readdir::{ReadDirArgs, ReadDirOk};
use protocol::nfs4::types::{Bitmap, Time};
use xdr::Opaque;

use crate::client::at_export;

/// Bytes of a listing: more than all entries of a run take.
const LISTING_BYTES: u32 = 8 << 10;

/// Returns READDIR with GET_DIR_DELEGATION and these notifications.
pub(crate) fn read(directory: &str, notification_types: Bitmap) -> Vec<Op> {
    let at_once = Time { seconds: 0, nanoseconds: 0 };
    let ask = GetDirDelegationArgs {
        signal_available: false,
        notification_types,
        child_attribute_delay: at_once,
        directory_attribute_delay: at_once,
        child_attributes: Bitmap::EMPTY,
        directory_attributes: Bitmap::EMPTY,
    };
    let list = ReadDirArgs {
        cookie: 0,
        cookie_verifier: [0; 8],
        dircount: LISTING_BYTES,
        maxcount: LISTING_BYTES,
        attributes: Bitmap::EMPTY,
    };
    let mut ops = at_export(directory);
    ops.extend([Op::GetDirDelegation(ask), Op::GetFh, Op::ReadDir(list)]);
    ops
}

/// Creates the entry of a value.
pub(super) fn write(directory: &str, value: u64) -> Vec<Op> {
    let name = Opaque::new(value.to_string().into_bytes()).expect("a short name");
    let attributes = FileAttributes::default();
    let mut ops = at_export(directory);
    ops.push(Op::Create(CreateArgs { object_type: CreateType::DIRECTORY, name, attributes }));
    ops
}

/// Returns the value that a listing shows; `None` for an incomplete listing.
pub(super) fn value(listing: &ReadDirOk) -> Option<u64> {
    let names = listing.entries.iter().map(|entry| std::str::from_utf8(&entry.name).ok()?.parse().ok());
    let values: Option<Vec<u64>> = names.collect();
    listing.eof.then_some(values?.into_iter().max().unwrap_or(0))
}
