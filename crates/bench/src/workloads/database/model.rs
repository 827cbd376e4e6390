//! What SQLite 3.40 does to its files in a transaction with a rollback journal that is deleted, `synchronous=FULL` and a page cache
//! that holds the tree above the rows and no rows (<https://sqlite.org/lockingv3.html>, <https://sqlite.org/fileformat2.html> §3,
//! <https://sqlite.org/atomiccommit.html> §3).
//!
//! For R rows these are, in this order:
//! 1. locks: PENDING shared, SHARED shared, PENDING released;
//! 2. a look for a journal and for a write-ahead log, both missing; a read of the change counter; the size of the database. If another
//!    connection has changed the database, the first page and the root of the table are read again;
//! 3. lock: RESERVED. If it is denied, all locks are released, and 1 is repeated after a pause;
//! 4. the journal is created, and its header is written; R pages are read, and written into the journal;
//! 5. locks: PENDING and SHARED exclusive. The first page is written into the journal;
//! 6. a sync of the journal, a write of the number of its pages into its header, and a second sync;
//! 7. R + 1 writes of pages, and a sync of the database. The journal is closed and removed: this is the commit;
//! 8. SHARED becomes shared, PENDING and RESERVED are released, then everything.
//!
//! Left out: further questions for attributes, which a kernel answers from those that it has just learned; the read of the journal's
//! end; the sync of the directory, which NFS does not need. The three writes of a page's record in the journal are one here.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::super::files::{check_start, pattern, write_file};
use super::PAGE_BYTES;
use crate::runner::{Meter, Task};
use crate::targets::{Buffer, Fault, Files, How, OpenFile as _};

/// The bytes that SQLite locks (os.h): they are beyond the data of a small database.
const PENDING: Range<u64> = 0x4000_0000..0x4000_0001;
const RESERVED: Range<u64> = 0x4000_0001..0x4000_0002;
const PENDING_AND_RESERVED: Range<u64> = PENDING.start..RESERVED.end;
const SHARED: Range<u64> = 0x4000_0002..0x4000_0002 + 510;
const ALL: Range<u64> = 0..u64::MAX;
/// Bytes of the journal's header: a sector.
const HEADER_BYTES: u64 = 512;
/// The part of it that has the number of pages.
const COUNT_BYTES: u64 = 12;
/// Bytes of a page in the journal: its number, its content, and a checksum.
const RECORD_BYTES: u64 = 4 + PAGE_BYTES + 4;
/// Where the change counter is in the first page, and the bytes that are read there.
const COUNTER: (u64, u64) = (24, 16);
/// Pages before the rows: the first one, and the root of the table.
const PAGES_BEFORE: u64 = 2;
/// Pauses of SQLite's busy handler in milliseconds; the last is repeated.
const PAUSES_MS: [u64; 12] = [1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100];
/// Time of pauses until a transaction fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

/// Creates a database.
pub(super) async fn create<F: Files>(files: &F, name: &str, rows: u64) -> Result<(), Fault> {
    write_file(files, name, (PAGES_BEFORE + rows) * PAGE_BYTES).await
}

/// A connection to a database: its file, and what it remembers.
pub(super) struct Connection<F: Files> {
    files: F,
    meter: Meter,
    file: F::File,
    name: String,
    journal: String,
    size: u64,
    is_shared: bool,
    /// The eight bytes of the change counter.
    counter: [u8; 8],
    buffer: Buffer,
    /// Bytes for the journal, whose content does not matter.
    record: Bytes,
}

/// The pauses of one wait for a lock.
struct Pauses<'n> {
    name: &'n str,
    taken: usize,
    slept: Duration,
}

impl<'n> Pauses<'n> {
    fn new(name: &'n str) -> Self {
        Self { name, taken: 0, slept: Duration::ZERO }
    }

    async fn next(&mut self, meter: &Meter) -> Result<(), Fault> {
        if self.slept >= BUSY_TIMEOUT {
            let (name, seconds) = (self.name, BUSY_TIMEOUT.as_secs());
            return Err(Fault::new(format!("{name}: the database is locked for {seconds} s")));
        }
        let pause = Duration::from_millis(PAUSES_MS[self.taken.min(PAUSES_MS.len() - 1)]);
        self.taken += 1;
        self.slept += pause;
        meter.sleep(pause).await;
        Ok(())
    }
}

impl<F: Files> Connection<F> {
    /// Opens a database that others use too, if it is shared.
    pub(super) async fn open(task: &Task<F>, name: &str, rows: u64, is_shared: bool) -> Result<Self, Fault> {
        let file = task.files.open(name, How::BOTH).await?;
        let mut connection = Self {
            files: task.files.clone(),
            meter: task.meter.clone(),
            file,
            name: name.to_owned(),
            journal: format!("{name}-journal"),
            size: (PAGES_BEFORE + rows) * PAGE_BYTES,
            is_shared,
            counter: [0; 8],
            buffer: Buffer::default(),
            record: pattern(0, RECORD_BYTES),
        };
        connection.counter = connection.read_counter().await?;
        connection.read_again().await?;
        Ok(connection)
    }

    /// Begins a transaction that will write, and waits for its turn; `false` if it ends before because `is_over`.
    pub(super) async fn begin(&mut self, is_over: impl Fn() -> bool) -> Result<bool, Fault> {
        let name = self.name.clone();
        let mut pauses = Pauses::new(&name);
        loop {
            if self.lock_shared().await? {
                self.look().await?;
                if self.file.try_lock_bytes(RESERVED, true).await? {
                    return Ok(true);
                }
                self.file.unlock_bytes(ALL).await?;
            }
            if is_over() {
                return Ok(false);
            }
            pauses.next(&self.meter).await?;
        }
    }

    /// PENDING, which a writer holds that waits for readers, keeps new ones away.
    async fn lock_shared(&self) -> Result<bool, Fault> {
        if !self.file.try_lock_bytes(PENDING, false).await? {
            return Ok(false);
        }
        let is_granted = self.file.try_lock_bytes(SHARED, false).await?;
        self.file.unlock_bytes(PENDING).await?;
        Ok(is_granted)
    }

    /// Looks whether a transaction was interrupted, and whether the database has changed.
    async fn look(&mut self) -> Result<(), Fault> {
        // Of a shared database, it may be that of a writer.
        let has_journal = self.exists(&self.journal).await?;
        if has_journal && !self.is_shared {
            return Err(Fault::new(format!("{}: of a transaction that did not end", self.journal)));
        }
        let counter = self.read_counter().await?;
        if self.exists(&format!("{}-wal", self.name)).await? {
            return Err(Fault::new(format!("{}-wal: the model writes none", self.name)));
        }
        let size = self.files.stat(&self.name).await?.size;
        if size != self.size {
            return Err(Fault::new(format!("{}: {size} bytes of {}", self.name, self.size)));
        }
        if counter != self.counter {
            self.counter = counter;
            self.read_again().await?;
        }
        Ok(())
    }

    async fn exists(&self, path: &str) -> Result<bool, Fault> {
        match self.files.stat(path).await {
            Ok(_) => Ok(true),
            Err(fault) if fault.is_missing() => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    async fn read_counter(&mut self) -> Result<[u8; 8], Fault> {
        let (offset, count) = COUNTER;
        self.read(offset, count).await?;
        let short = || Fault::new(format!("{}: no change counter", self.name));
        first_word(&self.buffer).ok_or_else(short)
    }

    /// Reads the pages that the connection keeps.
    async fn read_again(&mut self) -> Result<(), Fault> {
        for page in 0..PAGES_BEFORE {
            self.read(page * PAGE_BYTES, PAGE_BYTES).await?;
            check_start(&self.buffer, page * PAGE_BYTES)?;
        }
        Ok(())
    }

    async fn read(&mut self, offset: u64, count: u64) -> Result<(), Fault> {
        let read = self.file.read(offset, count as usize, &mut self.buffer).await? as u64;
        if read == count {
            return Ok(());
        }
        Err(Fault::new(format!("read {}: {read} of {count} bytes at {offset}", self.name)))
    }

    /// Changes rows, commits, and releases all locks.
    pub(super) async fn change(&mut self, rows: &[u64]) -> Result<(), Fault> {
        let pages: Vec<u64> = rows.iter().map(|row| (PAGES_BEFORE + row) * PAGE_BYTES).collect();
        let journal = self.files.open(&self.journal, How { create: true, ..How::BOTH }).await?;
        let written = self.write_all(&journal, &pages).await;
        // Closed after an error too.
        let closed = journal.close().await;
        written.and(closed)?;
        self.files.remove(&self.journal).await?;
        if !self.file.try_lock_bytes(SHARED, false).await? {
            return Err(Fault::new(format!("{}: an exclusive lock does not become a shared one", self.name)));
        }
        self.file.unlock_bytes(PENDING_AND_RESERVED).await?;
        self.file.unlock_bytes(ALL).await
    }

    async fn write_all(&mut self, journal: &F::File, pages: &[u64]) -> Result<(), Fault> {
        let journal_name = self.journal.clone();
        self.write(journal, &journal_name, 0, self.record.slice(..HEADER_BYTES as usize)).await?;
        let mut end = HEADER_BYTES;
        for page in pages {
            self.read(*page, PAGE_BYTES).await?;
            check_start(&self.buffer, *page)?;
            self.write(journal, &journal_name, end, self.record.clone()).await?;
            end += RECORD_BYTES;
        }
        self.lock_exclusive().await?;
        self.write(journal, &journal_name, end, self.record.clone()).await?;
        journal.sync().await?;
        self.write(journal, &journal_name, 0, self.record.slice(..COUNT_BYTES as usize)).await?;
        journal.sync().await?;
        let counter = (u64::from_be_bytes(self.counter).wrapping_add(1)).to_be_bytes();
        self.write(&self.file, &self.name, 0, first_page(counter)).await?;
        for page in pages {
            self.write(&self.file, &self.name, *page, pattern(*page, PAGE_BYTES)).await?;
        }
        self.counter = counter;
        self.file.sync().await
    }

    /// Locks out readers, and waits until those in progress have ended.
    async fn lock_exclusive(&self) -> Result<(), Fault> {
        for bytes in [PENDING, SHARED] {
            let mut pauses = Pauses::new(&self.name);
            while !self.file.try_lock_bytes(bytes.clone(), true).await? {
                pauses.next(&self.meter).await?;
            }
        }
        Ok(())
    }

    async fn write(&self, file: &F::File, name: &str, offset: u64, data: Bytes) -> Result<(), Fault> {
        let length = data.len();
        let written = file.write(offset, data).await?;
        if written == length {
            return Ok(());
        }
        Err(Fault::new(format!("write {name}: {written} of {length} bytes at {offset}")))
    }

    pub(super) async fn close(self) -> Result<(), Fault> {
        self.file.close().await
    }
}

/// Returns the first page with this change counter.
fn first_page(counter: [u8; 8]) -> Bytes {
    let mut page = BytesMut::from(&pattern(0, PAGE_BYTES)[..]);
    let start = COUNTER.0 as usize;
    page[start..start + counter.len()].copy_from_slice(&counter);
    page.freeze()
}

/// Returns the first 8 bytes of data that were read.
fn first_word(buffer: &Buffer) -> Option<[u8; 8]> {
    let mut bytes = buffer.parts().flatten().copied();
    let mut word = [0; 8];
    for byte in &mut word {
        *byte = bytes.next()?;
    }
    Some(word)
}
