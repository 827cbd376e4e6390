//! The part of a client record that only version 4.0 needs.

use core::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use rpc::address::{NetId, UniversalAddress};

use super::wire::{NetAddress, Verifier};
use crate::state::tables::v40_owners::{Owner, Owners};

/// The callback address and program of a version 4.0 client: `cb_client4` and `callback_ident`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallbackClient {
    /// Program number.
    pub program: u32,
    /// The address as the client wrote it.
    pub location: NetAddress,
    /// `callback_ident`, which is sent with every callback.
    pub ident: u32,
    /// Address of the SETCLIENTID. The server connects to no other host.
    pub from: Option<IpAddr>,
}

impl CallbackClient {
    /// Parses a TCP address. A client without callbacks sends no address, or an invalid one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        let net_id = NetId::from_bytes(&self.location.netid).filter(|id| id.is_tcp())?;
        let address = UniversalAddress::from_bytes(&self.location.address).ok()?.0;
        let is_usable = address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast();
        Some(address).filter(|address| is_usable && address.is_ipv6() == net_id.is_ipv6())
    }
}

/// The confirmation data of a version 4.0 record.
#[derive(Debug)]
pub(crate) struct Confirmation {
    /// `setclientid_confirm` of the record.
    pub(crate) verifier: Verifier,
    /// Callback information that awaits confirmation, with its own `setclientid_confirm`.
    pub(crate) update: Option<(CallbackClient, Verifier)>,
}

/// The part of a client that only version 4.0 needs.
#[derive(Debug)]
pub(crate) struct V40Client {
    /// The callback address and program; SETCLIENTID_CONFIRM changes them.
    pub(crate) callback: Mutex<CallbackClient>,
    /// The connection for callbacks.
    pub(crate) path: Mutex<super::v40_path::V40CallbackPath>,
    pub(crate) owners: Mutex<Owners>,
    /// Number of unconfirmed open-owners. While it is zero, as usual, I/O skips the search for them.
    pub(crate) unconfirmed: AtomicU32,
}

impl V40Client {
    pub(crate) fn new(callback: CallbackClient) -> Self {
        Self {
            callback: Mutex::new(callback),
            path: Mutex::default(),
            owners: Mutex::default(),
            unconfirmed: AtomicU32::new(0),
        }
    }

    pub(crate) fn confirm(&self, owner: &mut Owner, now_confirmed: bool) {
        if now_confirmed && !owner.confirmed {
            owner.confirmed = true;
            self.unconfirmed.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callback_addresses_are_those_that_can_be_called() {
        let address = |netid: &'static str, text: &'static str| {
            let location = NetAddress {
                netid: protocol::nfs4::types::Utf8::from_static(netid.as_bytes()),
                address: protocol::nfs4::types::Utf8::from_static(text.as_bytes()),
            };
            CallbackClient { location, ..CallbackClient::default() }.address()
        };
        // RFC 5665 §5.2.3.3: 203 * 256 + 81.
        assert_eq!(address("tcp", "192.0.2.7.203.81"), Some("192.0.2.7:52049".parse().unwrap()));
        assert_eq!(address("tcp6", "2001:db8::1.8.1"), Some("[2001:db8::1]:2049".parse().unwrap()));
        for (netid, text) in [
            ("tcp", "0.0.0.0.0.0"),
            ("tcp", "192.0.2.7.0.0"),
            ("udp", "192.0.2.7.8.1"),
            ("tcp", "2001:db8::1.8.1"),
            ("tcp", "224.0.0.1.8.1"),
            ("", ""),
            ("tcp", "nonsense"),
        ] {
            assert_eq!(address(netid, text), None, "{netid} {text}");
        }
    }
}
