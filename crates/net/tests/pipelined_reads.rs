//! Calls that arrive together are all answered, even if their replies are long and the peer sends nothing more.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use net::{Limits, Listeners};
use protocol::nfs3::{
    self, CreateArgs, CreateHow, CreateResult, DirOpArgs, FileHandle, Outcome, Proc, ReadArgs, ReadResult,
    Sattr,
};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply};
use rpc::record::{self, LAST_FRAGMENT};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash};
use vfs::{Backend, MemFs, MemOptions};
use xdr::{Decode, Encode, Opaque, Writer};

const KEY: HandleKey = HandleKey([9; 16]);
const FILE_BYTES: u32 = 1 << 20;

/// Appends a call, as a record, to `out`.
fn append_call(out: &mut Vec<u8>, xid: u32, procedure: Proc, arguments: &impl Encode) {
    let machine_name = Opaque::from_static(b"client");
    let caller = AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids: GroupList::default() };
    let header = CallHeader {
        credential: OpaqueAuth::sys(&caller),
        ..CallHeader::new(xid, nfs3::PROGRAM, nfs3::VERSION, procedure.0)
    };
    let mut writer = Writer::new();
    let start = record::start_record(&mut writer);
    encode_call(&mut writer, &header, arguments);
    record::finish_record(&mut writer, start);
    out.extend_from_slice(writer.inline());
}

fn reply<T: Decode>(stream: &mut TcpStream) -> T {
    let mut mark = [0; record::HEADER_LENGTH];
    stream.read_exact(&mut mark).unwrap();
    let mut body = vec![0; (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize];
    stream.read_exact(&mut body).unwrap();
    parse_reply(Bytes::from(body)).unwrap()
}

#[test]
fn long_replies_do_not_delay_calls_of_the_same_read() {
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let root = FileHandle::new(&KEY.seal(ExportId(1), &backend.root())).unwrap();
    let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (1, 0),
        counts: Arc::default(),
    };
    let settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let server = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // Bounds a failing run.
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let listeners = Listeners { tcp: vec![listener], udp: Vec::new() };
    let running =
        net::serve(server, listeners, Limits { cores: 1, ..Limits::default() }, None, None).unwrap();

    let how = CreateHow::Unchecked(Sattr { size: Some(FILE_BYTES.into()), ..Sattr::default() });
    let where_ = DirOpArgs { dir: root, name: Opaque::from_static(b"file") };
    let mut calls = Vec::new();
    append_call(&mut calls, 1, Proc::CREATE, &CreateArgs { where_, how });
    stream.write_all(&calls).unwrap();
    let Outcome::Ok(created) = reply::<CreateResult>(&mut stream) else { panic!("CREATE failed") };
    let file = created.obj.unwrap();

    calls.clear();
    for xid in 2..10 {
        append_call(&mut calls, xid, Proc::READ, &ReadArgs { file, offset: 0, count: FILE_BYTES });
    }
    stream.write_all(&calls).unwrap();
    for _ in 2..10 {
        let Outcome::Ok(read) = reply::<ReadResult>(&mut stream) else { panic!("READ failed") };
        assert_eq!((read.count, read.data.len()), (FILE_BYTES, FILE_BYTES as usize));
    }
    drop(stream);
    running.shut_down();
}
