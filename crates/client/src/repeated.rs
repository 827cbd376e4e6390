//! What both versions conclude from the reply to a repeated request.

use bytes::Bytes;
use protocol::nfs4::types::Status;

use crate::error::OpError;
use crate::results::{FileHandle, NewObject, Object};

/// Returns the object of a name (`found` by LOOKUP) that a repeated request to create it found there, if the first execution may have
/// created it: of this kind, and as a symbolic link with this content, which `read_link` reads.
///
/// # Errors
/// EXIST if it is another object; why it is not known otherwise.
pub(crate) async fn find_created(
    found: Result<Object, OpError>,
    kind: &NewObject,
    read_link: impl AsyncFn(FileHandle) -> Result<Bytes, OpError>,
) -> Result<Object, OpError> {
    let others = Err(OpError::Status(Status::EXIST));
    let object = match found {
        Ok(object) if object.attributes.kind == kind.file_kind() => object,
        // Another client's object, which it has removed meanwhile.
        Ok(_) | Err(OpError::Status(Status::NOENT)) => return others,
        Err(error) => return Err(error),
    };
    let NewObject::Symlink(target) = kind else { return Ok(object) };
    match read_link(object.handle).await {
        Ok(content) if content == target => Ok(object),
        Ok(_) | Err(OpError::Status(Status::STALE)) => others,
        Err(error) => Err(error),
    }
}
