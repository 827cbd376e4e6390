//! The state manager's other table: what a client sends after an event that no status reports (the statuses are in
//! `client::nfs4::statuses`). Each row is played against the server, printed and checked.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::fs::{FileSystem, OpenOptions};
use client::results::OpenMode;
use futures_util::future::join_all;
use protocol::nfs4::callback::recall::{CbRecallAnyArgs, CbRecallSlotArgs, recallable};
use protocol::nfs4::callback::sequence::CbSequenceArgs;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbOp};
use protocol::nfs4::types::{Bitmap, OpNum};
use rpc::message::{CallHeader, encode_call};
use xdr::{List, Opaque, Writer};

use crate::world::{Fate, LEASE, Peer, World};

const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };
const WRITE: OpenOptions = OpenOptions { mode: OpenMode::WRITE, ..OpenOptions::READ };

/// A server, and a client of it that the server can call.
struct Scene {
    world: Rc<World>,
    fs: FileSystem,
    peer: Rc<Peer>,
}

/// An event with the requests that follow it in versions 4.0 and 4.1; `None` where the version does not have the event.
struct Row {
    event: &'static str,
    play: fn(&Scene),
    v40: Option<&'static [&'static str]>,
    v41: Option<&'static [&'static str]>,
}

/// Operations that only make an object current, read attributes or renew the lease are left out.
const TABLE: &[Row] = &[
    Row {
        event: "the connection is lost with the reply to a creation (RFC 7530 §3.1.1, RFC 8881 §2.10.6.2: the same request again)",
        play: lose_a_reply,
        v40: Some(&["CREATE", "CREATE"]),
        v41: Some(&["CREATE", "CREATE"]),
    },
    Row {
        event: "the connection is lost while nothing is under way (RFC 8881 §2.10.3.1: the back channel needs one)",
        play: lose_an_idle_connection,
        v40: Some(&[]),
        v41: Some(&["BIND_CONN_TO_SESSION"]),
    },
    Row {
        event: "CB_RECALL of a file that is not open (4.1 kept the open at the server until now)",
        play: |scene| recall(scene, false, false),
        v40: Some(&["DELEGRETURN"]),
        v41: Some(&["DELEGRETURN+CLOSE"]),
    },
    Row {
        event: "CB_RECALL of a file that is open (RFC 8881 §10.4.4: the open becomes known first)",
        play: |scene| recall(scene, true, false),
        v40: Some(&["OPEN", "OPEN_CONFIRM", "DELEGRETURN"]),
        v41: Some(&["OPEN", "DELEGRETURN"]),
    },
    Row {
        event: "CB_RECALL with changed data (RFC 8881 §10.4.4: they are sent first, and stable)",
        play: |scene| recall(scene, false, true),
        v40: Some(&["WRITE", "CLOSE", "DELEGRETURN"]),
        v41: Some(&["WRITE", "DELEGRETURN+CLOSE"]),
    },
    Row {
        event: "CB_RECALL_ANY that leaves one of three (RFC 8881 §20.6)",
        play: recall_any,
        v40: None,
        v41: Some(&["DELEGRETURN+CLOSE", "DELEGRETURN+CLOSE"]),
    },
    Row {
        event: "CB_RECALL_SLOT to one slot, then two creations (RFC 8881 §20.8: the second waits for the first)",
        play: recall_slot,
        v40: None,
        v41: Some(&["CREATE"]),
    },
];

#[test]
fn table_of_events() {
    let mut differs = false;
    for row in TABLE {
        for (version, expected) in [(Version::V40, row.v40), (Version::V41, row.v41)] {
            let Some(expected) = expected else { continue };
            let scene = scene(version);
            (row.play)(&scene);
            let requests = requests(&scene.peer);
            println!("{version}: {}: {}", row.event, requests.join(", "));
            if requests != expected {
                println!("     expected: {}", expected.join(", "));
                differs = true;
            }
        }
    }
    assert!(!differs);
}

/// Creates files with a client that leaves, and mounts with another one.
fn scene(version: Version) -> Scene {
    let world = World::new();
    let (fs, _) = world.mounted_undelegated(Version::V42);
    for name in [&b"any"[..], b"file", b"one", b"two", b"three"] {
        let file = world.run(fs.open(name, &OpenOptions::CREATE)).unwrap();
        world.run(file.write_at(0, Bytes::from_static(b"text"))).unwrap();
        world.run(file.close()).unwrap();
    }
    world.run(fs.client().close()).unwrap();
    let (fs, peer) = world.mounted(version);
    // Until then the server tries to call the client; before that it delegates nothing.
    world.pass(Duration::from_secs(2));
    if version == Version::V40 {
        // Nor to an owner's first OPEN.
        let any = world.run(fs.open(b"any", &BOTH)).unwrap();
        world.run(any.close()).unwrap();
    }
    Scene { world, fs, peer }
}

fn requests(peer: &Peer) -> Vec<String> {
    use OpNum as O;
    let silent = [O::SEQUENCE, O::PUTFH, O::GETFH, O::GETATTR, O::SAVEFH, O::RESTOREFH, O::RENEW];
    let named = |ops: &Vec<OpNum>| {
        let ops = ops.iter().filter(|op| !silent.contains(op));
        ops.map(|op| format!("{op:?}")).collect::<Vec<_>>().join("+")
    };
    peer.compounds.borrow().iter().map(named).filter(|ops| !ops.is_empty()).collect()
}

fn lose_a_reply(scene: &Scene) {
    scene.world.run(scene.fs.stat(b"")).unwrap();
    scene.peer.compounds.borrow_mut().clear();
    let mut is_first = true;
    scene.peer.judge(move |ops| match ops.contains(&OpNum::CREATE) && std::mem::take(&mut is_first) {
        true => Fate::LoseReply,
        false => Fate::Serve,
    });
    scene.world.run(scene.fs.mkdir(b"directory", 0o755)).expect("it is created once");
}

fn lose_an_idle_connection(scene: &Scene) {
    scene.peer.compounds.borrow_mut().clear();
    scene.peer.cut(&scene.world, true);
    scene.peer.cut(&scene.world, false);
    scene.world.pass(LEASE);
}

/// Opens a file twice, writes to it if `writes`, and closes it unless it `stays_open`. Another client then opens it for writing.
fn recall(scene: &Scene, stays_open: bool, writes: bool) {
    let Scene { world, fs, peer } = scene;
    let options = if writes { WRITE } else { OpenOptions::READ };
    let files = [0, 1].map(|_| world.run(fs.open(b"file", &options)).unwrap());
    if writes {
        world.run(files[0].write_at(0, Bytes::from_static(b"data"))).unwrap();
    }
    let mut files = Vec::from(files);
    if !stays_open {
        files.drain(..).for_each(|file| world.run(file.close()).unwrap());
    }
    assert_eq!(fs.client().delegation_counts().held, 1);
    peer.compounds.borrow_mut().clear();
    let (other, _) = world.mounted_undelegated(Version::V42);
    let writer = world.run(other.open(b"file", &WRITE)).unwrap();
    world.pass(Duration::from_secs(2));
    assert_eq!(fs.client().delegation_counts().recalled, 1);
    // The other client's, and both of this one.
    assert_eq!(world.server().counts().opens, if stays_open { 3 } else { 1 });
    drop((files, writer));
}

fn recall_any(scene: &Scene) {
    let Scene { world, fs, peer } = scene;
    for name in [&b"one"[..], b"two", b"three"] {
        let file = world.run(fs.open(name, &OpenOptions::READ)).unwrap();
        world.run(file.close()).unwrap();
    }
    assert_eq!(fs.client().delegation_counts().held, 3);
    peer.compounds.borrow_mut().clear();
    let mut type_mask = Bitmap::default();
    type_mask.insert(recallable::RDATA_DLG);
    call_back(peer, CbOp::RecallAny(CbRecallAnyArgs { objects_to_keep: 1, type_mask }));
    world.pass(Duration::from_secs(2));
    assert_eq!(fs.client().delegation_counts().held, 1);
}

/// Notes only what is sent before the first reply.
fn recall_slot(scene: &Scene) {
    let Scene { world, fs, peer } = scene;
    call_back(peer, CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id: 0 }));
    world.pass(Duration::from_secs(2));
    peer.compounds.borrow_mut().clear();
    peer.judge(|_| Fate::Hold);
    let mut all = pin!(join_all([fs.mkdir(b"first", 0o755), fs.mkdir(b"second", 0o755)]));
    assert!(world.run_for(Duration::ZERO, all.as_mut()).is_none());
    let sent = peer.compounds.borrow().clone();
    peer.release(world);
    assert!(world.run(all).iter().all(Result::is_ok));
    *peer.compounds.borrow_mut() = sent;
}

/// Gives the client a callback in a slot that the server has not used.
fn call_back(peer: &Peer, op: CbOp) {
    let sequence = CbSequenceArgs {
        session_id: peer.session.get(),
        sequence_id: 1,
        slot_id: 7,
        highest_slot_id: 7,
        cache_this: true,
        referring_calls: List::default(),
    };
    let ops = List::new(vec![CbOp::Sequence(sequence), op]).unwrap();
    let arguments = CbCompoundArgs { tag: Opaque::default(), minor_version: 1, callback_ident: 0, ops };
    let header = CallHeader::new(9000, 0x4000_0000, callback::VERSION, callback::PROC_COMPOUND);
    let mut writer = Writer::new();
    encode_call(&mut writer, &header, &arguments);
    peer.call_back(writer.into_bytes());
}
