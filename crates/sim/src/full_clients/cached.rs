//! A program that writes files through caches, in turn with other programs, under byte-range locks, and reads them without.
//!
//! The holder of the lock finds the version that was unlocked last. An open finds, in each block, no version older than the last one
//! that was closed or unlocked before (close-to-open consistency), unless the machine that closed it was killed: then no older one
//! than the last that was synced.

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::errno::Errno;
use client::error::Error;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::OpenMode;

use super::data::{BLOCK, block, blocks, check_blocks, content, describe, file_name};
use super::program::Program;

/// Number of attempts of a program to get a lock.
const TRIES: u32 = 6;
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };

/// A program and its files by path.
struct Cached {
    program: Program,
    fs: FileSystem,
    /// The lapses of the host when the program asked for the lock.
    lapses: u64,
}

/// Runs `rounds` rounds, each on a random file, or on the file `own` if files are private.
///
/// # Errors
/// An impossible result.
pub(super) async fn run(program: Program, fs: FileSystem, own: usize, rounds: u32) -> Result<(), String> {
    let mut cached = Cached { program, fs, lapses: 0 };
    // Some files stay open from one round to another.
    let mut kept: Option<(usize, File)> = None;
    for _ in 0..rounds {
        cached.program.pause(4_000).await;
        let count = cached.program.model.borrow().files.len() as u64;
        let file = cached.program.rng.below(count) as usize;
        let is_private = cached.program.model.borrow().is_private;
        if cached.program.rng.chance(40) {
            cached.read_unlocked(file).await?;
            continue;
        }
        let file = if is_private { own } else { file };
        let opened = match kept.take() {
            Some((known, opened)) if known == file => opened,
            other => {
                if let Some((known, opened)) = other {
                    cached.close(known, opened, None).await?;
                }
                cached.open(file, &BOTH).await?
            }
        };
        let written = cached.update(file, &opened).await?;
        match cached.program.rng.chance(30) {
            true => kept = Some((file, opened)),
            false => cached.close(file, opened, written).await?,
        }
    }
    match kept {
        Some((file, opened)) => cached.close(file, opened, None).await,
        None => Ok(()),
    }
}

impl Cached {
    fn owner(&self) -> LockOwner {
        LockOwner::Process(self.program.id.2 as u64)
    }

    fn must<T>(&self, what: &str, result: Result<T, Error>) -> Result<T, String> {
        result.map_err(|error| self.program.wrong(what, &error.cause))
    }

    /// Returns whether it succeeded. EIO says that the server has revoked a delegation or a lock: data of versions that were not
    /// synced may be lost.
    fn succeeded(&self, file: usize, what: &str, result: Result<(), Error>) -> Result<bool, String> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.errno() == Errno::EIO => {
                let mut model = self.program.model.borrow_mut();
                let shared = &mut model.files[file];
                shared.closed = shared.closed.filter(|(_, host)| *host != self.program.id.0);
                Ok(false)
            }
            Err(error) => Err(self.program.wrong(what, &error.cause)),
        }
    }

    /// Returns whether the server cannot have revoked the program's lock.
    fn is_sure(&self) -> bool {
        let (model, host) = (self.program.model.borrow(), self.program.id.0);
        model.lapses_of(host) == self.lapses && !model.is_silent(host)
    }

    /// Checks that nothing was written under a lock that another program has got before it overwrote the file.
    fn check_dead(&self, file: usize, found: &[u8]) -> Result<(), String> {
        let model = self.program.model.borrow();
        match describe(found).into_iter().find(|version| model.dead.contains_key(&(file, *version))) {
            Some(version) => {
                let what = format!("version {version} of {} was written without the lock", file_name(file));
                Err(self.program.wrong(&what, &describe(found)))
            }
            None => Ok(()),
        }
    }

    /// Returns whether data are of a version whose lock this host has lost, and may not know yet.
    fn has_own_lost(&self, file: usize, found: &[u8]) -> bool {
        let model = self.program.model.borrow();
        let lost = model.orphaned.iter().chain(&model.dead);
        let own: Vec<u64> = lost
            .filter(|((of, _), host)| *of == file && **host == self.program.id.0)
            .map(|((_, version), _)| *version)
            .collect();
        describe(found).iter().any(|version| own.contains(version))
    }

    async fn open(&self, file: usize, options: &OpenOptions) -> Result<File, String> {
        let name = file_name(file);
        self.program.begin(format!("open {name}"));
        self.must(&format!("open {name}"), self.fs.open(name.as_bytes(), options).await)
    }

    /// Closes a file. `written` is the version that this program has written last.
    async fn close(&self, file: usize, opened: File, written: Option<u64>) -> Result<(), String> {
        self.program.begin(format!("close {}", file_name(file)));
        let closed = opened.close().await;
        if self.succeeded(file, "close", closed)? {
            self.note_closed(file, written);
        }
        Ok(())
    }

    /// Notes that others must see a version now.
    fn note_closed(&self, file: usize, written: Option<u64>) {
        let Some(version) = written.filter(|_| self.is_sure()) else { return };
        let mut model = self.program.model.borrow_mut();
        model.overwritten(file);
        let shared = &mut model.files[file];
        if version > shared.oldest() {
            shared.closed = Some((version, self.program.id.0));
        }
    }

    /// Writes the next version under the lock. Returns it, unless the lock was not free or something failed.
    async fn update(&mut self, file: usize, opened: &File) -> Result<Option<u64>, String> {
        if !self.acquire(file, opened).await? {
            return Ok(None);
        }
        self.check_locked(file, opened).await?;
        let version = self.program.model.borrow_mut().begin(file, self.program.id);
        let mut written = self.write(file, version, opened).await?.then_some(version);
        if written.is_some() && self.program.rng.chance(40) {
            self.program.begin(format!("sync version {version} of {}", file_name(file)));
            let synced = opened.sync().await;
            match self.succeeded(file, "sync", synced)? {
                true if self.is_sure() => self.program.model.borrow_mut().files[file].synced = version,
                true => {}
                false => written = None,
            }
        }
        if written.is_some() && self.program.rng.chance(50) {
            self.check_locked(file, opened).await?;
        }
        self.release(file, opened, written).await?;
        Ok(written)
    }

    async fn acquire(&mut self, file: usize, opened: &File) -> Result<bool, String> {
        for _ in 0..TRIES {
            self.lapses = self.program.model.borrow().lapses_of(self.program.id.0);
            self.program.begin(format!("lock {}", file_name(file)));
            let (range, kind) = (LockRange::WHOLE, LockKind::Exclusive);
            let waits = self.program.model.borrow().waits && self.program.rng.chance(40);
            let outcome = match waits {
                true => opened.lock(self.owner(), range, kind).await,
                false => opened.try_lock(self.owner(), range, kind).await,
            };
            match outcome {
                Ok(()) => {
                    let is_sure = self.is_sure();
                    let holder = self.program.model.borrow_mut().take(file, self.program.id, is_sure);
                    if let Some(holder) = holder {
                        return Err(self
                            .program
                            .wrong(&format!("has {} locked beside", file_name(file)), &holder));
                    }
                    return Ok(true);
                }
                Err(error) if error.errno() == Errno::EAGAIN => self.program.pause(4_000).await,
                outcome => {
                    self.succeeded(file, "lock", outcome)?;
                    return Ok(false);
                }
            }
        }
        Ok(false)
    }

    async fn release(&self, file: usize, opened: &File, written: Option<u64>) -> Result<(), String> {
        self.program.begin(format!("unlock {}", file_name(file)));
        {
            // It is free some time before the call returns.
            let mut model = self.program.model.borrow_mut();
            let shared = &mut model.files[file];
            if shared.holder == Some(self.program.id) {
                (shared.holder, shared.writing) = (None, None);
            }
        }
        let unlocked = opened.unlock(self.owner(), LockRange::WHOLE).await;
        if self.succeeded(file, "unlock", unlocked)? {
            self.note_closed(file, written);
        }
        Ok(())
    }

    /// Checks the content while the program has the lock.
    async fn check_locked(&self, file: usize, opened: &File) -> Result<(), String> {
        self.program.begin(format!("read {} with the lock", file_name(file)));
        let oldest = self.program.model.borrow().files[file].oldest();
        let Some(found) = self.read(file, opened).await? else { return Ok(()) };
        if !self.is_sure() {
            return Ok(());
        }
        self.check_dead(file, &found)?;
        let shared = self.program.model.borrow().files[file];
        let oldest = oldest.min(shared.oldest());
        if oldest == shared.begun && found != content(file, oldest) {
            let what = format!("{} is not version {oldest}", file_name(file));
            return Err(self.program.wrong(&what, &describe(&found)));
        }
        check_blocks(&self.program, file, &found, (oldest, shared.begun))
    }

    /// Returns the oldest version that an open of this client may find. A server that has restarted does not hold off version 3 until
    /// the holder of a delegation has reclaimed it, so that what this one has not written yet is not seen.
    fn oldest(&self, file: usize) -> u64 {
        let shared = self.program.model.borrow().files[file];
        if self.program.client.version() == Version::V3 { shared.synced } else { shared.oldest() }
    }

    /// Reads without the lock.
    async fn read_unlocked(&self, file: usize) -> Result<(), String> {
        let oldest = self.oldest(file);
        let opened = self.open(file, &OpenOptions::READ).await?;
        self.program.begin(format!("read {} without the lock", file_name(file)));
        let found = self.read(file, &opened).await?;
        self.close(file, opened, None).await?;
        let (oldest, begun) = (oldest.min(self.oldest(file)), self.program.model.borrow().files[file].begun);
        match found {
            // What a machine that was killed had is lost.
            Some(found) => {
                if self.has_own_lost(file, &found) {
                    return Ok(());
                }
                self.check_dead(file, &found)?;
                check_blocks(&self.program, file, &found, (oldest, begun))
            }
            None => Ok(()),
        }
    }

    /// Reads the whole file; `None` if a lock is lost.
    async fn read(&self, file: usize, opened: &File) -> Result<Option<Vec<u8>>, String> {
        match opened.read_at(0, 1 << 16).await {
            Ok(parts) => Ok(Some(parts.concat())),
            Err(error) => self.succeeded(file, "read", Err(error)).map(|_| None),
        }
    }

    /// Writes a version into the cache. Returns whether nothing failed.
    async fn write(&mut self, file: usize, version: u64, opened: &File) -> Result<bool, String> {
        self.program.begin(format!("write version {version} of {}", file_name(file)));
        let size = blocks(file, version) * BLOCK as u64;
        let most = (0..=version).map(|version| blocks(file, version)).max().unwrap_or_default();
        if size < most * BLOCK as u64 {
            let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
            let cut = opened.set_attributes(&set).await.map(|_| ());
            if !self.succeeded(file, "truncate", cut)? {
                return Ok(false);
            }
        }
        let mut next = 0;
        while next < blocks(file, version) {
            let end = (next + 1 + self.program.rng.below(4)).min(blocks(file, version));
            let data: Vec<u8> = (next..end).flat_map(|index| block(file, version, index)).collect();
            let written = opened.write_at(next * BLOCK as u64, Bytes::from(data)).await;
            if !self.succeeded(file, "write", written)? {
                return Ok(false);
            }
            if self.program.rng.chance(20) {
                self.program.pause(2_000).await;
            }
            next = end;
        }
        Ok(true)
    }
}
