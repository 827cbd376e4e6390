//! The layer rules of ARCHITECTURE.md as a table, and their check.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::source::{self, Forbidden, Violation};

/// Maximum lines of a file without a warning.
const FILE_LINES_MAX: usize = 700;
/// Maximum lines of a function without a warning.
const FUNCTION_LINES_MAX: usize = 100;

/// The rules of one crate.
struct Layer {
    /// Directory below `crates/`, which is the crate's name without `enfys-`.
    name: &'static str,
    /// Workspace crates that it may depend on; its tests may use others.
    may_use: &'static [&'static str],
    /// Names that its sources may not use outside tests.
    forbidden: &'static [Forbidden],
    /// External crates that it may not depend on.
    forbidden_crates: &'static [&'static str],
}

/// Sockets, files, clocks, threads and randomness, which are arguments in the inner layers.
const OUTSIDE_WORLD: &[Forbidden] = &[
    Forbidden::root("tokio", "tokio belongs to the net crate"),
    Forbidden::root("mio", "sockets belong to the net crate"),
    Forbidden::root("socket2", "sockets belong to the net crate"),
    Forbidden::root("rustix", "system calls belong to localfs and net"),
    Forbidden::root("libc", "system calls belong to localfs and net"),
    Forbidden::root("rand", "randomness is an argument"),
    Forbidden::root("fastrand", "randomness is an argument"),
    Forbidden::root("getrandom", "randomness is an argument"),
    Forbidden::root("std::net", "sockets belong to the net crate (addresses as values: core::net)"),
    Forbidden::root("std::fs", "files belong to localfs"),
    Forbidden::root("std::process::Command", "other programs belong to the binary"),
    // `panicking` neither starts a thread nor waits for one.
    Forbidden::root("std::thread", "threads belong to the net crate").except("std::thread::panicking"),
    Forbidden::anywhere("Instant::now", "time is an argument"),
    Forbidden::anywhere("SystemTime::now", "time is an argument"),
    Forbidden::renamed("Instant", "a renamed clock hides from this check"),
    Forbidden::renamed("SystemTime", "a renamed clock hides from this check"),
    Forbidden::renamed("std", "a renamed std hides from this check"),
];

/// Protocol names, which `vfs` may not use.
const PROTOCOLS: &[Forbidden] = &[
    Forbidden::prefix("nfs", "vfs knows no protocol"),
    Forbidden::prefix("Nfs", "vfs knows no protocol"),
    Forbidden::prefix("NFS", "vfs knows no protocol"),
    Forbidden::root("xdr", "vfs knows no protocol"),
    Forbidden::root("rpc", "vfs knows no protocol"),
    Forbidden::root("protocol", "vfs knows no protocol"),
];

/// Names of behavior, which `protocol` may not use: it defines only values and their encoding.
const BEHAVIOR: &[Forbidden] = &[
    Forbidden::word("async", "protocol has no behavior"),
    Forbidden::word("await", "protocol has no behavior"),
    Forbidden::root("std::sync", "protocol holds no shared state"),
    Forbidden::root("std::cell", "protocol holds no shared state"),
    Forbidden::root("parking_lot", "protocol holds no shared state"),
];

const OUTSIDE_CRATES: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "async-std",
    "smol",
    "rustix",
    "nix",
    "libc",
    "rand",
    "rand_core",
    "fastrand",
    "getrandom",
    "chrono",
    "time",
];

/// The crates, bottom to top. A crate without a row fails the check, so that a new crate needs a decision.
#[rustfmt::skip]
const LAYERS: &[Layer] = &[
    Layer { name: "xdr-derive", may_use: &[], forbidden: &[], forbidden_crates: OUTSIDE_CRATES },
    inner("xdr", &["xdr-derive"]),
    inner("rpc", &["xdr"]),
    inner("protocol", &["xdr"]),
    inner("vfs", &[]),
    inner("server", &["xdr", "rpc", "protocol", "vfs"]),
    inner("client", &["xdr", "rpc", "protocol"]),
    inner("sim", &["xdr", "rpc", "protocol", "vfs", "server", "client"]),
    outer("localfs", &["vfs"]),
    outer("store", &["xdr", "vfs", "server"]),
    outer("net", &["xdr", "rpc", "protocol", "vfs", "server", "client"]),
    outer("fuse", &["client", "net"]),
    outer("mount", &["xdr", "rpc", "client", "fuse", "net", "server", "vfs"]),
    outer("bench", &["xdr", "rpc", "protocol", "client", "net"]),
    outer("enfys", &["xdr", "rpc", "protocol", "vfs", "localfs", "server", "store", "client", "net", "fuse", "mount", "bench"]),
];

/// Additional rules of single layers.
const SPECIAL: &[(&str, &[Forbidden])] = &[("vfs", PROTOCOLS), ("protocol", BEHAVIOR)];

const fn inner(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, may_use, forbidden: OUTSIDE_WORLD, forbidden_crates: OUTSIDE_CRATES }
}

const fn outer(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, may_use, forbidden: &[], forbidden_crates: &[] }
}

/// Results of a check. An error breaks a rule; a warning suggests a review.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Checks every crate below `root`.
pub(super) fn check(root: &Path) -> Result<Findings, String> {
    let mut findings = Findings::default();
    for name in directory_names(&root.join("crates"))? {
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
            findings
                .errors
                .push(format!("crates/{name} has no row in the table of layers (xtask/src/check/layers.rs)"));
            continue;
        };
        let crate_dir = root.join("crates").join(&name);
        let manifest = read(&crate_dir.join("Cargo.toml"))?;
        check_manifest(layer, &manifest, &mut findings.errors)?;
        check_sources(root, &crate_dir, layer, &mut findings)?;
    }
    let own = Layer { name: "xtask", may_use: &[], forbidden: &[], forbidden_crates: &[] };
    check_sources(root, &root.join("xtask"), &own, &mut findings)?;
    Ok(findings)
}

fn check_manifest(layer: &Layer, manifest: &str, errors: &mut Vec<String>) -> Result<(), String> {
    let name = layer.name;
    let manifest: toml::Table =
        manifest.parse().map_err(|error| format!("crates/{name}/Cargo.toml: {error}"))?;
    for dependency in dependencies(&manifest) {
        let own_name = dependency.strip_prefix("enfys-").unwrap_or(&dependency);
        let is_layer = LAYERS.iter().any(|layer| layer.name == own_name);
        if is_layer && !layer.may_use.contains(&own_name) {
            errors.push(format!("crates/{name}/Cargo.toml: layer `{name}` may not use layer `{own_name}`"));
        }
        if layer.forbidden_crates.contains(&dependency.as_str()) {
            errors.push(format!("crates/{name}/Cargo.toml: layer `{name}` may not use `{dependency}`"));
        }
    }
    Ok(())
}

/// Returns the package names of all dependencies except those of tests.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut tables: Vec<&toml::Table> = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut names = Vec::new();
    for table in tables {
        for section in ["dependencies", "build-dependencies"] {
            let Some(section) = table.get(section).and_then(toml::Value::as_table) else { continue };
            for (key, value) in section {
                let package = value.get("package").and_then(toml::Value::as_str);
                names.push(package.unwrap_or(key).to_owned());
            }
        }
    }
    names
}

fn check_sources(
    root: &Path,
    crate_dir: &Path,
    layer: &Layer,
    findings: &mut Findings,
) -> Result<(), String> {
    let special = SPECIAL.iter().filter(|(name, _)| *name == layer.name).flat_map(|(_, rules)| *rules);
    let rules: Vec<&Forbidden> = layer.forbidden.iter().chain(special).collect();
    let mut files = Vec::new();
    rust_files(&crate_dir.join("src"), &mut files)?;
    let mut of_tests = HashSet::new();
    let mut scanned = Vec::new();
    for file in files {
        let text = read(&file)?;
        let shown = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.warnings.push(format!("{shown}: {lines} lines (more than {FILE_LINES_MAX})"));
        }
        let scan = source::scan(&text, &rules).map_err(|error| format!("{shown}: {error}"))?;
        of_tests.extend(scan.test_modules.iter().flat_map(|module| module_files(&file, module)));
        scanned.push((file, shown, scan));
    }
    for (file, shown, scan) in scanned {
        if of_tests.iter().any(|module: &PathBuf| file == *module || file.starts_with(module)) {
            continue;
        }
        let at = |violation: &Violation| format!("{shown}:{}: {}", violation.line, violation.what);
        findings.errors.extend(scan.forbidden.iter().map(at));
        for (function, line, lines) in &scan.functions {
            if *lines > FUNCTION_LINES_MAX {
                findings.warnings.push(format!("{shown}:{line}: `{function}` has {lines} lines"));
            }
        }
    }
    Ok(())
}

/// Returns the possible places of `mod module;` in `file`: `module.rs`, or the directory `module`.
fn module_files(file: &Path, module: &str) -> [PathBuf; 2] {
    let stem = file.file_stem().unwrap_or_default();
    let parent = file.parent().unwrap_or(Path::new(""));
    let owns_directory = ["lib", "main", "mod"].iter().any(|name| stem == *name);
    let directory = if owns_directory { parent.to_path_buf() } else { parent.join(stem) };
    [directory.join(format!("{module}.rs")), directory.join(module)]
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in sorted_entries(directory)? {
        if entry.is_dir() {
            rust_files(&entry, files)?;
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    Ok(())
}

fn directory_names(directory: &Path) -> Result<Vec<String>, String> {
    let entries = sorted_entries(directory)?;
    let directories = entries.iter().filter(|entry| entry.join("Cargo.toml").is_file());
    Ok(directories.filter_map(|entry| Some(entry.file_name()?.to_str()?.to_owned())).collect())
}

fn sorted_entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let context = |error| format!("{}: {error}", directory.display());
    let mut entries: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(context)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(context)?;
    entries.sort();
    Ok(entries)
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a workspace of one crate.
    fn findings_of(name: &str, manifest: &str, sources: &[(&str, &str)]) -> Findings {
        let root = tempfile::tempdir().expect("a temporary directory");
        let crate_dir = root.path().join("crates").join(name);
        fs::create_dir_all(root.path().join("xtask/src")).expect("xtask's directory");
        for (path, text) in [&[("Cargo.toml", manifest)], sources].concat() {
            let path = crate_dir.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("the crate's directory");
            fs::write(path, text).expect("the crate's file");
        }
        check(root.path()).expect("a readable workspace")
    }

    #[test]
    fn this_workspace_follows_the_rules() {
        let findings = check(&crate::report::workspace_root()).expect("a readable workspace");
        assert_eq!(findings.errors, Vec::<String>::new());
    }

    #[test]
    fn reports_a_clock_in_the_server() {
        let source = "fn f() -> std::time::Instant {\n    std::time::Instant::now()\n}\n";
        let findings = findings_of("server", "", &[("src/nfs3/read.rs", source)]);
        assert_eq!(
            findings.errors,
            ["crates/server/src/nfs3/read.rs:2: `Instant::now`: time is an argument"]
        );
    }

    #[test]
    fn outer_layers_may_use_files_and_clocks() {
        let source =
            "fn f() { let _ = (std::time::Instant::now(), std::fs::read(\"x\")); tokio::spawn(g()); }";
        let manifest = "[dependencies]\nvfs.workspace = true\ntokio.workspace = true\n";
        assert!(findings_of("localfs", manifest, &[("src/lib.rs", source)]).errors.is_empty());
    }

    #[test]
    fn tests_of_inner_layers_may_use_files_and_clocks() {
        let lib =
            "#[cfg(test)]\nmod fixtures;\n#[cfg(test)]\nmod tests { fn f() { std::fs::read(\"x\"); } }\n";
        let sources = [
            ("src/lib.rs", lib),
            ("src/fixtures.rs", "use std::fs;"),
            ("src/fixtures/deep.rs", "use std::net;"),
        ];
        assert!(findings_of("vfs", "", &sources).errors.is_empty());
    }

    #[test]
    fn reports_a_dependency_on_a_higher_layer() {
        let manifest = "[dependencies]\nserver.workspace = true\n[dev-dependencies]\nsim.workspace = true\n";
        let findings = findings_of("vfs", manifest, &[("src/lib.rs", "")]);
        assert_eq!(findings.errors, ["crates/vfs/Cargo.toml: layer `vfs` may not use layer `server`"]);
    }

    #[test]
    fn reports_renamed_and_target_specific_dependencies() {
        let manifest = "[dependencies]\nfoo = { package = \"enfys-net\", path = \"../net\" }\n\
                        [target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n";
        let findings = findings_of("rpc", manifest, &[("src/lib.rs", "")]);
        assert_eq!(
            findings.errors,
            [
                "crates/rpc/Cargo.toml: layer `rpc` may not use layer `net`",
                "crates/rpc/Cargo.toml: layer `rpc` may not use `tokio`"
            ]
        );
    }

    #[test]
    fn reports_a_protocol_in_vfs_and_behavior_in_protocol() {
        let findings =
            findings_of("vfs", "", &[("src/lib.rs", "pub enum E { Nfs3Error } // nfs in words is fine")]);
        assert_eq!(findings.errors, ["crates/vfs/src/lib.rs:1: `Nfs3Error`: vfs knows no protocol"]);
        let findings = findings_of("protocol", "", &[("src/lib.rs", "pub async fn f() {}")]);
        assert_eq!(findings.errors, ["crates/protocol/src/lib.rs:1: `async`: protocol has no behavior"]);
    }

    #[test]
    fn reports_a_crate_without_a_row() {
        let findings = findings_of("gadget", "", &[("src/lib.rs", "")]);
        assert!(findings.errors[0].starts_with("crates/gadget has no row"), "{:?}", findings.errors);
    }

    #[test]
    fn warns_about_long_files_and_functions() {
        let source = format!("fn long() {{\n{}}}\n", "    g();\n".repeat(FILE_LINES_MAX));
        let findings = findings_of("xdr", "", &[("src/lib.rs", &source)]);
        assert!(findings.errors.is_empty());
        assert_eq!(
            findings.warnings,
            [
                "crates/xdr/src/lib.rs: 702 lines (more than 700)",
                "crates/xdr/src/lib.rs:1: `long` has 702 lines"
            ]
        );
    }

    #[test]
    fn layers_use_existing_layers() {
        for layer in LAYERS {
            for used in layer.may_use {
                assert!(LAYERS.iter().any(|other| other.name == *used), "{} uses {used}", layer.name);
            }
        }
    }
}
