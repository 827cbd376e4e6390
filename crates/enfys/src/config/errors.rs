//! Errors of a configuration file: line, key, and expected value.

use std::path::Path;

use super::locations::{KeyLocations, line_of};
use super::schema::Limits;
use crate::address::FORMS;

/// Expected values of all keys but the limits.
const EXPECTED: &[(&str, &str)] = &[
    ("metrics", FORMS),
    ("state-dir", "a path, as in \"/var/lib/enfys\""),
    ("local-users", BOOLEAN),
    ("portmap", BOOLEAN),
    ("versions", "a list of versions, as in [\"3\", \"4.1\"]"),
    ("udp", BOOLEAN),
    ("nlm", BOOLEAN),
    ("nlm-port", PORT),
    ("nsm-port", PORT),
    ("id-domain", "a DNS domain, as in \"example.org\""),
    ("persistent-sessions", BOOLEAN),
    ("copy-source", BOOLEAN),
    ("copy-from", "a list of networks, as in [\"10.0.0.0/8\"]"),
    ("keytab", "a path, as in \"/etc/krb5.keytab\""),
    ("control", "a table: [control]"),
    ("control.socket", "a path, as in \"/run/enfys/control.sock\""),
    ("limits", "a table: [limits]"),
    ("export", "a list of tables, each with the header [[export]]"),
    ("export.path", "an absolute path, as in \"/srv/data\""),
    ("export.memory", BOOLEAN),
    ("export.memory-bytes", BYTES),
    ("export.quota-bytes", BYTES),
    ("export.pseudo", "a path, as in \"/data\""),
    ("export.referral", LOCATIONS),
    ("export.replicas", LOCATIONS),
    ("export.id", "an integer from 1 to 4294967295"),
    ("export.read-only", BOOLEAN),
    ("export.squash", "\"root\", \"all\" or \"none\""),
    ("export.anonymous-uid", ID),
    ("export.anonymous-gid", ID),
    ("export.clients", CLIENTS),
    ("export.sec", "a list of security flavors, as in [\"krb5p\", \"sys\"]"),
    ("export.insecure", BOOLEAN),
    ("export.client", "a list of tables, each with the header [[export.client]]"),
    ("export.client.clients", CLIENTS),
    ("export.client.read-only", BOOLEAN),
    ("export.client.squash", "\"root\", \"all\" or \"none\""),
    ("export.client.anonymous-uid", ID),
    ("export.client.anonymous-gid", ID),
    ("export.client.sec", "a list of security flavors, as in [\"krb5p\", \"sys\"]"),
    ("export.client.insecure", BOOLEAN),
    ("export.short-handles", BOOLEAN),
    ("export.v2-large-files", "\"refuse\" or \"clamp\""),
    ("export.v2-signed-sizes", BOOLEAN),
    ("export.offline-xattr", "an attribute of the `user` name space, as in \"user.offline\""),
    ("export.offline-recall", "a program and its arguments, as in [\"/usr/local/bin/recall\"]"),
    ("export.offline-recalls", "an integer from 1 to 64"),
    ("export.offline-recall-seconds", "an integer from 1 to 86400"),
    ("export.async", BOOLEAN),
    ("export.local-changes", "\"recall\" or \"ignore\""),
    ("export.submounts", "\"hide\" or \"serve\""),
];

const CLIENTS: &str =
    "a list of networks, host names, wildcards and netgroups, as in [\"10.0.0.0/8\", \"*.example.org\"]";
const LOCATIONS: &str = "a list of HOST:/PATH, as in [\"nfs.example.org:/data\"]";
const BOOLEAN: &str = "true or false";
const PORT: &str = "a port from 1 to 65535";
const BYTES: &str = "a number of bytes, as in 4294967296";
const ID: &str = "an integer from 0 to 4294967295";
/// A known key with at least this similarity is suggested; `read_only` and `read-only` have it.
const SIMILARITY_MIN: f64 = 0.8;

/// Returns one line with file, line and key about a file that is not a configuration.
pub(super) fn describe_error(file: &Path, text: &str, error: &toml::de::Error) -> String {
    let at = error.span().map_or(0, |span| span.start);
    let message = error.message().replace('\n', ", ");
    let location = format!("{}:{}", file.display(), line_of(text, at));
    if let Some(unknown) = unknown_key(&message) {
        return format!("{location}: {unknown}");
    }
    let locations = KeyLocations::new(file, text);
    match locations.key_at(at) {
        Some(key) => locations.error(key, reworded(key, &message)),
        None => {
            let wrong = text.lines().nth(line_of(text, at) - 1).unwrap_or_default().trim();
            format!("{location}: not valid TOML: {message}, in `{wrong}`")
        }
    }
}

/// Returns the error about an unknown key, with the likely one.
fn unknown_key(message: &str) -> Option<String> {
    let (key, expected) = message.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let known = expected.trim_start_matches("one of ").split(", ").map(|name| name.trim_matches('`'));
    let similarity = |known: &str| strsim::jaro_winkler(key, known);
    let likely = known.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let meant = match (table_of(key), likely.filter(|known| similarity(known) >= SIMILARITY_MIN)) {
        (Some(table), _) => format!(" (it belongs in {table})"),
        (None, Some(likely)) => format!(" (did you mean `{likely}`?)"),
        (None, None) => String::new(),
    };
    Some(format!("unknown key `{key}`{meant}, expected {expected}"))
}

/// Returns the table that a key belongs in.
fn table_of(key: &str) -> Option<&'static str> {
    if Limits::default().all().iter().any(|(name, ..)| *name == key) {
        return Some("[limits]");
    }
    let is_named = |(path, _): &&(&str, &str)| path.rsplit('.').next() == Some(key);
    let (path, _) = EXPECTED.iter().find(is_named)?;
    Some(match path.split_once('.') {
        Some(("export", _)) => "[[export]]",
        Some(_) => "[control]",
        None => "the lines before the first table",
    })
}

/// Replaces the type name in a message of serde by the expected value of this key.
fn reworded(key: &str, message: &str) -> String {
    let found = ["invalid type: ", "invalid value: "].iter().find_map(|start| message.strip_prefix(start));
    let found = found.and_then(|rest| rest.rsplit_once(", expected "));
    match (found, expected(key)) {
        (Some((found, _)), Some(expected)) => {
            // TOML's words instead of serde's.
            let found = match found {
                "map" => "a table",
                "sequence" => "a list",
                number => number.trim_end_matches(" as i128").trim_end_matches(" as u128"),
            };
            format!("expected {expected}, found {found}")
        }
        _ => message.replace("unknown variant", "unknown value"),
    }
}

/// Returns the expected value of a key.
fn expected(key: &str) -> Option<String> {
    let is_index = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let path = key.split('.').filter(|part| !is_index(part)).collect::<Vec<_>>().join(".");
    if path == "listen" {
        return Some(format!("a list of addresses, each {FORMS}"));
    }
    if let Some(limit) = path.strip_prefix("limits.") {
        let limits = Limits::default().all();
        return limits.into_iter().find(|(name, ..)| *name == limit).map(|(_, _, range)| range.to_string());
    }
    EXPECTED.iter().find(|(known, _)| *known == path).map(|(_, expected)| (*expected).to_owned())
}
