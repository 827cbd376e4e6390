//! Finds the paths in a Rust source, the names among them that a layer may not use, and the length of functions.
//!
//! Works on tokens, so that comments and strings do not count and `use` groups hide nothing. Skips code that is compiled
//! for tests only.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// A forbidden name and the reason.
#[derive(Debug)]
pub(super) struct Forbidden {
    kind: Kind,
    name: &'static str,
    why: &'static str,
    /// A path that is allowed although the rule matches.
    except: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// The start of a path of more than one name, or of an import.
    Root,
    /// Any part of a path.
    Anywhere,
    /// The start of an identifier.
    Prefix,
    /// A whole identifier or keyword.
    Word,
    /// An identifier that is renamed with `as`.
    Renamed,
}

impl Forbidden {
    const fn new(kind: Kind, name: &'static str, why: &'static str) -> Self {
        Self { kind, name, why, except: None }
    }

    /// Allows this path and those below it.
    pub(super) const fn except(self, path: &'static str) -> Self {
        Self { except: Some(path), ..self }
    }

    /// Forbids a crate or module: `root("std::fs")` finds `std::fs::File` and `use std::{fs}`.
    pub(super) const fn root(name: &'static str, why: &'static str) -> Self {
        Self::new(Kind::Root, name, why)
    }

    /// Forbids the end of any path: `anywhere("Instant::now")` finds `std::time::Instant::now`.
    pub(super) const fn anywhere(name: &'static str, why: &'static str) -> Self {
        Self::new(Kind::Anywhere, name, why)
    }

    /// Forbids identifiers with this prefix.
    pub(super) const fn prefix(name: &'static str, why: &'static str) -> Self {
        Self::new(Kind::Prefix, name, why)
    }

    /// Forbids one identifier or keyword.
    pub(super) const fn word(name: &'static str, why: &'static str) -> Self {
        Self::new(Kind::Word, name, why)
    }

    /// Forbids `use … name as other`.
    pub(super) const fn renamed(name: &'static str, why: &'static str) -> Self {
        Self::new(Kind::Renamed, name, why)
    }

    fn matches(&self, path: &Path) -> bool {
        let wanted: Vec<&str> = self.name.split("::").collect();
        let names: Vec<&str> = path.names.iter().map(String::as_str).collect();
        let except: Vec<&str> = self.except.iter().flat_map(|path| path.split("::")).collect();
        if !except.is_empty() && names.starts_with(&except) {
            return false;
        }
        let mut words = names.iter().copied().chain(path.alias.as_deref());
        match self.kind {
            Kind::Root => names.starts_with(&wanted) && (path.imported || names.len() > 1),
            Kind::Anywhere => names.windows(wanted.len()).any(|window| window == wanted),
            Kind::Prefix => words.any(|word| word.starts_with(self.name)),
            Kind::Word => words.any(|word| word == self.name),
            Kind::Renamed => path.alias.is_some() && names.last() == Some(&self.name),
        }
    }

    fn message(&self, path: &Path) -> String {
        let name = match self.kind {
            Kind::Prefix => {
                let mut words = path.names.iter().chain(&path.alias);
                words.find(|word| word.starts_with(self.name)).map_or(self.name, String::as_str)
            }
            _ => self.name,
        };
        format!("`{name}`: {}", self.why)
    }
}

/// The use of a forbidden name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) line: usize,
    pub(super) what: String,
}

/// The result of scanning a source file.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Uses of forbidden names, in source order.
    pub(super) forbidden: Vec<Violation>,
    /// Names `m` of `#[cfg(test)] mod m;`, whose files are only for tests.
    pub(super) test_modules: Vec<String>,
    /// Name, first line and number of lines of each function's body.
    pub(super) functions: Vec<(String, usize, usize)>,
}

/// Scans a source file; returns an error if it is not Rust.
pub(super) fn scan(text: &str, rules: &[&Forbidden]) -> Result<Scan, String> {
    let mut walk = Walk::default();
    walk.stream(parse(text)?, &[], false);
    for path in &walk.paths {
        for rule in rules.iter().filter(|rule| rule.matches(path)) {
            walk.scan.forbidden.push(Violation { line: path.line, what: rule.message(path) });
        }
    }
    Ok(walk.scan)
}

/// Returns the tokens of a source file, or an error if it is not Rust.
pub(super) fn parse(text: &str) -> Result<TokenStream, String> {
    text.parse().map_err(|error| format!("not Rust: {error}"))
}

/// Returns all paths in `stream` in source order, single names included.
pub(super) fn paths(stream: TokenStream) -> Vec<Path> {
    let mut walk = Walk::default();
    walk.stream(stream, &[], false);
    walk.paths
}

/// Returns `stream` without items, fields and statements below `#[cfg(test)]`.
pub(super) fn without_tests(stream: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = stream.into_iter().collect();
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(item) = test_item(&tokens, at) {
            at = item.end;
            // Its other attributes and its doc comment.
            while let [.., mark, attribute] = kept.as_slice()
                && is_punct(Some(mark), '#')
                && bracket(Some(attribute)).is_some()
            {
                kept.truncate(kept.len() - 2);
            }
            continue;
        }
        kept.push(match &tokens[at] {
            TokenTree::Group(group) => {
                let mut stripped = Group::new(group.delimiter(), without_tests(group.stream()));
                stripped.set_span(group.span());
                TokenTree::Group(stripped)
            }
            token => token.clone(),
        });
        at += 1;
    }
    kept.into_iter().collect()
}

/// A path as written, with the prefix of the `use` groups around it.
#[derive(Debug)]
pub(super) struct Path {
    pub(super) names: Vec<String>,
    pub(super) line: usize,
    /// Part of a `use` item.
    pub(super) imported: bool,
    /// `b` of `a as b`.
    pub(super) alias: Option<String>,
    /// Ends in `::*`.
    pub(super) glob: bool,
}

#[derive(Default)]
struct Walk {
    scan: Scan,
    paths: Vec<Path>,
}

impl Walk {
    /// Walks tokens below the `prefix` of a `use`, which is empty outside.
    fn stream(&mut self, stream: TokenStream, prefix: &[String], mut imported: bool) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(item) = test_item(&tokens, at) {
                self.scan.test_modules.extend(item.module_file);
                at = item.end;
                continue;
            }
            match &tokens[at] {
                TokenTree::Ident(word) if word == "use" => {
                    imported = true;
                    at += 1;
                }
                TokenTree::Ident(_) => {
                    self.function(&tokens, at);
                    at = self.path(&tokens, at, prefix, imported);
                }
                TokenTree::Group(group) => {
                    self.stream(group.stream(), prefix, imported);
                    at += 1;
                }
                TokenTree::Punct(punct) => {
                    if imported && !prefix.is_empty() && punct.as_char() == '*' {
                        let line = punct.span().start().line;
                        self.paths.push(Path {
                            names: prefix.to_vec(),
                            line,
                            imported,
                            alias: None,
                            glob: true,
                        });
                    }
                    imported &= punct.as_char() != ';' || !prefix.is_empty();
                    at += 1;
                }
                TokenTree::Literal(_) => at += 1,
            }
        }
    }

    /// Takes `a::b::c` or `a::b::{…}` from `at` on; returns where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, prefix: &[String], imported: bool) -> usize {
        let mut names = prefix.to_vec();
        let line = tokens[at].span().start().line;
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            names.push(ident.to_string());
            at += 1;
            if !(is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')) {
                break;
            }
            at += 2;
        }
        if let (Some(TokenTree::Group(group)), true) = (tokens.get(at), imported)
            && group.delimiter() == Delimiter::Brace
        {
            self.stream(group.stream(), &names, true);
            return at + 1;
        }
        let glob = imported && is_punct(tokens.get(at), '*');
        let alias = match (tokens.get(at), tokens.get(at + 1)) {
            (Some(TokenTree::Ident(word)), Some(TokenTree::Ident(alias))) if word == "as" => {
                Some(alias.to_string())
            }
            _ => None,
        };
        if imported && alias.is_some() {
            at += 2;
        }
        self.paths.push(Path { names, line, imported, alias, glob });
        at
    }

    /// Records the function whose `fn` is at `at`.
    fn function(&mut self, tokens: &[TokenTree], at: usize) {
        let (TokenTree::Ident(word), Some(TokenTree::Ident(name))) = (&tokens[at], tokens.get(at + 1)) else {
            return;
        };
        if word != "fn" {
            return;
        }
        for token in &tokens[at + 2..] {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ';' => return,
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                    let (first, last) = (body.span_open().start().line, body.span_close().end().line);
                    self.scan.functions.push((name.to_string(), first, last - first + 1));
                    return;
                }
                _ => {}
            }
        }
    }
}

/// An item below `#[cfg(test)]`.
struct TestItem {
    /// Index of the first token after it.
    end: usize,
    /// `m` of `mod m;`.
    module_file: Option<String>,
}

/// Returns the `#[cfg(test)]` item that starts at `at`, if one does.
fn test_item(tokens: &[TokenTree], at: usize) -> Option<TestItem> {
    if !is_punct(tokens.get(at), '#') || !is_cfg_test(bracket(tokens.get(at + 1))?) {
        return None;
    }
    let mut end = at + 2;
    while is_punct(tokens.get(end), '#') && bracket(tokens.get(end + 1)).is_some() {
        end += 2;
    }
    let is_item =
        matches!(tokens.get(end), Some(TokenTree::Ident(word)) if ITEM_WORDS.contains(&&*word.to_string()));
    let mut module_file = None;
    while let Some(token) = tokens.get(end) {
        end += 1;
        match token {
            TokenTree::Ident(word) if word == "mod" && is_punct(tokens.get(end + 1), ';') => {
                module_file = Some(tokens[end].to_string());
            }
            TokenTree::Group(group) if is_item && group.delimiter() == Delimiter::Brace => {
                // `use a::{b};`
                end += usize::from(is_punct(tokens.get(end), ';'));
                break;
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => break,
            TokenTree::Punct(punct) if punct.as_char() == ',' && !is_item => break,
            _ => {}
        }
    }
    Some(TestItem { end, module_file })
}

/// The first words of items; anything else after `#[cfg(test)]` is a field or a statement.
const ITEM_WORDS: &[&str] = &[
    "pub",
    "fn",
    "mod",
    "use",
    "struct",
    "enum",
    "impl",
    "const",
    "static",
    "trait",
    "type",
    "unsafe",
    "async",
    "extern",
    "macro_rules",
];

fn is_punct(token: Option<&TokenTree>, character: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == character)
}

fn bracket(token: Option<&TokenTree>) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => Some(group),
        _ => None,
    }
}

/// Returns true for `cfg(test)` and `cfg(all(test, …))`, but not for `cfg(not(test))` and `cfg(any(test, …))`.
fn is_cfg_test(attribute: &Group) -> bool {
    let words: Vec<String> = attribute
        .stream()
        .to_string()
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .map(String::from)
        .collect();
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    words.first().is_some_and(|word| word == "cfg") && has("test") && !has("not") && !has("any")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[Forbidden] = &[
        Forbidden::root("tokio", "no"),
        Forbidden::root("std::fs", "no"),
        Forbidden::anywhere("Instant::now", "no"),
        Forbidden::renamed("Instant", "no"),
        Forbidden::root("rand", "no"),
        Forbidden::root("std::thread", "no").except("std::thread::panicking"),
    ];

    /// Returns the lines of forbidden names in `text`.
    fn lines(text: &str) -> Vec<usize> {
        let rules: Vec<&Forbidden> = RULES.iter().collect();
        scan(text, &rules).expect("Rust").forbidden.iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn finds_paths_imports_and_groups() {
        assert_eq!(lines("fn f() { tokio::spawn(g()); }"), [1]);
        assert_eq!(lines("use tokio;"), [1]);
        assert_eq!(lines("use std::{\n    io,\n    fs::{self, File},\n};"), [3, 3]);
        assert_eq!(lines("use std::{io::Read, fs};"), [1]);
        assert_eq!(lines("fn f() {\n    let t = std::time::Instant::now();\n}"), [2]);
        assert_eq!(lines("use std::time::Instant as Clock;"), [1]);
        assert_eq!(lines("fn f() { select! { x = tokio::time::sleep(d) => {} } }"), [1]);
    }

    #[test]
    fn ignores_comments_strings_and_local_names() {
        assert_eq!(
            lines("// tokio::spawn\n/* std::fs */ /// Instant::now\nfn f() { \"tokio::spawn\"; }"),
            [0; 0]
        );
        assert_eq!(lines("fn f(rand: u64) -> u64 { rand + 1 }"), [0; 0]);
        assert_eq!(lines("use crate::tokio_free::thing; use std::time::Instant;"), [0; 0]);
        assert_eq!(lines("use crate::rand::Rand;"), [0; 0]);
    }

    #[test]
    fn allows_exceptions() {
        assert_eq!(lines("fn f() { std::thread::panicking(); }\nfn g() { std::thread::spawn(f); }"), [2]);
        assert_eq!(lines("use std::thread::{\n    panicking,\n    sleep};\nuse std::thread;"), [3, 4]);
    }

    #[test]
    fn skips_only_test_code() {
        assert_eq!(lines("#[cfg(test)]\nmod tests { use std::fs; }\nfn f() { tokio::spawn(g()); }"), [3]);
        assert_eq!(lines("#[cfg(test)]\nuse std::fs;\nuse tokio::net;"), [3]);
        assert_eq!(lines("#[cfg(all(test, unix))] fn f() { tokio::spawn(g()); }"), [0; 0]);
        assert_eq!(lines("#[cfg(not(test))] fn f() { tokio::spawn(g()); }"), [1]);
        assert_eq!(lines("#[cfg(any(test, feature = \"x\"))] fn f() { tokio::spawn(g()); }"), [1]);
        assert_eq!(lines("struct S { #[cfg(test)] a: std::fs::File, b: tokio::net::X }"), [1]);
    }

    #[test]
    fn returns_modules_that_are_only_for_tests() {
        let scan = scan("#[cfg(test)]\npub(crate) mod fixtures;\nmod real;", &[]).expect("Rust");
        assert_eq!(scan.test_modules, ["fixtures"]);
    }

    #[test]
    fn measures_functions() {
        let scan = scan("trait T { fn none(); }\nfn two()\nwhere\n    u8: Copy,\n{\n}\n", &[]).expect("Rust");
        assert_eq!(scan.functions, [("two".to_owned(), 5, 2)]);
    }

    #[test]
    fn rejects_invalid_source() {
        assert!(scan("fn f() { \"unclosed", &[]).is_err());
    }
}
