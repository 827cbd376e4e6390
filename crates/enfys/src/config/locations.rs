//! The lines of the keys in a configuration file, for messages.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The lines of all keys in a file. A key has a path: `listen`, `limits.clients`, `export.0.path`, `copy-from.2`.
#[derive(Debug, Default, Clone)]
pub struct KeyLocations {
    file: PathBuf,
    keys: HashMap<String, Key>,
}

#[derive(Debug, Clone)]
struct Key {
    line: usize,
    /// The value's bytes in the file.
    value: Range<usize>,
}

impl KeyLocations {
    /// Finds the keys in a file's text; none if it is not TOML.
    pub fn new(file: &Path, text: &str) -> Self {
        let mut locations = Self { file: file.to_path_buf(), keys: HashMap::new() };
        if let Ok(table) = DeTable::parse(text) {
            locations.add_table(text, "", table.get_ref());
        }
        locations
    }

    fn add_table(&mut self, text: &str, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let path = join(prefix, name.get_ref());
            self.add(text, path, name.span().start, value);
        }
    }

    fn add(&mut self, text: &str, path: String, at: usize, value: &Spanned<DeValue<'_>>) {
        match value.get_ref() {
            DeValue::Table(table) => self.add_table(text, &path, table),
            DeValue::Array(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.add(text, join(&path, &index.to_string()), element.span().start, element);
                }
            }
            _ => {}
        }
        self.keys.insert(path, Key { line: line_of(text, at), value: value.span() });
    }

    /// Returns `FILE:LINE` of a key, or of the nearest existing table or array around it; `FILE` without one.
    pub fn location(&self, path: &str) -> String {
        let around = std::iter::successors(Some(path), |path| Some(path.rsplit_once('.')?.0));
        let line = around.filter_map(|path| self.keys.get(path)).map(|key| key.line).next();
        match line {
            Some(line) => format!("{}:{line}", self.file.display()),
            None => self.file.display().to_string(),
        }
    }

    /// Returns an error about a key, with its line.
    pub fn error(&self, path: &str, why: impl fmt::Display) -> String {
        format!("{}: {}: {why}", self.location(path), display_key(path))
    }

    /// As [`Self::error`] if the file has the key, else `why` alone.
    pub fn error_if_set(&self, path: &str, why: String) -> String {
        if self.has(path) { self.error(path, why) } else { why }
    }

    /// Returns whether the file has the key.
    pub fn has(&self, path: &str) -> bool {
        self.keys.contains_key(path)
    }

    /// Removes a key, which the command line overrides.
    pub fn remove(&mut self, path: &str) {
        self.keys.remove(path);
    }

    /// Returns the path of the innermost key whose value has this byte of the file.
    pub fn key_at(&self, at: usize) -> Option<&str> {
        let around = self.keys.iter().filter(|(_, key)| key.value.contains(&at));
        let innermost = around.min_by_key(|(path, key)| (key.value.len(), std::cmp::Reverse(path.len())));
        innermost.map(|(path, _)| path.as_str())
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// Returns the line number of a byte.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns a key as messages show it: `` `clients` in [limits] ``.
fn display_key(path: &str) -> String {
    let is_index = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let names: Vec<_> = path.split('.').filter(|part| !is_index(part)).collect();
    match names.as_slice() {
        ["export", key] => format!("`{key}` in [[export]]"),
        [table, key] => format!("`{key}` in [{table}]"),
        names => format!("`{}`", names.join(".")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "portmap = true\n\n[limits]\nclients = 5\n\n[[export]]\npath = '/a'\n[[export]]\nclients = [\n 'x',\n 'y',\n]\n";

    #[test]
    fn keys_have_lines() {
        let locations = KeyLocations::new(Path::new("FILE"), TEXT);
        for (path, expected) in [
            ("portmap", "FILE:1"),
            ("limits.clients", "FILE:4"),
            ("limits.cores", "FILE:3"),
            ("export.0", "FILE:6"),
            ("export.0.path", "FILE:7"),
            ("export.1.id", "FILE:8"),
            ("export.1.clients.1", "FILE:11"),
            ("listen", "FILE"),
        ] {
            assert_eq!(locations.location(path), expected, "{path}");
        }
        assert_eq!(locations.error("export.1.clients.1", "why"), "FILE:11: `clients` in [[export]]: why");
        assert_eq!(locations.error("limits.clients", "why"), "FILE:4: `clients` in [limits]: why");
        assert_eq!(locations.error_if_set("listen", "why".into()), "why");
        assert_eq!(locations.error_if_set("portmap", "why".into()), "FILE:1: `portmap`: why");
    }

    #[test]
    fn the_key_around_a_byte_is_found() {
        let locations = KeyLocations::new(Path::new("FILE"), TEXT);
        let key_of = |value: &str| locations.key_at(TEXT.find(value).unwrap());
        assert_eq!(key_of("5"), Some("limits.clients"));
        assert_eq!(key_of("'y'"), Some("export.1.clients.1"));
        assert_eq!(key_of("'/a'"), Some("export.0.path"));
    }
}
