//! A mount of a server whose replies are wrong: programs get an error in time, and the mount stays.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{ENFYS, Server, await_that, can_mount, is_mounted, sh, shell};

/// What a relay does with the server's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Forwards them as they are.
    None,
    /// Replaces all but the transaction ID.
    Garbage,
    /// Sends half of each.
    Half,
    /// Sends more than each.
    Longer,
    /// Changes one byte behind the header.
    Altered,
    /// Answers another call.
    OtherCall,
    /// Begins records that never end.
    Endless,
    /// Closes the connection instead.
    Close,
    /// Sends nothing.
    Silence,
    /// Sends a name that leads out of its directory instead of [`NAME`].
    ParentName,
    /// Sends a name with a slash instead of [`NAME`].
    PathName,
    /// Sends an impossible size instead of [`SIZE`].
    Size,
    /// Answers JUKEBOX or DELAY, always.
    Delay,
    /// Says after [`LONELY`] that a directory goes on at its start.
    Cookie,
    /// Calls back in a session that does not exist before each reply.
    Callback,
    /// From version 4.1 on: answers in another session.
    Session,
    /// In version 3: has another verifier in each reply to WRITE and COMMIT.
    Verifier,
}

const LIES: [Lie; 16] = [
    Lie::Garbage,
    Lie::Half,
    Lie::Longer,
    Lie::Altered,
    Lie::OtherCall,
    Lie::Endless,
    Lie::Close,
    Lie::Silence,
    Lie::ParentName,
    Lie::PathName,
    Lie::Size,
    Lie::Delay,
    Lie::Cookie,
    Lie::Callback,
    Lie::Session,
    Lie::Verifier,
];

/// What programs do on the mount meanwhile.
const PROGRAMS: [&str; 10] = [
    "cat f",
    "ls -l d",
    "ls loop",
    "cp -r d ../copy",
    "cat big",
    "echo more > new",
    "dd if=/dev/zero of=more bs=64k count=9 conv=fsync",
    "mkdir e",
    "rm d/1",
    "df .",
];
/// What makes the files that they use; `big` has [`SIZE`] bytes.
const FILES: &str =
    "rm -rf f d e new big more loop && echo text > f && mkdir d loop && touch d/1 d/victim loop/lonely &&
    head -c 1193046 /dev/zero > big";
/// A name and a size that are nowhere else in replies.
const NAME: &[u8] = b"victim";
const SIZE: u64 = 1_193_046;
/// The only name in its directory.
const LONELY: &[u8] = b"lonely";
/// The status that asks a client to wait (RFC 1813 §2.6: JUKEBOX; RFC 7530 §13.1.1.3: DELAY).
const DELAY: u32 = 10_008;
/// The session ID in the reply of a compound without a tag that begins with SEQUENCE: behind two statuses, the tag's length, the number
/// of results and the operation (RFC 8881 §16.2, §18.46).
const SESSION: std::ops::Range<usize> = REPLY_HEADER + 20..REPLY_HEADER + 36;
/// Bytes of a write verifier, with which replies of version 3 to WRITE and COMMIT end (RFC 1813 §3.3.7, §3.3.21).
const VERIFIER: usize = 8;
const NFS_PROGRAM: u32 = 100_003;
/// SEQUENCE (RFC 8881 §18.46).
const SEQUENCE: u32 = 53;
/// Procedures of version 3 (RFC 1813 §3.3).
const WRITE: u32 = 7;
const COMMIT: u32 = 21;
/// Bytes of the header of an accepted reply without a verifier (RFC 5531 §9).
const REPLY_HEADER: usize = 24;

/// Bytes of an endless record; far more than a client needs to refuse it.
const ENDLESS: usize = 64 << 20;
/// The bit of a record's header that marks its last fragment (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// A call without a reply, by its transaction ID: the procedure of version 3, or the first operation of a compound.
type Calls = Mutex<HashMap<u32, u32>>;

/// A relay between a mount and a server.
struct Relay {
    port: u16,
    lie: Arc<Mutex<Lie>>,
    /// Replies that it did not forward as they were.
    lies: Arc<AtomicUsize>,
}

/// One connection of a relay.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    is_v3: bool,
    calls: Calls,
    lie: Arc<Mutex<Lie>>,
    lies: Arc<AtomicUsize>,
}

impl Relay {
    fn start(server: &Server, is_v3: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let relay = Self { port, lie: Arc::new(Mutex::new(Lie::None)), lies: Arc::default() };
        let (lie, lies, to) = (Arc::clone(&relay.lie), Arc::clone(&relay.lies), server.address());
        // The threads end with their connections, and with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(to) else { continue };
                let (lie, lies) = (Arc::clone(&lie), Arc::clone(&lies));
                let calls = Calls::default();
                let connection = Arc::new(Connection { client, server, is_v3, calls, lie, lies });
                for forward in [Connection::forward_calls, Connection::forward_replies] {
                    let connection = Arc::clone(&connection);
                    thread::spawn(move || {
                        let _ = forward(&connection);
                        for stream in [&connection.client, &connection.server] {
                            let _ = stream.shutdown(Shutdown::Both);
                        }
                    });
                }
            }
        });
        relay
    }

    fn set(&self, lie: Lie) {
        *self.lie.lock().unwrap_or_else(PoisonError::into_inner) = lie;
    }
}

impl Connection {
    fn forward_calls(&self) -> io::Result<()> {
        loop {
            let call = read_record(&self.client)?;
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let is_mount = word(&call, 12) != NFS_PROGRAM;
            let what = if self.is_v3 { word(&call, 20) } else { first_operation(&call) };
            calls.insert(word(&call, 0), if is_mount { 0 } else { what });
            drop(calls);
            write_record(&self.server, &call)?;
        }
    }

    fn forward_replies(&self) -> io::Result<()> {
        loop {
            let truth = read_record(&self.server)?;
            let call = self.calls.lock().unwrap_or_else(PoisonError::into_inner).remove(&word(&truth, 0));
            let lie = *self.lie.lock().unwrap_or_else(PoisonError::into_inner);
            let mut reply = truth.clone();
            self.falsify(&mut reply, lie, call);
            self.lies.fetch_add(usize::from(reply != truth || lie == Lie::Callback), Ordering::Relaxed);
            match lie {
                Lie::Endless => return endless(&self.client),
                Lie::Close => return Ok(()),
                Lie::Silence => continue,
                Lie::Callback => write_record(&self.client, &callback())?,
                _ => {}
            }
            write_record(&self.client, &reply)?;
        }
    }

    /// Makes a reply the lie that it is to be.
    fn falsify(&self, reply: &mut Vec<u8>, lie: Lie, call: Option<u32>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        match lie {
            Lie::None | Lie::Callback => {}
            Lie::Garbage => {
                reply.iter_mut().skip(4).enumerate().for_each(|(at, byte)| *byte = (at * 89 + 7) as u8)
            }
            Lie::Half => reply.truncate(reply.len() / 8 * 4),
            Lie::Longer => reply.extend([0xff; 64]),
            Lie::Altered => {
                // Another place each time, behind the header of an accepted reply.
                let number = NUMBER.fetch_add(1, Ordering::Relaxed) as usize;
                let body = reply.get_mut(REPLY_HEADER..).unwrap_or_default();
                let place = number * 7919 % body.len().max(1);
                body.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 0x55);
            }
            Lie::OtherCall => reply[0] ^= 0x80,
            Lie::Endless | Lie::Close | Lie::Silence => reply.clear(),
            Lie::ParentName => replace(reply, NAME, b"../../"),
            Lie::PathName => replace(reply, NAME, b"vic/im"),
            Lie::Size => replace(reply, &SIZE.to_be_bytes(), &u64::MAX.to_be_bytes()),
            Lie::Delay => {
                reply.truncate(REPLY_HEADER);
                // Version 3: the status, and no attributes. Version 4: the status, no tag, and the first operation with its status.
                let first = call.unwrap_or_default();
                let body = if self.is_v3 { &[DELAY, 0, 0][..] } else { &[DELAY, 0, 1, first, DELAY] };
                reply.extend(body.iter().flat_map(|word| word.to_be_bytes()));
            }
            Lie::Cookie => go_on_at_the_start(reply, self.is_v3),
            Lie::Session => {
                if call == Some(SEQUENCE) {
                    reply.get_mut(SESSION).unwrap_or_default().reverse();
                }
            }
            Lie::Verifier => {
                if matches!(call, Some(WRITE | COMMIT)) && reply.len() > REPLY_HEADER + VERIFIER {
                    let verifier = u64::from(NUMBER.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
                    let start = reply.len() - VERIFIER;
                    reply[start..].copy_from_slice(&verifier);
                }
            }
        }
    }
}

/// Returns the big-endian number at a place of a message; 0 behind its end.
fn word(message: &[u8], at: usize) -> u32 {
    let bytes = message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_be_bytes)
}

/// Returns the first operation of a compound's call (RFC 5531 §9, RFC 8881 §16.2).
fn first_operation(call: &[u8]) -> u32 {
    let skip_opaque = |at: usize| at + 4 + word(call, at).next_multiple_of(4) as usize;
    // Six words, then credential and verifier, each with a flavor; the tag, the minor version and the number of operations.
    let verifier = skip_opaque(24 + 4);
    let tag = skip_opaque(verifier + 4);
    word(call, skip_opaque(tag) + 8)
}

fn read_record(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mut header = [0; 4];
        stream.read_exact(&mut header)?;
        let header = u32::from_be_bytes(header);
        let start = record.len();
        record.resize(start + (header & !LAST_FRAGMENT) as usize, 0);
        stream.read_exact(&mut record[start..])?;
        if header & LAST_FRAGMENT != 0 {
            return Ok(record);
        }
    }
}

fn write_record(mut stream: &TcpStream, record: &[u8]) -> io::Result<()> {
    let header = (record.len() as u32 | LAST_FRAGMENT).to_be_bytes();
    stream.write_all(&[&header, record].concat())
}

/// Returns a call of CB_COMPOUND with CB_SEQUENCE for an unknown session (RFC 8881 §20.1, §20.9).
fn callback() -> Vec<u8> {
    const CALLBACK_PROGRAM: u32 = 0x4000_0000;
    const CB_SEQUENCE: u32 = 11;
    // The call, without credential and verifier; the compound: no tag, minor version 1, no identifier, one operation.
    let call = [0x1234_5678, 0, 2, CALLBACK_PROGRAM, 1, 1, 0, 0, 0, 0];
    let compound = [0, 1, 0, 1, CB_SEQUENCE];
    // An unknown session; sequence ID 1 of slot 0 of one slot, not cached, no referring calls.
    let arguments = [0x5555_5555; 4].into_iter().chain([1, 0, 0, 0, 0]);
    call.into_iter().chain(compound).chain(arguments).flat_map(u32::to_be_bytes).collect()
}

/// Makes the entry of [`LONELY`] one before the start of its directory, and not the last one.
fn go_on_at_the_start(reply: &mut [u8], is_v3: bool) {
    let Some(name) = reply.windows(LONELY.len()).position(|bytes| bytes == LONELY) else { return };
    // Version 3 has the cookie behind the name (RFC 1813 §3.3.16), version 4 before its length (RFC 8881 §18.23).
    let cookie = if is_v3 { name + LONELY.len().next_multiple_of(4) } else { name - 12 };
    let end = reply.len() - 4;
    if let Some(cookie) = reply.get_mut(cookie..cookie + 8) {
        cookie.fill(0);
        reply[end..].fill(0);
    }
}

/// Replaces each occurrence of some bytes by as many others.
fn replace(reply: &mut [u8], from: &[u8], to: &[u8]) {
    for at in 0..reply.len().saturating_sub(from.len() - 1) {
        if reply[at..].starts_with(from) {
            reply[at..at + from.len()].copy_from_slice(to);
        }
    }
}

/// Sends fragments of which none is the last one.
fn endless(mut client: &TcpStream) -> io::Result<()> {
    let fragment = vec![0; 1 << 16];
    for _ in 0..ENDLESS / fragment.len() {
        client.write_all(&(fragment.len() as u32).to_be_bytes())?;
        client.write_all(&fragment)?;
    }
    Ok(())
}

#[test]
fn programs_get_an_error_and_the_mount_stays() {
    if can_mount() {
        thread::scope(|scope| {
            for version in ["3", "4.0", "4.1", "4.2"] {
                scope.spawn(move || mount_of_a_lying_server(version));
            }
        });
    }
}

fn mount_of_a_lying_server(version: &str) {
    let server = Server::with_lease(10);
    let relay = Relay::start(&server, version == "3");
    let top = tempfile::tempdir().expect("a temporary directory");
    let url = format!("nfs://127.0.0.1:{0}/export?version={version}&mountport={0}", relay.port);
    let options = "soft,timeo=3,retrans=1,noac,nodelegations";
    sh(top.path(), &format!("mkdir m; {ENFYS} mount '{url}' m -o {options}"));
    let directory = top.path().join("m");
    sh(&directory, FILES);
    let is_of_version = |lie: &Lie| match lie {
        Lie::Verifier => version == "3",
        Lie::Session => ["4.1", "4.2"].contains(&version),
        _ => true,
    };
    for lie in LIES.into_iter().filter(is_of_version) {
        run_programs(top.path(), version, &relay, lie);
        assert!(is_mounted(&directory), "{version}: {lie:?}");
        await_that("the mount works again", || {
            let script = format!("{FILES} && grep -qx text f");
            let works =
                shell(&directory, &script).stderr(Stdio::null()).status().is_ok_and(|end| end.success());
            thread::sleep(Duration::from_millis(if works { 0 } else { 100 }));
            works
        });
    }
    sh(top.path(), &format!("{ENFYS} umount m"));
    assert_eq!(sh(&server.export(), "cat f; ls d"), "text\n1\nvictim\n", "{version}");
    // No copy was made outside of its target.
    sh(top.path(), "rm -rf copy");
    assert_eq!(sh(top.path(), "ls"), "m\n", "{version}");
}

/// Runs all programs in the mount `m` while the relay lies. Any end of them will do, but one by a time limit.
fn run_programs(top: &Path, version: &str, relay: &Relay, lie: Lie) {
    relay.set(lie);
    let before = relay.lies.load(Ordering::Relaxed);
    let started = Instant::now();
    let mut programs = PROGRAMS.map(|script| {
        let mut program = shell(top, &format!("exec timeout -s KILL 50 sh -c 'cd m && {script}'"));
        program.stdout(Stdio::null()).stderr(Stdio::null());
        (script, program.spawn().expect("a shell"))
    });
    let mut is_synced = false;
    for (script, program) in &mut programs {
        let status = program.wait().expect("a child");
        is_synced |= script.contains("fsync") && status.success();
        let what = format!("{version}: {lie:?}: {script}: {status}");
        assert!(status.code().is_some_and(|code| code < 124), "{what}");
    }
    relay.set(Lie::None);
    // After fsync the server has the data, or the program an error.
    if lie == Lie::Verifier && is_synced {
        assert_eq!(sh(top, "stat -c %s m/more"), format!("{}\n", 9 << 16));
    }
    println!("version {version}, {lie:?}: programs ended within {:?}", started.elapsed());
    assert!(relay.lies.load(Ordering::Relaxed) > before, "{version}: {lie:?} was not used");
}
