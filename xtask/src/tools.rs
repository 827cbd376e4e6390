//! Test programs from crates.io: external suites that run on the mounts.
//!
//! Each is built once, into a directory named after program and version below cargo's target directory, so that a second run needs
//! no network.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::report::{target_dir, workspace_root};

/// A program from crates.io with the name of its crate.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    version: &'static str,
    pub(crate) why: &'static str,
}

/// All programs. A new version may have new failing tests, so run the kernel tests after a change.
pub(crate) const TOOLS: &[Tool] = &[
    Tool { name: "pjdfstest", version: "0.2.2", why: "checks POSIX semantics of system calls on the mount" },
    Tool {
        name: "fsx",
        version: "0.3.2",
        why: "random operations on one file of the mount, with each read checked",
    },
];

impl Tool {
    /// Returns the program's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("bin").join(self.name)
    }

    pub(crate) fn is_installed(&self) -> bool {
        self.path().is_file()
    }

    /// Builds the program with the dependencies of its own lock file.
    pub(crate) fn install(&self) -> Result<(), String> {
        let status = Command::new(env!("CARGO"))
            // Two thirds of the time of a release build; the programs spend theirs in the kernel.
            .args([
                "install",
                "--debug",
                "--quiet",
                "--locked",
                "--version",
                self.version,
                self.name,
                "--root",
            ])
            .arg(self.root())
            // Cargo builds in a temporary directory and removes it; only the program remains.
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
    fn each_version_has_its_own_directory() {
        for tool in TOOLS {
            let path = tool.path();
            assert!(path.is_absolute() && path.ends_with(format!("bin/{}", tool.name)), "{}", path.display());
            assert!(path.to_string_lossy().contains(&format!("{}-{}/", tool.name, tool.version)));
        }
    }
}
