//! Files that programs map into memory for writing.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Server, can_mount, foreground, run, shell};

/// Writes to a mapping, calls msync(2), writes again, and keeps the file open.
const PROGRAM: &str = "
import mmap, time
file = open('mapped', 'w+b')
file.truncate(3 * 4096)
pages = mmap.mmap(file.fileno(), 0)
pages[5000:5005] = b'first'
pages.flush()
print('synced', flush=True)
time.sleep(600)";

#[test]
fn data_of_a_mapping_are_at_the_server_after_msync() {
    if !can_mount() {
        return;
    }
    for version in ["2", "3", "4.0", "4.1", "4.2"] {
        let server = Server::start();
        let top = tempfile::tempdir().expect("a directory");
        let mut client = foreground(&server, version, top.path());
        let mut command = shell(top.path(), &format!("exec python3 -c \"{PROGRAM}\""));
        let mut program = command.stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(program.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        assert_eq!(line, "synced\n", "{version}");
        // The program has not closed the file, and nothing else makes the mount send data now.
        client.kill().expect("a living child");
        client.wait().expect("a child");
        program.kill().expect("a living child");
        program.wait().expect("a child");
        let unmounted = run(&["umount", top.path().to_str().expect("text")]);
        assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
        let mut expected = vec![0; 3 * 4096];
        expected[5000..5005].copy_from_slice(b"first");
        assert!(fs::read(server.export().join("mapped")).expect("a file") == expected, "{version}");
    }
}
