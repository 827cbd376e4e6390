//! Listings with ACLs: each ACL is a backend call of its own, which may wait.

use std::ops::ControlFlow;

use protocol::nfs4::attributes::number;
use protocol::nfs4::types::Status;
use vfs::{Attributes, Entry, Handle, ReadDir, ReadDirEnd};
use xdr::Writer;

use super::Listing;
use super::mounted::Mounted;
use crate::files::object::{File, Object};
use crate::programs::nfs4::acl;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::entry_attributes::EntryAttributes;
use crate::programs::nfs4::status::{Failure, Result};

/// Maximum number of entries of a reply; also bounds entries that are fetched and do not fit.
const ENTRIES_MAX: usize = 128;
/// Minimum bytes of an entry: its flag, cookie, a name, an empty mask, no attributes.
const ENTRY_BYTES_MIN: usize = 4 + 8 + 8 + 4 + 4;

/// An entry that waits for its ACL.
struct Waiting {
    name: Box<[u8]>,
    fileid: u64,
    cookie: u64,
    object: Option<(Handle, Attributes)>,
}

/// Writes a directory's entries with their ACLs.
///
/// # Errors
/// The inner one is the listing's; the outer one is that of an entry whose ACL fails without `rdattr_error`.
pub(super) async fn list(
    compound: &Compound<'_>,
    directory: File<'_>,
    request: ReadDir,
    listing: &mut Listing<'_>,
    (attributes, inside): (&EntryAttributes<'_>, &[Mounted<'_>]),
    reply: &mut Writer,
) -> Result<std::result::Result<ReadDirEnd, vfs::Error>> {
    let most = ENTRIES_MAX.min(listing.left / ENTRY_BYTES_MIN + 1);
    let (waiting, mut end) = match gather(compound, directory, request, most).await {
        Ok(gathered) => gathered,
        Err(error) => return Ok(Err(error)),
    };
    for Waiting { name, fileid, cookie, object } in waiting {
        let mounted = Mounted::of(inside, &Entry { name: &name, fileid, cookie, object });
        if let Some(subject) = mounted.map(|mounted| mounted.subject(compound)) {
            let mask = listing.mask;
            if listing.put(&name, cookie, reply, |reply| subject.write(mask, reply)).is_break() {
                end.eof = false;
                break;
            }
            continue;
        }
        let acl = match &object {
            Some((handle, seen)) => {
                let file = Object::File(directory.with(*handle));
                acl::get(compound, &file, listing.mask, seen).await
            }
            None => Err(Status::STALE.into()),
        };
        let mut entry = Entry { name: &name, fileid, cookie, object };
        compound.hide_changes_of_entry(directory, listing.mask, &mut entry);
        let put = match acl {
            Ok(acl) => listing.put(&name, cookie, reply, |reply| {
                attributes.write_with_acl(&entry, acl.as_ref(), reply);
            }),
            Err(Failure::Status(error)) if listing.mask.has(number::RDATTR_ERROR) => {
                listing.put(&name, cookie, reply, |reply| attributes.write_error(fileid, error, reply))
            }
            // Removed meanwhile: left out, as if the listing had come later.
            Err(Failure::Status(Status::STALE)) => continue,
            Err(failure) => return Err(failure),
        };
        if put.is_break() {
            end.eof = false;
            break;
        }
    }
    Ok(Ok(end))
}

/// Fetches the next entries, at most `most`.
async fn gather(
    compound: &Compound<'_>,
    directory: File<'_>,
    request: ReadDir,
    most: usize,
) -> std::result::Result<(Vec<Waiting>, ReadDirEnd), vfs::Error> {
    let context = compound.context(directory.export);
    let mut waiting = Vec::new();
    let mut visit = |entry: Entry<'_>| {
        if waiting.len() == most {
            return ControlFlow::Break(());
        }
        let Entry { name, fileid, cookie, object } = entry;
        waiting.push(Waiting { name: name.into(), fileid, cookie, object });
        ControlFlow::Continue(())
    };
    let end = directory.export.backend.readdir(&context, &directory.handle, request, &mut visit).await?;
    Ok((waiting, end))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::acl::{Ace, AceFlags, AceMask, AceType};
    use protocol::nfs4::attributes::{Attributes, SetAttributes, number as n};
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::readdir::ReadDirArgs;
    use protocol::nfs4::ops::setattr::SetAttrArgs;
    use protocol::nfs4::types::{Bitmap, Stateid, Utf8};
    use vfs::fault::{Fault, Method, Rule};
    use xdr::List;

    use super::super::tests::{ALL, filled, list, names, pieces_of};
    use super::*;
    use crate::testing::{Lab, at, faulty, lab_of};

    const MASK: [u32; 4] = [n::SIZE, n::ACL, n::MODE, n::RDATTR_ERROR];
    const WITH_ACL: ReadDirArgs = ReadDirArgs { attributes: Bitmap::of(&MASK), ..ALL };

    /// Lets a user read.
    fn let_read(lab: &mut Lab, name: &'static str, user: &'static str) {
        let ace = Ace {
            ace_type: AceType::ALLOWED,
            flags: AceFlags::empty(),
            mask: AceMask::READ_DATA,
            who: Utf8::from_static(user.as_bytes()),
        };
        let acl = Some(List::new(vec![ace]).unwrap());
        let attributes = SetAttributes { acl, ..SetAttributes::default() }.to_file_attributes();
        let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes });
        lab.ok(at(&["export", name], vec![set]));
    }

    #[test]
    fn each_entry_has_the_acl_of_getattr() {
        let mut lab = filled(3);
        let_read(&mut lab, "entry-000", "1");
        let_read(&mut lab, "entry-002", "4000000");
        let listing = list(&mut lab, &["export"], WITH_ACL);
        assert!(listing.eof);
        let all = ["entry-000", "entry-001", "entry-002"];
        assert_eq!(names(&listing), all);
        let mut lists = Vec::new();
        for (entry, name) in listing.entries.iter().zip(all) {
            let reported = Attributes::from_file_attributes(&entry.attributes).unwrap();
            let expected = lab.attributes(&["export", name], &MASK);
            assert_eq!(reported, Attributes { rdattr_error: Some(Status::OK), ..expected }, "{name}");
            lists.push(reported.acl.unwrap());
        }
        assert!(lists[0] != lists[1] && lists[0] != lists[2], "the users are in them");
        // The root of an export is listed where it is mounted.
        let top = list(&mut lab, &[], WITH_ACL);
        let reported = Attributes::from_file_attributes(&top.entries[0].attributes).unwrap();
        assert_eq!(reported.acl, lab.attributes(&["export"], &[n::ACL]).acl);
        assert!(reported.acl.is_some());
    }

    /// RFC 8881 §18.23.3: `rdattr_error` reports the failure of one entry.
    #[test]
    fn an_unreadable_acl_fails_only_its_entry_with_rdattr_error() {
        let (export, backend) = faulty();
        let mut lab = lab_of(vec![export]);
        lab.file(&["export", "a"], b"");
        lab.file(&["export", "b"], b"");
        let broken = Rule::on(Method::GetAcl, Fault::Fail(vfs::Error::Io)).times(1);
        backend.add(broken.clone());
        let listing = list(&mut lab, &["export"], WITH_ACL);
        let reported = listing.entries.iter().map(|entry| {
            let reported = Attributes::from_file_attributes(&entry.attributes).unwrap();
            (reported.rdattr_error, reported.size, reported.acl.is_some())
        });
        let expected = [(Some(Status::IO), None, false), (Some(Status::OK), Some(0), true)];
        assert_eq!(reported.collect::<Vec<_>>(), expected);
        backend.add(broken);
        let untold = ReadDirArgs { attributes: Bitmap::of(&[n::ACL]), ..ALL };
        assert_eq!(lab.status_at(&["export"], Op::ReadDir(untold)), Status::IO);
        // An entry that is removed meanwhile is left out.
        backend.add(Rule::on(Method::GetAcl, Fault::Fail(vfs::Error::Stale)).times(1));
        assert_eq!(list(&mut lab, &["export"], untold).entries.len(), 1);
    }

    #[test]
    fn lists_in_pieces() {
        const FILES: usize = ENTRIES_MAX + 20;
        let mut lab = filled(FILES);
        for maxcount in [1000, ALL.maxcount] {
            assert!(pieces_of(&mut lab, FILES, ReadDirArgs { maxcount, ..WITH_ACL }) > 1);
        }
        let small = Op::ReadDir(ReadDirArgs { maxcount: 60, ..WITH_ACL });
        assert_eq!(lab.status_at(&["export"], small), Status::TOOSMALL);
    }
}
