//! Properties and free space of a file system, as attributes of its objects (RFC 8881 §5).

use protocol::nfs4::attributes::values::open_args;
use protocol::nfs4::attributes::{Attributes as WireAttributes, number};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::types::Bitmap;

use super::super::Nfs4;
use super::super::wire::{Results, put, take};
use crate::config::{Caller, TRANSFER_MAX};
use crate::error::OpError;
use crate::results::{FileHandle, FsInfo, FsStat};

const INFO: Bitmap = Bitmap::of(&[
    number::LEASE_TIME,
    number::MAXFILESIZE,
    number::MAXLINK,
    number::MAXNAME,
    number::MAXREAD,
    number::MAXWRITE,
]);
/// The arguments of OPEN that the server knows (RFC 9754 §3).
const OPEN_ARGUMENTS: Bitmap = Bitmap::of(&[number::OPEN_ARGUMENTS]);
const SPACE: Bitmap = Bitmap::of(&[
    number::SPACE_AVAIL,
    number::SPACE_FREE,
    number::SPACE_TOTAL,
    number::FILES_AVAIL,
    number::FILES_FREE,
    number::FILES_TOTAL,
]);
/// Bytes of a request or reply apart from the data of one WRITE or READ: headers, credentials, a handle.
const OVERHEAD: u32 = 1024;
/// READs and WRITEs are whole pages, if they have at least that many bytes.
const PAGE: u32 = 4096;
/// READs and WRITEs are not smaller than this, even if a server requests it.
const TRANSFER_MIN: u32 = 512;

/// Returns GETATTR of the properties of a file system, for [`Nfs4::take_info`].
pub(super) fn get_info(minor_version: u32) -> Op {
    let attributes = if minor_version < 2 { INFO } else { INFO.union(OPEN_ARGUMENTS) };
    Op::GetAttr(GetAttrArgs { attributes })
}

impl Nfs4 {
    /// Returns the properties of the object's file system.
    pub(crate) async fn fs_info(&self, caller: &Caller, handle: FileHandle) -> Result<FsInfo, OpError> {
        let mut results = self.read_only(caller, &[put(handle), get_info(self.minor_version)]).await?;
        results.skip()?;
        self.take_info(&mut results).await
    }

    /// Takes the result of [`get_info`].
    pub(super) async fn take_info(&self, results: &mut Results) -> Result<FsInfo, OpError> {
        let wire = take_attributes(results)?;
        let wants = wire.open_arguments.as_ref().map(|arguments| arguments.share_access_want);
        self.set_delegates_times(wants.is_some_and(|wants| wants.has(open_args::WANT_DELEG_TIMESTAMPS)));
        let limits = self.session().await?.limits;
        // The file system's bound, the configuration's, and the size of a request or reply of the session.
        let transfer = |max: Option<u64>, configured: u32, session: u32| {
            let max = max.unwrap_or(u64::MAX).min(u64::from(configured)).min(u64::from(TRANSFER_MAX)) as u32;
            let max = max.min(session.saturating_sub(OVERHEAD)).max(TRANSFER_MIN);
            if max >= PAGE { max - max % PAGE } else { max }
        };
        Ok(FsInfo {
            read_max: transfer(wire.maxread, self.config.read_size, limits.response),
            write_max: transfer(wire.maxwrite, self.config.write_size, limits.request),
            file_size_max: wire.maxfilesize.unwrap_or(u64::MAX >> 1),
            name_max: wire.maxname.unwrap_or(255),
            link_max: wire.maxlink.unwrap_or(u32::MAX),
            lease_seconds: wire.lease_time.unwrap_or(0),
        })
    }

    /// Returns the free space of the object's file system.
    pub(crate) async fn fs_stat(&self, caller: &Caller, handle: FileHandle) -> Result<FsStat, OpError> {
        let ops = [put(handle), Op::GetAttr(GetAttrArgs { attributes: SPACE })];
        let mut results = self.read_only(caller, &ops).await?;
        results.skip()?;
        let wire = take_attributes(&mut results)?;
        Ok(FsStat {
            total_bytes: wire.space_total.unwrap_or(0),
            free_bytes: wire.space_free.unwrap_or(0),
            available_bytes: wire.space_avail.unwrap_or(0),
            total_files: wire.files_total.unwrap_or(0),
            free_files: wire.files_free.unwrap_or(0),
            available_files: wire.files_avail.unwrap_or(0),
        })
    }
}

fn take_attributes(results: &mut Results) -> Result<WireAttributes, OpError> {
    WireAttributes::from_file_attributes(&take!(results, GetAttr)?)
        .map_err(|_| OpError::BadReply("attributes that cannot be decoded"))
}
