//! Files that version 2 cannot describe: the answers of each setting of `v2-large-files` and `v2-signed-sizes`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use protocol::nfs2::{self, DirOpArgs, Outcome, Proc, Stat};
use protocol::{mount, nfs3};
use xdr::{Decode, Encode, Opaque};

use super::wire::{Rest, Wire};
use crate::client::Client;
use crate::server::{Server, TestDir, mode};

/// An export with two files: `last` has the greatest size, and `over` has one byte more.
struct Export {
    name: &'static str,
    options: &'static str,
    /// The greatest size.
    limit: u32,
    clamps: bool,
}

const EXPORTS: [Export; 4] = [
    Export { name: "usual", options: "", limit: u32::MAX, clamps: false },
    Export { name: "clamped", options: "v2-large-files = 'clamp'\n", limit: u32::MAX, clamps: true },
    Export { name: "signed", options: "v2-signed-sizes = true\n", limit: i32::MAX as u32, clamps: false },
    Export {
        name: "both",
        options: "v2-signed-sizes = true\nv2-large-files = 'clamp'\n",
        limit: i32::MAX as u32,
        clamps: true,
    },
];

/// Creates a file without content but for the last byte that version 2 can reach, and the one behind it.
fn sparse(directory: &Path, name: &str, limit: u32, size: u64) -> PathBuf {
    let path = directory.join(name);
    let file = std::fs::File::create(&path).unwrap();
    file.set_permissions(mode(0o666)).unwrap();
    file.set_len(size).unwrap();
    for (byte, at) in [(b"x", u64::from(limit) - 1), (b"y", u64::from(limit))] {
        if at < size {
            file.write_all_at(byte, at).unwrap();
        }
    }
    path
}

fn ask<T: Decode>(wire: &mut Wire, procedure: Proc, arguments: &impl Encode) -> Result<T, Stat> {
    match wire.ask((nfs2::PROGRAM, nfs2::VERSION, procedure.0), arguments).expect("a result") {
        Outcome::Ok(value) => Ok(value),
        Outcome::Fail(stat) => Err(stat),
    }
}

impl Export {
    fn check(&self, wire: &mut Wire, server: &Server, directory: &Path) {
        let Self { name, limit, clamps, .. } = *self;
        let path = mount::DirPath::new(format!("/{name}").into_bytes()).unwrap();
        let Rest(mounted) = wire.ask((mount::PROGRAM, mount::VERSION_1, 1), &path).expect("a handle");
        let root: nfs2::FileHandle = mounted[4..].try_into().unwrap();
        let look = |wire: &mut Wire, name: &'static str| {
            let named = DirOpArgs { dir: root, name: Opaque::from_static(name.as_bytes()) };
            let found: Result<nfs2::DirOpOk, Stat> = ask(wire, Proc::LOOKUP, &named);
            found.map(|found| (found.file, found.attributes.size))
        };
        let read = |wire: &mut Wire, file, offset| {
            let args = nfs2::ReadArgs { file, offset, count: 8192, totalcount: 0 };
            let read: Result<nfs2::ReadOk, Stat> = ask(wire, Proc::READ, &args);
            read.map(|read| (read.attributes.size, read.data.to_vec()))
        };
        let write = |wire: &mut Wire, file, offset| {
            let data = Opaque::from_static(b"z");
            let args = nfs2::WriteArgs { file, beginoffset: 0, offset, totalcount: 0, data };
            let written: Result<nfs2::Fattr, Stat> = ask(wire, Proc::WRITE, &args);
            written.map(|attributes| attributes.size)
        };

        let (last, size) = look(wire, "last").expect("a file of the greatest size");
        assert_eq!(size, limit, "{name}");
        assert_eq!(read(wire, last, limit - 1), Ok((limit, b"x".to_vec())), "{name}");
        assert_eq!(read(wire, last, limit), Ok((limit, Vec::new())), "{name}");
        assert_eq!(write(wire, last, limit - 1), Ok(limit), "{name}: the last byte");
        assert_eq!(write(wire, last, limit), Err(Stat::FBIG), "{name}");
        let length = |name| std::fs::metadata(directory.join(name)).unwrap().len();
        assert_eq!(length("last"), u64::from(limit), "{name}: it has not grown");

        let over = look(wire, "over");
        if !clamps {
            assert_eq!(over, Err(Stat::FBIG), "{name}");
        } else {
            let (over, size) = over.expect("a file that is shown in part");
            assert_eq!(size, limit, "{name}");
            assert_eq!(read(wire, over, limit - 1), Ok((limit, b"x".to_vec())), "{name}");
            assert_eq!(read(wire, over, limit), Ok((limit, Vec::new())), "{name}: the rest is hidden");
        }
        // Version 3 sees both as they are.
        let mut client = Client::connect(server.address);
        let root = client.mount(&format!("/{name}")).unwrap();
        for (file, size) in [("last", u64::from(limit)), ("over", u64::from(limit) + 1)] {
            let found: nfs3::FileHandle = client.lookup(root, file).unwrap();
            assert_eq!(client.getattr(found).unwrap().size, size, "{name}");
        }
        assert_eq!(length("over"), u64::from(limit) + 1);
    }
}

#[test]
fn files_beyond_the_greatest_size_of_version_2_are_refused_or_shown_in_part() {
    let dir = TestDir::new();
    let mut config = format!(
        "listen = ['127.0.0.1:0']\nudp = true\nversions = ['2', '3', '4']\nstate-dir = '{}'\n",
        dir.path("state").display()
    );
    let directories = EXPORTS.each_ref().map(|export| {
        let directory = dir.directory(export.name);
        sparse(&directory, "last", export.limit, export.limit.into());
        sparse(&directory, "over", export.limit, u64::from(export.limit) + 1);
        config += &format!(
            "[[export]]\npath = '{}'\npseudo = '/{}'\ninsecure = true\n{}",
            directory.display(),
            export.name,
            export.options
        );
        directory
    });
    let config = dir.file("enfys.toml", &config);
    let server = Server::start(&dir, &[Path::new("serve"), Path::new("--config"), &config]);
    for mut wire in [Wire::tcp, Wire::udp].map(|make| make(server.address, [127, 0, 0, 1])) {
        for (export, directory) in EXPORTS.iter().zip(&directories) {
            // As before.
            sparse(directory, "last", export.limit, export.limit.into());
            export.check(&mut wire, &server, directory);
        }
    }
    server.stop();
}
