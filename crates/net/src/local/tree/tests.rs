//! A local tree, with links that try to lead out of it.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

/// A tree next to a directory that must not change.
struct Place {
    directory: tempfile::TempDir,
    tree: LocalTree,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["tree", "outside"] {
            std::fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        std::fs::write(directory.path().join("outside/secret"), "secret").expect("a file");
        let tree = LocalTree::open(&directory.path().join("tree")).expect("a tree");
        Self { directory, tree }
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.directory.path().join("tree").join(name)
    }

    /// Checks that nothing outside changed.
    #[track_caller]
    fn check_outside(&self) {
        let outside = self.directory.path().join("outside");
        assert_eq!(std::fs::read_dir(&outside).expect("a directory").count(), 1);
        let secret = outside.join("secret");
        assert_eq!(std::fs::read_to_string(&secret).expect("a file"), "secret");
        assert_eq!(std::fs::metadata(&secret).expect("a file").permissions().mode() & 0o7777, 0o644);
    }
}

fn path(text: &str) -> TreePath {
    text.split('/').fold(TreePath::root(), |path, name| path.join(name.as_bytes()).expect("a name"))
}

fn write(tree: &LocalTree, name: &str, content: &str) {
    let file = tree.create_file(&path(name), 0o644).expect("a file");
    std::fs::File::from(file).write_all(content.as_bytes()).expect("bytes");
}

/// Runs a test with both ways of resolving paths.
fn both(test: impl Fn(Place)) {
    test(Place::new());
    let place = Place::new();
    place.tree.has_openat2.store(false, Relaxed);
    test(place);
}

#[test]
fn files_directories_and_links_are_made_and_read() {
    both(|place| {
        let tree = &place.tree;
        assert_eq!(tree.make_directory(&path("d"), 0o755), Ok(true));
        assert_eq!(tree.make_directory(&path("d"), 0o755), Ok(false));
        write(tree, "d/f", "content");
        tree.make_link(&path("d/l"), b"../anywhere").expect("a link");
        tree.make_hard_link(&path("d/f"), &path("g")).expect("a link");
        tree.make_special(&path("d/p"), FileKind::Fifo, 0o600, (0, 0)).expect("a pipe");
        let mut names: Vec<_> = tree
            .list(&path("d"))
            .expect("a list")
            .into_iter()
            .map(|(name, attributes)| {
                (String::from_utf8(name).expect("text"), attributes.kind, attributes.nlink)
            })
            .collect();
        names.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            names,
            [
                ("f".into(), FileKind::Regular, 2),
                ("l".into(), FileKind::Symlink, 1),
                ("p".into(), FileKind::Fifo, 1)
            ]
        );
        assert_eq!(tree.read_link(&path("d/l")), Ok(b"../anywhere".to_vec()));
        let mut content = String::new();
        let file = tree.open_file(&path("g")).expect("a file");
        std::fs::File::from(file).read_to_string(&mut content).expect("text");
        assert_eq!(content, "content");
        assert_eq!(tree.attributes(&path("g")).expect("attributes").size, 7);
        assert_eq!(tree.attributes(&TreePath::root()).expect("attributes").kind, FileKind::Directory);
        tree.remove(&path("d/f"), false).expect("a removal");
        assert_eq!(tree.remove(&path("d"), true).expect_err("not empty").errno, Errno::NOTEMPTY);
    });
}

#[test]
fn a_link_to_a_directory_leads_nowhere() {
    both(|place| {
        symlink("../outside", place.inside("way")).expect("a link");
        symlink(place.directory.path().join("outside"), place.inside("absolute")).expect("a link");
        let tree = &place.tree;
        for way in ["way", "absolute"] {
            let new = path(&format!("{way}/new"));
            let secret = path(&format!("{way}/secret"));
            assert!(tree.create_file(&new, 0o644).is_err());
            assert!(tree.make_directory(&new, 0o755).is_err());
            assert!(tree.make_link(&new, b"x").is_err());
            assert!(tree.make_special(&new, FileKind::Fifo, 0o600, (0, 0)).is_err());
            assert!(tree.make_hard_link(&secret, &path("stolen")).is_err());
            assert!(tree.remove(&secret, false).is_err());
            assert!(tree.open_file(&secret).is_err());
            assert!(tree.attributes(&secret).is_err());
            assert!(tree.list(&path(way)).is_err());
            let mode = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
            assert!(tree.set_attributes(&secret, &mode).is_err());
            assert_eq!(tree.make_directory(&path(way), 0o755).expect_err("a link").errno, Errno::EXIST);
        }
        place.check_outside();
    });
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced() {
    both(|place| {
        symlink("../outside/secret", place.inside("f")).expect("a link");
        assert!(place.tree.open_file(&path("f")).is_err());
        write(&place.tree, "f", "new");
        let found = std::fs::symlink_metadata(place.inside("f")).expect("a file");
        assert!(found.is_file() && found.len() == 3);
        place.check_outside();
    });
}

#[test]
fn attributes_of_a_link_are_its_own() {
    let place = Place::new();
    symlink("../outside/secret", place.inside("l")).expect("a link");
    let new = NewAttributes {
        mode: Some(0o777),
        uid: Some(std::fs::symlink_metadata(place.inside("l")).expect("a link").uid()),
        mtime: Some(Timestamp { seconds: 1, nanoseconds: 2 }),
        ..NewAttributes::default()
    };
    place.tree.set_attributes(&path("l"), &new).expect("attributes");
    assert_eq!(
        place.tree.attributes(&path("l")).expect("a link").mtime,
        Timestamp { seconds: 1, nanoseconds: 2 }
    );
    place.check_outside();
    assert_ne!(std::fs::metadata(place.directory.path().join("outside/secret")).expect("a file").mtime(), 1);
}

#[test]
fn modes_and_times_are_set() {
    let place = Place::new();
    write(&place.tree, "f", "x");
    let (atime, mtime) =
        (Timestamp { seconds: -5, nanoseconds: 6 }, Timestamp { seconds: 7, nanoseconds: 8 });
    let new = NewAttributes {
        mode: Some(0o2751),
        atime: Some(atime),
        mtime: Some(mtime),
        ..NewAttributes::default()
    };
    for name in ["f", ""] {
        let path = if name.is_empty() { TreePath::root() } else { path(name) };
        place.tree.set_attributes(&path, &new).expect("attributes");
        let found = place.tree.attributes(&path).expect("attributes");
        assert_eq!((found.mode, found.atime, found.mtime), (0o2751, atime, mtime), "`{name}`");
    }
}

#[test]
fn an_existing_file_is_emptied_and_other_kinds_are_refused() {
    let place = Place::new();
    write(&place.tree, "f", "long content");
    write(&place.tree, "f", "new");
    assert_eq!(std::fs::read_to_string(place.inside("f")).expect("a file"), "new");
    place.tree.make_directory(&path("d"), 0o755).expect("a directory");
    assert_eq!(place.tree.create_file(&path("d"), 0o644).expect_err("a directory").errno, Errno::ISDIR);
    place.tree.make_special(&path("p"), FileKind::Fifo, 0o600, (0, 0)).expect("a pipe");
    // Nothing reads from the pipe; opening it must not wait.
    assert!(place.tree.create_file(&path("p"), 0o644).is_err());
    assert_eq!(place.tree.open_file(&path("p")).expect_err("a pipe").errno, Errno::INVAL);
}

#[test]
fn ranges_of_data_are_found() {
    let place = Place::new();
    let file = place.tree.create_file(&path("f"), 0o644).expect("a file");
    rustix::fs::ftruncate(&file, 10 << 20).expect("a length");
    rustix::io::pwrite(&file, &[1; 4096], 4 << 20).expect("bytes");
    let (begins, ends) = next_data(&file, 0).expect("a range").expect("data");
    // A file system may round, or have no holes.
    assert!(begins <= 4 << 20 && ends >= (4 << 20) + 4096, "{begins}..{ends}");
    let after = next_data(&file, (4 << 20) + (1 << 20)).expect("a range");
    assert!(after.is_none() || ends == 10 << 20, "{after:?}");
}

#[test]
fn errors_name_the_operation_and_the_path() {
    let place = Place::new();
    let error = place.tree.open_file(&path("a b")).expect_err("a missing file");
    let shown = error.to_string();
    assert!(
        shown.starts_with("cannot open /") && shown.ends_with("/tree/a b: No such file or directory"),
        "{shown}"
    );
}
