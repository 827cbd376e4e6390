use std::collections::BTreeSet;

use core::net::IpAddr;
use parking_lot::Mutex;
use protocol::mount::{DirPath, MountBody, MountList, Name};

/// Maximum number of listed mounts; further ones are served but not listed.
const MAX_LISTED: usize = 4096;

/// The mounts that clients reported (RFC 1813 §5.2.2: "the list … may become stale").
#[derive(Debug, Default)]
pub(crate) struct MountTable(Mutex<BTreeSet<(IpAddr, DirPath)>>);

impl MountTable {
    pub(super) fn insert(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.0.lock();
        // A copy: a slice of the request would keep the receive buffer.
        if mounts.len() < MAX_LISTED
            && let Ok(path) = DirPath::new(path.to_vec())
        {
            mounts.insert((client, path));
        }
    }

    pub(super) fn remove(&self, client: IpAddr, path: &DirPath) {
        self.0.lock().remove(&(client, path.clone()));
    }

    pub(super) fn remove_all(&self, client: IpAddr) {
        self.0.lock().retain(|(address, _)| *address != client);
    }

    pub(super) fn list(&self) -> MountList {
        let mounts = self.0.lock();
        let bodies = mounts.iter().map(|(client, path)| MountBody {
            hostname: Name::new(client.to_string().into_bytes()).expect("an address is a short name"),
            directory: path.clone(),
        });
        MountList::new(bodies.collect()).expect("the table is smaller than the protocol's bound")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_a_bounded_number_of_mounts_until_they_are_removed() {
        let table = MountTable::default();
        let client = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..2 * MAX_LISTED as u32 {
            table.insert(client(number), b"/export");
        }
        assert_eq!(table.list().len(), MAX_LISTED);
        table.remove_all(client(1));
        table.remove(client(2), &DirPath::from_static(b"/export"));
        table.remove(client(3), &DirPath::from_static(b"/other"));
        assert_eq!(table.list().len(), MAX_LISTED - 2);
        assert_eq!(&*table.list()[1].hostname, b"0.0.0.3");
    }
}
