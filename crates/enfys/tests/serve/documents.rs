//! What documents say about configuration holds, and every test that they name is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::server::{Place, refusal, run};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks a configuration whose directories are replaced by ones that are there.
#[track_caller]
fn check(text: &str) {
    let place = Place::new();
    let mut text = text.to_owned();
    let directories: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path = \"")?.split('"').next())
        .map(String::from)
        .collect();
    for (number, directory) in directories.into_iter().enumerate() {
        let there = place.directory(&format!("export-{number}"));
        text = text.replace(&format!("\"{directory}\""), &format!("\"{}\"", there.display()));
    }
    text = text.replace("\"/var/lib/enfys\"", &format!("\"{}\"", place.path("state").display()));
    let file = place.file("enfys.toml", &text);
    let output = run(&["check-config".as_ref(), file.as_path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The keys that the program knows in a table, by what it says about one that it does not.
fn keys(table: &str) -> Vec<String> {
    let place = Place::new();
    let file = place.file("enfys.toml", &format!("{table}\nno-such-key = 1\n"));
    let said = refusal(&run(&["check-config".as_ref(), file.as_path()]));
    let expected = said.split("expected one of ").nth(1).expect("the keys that there are");
    expected.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// Every fenced block of TOML.
fn toml_blocks(text: &str) -> Vec<&str> {
    text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

#[test]
fn the_readme_shows_a_configuration_that_is_right_and_whole() {
    let readme = read("README.md");
    let blocks = toml_blocks(&readme);
    assert_eq!(blocks.len(), 1);
    check(blocks[0]);
    let left_out = keys_left_out(blocks[0]);
    assert!(left_out.is_empty(), "README.md does not show {left_out:?}");
}

/// The keys that a configuration shows nowhere, commented out neither.
fn keys_left_out(text: &str) -> Vec<String> {
    let all = ["", "[limits]", "[[export]]"].into_iter().flat_map(keys);
    let is_shown = |key: &String| {
        text.lines().map(|line| line.trim_start_matches('#')).any(|line| {
            line.split(" = ").next() == Some(key)
                || line.trim_matches(['[', ']']) == key && line.starts_with('[')
        })
    };
    all.filter(|key| !is_shown(key)).collect()
}

#[test]
fn the_example_configuration_leaves_no_key_out() {
    let left_out = keys_left_out(&read("contrib/enfys.toml"));
    assert!(left_out.is_empty(), "contrib/enfys.toml does not show {left_out:?}");
    assert_eq!(keys_left_out("#listen = 1\n"), keys_left_out("")[1..]);
}

#[test]
fn the_example_configuration_is_right() {
    check(&read("contrib/enfys.toml"));
}

#[test]
fn the_example_configuration_is_right_with_all_its_alternatives() {
    // What is commented out works too: `#key = value`, without a space.
    let text = read("contrib/enfys.toml");
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
        _ => line,
    });
    check(&lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_units_start_what_there_is() {
    let unit = read("contrib/enfys.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    let words: Vec<_> = start.split_whitespace().collect();
    assert_eq!(words, ["/usr/local/bin/enfys", "serve", "--config", "/etc/enfys.toml"]);
    assert!(unit.contains("Type=notify\n"));
    let socket = read("contrib/enfys.socket");
    assert!(socket.contains("ListenStream=0.0.0.0:2049\n"));
}

/// Every `` `path::name` `` and `` `path` `` of a test in the text, the name empty where a file is one test.
fn named_tests(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let named = quoted.map(|quoted| quoted.rsplit_once("::").unwrap_or((quoted, "")));
    named
        .filter(|(path, _)| path.ends_with(".rs") || path.starts_with("tests/") && path.ends_with(".sh"))
        .collect()
}

/// Whether there is a test of this name in a file of this repository.
fn is_test(path: &str, name: &str) -> bool {
    let Ok(source) = std::fs::read_to_string(root().join(path)) else { return false };
    if path.ends_with(".sh") {
        return source.starts_with("# test: ");
    }
    let Some(at) = source.find(&format!("fn {name}(")) else { return false };
    // The contract lists its cases in its own file; all others are marked.
    match path.strip_prefix("crates/vfs/src/contract/").and_then(|file| file.strip_suffix(".rs")) {
        Some(_) => read("crates/vfs/src/contract/mod.rs").contains(name),
        None => source[..at].trim_end().ends_with("#[test]"),
    }
}

#[test]
fn every_test_that_semantics_names_is_there() {
    let text = read("SEMANTICS.md");
    let named = named_tests(&text);
    assert!(named.len() > 20, "only {} tests are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|(path, name)| !is_test(path, name)).collect();
    assert!(missing.is_empty(), "SEMANTICS.md names tests that are not there: {missing:#?}");
}

#[test]
fn a_test_that_is_not_there_is_found_missing() {
    let text = "see `crates/enfys/tests/serve/documents.rs::gone`, `tests/kernel/guest/crash.sh`, `--async`";
    assert_eq!(
        named_tests(text),
        [("crates/enfys/tests/serve/documents.rs", "gone"), ("tests/kernel/guest/crash.sh", "")]
    );
    assert!(!is_test("crates/enfys/tests/serve/documents.rs", "gone"));
    assert!(!is_test("crates/enfys/tests/serve/documents.rs", "named_tests"));
    assert!(!is_test("tests/kernel/guest/gone.sh", ""));
    assert!(is_test("tests/kernel/guest/crash.sh", ""));
    assert!(is_test("crates/vfs/src/contract/data.rs", "large_offsets_work"));
}
