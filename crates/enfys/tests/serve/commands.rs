//! The client's commands against a server in memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use crate::proxy::Proxy;
use crate::server::{ENFYS, Server, TestDir};

/// A server with an empty export, and the URL of that.
struct Place {
    server: Server,
    /// The options of URLs.
    query: &'static str,
    _dir: TestDir,
}

/// Options that choose each way to the server that has rules of its own.
const WAYS: [&str; 5] =
    ["", "?version=3", "?version=2", "?version=3&proto=udp&rsize=32768&wsize=32768", "?version=2&proto=udp"];

impl Place {
    fn new() -> Self {
        Self::reached_by("")
    }

    /// Starts a server that commands reach by URLs with these options.
    fn reached_by(query: &'static str) -> Self {
        let dir = TestDir::new();
        let mut arguments = vec!["serve", "--memory", "--listen", "127.0.0.1:0", "--squash", "none"];
        if !query.is_empty() {
            // A call over UDP from this machine needs a port below 1024 otherwise.
            arguments.extend(["--versions", "2,3,4", "--udp", "--insecure"]);
        }
        let server = Server::start(&dir, &arguments);
        Self { server, query, _dir: dir }
    }

    /// Creates one whose server accepts relayed calls.
    fn insecure() -> Self {
        let dir = TestDir::new();
        let server = Server::start(
            &dir,
            &["serve", "--memory", "--listen", "127.0.0.1:0", "--squash", "none", "--insecure"],
        );
        Self { server, query: "", _dir: dir }
    }

    /// Returns the URL of a path below the export.
    fn url(&self, path: &str) -> String {
        format!("nfs://{}/export/{path}", self.server.address).trim_end_matches('/').to_owned()
    }

    /// Runs a command line in which `@` begins a path below the export.
    fn run(&self, line: &str) -> Output {
        let words = line.split_whitespace().map(|word| match word.strip_prefix('@') {
            Some(path) => format!("{}{}", self.url(path), self.query),
            None => word.to_owned(),
        });
        Command::new(ENFYS).args(words).env("TZ", "UTC").output().expect("the binary starts")
    }

    /// Runs a command that succeeds, and returns its output, with `@` for the URL of the export.
    #[track_caller]
    fn good(&self, line: &str) -> String {
        let output = self.run(line);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{line}: {:?} {stderr}", output.status);
        self.short(output.stdout)
    }

    /// Runs a command that fails, and returns its exit status and errors.
    #[track_caller]
    fn bad(&self, line: &str) -> (i32, String) {
        let output = self.run(line);
        let stderr = self.short(output.stderr);
        assert!(!output.status.success() && !stderr.is_empty(), "{line} succeeds: {stderr}");
        (output.status.code().expect("a status"), stderr)
    }

    fn short(&self, text: Vec<u8>) -> String {
        String::from_utf8(text)
            .expect("text")
            .replace(&format!("{}/", self.url("")), "@")
            .replace(&self.url(""), "@")
    }
}

#[test]
fn directories_are_made_listed_and_removed() {
    WAYS.into_iter().for_each(make_list_and_remove_directories);
}

fn make_list_and_remove_directories(way: &'static str) {
    let place = Place::reached_by(way);
    place.good("mkdir @a");
    place.good("mkdir -p @a/b/c @a/b/c @d");
    assert_eq!(place.good("mkdir -p -v @x/y"), "created directory @x/y\ncreated directory @x/y\n");
    assert_eq!(place.good("ls @"), "a\nd\nx\n");
    assert_eq!(place.good("ls -r @"), "x\nd\na\n");
    assert_eq!(place.good("ls -R @a"), "@a:\nb\n\n@a/b:\nc\n\n@a/b/c:\n");
    assert_eq!(place.good("ls -d @a @d"), "@a\n@d\n");
    assert_eq!(place.bad("mkdir @a"), (1, "enfys mkdir: cannot create directory @a: File exists\n".into()));
    assert_eq!(
        place.bad("mkdir @n/m"),
        (1, "enfys mkdir: cannot create directory @n/m: No such file or directory\n".into())
    );
    assert_eq!(place.bad("ls @none").0, 2);
    let (status, error) = place.bad("rm @a");
    assert_eq!((status, &*error), (1, "enfys rm: cannot remove @a: Is a directory (-r removes it)\n"));
    assert_eq!(place.bad("rm -d @a"), (1, "enfys rm: cannot remove @a: Directory not empty\n".into()));
    place.good("rm -r @a @d @x");
    assert_eq!(place.good("ls @"), "");
    assert_eq!(place.bad("rm @a"), (1, "enfys rm: cannot remove @a: No such file or directory\n".into()));
    place.good("rm -f @a");
    place.good("rm -rf @a");
    assert_eq!(place.bad("rm -rf @").0, 1, "the root of an export stays");
}

#[test]
fn trees_are_copied_read_found_and_removed() {
    for way in WAYS {
        let place = Place::reached_by(way);
        let dir = TestDir::new();
        let tree = dir.directory("tree");
        for number in 0..150 {
            let name = format!("{}/file {number}", if number % 3 == 0 { "a" } else { "a/b" });
            std::fs::create_dir_all(tree.join("a/b")).expect("directories");
            std::fs::write(tree.join(&name), vec![number; 300 * usize::from(number)]).expect("a file");
        }
        std::os::unix::fs::symlink("a/b", tree.join("link")).expect("a link");
        std::fs::write(tree.join("large"), vec![7; 1_000_003]).expect("a file");
        let (from, back) = (tree.display().to_string(), dir.path("back").display().to_string());
        place.good(&format!("cp -r {from} @up"));
        place.good(&format!("cp -r @up {back}"));
        place.good("cp -r @up @again");
        let same = |one: &str, other: &str| {
            let output = Command::new("diff").args(["-r", "--no-dereference", one, other]).output();
            let output = output.expect("diff");
            assert!(output.status.success(), "{way}: {}", String::from_utf8_lossy(&output.stdout));
        };
        same(&from, &back);
        assert!(place.run("cat @up/large").stdout == vec![7; 1_000_003], "{way}");
        assert_eq!(place.good("find @again -type f -name *7").lines().count(), 15, "{way}");
        assert_eq!(place.good("ls @again/a").lines().count(), 51, "{way}");
        assert_eq!(place.good("stat -c %N @up/link"), "'@up/link' -> 'a/b'\n", "{way}");
        place.good("mv @again/a/b @again/moved");
        place.good("ln @up/large @up/second");
        assert_eq!(place.good("stat -c %h:%s @up/second"), "2:1000003\n", "{way}");
        place.good(&format!("sync --delete {from} @again"));
        let last = dir.path("last").display().to_string();
        place.good(&format!("cp -r @again {last}"));
        same(&from, &last);
        place.good("rm -r @up @again");
        assert_eq!(place.good("ls @"), "", "{way}");
    }
}

#[test]
fn attributes_are_shown_and_changed() {
    WAYS.into_iter().for_each(show_and_change_attributes);
}

fn show_and_change_attributes(way: &'static str) {
    let place = Place::reached_by(way);
    place.good("touch -d 2023-11-14T22:13:20Z @f");
    place.good("mkdir -m 750 @d");
    assert_eq!(
        place.good("stat -c %a|%F|%s|%Y|%X|%h @f"),
        "644|regular empty file|0|1700000000|1700000000|1\n"
    );
    place.good("chmod u+x,go= @f");
    assert_eq!(place.good("stat -c %a|%A @f"), "700|-rwx------\n");
    place.good("chmod -x @f");
    place.good("touch -m -d 1970-01-01T00:00:07Z @f");
    assert_eq!(place.good("stat -c %a|%Y|%X @f @d").lines().next(), Some("600|7|1700000000"));
    let listed = place.good("ls -ln @");
    assert!(listed.starts_with("total ") && listed.contains("\ndrwxr-x--- 2 0 0 "), "{listed}");
    assert!(listed.ends_with(" Jan  1  1970 f\n") && listed.contains("\n-rw------- 1 0 0 "), "{listed}");
    place.good("chown 7:8 @f");
    assert_eq!(place.good("stat -c %u:%g @f"), "7:8\n");
    place.good("mkdir -p @t/u");
    place.good("touch @t/u/v");
    place.good("chmod -R 700 @t");
    place.good("chown -R :9 @t");
    assert_eq!(place.good("stat -c %a:%g @t @t/u @t/u/v"), "700:9\n700:9\n700:9\n");
    place.good("touch -c @missing");
    assert_eq!(place.bad("stat @missing").0, 1);
    assert!(place.bad("chmod u+q @f").1.contains("invalid mode `u+q`"));
    assert!(place.bad("chown no-such-user-of-enfys @f").1.contains("is not a user of this machine"));
}

#[test]
fn links_are_made_followed_and_renamed() {
    let place = Place::new();
    place.good("touch @f");
    place.good("ln @f @g");
    assert_eq!(place.good("stat -c %h @g"), "2\n");
    place.good("ln -s f @l");
    assert_eq!(place.good("stat -c %N @l"), "'@l' -> 'f'\n");
    assert_eq!(place.good("stat -L -c %F @l"), "regular empty file\n");
    assert!(place.good("ls -l @").contains("l -> f\n"));
    assert!(place.bad("ln -s x @l").1.contains("File exists"));
    place.good("ln -sf x @l");
    assert_eq!(place.good("stat -c %N @l"), "'@l' -> 'x'\n");
    place.good("mkdir @d");
    place.good("mv @g @d");
    place.good("mv @d/g @d/h");
    assert_eq!(place.good("mv -v @f @l @d"), "renamed @f -> @d/f\nrenamed @l -> @d/l\n");
    assert_eq!(place.good("ls @ @d"), "@:\nd\n\n@d:\nf\nh\nl\n");
    assert!(place.bad("mv @none @d").1.contains("cannot move @none: No such file or directory"));
    assert_eq!(place.bad("mv @d/f @d/h @none").0, 1);
    place.good("touch @z");
    place.good("mv -n @z @d/h");
    assert_eq!(place.good("ls @"), "d\nz\n");
}

#[test]
fn entries_are_found_printed_and_deleted() {
    let place = Place::new();
    place.good("mkdir -p @a/b/c @a/empty");
    place.good("touch @a/one.txt @a/b/two.txt @a/b/c/three.log");
    let found = |expression: &str| {
        let mut lines: Vec<_> = place.good(expression).lines().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(found("find @a -name *.txt"), ["@a/b/two.txt", "@a/one.txt"]);
    assert_eq!(found("find @a -type d -empty"), ["@a/empty"]);
    assert_eq!(found("find @a -maxdepth 1 -type d"), ["@a", "@a/b", "@a/empty"]);
    assert_eq!(found("find @a -mindepth 3"), ["@a/b/c/three.log"]);
    assert_eq!(found("find @a -name b -prune -o -type f -print"), ["@a/one.txt"]);
    assert_eq!(found("find @a -path */b/*.txt"), ["@a/b/two.txt"]);
    assert_eq!(place.good("find @a/b/c -print0"), "@a/b/c\0@a/b/c/three.log\0");
    assert_eq!(
        place.good("find @a/b/c?version=3&uid=0 -print0"),
        "@a/b/c?version=3&uid=0\0@a/b/c/three.log?version=3&uid=0\0",
        "other commands take what is printed"
    );
    assert_eq!(place.good("find @a/b/c -depth"), "@a/b/c/three.log\n@a/b/c\n");
    assert_eq!(found("find @a -name *.log -o -name one*"), ["@a/b/c/three.log", "@a/one.txt"]);
    assert_eq!(
        place.bad("find @a -nam x"),
        (1, "enfys find: unknown predicate `-nam`: did you mean `-name`?\n".into())
    );
    assert_eq!(place.bad("find @none").0, 1);
    let (status, error) = place.bad("find @a -name b -delete");
    assert_eq!((status, &*error), (1, "enfys find: cannot remove @a/b: Directory not empty\n"));
    place.good("find @a -delete");
    assert_eq!(place.good("ls @"), "");
}

#[test]
fn space_is_measured() {
    let place = Place::new();
    place.good("mkdir -p @a/b");
    place.good("touch @a/f");
    place.good("ln @a/f @a/b/g");
    let sums = place.good("du -a --apparent-size @a");
    let names: Vec<_> = sums.lines().map(|line| line.split('\t').nth(1).expect("a name")).collect();
    assert_eq!(names.last(), Some(&"@a"), "a directory comes after its entries");
    assert_eq!(names.len(), 3, "as coreutils show a file with two names once: {sums}");
    assert_eq!(place.good("du -s @a").lines().count(), 1);
    assert!(place.good("du -sc @a").ends_with("\ttotal\n"));
    let table = place.good("df -h @a");
    assert!(table.starts_with("Filesystem      Size") && table.contains("1.0G"), "{table}");
    assert!(table.ends_with(" /export/a\n"), "{table}");
}

#[test]
fn names_are_raw_bytes() {
    let place = Place::new();
    let url = place.url("%ff%0a%20x");
    let run = |arguments: &[&str]| Command::new(ENFYS).args(arguments).output().expect("the binary starts");
    assert!(run(&["mkdir", &url]).status.success());
    assert_eq!(run(&["ls", &place.url("")]).stdout, b"\xff\n x\n");
    let found = run(&["find", &place.url(""), "-mindepth", "1"]).stdout;
    let printed = OsStr::from_bytes(found.trim_ascii_end());
    assert!(
        run(&["rm", "-r", printed.to_str().expect("text")]).status.success(),
        "a printed URL is an argument"
    );
    assert_eq!(run(&["ls", &place.url("")]).stdout, b"");
}

#[test]
fn servers_and_urls_that_cannot_be_used_are_named() {
    let run = |arguments: &[&str]| {
        let output = Command::new(ENFYS).args(arguments).output().expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (status, error) = run(&["ls", "nfs://127.0.0.1:1/"]);
    assert_eq!(status, Some(2));
    assert!(error.starts_with("enfys ls: cannot connect to nfs://127.0.0.1:1/: "), "{error}");
    assert!(error.contains("Connection refused"), "{error}");
    let (status, error) = run(&["cat", "/etc/passwd"]);
    assert_eq!(status, Some(2));
    assert!(error.contains("expected nfs://HOST/PATH"), "{error}");
    let (_, error) = run(&["stat", "nfs://127.0.0.1/?sec=krb5"]);
    assert!(error.contains("Kerberos is not supported by this client yet"), "{error}");
    let (_, error) = run(&["ls", "nfs://no-such-host.invalid/"]);
    assert!(error.contains("no-such-host.invalid: no address"), "{error}");
}

/// Makes a tree with all kinds of objects, modes and times, and returns its path.
fn sample(dir: &TestDir) -> std::path::PathBuf {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    let root = dir.directory("sample");
    for name in ["deep/er/est", "empty", "many"] {
        fs::create_dir_all(root.join(name)).expect("a directory");
    }
    for number in 0..200_usize {
        fs::write(root.join(format!("many/{number}")), vec![number as u8; number * 17]).expect("a file");
    }
    let large: Vec<u8> = (0..5_000_001_u32).map(|number| (number % 253) as u8).collect();
    fs::write(root.join("deep/large"), large).expect("a file");
    fs::hard_link(root.join("deep/large"), root.join("deep/er/same")).expect("a link");
    fs::write(root.join(OsStr::from_bytes(b"deep/er/est/\xff\n")), "odd").expect("a file");
    symlink("../nowhere", root.join("deep/link")).expect("a link");
    let sparse = fs::File::create(root.join("sparse")).expect("a file");
    std::os::unix::fs::FileExt::write_at(&sparse, b"data", 6 << 20).expect("bytes");
    sparse.set_len(8 << 20).expect("a length");
    fs::set_permissions(root.join("many/7"), PermissionsExt::from_mode(0o4711)).expect("a mode");
    fs::set_permissions(root.join("empty"), PermissionsExt::from_mode(0o1750)).expect("a mode");
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_000_000);
    for name in ["many/8", "deep/er", "empty"] {
        fs::File::open(root.join(name)).expect("an object").set_modified(time).expect("a time");
    }
    root
}

/// Returns a line for each object below: path, kind, mode, links, size, content or target, and with `times` the modification time.
pub(crate) fn manifest(root: &std::path::Path, times: bool) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a directory") {
            let path = entry.expect("an entry").path();
            let found = std::fs::symlink_metadata(&path).expect("an object");
            let content = if found.is_dir() {
                folders.push(path.clone());
                String::new()
            } else if found.is_symlink() {
                std::fs::read_link(&path).expect("a link").display().to_string()
            } else {
                let content = std::fs::read(&path).expect("a file");
                format!(
                    "{} {:x}",
                    content.len(),
                    content.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
                )
            };
            let name =
                path.strip_prefix(root).expect("below").as_os_str().as_bytes().escape_ascii().to_string();
            let links = if found.is_dir() { 0 } else { found.nlink() };
            let time =
                if times { format!("{}.{}", found.mtime(), found.mtime_nsec()) } else { String::new() };
            lines.push(format!("{name} {:o} {links} {content} {time}", found.mode()));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_tree_goes_up_and_down_with_everything() {
    let place = Place::new();
    let dir = TestDir::new();
    let sample = sample(&dir);
    let run = |arguments: &[&str]| {
        let output = Command::new(ENFYS).args(arguments).output().expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    };
    let down = dir.path("down");
    run(&["cp", "-r", "-p", sample.to_str().expect("text"), &place.url("")]);
    run(&["cp", "-a", &place.url("sample"), down.to_str().expect("text")]);
    assert_eq!(manifest(&down, true), manifest(&sample, true));
    // A second run over the same target ends with the same tree.
    run(&["cp", "-a", "-T", &place.url("sample"), down.to_str().expect("text")]);
    assert_eq!(manifest(&down, true), manifest(&sample, true));
    let blocks = |path: &std::path::Path| {
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).expect("a file"))
    };
    assert!(blocks(&down.join("sparse")) <= blocks(&sample.join("sparse")) + 8, "holes stay holes");
    // From server to server, here the same one, into an existing directory.
    place.good("mkdir @copies");
    run(&["cp", "-a", &place.url("sample"), &place.url("copies")]);
    let second = dir.path("second");
    run(&["cp", "-a", &place.url("copies/sample"), second.to_str().expect("text")]);
    assert_eq!(manifest(&second, true), manifest(&sample, true));
    // To another server, by another version.
    let other = Place::new();
    run(&["cp", "-a", &place.url("sample"), &format!("{}?version=3", other.url(""))]);
    let third = dir.path("third");
    run(&["cp", "-a", &other.url("sample"), third.to_str().expect("text")]);
    assert_eq!(manifest(&third, true), manifest(&sample, true));
}

#[test]
fn files_are_copied_singly_and_errors_are_counted() {
    let place = Place::new();
    let dir = TestDir::new();
    let file = dir.file("file", "content").display().to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new(ENFYS).args(arguments).output().expect("the binary starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"), place.short(output.stderr))
    };
    assert_eq!(run(&["cp", &file, &place.url("")]), (Some(0), String::new(), String::new()));
    assert_eq!(run(&["cp", &file, &place.url("other")]).0, Some(0));
    assert_eq!(place.good("cat @file @other"), "contentcontent");
    std::fs::write(dir.path("file"), "new").expect("a file");
    assert_eq!(run(&["cp", &file, &place.url("file")]).0, Some(0));
    assert_eq!(place.good("cat @file"), "new");
    let (status, _, error) = run(&["cp", &place.url(""), &dir.path("x").display().to_string()]);
    assert_eq!((status, &*error), (Some(1), "enfys cp: @ is a directory and is left out (-r copies it)\n"));
    let (status, _, error) = run(&["cp", &place.url("none"), "."]);
    assert_eq!(status, Some(1));
    assert!(error.contains("No such file or directory (copying @none)"), "{error}");
    let (status, lines, _) = run(&["cp", "--json", &file, &place.url("none/below")]);
    assert_eq!(status, Some(1));
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.last().map(|line| (&line["errors"], &line["done"])), Some((&1.into(), &true.into())));
    place.good("mkdir @d");
    place.good("mkdir @d/file");
    let (status, _, error) = run(&["cp", &file, &place.url("d")]);
    assert_eq!(status, Some(1), "{error}");
}

#[test]
fn nothing_is_written_outside_of_the_target() {
    let place = Place::new();
    let dir = TestDir::new();
    place.good("mkdir -p @tree/sub");
    place.good("touch @tree/sub/file @tree/name");
    let target = dir.directory("target");
    let outside = dir.directory("outside");
    std::fs::write(outside.join("name"), "untouched").expect("a file");
    std::os::unix::fs::symlink("../outside", target.join("sub")).expect("a link");
    std::os::unix::fs::symlink("../outside/name", target.join("name")).expect("a link");
    let output = Command::new(ENFYS)
        .args(["cp", "-r", "-T", &place.url("tree")])
        .arg(&target)
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(1), "a link is in the place of a directory");
    assert_eq!(std::fs::read_dir(&outside).expect("a directory").count(), 1);
    assert_eq!(std::fs::read_to_string(outside.join("name")).expect("a file"), "untouched");
    assert!(
        std::fs::symlink_metadata(target.join("name")).expect("a file").is_file(),
        "the link was replaced"
    );
}

#[test]
fn a_target_becomes_like_its_source() {
    let place = Place::new();
    let dir = TestDir::new();
    let sample = sample(&dir);
    let target = dir.path("target");
    let run = |arguments: &[&str]| {
        let output = Command::new(ENFYS).args(arguments).output().expect("the binary starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    };
    let (source, url) = (sample.to_str().expect("text"), place.url("tree"));
    let sync = |more: &[&str]| run(&[&["sync", source, &url], more].concat());
    let back = || {
        run(&["sync", "--delete", &url, target.to_str().expect("text")]);
        manifest(&target, true)
    };
    sync(&[]);
    assert_eq!(back(), manifest(&sample, true));
    // A file of the same size and time is left out, unless contents are compared.
    let changed = sample.join("many/9");
    let time = std::fs::metadata(&changed).expect("a file").modified().expect("a time");
    std::fs::write(&changed, [1; 9 * 17]).expect("a file");
    std::fs::File::options().write(true).open(&changed).expect("a file").set_modified(time).expect("a time");
    sync(&[]);
    assert_ne!(back(), manifest(&sample, true));
    sync(&["--checksum"]);
    run(&["sync", "--checksum", &url, target.to_str().expect("text")]);
    assert_eq!(manifest(&target, true), manifest(&sample, true));
    // Only --delete removes objects that the source lacks, also where a kind has changed.
    std::fs::remove_dir_all(sample.join("empty")).expect("a directory");
    std::fs::write(sample.join("empty"), "now a file").expect("a file");
    std::fs::remove_file(sample.join("many/1")).expect("a file");
    sync(&["--delete"]);
    assert_eq!(back(), manifest(&sample, true));
}

/// Version 2 has times of microseconds, local file systems have nanoseconds.
#[test]
fn a_file_whose_time_differs_below_the_microsecond_is_left_out() {
    use std::os::unix::fs::MetadataExt;
    let dir = TestDir::new();
    let local = dir.directory("local");
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for (name, size) in [("small", 100), ("large", 3 << 20)] {
        std::fs::write(local.join(name), vec![1; size]).expect("a file");
        let file = std::fs::File::options().write(true).open(local.join(name)).expect("a file");
        file.set_modified(time).expect("a time");
    }
    let path = local.to_str().expect("text");
    for query in ["?version=2", "?version=3"] {
        let place = Place::reached_by(query);
        place.good(&format!("sync {path} @tree"));
        let changed = || place.good("stat -c %z @tree/small @tree/large");
        let before = changed();
        place.good(&format!("sync {path} @tree"));
        assert_eq!(changed(), before, "{query}");
        let times =
            || ["small", "large"].map(|name| local.join(name).metadata().expect("a file").ctime_nsec());
        let before = times();
        place.good(&format!("sync @tree {path}"));
        assert_eq!(times(), before, "{query}: back");
    }
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    use std::fs;
    let place = Place::new();
    let dir = TestDir::new();
    let file = dir.file("file", "content").display().to_string();
    let (other, link) = (dir.path("other").display().to_string(), dir.path("link").display().to_string());
    fs::hard_link(&file, &other).expect("a link");
    std::os::unix::fs::symlink("file", &link).expect("a link");
    let here = dir.path("").display().to_string();
    for target in [&file, &here, &other, &link] {
        let (status, error) = place.bad(&format!("cp {file} {target}"));
        assert!(status == 1 && error.ends_with(" are the same file\n"), "{target}: {error}");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "content");
    }
    place.good("mkdir @d");
    place.good(&format!("cp {file} @d/f"));
    place.good("ln @d/f @d/g");
    place.good("ln -s g @d/l");
    let port = place.server.address.port();
    // The host's other name leads to the same server.
    let alias = format!("nfs://localhost:{port}/export/d/f");
    for line in
        ["cp @d/f @d/f", "cp @d/f @d", "cp @d/f @d/g", "cp -r @d/l @d/l", "cp @d/f?version=3 @d/f?version=4"]
    {
        let (status, error) = place.bad(line);
        assert!(status == 1 && error.ends_with(" are the same file\n"), "{line}: {error}");
    }
    let (status, error) = place.bad(&format!("cp {alias} @d/f"));
    assert!(status == 1 && error.ends_with(" are the same file\n"), "{error}");
    assert_eq!(place.good("cat @d/f @d/g"), "contentcontent");
    assert_eq!(place.good("stat -c %N @d/l"), "'@d/l' -> 'g'\n");
}

/// Relays one connection after the other to a server. Calls `run` before it forwards a request that contains `name`.
fn relay(server: std::net::SocketAddr, name: &'static [u8], run: impl Fn() + Send + 'static) -> u16 {
    let on_request = move |request: &[u8]| {
        if request.windows(name.len()).any(|window| window == name) {
            run();
        }
    };
    edited(server, on_request, |_| {})
}

/// Relays one connection after the other to a server; the functions see the bytes of a read from either side before they are
/// forwarded, and `edit` may change them.
fn edited(
    server: std::net::SocketAddr,
    on_request: impl Fn(&[u8]) + Send + 'static,
    edit: impl Fn(&mut [u8]) + Clone + Send + 'static,
) -> u16 {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.expect("a connection");
            let mut upstream = TcpStream::connect(server).expect("the server accepts");
            let (mut replies, mut back) =
                (upstream.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
            let edit = edit.clone();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 20];
                // Either side may end first.
                while let Ok(length @ 1..) = replies.read(&mut bytes) {
                    edit(&mut bytes[..length]);
                    if back.write_all(&bytes[..length]).is_err() {
                        break;
                    }
                }
                let _ = back.shutdown(std::net::Shutdown::Write);
            });
            let mut bytes = vec![0; 1 << 20];
            while let Ok(length @ 1..) = client.read(&mut bytes) {
                on_request(&bytes[..length]);
                if upstream.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
            // The other side may have closed.
            let _ = upstream.shutdown(std::net::Shutdown::Write);
        }
    });
    port
}

/// Replaces all occurrences of a name.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    while let Some(at) = bytes.windows(from.len()).position(|window| window == from) {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
}

#[test]
fn names_of_a_lying_server_lead_nowhere() {
    let place = Place::insecure();
    place.good("mkdir -p @tree/QQ @tree/a_b");
    place.good("touch @tree/QQ/inner @tree/a_b/inner @tree/good");
    // The relay has one connection. Version 3 needs two; the client's `nfs3/lying.rs` has such names.
    for version in ["4.0", "4.2"] {
        for (from, to, status, names) in [
            (&b"QQ"[..], &b".."[..], 0, &["a_b", "good"][..]),
            (b"a_b", b"a/b", 1, &[]),
            (b"a_b", b"a\0b", 1, &[]),
        ] {
            let dir = TestDir::new();
            let (outer, target) = (dir.directory("outer"), dir.directory("outer/target"));
            let port = edited(place.server.address, |_| {}, move |reply| replace(reply, from, to));
            let output = Command::new(ENFYS)
                .args(["cp", "-r", "-T", &format!("nfs://127.0.0.1:{port}/export/tree?version={version}")])
                .arg(&target)
                .output()
                .expect("the binary starts");
            let error = String::from_utf8(output.stderr).expect("text");
            assert_eq!(output.status.code(), Some(status), "{version} {error}");
            assert_eq!(error.contains("an entry whose name is not allowed"), status == 1, "{error}");
            let list = |path: &std::path::Path| {
                let entries = std::fs::read_dir(path).expect("a directory");
                let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
                names.sort();
                names
            };
            assert_eq!(list(&target), names, "{version}");
            assert_eq!(list(&outer), ["target"], "{version}");
        }
    }
}

#[test]
fn a_link_that_is_planted_during_a_copy_is_not_followed() {
    let place = Place::insecure();
    place.good("mkdir -p @tree/sub");
    place.good("touch @tree/sub/planted");
    let dir = TestDir::new();
    let (target, outside) = (dir.directory("target"), dir.directory("outside"));
    let (sub, moved, away) = (target.join("sub"), target.join("moved"), outside.clone());
    // The directory exists when the file is read.
    let port = relay(place.server.address, b"planted", move || {
        if std::fs::rename(&sub, &moved).is_ok() {
            std::os::unix::fs::symlink(&away, &sub).expect("a link");
        }
    });
    let output = Command::new(ENFYS)
        .args(["cp", "-r", "-T", &format!("nfs://127.0.0.1:{port}/export/tree")])
        .arg(&target)
        .output()
        .expect("the binary starts");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("/target/sub/planted: Not a directory"), "{error}");
    assert_eq!(std::fs::read_dir(&outside).expect("a directory").count(), 0);
    assert_eq!(std::fs::read_dir(target.join("moved")).expect("a directory").count(), 0);
}

#[test]
fn a_source_that_becomes_shorter_is_an_error() {
    use std::fs::File;
    let dir = TestDir::new();
    let server = Server::start(
        &dir,
        &["serve", "--memory", "--listen", "127.0.0.1:0", "--squash", "none", "--insecure"],
    );
    let tree = dir.directory("tree");
    let path = tree.join("shrinking");
    for is_hole in [false, true] {
        let file = File::create(&path).expect("a file");
        let length = 3 << 20;
        if is_hole {
            file.set_len(length).expect("a length");
        } else {
            std::fs::write(&path, vec![7; length as usize]).expect("a file");
        }
        let shrinking = path.clone();
        // The copy knows the size before it creates the target.
        let port = relay(server.address, b"shrinking", move || {
            File::options().write(true).open(&shrinking).expect("a file").set_len(100).expect("a length");
        });
        let output = Command::new(ENFYS)
            .args(["cp", "-r", "-T"])
            .arg(&tree)
            .arg(format!("nfs://127.0.0.1:{port}/export/{is_hole}"))
            .output()
            .expect("the binary starts");
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(
            error.contains("shrinking has become shorter than its 3145728 bytes while it was copied"),
            "{error}"
        );
    }
}

#[test]
fn find_deletes_no_pruned_entries_and_all_empty_directories() {
    let place = Place::new();
    place.good("mkdir -p @a/kept @a/b/c/d @a/b/e");
    place.good("touch @a/kept/file @a/b/e/file");
    let (status, error) = place.bad("find @a -name kept -prune -o -type f -delete");
    assert!(status == 1 && error.contains("`-prune` does nothing"), "{error}");
    assert_eq!(place.good("ls @a/kept @a/b/e"), "@a/kept:\nfile\n\n@a/b/e:\nfile\n");
    place.good("find @a -type d -empty -delete");
    assert_eq!(
        place.good("ls @a/b"),
        "e\n",
        "a directory without other than empty directories is empty in the end"
    );
    place.good("find @a/b -depth -name none -prune -o -name file -delete -o -type d -empty -delete");
    assert_eq!(place.good("ls @a"), "kept\n");
}

#[test]
fn a_tree_is_not_copied_into_itself() {
    use std::fs;
    let place = Place::new();
    let dir = TestDir::new();
    let here = dir.directory("d");
    fs::write(here.join("file"), "content").expect("a file");
    fs::create_dir(here.join("sub")).expect("a directory");
    fs::write(here.join("sub/inner"), "content").expect("a file");
    let here = here.display();
    place.good(&format!("cp -r -T {here} @d"));
    let itself = "cannot copy a directory into itself";
    for line in [
        format!("cp -r {here} {here}/e"),
        format!("cp -r {here} {here}"),
        format!("sync {here} {here}/sub"),
        "cp -r @d @d/e".into(),
        "cp -r @d @d/sub".into(),
        "sync --delete @d @d/sub".into(),
    ] {
        let (status, error) = place.bad(&line);
        assert!(status == 1 && error.contains(itself), "{line}: {error}");
    }
    for line in [format!("sync --delete {here}/sub {here}"), "sync --delete @d/sub @d".into()] {
        let (status, error) = place.bad(&line);
        assert!(status == 1 && error.contains("contains the source"), "{line}: {error}");
    }
    assert_eq!(place.good("find @d -type f -path */d/*").lines().count(), 2);
    assert_eq!(manifest(&dir.path("d"), false).len(), 3, "nothing came and nothing went");
    // Under another name of the server, objects are compared, since paths differ.
    let alias = format!("nfs://localhost:{}/export/d", place.server.address.port());
    let (status, error) = place.bad(&format!("cp -r {alias} @d/e"));
    assert!(status == 1 && error.contains(itself), "{error}");
    assert_eq!(place.good("find @d/e -type f").lines().count(), 2);
    assert_eq!(place.good("find @d/e -name e"), "@d/e\n");
    let (status, error) = place.bad(&format!("sync --delete {alias}/sub @d"));
    assert!(status == 1 && error.contains("it is the source"), "{error}");
    assert_eq!(place.good("cat @d/sub/inner"), "content");
}

#[test]
fn mv_renames_nothing_if_it_cannot_know_the_target() {
    let place = Place::new();
    place.good("touch @a @f");
    assert_eq!(place.bad("mv -n -T @a @f/x").1, "enfys mv: cannot access @f/x: Not a directory\n");
    assert_eq!(place.good("ls @"), "a\nf\n");
}

#[test]
fn dots_in_urls_are_refused() {
    let place = Place::new();
    place.good("mkdir -p @a/b");
    for line in
        ["ls @a/.", "ls @a/../a", "rm -r @a/b/..", "cp -r @a/. /tmp/none", "find @.. -delete", "stat @%2e%2e"]
    {
        let (_, error) = place.bad(line);
        assert!(error.contains("a URL's path cannot contain `.` or `..`"), "{line}: {error}");
    }
    assert_eq!(place.good("find @a"), "@a\n@a/b\n");
}

#[test]
fn modes_and_times_are_kept_without_root() {
    let place = Place::new();
    place.good("mkdir @source");
    place.good("mkdir -m 777 @all");
    place.good("touch -d 2023-11-14T22:13:20Z @source/f");
    place.good("chown 7:8 @source/f");
    place.good("chmod 4755 @source/f");
    place.good("touch -d 2023-11-14T22:13:20Z @source");
    let shown = "755:1000:1700000000\n";
    place.good("cp -p @source/f @all/f?uid=1000&gid=1000");
    assert_eq!(place.good("stat -c %a:%u:%Y @all/f"), shown);
    for _ in 0..2 {
        place.good("sync @source @all/d?uid=1000&gid=1000");
        assert_eq!(place.good("stat -c %a:%u:%Y @all/d @all/d/f"), shown.repeat(2));
    }
    // The third run finds nothing to do.
    let changed = place.good("stat -c %z @all/d/f");
    place.good("sync @source @all/d?uid=1000&gid=1000");
    assert_eq!(place.good("stat -c %z @all/d/f"), changed);
}
/// Returns the last line of `cp --json`.
fn copied(place: &Place, line: &str) -> serde_json::Value {
    let output = place.good(line);
    serde_json::from_str(output.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn files_of_one_server_are_cloned_and_not_moved_over_the_network() {
    let place = Place::new();
    let dir = TestDir::new();
    std::fs::write(dir.path("file"), vec![7; 3 << 20]).expect("a file");
    let file = dir.path("file").to_str().expect("a path").to_owned();
    place.good(&format!("cp {file} @one"));
    let line = copied(&place, "cp --json @one @two");
    assert_eq!(
        (&line["cloned"], &line["server_copied"], &line["bytes"]),
        (&1.into(), &0.into(), &(3 << 20).into())
    );
    let line = copied(&place, "cp --json --reflink=never @one @three");
    assert_eq!((&line["cloned"], &line["server_copied"]), (&0.into(), &0.into()));
    place.good("cp --reflink @one @four");
    for name in ["two", "three", "four"] {
        assert!(place.run(&format!("cat @{name}")).stdout == vec![7; 3 << 20], "{name}");
    }
    let summary = place.good("cp -v @one @five");
    assert!(summary.ends_with("; the server cloned 1 and copied 0 of them\n"), "{summary}");
    // Version 3 has neither; nor are a file of this machine and one of the server of one server.
    let old = |name: &str| format!("{}?version=3", place.url(name));
    place.good(&format!("cp {} {}", old("one"), old("six")));
    assert!(place.run("cat @six").stdout == vec![7; 3 << 20]);
    let (_, error) = place.bad(&format!("cp --reflink=always {} {}", old("one"), old("seven")));
    assert!(error.contains("CLONE"), "{error}");
    let (_, error) = place.bad(&format!("cp --reflink=always {file} @seven"));
    assert!(error.contains("not of one server"), "{error}");
}

#[test]
fn a_server_that_cannot_clone_copies_and_keeps_holes() {
    use std::os::unix::fs::FileExt;
    let dir = TestDir::new();
    let exported = dir.directory("exported");
    let sparse = std::fs::File::create(exported.join("sparse")).expect("a file");
    sparse.write_all_at(&[1; 4096], 8 << 20).expect("data");
    sparse.set_len(16 << 20).expect("a size");
    let state = dir.path("state").display().to_string();
    let path = exported.to_str().expect("a path");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--state-dir", &state, "--squash", "none", path];
    let server = Server::start(&dir, &arguments);
    let place = Place { server, query: "", _dir: TestDir::new() };
    let line = copied(&place, "cp -p --json @sparse @copy");
    let by_server = line["cloned"].as_u64().unwrap_or(0) + line["server_copied"].as_u64().unwrap_or(0);
    assert_eq!(by_server, 1, "{line}");
    let down = dir.path("down");
    place.good(&format!("cp -p @sparse {}", down.to_str().expect("a path")));
    for copy in [exported.join("copy"), down] {
        use std::os::unix::fs::MetadataExt;
        assert!(
            std::fs::read(&copy).expect("a copy") == std::fs::read(exported.join("sparse")).expect("a file")
        );
        let used = std::fs::metadata(&copy).expect("a copy").blocks() * 512;
        assert!(used < 1 << 20, "{}: {used} bytes", copy.display());
    }
}

#[test]
fn a_terminal_shows_the_progress_of_a_copy() {
    const FILES: usize = 30;
    const BYTES: usize = 1 << 20;
    let place = Place::insecure();
    // The copy takes some redraws of the bar.
    let proxy = Proxy::start(place.server.address, &["--rate", "10MB/s"]);
    let local = TestDir::new();
    let tree = local.directory("tree");
    for number in 0..FILES {
        std::fs::write(tree.join(number.to_string()), vec![number as u8; BYTES]).unwrap();
    }
    // Everything that the command writes to its terminal.
    let terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let mut command = Command::new("python3");
    command
        .args(["-c", terminal, ENFYS, "cp", "-r"])
        .arg(&tree)
        .arg(format!("nfs://{}/export/copy", proxy.address));
    let output = command.env("COLUMNS", "120").stdin(std::process::Stdio::null()).output().expect("python3");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    // Files, bytes, rate and remaining time; the totals are known before the end.
    // The directory counts too.
    for part in
        [format!("/{} files", FILES + 1), "/30.00 MiB".to_owned(), "MiB/s".to_owned(), " left".to_owned()]
    {
        assert!(shown.contains(&part), "{part:?} in {shown:?}");
    }
    assert_eq!(place.good("find @copy -type f").lines().count(), FILES);
    // Without a terminal there is nothing.
    let silent = Command::new(ENFYS).args(["cp", "-r"]).arg(&tree).arg(place.url("again")).output().unwrap();
    assert!(silent.status.success() && silent.stderr.is_empty() && silent.stdout.is_empty());
}
