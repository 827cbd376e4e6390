//! FSINFO, PATHCONF and FSSTAT (RFC 1813 §3.3.18–3.3.20).

use futures_util::future::join;
use protocol::nfs3::{FsinfoArgs, FsstatArgs, PathconfArgs};

use super::super::Nfs3;
use super::super::calls::to_wire;
use crate::config::{Caller, TRANSFER_MAX};
use crate::error::OpError;
use crate::results::{FileHandle, FsInfo, FsStat};

/// READs and WRITEs are not smaller than this, even if a server requests it.
const TRANSFER_MIN: u32 = 512;
/// The maximum length of a name if the server does not report it.
const NAME_MAX_DEFAULT: u32 = 255;

impl Nfs3 {
    /// Returns the properties of the object's file system.
    pub(crate) async fn fs_info(&self, caller: &Caller, handle: FileHandle) -> Result<FsInfo, OpError> {
        let object = to_wire(&handle)?;
        let (info_args, limits_args) = (FsinfoArgs { fsroot: object }, PathconfArgs { object });
        let (info, limits) = join(self.call(caller, &info_args), self.call(caller, &limits_args)).await;
        let info = info?;
        // Some servers answer PATHCONF for nothing but the root; its limits are not needed to work.
        let limits = match limits {
            Ok(limits) => Some(limits),
            Err(OpError::Status(_)) => None,
            Err(error) => return Err(error),
        };
        let most = self.config.transfer_max().min(TRANSFER_MAX);
        let size = |server: u32, own: u32| server.min(own).clamp(TRANSFER_MIN, most);
        Ok(FsInfo {
            read_max: size(info.rtmax, self.config.read_size),
            write_max: size(info.wtmax, self.config.write_size),
            file_size_max: info.maxfilesize,
            name_max: limits.map_or(NAME_MAX_DEFAULT, |limits| limits.name_max),
            link_max: limits.map_or(u32::MAX, |limits| limits.linkmax),
            lease_seconds: 0,
        })
    }

    /// Returns the free space of the object's file system.
    pub(crate) async fn fs_stat(&self, caller: &Caller, handle: FileHandle) -> Result<FsStat, OpError> {
        let ok = self.call(caller, &FsstatArgs { fsroot: to_wire(&handle)? }).await?;
        Ok(FsStat {
            total_bytes: ok.tbytes,
            free_bytes: ok.fbytes,
            available_bytes: ok.abytes,
            total_files: ok.tfiles,
            free_files: ok.ffiles,
            available_files: ok.afiles,
        })
    }
}
