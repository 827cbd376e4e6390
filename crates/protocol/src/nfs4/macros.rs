//! Macros for common forms of protocol types.

/// Declares a set of bits in a `uint32_t`. Undefined bits are kept, so that the operation can decide about them.
macro_rules! flags {
    ($(#[$($meta:tt)*])* pub struct $name:ident { $($(#[$($item_meta:tt)*])* $item:ident = $value:expr),* $(,)? }) => {
        bitflags::bitflags! {
            $(#[$($meta)*])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
            pub struct $name: u32 { $($(#[$($item_meta)*])* const $item = $value;)* const _ = !0; }
        }

        crate::flags_xdr!($name);
    };
}

pub(crate) use flags;

/// Declares the unions of all operations' arguments and results (`nfs_argop4`, `nfs_resop4`) by operation number. A row is
/// `NUMBER Variant(Args) -> Result`, or `NUMBER Variant -> Result` without arguments.
macro_rules! operations {
    (
        $(#[$op_meta:meta])* pub enum $op:ident; $(#[$result_meta:meta])* pub enum $result:ident; $opnum:ident;
        $($number:ident $variant:ident $(($args:ty))? -> $ok:ty;)*
    ) => {
        $(#[$op_meta])*
        #[derive(Debug, Clone, PartialEq, Eq, xdr::Encode, xdr::Decode)]
        #[allow(clippy::large_enum_variant)]
        pub enum $op {
            $(#[doc = concat!("`OP_", stringify!($number), "`.")]
            #[xdr(case = $opnum::$number.0)]
            $variant $(($args))?,)*
        }

        $(#[$result_meta])*
        #[derive(Debug, Clone, PartialEq, Eq, xdr::Encode, xdr::Decode)]
        #[allow(clippy::large_enum_variant)]
        pub enum $result {
            $(#[doc = concat!("`OP_", stringify!($number), "`.")]
            #[xdr(case = $opnum::$number.0)]
            $variant($ok),)*
        }

        impl $op {
            /// Returns the operation's number.
            #[must_use]
            pub const fn opnum(&self) -> $opnum {
                match self { $(Self::$variant { .. } => $opnum::$number,)* }
            }
        }

        impl $result {
            /// Returns the operation's number.
            #[must_use]
            pub const fn opnum(&self) -> $opnum {
                match self { $(Self::$variant(_) => $opnum::$number,)* }
            }
        }

        impl $crate::nfs4::types::HasStatus for $result {
            fn status(&self) -> $crate::nfs4::types::Status {
                match self { $(Self::$variant(result) => $crate::nfs4::types::HasStatus::status(result),)* }
            }
        }
    };
}

pub(crate) use operations;
