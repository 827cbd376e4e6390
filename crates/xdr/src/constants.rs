/// Declares an enumeration as a newtype with named constants, so that unknown values can be decoded.
///
/// ```
/// xdr::constants! {
///     /// The result of an operation.
///     pub struct Status: u32 {
///         /// Success.
///         OK = 0,
///         /// Not permitted.
///         PERM = 1,
///     }
/// }
/// assert_eq!(format!("{:?} {:?}", Status::PERM, Status(7)), "PERM Status(7)");
/// ```
#[macro_export]
macro_rules! constants {
    ($(#[$meta:meta])* $vis:vis struct $name:ident: u32 { $($(#[$item_meta:meta])* $item:ident = $value:expr),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name(pub u32);

        impl $name {
            $($(#[$item_meta])* pub const $item: Self = Self($value);)*

            /// Returns the name of a known value.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                $(if self.0 == $value { return Some(stringify!($item)); })*
                None
            }

            /// All known values, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$item),*];
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }

        impl $crate::Decode for $name {
            fn decode(reader: &mut $crate::Reader) -> Result<Self, $crate::DecodeError> {
                reader.u32().map(Self)
            }
        }

        impl $crate::Encode for $name {
            fn encode(&self, writer: &mut $crate::Writer) {
                writer.u32(self.0);
            }
        }
    };
}
