//! Test programs of crates.io: foreign suites that run on the mounts.
//!
//! Each is built once at one version into a directory that is named after both, below cargo's target directory, so that a
//! second run finds it there and asks no network.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::report::{target_dir, workspace_root};

/// A program of crates.io, of the same name as its crate.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    version: &'static str,
    pub(crate) why: &'static str,
}

/// All of them. Another version may bring tests whose failures nobody has looked at: whoever changes one runs the kernel tests.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "pjdfstest",
        version: "0.2.2",
        why: "what POSIX says of each system call, tried on the mount",
    },
    Tool {
        name: "fsx",
        version: "0.3.2",
        why: "random operations on one file of the mount, each read checked",
    },
];

impl Tool {
    /// Where the program is, or will be.
    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("bin").join(self.name)
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.path().is_file()
    }

    /// Builds it with the versions of its dependencies that its author tested it with.
    pub(crate) fn install(&self) -> Result<(), String> {
        let status = Command::new(env!("CARGO"))
            .args(["install", "--quiet", "--locked", "--version", self.version, self.name, "--root"])
            .arg(self.root())
            // In a directory of cargo's own, which it removes: what is left is the program.
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(workspace_root())
            .stdin(Stdio::null())
            .status()
            .map_err(|error| format!("cargo install: {error}"))?;
        if status.success() { Ok(()) } else { Err(format!("cargo install {} failed: {status}", self.name)) }
    }

    fn root(&self) -> PathBuf {
        target_dir().join("tools").join(format!("{}-{}", self.name, self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::TOOLS;

    #[test]
    fn each_version_has_a_place_of_its_own() {
        for tool in TOOLS {
            let path = tool.path();
            assert!(path.is_absolute() && path.ends_with(format!("bin/{}", tool.name)), "{}", path.display());
            assert!(path.to_string_lossy().contains(&format!("{}-{}/", tool.name, tool.version)));
        }
    }
}
