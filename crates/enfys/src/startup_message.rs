//! The message at the start: exports, and commands that mount them.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

use server::Versions;
use tracing::{info, warn};

use crate::client_addresses::addresses_for_clients;
use crate::effective_config::names;
use crate::exports::ExportPlan;
use crate::flavors::mount_option;
use crate::plan::Plan;

/// Prints exports and mount commands to standard output. Logs the addresses, and warns of exports that are open to all clients.
pub fn print(plan: &Plan, addresses: &[SocketAddr], metrics: Option<SocketAddr>) {
    let metrics = metrics.map(|address| addresses_for_clients(&[address])[0]);
    let text = text(plan, &addresses_for_clients(addresses), metrics);
    // Standard output may be closed: a server works without a reader.
    let _ = std::io::stdout().write_all(text.as_bytes());
    for address in addresses {
        info!("listening on {address}");
    }
    let versions = names(plan.versions).join(", ");
    info!(%versions, udp = plan.udp, "versions of NFS");
    warnings_of_open_exports(&plan.exports, addresses).iter().for_each(|warning| warn!("{warning}"));
}

fn text(plan: &Plan, addresses: &[SocketAddr], metrics: Option<SocketAddr>) -> String {
    let mut text = String::new();
    let has_v2 = plan.versions.contains(Versions::V2);
    // Clients of versions 2 and 3 find the lock manager by the port mapper.
    let nolock = if plan.nlm && plan.wants_port_mapper { "" } else { ",nolock" };
    for export in &plan.exports {
        writeln!(text, "serving {export}").expect("a String takes everything");
        let sec = mount_option(export.options.flavors);
        for address in addresses {
            text.push_str(&mount_commands(&export.pseudo, *address, nolock, &sec));
            if has_v2 {
                text.push_str(&mount_command_of_version_2(&export.pseudo, *address, nolock, &sec));
            }
        }
    }
    if let Some(address) = metrics {
        writeln!(text, "metrics: http://{address}/metrics").expect("a String takes everything");
    }
    text
}

/// Returns mount commands and a URL, quoted for a shell.
fn mount_commands(path: &str, address: SocketAddr, nolock: &str, sec: &str) -> String {
    let (host, port) = (host(address), address.port());
    let source = format!("{host}:{path}");
    let source = quoted(&source);
    let v3 = format!("vers=3,tcp,port={port},mountport={port},mountproto=tcp{nolock}{sec}");
    let mut text = format!(
        "  mount -t nfs -o vers=4.1,port={port}{sec} {source} /mnt\n\
         \x20 mount -t nfs -o {v3} {source} /mnt\n"
    );
    if sec.is_empty() {
        // libnfs takes the last part of the path as a file: below `/`, files are `nfs://HOST//FILE`.
        let path = if path == "/" { "//" } else { path };
        let url = format!("nfs://{host}{path}?version=3&nfsport={port}&mountport={port}");
        writeln!(text, "  {}", quoted(&url)).expect("a String takes everything");
    }
    text
}

/// Returns the mount command of version 2, for kernels that have it.
fn mount_command_of_version_2(path: &str, address: SocketAddr, nolock: &str, sec: &str) -> String {
    let (host, port) = (host(address), address.port());
    let source = format!("{host}:{path}");
    let options = format!("vers=2,tcp,port={port},mountport={port},mountproto=tcp{nolock}{sec}");
    format!("  mount -t nfs -o {options} {} /mnt\n", quoted(&source))
}

/// Returns the text as one word of a POSIX shell.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// Returns the host part of an address, as in a URL.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Returns warnings of exports that all clients may mount, if the server listens on other addresses than loopback.
fn warnings_of_open_exports(exports: &[ExportPlan], addresses: &[SocketAddr]) -> Vec<String> {
    let open: Vec<_> = addresses.iter().filter(|address| !address.ip().is_loopback()).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let open = open.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let exports = exports.iter().filter(|export| export.is_for_all_clients());
    let warning = |export: &ExportPlan| {
        let remedy = match export.is_of_command_line() {
            true => "to limit the clients, use `clients` in a configuration file (--config)",
            false => "to allow one network only, write `clients = [\"10.0.0.0/8\"]`, for example",
        };
        export.error(format!("every machine that reaches {open} may mount it: {remedy}"))
    };
    exports.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_3_locks_where_clients_find_the_lock_manager() {
        let address = SocketAddr::from(([192, 0, 2, 1], 2049));
        for nolock in ["", ",nolock"] {
            let commands = mount_commands("/export", address, nolock, ",sec=krb5");
            let v3 = commands.lines().find(|line| line.contains("vers=3")).expect("a command");
            assert!(v3.contains(&format!("mountproto=tcp{nolock},sec=krb5 ")), "{v3}");
        }
    }

    #[test]
    fn special_characters_are_quoted_for_a_shell() {
        for plain in ["127.0.0.1:/export", "host:/a-b_c.d/e"] {
            assert_eq!(quoted(plain), plain);
        }
        // zsh refuses brackets that match no file.
        assert_eq!(quoted("[::1]:/e"), "'[::1]:/e'");
        assert_eq!(quoted("h:/a b"), "'h:/a b'");
        assert_eq!(quoted("h:/it's"), r"'h:/it'\''s'");
        assert_eq!(quoted("nfs://h/e?version=3&nfsport=1"), "'nfs://h/e?version=3&nfsport=1'");
    }
}
