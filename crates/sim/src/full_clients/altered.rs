//! A client whose server's messages are altered on the way, for fuzzing: lost, repeated, cut, extended, with other statuses, lengths
//! and bytes. The client mounts softly and uses its caches; each operation must end with a result or an error. A second client, whose
//! messages arrive as they are, opens the same file, so that delegations are recalled: callbacks are altered too.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::SetAttributes;
use client::config::{CallbackAddress, Config, Version};
use client::engine::{Engine, RetryPolicy};
use client::error::Error;
use client::fs::{FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::{NewObject, OpenMode};
use client::url::LocalLock;
use futures_util::future::{join_all, select};

use super::host::Programs;
use super::program::caller;
use super::world::{Memory, World};
use crate::backend::Clock;
use crate::rng::Rng;

/// Maximum number of altered messages.
const ALTERATIONS_MAX: usize = 64;
/// The client whose messages are altered.
pub(super) const ALTERED: usize = 0;
/// The file that is recalled last.
const LAST: &[u8] = b"a/last";
/// Interval at which the second client looks whether the first one has a file open.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Looks of the second client: for five minutes.
const LOOKS_MAX: u32 = 3000;
/// Time for which the first client keeps a file open.
const HOLD: Duration = Duration::from_secs(1);
/// Time after which the server has tried to call the client. Before, it delegates nothing.
const CALLABLE: Duration = Duration::from_secs(2);
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
    /// Delegations whose recall the client obeyed.
    pub recalled: u64,
    /// Messages of both clients in both directions.
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
    let (of_client, open_file) = (Rc::clone(&outcome), Rc::new(Cell::new(None)));
    let launch = Box::new(move |host: usize, _: u64, clock: &Arc<Clock>, rng: Rng| {
        launch((version, host), clock, rng, Rc::clone(&of_client), Rc::clone(&open_file))
    });
    let mut world = World::new(Rng::new(1), 2, Memory::All, launch);
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

/// A file that the first client has open, and wants the second one to open.
type OpenFile = Rc<Cell<Option<&'static [u8]>>>;

fn launch(
    (version, host): (Version, usize),
    clock: &Arc<Clock>,
    mut rng: Rng,
    outcome: Rc<Cell<Played>>,
    open_file: OpenFile,
) -> (Arc<Engine>, Programs) {
    let engine = Arc::new(Engine::new(Arc::clone(clock) as Arc<_>, rng.next_u64() as u32));
    let config = Config {
        mount_port: Some(2049),
        version: Some(version),
        retry: RetryPolicy { timeout: Duration::from_secs(5), retries: Some(2), fails_fast: true },
        read_size: 4096,
        write_size: 4096,
        local_lock: LocalLock::All,
        callbacks: CallbackAddress { accepts: true, ..CallbackAddress::default() },
        ..Config::new("server", format!("client {host}").as_bytes(), [1; 8], caller())
    };
    let of_programs = Arc::clone(&engine);
    let programs = Box::pin(async move {
        let Ok(client) = Client::connect(of_programs, config).await else { return Ok(()) };
        let keeper = client.clone();
        let run = async {
            match host {
                ALTERED => run(client, &outcome, &open_file).await,
                _ => conflict(client, &open_file).await,
            }
        };
        // A client that cannot close ends all the same.
        select(Box::pin(run), Box::pin(keeper.run())).await;
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

async fn run(client: Client, outcome: &Cell<Played>, open_file: &OpenFile) {
    let tally = Tally(outcome);
    let mounted = FileSystem::mount(client.clone(), caller(), b"/export").await;
    if let Some((fs, _)) = tally.note(mounted) {
        names(&fs, &tally).await;
        client.engine().sleep(CALLABLE).await;
        content(&fs, &tally, open_file).await;
        recalled_for_reading(&fs, &tally, open_file).await;
        tally.note(remove_all(&fs).await);
    }
    open_file.set(None);
    tally.note(client.close().await);
    outcome.set(Played { recalled: client.delegation_counts().recalled, ..outcome.get() });
}

/// Opens and changes each file that the first client has open.
async fn conflict(client: Client, open_file: &OpenFile) {
    let Ok((fs, _)) = FileSystem::mount(client.clone(), caller(), b"/export").await else { return };
    for _ in 0..LOOKS_MAX {
        client.engine().sleep(LOOK_INTERVAL).await;
        let Some(name) = open_file.take() else { continue };
        let options = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };
        if let Ok(file) = fs.open(name, &options).await {
            let _ = file.write_at(0, Bytes::from_static(b"other")).await;
            let _ = file.close().await;
        }
        if name == LAST {
            break;
        }
    }
    let _ = client.close().await;
}

/// Waits with an open file until the second client has opened it too, if all goes well.
async fn hold(fs: &FileSystem, open_file: &OpenFile, name: &'static [u8]) {
    open_file.set(Some(name));
    fs.client().engine().sleep(HOLD).await;
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
async fn content(fs: &FileSystem, tally: &Tally<'_>, open_file: &OpenFile) {
    let Some(file) = tally.note(fs.open(b"a/file", &OpenOptions::CREATE).await) else { return };
    for number in 0..4 {
        tally.note(file.write_at(number * 10_000, Bytes::from(vec![number as u8; 10_000])).await);
    }
    hold(fs, open_file, b"a/file").await;
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

/// Reads a file under a delegation, which is recalled.
async fn recalled_for_reading(fs: &FileSystem, tally: &Tally<'_>, open_file: &OpenFile) {
    let Some(file) = tally.note(fs.open(LAST, &OpenOptions::CREATE).await) else { return };
    tally.note(file.close().await);
    let files = [0, 1].map(|_| fs.open(LAST, &OpenOptions::READ));
    let files = join_all(files).await.into_iter().filter_map(|file| tally.note(file)).collect::<Vec<_>>();
    hold(fs, open_file, LAST).await;
    for file in files {
        tally.note(file.read_at(0, 100).await);
        tally.note(file.close().await);
    }
}

async fn remove_all(fs: &FileSystem) -> Result<(), Error> {
    for name in [&b"a/file"[..], LAST, b"a/pipe", b"pipe", b"link"] {
        fs.unlink(name).await?;
    }
    fs.rmdir(b"a").await
}
