//! GETDEVICEINFO and GETDEVICELIST (RFC 8881 §18.40, §18.41; the latter is gone in v4.2).

use xdr::{Decode, DecodeError, Encode, List, Reader, Writer};

use crate::nfs4::layout::{DeviceAddress, LayoutType};
use crate::nfs4::types::{Bitmap, Cookie, DeviceId, HasStatus, Outcome, Status, Verifier};

/// Greatest number of devices in a list: 64 KiB of them.
pub const MAX_DEVICES: usize = 4096;

/// `GETDEVICEINFO4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceInfoArgs {
    /// The device.
    pub device_id: DeviceId,
    /// Layout type.
    pub layout_type: LayoutType,
    /// Greatest size of the address, in bytes; 0 asks for notifications only.
    pub maxcount: u32,
    /// Notifications wanted.
    pub notify_types: Bitmap,
}

/// `GETDEVICEINFO4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceInfoOk {
    /// The address.
    pub address: DeviceAddress,
    /// Notifications that will come.
    pub notification: Bitmap,
}

/// `GETDEVICEINFO4res`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetDeviceInfoResult {
    /// Found.
    Ok(GetDeviceInfoOk),
    /// `NFS4ERR_TOOSMALL`: the size that would do, in bytes.
    TooSmall(u32),
    /// Any other status.
    Error(Status),
}

impl Decode for GetDeviceInfoResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(GetDeviceInfoOk::decode(reader)?),
            Status::TOOSMALL => Self::TooSmall(reader.u32()?),
            status => Self::Error(status),
        })
    }
}

impl Encode for GetDeviceInfoResult {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(ok) => ok.encode(writer),
            Self::TooSmall(mincount) => writer.u32(*mincount),
            Self::Error(_) => {}
        }
    }
}

impl HasStatus for GetDeviceInfoResult {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::TooSmall(_) => Status::TOOSMALL,
            Self::Error(status) => *status,
        }
    }
}

/// `GETDEVICELIST4args`. Current handle: any object of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceListArgs {
    /// Layout type.
    pub layout_type: LayoutType,
    /// Devices wanted.
    pub max_devices: u32,
    /// 0, or where to go on.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookie_verifier: Verifier,
}

/// `GETDEVICELIST4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceListOk {
    /// Where to go on.
    pub cookie: Cookie,
    /// To be sent with it.
    pub cookie_verifier: Verifier,
    /// Devices.
    pub device_ids: List<DeviceId, MAX_DEVICES>,
    /// Whether these were the last.
    pub eof: bool,
}

/// `GETDEVICELIST4res`.
pub type GetDeviceListResult = Outcome<GetDeviceListOk>;
