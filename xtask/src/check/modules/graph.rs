//! Imports among the children of one module: order, circles and the imports that close them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tree::{ModuleId, Target, Tree, UseKind};

/// The parent's own items, as a node in addition to its children.
pub(super) const OWN: &str = "(own items)";

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub(super) file: String,
    pub(super) line: usize,
}

/// Imports between the children of one module.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) children: BTreeSet<String>,
    /// Importing and imported child, and where. [`OWN`] represents the parent's items.
    pub(super) edges: BTreeMap<(String, String), Vec<Site>>,
}

/// Returns the level below each module that has children, by the path of that module.
pub(super) fn levels(tree: &Tree) -> BTreeMap<String, Level> {
    let mut levels: BTreeMap<String, Level> = BTreeMap::new();
    for module in tree.modules.iter().filter(|module| !module.children.is_empty()) {
        levels.entry(module.path.clone()).or_default().children = module.children.keys().cloned().collect();
    }
    for (from, module) in tree.modules.iter().enumerate() {
        for used in &module.uses {
            for target in tree.targets(from, used) {
                let Some((parent, edge)) = edge(tree, from, target, used.kind) else { continue };
                let level = levels.entry(tree.modules[parent].path.clone()).or_default();
                let sites = level.edges.entry(edge).or_default();
                sites.push(Site { file: module.file.clone(), line: used.line });
            }
        }
    }
    for level in levels.values_mut() {
        for sites in level.edges.values_mut() {
            sites.sort();
            sites.dedup();
        }
    }
    levels
}

/// Returns the level that a use in `from` belongs to, and which of its nodes imports which.
fn edge(tree: &Tree, from: ModuleId, target: Target, kind: UseKind) -> Option<(ModuleId, (String, String))> {
    let (Target::Module(to) | Target::ItemOf(to)) = target;
    let around: Vec<ModuleId> = tree.ancestors(from).collect();
    let parent = tree.ancestors(to).find(|id| around.contains(id))?;
    let node = |module| {
        let mut chain = tree.ancestors(module);
        let child = chain.find(|id| tree.modules[*id].parent == Some(parent) && *id != parent)?;
        tree.modules[child].path.rsplit("::").next().map(str::to_owned)
    };
    let ends = (node(from), node(to));
    match ends {
        (Some(importing), Some(imported)) => Some((parent, (importing, imported))),
        (Some(importing), None) if matches!(target, Target::ItemOf(_)) => {
            Some((parent, (importing, OWN.to_owned())))
        }
        (None, Some(imported)) if kind != UseKind::Reexported => Some((parent, (OWN.to_owned(), imported))),
        _ => None,
    }
}

impl Level {
    /// Returns the imports of `node`.
    pub(super) fn imports<'a>(&'a self, node: &'a str) -> impl Iterator<Item = (&'a str, &'a [Site])> {
        let edges = self.edges.range((node.to_owned(), String::new())..);
        let own = edges.take_while(move |((importing, _), _)| importing == node);
        own.map(|((_, imported), sites)| (imported.as_str(), sites.as_slice()))
    }

    fn sites(&self, importing: &str, imported: &str) -> &[Site] {
        self.edges.get(&(importing.to_owned(), imported.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Returns the children in groups bottom to top: a child imports only from its own group and those before it. A group of
    /// more than one is a circle; its order leaves as few imports as possible that lead upwards.
    pub(super) fn groups(&self) -> Vec<Vec<String>> {
        let mut left: BTreeSet<&str> = self.children.iter().map(String::as_str).collect();
        let mut groups = Vec::new();
        while let Some(lowest) = self.lowest_group(&left) {
            for node in &lowest {
                left.remove(node);
            }
            groups.push(self.best_order(lowest));
        }
        groups
    }

    /// Returns a group of `nodes` that imports nothing from the others.
    fn lowest_group<'a>(&'a self, nodes: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            nodes.iter().map(|node| (*node, self.reachable(node, nodes))).collect();
        let lowest = reach.iter().find(|(node, reached)| {
            reached.iter().all(|other| reach.get(other).is_some_and(|back| back.contains(*node)))
        });
        let (node, reached) = lowest?;
        let group: BTreeSet<&str> = reached.iter().copied().chain([*node]).collect();
        Some(group.into_iter().collect())
    }

    /// Returns the nodes of `nodes` that `node` imports, directly or through others.
    fn reachable<'a>(&'a self, node: &'a str, nodes: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut queue = vec![node];
        while let Some(node) = queue.pop() {
            for (imported, _) in self.imports(node) {
                if nodes.contains(imported) && reached.insert(imported) {
                    queue.push(imported);
                }
            }
        }
        reached
    }

    /// Orders a circle so that few imports lead upwards: each node moves to the best place until none gains by it.
    fn best_order(&self, group: Vec<&str>) -> Vec<String> {
        let places = |importing: &&str| group.iter().map(|to| self.sites(importing, to).len()).collect();
        let weights: Vec<Vec<usize>> = group.iter().map(places).collect();
        let mut order: Vec<usize> = (0..group.len()).collect();
        let mut cost = upward_imports(&weights, &order);
        loop {
            let before = cost;
            for node in 0..group.len() {
                for place in 0..group.len() {
                    let mut tried = order.clone();
                    tried.retain(|other| *other != node);
                    tried.insert(place, node);
                    let tried_cost = upward_imports(&weights, &tried);
                    if tried_cost < cost {
                        (order, cost) = (tried, tried_cost);
                    }
                }
            }
            if cost == before {
                break;
            }
        }
        order.into_iter().map(|index| group[index].to_owned()).collect()
    }

    /// Returns the imports of `order` that lead upwards, each as one sentence that names the place and the way back.
    pub(super) fn closing_imports(&self, order: &[String]) -> Vec<String> {
        let mut sentences = Vec::new();
        for (low, importing) in order.iter().enumerate() {
            for imported in &order[low + 1..] {
                let sites = self.sites(importing, imported);
                if !sites.is_empty() {
                    let why = self.way(imported, importing);
                    sentences.push(sentence(sites, importing, imported, &why));
                }
            }
        }
        sentences
    }

    /// Returns the shortest chain of imports from `from` to `to`, as text.
    fn way(&self, from: &str, to: &str) -> String {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for (imported, _) in self.imports(node) {
                if imported != OWN && imported != from && !came_from.contains_key(imported) {
                    came_from.insert(imported, node);
                    queue.push_back(imported);
                }
            }
        }
        let back = std::iter::successors(Some(to), |node| came_from.get(node).copied());
        let mut nodes: Vec<&str> = back.collect();
        nodes.reverse();
        let steps = nodes.windows(2).map(|step| {
            let site = self.sites(step[0], step[1]).first();
            let site = site.map(|site| format!(" ({}:{})", site.file, site.line)).unwrap_or_default();
            format!("`{}` imports `{}`{site}", step[0], step[1])
        });
        steps.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the number of places where a node of `order` imports a later one.
fn upward_imports(weights: &[Vec<usize>], order: &[usize]) -> usize {
    let pairs = (0..order.len()).flat_map(|low| (low + 1..order.len()).map(move |high| (low, high)));
    pairs.map(|(low, high)| weights[order[low]][order[high]]).sum()
}

/// Places shown of one forbidden import.
const SITES_SHOWN: usize = 5;

/// Returns `file:line: module a imports b, but why`, with the other places that do so.
pub(super) fn sentence(sites: &[Site], importing: &str, imported: &str, why: &str) -> String {
    let [first, others @ ..] = sites else { return String::new() };
    let mut text =
        format!("{}:{}: module `{importing}` imports `{imported}`, but {why}", first.file, first.line);
    for site in others.iter().take(SITES_SHOWN - 1) {
        text.push_str(&format!("\n    also {}:{}", site.file, site.line));
    }
    if sites.len() > SITES_SHOWN {
        text.push_str(&format!("\n    and {} more", sites.len() - SITES_SHOWN));
    }
    text
}
