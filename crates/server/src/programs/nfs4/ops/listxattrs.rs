//! LISTXATTRS (RFC 8276 §8.4.3): lists the names of extended attributes.
//!
//! Names are sorted by their hash, and a cookie is the hash of the last name sent. A listing therefore continues after that name
//! although attributes were set or removed meanwhile, and after a restart; the server keeps no state for it.

use bytes::Bytes;
use protocol::nfs4::ops::xattr::ListXattrsArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

/// Bytes of `LISTXATTRS4resok` without names: cookie, number of names, eof.
const FRAME: usize = 8 + 4 + 4;

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let ListXattrsArgs { cookie, maxcount } = ListXattrsArgs::decode(arguments)?;
    let file = compound.file(Status::NOTSUPP)?;
    let context = compound.context(file.export);
    let names = file.export.backend.list_xattrs(&context, &file.handle).await?;
    let mut names: Vec<(u64, Bytes)> = names.into_iter().map(|name| (hash(&name), name)).collect();
    names.retain(|(place, _)| *place > cookie);
    names.sort_unstable();

    // "This maximum size represents all of the data being returned within the LISTXATTRS4resok structure and includes
    // the XDR overhead" (§8.4.3.3).
    let room = compound.room(reply);
    let mut left = (maxcount as usize).min(room).checked_sub(FRAME);
    let fit = names.iter().take_while(|(_, name)| {
        left =
            left.and_then(|left| left.checked_sub(size_of::<u32>() + name.len() + xdr::padding(name.len())));
        left.is_some()
    });
    let count = whole_places(&names, fit.count());
    if count == 0 && (!names.is_empty() || room.min(maxcount as usize) < FRAME) {
        // "If the server is unable to return a single xattr name within the maxcount limit, the error NFS4ERR_TOOSMALL will be
        // returned"; other limits have other statuses.
        let too_small = if room < maxcount as usize { compound.no_room() } else { Status::TOOSMALL };
        return Err(too_small.into());
    }
    let sent = &names[..count];
    reply.u64(sent.last().map_or(cookie, |(place, _)| *place));
    reply.u32(count as u32);
    for (_, name) in sent {
        reply.opaque(name);
    }
    reply.bool(count == names.len());
    Ok(())
}

/// Returns the number of the first `fit` names that can be sent: names of the same hash must go into one reply, since their cookie is
/// the same.
fn whole_places(names: &[(u64, Bytes)], fit: usize) -> usize {
    match names.get(fit) {
        None => fit,
        Some((next, _)) => names[..fit].partition_point(|(place, _)| place < next),
    }
}

/// Returns the hash by which names are sorted: FNV-1a, never 0, the cookie of the start.
fn hash(name: &[u8]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    name.iter().fold(BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)).max(1)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::xattr::{ListXattrsArgs, ListXattrsOk, RemoveXattrArgs, SetXattrOption};
    use protocol::nfs4::types::{Handle, Status};

    use super::*;
    use crate::programs::nfs4::ops::getxattr::tests::{key, set};
    use crate::testing::{Lab, lab_42, putfh};

    fn list(lab: &mut Lab, file: Handle, cookie: u64, maxcount: u32) -> ListXattrsOk {
        match lab.last(vec![putfh(file), Op::ListXattrs(ListXattrsArgs { cookie, maxcount })]) {
            OpResult::ListXattrs(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn names(ok: &ListXattrsOk) -> Vec<String> {
        ok.names.iter().map(|name| String::from_utf8(name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn lists_all_names_or_none() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let none = list(&mut lab, file, 0, 16);
        assert!(none.eof && none.names.is_empty());
        for name in ["b", "a", "user.c"] {
            lab.ok(vec![putfh(file), set(SetXattrOption::CREATE, name, &b"v"[..])]);
        }
        let all = list(&mut lab, file, 0, 4096);
        let mut sorted = names(&all);
        sorted.sort();
        assert_eq!((sorted, all.eof), (["a", "b", "user.c"].map(String::from).to_vec(), true));
        let behind = list(&mut lab, file, all.cookie, 4096);
        assert!(behind.eof && behind.names.is_empty());
    }

    #[test]
    fn continues_while_attributes_come_and_go() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        let stay: Vec<String> = (0..40).map(|number| format!("stay-{number}")).collect();
        for name in &stay {
            lab.ok(vec![putfh(file), set(SetXattrOption::CREATE, name, &b"v"[..])]);
        }
        let (mut cookie, mut seen, mut rounds) = (0, Vec::new(), 0);
        loop {
            let part = list(&mut lab, file, cookie, 100);
            seen.extend(names(&part));
            (cookie, rounds) = (part.cookie, rounds + 1);
            if part.eof {
                break;
            }
            assert!(!part.names.is_empty(), "no progress");
            let passing = format!("passing-{rounds}");
            lab.ok(vec![putfh(file), set(SetXattrOption::CREATE, &passing, &b"v"[..])]);
            if rounds % 2 == 0 {
                let gone = key(&format!("passing-{}", rounds - 1));
                lab.ok(vec![putfh(file), Op::RemoveXattr(RemoveXattrArgs { name: gone })]);
            }
        }
        assert!(rounds > 5, "{rounds} rounds");
        for name in &stay {
            assert_eq!(seen.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn a_limit_below_one_name_is_too_small() {
        let mut lab = lab_42();
        let file = lab.file(&["export", "file"], b"");
        lab.ok(vec![putfh(file), set(SetXattrOption::CREATE, "12345", &b"v"[..])]);
        let mut status =
            |maxcount| lab.status(vec![putfh(file), Op::ListXattrs(ListXattrsArgs { cookie: 0, maxcount })]);
        // Cookie 8, count 4, length 4 and the padded name 8, eof 4.
        assert_eq!(status(28), Status::OK);
        assert_eq!(status(27), Status::TOOSMALL);
        assert_eq!(status(0), Status::TOOSMALL);
        let root = Op::ListXattrs(ListXattrsArgs { cookie: 0, maxcount: 100 });
        assert_eq!(lab.status_at(&[], root), Status::NOTSUPP);
    }

    #[test]
    fn names_of_one_hash_are_sent_together() {
        let at = |place: u64| (place, Bytes::new());
        let names = [at(1), at(2), at(2), at(3)];
        assert_eq!([0, 1, 2, 3, 4].map(|fit| whole_places(&names, fit)), [0, 1, 1, 3, 4]);
    }
}
