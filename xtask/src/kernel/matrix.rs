//! The combinations that the kernel tests run in.

use std::fmt;

use clap::ValueEnum;

/// Protocol version of the mount, by the mount option `vers=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Version {
    #[value(name = "2")]
    V2,
    #[value(name = "3")]
    V3,
    #[value(name = "4.0")]
    V40,
    #[value(name = "4.1")]
    V41,
    #[value(name = "4.2")]
    V42,
}

/// Whether changes are on stable storage before the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Export {
    Sync,
    Async,
}

/// The storage of the served files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// A directory of this machine.
    Local,
    /// The server's memory.
    Memory,
    /// The disk of a second guest, which is the server (`--server-kind knfsd`).
    Guest,
}

/// The combination of one or several guest boots, in which tests run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combination {
    pub(super) version: Version,
    pub(super) export: Export,
    pub(super) backend: Backend,
}

impl Combination {
    /// Returns the full matrix. In memory, sync and async are the same. Version 4.2 differs little from 4.1, so it runs only with
    /// sync exports; 2 and 4.0 run once.
    pub(super) fn all() -> impl Iterator<Item = Combination> {
        let stores = [
            (Export::Sync, Backend::Local),
            (Export::Async, Backend::Local),
            (Export::Sync, Backend::Memory),
        ];
        let full = stores.into_iter().flat_map(|(export, backend)| {
            [Version::V3, Version::V41].map(|version| Combination { version, export, backend })
        });
        let version = Version::V42;
        let newest = stores
            .into_iter()
            .filter(|(export, _)| *export == Export::Sync)
            .map(move |(export, backend)| Combination { version, export, backend });
        let oldest = [Version::V40, Version::V2];
        let oldest =
            oldest.map(|version| Combination { version, export: Export::Sync, backend: Backend::Local });
        full.chain(newest).chain(oldest)
    }

    /// Returns those of a server in a guest.
    pub(super) fn of_guest() -> impl Iterator<Item = Combination> {
        let versions = [Version::V3, Version::V40, Version::V41, Version::V42];
        let (export, backend) = (Export::Sync, Backend::Guest);
        versions.into_iter().map(move |version| Combination { version, export, backend })
    }

    /// Returns the options that select exactly this combination.
    pub(super) fn arguments(&self) -> [&'static str; 6] {
        ["--version", self.version.name(), "--export", self.export.name(), "--backend", self.backend.name()]
    }

    /// Returns a name for files, such as `3-sync-local`.
    pub(super) fn slug(&self) -> String {
        format!("{}-{}-{}", self.version.name(), self.export.name(), self.backend.name())
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "v{:<4} {:<6} {:<7}", self.version.name(), self.export.name(), self.backend.name())
    }
}

impl Version {
    pub(super) fn name(self) -> &'static str {
        match self {
            Version::V2 => "2",
            Version::V3 => "3",
            Version::V40 => "4.0",
            Version::V41 => "4.1",
            Version::V42 => "4.2",
        }
    }
}

impl Export {
    pub(super) fn name(self) -> &'static str {
        match self {
            Export::Sync => "sync",
            Export::Async => "async",
        }
    }
}

impl Backend {
    pub(super) fn name(self) -> &'static str {
        match self {
            Backend::Local => "local",
            Backend::Memory => "memory",
            Backend::Guest => "guest",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_are_unique() {
        let all: Vec<Combination> = Combination::all().collect();
        for (index, combination) in all.iter().enumerate() {
            assert!(!all[..index].contains(combination), "{combination} twice");
        }
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn arguments_parse_to_the_combination() {
        for combination in Combination::all() {
            let [_, version, _, export, _, backend] = combination.arguments();
            assert_eq!(Version::from_str(version, false), Ok(combination.version));
            assert_eq!(Export::from_str(export, false), Ok(combination.export));
            assert_eq!(Backend::from_str(backend, false), Ok(combination.backend));
        }
    }
}
