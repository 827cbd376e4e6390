//! Servers that send less than a READ asks for, as RFC 8881 §18.22.3 allows.

use client::config::Version;
use client::errno::Errno;
use client::fs::{FileSystem, WholeFile};
use protocol::nfs4::compound::{CompoundArgs, Op};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM};

use crate::link::{Answer, Call, Link, config, root};

/// The bytes that the server sends at most.
const PART: u32 = 100;

/// Returns the record of a call in which no READ asks for more than the server sends.
fn with_short_reads(call: &Call) -> Answer {
    if !call.is(PROGRAM, PROC_COMPOUND) {
        return Answer::Serve;
    }
    let mut record = call.record.to_vec();
    let mut end = record.len();
    for op in call.arguments::<CompoundArgs>().ops.iter().rev() {
        if let Op::Read(args) = op {
            record[end - 4..end].copy_from_slice(&args.count.min(PART).to_be_bytes());
        }
        end -= xdr::to_bytes(op).len();
    }
    Answer::ServeOther(record.into())
}

#[test]
fn many_files_are_read_whole_from_a_server_with_short_reads() {
    for version in [Version::V40, Version::V41] {
        let link = Link::new();
        let client = link.connect(client::config::Config { version: Some(version), ..config() }).unwrap();
        let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
        let contents: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 30 * usize::from(number)]).collect();
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let paths: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let files: Vec<WholeFile<'_>> = paths
            .iter()
            .zip(&contents)
            .map(|(path, content)| WholeFile { path, mode: 0o644, data: content.clone().into() })
            .collect();
        for written in link.run(fs.write_many(&files)) {
            written.unwrap();
        }
        link.answer(with_short_reads);
        let read = link.run(fs.read_many(&paths, 1000));
        for (data, content) in read.into_iter().zip(&contents) {
            assert_eq!(data.unwrap(), content, "{version:?}");
        }
        let long = link.run(fs.read_many(&paths[19..], 500)).remove(0);
        assert_eq!(long.unwrap_err().errno(), Errno::EFBIG, "{version:?}");
    }
}
