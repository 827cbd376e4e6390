//! A client whose server's messages are altered on the way, for fuzzing: lost, repeated, cut, extended, with other statuses, lengths
//! and bytes. The client mounts softly and uses its caches; each operation must end with a result or an error.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::config::{Config, Version};
use client::engine::{Engine, RetryPolicy};
use client::error::Error;
use client::fs::{FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::NewObject;
use client::url::LocalLock;
use futures_util::future::select;

use super::host::Programs;
use super::program::caller;
use super::world::{Memory, World};
use crate::backend::Clock;
use crate::rng::Rng;

/// Maximum number of altered messages.
const ALTERATIONS_MAX: usize = 64;
/// Bytes of an input for each altered message.
const ALTERATION_BYTES: usize = 5;
/// Bytes before the results of an accepted reply with AUTH_NONE (RFC 5531 §9).
const REPLY_HEADER: usize = 24;
/// Words that lengths, counts, offsets and discriminants often are not.
const WORDS: [u32; 8] = [0, 1, 2, 255, 1 << 20, 0x7fff_ffff, 0x8000_0000, u32::MAX];
/// Statuses of NFS that change what a client does next.
const STATUSES: [u32; 16] =
    [1, 2, 5, 10, 13, 28, 70, 10001, 10004, 10006, 10008, 10011, 10022, 10025, 10052, 10068];

/// The outcome of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// Operations with a result.
    pub succeeded: usize,
    /// Operations with an error.
    pub failed: usize,
    /// Messages in both directions.
    pub messages: u64,
}

/// Plays one client. The first byte of `data` selects the version. Each altered message then has 5 bytes: the number of messages
/// before it that arrive as they are, the kind of alteration, two bytes for a place, and a value.
///
/// # Panics
/// Panics if an operation does not end within four hours of virtual time, or the server's tables are inconsistent.
pub fn play(data: &[u8]) -> Played {
    let (version, alterations) = data.split_first().unwrap_or((&0, &[]));
    let version = Version::ALL[usize::from(*version) % Version::ALL.len()];
    let outcome = Rc::new(Cell::new(Played::default()));
    let of_client = Rc::clone(&outcome);
    let launch = Box::new(move |_: usize, _: u64, clock: &Arc<Clock>, rng: Rng| {
        launch(version, clock, rng, Rc::clone(&of_client))
    });
    let mut world = World::new(Rng::new(1), 1, Memory::All, launch);
    world.end_faults();
    world
        .alter_messages(alterations.chunks_exact(ALTERATION_BYTES).take(ALTERATIONS_MAX).map(Alteration::of));
    if let Err(why) = world.run() {
        panic!("{version}: {why}");
    }
    Played { messages: world.messages, ..outcome.get() }
}

/// An alteration of a message to the client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alteration {
    /// Messages before it that are not altered.
    pub(super) skipped: u8,
    kind: u8,
    place: usize,
    value: u8,
}

impl Alteration {
    fn of(bytes: &[u8]) -> Self {
        let place = usize::from(bytes[2]) << 8 | usize::from(bytes[3]);
        Self { skipped: bytes[0], kind: bytes[1], place, value: bytes[4] }
    }

    /// Returns the messages that arrive instead of `message`.
    pub(super) fn apply(self, message: &Bytes) -> Vec<Bytes> {
        let mut bytes = message.to_vec();
        let place = self.place % bytes.len().max(1);
        let word_at = place & !3;
        match self.kind % 9 {
            0 => return Vec::new(),
            1 => return vec![message.clone(), message.clone()],
            2 => bytes.truncate(place),
            3 => bytes.extend(std::iter::repeat_n(self.value, self.place)),
            4 => set_word(&mut bytes, word_at, WORDS[usize::from(self.value) % WORDS.len()]),
            5 => set_word(&mut bytes, REPLY_HEADER, STATUSES[usize::from(self.value) % STATUSES.len()]),
            6 => set_word(&mut bytes, word_at, STATUSES[usize::from(self.value) % STATUSES.len()]),
            7 => bytes.iter_mut().skip(REPLY_HEADER.max(place)).for_each(|byte| *byte = self.value),
            _ => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte = self.value),
        }
        vec![bytes.into()]
    }
}

fn set_word(bytes: &mut [u8], at: usize, word: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

fn launch(
    version: Version,
    clock: &Arc<Clock>,
    mut rng: Rng,
    outcome: Rc<Cell<Played>>,
) -> (Arc<Engine>, Programs) {
    let engine = Arc::new(Engine::new(Arc::clone(clock) as Arc<_>, rng.next_u64() as u32));
    let config = Config {
        mount_port: Some(2049),
        version: Some(version),
        retry: RetryPolicy { timeout: Duration::from_secs(5), retries: Some(2), fails_fast: true },
        read_size: 4096,
        write_size: 4096,
        local_lock: LocalLock::All,
        callbacks: Default::default(),
        ..Config::new("server", b"client", [1; 8], caller())
    };
    let of_programs = Arc::clone(&engine);
    let programs = Box::pin(async move {
        let Ok(client) = Client::connect(of_programs, config).await else { return Ok(()) };
        let keeper = client.clone();
        // A client that cannot close ends all the same.
        select(Box::pin(run(client, &outcome)), Box::pin(keeper.run())).await;
        Ok(())
    });
    (engine, programs)
}

/// Counts the outcomes of operations.
struct Tally<'a>(&'a Cell<Played>);

impl Tally<'_> {
    fn note<T, E>(&self, result: Result<T, E>) -> Option<T> {
        let mut played = self.0.get();
        match result {
            Ok(_) => played.succeeded += 1,
            Err(_) => played.failed += 1,
        }
        self.0.set(played);
        result.ok()
    }
}

async fn run(client: Client, outcome: &Cell<Played>) {
    let tally = Tally(outcome);
    let mounted = FileSystem::mount(client.clone(), caller(), b"/export").await;
    if let Some((fs, _)) = tally.note(mounted) {
        names(&fs, &tally).await;
        content(&fs, &tally).await;
        tally.note(remove_all(&fs).await);
    }
    tally.note(client.close().await);
}

/// Creates, lists and changes objects.
async fn names(fs: &FileSystem, tally: &Tally<'_>) {
    tally.note(fs.mkdir(b"a", 0o755).await);
    tally.note(fs.symlink(b"a/file", b"link").await);
    tally.note(fs.mknod(b"a/pipe", &NewObject::Fifo, 0o600).await);
    tally.note(fs.set_attributes(b"a", &SetAttributes::with_mode(0o700), true).await);
    tally.note(fs.rename(b"a/pipe", b"pipe").await);
    tally.note(fs.link(b"pipe", b"a/pipe").await);
    tally.note(fs.read_link(b"link").await);
    tally.note(fs.read_dir(b"a", true).await);
    tally.note(fs.access(b"a", 1).await);
    tally.note(fs.stat_fs(b"").await);
    let mut walk = fs.walk(fs.root(), usize::MAX);
    // A server that lies can show the same directory below itself, without end.
    for _ in 0..100 {
        let Some(listed) = walk.next().await else { break };
        tally.note(listed);
    }
}

/// Writes, locks and reads a file.
async fn content(fs: &FileSystem, tally: &Tally<'_>) {
    let Some(file) = tally.note(fs.open(b"a/file", &OpenOptions::CREATE).await) else { return };
    for number in 0..4 {
        tally.note(file.write_at(number * 10_000, Bytes::from(vec![number as u8; 10_000])).await);
    }
    tally.note(file.sync().await);
    tally.note(file.close().await);
    let Some(file) = tally.note(fs.open(b"link", &OpenOptions::READ).await) else { return };
    let (owner, range) = (LockOwner::Process(1), LockRange::WHOLE);
    tally.note(file.try_lock(owner, range, LockKind::Shared).await);
    tally.note(file.read_at(5_000, 20_000).await);
    tally.note(file.unlock(owner, range).await);
    tally.note(file.stat().await);
    tally.note(file.close().await);
}

async fn remove_all(fs: &FileSystem) -> Result<(), Error> {
    for name in [&b"a/file"[..], b"a/pipe", b"pipe", b"link"] {
        fs.unlink(name).await?;
    }
    fs.rmdir(b"a").await
}
