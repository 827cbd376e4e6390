//! The machine's properties that matter for a measurement.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine and the file system that was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// The processor's name, if it has one.
    pub processor: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Type of the exported file system.
    pub file_system: String,
    /// TCP's congestion control between two sockets of this machine.
    #[serde(default)]
    pub congestion_control: String,
}

impl Machine {
    /// Returns this machine, with the file system that contains `export`. Properties that cannot be determined are "unknown".
    #[must_use]
    pub fn here(export: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let known = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        let information = read("/proc/cpuinfo");
        let model = information.lines().find_map(|line| line.strip_prefix("model name"));
        Self {
            kernel: known(read("/proc/sys/kernel/osrelease").trim()),
            processor: known(model.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']))),
            cores: information.lines().filter(|line| line.starts_with("processor")).count(),
            file_system: known(file_system_at(&read("/proc/self/mounts"), export)),
            congestion_control: known(&congestion_control().unwrap_or_default()),
        }
    }
}

/// Returns the value for a connection over loopback: a route may override the machine's setting.
fn congestion_control() -> io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    Ok(rustix::net::sockopt::tcp_congestion(&stream)?)
}

/// Returns the type of the mount that contains `path`: the longest mount point above it, the last of those mounted.
fn file_system_at<'m>(mounts: &'m str, path: &Path) -> &'m str {
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((Path::new(fields.next()?), fields.next()?))
    });
    let above = fields.filter(|(point, _)| path.starts_with(point));
    above.max_by_key(|(point, _)| point.as_os_str().len()).map_or("", |(_, kind)| kind)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, processor, cores, file_system, congestion_control } = self;
        write!(
            f,
            "Linux {kernel}, {processor}, {cores} core(s), TCP {congestion_control}, export on {file_system}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_is_one_that_the_kernel_has() {
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        let own = congestion_control().unwrap();
        assert!(available.split_whitespace().any(|name| name == own), "{own}: {available}");
    }

    #[test]
    fn file_system_is_that_of_the_nearest_mount_point() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\nnone /tmp/a overlay rw 0 0\n";
        assert_eq!(file_system_at(mounts, Path::new("/srv/x")), "ext4");
        assert_eq!(file_system_at(mounts, Path::new("/tmp/ab")), "tmpfs");
        assert_eq!(file_system_at(mounts, Path::new("/tmp/a/b")), "overlay");
        assert_eq!(file_system_at("", Path::new("/")), "");
    }
}
