//! A mount of a server whose replies are wrong: programs get an error in time, and the mount stays.

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
}

const LIES: [Lie; 12] = [
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
];

/// What programs do on the mount meanwhile.
const PROGRAMS: [&str; 8] =
    ["cat f", "ls -l d", "cp -r d ../copy", "cat big", "echo more > new", "mkdir e", "rm d/1", "df ."];
/// What makes the files that they use; `big` has [`SIZE`] bytes.
const FILES: &str = "rm -rf f d e new big && echo text > f && mkdir d && touch d/1 d/victim && head -c 1193046 /dev/zero > big";
/// A name and a size that are nowhere else in replies.
const NAME: &[u8] = b"victim";
const SIZE: u64 = 1_193_046;
/// The status that asks a client to wait (RFC 1813 §2.6: JUKEBOX; RFC 7530 §13.1.1.3: DELAY).
const DELAY: u32 = 10_008;
/// SEQUENCE (RFC 8881 §18.46).
const SEQUENCE: u32 = 53;
/// Bytes of the header of an accepted reply without a verifier (RFC 5531 §9).
const REPLY_HEADER: usize = 24;

/// Bytes of an endless record; far more than a client needs to refuse it.
const ENDLESS: usize = 64 << 20;
/// The bit of a record's header that marks its last fragment (RFC 5531 §11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// A relay between a mount and a server.
struct Relay {
    port: u16,
    lie: Arc<Mutex<Lie>>,
    /// Replies that it did not forward as they were.
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
                let (from, into) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                thread::spawn(move || copy(from, into));
                thread::spawn(move || {
                    let _ = forward_replies(&server, &client, &lie, &lies, is_v3);
                    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                });
            }
        });
        relay
    }

    fn set(&self, lie: Lie) {
        *self.lie.lock().unwrap_or_else(PoisonError::into_inner) = lie;
    }
}

fn copy(mut from: TcpStream, mut into: TcpStream) {
    let _ = io::copy(&mut from, &mut into);
    let _ = into.shutdown(Shutdown::Both);
}

fn forward_replies(
    mut server: &TcpStream,
    mut client: &TcpStream,
    lie: &Mutex<Lie>,
    lies: &AtomicUsize,
    is_v3: bool,
) -> io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    loop {
        let mut header = [0; 4];
        server.read_exact(&mut header)?;
        let length = u32::from_be_bytes(header) & !LAST_FRAGMENT;
        let mut reply = vec![0; length as usize];
        server.read_exact(&mut reply)?;
        let lie = *lie.lock().unwrap_or_else(PoisonError::into_inner);
        lies.fetch_add(usize::from(lie != Lie::None), Ordering::Relaxed);
        match lie {
            Lie::None => {}
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
            Lie::Endless => return endless(client),
            Lie::Close => return Ok(()),
            Lie::Silence => continue,
            Lie::ParentName => replace(&mut reply, NAME, b"../../"),
            Lie::PathName => replace(&mut reply, NAME, b"vic/im"),
            Lie::Size => replace(&mut reply, &SIZE.to_be_bytes(), &u64::MAX.to_be_bytes()),
            Lie::Delay => {
                reply.truncate(REPLY_HEADER);
                // Version 3: the status, and no attributes. Version 4: the status, no tag, and the first operation with its status.
                let body = if is_v3 { [DELAY, 0, 0, 0, 0] } else { [DELAY, 0, 1, SEQUENCE, DELAY] };
                reply.extend(body.iter().take(if is_v3 { 3 } else { 5 }).flat_map(|word| word.to_be_bytes()));
            }
        }
        client.write_all(&(reply.len() as u32 | LAST_FRAGMENT).to_be_bytes())?;
        client.write_all(&reply)?;
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
            for version in ["3", "4.2"] {
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
    for lie in LIES {
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
        let mut program = shell(top, &format!("cd m && exec timeout -s KILL 50 sh -c '{script}'"));
        program.stdout(Stdio::null()).stderr(Stdio::null());
        (script, program.spawn().expect("a shell"))
    });
    for (script, program) in &mut programs {
        let status = program.wait().expect("a child");
        let what = format!("{version}: {lie:?}: {script}: {status}");
        assert!(status.code().is_some_and(|code| code < 124), "{what}");
    }
    println!("version {version}, {lie:?}: programs ended within {:?}", started.elapsed());
    assert!(relay.lies.load(Ordering::Relaxed) > before, "{version}: {lie:?} was not used");
    relay.set(Lie::None);
}
