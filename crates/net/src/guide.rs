//! The client's library by examples: each runs as it is, against a server in memory.
//!
//! The examples use the [blocking](crate::blocking) interface. Its calls have the names of the async ones in [`client::fs`], which
//! take any executor: their futures need no runtime, only a thread that carries the records ([`crate::transport`]). A program has
//! the URL of a server instead of [`MemoryServer::url`](crate::MemoryServer::url), for instance
//! `nfs://server/export?version=4.2`. Paths are bytes below the directory of the URL.
//!
//! # Open, read, write, fsync, close
//! ```
//! use client::fs::OpenOptions;
//! use client::results::OpenMode;
//! use net::blocking::Connection;
//!
//! let server = net::MemoryServer::start()?;
//! let (connection, fs) = Connection::to(&server.url().parse()?)?;
//!
//! let options = OpenOptions { mode: OpenMode::BOTH, permissions: 0o640, ..OpenOptions::CREATE };
//! let file = fs.open(b"notes", &options)?;
//! file.write_at(0, "first line\n")?;
//! file.write_at(11, "second line\n")?;
//! // Written data are stable after fsync, or after close, which reports errors of writing.
//! file.sync()?;
//! assert_eq!(file.read_at(6, 4)?, b"line");
//! file.close()?;
//!
//! // The same for whole files:
//! fs.write(b"more", "a whole file")?;
//! assert_eq!(fs.read(b"more")?, b"a whole file");
//! connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Stat and setattr
//! ```
//! use client::attributes::{FileKind, SetAttributes, SetTime, Timestamp};
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! fs.write(b"file", "content")?;
//! let attributes = fs.stat(b"file")?;
//! assert_eq!((attributes.kind, attributes.size), (FileKind::Regular, 7));
//!
//! let noon = Timestamp { seconds: 1_000_000_800, nanoseconds: 0 };
//! let set = SetAttributes { mode: Some(0o600), size: Some(3), mtime: SetTime::To(noon), ..Default::default() };
//! let attributes = fs.set_attributes(b"file", &set)?;
//! assert_eq!((attributes.mode, attributes.size, attributes.mtime), (0o600, 3, noon));
//! assert_eq!(fs.read(b"file")?, b"con");
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Directories, links, rename, special files
//! ```
//! use client::attributes::FileKind;
//! use client::results::NewObject;
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! fs.create_dir(b"dir", 0o755)?;
//! fs.write(b"dir/file", "content")?;
//! fs.link(b"dir/file", b"dir/second name")?;
//! fs.symlink(b"file", b"dir/link")?;
//! fs.mknod(b"dir/pipe", &NewObject::Fifo, 0o600)?;
//!
//! assert_eq!(fs.stat(b"dir/link")?.nlink, 2, "stat follows symbolic links");
//! assert_eq!(fs.lstat(b"dir/link")?.kind, FileKind::Symlink);
//! assert_eq!(&fs.read_link(b"dir/link")?[..], b"file");
//! let mut names: Vec<_> = fs.read_dir(b"dir")?.into_iter().map(|entry| entry.name).collect();
//! names.sort();
//! assert_eq!(names, ["file", "link", "pipe", "second name"]);
//!
//! fs.rename(b"dir/second name", b"dir/link")?;
//! for name in ["dir/file", "dir/link", "dir/pipe"] {
//!     fs.remove_file(name.as_bytes())?;
//! }
//! fs.remove_dir(b"dir")?;
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Locks
//! ```
//! use client::errno::Errno;
//! use client::fs::OpenOptions;
//! use client::locks::{LockKind, LockOwner, LockRange};
//! use client::results::OpenMode;
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! let options = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::CREATE };
//! let file = fs.open(b"file", &options)?;
//! // The number of an owner is the program's choice: owners exclude each other.
//! let (one, two) = (LockOwner::Process(1), LockOwner::Process(2));
//! let range = LockRange::new(0, 100)?;
//! file.lock(one, range, LockKind::Exclusive)?;
//!
//! let refused = file.try_lock(two, range, LockKind::Shared).unwrap_err();
//! assert_eq!(refused.errno(), Errno::EAGAIN);
//! let conflict = file.test_lock(two, LockRange::WHOLE, LockKind::Shared)?.expect("the lock of the other");
//! assert_eq!((conflict.range, conflict.kind), (range, LockKind::Exclusive));
//!
//! // `lock` waits until the range is free.
//! std::thread::scope(|scope| {
//!     let waiting = scope.spawn(|| file.lock(two, range, LockKind::Shared));
//!     file.unlock(one, range)?;
//!     waiting.join().expect("the thread ends")
//! })?;
//! // Closing a file unlocks what was locked through it.
//! file.close()?;
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Extended attributes and access control lists
//! ```
//! use client::acl::Acl;
//! use client::xattr::XattrMode;
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! fs.write(b"file", "content")?;
//! let follows = true;
//! fs.set_xattr(b"file", b"user.language", "en".into(), XattrMode::Create, follows)?;
//! assert_eq!(&fs.get_xattr(b"file", b"user.language", follows)?[..], b"en");
//! assert_eq!(fs.list_xattrs(b"file", follows)?, ["user.language"]);
//! fs.remove_xattr(b"file", b"user.language", follows)?;
//!
//! // With version 4 it is the list of version 4, with version 3 POSIX lists.
//! let acl = fs.get_acl(b"file")?;
//! let Acl::Nfs4(entries) = &acl else { panic!("version 4") };
//! assert!(entries.iter().any(|entry| entry.who == "OWNER@"));
//! fs.set_acl(b"file", &acl)?;
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Allocate, seek, copy, clone, statfs
//! ```
//! use client::fs::OpenOptions;
//! use client::results::{Content, OpenMode};
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! const MIB: u64 = 1 << 20;
//! let options = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::CREATE };
//! let file = fs.open(b"file", &options)?;
//! file.write_at(MIB, vec![7; MIB as usize])?;
//! file.allocate(2 * MIB, MIB)?;
//! assert_eq!(file.stat()?.size, 3 * MIB);
//! assert_eq!(file.seek(0, Content::Data)?, MIB);
//! file.punch_hole(MIB, 4096)?;
//! assert_eq!(file.seek(0, Content::Data)?, MIB + 4096);
//!
//! // The server copies: no data move over the network. A copy may be shorter than requested.
//! let copy = fs.open(b"copy", &options)?;
//! let mut done = 0;
//! while done < 3 * MIB {
//!     match copy.copy_from(&file, done, done, 3 * MIB - done)? {
//!         0 => break,
//!         count => done += count,
//!     }
//! }
//! copy.sync()?;
//! assert_eq!(copy.read_at(2 * MIB - 1, 2)?, [7, 0]);
//!
//! // A clone shares the blocks of a file.
//! let clone = fs.open(b"clone", &options)?;
//! clone.clone_from(&file, 0, 0, 0)?;
//! assert_eq!(clone.stat()?.size, 3 * MIB);
//! for file in [file, copy, clone] {
//!     file.close()?;
//! }
//! assert!(fs.stat_fs(b"")?.total_bytes > 0);
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Many files in few requests
//! Each call returns a result for each item; the failure of one affects no other.
//! ```
//! use client::errno::Errno;
//! use client::fs::{NewPath, WholeFile};
//! use client::many::NewKind;
//! use client::results::NewObject;
//! # use net::blocking::{Connection, wait};
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! let directory = NewKind::Object(NewObject::Directory);
//! let new = |path, kind| NewPath { path, kind, mode: 0o755 };
//! // The levels of a tree one after the other:
//! for level in [[new(&b"a"[..], directory.clone()), new(b"b", directory.clone())], [new(b"a/c", directory), new(b"b/empty", NewKind::File)]] {
//!     for outcome in fs.create_many(&level) {
//!         outcome?;
//!     }
//! }
//! let file = |path| WholeFile { path, mode: 0o644, data: "content".into() };
//! let outcomes = fs.write_many(&[file(&b"a/one"[..]), file(b"missing/two"), file(b"a/c/three")]);
//! let errors: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().err().map(|error| error.errno())).collect();
//! assert_eq!(errors, [None, Some(Errno::ENOENT), None]);
//!
//! let paths = [&b"a/one"[..], b"a/c/three"];
//! assert!(fs.read_many(&paths, 1000).into_iter().all(|data| data.is_ok_and(|data| data == "content")));
//! // Without OPEN and CLOSE, where no other client excludes readers:
//! assert!(fs.read_many_unopened(&paths, 1000).into_iter().all(|data| data.is_ok_and(|data| data == "content")));
//! assert!(fs.stat_many(&paths).into_iter().all(|found| found.is_ok_and(|found| found.size == 7)));
//!
//! // All directories below the root, each after its parent; as many as the server can list in one round trip are listed together.
//! let mut walk = fs.inner().walk(fs.inner().root(), usize::MAX);
//! let mut files = 0;
//! while let Some(listed) = wait(walk.next()) {
//!     files += listed?.entries.iter().filter(|entry| entry.object.is_some_and(|object| object.attributes.size == 7)).count();
//! }
//! assert_eq!(files, 2);
//! assert!(fs.remove_many(&paths, false).iter().all(Result::is_ok));
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Copy a tree
//! Between this machine and a server, or between servers ([`client::copy`]).
//! ```
//! use client::copy::{CopyOptions, copy_tree};
//! use client::tree::ServerTree;
//! use net::blocking::{Connection, wait};
//! use net::local::LocalTree;
//!
//! let server = net::MemoryServer::start()?;
//! let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! # let directory = std::env::temp_dir().join(format!("enfys-guide-{}", std::process::id()));
//! std::fs::create_dir(&directory)?;
//! std::fs::write(directory.join("file"), "content")?;
//!
//! fs.create_dir(b"copy", 0o755)?;
//! let (local, remote) = (LocalTree::open(&directory)?, wait(ServerTree::open(fs.inner(), b"copy"))?);
//! for copied in wait(copy_tree(&local, &remote, CopyOptions { preserves: true, ..Default::default() })) {
//!     copied.outcome?;
//! }
//! assert_eq!(fs.read(b"copy/file")?, b"content");
//! # std::fs::remove_dir_all(&directory)?;
//! connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Errors
//! ```
//! use client::errno::Errno;
//! use client::error::Fault;
//! # use net::blocking::Connection;
//! # let server = net::MemoryServer::start()?;
//! # let (connection, fs) = Connection::to(&server.url().parse()?)?;
//! let error = fs.read(b"missing").unwrap_err();
//! assert_eq!((error.errno(), error.fault()), (Errno::ENOENT, Fault::Caller));
//! assert_eq!((error.operation, error.path.as_deref(), &error.server[..]), ("open", Some(&b"missing"[..]), "127.0.0.1"));
//! assert!(error.to_string().starts_with("open missing on 127.0.0.1: No such file or directory"), "{error}");
//! # connection.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Async
//! ```
//! use std::sync::Arc;
//!
//! use client::Client;
//! use client::config::{Caller, Config, Version};
//! use client::engine::Engine;
//! use client::fs::{FileSystem, OpenOptions};
//! use client::results::OpenMode;
//! use net::transport::{Route, SystemClock, run_transport};
//!
//! let server = net::MemoryServer::start()?;
//! let url: client::url::Url = server.url().parse()?;
//! let port = url.options.port.unwrap_or(2049);
//!
//! // The user of the calls, and a client with a name of its own. A program chooses random numbers for the verifier and the first transaction.
//! let caller = Caller::sys(&rpc::auth::AuthSys {
//!     stamp: 0,
//!     machine_name: xdr::Opaque::from_static(b"guide"),
//!     uid: 0,
//!     gid: 0,
//!     gids: rpc::auth::GroupList::default(),
//! });
//! let config = Config {
//!     port,
//!     version: Some(Version::V42),
//!     ..Config::new("server", b"guide", *b"12345678", caller.clone())
//! };
//!
//! // Two tasks of this thread carry records and keep the session; the others are the program's.
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! tokio::task::LocalSet::new().block_on(&runtime, async {
//!     let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
//!     let addresses = vec![std::net::Ipv4Addr::LOCALHOST.into()];
//!     let route = Route { addresses, reserved_port: true, record_max: 2 << 20 };
//!     let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
//!     let client = Client::connect(engine, config).await?;
//!     let keeper = tokio::task::spawn_local({
//!         let client = client.clone();
//!         async move { client.run().await }
//!     });
//!
//!     let (fs, _) = FileSystem::mount(client.clone(), caller, url.path()).await?;
//!     let options = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::CREATE };
//!     let file = fs.open(b"file", &options).await?;
//!     // Both are under way together.
//!     let (one, two) = tokio::join!(file.write_at(0, "one".into()), file.write_at(3, "two".into()));
//!     one.and(two)?;
//!     assert_eq!(file.read_at(0, 100).await?.concat(), b"onetwo");
//!     file.close().await?;
//!
//!     client.close().await?;
//!     keeper.await?;
//!     transport.await?;
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
