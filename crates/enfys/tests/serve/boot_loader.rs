//! A boot loader as a client: U-Boot in an emulated machine reads a file over UDP, in versions 2 and 3.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::server::{ENFYS, TestDir};

/// Where Debian's package u-boot-qemu has the boot loader.
const U_BOOT: &str = "/usr/lib/u-boot/qemu_arm/u-boot.bin";
/// Longest wait for an answer of the emulated machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The prompt of U-Boot, at the start of a line: `crc32` prints an arrow too.
const PROMPT: &str = "\n=> ";

/// Serves in a network namespace (`$1` is the binary, `$2` the directory with its configuration), and starts the machine there with the
/// boot loader `$3`. Its network reaches the namespace's loopback as 10.0.2.2, from ports that are not reserved.
const SCRIPT: &str = r#"
    set -e
    trap 'kill $server 2>/dev/null || true' EXIT
    ip link set lo up
    "$1" serve --config "$2/enfys.toml" >"$2/out" 2>"$2/log" & server=$!
    until grep -q nfs:// "$2/out"; do kill -0 $server || { cat "$2/log" >&2; exit 1; }; sleep 0.02; done
    qemu-system-arm -M virt -m 256 -display none -monitor none -serial stdio \
        -bios "$3" -nic user,model=virtio-net-pci -global virtio-net-pci.romfile=
"#;

/// The emulated machine and its serial console.
struct Machine {
    child: Child,
    keyboard: ChildStdin,
    screen: Receiver<u8>,
    /// Everything that it has printed.
    console: Vec<u8>,
}

impl Machine {
    fn start(dir: &TestDir) -> Self {
        let directory = dir.path("").display().to_string();
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh", ENFYS]);
        command.args([&directory, U_BOOT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("unshare is there");
        let keyboard = child.stdin.take().expect("a pipe");
        let screen = reader(child.stdout.take().expect("a pipe"));
        Self { child, keyboard, screen, console: Vec::new() }
    }

    /// Returns what the machine prints until `end`.
    fn read_until(&mut self, end: &str) -> String {
        let (deadline, start) = (Instant::now() + TIMEOUT, self.console.len());
        while !self.console[start..].ends_with(end.as_bytes()) {
            match self.screen.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(byte) => self.console.push(byte),
                Err(why) => panic!("no `{end}`: {why}; the console:\n{}", self.console()),
            }
        }
        String::from_utf8_lossy(&self.console[start..]).into_owned()
    }

    fn console(&self) -> String {
        String::from_utf8_lossy(&self.console).into_owned()
    }

    /// Enters a command, and returns what it prints.
    fn run(&mut self, command: &str) -> String {
        writeln!(self.keyboard, "{command}").expect("the machine runs");
        self.read_until(PROMPT)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads in a thread, so that a test can stop waiting.
fn reader(mut output: ChildStdout) -> Receiver<u8> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut byte = [0];
        while output.read(&mut byte).is_ok_and(|count| count == 1) && sender.send(byte[0]).is_ok() {}
    });
    receiver
}

fn is_possible() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|output| output.status.success())
    };
    let namespace = Command::new("unshare").args(["--net", "--pid", "--fork", "true"]).status();
    let missing = match () {
        () if !has("qemu-system-arm") => "qemu-system-arm",
        () if !std::path::Path::new(U_BOOT).exists() => "u-boot-qemu",
        () if !namespace.is_ok_and(|status| status.success()) => "a network namespace for tests",
        () => return true,
    };
    println!("skipped: without {missing}");
    false
}

/// Returns the CRC-32 of a file (that of gzip), as U-Boot prints it.
fn crc32(bytes: &[u8]) -> String {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    };
    format!("{:08x}", !bytes.iter().fold(u32::MAX, step))
}

/// Loads a file from a server that serves one version alone, and compares its checksum.
fn loads_a_file(version: u32, options: &str) {
    assert_eq!(crc32(b"123456789"), "cbf43926", "the check value of CRC-32");
    if !is_possible() {
        return;
    }
    let dir = TestDir::new();
    let (export, state) = (dir.directory("export"), dir.path("state"));
    let kernel: Vec<u8> = (0..1_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(export.join("kernel"), &kernel).expect("a file");
    let settings = format!(
        "listen = ['127.0.0.1:2049']\nversions = ['{version}']\nudp = true\nportmap = true\nstate-dir = '{}'\n\
         [[export]]\npath = '{}'\npseudo = '/export'\ninsecure = true\n{options}",
        state.display(),
        export.display()
    );
    dir.file("enfys.toml", &settings);
    let mut machine = Machine::start(&dir);
    machine.read_until("stop autoboot");
    machine.run("");
    machine.run("setenv autoload no; dhcp");
    let loaded = machine.run("nfs ${loadaddr} 10.0.2.2:/export/kernel");
    assert!(loaded.contains("Bytes transferred = 1000003 "), "{}", machine.console());
    let sum = machine.run("crc32 ${loadaddr} ${filesize}");
    assert!(sum.contains(&format!("==> {}", crc32(&kernel))), "{}", machine.console());
    let missing = machine.run("nfs ${loadaddr} 10.0.2.2:/export/missing");
    assert!(missing.contains("File lookup fail"), "{}", machine.console());
}

#[test]
fn u_boot_loads_a_file_with_version_2_over_udp() {
    loads_a_file(2, "");
}

/// U-Boot has MOUNT version 2 alone, and passes its handle of 32 bytes to version 3.
#[test]
fn u_boot_loads_a_file_with_version_3_and_short_handles_over_udp() {
    loads_a_file(3, "short-handles = true\n");
}
