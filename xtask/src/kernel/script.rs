//! The guest's scripts: one file a test, its properties in the comments that it starts with.
//!
//! ```text
//! # test: what it shows, in one line
//! # versions: 4.1        (3 and 4.1 where the line is missing)
//! # backends: local      (all where the line is missing)
//! # limit: 600           (seconds; 300 where the line is missing)
//! # takes: 10            (seconds, about; 10 where the line is missing; only the order of the tests depends on it)
//! ```

use std::fs;
use std::path::Path;

use super::matrix::{Backend, Combination, Version};
use clap::ValueEnum;

/// The versions of a test that names none.
const VERSIONS_DEFAULT: [Version; 2] = [Version::V3, Version::V41];

/// A test that runs longer than this hangs, unless it says how long it may take: many times what tests take on a machine that has
/// nothing else to do.
const LIMIT_SECONDS_DEFAULT: u64 = 300;
/// What a test takes that does not say so.
const TAKES_SECONDS_DEFAULT: u64 = 10;
/// No test may ask for more.
const LIMIT_SECONDS_MAX: u64 = 600;

/// A test of the guest.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Its file's name without `.sh`.
    pub(super) name: String,
    pub(super) title: String,
    pub(super) limit_seconds: u64,
    /// About how long it takes.
    pub(super) takes_seconds: u64,
    versions: Vec<Version>,
    backends: Vec<Backend>,
}

impl Script {
    /// All scripts of a directory, by name.
    pub(super) fn all(directory: &Path) -> Result<Vec<Script>, String> {
        let told = |error| format!("{}: {error}", directory.display());
        let mut scripts = Vec::new();
        for entry in fs::read_dir(directory).map_err(told)? {
            let path = entry.map_err(told)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sh")) else {
                continue;
            };
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            scripts.push(Script::parse(name, &text).map_err(|why| format!("{}: {why}", path.display()))?);
        }
        scripts.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(scripts)
    }

    /// Whether the test means anything in this combination.
    pub(super) fn runs_in(&self, combination: &Combination) -> bool {
        self.versions.contains(&combination.version) && self.backends.contains(&combination.backend)
    }

    fn parse(name: &str, text: &str) -> Result<Script, String> {
        let mut script = Script {
            name: name.to_owned(),
            title: String::new(),
            limit_seconds: LIMIT_SECONDS_DEFAULT,
            takes_seconds: TAKES_SECONDS_DEFAULT,
            versions: VERSIONS_DEFAULT.to_vec(),
            backends: Backend::value_variants().to_vec(),
        };
        for line in text.lines().take_while(|line| line.starts_with('#')) {
            let Some((key, value)) = line.trim_start_matches(['#', ' ']).split_once(": ") else { continue };
            match key {
                "test" => script.title = value.to_owned(),
                "versions" => script.versions = values(value)?,
                "backends" => script.backends = values(value)?,
                "limit" => script.limit_seconds = seconds(value)?,
                "takes" => script.takes_seconds = seconds(value)?,
                _ => {}
            }
        }
        if script.title.is_empty() {
            return Err("says nowhere `# test: …`".into());
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
        Err(format!("{seconds} s is over {LIMIT_SECONDS_MAX} s"))
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
        let text = "# test: locks\n# versions: 4.1\n# backends: local memory\n# limit: 30\n# takes: 5\nset -e\n# limit: 99\n";
        let script = Script::parse("locks", text).expect("a good script");
        assert_eq!((script.title.as_str(), script.limit_seconds, script.takes_seconds), ("locks", 30, 5));
        assert!(!script.runs_in(&LOCAL_V3));
        assert!(script.runs_in(&Combination { version: Version::V41, ..LOCAL_V3 }));
    }

    #[test]
    fn runs_in_versions_3_and_4_1_unless_told() {
        let script = Script::parse("tree", "# test: a tree\n").expect("a good script");
        let usual = |combination: &Combination| VERSIONS_DEFAULT.contains(&combination.version);
        assert!(Combination::all().filter(usual).all(|combination| script.runs_in(&combination)));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
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
