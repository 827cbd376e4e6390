//! The format, and damaged traces.

use std::io::Cursor;

use super::{Flags, Kind, Record, Summary, Trace, TraceWriter};
use crate::targets::How;

fn records() -> Vec<Record> {
    let record = |at_us, op, path: &str| Record {
        at_us,
        took_us: 7,
        client: 1,
        stream: 2,
        path: Some(path.to_owned()),
        ..Record::new(op)
    };
    let how = How { sync: true, ..How::CREATE };
    vec![
        Record { file: Some(0), how: Some(Flags(how)), size: Some(0), ..record(0, Kind::Open, "a/\"é\n") },
        Record {
            file: Some(0),
            path: None,
            offset: Some(5),
            length: Some(10),
            result: Some(10),
            ..record(10, Kind::Write, "")
        },
        Record { file: Some(0), path: None, ..record(20, Kind::Close, "") },
        Record { error: Some(libc::ENOENT), ..record(30, Kind::Stat, "b") },
        Record { to: Some("../anything".to_owned()), ..record(40, Kind::Symlink, "l") },
    ]
}

fn text() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.trace");
    let writer = TraceWriter::create(&path, "a test").unwrap();
    records().iter().for_each(|record| writer.add(record));
    assert_eq!(writer.finish(None), Ok(5));
    std::fs::read(&path).unwrap()
}

#[test]
fn a_trace_is_read_as_it_was_written() {
    let trace = Trace::parse(Cursor::new(text())).unwrap();
    let mut expected = records();
    // Operations on an open file have its path.
    expected[1].path = Some("a/\"é\n".to_owned());
    expected[2].path = Some("a/\"é\n".to_owned());
    assert_eq!((trace.records.clone(), &trace.damage), (expected, &None));
    assert_eq!((trace.header.source.as_str(), trace.size()), ("a test", (2, 3)));
    let summary = Summary::of(&trace);
    assert_eq!((summary.clients, summary.streams, summary.duration.as_micros()), (1, 1, 47));
    assert_eq!((summary.operations[&Kind::Write].bytes, summary.operations[&Kind::Stat].failed), (10, 1));
}

#[test]
fn a_trace_that_is_cut_anywhere_has_the_operations_before() {
    let (text, all) = (text(), Trace::parse(Cursor::new(text())).unwrap().records);
    let header = text.iter().position(|byte| *byte == b'\n').unwrap();
    for length in 0..text.len() {
        let cut = &text[..length];
        let lines = cut.iter().filter(|byte| **byte == b'\n').count();
        let Ok(trace) = Trace::parse(Cursor::new(cut)) else {
            assert!(length <= header, "{length}: the header is whole");
            continue;
        };
        assert_eq!(trace.records, all[..lines - 1], "{length}");
        let damage = trace.damage.expect("the cut is noticed");
        assert!(damage.contains(&format!("operation {lines}: ")) && damage.contains("truncated"), "{damage}");
    }
}

#[test]
fn damage_is_named_with_its_operation() {
    let text = String::from_utf8(text()).unwrap();
    let cases = [
        ("\"path\":\"b\"", "\"path\":\"../b\"", "operation 4: path \"../b\": expected names below"),
        ("\"path\":\"b\"", "\"path\":\"/b\"", "operation 4: path \"/b\""),
        ("\"op\":\"stat\"", "\"op\":\"fly\"", "operation 4: unknown variant `fly`"),
        ("\"op\":\"stat\"", "\"op\":\"chmod\"", "operation 4: chmod: no `mode`"),
        (
            "\"client\":1,\"stream\":2,\"op\":\"stat\"",
            "\"client\":10000,\"stream\":2,\"op\":\"stat\"",
            "operation 4: client 10000",
        ),
        ("\"length\":10", "\"length\":10000000000", "operation 2: write: a number is too large"),
        ("\"op\":\"close\",\"file\":0", "\"op\":\"close\",\"file\":9", "operation 3: file 9 was not opened"),
        ("{\"end\":5}", "{\"end\":6}", "5 operations, but the last line says 6"),
    ];
    for (good, bad, why) in cases {
        assert!(text.contains(good), "{good}: {text}");
        let trace = Trace::parse(Cursor::new(text.replacen(good, bad, 1))).unwrap();
        let damage = trace.damage.unwrap_or_default();
        assert!(damage.starts_with(why), "{bad}: {damage}");
    }
    for (text, why) in [
        ("{}\n", "not a trace"),
        (&text.replacen("\"format_version\":1", "\"format_version\":2", 1), "version 2 of the format"),
    ] {
        assert!(Trace::parse(Cursor::new(text)).unwrap_err().starts_with(why));
    }
}
