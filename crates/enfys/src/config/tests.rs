//! Valid configuration files, and the errors of invalid ones.

use super::*;
use crate::address::Address;

fn read(text: &str) -> Result<Config, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let name = file.path().display().to_string();
    Config::read(file.path()).map_err(|error| error.replace(&name, "FILE"))
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_likely_one() {
    for (text, expected) in [
        (
            "portmap = true\n[limits]\nconnektions = 4\n",
            "FILE:3: unknown key `connektions` (did you mean `connections`?), expected one of `connections`, ",
        ),
        (
            "[[export]]\npath = '/a'\n\n[[export]]\nread_only = true\n",
            "FILE:5: unknown key `read_only` (did you mean `read-only`?), expected one of `path`, ",
        ),
        ("squash = 'all'", "FILE:1: unknown key `squash` (it belongs in [[export]]), expected one of "),
        ("io-bytes = 5", "FILE:1: unknown key `io-bytes` (it belongs in [limits]), expected one of "),
        (
            "[control]\nsockets = '/a'",
            "FILE:2: unknown key `sockets` (did you mean `socket`?), expected `socket`",
        ),
        ("connections = 5", "FILE:1: unknown key `connections` (it belongs in [limits]), expected one of "),
        ("xyz = 1", "FILE:1: unknown key `xyz`, expected one of `listen`, `metrics`, "),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_wrong_value_is_named_with_line_key_and_expected_value() {
    let forms = crate::address::FORMS;
    for (text, expected) in [
        ("listen = ['localhost']", format!("FILE:1: `listen`: expected {forms}, found `localhost`")),
        (
            "listen = [\n'2049',\ntrue]",
            format!("FILE:3: `listen`: expected a list of addresses, each {forms}, found boolean `true`"),
        ),
        ("listen = 'x'", format!("FILE:1: `listen`: expected a list of addresses, each {forms}, found string \"x\"")),
        ("\nmetrics = true", format!("FILE:2: `metrics`: expected {forms}, found boolean `true`")),
        (
            "[[export]]\npath = '/a'\nsquash = 'some'",
            "FILE:3: `squash` in [[export]]: unknown value `some`, expected one of `root`, `all`, `none`".into(),
        ),
        (
            "[[export]]\npath = '/a'\nlocal-changes = 'watch'",
            "FILE:3: `local-changes` in [[export]]: unknown value `watch`, expected `recall` or `ignore`".into(),
        ),
        (
            "[[export]]\npath = '/a'\nsubmounts = 'cross'",
            "FILE:3: `submounts` in [[export]]: unknown value `cross`, expected `hide` or `serve`".into(),
        ),
        (
            "[limits]\nio-bytes = -1",
            "FILE:2: `io-bytes` in [limits]: expected an integer from 4096 to 4194304, found integer `-1`".into(),
        ),
        (
            "[limits]\nclients = '5'",
            "FILE:2: `clients` in [limits]: expected an integer of at least 1, found string \"5\"".into(),
        ),
        (
            "[[export]]\nid = 4294967296",
            "FILE:2: `id` in [[export]]: expected an integer from 1 to 4294967295, found integer `4294967296`".into(),
        ),
        (
            "[[export]]\nmemory = true\nmemory-bytes = '4GiB'",
            "FILE:3: `memory-bytes` in [[export]]: expected a number of bytes, as in 4294967296, found string \"4GiB\"".into(),
        ),
        ("[export]\npath = '/a'", "FILE:1: `export`: expected a list of tables, each with the header [[export]], found a table".into()),
        ("[limits]\nclients = 99999999999999999999", "FILE:2: `clients` in [limits]: expected an integer of at least 1, found integer `99999999999999999999`".into()),
        ("[[export]]\npath = 7", "FILE:2: `path` in [[export]]: expected an absolute path, as in".into()),
        ("[[export]]\npath = '/a'\nasync = 1", "FILE:3: `async` in [[export]]: expected true or false, found".into()),
        ("[[export]]\nclients = [\n7]", "FILE:3: `clients` in [[export]]: expected a list of networks, host names, wildcards and netgroups, as in".into()),
        ("versions = [4.1]", "FILE:1: `versions`: expected a list of versions, as in [\"3\", \"4.1\"], found".into()),
        ("portmap = true\nportmap = true", "FILE:2: not valid TOML: duplicate key, in `portmap = true`".into()),
        ("[[export]]\npath = '/a", "FILE:2: not valid TOML: ".into()),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(&expected), "{text}: {error}, expected {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_port_alone_is_an_address() {
    let config = read("listen = [2049, '2050', 'localhost:2051']\nmetrics = 9100").unwrap();
    let shown: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["127.0.0.1:2049", "127.0.0.1:2050", "localhost:2051"]);
    assert_eq!(config.metrics, Some(Address::local(9100)));
}

#[test]
fn every_limit_has_a_range() {
    let toml = |name: &str| format!("[limits]\n{name} = 9");
    for (name, ..) in Limits::default().all() {
        let config = read(&toml(name)).unwrap();
        let set: Vec<_> = config.limits.all().into_iter().filter(|(_, value, _)| value.is_some()).collect();
        assert_eq!((set.len(), set[0].0, set[0].1), (1, name, Some(9)));
    }
}
