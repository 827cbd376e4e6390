//! What is said at the start: how to mount what is served.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

use tracing::{info, warn};

use crate::export_plan::ExportPlan;
use crate::reach::addresses_for_clients;
use crate::security::mount_option;

/// Says on standard output how to mount what is served, and warns of what is open to everyone.
pub fn announce(exports: &[ExportPlan], addresses: &[SocketAddr], metrics: Option<SocketAddr>) {
    let metrics = metrics.map(|address| addresses_for_clients(&[address])[0]);
    let text = text(exports, &addresses_for_clients(addresses), metrics);
    // Standard output may be closed: a server needs no reader.
    let _ = std::io::stdout().write_all(text.as_bytes());
    for address in addresses {
        info!("listening on {address}");
    }
    open_exports(exports, addresses).iter().for_each(|warning| warn!("{warning}"));
}

fn text(exports: &[ExportPlan], addresses: &[SocketAddr], metrics: Option<SocketAddr>) -> String {
    let mut text = String::new();
    for export in exports {
        writeln!(text, "serving {export}").expect("a String takes everything");
        let sec = mount_option(export.options.flavors);
        addresses.iter().for_each(|address| text.push_str(&how_to_mount(&export.pseudo, *address, &sec)));
    }
    if let Some(address) = metrics {
        writeln!(text, "metrics: http://{address}/metrics").expect("a String takes everything");
    }
    text
}

/// Commands and a URL, as a shell takes them.
fn how_to_mount(path: &str, address: SocketAddr, sec: &str) -> String {
    let (host, port) = (host(address), address.port());
    let source = format!("{host}:{path}");
    let source = quoted(&source);
    let v3 = format!("vers=3,tcp,port={port},mountport={port},mountproto=tcp,nolock{sec}");
    let mut text = format!(
        "  mount -t nfs -o vers=4.1,port={port}{sec} {source} /mnt\n\
         \x20 mount -t nfs -o {v3} {source} /mnt\n"
    );
    if sec.is_empty() {
        let url = format!("nfs://{host}{path}?version=3&nfsport={port}&mountport={port}");
        writeln!(text, "  {}", quoted(&url)).expect("a String takes everything");
    }
    text
}

/// Returns the text as one word of a POSIX shell.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "%+,-./:=@_".contains(c);
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// The address as a client would write it.
fn host(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

/// Warnings of exports that every machine may mount which reaches a listening address.
fn open_exports(exports: &[ExportPlan], addresses: &[SocketAddr]) -> Vec<String> {
    let open: Vec<_> = addresses.iter().filter(|address| !address.ip().is_loopback()).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let open = open.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    let exports = exports.iter().filter(|export| export.is_for_everybody());
    let warning = |export: &ExportPlan| {
        let what_to_do = match export.is_of_command_line() {
            true => {
                "the command line cannot limit the clients, only `clients` in a configuration file (--config) can"
            }
            false => "`clients = [\"10.0.0.0/8\"]`, for example, lets only that network in",
        };
        export.blame(format!("every machine that reaches {open} may mount it: {what_to_do}"))
    };
    exports.map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
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
