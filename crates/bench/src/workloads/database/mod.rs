//! Transactions of SQLite: each changes random rows of a database, and is stable when it ends. Other programs measure a file server
//! with it because it mixes what they rarely do: locks of bytes, small reads and writes, syncs, and a file that is created and removed.
//!
//! Two engines do the same work. [`model`] does what SQLite does to its files, through any kind of target: with it, a client without
//! a mount can be measured, and requests be counted. [`sqlite3`] is SQLite itself in a mounted directory, as a program for each thread: a
//! library would be C code in every build of this one, or be needed on every machine. What the program adds is small beside the syncs,
//! and each run measures it: `exchange_us` is the time of a question that needs no file.
//!
//! A row fills more than half of a page of 4 KiB, so that each row is on a page of its own, in both engines. An operation is a
//! transaction, from its start to its commit, with the wait for other users of the database.

mod model;
mod sqlite3;

use fastrand::Rng;

use self::model::Connection;
use self::sqlite3::Shell;
use super::{Parameters, Workload};
use crate::runner::{Op, Task, Who};
use crate::targets::{Fault, Files};

const TRANSACTION: Op = Op::write("transaction");
/// Bytes of a page, which is SQLite's default.
const PAGE_BYTES: u64 = 4096;
/// Bytes of a row's value: more than half of a page, and not more than a page holds.
const ROW_BYTES: u64 = 3000;
/// Questions before the measured time that need no file.
const EXCHANGES: usize = 100;

/// `database`.
pub struct Database {
    is_model: bool,
    /// Rows of a transaction.
    rows: u64,
    table_rows: u64,
    /// SQLite's name of the journal mode.
    journal: String,
    is_shared: bool,
}

impl Workload for Database {
    fn new(parameters: &Parameters<'_>) -> Self {
        Self {
            is_model: parameters.text("engine") != "sqlite3",
            rows: parameters.count("rows"),
            table_rows: parameters.count("table-rows"),
            journal: parameters.text("journal").to_owned(),
            is_shared: parameters.flag("shared"),
        }
    }

    async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        if self.is_shared && who.client > 0 {
            return Ok(());
        }
        let threads = if self.is_shared { 1 } else { who.threads };
        for thread in 0..threads {
            let name = self.name(Who { thread, ..who });
            if self.is_model {
                model::create(files, &name, self.table_rows).await?;
            } else {
                sqlite3::create(&path(files, &name)?, self.table_rows, &self.journal)?;
            }
        }
        Ok(())
    }

    async fn work<F: Files>(&self, task: &Task<F>) -> Result<(), Fault> {
        let name = self.name(task.who);
        if self.is_model {
            self.work_by_model(task, &name).await
        } else {
            self.work_by_program(task, &name).await
        }
    }
}

/// Returns where a database is on this machine.
fn path<F: Files>(files: &F, name: &str) -> Result<std::path::PathBuf, Fault> {
    let why = "engine=sqlite3 needs a mounted directory, and its operations cannot be recorded";
    files.local_path(name).ok_or_else(|| Fault::new(why))
}

impl Database {
    fn name(&self, who: Who) -> String {
        match self.is_shared {
            true => "database".to_owned(),
            false => format!("database-{}-{}", who.client + 1, who.thread + 1),
        }
    }

    /// Returns different rows, from 0, in ascending order, as SQLite sorts the rows of a statement.
    fn choose(&self, rng: &mut Rng) -> Vec<u64> {
        let mut rows: Vec<u64> = Vec::with_capacity(self.rows as usize);
        while (rows.len() as u64) < self.rows {
            let row = rng.u64(0..self.table_rows);
            if let Err(place) = rows.binary_search(&row) {
                rows.insert(place, row);
            }
        }
        rows
    }

    async fn work_by_model<F: Files>(&self, task: &Task<F>, name: &str) -> Result<(), Fault> {
        let (meter, mut rng) = (&task.meter, task.rng.clone());
        let mut connection = Connection::open(task, name, self.table_rows, self.is_shared).await?;
        task.ready().await;
        while !meter.is_over() {
            let rows = self.choose(&mut rng);
            let began = meter.now();
            if !connection.begin(|| meter.is_over()).await? {
                break;
            }
            let changed = async {
                connection.change(&rows).await?;
                Ok(self.bytes())
            };
            meter.transfer_since(TRANSACTION, began, self.bytes(), changed).await?;
        }
        connection.close().await
    }

    async fn work_by_program<F: Files>(&self, task: &Task<F>, name: &str) -> Result<(), Fault> {
        let (meter, mut rng) = (&task.meter, task.rng.clone());
        let mut shell = Shell::start(&path(&task.files, name)?, &self.journal)?;
        for _ in 0..EXCHANGES {
            let began = meter.now();
            shell.exchange()?;
            meter.sample("exchange_us", meter.since(began).as_secs_f64() * 1e6);
        }
        task.ready().await;
        while !meter.is_over() {
            let rows = self.choose(&mut rng);
            let changed = async { shell.change(&rows).map(|changed| changed * ROW_BYTES) };
            meter.transfer(TRANSACTION, self.bytes(), changed).await?;
        }
        shell.end()
    }

    /// Returns the bytes of a transaction's rows.
    fn bytes(&self) -> u64 {
        self.rows * ROW_BYTES
    }
}
