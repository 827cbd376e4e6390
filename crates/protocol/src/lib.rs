//! Wire types of the port mapper and rpcbind, MOUNT, NFS versions 2 to 4.2 and their side protocols, without behaviour.
//!
//! A module a program: its numbers, its limits, its types, and a [`procedure::ProgramVersion`] table that says of each
//! procedure what dispatch, reply cache and metrics must know.
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

/// Encodes and decodes a `bitflags` type as its 32 bits; unknown ones are kept.
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
