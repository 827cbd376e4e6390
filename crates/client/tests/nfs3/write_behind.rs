//! Write-behind against servers that fail.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::errno::Errno;
use client::fs::inode::{Inode, Mount, OpenFile, OpenFlags};
use client::results::Creation;
use protocol::nfs3::{
    CommitOk, CommitResult, NfsStat, PROGRAM, Proc, StableHow, WccData, WriteArgs, WriteResult,
};

use crate::link::{Answer, Link, root};

async fn create(top: &Inode, name: &[u8]) -> OpenFile {
    let set = SetAttributes::with_mode(0o644);
    top.create(&root(), name, OpenFlags::BOTH, Creation::IfMissing, &set).await.unwrap()
}

/// A server that restarts between the WRITEs and the COMMIT has lost them: they are written again, by synchronous WRITEs.
#[test]
fn restart_before_commit_loses_no_data() {
    let link = Link::new();
    let client = link.client();
    let commits = Rc::new(Cell::new(0));
    let stable = Rc::new(RefCell::new(Vec::new()));
    let (counted, seen) = (commits.clone(), stable.clone());
    link.answer(move |call| {
        if call.is(PROGRAM, Proc::COMMIT.0) {
            counted.set(counted.get() + 1);
            let lost = CommitOk { file_wcc: WccData::default(), verf: [77; 8] };
            return call.reply(&CommitResult::Ok(lost));
        }
        if call.is(PROGRAM, Proc::WRITE.0) {
            let arguments: WriteArgs = call.arguments();
            seen.borrow_mut().push((arguments.stable, u64::from(arguments.count)));
        }
        Answer::Serve
    });
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let file = create(&top, b"file").await;
        file.write(0, Bytes::from(vec![5; 3 << 20])).await.unwrap();
        file.sync().await.unwrap();
        file.release().await.unwrap();
    });
    let bytes = |wanted| {
        let writes = stable.borrow();
        writes.iter().filter(|(how, _)| *how == wanted).map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!(
        (bytes(StableHow::Unstable), bytes(StableHow::FileSync), commits.get()),
        (3 << 20, 3 << 20, 1)
    );
}

#[test]
fn full_disk_is_reported_once_to_the_right_file() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let (full, good) = (create(&top, b"full").await, create(&top, b"good").await);
        let handle = full.inode().handle();
        link.answer(move |call| {
            if call.is(PROGRAM, Proc::WRITE.0) && call.arguments::<WriteArgs>().file[..] == handle[..] {
                return call.reply(&WriteResult::Fail(NfsStat::NOSPC, WccData::default()));
            }
            Answer::Serve
        });
        full.write(0, Bytes::from_static(b"lost")).await.unwrap();
        good.write(0, Bytes::from_static(b"kept")).await.unwrap();
        good.sync().await.unwrap();
        assert_eq!(full.sync().await.unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!(full.sync().await, Ok(()), "it was reported");
        assert_eq!(full.flush().await, Ok(()));
        full.write(0, Bytes::from_static(b"again")).await.unwrap();
        assert_eq!(full.flush().await.unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!((full.release().await, good.release().await), (Ok(()), Ok(())));
    });
}

#[test]
fn synchronous_files_are_stable_when_a_write_returns() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let set = SetAttributes::with_mode(0o644);
        let flags = OpenFlags { stability: client::results::Stability::DataSync, ..OpenFlags::WRITE };
        let file = top.create(&root(), b"file", flags, Creation::IfMissing, &set).await.unwrap();
        for number in 1..=3 {
            file.write(number * 10, Bytes::from_static(b"data")).await.unwrap();
            assert_eq!(link.count(PROGRAM, Proc::WRITE.0), number as usize);
        }
        assert_eq!(link.count(PROGRAM, Proc::COMMIT.0), 0);
        file.release().await.unwrap();
    });
}

/// A file that is dropped without being released is written and closed in the background.
#[test]
fn dropped_file_is_written_too() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let file = create(&top, b"file").await;
        file.write(0, Bytes::from_static(b"data")).await.unwrap();
        drop(file);
        client.engine().sleep(std::time::Duration::from_secs(5)).await;
        assert_eq!(link.count(PROGRAM, Proc::WRITE.0), 1);
    });
}

/// The same without the cache: data are kept until they are committed.
#[test]
fn data_written_without_the_cache_are_rewritten_after_a_restart() {
    let link = Link::new();
    let client = link.client();
    let stable = Rc::new(RefCell::new(Vec::new()));
    let seen = stable.clone();
    let mut is_first = true;
    link.answer(move |call| {
        if call.is(PROGRAM, Proc::COMMIT.0) && std::mem::take(&mut is_first) {
            let lost = CommitOk { file_wcc: WccData::default(), verf: [77; 8] };
            return call.reply(&CommitResult::Ok(lost));
        }
        if call.is(PROGRAM, Proc::WRITE.0) {
            let arguments: WriteArgs = call.arguments();
            seen.borrow_mut().push((arguments.stable, arguments.offset, arguments.data.to_vec()));
        }
        Answer::Serve
    });
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let (set, flags) = (SetAttributes::with_mode(0o644), OpenFlags { direct: true, ..OpenFlags::BOTH });
        let file = top.create(&root(), b"file", flags, Creation::IfMissing, &set).await.unwrap();
        for (offset, text) in [(0, "first"), (100, "second"), (2, "newer")] {
            file.write(offset, Bytes::from(text)).await.unwrap();
        }
        assert_eq!(file.sync().await, Ok(()));
        assert_eq!(file.sync().await, Ok(()));
        file.release().await.unwrap();
    });
    let writes: Vec<_> =
        [(0, "first"), (100, "second"), (2, "newer")].map(|(at, text)| (at, text.as_bytes().to_vec())).into();
    let of = |wanted| {
        let stable = stable.borrow();
        let of = stable.iter().filter(|(how, ..)| *how == wanted);
        of.map(|(_, at, data)| (*at, data.clone())).collect::<Vec<_>>()
    };
    assert_eq!((of(StableHow::Unstable), of(StableHow::FileSync)), (writes.clone(), writes));
    assert_eq!(link.count(PROGRAM, Proc::COMMIT.0), 1);
}

/// Data kept without the cache are bounded: beyond that each write is committed.
#[test]
fn data_written_without_the_cache_are_committed_at_the_bound() {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let top = Mount::new(client.clone(), &root(), &[b"export"]).await.unwrap().root();
        let (set, flags) = (SetAttributes::with_mode(0o644), OpenFlags { direct: true, ..OpenFlags::BOTH });
        let file = top.create(&root(), b"file", flags, Creation::IfMissing, &set).await.unwrap();
        for part in 0..48 {
            file.write(part << 20, Bytes::from(vec![1; 1 << 20])).await.unwrap();
        }
        // Half of the budget, 32 MiB, is kept at most, so that 48 MiB take one COMMIT before the last one.
        assert_eq!(link.count(PROGRAM, Proc::COMMIT.0), 1);
        file.sync().await.unwrap();
        assert_eq!(link.count(PROGRAM, Proc::COMMIT.0), 2);
        file.release().await.unwrap();
    });
}
