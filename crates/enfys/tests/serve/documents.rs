//! Checks the documents: configurations in them are valid, and every test that they name exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::server::{TestDir, refusal, run};

/// Returns the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks a configuration whose directories are replaced by existing ones.
#[track_caller]
fn check(text: &str) {
    let dir = TestDir::new();
    let mut text = text.to_owned();
    let directories: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path = \"")?.split('"').next())
        .map(String::from)
        .collect();
    for (number, directory) in directories.into_iter().enumerate() {
        let there = dir.directory(&format!("export-{number}"));
        text = text.replace(&format!("\"{directory}\""), &format!("\"{}\"", there.display()));
    }
    text = text.replace("\"/var/lib/enfys\"", &format!("\"{}\"", dir.path("state").display()));
    let file = dir.file("enfys.toml", &text);
    let output = run(&["check-config".as_ref(), file.as_path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the keys that the program knows in a table, from its error about an unknown one.
fn keys(table: &str) -> Vec<String> {
    let dir = TestDir::new();
    let file = dir.file("enfys.toml", &format!("{table}\nno-such-key = 1\n"));
    let output = refusal(&run(&["check-config".as_ref(), file.as_path()]));
    let expected = output.split("expected ").nth(1).expect("the known keys");
    let expected = expected.strip_prefix("one of ").unwrap_or(expected);
    expected.split(", ").map(|key| key.trim_matches('`').to_owned()).collect()
}

/// Returns every fenced block of TOML.
fn toml_blocks(text: &str) -> Vec<&str> {
    text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

#[test]
fn the_readme_shows_a_valid_configuration() {
    let readme = read("README.md");
    let blocks = toml_blocks(&readme);
    assert_eq!(blocks.len(), 1);
    check(blocks[0]);
}

/// Returns the rows of tables below a heading, as cells without backticks.
fn rows<'t>(text: &'t str, heading: &str) -> Vec<Vec<&'t str>> {
    let start = text.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    let section = text[start + 4..].split("\n## ").next().expect("the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").map(|cell| cell.trim_matches('`')).collect()).collect()
}

#[test]
fn the_manual_lists_every_key_with_its_default() {
    let manual = read("docs/manual/configuration.md");
    let dir = TestDir::new();
    let head = format!("state-dir = '{}'\n", dir.path("state").display());
    let directory = format!("[[export]]\npath = '{}'\n", dir.directory("export").display());
    let plain = in_force(&dir, &format!("{head}{directory}"));
    let memory = in_force(&dir, &format!("{head}[[export]]\nmemory = true\n"));
    let none = Value::Null;
    let tables = [
        ("Top level", "", &plain),
        ("`[control]`", "[control]", &none),
        ("`[limits]`", "[limits]", &plain["limits"]),
        ("`[[export]]`", "[[export]]", &plain["export"][0]),
        ("`[[export.client]]`", "[[export]]\n[[export.client]]", &none),
    ];
    let mut compared = 0;
    for (heading, table, values) in tables {
        let listed = rows(&manual, heading);
        let names: BTreeSet<_> = listed.iter().map(|row| row[0].to_owned()).collect();
        assert_eq!(names, keys(table).into_iter().collect(), "{heading}");
        for row in listed {
            let [key, _, default, _, _] = row[..] else { panic!("five cells: {row:?}") };
            let value = if key == "memory-bytes" && table == "[[export]]" {
                &memory["export"][0][key]
            } else {
                &values[key]
            };
            if let (Ok(shown), false) = (serde_json::from_str::<Value>(default), value.is_null()) {
                assert_eq!(*value, shown, "docs/manual/configuration.md shows another default of `{key}`");
                compared += 1;
            }
        }
    }
    assert!(compared > 25, "only {compared} defaults were compared");
}

#[test]
fn the_manual_lists_every_flag_of_serve() {
    let output = run(&["serve", "--help"]);
    let help = String::from_utf8(output.stdout).expect("text");
    let options =
        help.split("\nOptions:\n").nth(1).expect("options").split("\nExamples:").next().expect("options");
    let flags = options.lines().filter_map(|line| {
        let word = line.split_whitespace().find(|word| word.starts_with("--"))?;
        let is_flag = line.trim_start().starts_with('-');
        is_flag.then(|| word.split(['[', '=', ',']).next().unwrap_or(word).to_owned())
    });
    let flags: BTreeSet<_> = flags.filter(|flag| flag != "--help").collect();
    let manual = read("docs/manual/configuration.md");
    let listed: BTreeSet<_> = rows(&manual, "Command line").iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(listed, flags);
}

/// Returns the sources of all crates.
fn source_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<_> = std::fs::read_dir(root().join("crates"))
        .expect("crates")
        .map(|entry| entry.expect("a crate").path().join("src"))
        .collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the sources' text, without line breaks within strings.
fn sources() -> String {
    let text: String =
        source_files().iter().map(|file| std::fs::read_to_string(file).expect("a source")).collect();
    let pieces: Vec<_> = text.split("\\\n").collect();
    pieces.iter().map(|piece| piece.trim_start_matches(' ')).collect()
}

#[test]
fn the_architecture_names_files_that_exist() {
    let text = read("ARCHITECTURE.md");
    let quoted = text.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted.filter(|name| name.ends_with(".rs") && !name.contains('<')).collect();
    assert!(named.len() > 25, "only {} files are named", named.len());
    let files = source_files();
    let is_there = |name: &str| root().join(name).exists() || files.iter().any(|file| file.ends_with(name));
    let missing: Vec<_> = named.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that do not exist: {missing:#?}");
}

#[test]
fn the_manual_quotes_messages_that_exist() {
    let manual = read("docs/manual/troubleshooting.md");
    let starts = manual.split("Log: `").skip(1).chain(manual.split("Error: `").skip(1));
    let quoted: Vec<_> = starts.map(|rest| rest.split('`').next().expect("a message")).collect();
    assert!(quoted.len() > 25, "only {} messages are quoted", quoted.len());
    let sources = sources();
    let missing: Vec<_> = quoted.into_iter().filter(|message| !sources.contains(message)).collect();
    assert!(
        missing.is_empty(),
        "docs/manual/troubleshooting.md quotes messages that no source has: {missing:#?}"
    );
}

#[test]
fn links_between_documents_lead_to_files() {
    let list = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect::<Vec<_>>()
    };
    let folders = ["", "docs", "docs/manual", "docs/notes", "docs/decisions"];
    let mut broken = Vec::new();
    for document in folders.into_iter().flat_map(list) {
        let text = std::fs::read_to_string(&document).expect("a document");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_file = link.contains("://") || document.parent().expect("a folder").join(link).exists();
            if !is_file {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the keys that a configuration does not show, not even commented out.
fn missing_keys(text: &str) -> Vec<String> {
    let all = ["", "[limits]", "[[export]]", "[[export]]\n[[export.client]]"].into_iter().flat_map(keys);
    let is_shown = |key: &String| {
        text.lines().map(|line| line.trim_start_matches('#')).any(|line| {
            line.split(" = ").next() == Some(key)
                || line.starts_with('[') && line.trim_matches(['[', ']']).rsplit('.').next() == Some(key)
        })
    };
    all.filter(|key| !is_shown(key)).collect()
}

#[test]
fn the_example_configuration_shows_every_key() {
    let left_out = missing_keys(&read("contrib/enfys.toml"));
    assert!(left_out.is_empty(), "contrib/enfys.toml does not show {left_out:?}");
    assert_eq!(missing_keys("#listen = 1\n"), missing_keys("")[1..]);
}

#[test]
fn the_example_configuration_is_valid() {
    check(&read("contrib/enfys.toml"));
}

#[test]
fn the_example_configuration_is_valid_with_all_alternatives() {
    // Keys that are commented out are valid too: `#key = value`, without a space.
    let text = read("contrib/enfys.toml");
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
        _ => line,
    });
    check(&lines.collect::<Vec<_>>().join("\n"));
}

/// Returns the settings in effect with this configuration.
fn in_force(dir: &TestDir, text: &str) -> Value {
    let file = dir.file("in-force.toml", text);
    let output = run(&["check-config".as_ref(), "--json".as_ref(), file.as_path()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    answer["config"].clone()
}

/// Returns the keys that a document shows as comments, each with its table and value as TOML; without those that are examples.
fn commented_defaults(text: &str) -> Vec<(String, String, String)> {
    let mut table = String::new();
    let mut defaults = Vec::new();
    for line in text.lines() {
        let is_comment = line.starts_with('#');
        let line = line.trim_start_matches('#');
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
        } else if let Some((key, value)) = line.split_once(" = ")
            && is_comment
            && !key.contains(' ')
            && !value.ends_with("# example")
        {
            defaults.push((table.clone(), key.to_owned(), value.to_owned()));
        }
    }
    defaults
}

#[test]
fn the_example_configuration_shows_the_defaults() {
    let text = read("contrib/enfys.toml");
    let defaults = commented_defaults(&text);
    let dir = TestDir::new();
    let head = format!("state-dir = '{}'\n", dir.path("state").display());
    let directory = format!("[[export]]\npath = '{}'\n", dir.directory("export").display());
    let plain = in_force(&dir, &format!("{head}{directory}"));
    let memory = in_force(&dir, &format!("{head}[[export]]\nmemory = true\n"));
    let mut compared = BTreeSet::new();
    for (table, key, value) in &defaults {
        let found = match table.as_str() {
            "" => &plain[key],
            "export" if key == "memory-bytes" => &memory["export"][0][key],
            "export" => &plain["export"][0][key],
            table => &plain[table][key],
        };
        // The TOML values here (numbers, booleans, strings and lists of them) are valid JSON too.
        let shown: Value =
            serde_json::from_str(value).unwrap_or_else(|error| panic!("{key} = {value}: {error}"));
        assert_eq!(*found, shown, "contrib/enfys.toml shows another default of `{key}` in [{table}]");
        compared.insert(key.clone());
    }
    assert!(compared.contains("busy-poll-microseconds") && compared.contains("squash"), "{compared:?}");
    // Every limit but `cores`, which is the number of processors.
    let limits: BTreeSet<_> = keys("[limits]").into_iter().filter(|key| key != "cores").collect();
    assert!(limits.is_subset(&compared), "no default is shown of {:?}", limits.difference(&compared));
    assert_eq!(plain["listen"], serde_json::json!(["127.0.0.1:2049"]), "as at the top");
    assert!(text.contains("\nlisten = [\"127.0.0.1:2049\"]\n"));
}

#[test]
fn check_config_prints_every_key_with_its_effective_value() {
    let dir = TestDir::new();
    let text = format!(
        "state-dir = '{}'\nlisten = [2049, 'localhost:2050']\nmetrics = 9100\nid-domain = 'example.org'\n\
         keytab = '/etc/krb5.keytab'\nnlm-port = 4045\nnsm-port = 662\n[limits]\nclients = 100\n\
         [[export]]\npath = '{}'\nid = 7\nclients = ['10.0.0.0/8']\nreplicas = ['b:/x']\noffline-xattr = 'user.offline'\noffline-recall = ['/bin/true']\n[[export.client]]\nclients = ['127.0.0.1']\n[[export]]\npseudo = '/moved'\nreferral = ['b:/x']\n[[export]]\nmemory = true\npseudo = '/m'\nquota-bytes = 1000\n[[export]]\npath = '{}'\npseudo = '/j'\njournal = '/fast/journal'\n",
        dir.path("state").display(),
        dir.directory("export").display(),
        dir.directory("journaled").display(),
    );
    let config = in_force(&dir, &text);
    let has = |table: &Value, keys: Vec<String>| {
        let missing: Vec<_> = keys.into_iter().filter(|key| table.get(key).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?} are missing in {table:#}");
    };
    has(&config, keys(""));
    has(&config["limits"], keys("[limits]"));
    let (memory, others): (Vec<_>, Vec<_>) = keys("[[export]]")
        .into_iter()
        .partition(|key| ["memory-bytes", "quota-bytes"].contains(&key.as_str()));
    let (elsewhere, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|key| key == "referral");
    let (journaled, directory) =
        others.into_iter().partition(|key| ["journal", "journal-bytes"].contains(&key.as_str()));
    has(&config["export"][0], directory);
    has(&config["export"][1], elsewhere);
    has(&config["export"][2], memory);
    has(&config["export"][3], journaled);
    has(&config["export"][0]["client"][0], keys("[[export]]\n[[export.client]]"));
    assert_eq!(config["listen"], serde_json::json!(["127.0.0.1:2049", "localhost:2050"]));
    assert_eq!(config["limits"]["slot-cache-bytes"], (64 << 20) + 100 * (10 << 10));
    assert_eq!(config["control"]["socket"], dir.path("state/control.sock").display().to_string());

    // The text output is a configuration with the same meaning.
    let printed = |text: &str| {
        let file = dir.file("printed.toml", text);
        let output = run(&["check-config".as_ref(), file.as_path()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let first = printed(&text);
    assert!(first.contains("\nbusy-poll-microseconds = 50\n"), "{first}");
    assert_eq!(printed(&first), first);
}

#[test]
fn the_units_start_the_installed_binary() {
    let unit = read("contrib/enfys.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart");
    let words: Vec<_> = start.split_whitespace().collect();
    assert_eq!(words, ["/usr/local/bin/enfys", "serve", "--config", "/etc/enfys.toml"]);
    assert!(unit.contains("Type=notify\n"));
    let socket = read("contrib/enfys.socket");
    assert!(socket.contains("ListenStream=0.0.0.0:2049\n"));
}

/// `docs/promises.toml`: which tests prove which promise of SEMANTICS.md.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Promises {
    promise: Vec<Promise>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    section: String,
    text: String,
    tests: Vec<String>,
}

fn promises() -> Vec<Promise> {
    toml::from_str::<Promises>(&read("docs/promises.toml")).expect("docs/promises.toml").promise
}

/// Returns whether `path::name` is a test of this repository; a script has no name.
fn is_test(test: &str) -> bool {
    let (path, name) = test.split_once("::").unwrap_or((test, ""));
    let Ok(source) = std::fs::read_to_string(root().join(path)) else { return false };
    if path.ends_with(".sh") {
        return source.starts_with("# test: ");
    }
    // The contract lists its cases in its own file; all others are marked.
    if path.starts_with("crates/vfs/src/contract/") {
        return source.contains(&format!("fn {name}("))
            && read("crates/vfs/src/contract/mod.rs").contains(name);
    }
    has_test(&source, name)
}

/// Returns whether a source has a function of this name that is marked as a test.
fn has_test(source: &str, name: &str) -> bool {
    let Some(at) = source.find(&format!("fn {name}(")) else { return false };
    let before = source[..at].trim_end();
    let attribute = before.strip_suffix("async").unwrap_or(before).trim_end().lines().next_back();
    let attribute = attribute.unwrap_or_default().trim_start();
    attribute == "#[test]" || attribute.starts_with("#[tokio::test")
}

#[test]
fn every_test_that_proves_a_promise_exists() {
    let promises = promises();
    let tests: Vec<_> = promises.iter().flat_map(|promise| &promise.tests).collect();
    assert!(tests.len() > 600, "only {} tests are named", tests.len());
    let missing: Vec<_> = tests.into_iter().filter(|test| !is_test(test)).collect();
    assert!(
        missing.is_empty(),
        "docs/promises.toml names tests that do not exist (moved or renamed? change the row too): {missing:#?}"
    );
}

#[test]
fn every_section_of_semantics_has_a_promise_and_a_test() {
    let semantics = read("SEMANTICS.md");
    let sections: BTreeSet<_> = semantics.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let promises = promises();
    for promise in &promises {
        assert!(!promise.tests.is_empty(), "no test shows: {}", promise.text);
    }
    let proven: BTreeSet<_> = promises.iter().map(|promise| &*promise.section).collect();
    assert_eq!(proven, sections, "sections of docs/promises.toml and of SEMANTICS.md");
    let bytes = semantics.len();
    assert!(bytes <= 20 << 10, "SEMANTICS.md has {bytes} bytes; put details into docs/notes/");
}

#[test]
fn finds_tests_and_nothing_else() {
    let source = "#[test]\nfn plain() {}\n    #[tokio::test(start_paused = true)]\n    async fn later() {}\nfn none() {}\n";
    assert!(has_test(source, "plain") && has_test(source, "later"));
    assert!(!has_test(source, "none") && !has_test(source, "gone"));
    assert!(is_test("crates/enfys/tests/serve/documents.rs::finds_tests_and_nothing_else"));
    assert!(is_test("crates/vfs/src/contract/data.rs::large_offsets_work"));
    assert!(is_test("tests/kernel/guest/crash.sh"));
    assert!(!is_test("tests/kernel/guest/gone.sh"));
}
