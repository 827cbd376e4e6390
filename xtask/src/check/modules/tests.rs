use std::fs;

use super::*;

/// Findings of `rules` on a crate `server` of these files.
fn findings_of(rules: &Rules, sources: &[(&str, &str)]) -> Findings {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in sources {
        let path = root.path().join("crates/server/src").join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("the module's directory");
        fs::write(path, text).expect("the module's file");
    }
    rules.check(root.path()).expect("a readable crate")
}

const CIRCLES: Rules = Rules {
    without_circles: &["server"],
    own_items: &[],
    independent: &[],
    order: &[],
    allowed_for_now: &[],
};

fn errors_of(sources: &[(&str, &str)]) -> Vec<String> {
    findings_of(&CIRCLES, sources).errors
}

#[test]
fn this_workspace_follows_the_rules() {
    let findings = check(&workspace_root()).expect("a readable workspace");
    assert_eq!(findings.errors, Vec::<String>::new());
}

#[test]
fn names_the_import_that_closes_a_circle() {
    let lib = ("lib.rs", "mod a;\nmod b;\n");
    let upper = ("b.rs", "use crate::a::{A, Z};\npub struct B;\nfn f() { crate::a::f(); }\n");
    let one_way = [lib, ("a.rs", "pub struct A;"), upper];
    assert_eq!(errors_of(&one_way), [""; 0]);
    let circle = [lib, ("a.rs", "pub struct A;\n\nuse crate::b::B;\n"), upper];
    assert_eq!(
        errors_of(&circle),
        ["crates/server/src/a.rs:3: module `a` imports `b`, but `b` imports `a` (crates/server/src/b.rs:1)"]
    );
}

#[test]
fn finds_a_long_circle_below_the_root() {
    let sources = [
        ("lib.rs", "mod files;"),
        ("files/mod.rs", "mod a; mod b { use super::c::C; pub struct B; } mod c;"),
        ("files/a.rs", "fn f(_: super::b::B) {}\npub struct A;\n"),
        ("files/c/mod.rs", "mod deep;\npub struct C;\n"),
        ("files/c/deep.rs", "fn f() {\n    use super::super::a;\n    a::f(a::A);\n}\n"),
    ];
    let errors = errors_of(&sources);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("crates/server/src/files/"), "{errors:?}");
    for step in ["`a` imports `b`", "`b` imports `c`", "`c` imports `a`"] {
        assert!(errors[0].contains(step), "{errors:?}");
    }
}

#[test]
fn counts_a_reexport_for_the_module_that_defines_it() {
    let lib = "mod a;\nmod b;\npub use b::inner::B;\npub(crate) use b::*;\n";
    let upper = "mod other; pub use other::Other; pub mod inner { pub struct B; fn f(_: crate::a::A) {} }";
    let error = |line| {
        format!(
            "crates/server/src/a.rs:{line}: module `a` imports `b`, but `b` imports `a` (crates/server/src/b.rs:1)"
        )
    };
    for (line, import) in [
        (1, "use super::B;"),
        (1, "use crate::{B as Renamed};"),
        (1, "use super::Other;"),
        (1, "use super::*;\nfn f(_: Other) {}"),
        (2, "\nfn f() { crate::B::new(); }"),
        (2, "use super as root;\nfn f() -> root::B { todo!() }"),
        (2, "\nfn f() { println!(\"{}\", crate::Other); }"),
    ] {
        let a = format!("{import}\npub struct A;");
        let sources = [("lib.rs", lib), ("a.rs", &a), ("b.rs", upper), ("b/other.rs", "pub struct Other;")];
        let errors = errors_of(&sources);
        assert!(errors.len() == 1, "{import}: {errors:?}");
        if !import.contains("use super::*") {
            assert_eq!(errors, [error(line)], "{import}");
        }
    }
}

#[test]
fn ignores_tests_comments_strings_and_other_crates() {
    let sources = [
        ("lib.rs", "mod a; mod b; mod bytes;"),
        (
            "a.rs",
            "//! [`crate::b::B`]\nuse bytes::Bytes; // super::b\n#[cfg(test)]\nuse super::b::{B};\n\
             #[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inline { use crate::b::B; }\n\
             pub struct A { #[cfg(test)] b: crate::b::B, c: u8 }\nconst S: &str = \"super::b::B\";\n\
             impl A { #[cfg(test)] fn f() { crate::b::f(); } }\n\
             /// For tests.\n#[cfg(test)]\nfn last() { crate::b::f(); }\n",
        ),
        ("a/tests.rs", "use crate::b::B;"),
        ("b.rs", "use super::a::A; pub struct B;"),
        ("bytes.rs", "use super::a::A;"),
    ];
    assert_eq!(errors_of(&sources), [""; 0]);
}

#[test]
fn listed_circle_warns_until_it_grows() {
    let rules = Rules { allowed_for_now: &[Circle { parent: "server", children: &["a", "b"] }], ..CIRCLES };
    let lib = ("lib.rs", "mod a; mod b; mod c;");
    let (a, c) = (("a.rs", "use crate::b::B; pub struct A;"), ("c.rs", "pub struct C;"));
    let findings = findings_of(&rules, &[lib, a, ("b.rs", "use crate::a::A; pub struct B;"), c]);
    assert_eq!((findings.errors.len(), findings.warnings.len()), (0, 1), "{findings:?}");
    let sources =
        [lib, a, ("b.rs", "use crate::c::C; pub struct B;"), ("c.rs", "use crate::a::A; pub struct C;")];
    assert_eq!(findings_of(&rules, &sources).errors.len(), 1);
    let findings = findings_of(&rules, &[lib, a, ("b.rs", "pub struct B;"), c]);
    assert_eq!(findings.warnings, ["server: remove a, b from NOT_YET"]);
}

#[test]
fn reports_a_child_that_imports_items_of_a_parent_that_imports_children() {
    let rules = Rules { own_items: &["server::state"], ..CIRCLES };
    let sources = |parent| {
        [
            ("lib.rs", "mod state;"),
            ("state/mod.rs", parent),
            ("state/a.rs", "use super::State;"),
            ("state/b.rs", "pub struct B;"),
        ]
    };
    let bad = sources("mod a;\nmod b;\npub struct State(b::B);");
    assert_eq!(
        findings_of(&rules, &bad).errors,
        [
            "crates/server/src/state/a.rs:1: module `a` imports `server::state`, but `server::state` itself imports its \
          child `b` (crates/server/src/state/mod.rs:3)"
        ]
    );
    assert_eq!(
        findings_of(&rules, &sources("mod a;\nmod b;\npub use b::B;\npub struct State;")).errors,
        [""; 0]
    );
    assert_eq!(
        findings_of(&rules, &sources("mod a;\nmod b;\npub use b::B as State;\nuse b::B;")).errors,
        [""; 0]
    );
}

#[test]
fn independent_modules_never_import_each_other() {
    let rules = Rules { independent: &["server::programs"], ..CIRCLES };
    let sources = [(
        "lib.rs",
        "mod programs { mod a { pub struct A; } mod b { use super::Reply; use super::a::A; } struct Reply; }",
    )];
    assert_eq!(
        findings_of(&rules, &sources).errors,
        [
            "crates/server/src/lib.rs:1: module `b` imports `a`, but the modules of `server::programs` never import each \
          other"
        ]
    );
}

#[test]
fn reports_an_import_against_the_order() {
    let rules = Rules { order: &[Order { parent: "server", children: &["low", "high", "gone"] }], ..CIRCLES };
    let sources = [
        ("lib.rs", "mod low; mod high; mod new;"),
        ("low.rs", "use crate::high::High;"),
        ("high.rs", "pub struct High;"),
        ("new.rs", ""),
    ];
    assert_eq!(
        findings_of(&rules, &sources).errors,
        [
            "module `server::new` has no place in the order of `server` (xtask/src/check/modules.rs)",
            "the order of `server` names `gone`, which does not exist (xtask/src/check/modules.rs)",
            "crates/server/src/low.rs:1: module `low` imports `high`, but `high` is above it in the order of \
             `server`",
        ]
    );
}
