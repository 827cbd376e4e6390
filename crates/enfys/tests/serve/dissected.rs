//! Callbacks that no available client handles are checked by tshark.

use std::process::Command;

use protocol::nfs4::callback::notify::notify_type;
use protocol::nfs4::callback::{CbCompoundArgs, CbOp};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::delegation::{DirDelegation, GetDirDelegationArgs};
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::types::{Bitmap, Component, Outcome, Time};
use rpc::message::CallHeader;
use xdr::{Decode, Reader};

use crate::client::{Client, Client4};
use crate::server::{Server, TestDir, with};

/// Gets a delegation of `/export` with notifications.
fn hold(client: &mut Client4) {
    let at_once = Time { seconds: 0, nanoseconds: 0 };
    let ask = GetDirDelegationArgs {
        signal_available: false,
        notification_types: Bitmap::of(&[notify_type::ADD_ENTRY]),
        child_attribute_delay: at_once,
        directory_attribute_delay: at_once,
        child_attributes: Bitmap::EMPTY,
        directory_attributes: Bitmap::EMPTY,
    };
    let name = Component::from_static(b"export");
    let ops = vec![Op::PutRootFh, Op::Lookup(LookupArgs { name }), Op::GetDirDelegation(ask)];
    let granted = client.run(ops).expect("a directory");
    let Some(OpResult::GetDirDelegation(Outcome::Ok(DirDelegation::Granted(_)))) = granted.last() else {
        panic!("nothing is delegated: {granted:?}");
    };
}

/// Returns tshark's dissection of a record of the server; `None` if it is not installed.
fn dissect(dir: &TestDir, record: &[u8], shown: &[&str]) -> Option<String> {
    let marked = u32::try_from(record.len()).expect("a short record") | 1 << 31;
    let bytes = marked.to_be_bytes().into_iter().chain(record.iter().copied());
    let hex: Vec<String> = bytes.map(|byte| format!("{byte:02x}")).collect();
    let (text, capture) = (dir.file("record", &format!("0000 {}\n", hex.join(" "))), dir.path("record.pcap"));
    let packet = |program: &mut Command| program.output().ok().filter(|output| output.status.success());
    packet(Command::new("text2pcap").args(["-q", "-T", "2049,700"]).args([&text, &capture]))?;
    let read = ["-n", "-d", "tcp.port==2049,rpc", "-T", "fields", "-e"];
    let output = packet(Command::new("tshark").arg("-r").arg(&capture).args(read).args(shown))?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn directory_notifications_are_well_formed() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export]));
    let mut holder = Client4::reachable(server.address);
    hold(&mut holder);
    let mut other = Client::connect(server.address);
    let directory = other.mount("/export").expect("an export");
    other.create(directory, "a new name").expect("a file");

    let call = holder.called();
    let mut reader = Reader::new(call.clone());
    CallHeader::parse(&mut reader).unwrap();
    let args = CbCompoundArgs::decode(&mut reader).unwrap();
    assert!(matches!(args.ops[..], [CbOp::Sequence(_), CbOp::Notify(_)]), "{args:?}");
    // CB_SEQUENCE is operation 11 of callbacks, CB_NOTIFY 6 (RFC 8881 §20.9, §20.4).
    match dissect(&dir, &call, &["nfs.cb.operation"]) {
        None => println!("skipped: tshark and text2pcap are not installed"),
        Some(operations) => {
            assert_eq!(operations, "11,6");
            assert_eq!(dissect(&dir, &call, &["_ws.malformed"]).as_deref(), Some(""));
        }
    }
    server.stop();
}
