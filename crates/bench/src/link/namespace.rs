//! The two ends of a link: network namespaces with a TUN device each.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use super::settings::Settings;
use super::system;

/// Address of the server's end.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the client's end.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Name of the TUN device at either end.
pub const DEVICE: &str = "link0";

/// One end of a link: a network namespace that lives as long as this value, or a process in it.
#[derive(Debug)]
pub struct End {
    namespace: File,
    /// The end's TUN device.
    pub(super) tun: File,
}

/// Both ends.
#[derive(Debug)]
pub struct Ends {
    /// Where the server runs.
    pub server: End,
    /// Where the client runs.
    pub client: End,
}

impl Ends {
    /// Creates both namespaces and their devices.
    ///
    /// Without the right to create network namespaces, this process first moves into a user namespace in which it is root;
    /// it must have one thread only then.
    ///
    /// # Errors
    /// The failed step, and a possible remedy.
    pub fn new(settings: &Settings) -> io::Result<Self> {
        let large = settings.allows_large_packets();
        let server = match End::new(SERVER, settings.mtu, large) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                system::new_user().map_err(|error| explained("a user namespace", &error))?;
                End::new(SERVER, settings.mtu, large)
            }
            other => other,
        };
        let server = server.map_err(|error| explained("a network namespace with a TUN device", &error))?;
        let client = End::new(CLIENT, settings.mtu, large);
        Ok(Self {
            server,
            client: client.map_err(|error| explained("the client's network namespace", &error))?,
        })
    }
}

fn explained(what: &str, error: &io::Error) -> io::Error {
    let help = "run as root, or allow user namespaces (kernel.unprivileged_userns_clone, \
                user.max_user_namespaces) and /dev/net/tun";
    io::Error::new(error.kind(), format!("cannot make {what}: {error}; {help}"))
}

impl End {
    fn new(address: Ipv4Addr, mtu: u32, large: bool) -> io::Result<Self> {
        in_thread(move || {
            system::new_network()?;
            // /proc/self is the process's first thread, which stays in its own namespace.
            let namespace = File::open("/proc/thread-self/ns/net")?;
            system::set_up("lo")?;
            // The kernel would send router solicitations into the link. Without IPv6 there is nothing to switch off.
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let tun = system::open_tun(DEVICE, large)?;
            system::configure(DEVICE, address, mtu, DEVICE_QUEUE_PACKETS)?;
            Ok(Self { namespace, tun })
        })
    }

    /// Runs `work` in a thread inside this end. Processes that it starts are inside as well.
    ///
    /// # Errors
    /// Those of entering, and of `work`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        in_thread(|| {
            system::enter_network(self.namespace.as_fd())?;
            work()
        })
    }

    /// Returns the end's namespace, for a thread that stays in it.
    ///
    /// # Errors
    /// Those of files.
    pub(super) fn duplicate(&self) -> io::Result<Namespace> {
        Ok(Namespace(self.namespace.try_clone()?))
    }

    /// Sets the largest buffers that TCP sockets of this end take, in bytes (`tcp_rmem`, `tcp_wmem`).
    ///
    /// # Errors
    /// Those of writing below `/proc/sys`.
    pub fn limit_tcp_buffers(&self, bytes: u64) -> io::Result<()> {
        self.run(move || {
            for name in ["tcp_rmem", "tcp_wmem"] {
                let path = Path::new("/proc/sys/net/ipv4").join(name);
                let now = std::fs::read_to_string(&path)?;
                let mut values: Vec<u64> =
                    now.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                for value in &mut values {
                    *value = (*value).min(bytes);
                }
                if let Some(largest) = values.last_mut() {
                    *largest = bytes;
                }
                let text: Vec<String> = values.iter().map(ToString::to_string).collect();
                std::fs::write(&path, text.join(" "))?;
            }
            Ok(())
        })
    }
}

/// A network namespace.
#[derive(Debug)]
pub(super) struct Namespace(File);

impl Namespace {
    /// Moves the calling thread into the namespace, permanently.
    pub(super) fn enter(&self) -> io::Result<()> {
        system::enter_network(self.0.as_fd())
    }
}

/// Packets that wait in a device until this process takes them.
const DEVICE_QUEUE_PACKETS: u32 = 1000;

/// Runs `work` in a thread of its own: namespaces belong to threads.
fn in_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of a namespace panicked")))
    })
}
