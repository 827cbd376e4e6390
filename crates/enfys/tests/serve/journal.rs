//! Exports with a journal: kills of the server, and crashes of the machine.
//!
//! A crash of the machine is a kill, after which the files lose what was not synced, and the next server sees another boot. The
//! file system's cache cannot be dropped here, so the test replaces the content of a file by an earlier one.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use protocol::nfs3::{FileHandle, StableHow};
use tempfile::TempDir;
use vfs::journal::{LOG_BYTES_MIN, Scan, scan};

use crate::client::Client;
use crate::metrics::scrape;
use crate::server::{ENFYS, Server, TestDir, refusal, run, with};

/// Bytes of each write.
const BLOCK: usize = 512;

struct Fixture {
    dir: TestDir,
    export: PathBuf,
    journal: PathBuf,
    arguments: Vec<String>,
    _elsewhere: Option<TempDir>,
}

impl Fixture {
    fn new() -> Self {
        Self::with_journal(|dir| (dir.path("journal"), None))
    }

    /// Creates one whose journal is where `place` returns, with the directory there.
    fn with_journal(place: impl FnOnce(&TestDir) -> (PathBuf, Option<TempDir>)) -> Self {
        let dir = TestDir::new();
        let export = dir.directory("export");
        let (journal, elsewhere) = place(&dir);
        let config = format!(
            "[[export]]\npath = '{}'\njournal = '{}'\njournal-bytes = {LOG_BYTES_MIN}\n",
            export.display(),
            journal.display()
        );
        let config = dir.file("enfys.toml", &config);
        let arguments =
            with(&dir, &[Path::new("--config"), &config, Path::new("--metrics"), Path::new("127.0.0.1:0")]);
        Self { dir, export, journal, arguments, _elsewhere: elsewhere }
    }

    fn start(&self) -> Server {
        Server::start(&self.dir, &self.arguments)
    }

    /// Starts the next server as after a reboot; `None` if this user cannot replace the boot ID.
    fn start_after_reboot(&self) -> Option<Server> {
        self.after_reboot("true").map(|command| Server::spawn(&self.dir, command))
    }

    /// Returns the command that starts the next server as after a reboot. A shell runs `first` before it.
    fn after_reboot(&self, first: &str) -> Option<Command> {
        let other = self.dir.file("boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
        let script = format!("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && {first} && exec \"$@\"");
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &script]).arg(&other);
            command
        };
        if !unshare().arg("true").output().is_ok_and(|output| output.status.success()) {
            println!("skipped: no mount namespace of its own");
            return None;
        }
        let mut command = unshare();
        command.arg(ENFYS).args(&self.arguments);
        Some(command)
    }

    /// Returns the error of a server that does not start, also with other arguments.
    fn refused(&self, more: &[&str]) -> String {
        let arguments: Vec<_> =
            self.arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        refusal(&run(&arguments))
    }

    /// Returns the number of records in the journal of a server that was killed.
    fn records(&self) -> usize {
        let content = std::fs::read(&self.journal).expect("the journal");
        match scan(&content) {
            Scan::Log(found) => found.records.len(),
            other => panic!("{other:?}"),
        }
    }
}

fn block(number: u64) -> &'static [u8] {
    (number + 1).to_le_bytes().repeat(BLOCK / 8).leak()
}

fn new_file(server: &Server) -> FileHandle {
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, "file").unwrap()
}

/// Writes stable blocks from several connections until the server is killed. Returns which blocks were answered.
fn write_until_killed(server: Server, file: FileHandle, replies: u64) -> Vec<u64> {
    let answered = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            let answered = Arc::clone(&answered);
            // Connected before the first reply, after which the server may end.
            let mut client = Client::connect(server.address);
            thread::spawn(move || {
                let mut done = Vec::new();
                for number in (writer..).step_by(3) {
                    let write = std::panic::AssertUnwindSafe(|| {
                        client.write_at(file, number * BLOCK as u64, block(number), StableHow::FileSync)
                    });
                    match std::panic::catch_unwind(write) {
                        Ok(Ok(_)) => done.push(number),
                        _ => break,
                    }
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                done
            })
        })
        .collect();
    while answered.load(Ordering::Relaxed) < replies {
        thread::yield_now();
    }
    server.kill();
    writers.into_iter().flat_map(|writer| writer.join().expect("it does not panic")).collect()
}

#[test]
fn answered_writes_survive_a_crash_of_the_machine_at_any_time() {
    for replies in [1, 2, 5, 20, 60] {
        let fixture = Fixture::new();
        let server = fixture.start();
        let file = new_file(&server);
        let answered = write_until_killed(server, file, replies);
        if fixture.records() < answered.len() {
            println!("a checkpoint came between the writes of this run");
            continue;
        }
        // Nothing had reached the disk.
        std::fs::write(fixture.export.join("file"), "").unwrap();
        let Some(server) = fixture.start_after_reboot() else { return };
        let mut client = Client::connect(server.address);
        for number in &answered {
            let read = client.read_at(file, number * BLOCK as u64, BLOCK as u32).unwrap();
            assert!(read == block(*number), "block {number} of {answered:?}");
        }
        assert!(server.log().contains("changes of the journal repeated"));
        server.stop();
        assert_eq!(fixture.records(), 0, "an orderly stop leaves nothing to repeat");
    }
}

/// A server that may not write beyond 64 MiB ends in the middle of the log, which has a write there.
#[test]
fn a_repetition_that_ended_in_the_middle_is_begun_again() {
    const FAR: u64 = (1 << 30) / BLOCK as u64;
    let places = [0, 1, FAR, 1, 2];
    for is_written_back in [false, true] {
        let fixture = Fixture::new();
        let server = fixture.start();
        let file = new_file(&server);
        let mut client = Client::connect(server.address);
        for (value, place) in (0..).zip(places) {
            client.write_at(file, place * BLOCK as u64, block(value), StableHow::FileSync).unwrap();
        }
        server.kill();
        if fixture.records() < places.len() {
            println!("a checkpoint came between the writes of this run");
            continue;
        }
        let path = fixture.export.join("file");
        // Nothing had reached the disk.
        std::fs::write(&path, "").unwrap();
        let Some(mut limited) = fixture.after_reboot("ulimit -f 131072") else { return };
        let ended = limited.output().unwrap();
        let why = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && why.contains("cannot repeat a change"), "{ended:?}");
        assert_eq!(std::fs::read(&path).unwrap(), [block(0), block(1)].concat(), "the first two");
        assert_eq!(fixture.records(), places.len());
        if !is_written_back {
            std::fs::write(&path, "").unwrap();
        }
        let server = fixture.start_after_reboot().expect("as before");
        let mut client = Client::connect(server.address);
        for (value, place) in [(0, 0), (3, 1), (2, FAR), (4, 2)] {
            let read = client.read_at(file, place * BLOCK as u64, BLOCK as u32).unwrap();
            assert!(read == block(value), "block {place}");
        }
        server.stop();
        assert_eq!(fixture.records(), 0);
    }
}

#[test]
fn changes_are_counted_and_reach_the_file_system_at_a_stop() {
    let fixture = Fixture::new();
    let mut server = fixture.start();
    let file = new_file(&server);
    let mut client = Client::connect(server.address);
    let metrics = server.metrics_address();
    let before = scrape(metrics);
    for number in 0..10 {
        client.write_at(file, number * BLOCK as u64, block(number), StableHow::FileSync).unwrap();
    }
    client.write_at(file, 0, block(7), StableHow::Unstable).unwrap();
    client.commit(file).unwrap();
    let after = scrape(metrics);
    let count = |name: &str| after[name] - before[name];
    assert_eq!(count("enfys_journal_changes_total"), 11.0);
    assert_eq!(count("enfys_journal_bypasses_total"), 0.0);
    let syncs = count("enfys_journal_syncs_total");
    // One each; a checkpoint in between writes a header too.
    assert!(syncs >= 11.0 && syncs - count("enfys_journal_checkpoints_total") <= 11.0, "{syncs}");
    server.stop();
    assert_eq!(fixture.records(), 0);
    let content = std::fs::read(fixture.export.join("file")).unwrap();
    assert!(content.len() == 10 * BLOCK && content[..BLOCK] == *block(7));
}

#[test]
fn after_a_kill_alone_nothing_is_repeated_over_local_changes() {
    let fixture = Fixture::new();
    let server = fixture.start();
    let file = new_file(&server);
    Client::connect(server.address).write(file, block(1), StableHow::FileSync).unwrap();
    server.kill();
    std::fs::write(fixture.export.join("file"), "by a local process").unwrap();
    let server = fixture.start();
    let mut client = Client::connect(server.address);
    assert_eq!(client.read(file).unwrap(), b"by a local process");
    server.stop();
}

#[test]
fn a_lost_journal_is_refused_unless_the_loss_is_accepted() {
    let fixture = Fixture::new();
    let server = fixture.start();
    let file = new_file(&server);
    Client::connect(server.address).write(file, block(1), StableHow::FileSync).unwrap();
    server.kill();
    let elsewhere = fixture.dir.path("elsewhere");
    std::fs::rename(&fixture.journal, &elsewhere).unwrap();
    let error = fixture.refused(&[]);
    let expected = "journal: it is missing, and changes that clients were told are safe may be lost: restore it, or accept the loss";
    assert!(error.contains(expected), "{error}");
    // Nor is the directory served without it.
    let export = fixture.export.display().to_string();
    let error = fixture.refused(&[&export]);
    assert!(error.contains("the last server used the journal"), "{error}");
    // Another one does not replace it.
    std::fs::write(&fixture.journal, "").unwrap();
    std::fs::set_permissions(&fixture.journal, PermissionsExt::from_mode(0o600)).unwrap();
    let error = fixture.refused(&[]);
    assert!(error.contains("journal: it is empty, and changes"), "{error}");
    std::fs::rename(&elsewhere, &fixture.journal).unwrap();
    fixture.start().kill();
    std::fs::remove_file(&fixture.journal).unwrap();
    let accepting = [&fixture.arguments[..], &["--ignore-lost-journals".into()]].concat();
    Server::start(&fixture.dir, &accepting).stop();
    std::fs::remove_file(&fixture.journal).unwrap();
    fixture.start().stop();
}

#[test]
fn a_damaged_journal_is_refused() {
    use std::os::unix::fs::FileExt;
    let fixture = Fixture::new();
    let server = fixture.start();
    let file = new_file(&server);
    let mut client = Client::connect(server.address);
    (0..5).for_each(|number| {
        _ = client.write_at(file, number * 512, block(number), StableHow::FileSync).unwrap()
    });
    server.kill();
    let log = std::fs::File::options().write(true).open(&fixture.journal).unwrap();
    // The second frame; the fifth follows it.
    log.write_all_at(b"damage", 3 * 4096 + 64).unwrap();
    let error = fixture.refused(&[]);
    assert!(
        error.contains("journal: it is damaged, and changes that clients were told are safe may be lost"),
        "{error}"
    );
}

#[test]
fn contradictions_in_the_configuration_are_refused() {
    let dir = TestDir::new();
    let export = dir.directory("export").display().to_string();
    let check = |keys: &str| {
        let config = dir.file("enfys.toml", &format!("[[export]]\npath = '{export}'\n{keys}\n"));
        refusal(&run(&with(&dir, &[Path::new("--config"), &config])))
    };
    let inside = check(&format!("journal = '{export}/log'"));
    assert!(inside.contains("is inside the export /export"), "{inside}");
    let error = check("journal = '/nowhere/log'\nasync = true");
    assert!(error.contains("`async` answers before anything is on stable storage"), "{error}");
    let error = check("journal-bytes = 1048576");
    assert!(error.contains("`journal-bytes` needs a `journal`"), "{error}");
    std::fs::create_dir(dir.path("export/inner")).unwrap();
    let error =
        check(&format!("journal = '/nowhere/log'\n[[export]]\npath = '{export}/inner'\npseudo = '/inner'"));
    assert!(
        error.contains("/inner is inside /export, so the same files would also change without it"),
        "{error}"
    );
    let error = check("journal = 'log'");
    assert!(error.contains("`journal` must be an absolute path"), "{error}");
}

#[test]
fn a_journal_on_the_file_system_of_the_export_is_a_warning() {
    let fixture = Fixture::new();
    let is_warned =
        |server: &Server| server.log().contains("on the file system of the export it saves little");
    let server = fixture.start();
    assert!(is_warned(&server), "{}", server.log());
    server.stop();
    // Files in memory are another file system, if this machine has them.
    let fast = Path::new("/dev/shm");
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    if device(fast).is_none_or(|fast| device(&fixture.export) == Some(fast)) {
        return println!("skipped: /dev/shm is not a file system of its own");
    }
    let other = Fixture::with_journal(|_| {
        let directory = tempfile::Builder::new().prefix("enfys-journal-").tempdir_in(fast).unwrap();
        let path = directory.path().join("journal");
        (path, Some(directory))
    });
    let server = other.start();
    assert!(server.log().contains("journal opened") && !is_warned(&server), "{}", server.log());
    server.stop();
}
