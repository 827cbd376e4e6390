//! Enfys itself: this program as a server.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::is_modelled;
use super::launch::{Address, EXPORT};

/// Size of a file system in memory.
const MEMORY: &str = "16GiB";

/// Returns the arguments of Enfys as a server at `address`, whose files are in `place`.
#[must_use]
pub(super) fn arguments(name: &str, place: &Path, address: Address) -> Vec<OsString> {
    if is_modelled(name) {
        return modelled_disk(name, address);
    }
    let mut arguments: Vec<OsString> = vec!["serve".into()];
    match name {
        "enfys-memory" => arguments.push(format!("--memory={MEMORY}").into()),
        _ => {
            let mut export = place.join("export").into_os_string();
            export.push(format!(":{EXPORT}"));
            arguments.push(export);
        }
    }
    if name == "enfys-async" {
        arguments.push("--async".into());
    }
    arguments.extend(["--listen".into(), address.server.to_string().into(), "--insecure".into()]);
    if let Some(metrics) = address.metrics {
        arguments.extend(["--metrics".into(), metrics.to_string().into()]);
    }
    arguments.extend(
        ["--squash", "none", "--versions", "2,3,4", "--log", "warn", "--state-dir"].map(OsString::from),
    );
    arguments.push(place.join("state").into_os_string());
    arguments
}

/// Returns the arguments of Enfys as a server on a modelled disk.
fn modelled_disk(name: &str, address: Address) -> Vec<OsString> {
    let mut arguments: Vec<OsString> =
        vec!["bench".into(), "disk".into(), "--listen".into(), address.server.to_string().into()];
    if let Some(metrics) = address.metrics {
        arguments.extend(["--metrics".into(), metrics.to_string().into()]);
    }
    for (part, option) in [("-disks-", "--striped"), ("-gathering", "--gather"), ("-journal", "--journal")] {
        if name.contains(part) {
            arguments.push(option.into());
        }
    }
    arguments
}

/// Reads the start message until it names the port; `None` if the server ends before.
pub(super) fn listening_address(mut output: BufReader<impl io::Read>) -> Option<SocketAddr> {
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let port = line.split("nfsport=").nth(1).and_then(|rest| rest.split('&').next());
        if let Some(port) = port {
            return Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_message_names_the_port() {
        let message = "serving /tmp/x as /export\n  mount -t nfs -o vers=4.1,port=41 127.0.0.1:/export /mnt\n  \
                       'nfs://127.0.0.1/export?version=3&nfsport=4049&mountport=4049'\n";
        let address = listening_address(BufReader::new(message.as_bytes()));
        assert_eq!(address, Some(([127, 0, 0, 1], 4049).into()));
        assert_eq!(listening_address(BufReader::new(&b"error\n"[..])), None);
    }
}
