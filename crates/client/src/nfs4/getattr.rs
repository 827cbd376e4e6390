//! GETATTR in compounds: all attributes that the client caches, or the change attribute alone.

use protocol::nfs4::attributes::{Attributes as WireAttributes, FileAttributes, number};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::types::{Bitmap, Handle};

use super::convert::{WANTED, attributes};
use super::wire::{Results, take};
use crate::attributes::Attributes;
use crate::error::OpError;
use crate::results::Object;

/// The change attribute alone.
const CHANGE: Bitmap = Bitmap::of(&[number::CHANGE]);

/// GETATTR of the attributes that the client keeps.
pub(super) fn get_attributes() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: WANTED })
}

/// GETATTR of the change attribute, to see whether others changed an object before the operation that follows.
pub(super) fn get_change() -> Op {
    Op::GetAttr(GetAttrArgs { attributes: CHANGE })
}

/// Takes the result of [`get_change`].
pub(super) fn take_change(results: &mut Results) -> Result<Option<u64>, OpError> {
    let wire: FileAttributes = take!(results, GetAttr)?;
    Ok(WireAttributes::from_file_attributes(&wire).ok().and_then(|decoded| decoded.change))
}

/// Takes the result of [`get_attributes`].
pub(super) fn take_attributes(results: &mut Results) -> Result<Attributes, OpError> {
    let wire: FileAttributes = take!(results, GetAttr)?;
    attributes(&wire)
}

/// Takes the result of GETFH.
pub(super) fn take_handle(results: &mut Results) -> Result<Handle, OpError> {
    let handle = take!(results, GetFh)?;
    if handle.is_empty() {
        return Err(OpError::BadReply("an empty file handle"));
    }
    Ok(handle)
}

/// Takes the results of GETFH and [`get_attributes`].
pub(super) fn take_object(results: &mut Results) -> Result<Object, OpError> {
    let handle = take_handle(results)?;
    Ok(Object { handle, attributes: take_attributes(results)? })
}
