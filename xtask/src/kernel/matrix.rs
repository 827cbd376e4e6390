//! The combinations that the kernel tests run in.

use std::fmt;

use clap::ValueEnum;

/// Protocol version of the mount, as in mount's option `vers=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Version {
    #[value(name = "3")]
    V3,
    #[value(name = "4.0")]
    V40,
    #[value(name = "4.1")]
    V41,
    #[value(name = "4.2")]
    V42,
}

/// Whether the server must put acknowledged changes on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Export {
    Sync,
    Async,
}

/// What the server keeps the files in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// A directory of this machine.
    Local,
    /// The server's memory.
    Memory,
}

/// One guest boot: every test runs in it, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Combination {
    pub(super) version: Version,
    pub(super) export: Export,
    pub(super) backend: Backend,
}

impl Combination {
    /// The full matrix. In memory nothing is ever stable, so sync and async are the same there. Version 4.2 adds operations
    /// to 4.1 and changes little, so that it runs less often, and 4.0 has the state of 4.1 in another way: it runs once.
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
        let oldest = Combination { version: Version::V40, export: Export::Sync, backend: Backend::Local };
        full.chain(newest).chain([oldest])
    }

    /// The options that choose exactly this combination.
    pub(super) fn arguments(&self) -> [&'static str; 6] {
        ["--version", self.version.name(), "--export", self.export.name(), "--backend", self.backend.name()]
    }

    /// A name for files: `3-sync-local`.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_no_combination_twice() {
        let all: Vec<Combination> = Combination::all().collect();
        for (index, combination) in all.iter().enumerate() {
            assert!(!all[..index].contains(combination), "{combination} twice");
        }
        assert_eq!(all.len(), 9);
    }

    #[test]
    fn arguments_are_what_the_command_line_reads() {
        for combination in Combination::all() {
            let [_, version, _, export, _, backend] = combination.arguments();
            assert_eq!(Version::from_str(version, false), Ok(combination.version));
            assert_eq!(Export::from_str(export, false), Ok(combination.export));
            assert_eq!(Backend::from_str(backend, false), Ok(combination.backend));
        }
    }
}
