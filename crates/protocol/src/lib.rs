//! Wire types of NFS versions 2 to 4.2, MOUNT, the port mapper, rpcbind and side protocols, without behavior.
//!
//! Each program has a module with its numbers, limits and types. A [`procedure::ProgramVersion`] table has the properties of
//! each procedure for dispatch, reply cache and metrics.
#![forbid(unsafe_code)]

pub mod mount;
pub mod nfs2;
pub mod nfs3;
pub mod nfs4;
pub mod nfsacl;
pub mod nlm;
pub mod nsm;
pub mod portmap;
pub mod procedure;
pub mod rpcbind;
pub mod rquota;

/// Implements XDR for a `bitflags` type of 32 bits; unknown bits are kept.
macro_rules! flags_xdr {
    ($name:ty) => {
        impl ::xdr::Encode for $name {
            fn encode(&self, writer: &mut ::xdr::Writer) {
                writer.u32(self.bits());
            }
        }
        impl ::xdr::Decode for $name {
            fn decode(reader: &mut ::xdr::Reader) -> Result<Self, ::xdr::DecodeError> {
                reader.u32().map(Self::from_bits_retain)
            }
        }
    };
}
pub(crate) use flags_xdr;
