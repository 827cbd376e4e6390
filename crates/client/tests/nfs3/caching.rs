//! Caches and write-behind through inodes: requests, and the data that programs see.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::cache::limiter::{Budget, Limiter};
use client::config::{Caches, Config, Version};
use client::error::OpError;
use client::fs::inode::{Inode, Mount, OpenFile, OpenFlags};
use client::fs::{FileSystem, OpenOptions, WholeFile};
use client::results::Creation;
use client::url::Options;
use protocol::nfs3::{PROGRAM, Proc};
use protocol::nfs4::types::Status;

use crate::link::{Link, config, root, user};

async fn mount(client: &Client) -> Inode {
    Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root()
}

async fn create(top: &Inode, name: &[u8]) -> OpenFile {
    let set = SetAttributes::with_mode(0o644);
    top.create(&root(), name, OpenFlags::BOTH, Creation::IfMissing, &set).await.unwrap()
}

async fn close(file: OpenFile) {
    file.flush().await.unwrap();
    file.release().await.unwrap();
}

#[test]
fn thousand_small_writes_become_one_request() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(&client).await;
        let file = create(&top, b"file").await;
        for number in 0..1000_u64 {
            file.write(number * 100, Bytes::from(vec![number as u8; 100])).await.unwrap();
        }
        assert_eq!(link.count(PROGRAM, Proc::WRITE.0), 0, "no caller waits for them yet");
        let read = file.read(0, 200_000).await.unwrap().concat();
        assert!(read.chunks(100).enumerate().all(|(number, part)| part == [number as u8; 100]));
        assert_eq!((read.len(), link.count(PROGRAM, Proc::READ.0)), (100_000, 0));
        close(file).await;
        assert_eq!((link.count(PROGRAM, Proc::WRITE.0), link.count(PROGRAM, Proc::COMMIT.0)), (1, 0));
        let (file, attributes) = top.lookup(&root(), b"file").await.unwrap();
        assert_eq!(attributes.size, 100_000);
        let file = file.open(&root(), OpenFlags::READ).await.unwrap();
        assert!(file.read(0, 200_000).await.unwrap().concat() == read);
        file.release().await.unwrap();
        assert_eq!(link.count(PROGRAM, Proc::READ.0), 0, "own writes invalidate nothing");
    });
}

#[test]
fn large_writes_are_full_requests_and_one_commit() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(&client).await;
        let file = create(&top, b"file").await;
        for part in 0..80_u64 {
            file.write(part * 100_000, Bytes::from(vec![part as u8; 100_000])).await.unwrap();
        }
        close(file).await;
        assert_eq!(link.count(PROGRAM, Proc::WRITE.0), 8);
        assert_eq!(link.count(PROGRAM, Proc::COMMIT.0), 1);
    });
}

#[test]
fn written_data_are_sent_from_the_programs_buffers() {
    let link = Link::new();
    let clients = [link.client(), link.connect(Config { version: Some(Version::V42), ..config() }).unwrap()];
    for client in clients {
        link.run(async {
            let file = create(&mount(&client).await, b"file").await;
            let written: Vec<Bytes> = (0..40_u8).map(|part| Bytes::from(vec![part; 128 << 10])).collect();
            link.shared.borrow_mut().clear();
            for (part, data) in written.iter().enumerate() {
                file.write((part as u64) << 17, data.clone()).await.unwrap();
            }
            close(file).await;
            let sent: Vec<_> = link.shared.borrow().iter().map(|part| part.as_ptr_range()).collect();
            let is_of = |data: &Bytes, part: &std::ops::Range<*const u8>| {
                data.as_ptr_range().contains(&part.start) && part.end <= data.as_ptr_range().end
            };
            for data in &written {
                let shared = sent.iter().filter(|part| is_of(data, part));
                let bytes: usize = shared.map(|part| part.end as usize - part.start as usize).sum();
                assert_eq!(bytes, data.len(), "each byte is sent once, and none is copied");
            }
        });
    }
}

#[test]
fn sequential_reads_are_read_ahead_and_then_cached() {
    let link = Link::new();
    let (writer, reader) = (link.client(), link.client());
    link.run(async {
        let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let file = create(&mount(&writer).await, b"file").await;
        file.write(0, content.clone().into()).await.unwrap();
        close(file).await;

        let top = mount(&reader).await;
        let (file, _) = top.lookup(&root(), b"file").await.unwrap();
        for _ in 0..2 {
            let open = file.open(&root(), OpenFlags::READ).await.unwrap();
            let mut read = Vec::new();
            while read.len() < content.len() {
                let part = open.read(read.len() as u64, 5000).await.unwrap().concat();
                assert_eq!(part.len(), 5000.min(content.len() - read.len()));
                read.extend(part);
            }
            assert!(read == content);
            assert!(open.read(content.len() as u64, 1).await.unwrap().is_empty());
            open.release().await.unwrap();
        }
        let reads = link.count(PROGRAM, Proc::READ.0);
        assert!((3..=8).contains(&reads), "{reads}");
    });
}

#[test]
fn opening_shows_what_another_client_wrote_before_it_closed() {
    let link = Link::new();
    let (one, other) = (link.client(), link.client());
    link.run(async {
        let (one, other) = (mount(&one).await, mount(&other).await);
        let file = create(&one, b"file").await;
        file.write(0, Bytes::from_static(b"first")).await.unwrap();
        close(file).await;
        let (seen, _) = other.lookup(&root(), b"file").await.unwrap();
        for content in [&b"second one"[..], b"third", b""] {
            let open = seen.open(&root(), OpenFlags::READ).await.unwrap();
            let before = open.read(0, 100).await.unwrap().concat();
            open.release().await.unwrap();
            let (file, _) = one.lookup(&root(), b"file").await.unwrap();
            let open = file.open(&root(), OpenFlags::WRITE).await.unwrap();
            open.set_attributes(&SetAttributes { size: Some(0), ..SetAttributes::default() }).await.unwrap();
            open.write(0, Bytes::copy_from_slice(content)).await.unwrap();
            close(open).await;
            let open = seen.open(&root(), OpenFlags::READ).await.unwrap();
            let after = open.read(0, 100).await.unwrap().concat();
            assert_ne!(before, after);
            assert_eq!(after, content);
            open.release().await.unwrap();
        }
    });
}

#[test]
fn without_caches_small_files_take_a_lookup_and_a_read_and_each_directory_is_resolved_once() {
    let link = Link::new();
    let client = link.connect(Config { caches: Caches::none(), ..config() }).unwrap();
    let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
    link.run(async {
        for directory in [&b"a"[..], b"a/b"] {
            fs.mkdir(directory, 0o755).await.unwrap();
        }
        let paths: Vec<String> = (0..50).map(|at| format!("a/b/file{at}")).collect();
        let paths: Vec<&[u8]> = paths.iter().map(String::as_bytes).collect();
        let file = |path| WholeFile { path, mode: 0o644, data: Bytes::copy_from_slice(path) };
        let files: Vec<_> = paths.iter().map(|path| file(path)).collect();
        assert!(fs.write_many(&files).await.iter().all(Result::is_ok));
        link.calls.borrow_mut().clear();
        for (path, data) in paths.iter().zip(fs.read_many(&paths, 4096).await) {
            assert_eq!(data.unwrap(), path);
        }
        let count = |procedure: Proc| link.count(PROGRAM, procedure.0);
        assert_eq!(
            (count(Proc::LOOKUP), count(Proc::READ), link.calls.borrow().len()),
            (2 + 50, 50, 2 + 50 + 50)
        );
        // The directory of a file in the root needs no request.
        fs.open(b"file", &OpenOptions::CREATE).await.unwrap().close().await.unwrap();
        link.calls.borrow_mut().clear();
        fs.open(b"file", &OpenOptions::READ).await.unwrap().close().await.unwrap();
        assert_eq!((count(Proc::LOOKUP), count(Proc::ACCESS), link.calls.borrow().len()), (1, 1, 2));
    });
}

/// 1994, §4: the reading of a large directory must not push out what is used.
#[test]
fn a_huge_listing_leaves_the_other_caches_alone() {
    const ENTRIES: usize = 20_000;
    const WARM: usize = 50;
    let link = Link::new();
    let memory = Limiter::new(Budget::new(4 << 20));
    let client = link.connect(Config { caches: Caches { memory, ..Caches::default() }, ..config() }).unwrap();
    link.run(async {
        let (fs, _) = FileSystem::mount(client, root(), b"/export").await.unwrap();
        let names = |directory: &str, count: usize| -> Vec<String> {
            (0..count).map(|number| format!("{directory}/{number}")).collect()
        };
        let (huge, warm) = (names("huge", ENTRIES), names("warm", WARM));
        fs.mkdir(b"huge", 0o755).await.unwrap();
        fs.mkdir(b"warm", 0o755).await.unwrap();
        for name in huge.iter().chain(&warm) {
            let data = Bytes::from(name.clone());
            let file = WholeFile { path: name.as_bytes(), mode: 0o644, data };
            fs.write_many(&[file]).await.remove(0).unwrap();
        }
        let use_warm = async || {
            let before = link.calls.borrow().len();
            for name in &warm {
                assert_eq!(fs.lstat(name.as_bytes()).await.unwrap().size, name.len() as u64);
                let file = fs.open(name.as_bytes(), &OpenOptions::READ).await.unwrap();
                assert_eq!(file.read_at(0, 100).await.unwrap().concat(), name.as_bytes());
                file.close().await.unwrap();
            }
            assert_eq!(fs.read_dir(b"warm", false).await.unwrap().len(), WARM);
            link.calls.borrow().len() - before
        };
        use_warm().await;
        let warm_calls = use_warm().await;
        for _ in 0..2 {
            assert_eq!(fs.read_dir(b"huge", true).await.unwrap().len(), ENTRIES);
            assert_eq!(
                use_warm().await,
                warm_calls,
                "opens ask whether the files have changed; nothing else asks"
            );
        }
    });
}

#[test]
fn names_are_looked_up_once() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(&client).await;
        close(create(&top, b"file").await).await;
        let lookups = || link.count(PROGRAM, Proc::LOOKUP.0);
        let before = lookups();
        for _ in 0..5 {
            top.lookup(&root(), b"file").await.unwrap();
            let missing = top.lookup(&root(), b"missing").await.unwrap_err();
            assert_eq!(missing, OpError::Status(Status::NOENT));
        }
        // The first one shows that this caller may look names up; the file's name is known from its creation.
        assert!(lookups() - before <= 2, "{}", lookups() - before);
        close(create(&top, b"missing").await).await;
        let before = lookups();
        top.lookup(&root(), b"missing").await.unwrap();
        top.unlink(&root(), b"missing").await.unwrap();
        assert_eq!(top.lookup(&root(), b"missing").await.unwrap_err(), OpError::Status(Status::NOENT));
        assert_eq!(lookups(), before);
    });
}

#[test]
fn a_removed_name_shows_in_the_links_of_the_others() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(&client).await;
        close(create(&top, b"first").await).await;
        for other in [b"second", b"third!"] {
            let (file, _) = top.lookup(&root(), b"first").await.unwrap();
            assert_eq!(file.link(&root(), &top, other).await.unwrap().nlink, 2);
            top.rename(&root(), other, &top, b"moved").await.unwrap();
            top.unlink(&root(), b"moved").await.unwrap();
            assert_eq!(file.attributes(&root()).await.unwrap().nlink, 1);
        }
    });
}

#[test]
fn a_name_that_is_not_cached_shows_in_the_links_of_the_others_too() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = mount(&client).await;
        close(create(&top, b"first").await).await;
        let (file, _) = top.lookup(&root(), b"first").await.unwrap();
        // Nobody looks the second name up, and the first one shows two links.
        client.link(&root(), file.handle(), top.handle(), b"second").await.unwrap();
        close(file.open(&root(), OpenFlags::READ).await.unwrap()).await;
        assert_eq!(file.attributes(&root()).await.unwrap().nlink, 2);
        top.unlink(&root(), b"second").await.unwrap();
        assert_eq!(file.attributes(&root()).await.unwrap().nlink, 1);
    });
}

/// Overwrites a file by another client.
async fn overwrite(top: &Inode, content: &'static [u8]) {
    let (file, _) = top.lookup(&root(), b"file").await.unwrap();
    let open = file.open(&root(), OpenFlags::WRITE).await.unwrap();
    open.write(0, Bytes::from_static(content)).await.unwrap();
    close(open).await;
}

#[test]
fn without_close_to_open_a_file_is_opened_without_a_request_until_its_attributes_expire() {
    let link = Link::new();
    let mut config = config();
    let mut options = Options::default();
    options.apply_list("nocto,acregmin=3,acregmax=3").unwrap();
    config.caches = Caches::new(config.caches.memory, &options);
    let (one, other) = (link.client(), link.connect(config).unwrap());
    link.run(async {
        let (one, other) = (mount(&one).await, mount(&other).await);
        let file = create(&one, b"file").await;
        file.write(0, Bytes::from_static(b"first")).await.unwrap();
        close(file).await;
        let (file, _) = other.lookup(&root(), b"file").await.unwrap();
        let read = async || {
            let open = file.open(&root(), OpenFlags::READ).await.unwrap();
            let data = open.read(0, 100).await.unwrap().concat();
            close(open).await;
            data
        };
        assert_eq!(read().await, b"first");
        overwrite(&one, b"other").await;
        let before = link.calls.borrow().len();
        assert_eq!(read().await, b"first");
        assert_eq!(link.calls.borrow().len(), before, "no ACCESS, GETATTR or READ");
        let denied = file.open(&user(7), OpenFlags::WRITE).await.unwrap_err();
        assert_eq!(denied, OpError::Status(Status::ACCESS), "each caller's permissions are asked for");
        link.engine.sleep(Duration::from_secs(4)).await;
        assert_eq!(read().await, b"other");
    });
}
