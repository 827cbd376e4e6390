//! Tries the operations of the library on a server, and prints the outcome of each.
//!
//! `cargo run -p enfys-net --example operations -- ADDRESS PORT PATH VERSION`, where VERSION is 3, 4.1 or 4.2.

use std::error::Error;
use std::fmt::Display;
use std::time::SystemTime;

use bytes::Bytes;
use client::config::{Caller, Config, Version};
use client::fs::{FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::{Content, OpenMode};
use client::xattr::XattrMode;
use net::blocking::{Connection, wait};
use net::transport::Route;
use rpc::auth::AuthSys;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, port, path, version] = &arguments[..] else {
        return Err("usage: operations ADDRESS PORT PATH VERSION".into());
    };
    let version = match &version[..] {
        "3" => Version::V3,
        "4.1" => Version::V41,
        _ => Version::V42,
    };
    let (one, two) =
        (connect(address, port.parse()?, version, "one")?, connect(address, port.parse()?, version, "two")?);
    let (first, second) = (one.mount(root(), path.as_bytes())?, two.mount(root(), path.as_bytes())?);
    locks(&first, &second)?;
    extended_attributes(first.inner());
    access_control_lists(first.inner());
    space(first.inner())?;
    for name in ["tried", "tried copy"] {
        first.remove_file(name.as_bytes())?;
    }
    one.close()?;
    two.close()?;
    Ok(())
}

fn root() -> Caller {
    let (machine_name, gids) = (Default::default(), Default::default());
    Caller::sys(&AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids })
}

fn connect(address: &str, port: u16, version: Version, name: &str) -> Result<Connection, Box<dyn Error>> {
    let route = Route { addresses: vec![address.parse()?], reserved_port: true, record_max: 2 << 20 };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos() as u64;
    let owner = format!("operations {name} {}", std::process::id());
    let config = Config::new(address, owner.as_bytes(), now.to_be_bytes(), root());
    Ok(Connection::open(route, Config { port, version: Some(version), ..config })?)
}

fn show<T, E: Display>(what: &str, outcome: Result<T, E>) -> Option<T> {
    match outcome {
        Ok(value) => {
            println!("{what}: done");
            Some(value)
        }
        Err(error) => {
            println!("{what}: {error}");
            None
        }
    }
}

fn locks(
    first: &net::blocking::FileSystem,
    second: &net::blocking::FileSystem,
) -> Result<(), Box<dyn Error>> {
    let options = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
    let (one, two) = (first.open(b"tried", &options)?, second.open(b"tried", &options)?);
    let (owner, range) = (LockOwner::Process(1), LockRange::new(10, 10)?);
    show("lock", one.lock(owner, range, LockKind::Exclusive));
    show("lock of another (must fail)", two.try_lock(owner, range, LockKind::Shared));
    if let Some(conflict) =
        show("test", wait(two.inner().test_lock(owner, LockRange::WHOLE, LockKind::Shared)))
    {
        println!("  the conflict: {conflict:?}");
    }
    show("unlock of the middle", one.unlock(owner, LockRange::new(13, 4)?));
    show("lock of the middle by another", two.try_lock(owner, LockRange::new(13, 4)?, LockKind::Exclusive));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| two.lock(owner, LockRange::WHOLE, LockKind::Exclusive));
        std::thread::sleep(std::time::Duration::from_millis(300));
        let started = std::time::Instant::now();
        show("unlock", one.unlock(owner, LockRange::WHOLE));
        let locked = waiting.join().expect("the thread ends");
        show("lock after waiting", locked);
        println!("  {:.3} s after the unlock", started.elapsed().as_secs_f64());
    });
    show("write under the lock", two.write_at(0, vec![1; 100]));
    show("close with a lock", two.close());
    show("flock after the close", wait(one.inner().try_flock(LockKind::Exclusive)));
    show("close", one.close());
    Ok(())
}

fn extended_attributes(fs: &FileSystem) {
    let (name, value) = (b"user.tried", Bytes::from_static(b"value"));
    show("set xattr", wait(fs.set_xattr(b"tried", name, value, XattrMode::Create, true)));
    let value = show("get xattr", wait(fs.get_xattr(b"tried", name, true)));
    let names = show("list xattrs", wait(fs.list_xattrs(b"tried", true)));
    println!("  {names:?} {value:?}");
    show("remove xattr", wait(fs.remove_xattr(b"tried", name, true)));
    show("get xattr (must fail)", wait(fs.get_xattr(b"tried", name, true)));
}

fn access_control_lists(fs: &FileSystem) {
    if let Some(acl) = show("get ACL", wait(fs.get_acl(b"tried"))) {
        println!("  {acl:?}");
        show("set ACL", wait(fs.set_acl(b"tried", &acl)));
    }
}

fn space(fs: &FileSystem) -> Result<(), Box<dyn Error>> {
    const MIB: u64 = 1 << 20;
    let options = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::CREATE };
    let file = wait(fs.open(b"tried", &options))?;
    let copy = wait(fs.open(b"tried copy", &options))?;
    let content = Bytes::from(vec![5; 32 << 20]);
    wait(file.write_at(MIB, content.clone()))?;
    show("allocate", wait(file.allocate(40 * MIB, MIB)));
    show("punch hole", wait(file.punch_hole(2 * MIB, MIB)));
    for content in [Content::Data, Content::Hole] {
        if let Some(offset) = show("seek", wait(file.seek(0, content))) {
            println!("  {content:?} at {offset}");
        }
    }
    show("clone", wait(copy.clone_from(&file, 0, 0, 0)));
    let mut done = 0;
    while let Some(count) = show("copy", wait(copy.copy_from(&file, done, done, 41 * MIB - done))) {
        println!("  {count} bytes");
        done += count;
        if count == 0 || done == 41 * MIB {
            break;
        }
    }
    if done > 0 {
        let whole = wait(file.read_at(0, 64 << 20))?.concat();
        println!("  equal: {}", wait(copy.read_at(0, 64 << 20))?.concat() == whole);
    }
    wait(file.close())?;
    wait(copy.close())?;
    Ok(())
}
