use clap::Parser;

use super::*;
use crate::cli::{Cli, Command};

fn of_config(toml: &str) -> Result<Vec<ExportPlan>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), toml).unwrap();
    let name = file.path().display().to_string();
    let config = Config::read(file.path()).unwrap();
    ExportPlan::of_config(&config, None).map_err(|error| error.replace(&name, "FILE"))
}

fn arguments(words: &str) -> ServeArguments {
    let words = ["enfys", "serve"].into_iter().chain(words.split_whitespace());
    match Cli::parse_from(words).command {
        Command::Serve(arguments) => *arguments,
        _ => unreachable!("`serve` was given"),
    }
}

#[test]
fn errors_of_exports_name_file_line_and_key() {
    let wrong = |text, expected: &str| assert_eq!(of_config(text).unwrap_err(), expected);
    wrong("[[export]]\npseudo = '/a'", "FILE:1: export /a: needs a `path`, `memory = true`, or a `referral`");
    wrong(
        "\n[[export]]\npath = 'relative'",
        "FILE:3: export /export: `path` must be absolute, found `relative`",
    );
    wrong(
        "[[export]]\npath = '/a'\nmemory = true",
        "FILE:3: export /export: `path` and `memory` cannot both be set",
    );
    wrong(
        "[[export]]\npath = '/a'\n[[export]]\npseudo = '/b'\npath = '/b'\nclients = ['10.0.0.0/40']",
        "FILE:6: export /b: `clients`: `40` is not a prefix length of at most 32",
    );
    wrong(
        "[[export]]\npath = '/a'\nclients = [\n'fd00::/8',\n'10.0.0.5/8']",
        "FILE:5: export /export: `clients`: `10.0.0.5/8` has bits behind the prefix: did you mean `10.0.0.0/8`, or \
         `10.0.0.5` alone?",
    );
    wrong(
        "[[export]]\npath = '/a'\nsec = ['sys', 'sys']",
        "FILE:3: export /export: `sec`: `sys` is listed twice",
    );
    wrong(
        "[[export]]\npath = '/a'\nid = 0",
        "FILE:3: export /export: `id`: expected an integer from 1 to 4294967295, found 0",
    );
    wrong(
        "[[export]]\npath = '/a'\nmemory-bytes = 5",
        "FILE:3: export /export: `memory-bytes` and `quota-bytes` are for `memory = true`",
    );
    wrong(
        "[[export]]\nmemory = true\nmemory-bytes = 5\nquota-bytes = 0",
        "FILE:4: export /export: `quota-bytes`: expected a number of bytes, at least 1, found 0",
    );
    wrong(
        "[[export]]\npath = '/a'\nsec = []",
        "FILE:3: export /export: `sec`: expected at least one security flavor",
    );
}

#[test]
fn by_default_root_is_squashed_and_clients_can_write() {
    let exports = of_config("[[export]]\npath = '/srv'").unwrap();
    assert_eq!(exports[0].pseudo, "/export");
    assert_eq!(exports[0].options, ExportOptions::default());
    assert!(!exports[0].is_async);
    let given = ExportPlan::of_arguments(&arguments("/srv")).unwrap();
    assert_eq!(given[0].to_string(), exports[0].to_string());
    assert_eq!(
        given[0].to_string(),
        "/srv (sync) as /export: read-write, root squashed, for any client that reaches it"
    );
}

#[test]
fn options_of_the_command_line_override_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[[export]]\npath = '/srv'\n").unwrap();
    let config = Config::read(file.path()).unwrap();
    let given = arguments("--read-only --squash all --async");
    let exports = ExportPlan::of_config(&config, Some(&given)).unwrap();
    assert_eq!(
        exports[0].to_string(),
        "/srv (async) as /export: read-only, all users squashed, for any client that reaches it"
    );
}

#[test]
fn flavors_keep_their_order_and_are_shown() {
    let shown = |words| ExportPlan::of_arguments(&arguments(words)).map(|plans| plans[0].to_string());
    let plain = "/srv (sync) as /export: read-write, root squashed, for any client that reaches it";
    assert_eq!(shown("/srv --sec sys"), Ok(plain.into()));
    assert_eq!(shown("/srv --sec none,sys"), Ok(format!("{plain}, by sec=none:sys")));
    assert!(shown("/srv --sec krb4").unwrap_err().starts_with("--sec: `krb4`"));
    let file = of_config("[[export]]\npath = '/srv'\nsec = ['sys', 'none']").unwrap();
    assert_eq!(file[0].to_string(), format!("{plain}, by sec=sys:none"));
}

#[test]
fn local_changes_recall_unless_they_are_ignored() {
    let shown = |word| {
        let plans = of_config(&format!("[[export]]\npath = '/srv'\nlocal-changes = '{word}'"))?;
        Ok::<_, String>((plans[0].options.recall_local_changes, plans[0].to_string()))
    };
    let plain = "/srv (sync) as /export: read-write, root squashed, for any client that reaches it";
    assert_eq!(shown("recall"), Ok((true, plain.into())));
    assert_eq!(shown("ignore"), Ok((false, format!("{plain}, local changes ignored"))));
    let memory = of_config("[[export]]\nmemory = true\nlocal-changes = 'recall'").unwrap_err();
    assert!(
        memory.ends_with("`local-changes` is for directories: local processes cannot change memory"),
        "{memory}"
    );
}

#[test]
fn submounts_are_hidden_by_default() {
    let shown = |word| {
        let plans = of_config(&format!("[[export]]\npath = '/srv'\nsubmounts = '{word}'"))?;
        Ok::<_, String>((plans[0].serves_submounts, plans[0].to_string()))
    };
    let plain = "/srv (sync) as /export: read-write, root squashed, for any client that reaches it";
    assert_eq!(shown("hide"), Ok((false, plain.into())));
    assert_eq!(shown("serve"), Ok((true, format!("{plain}, with what is mounted inside"))));
    let memory = of_config("[[export]]\nmemory = true\nsubmounts = 'hide'").unwrap_err();
    assert!(memory.ends_with("`submounts` is for directories: nothing is mounted inside memory"), "{memory}");
}

#[test]
fn referrals_and_replicas_are_parsed_and_shown() {
    let plan = |text: &str| of_config(text).map(|plans| plans[0].clone());
    let moved = plan("[[export]]\npseudo = '/a'\nreferral = ['b:/x', '10.0.0.1:2050:/y']").unwrap();
    assert!(moved.options.locations.is_absent() && moved.directory().is_none());
    assert_eq!(moved.to_string(), "/a: a referral to b:/x, 10.0.0.1:2050:/y");
    let earlier = plan("[[export]]\npath = '/srv'\nreferral = ['b:/x']").unwrap();
    assert!(earlier.options.locations.is_absent());
    assert_eq!(earlier.directory(), Some(Path::new("/srv")));
    let copies = plan("[[export]]\npath = '/srv'\nreplicas = ['b:/x']").unwrap();
    assert!(!copies.options.locations.is_absent());
    assert!(copies.to_string().ends_with(", with replicas at b:/x"), "{copies}");
    let inside = copies.submount("/srv/disk".into(), "disk");
    assert_eq!(inside.options.locations, Locations::Here, "replicas are of the outer file system");
    let wrong = |text: &str, expected: &str| assert_eq!(plan(text).unwrap_err(), expected);
    wrong(
        "[[export]]\npseudo = '/a'\nreferral = []",
        "FILE:3: export /a: `referral`: expected 1 to 64 locations, found 0",
    );
    wrong(
        "[[export]]\npath = '/a'\nreplicas = [\n'b:/x',\n'b']",
        "FILE:5: export /export: `replicas`: `b`: expected HOST:/PATH, as in \"nfs.example.org:/data\", or \
         ADDRESS:PORT:/PATH",
    );
    wrong(
        "[[export]]\npath = '/a'\nreferral = ['b:/x']\nreplicas = ['b:/x']",
        "FILE:4: export /export: `referral` and `replicas` cannot both be set: the files are here or not",
    );
    wrong(
        "[[export]]\nmemory = true\nreferral = ['b:/x']",
        "FILE:3: export /export: `memory` and `referral` cannot both be set",
    );
}

#[test]
fn the_rule_for_offline_files_is_checked() {
    let plan =
        |lines: &str| of_config(&format!("[[export]]\npath = '/srv'\n{lines}")).map(|plans| plans[0].clone());
    assert!(plan("").unwrap().offline.is_none());
    let waits = plan("offline-xattr = 'user.offline'").unwrap();
    assert_eq!(waits.offline, Some(OfflineRule { xattr: c"user.offline".into(), recall: None }));
    let recalls = plan("offline-xattr = 'user.o'\noffline-recall = ['/bin/recall', '-v']").unwrap();
    assert!(recalls.to_string().ends_with(", files with user.o are recalled"), "{recalls}");
    let rule = recalls.offline.unwrap().recall.unwrap();
    assert_eq!((rule.at_once, rule.limit), (4, Duration::from_secs(600)));
    assert_eq!(rule.command, ["/bin/recall", "-v"]);
    let wrong = |lines: &str, expected: &str| {
        let error = plan(lines).unwrap_err();
        assert!(error.ends_with(expected), "{error}");
    };
    wrong(
        "offline-recall = ['/bin/recall']",
        "`offline-recall` needs `offline-xattr`, which marks the files",
    );
    wrong("offline-xattr = 'trusted.offline'", "as in \"user.offline\", found `trusted.offline`");
    wrong("offline-xattr = 'user.'", "found `user.`");
    let with = |line: &str| format!("offline-xattr = 'user.o'\n{line}");
    wrong(&with("offline-recall = []"), "expected a program by its absolute path, and its arguments");
    wrong(&with("offline-recall = ['recall']"), "expected a program by its absolute path, and its arguments");
    wrong(&with("offline-recalls = 0"), "expected an integer from 1 to 64, found 0");
    wrong(&with("offline-recall-seconds = 86401"), "expected an integer from 1 to 86400, found 86401");
}

#[test]
fn arguments_name_directories_and_memory() {
    let sources = |words| {
        let plans = ExportPlan::of_arguments(&arguments(words)).unwrap();
        plans.into_iter().map(|plan| (plan.source, plan.pseudo)).collect::<Vec<_>>()
    };
    let directory = |path: &str| Source::Directory(path.into());
    assert_eq!(
        sources("/a:/x /b:y:/z/w"),
        [(directory("/a"), "/x".into()), (directory("/b:y"), "/z/w".into())]
    );
    assert_eq!(sources("/a:/"), [(directory("/a"), "/".into())]);
    assert_eq!(sources("--memory"), [(Source::Memory("/export".into()), "/export".into())]);
    assert_eq!(sources("--memory :/a :/b").len(), 2);
    let shown = |words| {
        let plans = ExportPlan::of_arguments(&arguments(words)).unwrap();
        plans.iter().map(|plan| plan.to_string().split(':').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown("--memory"), ["memory (1 GiB) as /export"]);
    assert_eq!(shown("--memory=64MiB :/a :/b"), ["memory (64 MiB) as /a", "memory (64 MiB) as /b"]);
    for wrong in ["--memory /srv", ":/a"] {
        assert!(ExportPlan::of_arguments(&arguments(wrong)).is_err(), "{wrong}");
    }
}
