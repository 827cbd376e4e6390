//! GETDEVICEINFO and GETDEVICELIST (RFC 8881 §18.40, §18.41; v4.2 does not have the latter).

use xdr::{Decode, DecodeError, Encode, List, Reader, Writer};

use crate::nfs4::layout::{DeviceAddress, LayoutType};
use crate::nfs4::types::{Bitmap, Cookie, DeviceId, HasStatus, Outcome, Status, Verifier};

/// Maximum number of devices in a list: 64 KiB of them.
pub const MAX_DEVICES: usize = 4096;

/// `GETDEVICEINFO4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceInfoArgs {
    /// The device.
    pub device_id: DeviceId,
    /// Layout type.
    pub layout_type: LayoutType,
    /// Maximum size of the address, in bytes; 0 requests notifications only.
    pub maxcount: u32,
    /// Requested notifications.
    pub notify_types: Bitmap,
}

/// `GETDEVICEINFO4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceInfoOk {
    /// The address.
    pub address: DeviceAddress,
    /// Granted notifications.
    pub notification: Bitmap,
}

/// `GETDEVICEINFO4res`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GetDeviceInfoResult {
    /// The device.
    Ok(GetDeviceInfoOk),
    /// `NFS4ERR_TOOSMALL`: the size needed, in bytes.
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
    /// Maximum number of devices.
    pub max_devices: u32,
    /// 0, or the cookie to continue from.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookie_verifier: Verifier,
}

/// `GETDEVICELIST4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetDeviceListOk {
    /// The cookie to continue from.
    pub cookie: Cookie,
    /// The verifier to send with the cookie.
    pub cookie_verifier: Verifier,
    /// Devices.
    pub device_ids: List<DeviceId, MAX_DEVICES>,
    /// Whether these are the last.
    pub eof: bool,
}

/// `GETDEVICELIST4res`.
pub type GetDeviceListResult = Outcome<GetDeviceListOk>;
