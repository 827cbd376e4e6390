//! The direction of imports inside crates: the rules as tables, their check, and `cargo xtask modules`.
//!
//! Module `a` imports its sibling `b` if anything in `a` or below names anything in `b` or below. A name that a parent
//! re-exports counts for the module that defines it. Method calls do not name a module and do not count.

mod graph;
mod tree;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use self::graph::{Level, OWN, levels, sentence};
use self::tree::Tree;
use super::layers::Findings;
use crate::report::{Outcome, Tally, workspace_root};

/// This file, in messages.
const TABLES: &str = "xtask/src/check/modules.rs";

/// The rules of all crates.
struct Rules {
    /// Crates without import circles among sibling modules, at any depth.
    without_circles: &'static [&'static str],
    /// Modules whose own items import no child, if a child imports them.
    own_items: &'static [&'static str],
    /// Modules whose children never import each other.
    independent: &'static [&'static str],
    /// Modules whose children import only siblings before them in a list.
    order: &'static [Order],
    /// Imports that are reported as warnings.
    allowed_for_now: &'static [Circle],
}

/// The children of `parent`, bottom to top.
struct Order {
    parent: &'static str,
    children: &'static [&'static str],
}

/// Children of `parent` that import each other, with [`OWN`] for the parent's items.
struct Circle {
    parent: &'static str,
    children: &'static [&'static str],
}

const RULES: Rules = Rules {
    without_circles: &["server", "localfs", "client", "net", "store", "vfs", "enfys", "fuse", "mount"],
    own_items: &["server", "server::state", "server::files", "localfs"],
    independent: &["server::programs"],
    order: ORDER,
    allowed_for_now: NOT_YET,
};

/// Bottom to top.
#[rustfmt::skip]
const ORDER: &[Order] = &[
    Order { parent: "localfs", children: &[
        "errno", "sys", "handle", "index", "identity", "name", "change", "attributes", "acl", "generations", "mounts", "fanotify",
        "lock", "nonblocking", "descriptors", "config", "streams", "dirty_memory", "pool", "stall_detector",
        "early_flush", "sync_state", "object", "cached_names", "sync_group", "watch", "watch_limits", "hidden", "cleanup_queue",
        "volume",
        "act_as", "batch_attrs", "blocking", "by_handle", "cleanup", "close_idle", "durable", "find", "identify", "open_by_index",
        "opening", "local_locks", "refused_mounts", "release", "status", "visibility", "xattr_target", "permission",
        "ops", "probe", "backend",
    ] },
    Order { parent: "fuse", children: &[
        "abi", "flags", "types", "sys", "descriptors", "device", "signals", "channel", "request", "reply", "directory", "filesystem",
        "interrupt", "negotiate", "notify", "hand_over", "session", "mount",
    ] },
    Order { parent: "server", children: &[
        "network", "now", "flavor", "versions", "quoted", "prefetch", "payload", "transport", "wait_limit", "work_signal", "id_names",
        "handle", "gss_mechanism", "metrics", "throttle", "outbox", "nfs4_status", "client_log", "settings",
        "exports", "identity", "peer", "caller", "gss", "listing_cache",
        "remote_read", "replay", "state", "connection", "shared", "request",
        "files", "copy", "nfs3_reply", "programs",
        "work", "server", "admin", "dispatch", "driver",
    ] },
    Order { parent: "server::state", children: &[
        "state_log", "tables", "connection_owner", "root", "audit", "snapshot",
        "sessions", "callbacks", "clients", "files", "locks", "nlm", "delegations", "copies", "v40_owners",
    ] },
];

/// Remove a module when it leaves its circle, and a row when the circle is gone.
#[rustfmt::skip]
const NOT_YET: &[Circle] = &[
];

/// Checks the crates below `root` that have rules.
pub(super) fn check(root: &Path) -> Result<Findings, String> {
    RULES.check(root)
}

impl Rules {
    fn check(&self, root: &Path) -> Result<Findings, String> {
        let mut findings = Findings::default();
        for name in self.without_circles {
            let Some(tree) = read_crate(root, name)? else { continue };
            self.check_crate(&levels(&tree), &mut findings);
        }
        Ok(findings)
    }

    fn check_crate(&self, levels: &BTreeMap<String, Level>, findings: &mut Findings) {
        for (parent, level) in levels {
            let rows: Vec<&Circle> = self.allowed_for_now.iter().filter(|row| row.parent == parent).collect();
            let mut broken = HashSet::new();
            for (nodes, errors) in self.broken_rules(parent, level) {
                if rows.iter().any(|row| row.covers(&nodes)) {
                    findings.warnings.push(format!("{parent}: imports to untangle: {}", nodes.join(", ")));
                } else {
                    findings.errors.extend(errors);
                }
                broken.extend(nodes);
            }
            let listed = rows.iter().flat_map(|row| row.children).copied();
            let stale: Vec<&str> = listed.filter(|child| !broken.contains(*child)).collect();
            if !stale.is_empty() {
                findings.warnings.push(format!("{parent}: remove {} from NOT_YET", stale.join(", ")));
            }
        }
    }

    /// Returns the broken rules: the modules involved, and a message per forbidden import.
    fn broken_rules(&self, parent: &str, level: &Level) -> Vec<(Vec<String>, Vec<String>)> {
        let circles = level.groups().into_iter().filter(|group| group.len() > 1);
        let mut broken: Vec<_> = circles
            .map(|circle| {
                let errors = level.closing_imports(&circle);
                (circle, errors)
            })
            .collect();
        if self.own_items.contains(&parent) {
            broken.extend(own_items_imported(parent, level));
        }
        if self.independent.contains(&parent) {
            broken.extend(independent_imported(parent, level));
        }
        if let Some(order) = self.order.iter().find(|order| order.parent == parent) {
            broken.extend(against_order(order, level));
        }
        broken
    }
}

impl Circle {
    fn covers(&self, nodes: &[String]) -> bool {
        !nodes.is_empty() && nodes.iter().all(|node| self.children.contains(&node.as_str()))
    }
}

/// Finds items of a parent that import children and that a child imports.
fn own_items_imported(parent: &str, level: &Level) -> Option<(Vec<String>, Vec<String>)> {
    let (imported, sites) = level.imports(OWN).next()?;
    let why =
        format!("`{parent}` itself imports its child `{imported}` ({}:{})", sites[0].file, sites[0].line);
    let imports = level.children.iter().flat_map(|child| {
        let own = level.imports(child).filter(|(imported, _)| *imported == OWN);
        own.map(|(_, sites)| sentence(sites, child, parent, &why))
    });
    let errors: Vec<String> = imports.collect();
    (!errors.is_empty()).then(|| (vec![OWN.to_owned()], errors))
}

fn independent_imported(parent: &str, level: &Level) -> Vec<(Vec<String>, Vec<String>)> {
    let why = format!("the modules of `{parent}` never import each other");
    let imports = level.children.iter().flat_map(|child| {
        let others = level.imports(child).filter(|(imported, _)| *imported != OWN);
        others.map(|(imported, sites)| {
            (vec![child.clone(), imported.to_owned()], vec![sentence(sites, child, imported, &why)])
        })
    });
    imports.collect()
}

fn against_order(order: &Order, level: &Level) -> Vec<(Vec<String>, Vec<String>)> {
    let Order { parent, children } = order;
    let place = |name: &str| children.iter().position(|child| *child == name);
    let mut broken = Vec::new();
    for child in level.children.iter().filter(|child| place(child).is_none()) {
        let error = format!("module `{parent}::{child}` has no place in the order of `{parent}` ({TABLES})");
        broken.push((Vec::new(), vec![error]));
    }
    for child in children.iter().filter(|child| !level.children.contains(**child)) {
        let error = format!("the order of `{parent}` names `{child}`, which does not exist ({TABLES})");
        broken.push((Vec::new(), vec![error]));
    }
    for child in &level.children {
        for (imported, sites) in level.imports(child) {
            if let (Some(low), Some(high)) = (place(child), place(imported))
                && low < high
            {
                let why = format!("`{imported}` is above it in the order of `{parent}`");
                let nodes = vec![child.clone(), imported.to_owned()];
                broken.push((nodes, vec![sentence(sites, child, imported, &why)]));
            }
        }
    }
    broken
}

/// Reads `crates/NAME`; `None` if there is no such crate.
fn read_crate(root: &Path, name: &str) -> Result<Option<Tree>, String> {
    let source = root.join("crates").join(name).join("src");
    let files = [source.join("lib.rs"), source.join("main.rs")];
    let root_file: Option<&PathBuf> = files.iter().find(|file| file.is_file());
    root_file.map(|file| Tree::read(root, file, name)).transpose()
}

/// Options of `cargo xtask modules`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Directory below crates/
    name: String,
    /// One module only, such as server::nfs4
    module: Option<String>,
}

/// Prints the modules of a crate bottom to top with their imports, and the imports that close circles.
pub(crate) fn print(options: &Options) -> Outcome {
    let name = &options.name;
    let tree = read_crate(&workspace_root(), name)?.ok_or_else(|| format!("no crate crates/{name}"))?;
    for (parent, level) in levels(&tree) {
        if options.module.as_ref().is_none_or(|module| *module == parent) {
            println!("{parent}");
            print_level(&level);
        }
    }
    Ok(Tally::default())
}

fn print_level(level: &Level) {
    let print_node = |node: &str, indent: &str| {
        let imports: Vec<&str> = level.imports(node).map(|(imported, _)| imported).collect();
        let arrow = if imports.is_empty() { "" } else { " <- " };
        println!("{indent}{node}{arrow}{}", imports.join(", "));
    };
    for group in level.groups() {
        if let [node] = group.as_slice() {
            print_node(node, "    ");
            continue;
        }
        println!("    circle of {}:", group.len());
        for node in &group {
            print_node(node, "        ");
        }
        for import in level.closing_imports(&group) {
            println!("      ! {}", import.replace('\n', "\n      "));
        }
    }
    print_node(OWN, "    ");
}

#[cfg(test)]
mod tests;
