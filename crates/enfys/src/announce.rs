//! What is said at the start: how to mount what is served.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;

use tracing::{info, warn};

use crate::export_plan::ExportPlan;
use crate::security::mount_option;

/// Says on standard output how to mount what is served, and warns of what is open to everyone.
pub fn announce(exports: &[ExportPlan], addresses: &[SocketAddr], metrics: Option<SocketAddr>) {
    // Whoever started the server need not read this.
    let _ = std::io::stdout().write_all(text(exports, addresses, metrics).as_bytes());
    for address in addresses {
        info!("listening on {address}");
    }
    let is_open = addresses.iter().any(|address| !address.ip().is_loopback());
    for export in exports.iter().filter(|export| is_open && export.options.clients.is_empty()) {
        warn!("{} is open to every machine that reaches this one: `clients` narrows it", export.pseudo);
    }
}

fn text(exports: &[ExportPlan], addresses: &[SocketAddr], metrics: Option<SocketAddr>) -> String {
    let mut text = String::new();
    for export in exports {
        let path = &export.pseudo;
        let sec = mount_option(export.options.flavors);
        writeln!(text, "serving {export}").expect("a String takes everything");
        for address in addresses {
            let (host, port) = (host(*address), address.port());
            let v3 = format!("vers=3,tcp,port={port},mountport={port},mountproto=tcp,nolock{sec}");
            write!(
                text,
                "  mount -t nfs -o vers=4.1,port={port}{sec} {host}:{path} /mnt\n\
                 \x20 mount -t nfs -o {v3} {host}:{path} /mnt\n"
            )
            .expect("a String takes everything");
            if sec.is_empty() {
                writeln!(text, "  nfs://{host}{path}?version=3&nfsport={port}&mountport={port}")
                    .expect("a String takes everything");
            }
        }
    }
    if let Some(address) = metrics {
        writeln!(text, "metrics: http://{address}/metrics").expect("a String takes everything");
    }
    text
}

/// The address as a client would write it; where every address is listened on, this machine's name.
fn host(address: SocketAddr) -> String {
    match address {
        _ if address.ip().is_unspecified() => {
            rustix::system::uname().nodename().to_string_lossy().into_owned()
        }
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}
