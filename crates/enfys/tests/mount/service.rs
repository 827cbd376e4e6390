//! A mount as a service: the file descriptor store of a service manager (sd_pid_notify_with_fds(3), sd_listen_fds(3)).

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::replace::{OTHER_LOCKS, PROGRAM, python};
use crate::support::{ENFYS, Mounted, Server, await_that, can_mount, is_mounted, sh};

/// A manager of one service, which runs the command of its arguments. It prints `ready` when the service is, obeys `restart` (with
/// `start` for its second half) and `stop`, and prints the names in its store when the service has ended.
const MANAGER: &str = "
import array, os, signal, socket, sys
path, command = sys.argv[1], sys.argv[2:]
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.bind(path)
store = []
def start():
    names = ':'.join(name for name, _ in store)
    child = os.fork()
    if child == 0:
        high = [(name, os.dup(os.dup2(fd, 200 + n))) for n, (name, fd) in enumerate(store)]
        for n, (_, fd) in enumerate(high): os.dup2(fd, 3 + n, inheritable=True)
        os.closerange(3 + len(high), 1000)
        environment = dict(os.environ, NOTIFY_SOCKET=path, FDSTORE='64', LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(store)), LISTEN_FDNAMES=names)
        os.execve(command[0], command, environment)
    return child
def receive():
    space = socket.CMSG_SPACE(64 * 4)
    data, ancillary, _, _ = manager.recvmsg(4096, space)
    fds = array.array('i')
    for _, _, payload in ancillary: fds.frombytes(payload[:len(payload) - len(payload) % 4])
    lines = data.decode().split()
    name = next((line[7:] for line in lines if line.startswith('FDNAME=')), 'stored')
    if 'FDSTORE=1' in lines: store.extend((name, fd) for fd in fds)
    elif 'FDSTOREREMOVE=1' in lines:
        for entry in [entry for entry in store if entry[0] == name]:
            os.close(entry[1]); store.remove(entry)
    else:
        for fd in fds: os.close(fd)
    return lines
def await_ready():
    while 'READY=1' not in receive(): pass
    print('ready', flush=True)
def await_end():
    manager.settimeout(0.05)
    status = None
    while True:
        try: receive()
        except TimeoutError:
            if status is not None: break
            ended, status_now = os.waitpid(child, os.WNOHANG)
            if ended: status = os.waitstatus_to_exitcode(status_now)
    manager.settimeout(None)
    print('ended', status, ' '.join(sorted(name for name, _ in store)), flush=True)
child = start()
await_ready()
for line in sys.stdin:
    os.kill(child, {'restart': signal.SIGUSR2, 'stop': signal.SIGTERM}[line.strip()])
    await_end()
    if line.strip() == 'stop': break
    assert sys.stdin.readline().strip() == 'start'
    child = start()
    await_ready()
";

struct Manager {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Manager {
    fn start(top: &Path, url: &str, directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", MANAGER]).arg(top.join("notify"));
        command.args([ENFYS, "mount", "--foreground", "--threads", "3", url]).arg(directory);
        // The line on the service's standard output is not the manager's.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut manager = Self { child, lines };
        manager.line("ready");
        manager
    }

    /// Returns the next line that begins with a word.
    #[track_caller]
    fn line(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "no line `{word}`");
            if line.starts_with(word) {
                return line.trim_end().to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{what}").and_then(|()| input.flush()).expect("a reader");
    }

    #[track_caller]
    fn restart(&mut self) {
        self.ask("restart");
        let ended = self.line("ended");
        // Three descriptors of the device, and the state.
        assert_eq!(ended, "ended 0 enfys-device-0 enfys-device-1 enfys-device-2 enfys-state");
        self.ask("start");
        self.line("ready");
    }

    #[track_caller]
    fn stop(mut self) {
        self.ask("stop");
        // The store is empty again: the last process has taken everything out.
        assert_eq!(self.line("ended"), "ended 0");
        assert!(self.child.wait().expect("a child").success());
    }
}

#[test]
fn a_restarted_service_continues_its_mount() {
    if !can_mount() {
        return;
    }
    for version in ["2", "3", "4.0", "4.2"] {
        let server = Server::start();
        let top = tempfile::tempdir().expect("a temporary directory");
        let directory = top.path().join("mount");
        std::fs::create_dir(&directory).expect("a directory");
        let mut manager = Manager::start(top.path(), &server.url("/export", version), &directory);
        let other = Mounted::new(&server, version, &[]);
        sh(&directory, "mkdir many");
        let mut child = python(&directory, PROGRAM).stdout(Stdio::piped()).spawn().expect("python3");
        let exists = |name: &str| server.export().join(name).exists();
        await_that("the program is ready", || exists("ready"));
        let held = || {
            let output = python(&other.path, OTHER_LOCKS).output().expect("python3");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(held(), "held free held\n", "{version}");
        manager.restart();
        manager.restart();
        assert_eq!(held(), "held free held\n", "{version}");
        std::fs::write(directory.join("go"), "").expect("a file");
        await_that("the program has unlocked", || {
            exists("unlocked") || child.try_wait().expect("a child").is_some()
        });
        std::fs::write(directory.join("end"), "").expect("a file");
        let output = child.wait_with_output().expect("a child");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{version}");
        manager.stop();
        assert!(!is_mounted(&directory), "{version}");
        other.end();
    }
}

#[test]
fn a_mount_that_cannot_be_continued_is_mounted_anew() {
    if !can_mount() {
        return;
    }
    let mut server = Server::with_lease(5);
    let top = tempfile::tempdir().expect("a temporary directory");
    let directory = top.path().join("mount");
    std::fs::create_dir(&directory).expect("a directory");
    let mut manager = Manager::start(top.path(), &server.url("/export", "4.2"), &directory);
    sh(&directory, "echo text > f");
    // Between the two processes the server forgets the client.
    manager.ask("restart");
    manager.line("ended");
    server.kill();
    server.start_again();
    manager.ask("start");
    manager.line("ready");
    assert_eq!(sh(&directory, "cat f"), "text\n");
    manager.stop();
    assert!(!is_mounted(&directory));
}

#[test]
fn systemd_understands_the_unit() {
    let unit = include_str!("../../../../contrib/enfys-mount@.service");
    // Both commands exist at this place here.
    let unit = unit.replace("/usr/local/bin/enfys", ENFYS);
    let top = tempfile::tempdir().expect("a temporary directory");
    let path = top.path().join("enfys-mount@.service");
    std::fs::write(&path, unit).expect("a file");
    let output = match Command::new("systemd-analyze").args(["--man=no", "verify"]).arg(&path).output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: no systemd-analyze: {error}"),
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let own: Vec<&str> = text.lines().filter(|line| line.contains("enfys-mount@")).collect();
    assert!(output.status.success() && own.is_empty(), "{text}");
}
