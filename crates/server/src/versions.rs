use bitflags::bitflags;

bitflags! {
    /// Versions of NFS that a server serves.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Versions: u8 {
        /// Version 3 (RFC 1813).
        const V3 = 1;
        /// Version 4.0 (RFC 7530).
        const V4_0 = 1 << 1;
        /// Version 4.1 (RFC 8881).
        const V4_1 = 1 << 2;
        /// Version 4.2 (RFC 7862).
        const V4_2 = 1 << 3;
        /// Version 4 with all its minor versions.
        const V4 = Self::V4_0.bits() | Self::V4_1.bits() | Self::V4_2.bits();
        /// Version 2 (RFC 1094).
        const V2 = 1 << 4;
    }
}

impl Versions {
    /// All versions that this software can serve.
    pub const IMPLEMENTED: Self = Self::all();

    /// The versions that are served unless configured otherwise. Version 2 has 32-bit sizes, and few clients still need it.
    pub const DEFAULT: Self = Self::V3.union(Self::V4);

    /// The minor versions of version 4, lowest first.
    const MINOR: [Self; 3] = [Self::V4_0, Self::V4_1, Self::V4_2];

    /// Returns whether this minor version of version 4 is among them.
    #[must_use]
    pub fn has_minor(self, minor: u32) -> bool {
        Self::MINOR.get(minor as usize).is_some_and(|version| self.contains(*version))
    }

    /// Returns the versions of the NFS program, as a set of bits: bit 3 for version 3.
    #[must_use]
    pub fn program_versions(self) -> u32 {
        let bit = |is_served: bool, version: u32| u32::from(is_served) << version;
        bit(self.contains(Self::V2), 2) | bit(self.contains(Self::V3), 3) | bit(self.intersects(Self::V4), 4)
    }

    /// Parses a version: `2`, `3`, `4.0`, `4.1`, `4.2`; `4` means all of version 4.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "2" => Self::V2,
            "3" => Self::V3,
            "4" => Self::V4,
            "4.0" => Self::V4_0,
            "4.1" => Self::V4_1,
            "4.2" => Self::V4_2,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minor_versions_are_distinguished() {
        let some = Versions::V4_0 | Versions::V4_2;
        assert_eq!(
            [0, 1, 2, 3, u32::MAX].map(|minor| some.has_minor(minor)),
            [true, false, true, false, false]
        );
    }

    #[test]
    fn minor_versions_are_one_version_of_the_program() {
        assert_eq!((Versions::V3 | Versions::V4_1).program_versions(), 0b11000);
        assert_eq!((Versions::V2 | Versions::V4_0 | Versions::V4_2).program_versions(), 0b10100);
        assert_eq!(Versions::DEFAULT.program_versions(), 0b11000);
        assert_eq!(Versions::empty().program_versions(), 0);
    }

    #[test]
    fn names_are_those_of_the_mount_options() {
        assert_eq!(Versions::named("4.1"), Some(Versions::V4_1));
        assert_eq!(Versions::named("4"), Some(Versions::V4_0 | Versions::V4_1 | Versions::V4_2));
        for wrong in ["", "5", "4.3", "v3", "41"] {
            assert_eq!(Versions::named(wrong), None);
        }
    }
}
