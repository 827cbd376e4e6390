//! The guest's scripts: one file per test, with its properties in the comments at its start.
//!
//! ```text
//! # test: the property that it shows, in one line
//! # versions: 4.1        (default: 3 and 4.1)
//! # backends: local      (default: all)
//! # exports: sync async  (default: sync)
//! # limit: 600           (seconds; default: 300)
//! # takes: 10            (approximate seconds; default: 10; used only to order tests)
//! ```

use std::fs;
use std::path::Path;

use super::matrix::{Backend, Combination, Export, Version};
use clap::ValueEnum;

/// The default versions of a test.
const VERSIONS_DEFAULT: [Version; 2] = [Version::V3, Version::V41];

/// The default time limit of a test: many times what tests take on an idle machine.
const LIMIT_SECONDS_DEFAULT: u64 = 300;
/// The default duration of a test.
const TAKES_SECONDS_DEFAULT: u64 = 10;
/// The highest time limit that a test can set.
const LIMIT_SECONDS_MAX: u64 = 1800;

/// A test of the guest.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// The file name without `.sh`.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) limit_seconds: u64,
    /// Approximate duration.
    pub(super) takes_seconds: u64,
    versions: Vec<Version>,
    backends: Vec<Backend>,
    exports: Vec<Export>,
}

impl Script {
    /// Returns all scripts of a directory, sorted by name.
    pub(super) fn all(directory: &Path) -> Result<Vec<Script>, String> {
        let context = |error| format!("{}: {error}", directory.display());
        let mut scripts = Vec::new();
        for entry in fs::read_dir(directory).map_err(context)? {
            let path = entry.map_err(context)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sh")) else {
                continue;
            };
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            scripts.push(Script::parse(name, &text).map_err(|why| format!("{}: {why}", path.display()))?);
        }
        scripts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(scripts)
    }

    /// Returns whether the test runs in this combination.
    pub(super) fn runs_in(&self, combination: &Combination) -> bool {
        self.versions.contains(&combination.version)
            && self.backends.contains(&combination.backend)
            && self.exports.contains(&combination.export)
    }

    fn parse(name: &str, text: &str) -> Result<Script, String> {
        let mut script = Script {
            name: name.to_owned(),
            title: String::new(),
            limit_seconds: LIMIT_SECONDS_DEFAULT,
            takes_seconds: TAKES_SECONDS_DEFAULT,
            versions: VERSIONS_DEFAULT.to_vec(),
            backends: Backend::value_variants().to_vec(),
            // Which export mode it is shows only where data are written, or a server is killed.
            exports: vec![Export::Sync],
        };
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            let Some((key, value)) = line.trim_start_matches(['#', ' ']).split_once(": ") else { continue };
            match key {
                "test" => script.title = value.to_owned(),
                "versions" => script.versions = values(value)?,
                "backends" => script.backends = values(value)?,
                "exports" => script.exports = values(value)?,
                "limit" => script.limit_seconds = seconds(value)?,
                "takes" => script.takes_seconds = seconds(value)?,
                _ => {}
            }
        }
        if script.title.is_empty() {
            return Err("has no line `# test: …`".into());
        }
        Ok(script)
    }
}

fn values<T: ValueEnum>(text: &str) -> Result<Vec<T>, String> {
    text.split_whitespace().map(|word| T::from_str(word, false)).collect()
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds: u64 = text.trim().parse().map_err(|error| format!("{text}: {error}"))?;
    if seconds <= LIMIT_SECONDS_MAX {
        Ok(seconds)
    } else {
        Err(format!("{seconds} s exceeds {LIMIT_SECONDS_MAX} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Export;
    use super::*;

    const LOCAL_V3: Combination =
        Combination { version: Version::V3, export: Export::Sync, backend: Backend::Local };

    #[test]
    fn reads_the_properties() {
        let text = "# test: locks\n# versions: 4.1\n# backends: local memory\n# exports: async\n# limit: 30\n# takes: 5\nset -e\n# limit: 99\n";
        let script = Script::parse("locks", text).expect("a good script");
        assert_eq!((script.title.as_str(), script.limit_seconds, script.takes_seconds), ("locks", 30, 5));
        assert!(!script.runs_in(&LOCAL_V3));
        assert!(!script.runs_in(&Combination { version: Version::V41, ..LOCAL_V3 }));
        assert!(script.runs_in(&Combination { version: Version::V41, export: Export::Async, ..LOCAL_V3 }));
    }

    #[test]
    fn runs_in_versions_3_and_4_1_with_sync_exports_by_default() {
        let script = Script::parse("tree", "# test: a tree\n").expect("a good script");
        let usual = |it: &Combination| VERSIONS_DEFAULT.contains(&it.version) && it.export == Export::Sync;
        assert!(Combination::all().filter(usual).all(|combination| script.runs_in(&combination)));
    }

    #[test]
    fn rejects_unknown_versions_and_limits() {
        assert!(Script::parse("x", "echo").is_err());
        assert!(Script::parse("x", "# test: x\n# versions: 5\n").is_err());
        assert!(Script::parse("x", "# test: x\n# limit: 100000\n").is_err());
    }

    #[test]
    fn every_script_of_the_project_is_readable() {
        let scripts = Script::all(&super::super::scripts_dir().join("guest")).expect("readable scripts");
        assert!(!scripts.is_empty());
    }
}
