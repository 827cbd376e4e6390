//! Every operation of the library on a server in memory, in each version; the kernel tests run the same steps on other servers
//! (`tests/kernel/guest/library.sh`).

#[path = "../examples/operations/steps/mod.rs"]
mod steps;

use std::collections::BTreeSet;

fn all_steps_pass(version: &str) {
    let server = net::MemoryServer::start().unwrap();
    let url = format!("{}&version={version}&uid=0&gid=0", server.url());
    println!("{}", steps::run(&url, &[]).unwrap_or_else(|why| panic!("{why}")));
}

#[test]
fn every_operation_works_over_version_2() {
    all_steps_pass("2");
}

#[test]
fn every_operation_works_over_version_3() {
    all_steps_pass("3");
}

#[test]
fn every_operation_works_over_version_4_0() {
    all_steps_pass("4.0");
}

#[test]
fn every_operation_works_over_version_4_1() {
    all_steps_pass("4.1");
}

#[test]
fn every_operation_works_over_version_4_2() {
    all_steps_pass("4.2");
}

/// The blocking interface, and the calls of the async one that it has under other names or not at all.
const INTERFACES: [&str; 8] = [
    include_str!("../src/blocking.rs"),
    include_str!("../src/blocking/calls.rs"),
    include_str!("../../client/src/fs/file.rs"),
    include_str!("../../client/src/fs/lock.rs"),
    include_str!("../../client/src/fs/many.rs"),
    include_str!("../../client/src/fs/space.rs"),
    include_str!("../../client/src/fs/walk.rs"),
    include_str!("../../client/src/fs/xattr.rs"),
];
const ASYNC_ONLY: [&str; 2] =
    [include_str!("../../client/src/fs/mod.rs"), include_str!("../../client/src/fs/listing.rs")];
/// Names of the async interface, and those of the blocking one.
const OTHER_NAMES: [(&str, &str); 3] =
    [("mkdir", "create_dir"), ("unlink", "remove_file"), ("rmdir", "remove_dir")];
const STEPS: [&str; 8] = [
    include_str!("../examples/operations/steps/attributes.rs"),
    include_str!("../examples/operations/steps/copies.rs"),
    include_str!("../examples/operations/steps/files.rs"),
    include_str!("../examples/operations/steps/lists.rs"),
    include_str!("../examples/operations/steps/locks.rs"),
    include_str!("../examples/operations/steps/many.rs"),
    include_str!("../examples/operations/steps/names.rs"),
    include_str!("../examples/operations/steps/space.rs"),
];

/// Returns the names of the functions with `self` of an interface.
fn calls(source: &str) -> BTreeSet<&str> {
    let mut calls = BTreeSet::new();
    for line in source.lines().map(str::trim_start) {
        let is_public = line.starts_with("pub fn ") || line.starts_with("pub async fn ");
        // The macro of `calls.rs` makes its functions public.
        let is_listed = line.starts_with("fn ") && line.ends_with(';');
        if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_public || is_listed)
            && let Some((name, _)) = rest.split_once(['(', '<']).filter(|(name, _)| !name.starts_with('$'))
        {
            calls.insert(name);
        }
    }
    calls
}

#[test]
fn the_steps_use_every_operation_of_the_library() {
    let known: BTreeSet<&str> =
        INTERFACES.iter().chain(&ASYNC_ONLY).flat_map(|source| calls(source)).collect();
    assert!(known.len() > 50 && known.contains("copy_from") && known.contains("list_xattrs"), "{known:?}");
    let steps = STEPS.concat();
    let is_used = |name: &&str| {
        let other = OTHER_NAMES.iter().find(|(asynchronous, _)| asynchronous == name).map(|(_, name)| *name);
        [Some(*name), other].into_iter().flatten().any(|name| steps.contains(&format!(".{name}(")))
    };
    let unused: Vec<&str> = known.into_iter().filter(|name| !is_used(name)).collect();
    // Access to parts, and what is used as a function.
    assert_eq!(unused, ["caller", "client", "info", "is_whole", "mount", "mounted", "to", "wait"]);
}
