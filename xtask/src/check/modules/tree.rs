//! The modules of a crate, their definitions and imports, and the paths that they name; code for tests is left out.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, Visibility};

use super::super::source;

/// Index of a module in [`Tree::modules`].
pub(super) type ModuleId = usize;

/// The crate's root.
pub(super) const ROOT: ModuleId = 0;

/// All modules of a crate; the root comes first.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
}

/// A module and the facts from its source.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Names from the crate's down: `server::nfs3::read`.
    pub(super) path: String,
    pub(super) parent: Option<ModuleId>,
    pub(super) children: BTreeMap<String, ModuleId>,
    /// Source file, relative to the workspace.
    pub(super) file: String,
    pub(super) uses: Vec<Use>,
    /// Names of the items that it defines.
    items: BTreeSet<String>,
    /// Imported names, each with the paths that `use` gives for it.
    imports: BTreeMap<String, Vec<Vec<String>>>,
    /// Paths of `use path::*`.
    globs: Vec<Vec<String>>,
}

/// A path that a module names.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) names: Vec<String>,
    pub(super) line: usize,
    pub(super) kind: UseKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UseKind {
    /// A path in an expression, a type or a macro's arguments.
    Named,
    Imported,
    /// `use path::*`.
    Glob,
    /// `pub use` of any visibility.
    Reexported,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    Module(ModuleId),
    /// An item that this module defines.
    ItemOf(ModuleId),
}

impl Tree {
    /// Reads the crate whose root file is `root_file`, a path below `workspace`.
    pub(super) fn read(workspace: &Path, root_file: &Path, crate_name: &str) -> Result<Self, String> {
        let mut tree = Self::default();
        let module = Module { path: crate_name.to_owned(), ..Module::default() };
        tree.modules.push(module);
        tree.read_file(workspace, ROOT, root_file)?;
        Ok(tree)
    }

    fn read_file(&mut self, workspace: &Path, module: ModuleId, file: &Path) -> Result<(), String> {
        let shown = file.strip_prefix(workspace).unwrap_or(file).display().to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
        let parsed = source::parse(&text)
            .and_then(|stream| {
                let stream = source::without_tests(stream);
                syn::parse2::<syn::File>(stream).map_err(|error| format!("not Rust: {error}"))
            })
            .map_err(|error| format!("{shown}: {error}"))?;
        self.modules[module].file = shown;
        let stem = file.file_stem().unwrap_or_default();
        let parent = file.parent().unwrap_or(Path::new(""));
        let owns_directory = ["lib", "main", "mod"].iter().any(|name| stem == *name);
        let directory = if owns_directory { parent.to_path_buf() } else { parent.join(stem) };
        self.add_items(workspace, module, parsed.items, &directory)
    }

    /// Adds `items` to `module`, whose child modules are in `directory`.
    fn add_items(
        &mut self,
        workspace: &Path,
        module: ModuleId,
        items: Vec<Item>,
        directory: &Path,
    ) -> Result<(), String> {
        for item in items {
            let Item::Mod(child) = item else {
                self.modules[module].add_item(&item);
                continue;
            };
            let name = child.ident.to_string();
            let id = self.add_child(module, &name);
            if let Some((_, items)) = child.content {
                self.add_items(workspace, id, items, &directory.join(&name))?;
            } else {
                self.read_file(workspace, id, &module_file(directory, &name)?)?;
            }
        }
        Ok(())
    }

    fn add_child(&mut self, parent: ModuleId, name: &str) -> ModuleId {
        let id = self.modules.len();
        let Module { path, file, .. } = &self.modules[parent];
        let child = Module {
            path: format!("{path}::{name}"),
            parent: Some(parent),
            file: file.clone(),
            ..Module::default()
        };
        self.modules.push(child);
        self.modules[parent].children.insert(name.to_owned(), id);
        id
    }

    /// Returns `module` and the modules around it, the crate's root last.
    pub(super) fn ancestors(&self, module: ModuleId) -> impl Iterator<Item = ModuleId> {
        std::iter::successors(Some(module), |id| self.modules[*id].parent)
    }

    /// Returns the target of `used` in this crate; nothing for other crates and for local names.
    pub(super) fn targets(&self, from: ModuleId, used: &Use) -> Vec<Target> {
        let mut resolver = Resolver { tree: self, seen: HashSet::new(), found: BTreeSet::new() };
        match used.names.as_slice() {
            // A single name is the module's own or an import, which counts where it is imported, unless a glob brings it.
            // In lower case it is mostly a variable, a field or a method.
            [name] if used.kind == UseKind::Named => {
                if name.starts_with(char::is_uppercase) {
                    resolver.through_globs(from, &used.names);
                }
            }
            names => resolver.path(from, names),
        }
        let in_glob = |target| match target {
            Target::Module(id) if used.kind == UseKind::Glob => Target::ItemOf(id),
            target => target,
        };
        resolver.found.into_iter().map(in_glob).collect()
    }
}

/// Returns `directory/name.rs` or `directory/name/mod.rs`.
fn module_file(directory: &Path, name: &str) -> Result<PathBuf, String> {
    let candidates = [directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")];
    let found = candidates.iter().find(|file| file.is_file());
    found.cloned().ok_or_else(|| format!("{}: no file for `mod {name};`", directory.display()))
}

impl Module {
    fn add_item(&mut self, item: &Item) {
        self.items.extend(defined_names(item));
        let reexport = matches!(item, Item::Use(item) if !matches!(item.vis, Visibility::Inherited));
        for source::Path { mut names, line, imported, alias, glob } in source::paths(item.to_token_stream()) {
            if names.len() > 1 && names.last().is_some_and(|name| name == "self") {
                names.pop();
            }
            let kind = match (imported, glob) {
                (true, _) if reexport => UseKind::Reexported,
                (true, true) => UseKind::Glob,
                (true, false) => UseKind::Imported,
                (false, _) => UseKind::Named,
            };
            if glob {
                self.globs.push(names.clone());
            } else if let (true, Some(name)) = (imported, alias.or_else(|| names.last().cloned())) {
                self.imports.entry(name).or_default().push(names.clone());
            }
            self.uses.push(Use { names, line, kind });
        }
    }
}

fn defined_names(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => match &item.ident {
            Some(ident) => ident,
            None => return defined_in_macro(item.mac.tokens.clone()),
        },
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}

/// Returns the names that follow words such as `struct` in a macro's arguments.
fn defined_in_macro(arguments: TokenStream) -> Vec<String> {
    const WORDS: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
    let idents: Vec<_> = arguments.into_iter().collect();
    let pairs = idents.windows(2);
    let defined = pairs.filter_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if WORDS.contains(&&*word.to_string()) => {
            Some(name.to_string())
        }
        _ => None,
    });
    defined.collect()
}

/// Follows one path through modules, imports and re-exports.
struct Resolver<'a> {
    tree: &'a Tree,
    /// Paths that were tried, since imports may form circles.
    seen: HashSet<(ModuleId, Vec<String>)>,
    found: BTreeSet<Target>,
}

impl Resolver<'_> {
    /// Follows `names` as written in `from`.
    fn path(&mut self, from: ModuleId, names: &[String]) {
        match names.first().map(String::as_str) {
            Some("crate") => self.below(ROOT, &names[1..]),
            Some("self") => self.below(from, &names[1..]),
            Some("super") => {
                let mut module = from;
                let mut rest = names;
                while let (Some("super"), Some(parent)) =
                    (rest.first().map(String::as_str), self.tree.modules[module].parent)
                {
                    (module, rest) = (parent, &rest[1..]);
                }
                self.below(module, rest);
            }
            Some(_) => self.below(from, names),
            None => {}
        }
    }

    /// Follows `names` from inside `module`.
    fn below(&mut self, module: ModuleId, names: &[String]) {
        let [name, rest @ ..] = names else {
            self.found.insert(Target::Module(module));
            return;
        };
        if !self.seen.insert((module, names.to_vec())) {
            return;
        }
        let tree = self.tree;
        let Module { children, items, imports, .. } = &tree.modules[module];
        if let Some(child) = children.get(name) {
            self.below(*child, rest);
        }
        if items.contains(name) {
            self.found.insert(Target::ItemOf(module));
        }
        for import in imports.get(name).into_iter().flatten() {
            self.import(module, import, rest);
        }
        if !children.contains_key(name) && !items.contains(name) && !imports.contains_key(name) {
            self.through_globs(module, names);
        }
    }

    fn through_globs(&mut self, module: ModuleId, names: &[String]) {
        let tree = self.tree;
        let Module { children, items, imports, globs, .. } = &tree.modules[module];
        let Some(name) = names.first() else { return };
        if children.contains_key(name) || items.contains(name) || imports.contains_key(name) {
            return;
        }
        for glob in globs {
            self.import(module, glob, names);
        }
    }

    /// Follows an import of `module`, then `rest` below its target.
    fn import(&mut self, module: ModuleId, import: &[String], rest: &[String]) {
        let mut resolver = Resolver { tree: self.tree, seen: self.seen.clone(), found: BTreeSet::new() };
        // `use name::x` for a crate `name` does not lead back to the import itself.
        if import.first().is_none_or(|first| !is_keyword(first)) {
            let key = (module, import.to_vec());
            if resolver.seen.contains(&key) {
                return;
            }
        }
        resolver.path(module, import);
        self.seen.extend(resolver.seen);
        for target in resolver.found {
            match target {
                Target::Module(id) => self.below(id, rest),
                Target::ItemOf(_) => {
                    self.found.insert(target);
                }
            }
        }
    }
}

fn is_keyword(name: &str) -> bool {
    ["crate", "self", "super"].contains(&name)
}
