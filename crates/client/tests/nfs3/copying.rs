//! Copies of files to servers that restart meanwhile.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::copy::{CopyError, CopyOptions, copy_tree};
use client::errno::Errno;
use client::fs::{FileSystem, WholeFile};
use client::tree::ServerTree;
use protocol::nfs3::{CommitOk, CommitResult, PROGRAM, Proc, WccData};

use crate::link::{Answer, Link, root};

/// More than goes with the creation of a file.
const SIZE: u32 = 1 << 20;
/// Number of times that a file is copied at most.
const TRIES: u32 = 8;

/// Copies a file to a server that loses the written data this often before their COMMIT. Returns the number of COMMITs, and the error.
fn copy(losses: u32) -> (u32, Option<Errno>) {
    let link = Link::new();
    let client = link.client();
    link.run(async {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        fs.mkdir(b"from", 0o755).await.unwrap();
        fs.mkdir(b"to", 0o755).await.unwrap();
        let data = Bytes::from((0..SIZE).map(|at| at as u8).collect::<Vec<_>>());
        let file = WholeFile { path: b"from/file", mode: 0o644, data: data.clone() };
        fs.write_many(&[file]).await.remove(0).unwrap();
        let commits = Rc::new(Cell::new(0));
        let counted = Rc::clone(&commits);
        link.answer(move |call| {
            if !call.is(PROGRAM, Proc::COMMIT.0) {
                return Answer::Serve;
            }
            counted.set(counted.get() + 1);
            if counted.get() > losses {
                return Answer::Serve;
            }
            // A verifier that no WRITE had (RFC 1813 §3.3.21).
            call.reply(&CommitResult::Ok(CommitOk { file_wcc: WccData::default(), verf: [77; 8] }))
        });
        let from = ServerTree::open(&fs, b"from").await.unwrap();
        let to = ServerTree::open(&fs, b"to").await.unwrap();
        let copied = copy_tree(&from, &to, CopyOptions::default()).await;
        let mut errors = copied.into_iter().filter_map(|copied| copied.outcome.err());
        let error = errors.next().map(|error| match error {
            CopyError::Target(error) => error.errno(),
            other => panic!("{other}"),
        });
        if error.is_none() {
            let there = fs.read_many(&[b"to/file"], SIZE + 1).await.remove(0).unwrap();
            assert!(there == data, "{losses}");
        }
        (commits.get(), error)
    })
}

#[test]
fn a_file_whose_data_the_server_loses_is_copied_again() {
    assert_eq!(copy(0), (1, None));
    assert_eq!(copy(3), (4, None));
}

#[test]
fn a_server_that_always_loses_data_is_an_error() {
    assert_eq!(copy(u32::MAX), (TRIES, Some(Errno::EIO)));
}
