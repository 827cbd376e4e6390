//! Many small files and directories on servers that execute compounds of several WRITEs correctly, or as Linux before version 6.16 does.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::many::{ListPart, NewFile, ReadFile};
use client::results::FileHandle;
use protocol::nfs4::compound::{CompoundArgs, Op};
use protocol::nfs4::types::OpNum;
use protocol::nfs4::{PROC_COMPOUND, PROGRAM};
use xdr::padding;

use crate::link::{Answer, Call, Link, config, root};
use crate::lost_replies::has;

const FILES: usize = 200;

/// Returns the record of a call in which the data of each WRITE that begin after the first page are what Linux before 6.16 takes.
fn as_old_linux(call: &Call, page: usize) -> Answer {
    if !call.is(PROGRAM, PROC_COMPOUND) {
        return Answer::Serve;
    }
    let mut record = call.record.to_vec();
    let mut end = record.len();
    for op in call.arguments::<CompoundArgs>().ops.iter().rev() {
        if let Op::Write(args) = op {
            let length = args.data.bytes().len();
            let start = end - padding(length) - length;
            if start >= page {
                let from = start - start % page;
                record[start..start + length].copy_from_slice(&call.record[from..from + length]);
            }
        }
        end -= xdr::to_bytes(op).len();
    }
    Answer::ServeOther(record.into())
}

/// Returns the data of a file: text that differs between files, of up to `max` bytes.
fn content(number: usize, max: usize) -> Bytes {
    let text = format!("file {number} ").repeat(1000);
    Bytes::copy_from_slice(&text.as_bytes()[..1 + number * 89 % max])
}

fn new_file(directory: FileHandle, name: &[u8], data: Bytes) -> NewFile<'_> {
    NewFile { directory, name, mode: 0o644, data, set: SetAttributes::default() }
}

/// Writes many files of at most `max` bytes in two calls, checks what the server has, and returns the number of compounds with WRITE.
fn compounds_of_writes(version: Version, page: Option<usize>, max: usize) -> usize {
    let link = Link::new();
    let client = link.connect(client::config::Config { version: Some(version), ..config() }).unwrap();
    let caller = root();
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    let count = Rc::new(Cell::new(0));
    let counted = Rc::clone(&count);
    link.answer(move |call| {
        counted.set(counted.get() + usize::from(has(call, OpNum::WRITE)));
        page.map_or(Answer::Serve, |page| as_old_linux(call, page))
    });
    let names: Vec<Vec<u8>> = (0..FILES).map(|number| format!("{number}").into_bytes()).collect();
    let files: Vec<NewFile<'_>> =
        names.iter().enumerate().map(|(number, name)| new_file(top, name, content(number, max))).collect();
    for half in files.chunks(FILES / 2) {
        for outcome in link.run(client.write_many(&caller, half)) {
            outcome.unwrap();
        }
    }
    let read = |name| ReadFile { directory: top, name, handle: None, without_open: false, count: 8192 };
    let reads: Vec<ReadFile<'_>> = names.iter().map(|name| read(name)).collect();
    for (number, whole) in link.run(client.read_many(&caller, &reads)).into_iter().enumerate() {
        assert_eq!(
            whole.unwrap().data,
            content(number, max),
            "{version:?}, pages of {page:?}: file {number}"
        );
    }
    count.get()
}

#[test]
fn old_servers_of_linux_get_only_writes_that_they_execute_correctly() {
    for version in [Version::V41, Version::V40] {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for max in [7000, 300] {
                compounds_of_writes(version, Some(page), max);
            }
        }
    }
}

#[test]
fn compounds_have_many_files_once_a_server_has_written_several_correctly() {
    let shared = compounds_of_writes(Version::V41, None, 7000);
    let single = compounds_of_writes(Version::V41, Some(4 << 10), 7000);
    assert!(shared < FILES / 4, "{shared} compounds");
    assert!(single >= FILES / 2, "{single} compounds: the emulated server shows the fault");
}

/// Linux's server 6.1 crashes if the reply to a READDIR begins after the first page.
#[test]
fn each_directory_is_listed_by_a_compound_of_its_own() {
    for version in [Version::V41, Version::V40] {
        let link = Link::new();
        let client = link.connect(client::config::Config { version: Some(version), ..config() }).unwrap();
        let caller = root();
        let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
        let lists = Rc::new(Cell::new(0));
        let counted = Rc::clone(&lists);
        link.answer(move |call| {
            if call.is(PROGRAM, PROC_COMPOUND) {
                let ops = call.arguments::<CompoundArgs>().ops;
                let count = ops.iter().filter(|op| op.opnum() == OpNum::READDIR).count();
                assert!(count <= 1, "{count} READDIRs in a compound");
                counted.set(counted.get() + count);
            }
            Answer::Serve
        });
        let part = ListPart { directory: top, position: (0, [0; 8]), bytes: 4096 };
        assert!(link.run(client.list_many(&caller, &[part; 20])).iter().all(Result::is_ok));
        assert_eq!(lists.get(), 20);
    }
}
