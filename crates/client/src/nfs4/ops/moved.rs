//! The places of a file system that a server does not have (RFC 8881 §11.3): asked after MOVED, for the error that the caller gets.

use std::fmt::Write;

use protocol::nfs4::attributes::locations::FsLocations;
use protocol::nfs4::attributes::{Attributes as WireAttributes, FileAttributes, number};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::getattr::GetAttrArgs;
use protocol::nfs4::ops::lookup::LookupArgs;
use protocol::nfs4::types::{Bitmap, Status};

use super::super::Nfs4;
use super::super::convert::component;
use super::super::wire::take;
use crate::config::Caller;
use crate::error::OpError;

/// Maximum number of places in an error.
const PLACES_MAX: usize = 8;

impl Nfs4 {
    /// Returns `error`, or after MOVED one that names the places where the object of `names` below `start` is.
    pub(super) async fn with_places(
        &self,
        error: OpError,
        caller: &Caller,
        start: Op,
        names: &[&[u8]],
    ) -> OpError {
        if error != OpError::Status(Status::MOVED) {
            return error;
        }
        // LOOKUP does not enter an absent file system: its root is the last name that is found.
        for length in (0..=names.len()).rev() {
            match self.places(caller, start.clone(), &names[..length]).await {
                Ok(Some(places)) => return OpError::Moved(places.into()),
                Err(OpError::Status(Status::MOVED)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        error
    }

    async fn places(&self, caller: &Caller, start: Op, names: &[&[u8]]) -> Result<Option<String>, OpError> {
        let mut ops = vec![start];
        for name in names {
            ops.push(Op::Lookup(LookupArgs { name: component(name)? }));
        }
        ops.push(Op::GetAttr(GetAttrArgs { attributes: Bitmap::of(&[number::FS_LOCATIONS]) }));
        let mut results = self.read_only(caller, &ops).await?;
        results.skip_many(1 + names.len())?;
        let wire: FileAttributes = take!(results, GetAttr)?;
        let decoded = WireAttributes::from_file_attributes(&wire);
        let locations = decoded.ok().and_then(|attributes| attributes.fs_locations);
        Ok(locations.map(|locations| text(&locations)).filter(|text| !text.is_empty()))
    }
}

/// Returns places as mount(8) writes them.
fn text(locations: &FsLocations) -> String {
    let mut text = String::new();
    let places =
        locations.locations.iter().flat_map(|place| place.servers.iter().map(move |server| (server, place)));
    for (index, (server, place)) in places.take(PLACES_MAX).enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        let _ = write!(text, "{comma}{}:/", server.escape_ascii());
        for (index, name) in place.root_path.iter().enumerate() {
            let slash = if index > 0 { "/" } else { "" };
            let _ = write!(text, "{slash}{}", name.escape_ascii());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::locations::FsLocation;
    use protocol::nfs4::types::{Component, Pathname, Utf8};
    use xdr::List;

    use super::*;

    #[test]
    fn places_are_written_as_for_mount() {
        let place = |servers: &[&'static str], path: &[&'static str]| {
            let servers = servers.iter().map(|server| Utf8::from_static(server.as_bytes())).collect();
            let names = path.iter().map(|name| Component::from_static(name.as_bytes())).collect();
            FsLocation { servers: List::new(servers).unwrap(), root_path: List::new(names).unwrap() }
        };
        let of = |places: Vec<FsLocation>| {
            text(&FsLocations { fs_root: Pathname::default(), locations: List::new(places).unwrap() })
        };
        let all = vec![place(&["a", "b\n"], &["srv", "x"]), place(&["c"], &[])];
        assert_eq!(of(all), "a:/srv/x, b\\n:/srv/x, c:/");
        assert_eq!(of(Vec::new()), "");
        assert_eq!(of(vec![place(&["a"; 20], &[])]).matches("a:/").count(), PLACES_MAX);
    }
}
