//! SETATTR (RFC 8881 §18.30).

use std::sync::Arc;

use protocol::nfs4::attributes::{FileAttributes, number as n};
use protocol::nfs4::types::{Bitmap, Stateid, Status};
use vfs::{Attributes, Authority, Context, Credentials, FileKind, SetAttributes, SetTime};
use xdr::{Decode, Encode, Reader, Writer};

use super::read::wrong_kind;
use crate::files::object::File;
use crate::files::rights::Right;
use crate::programs::nfs4::acl::PosixAcls;
use crate::programs::nfs4::attributes::can_set;
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::set_attributes::AttributeChanges;
use crate::programs::nfs4::status::{Failure, Result, in_minor};
use crate::state::{Conflict, FileTimes, IoKind, ReportedTimes};

/// The attributes that are set last, one after the other.
const LAST: Bitmap = Bitmap::of(&[n::ACL, n::TIME_DELEG_ACCESS, n::TIME_DELEG_MODIFY]);
/// The attributes that set the mode.
const MODES: Bitmap = Bitmap::of(&[n::MODE, n::MODE_SET_MASKED]);

pub(crate) async fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let stateid = Stateid::decode(arguments)?;
    let attributes = FileAttributes::decode(arguments)?;
    let file = compound.writable(Status::ROFS)?;
    let wanted =
        AttributeChanges::parse(&attributes, compound.minor, can_set(compound.minor), compound.id_names())?;
    // "Since setting the size attribute modifies the file's data, it has the same locking requirements as a
    // corresponding WRITE" (§18.30.3); without it, no stateid is checked.
    let resizes = wanted.set.size.is_some();
    let judge = |compound: &Compound<'_>| match resizes {
        true => compound.check_io(&file, stateid, IoKind::Write).map(|permit| permit.authority),
        false => Ok(Authority::Caller),
    };
    let mut authority = judge(compound)?;
    let held = Some(wanted.held).filter(|held| !held.is_empty()).map(|held| HandedIn { stateid, held });
    if let Some(held) = &held {
        held.check(compound, &file)?;
    }
    // RFC 8881 §10.4.4: "SETATTR sent by another client" recalls.
    let _changing = compound.announce_change(&file);
    // A masked mode and an ACL require ownership, like a mode.
    let is_owners = wanted.masked.is_some() || wanted.acl.is_some();
    let right = if is_owners { Right::Own } else { Right::Attributes(&wanted.set, authority) };
    // Setting nothing requires no right, and must not recall delegations.
    if is_owners || held.is_some() || !wanted.set.is_empty() {
        compound.recall_conflicts(&file, Conflict::Any, right).await?;
        // Checked again after the wait: see `Compound::admit_io`.
        authority = judge(compound)?;
    }
    let set = match wanted.masked {
        None => wanted.set,
        Some(_) => wanted.over(compound.attributes().await?.mode),
    };
    let acl = match &wanted.acl {
        None => None,
        Some(acl) => {
            let present = compound.attributes().await?;
            let (uid, gid) = (set.uid.unwrap_or(present.uid), set.gid.unwrap_or(present.gid));
            let lists = PosixAcls::parse(compound, &file, acl, &Attributes { uid, gid, ..present })?;
            Some((lists, present.kind))
        }
    };
    // The attributes set so far.
    let mut attributes_set = Bitmap::EMPTY;
    if !set.is_empty() {
        let context = compound.changing_context(file.export);
        let backend = &file.export.backend;
        match backend.setattr(&context, &file.handle, &set, None, authority).await {
            Ok(change) => {
                attributes_set = wanted.mask.difference(LAST);
                // "what (if any) attributes were successfully set" (§18.30.3): not the mode of an object without one.
                if set.for_kind(change.after.kind).mode.is_none() {
                    attributes_set = attributes_set.difference(MODES);
                }
                note_times(compound, &file, &set, &change.after);
                compound.set_fresh(change.after);
            }
            Err(error) => return Err(wrong_kind(compound, error).await),
        }
    }
    let done = set_last(compound, &file, acl, held).await;
    if done.is_ok() {
        attributes_set = attributes_set.union(wanted.mask.intersection(LAST));
    }
    attributes_set.encode(reply);
    // "A failed SETATTR may partially change a file's attributes, hence the reason why the reply always includes the status and
    // the list of attributes that were set" (§18.30.4).
    done.map_err(|failure| match failure {
        Failure::Status(status) => Failure::Written(in_minor(status, compound.minor)),
        other => other,
    })
}

/// Sets the attributes of [`LAST`].
async fn set_last(
    compound: &mut Compound<'_>,
    file: &File<'_>,
    acl: Option<(PosixAcls, FileKind)>,
    held: Option<HandedIn>,
) -> Result {
    if let Some((lists, kind)) = acl {
        // RFC 8881 §6.4.1.3: "the attributes MUST be applied in this order: mode (or mode_set_masked), then ACL."
        let context = compound.changing_context(file.export);
        let after = lists.set(&context, file, kind).await?;
        compound.set_fresh(after);
    }
    match held {
        Some(held) => held.set(compound, file).await,
        None => Ok(()),
    }
}

/// Records times that the holder of a timestamp delegation sets itself: later values from it are compared with them.
fn note_times(compound: &Compound<'_>, file: &File<'_>, set: &SetAttributes, after: &Attributes) {
    let accessed = set.accessed.map(|_| after.accessed);
    let modified = set.modified.map(|_| after.modified);
    let (set, state) = (ReportedTimes { accessed, modified }, compound.state());
    if let Some(client) = compound.who()
        && !set.is_empty()
        && state.has_delegations(Conflict::Write)
    {
        state.set_times(client, file.key(compound.server()), set);
    }
}

/// Times that the holder of a delegation returns (RFC 9754 §5).
struct HandedIn {
    stateid: Stateid,
    held: ReportedTimes,
}

/// The result of checking them.
struct Checked {
    /// The times to record.
    known: FileTimes,
    /// The times that were accepted.
    taken: ReportedTimes,
    authority: Authority,
}

impl HandedIn {
    /// # Errors
    /// RFC 9754 §5: "can only be used … by a client holding an appropriate delegation"; otherwise as for any wrong stateid.
    fn check(&self, compound: &Compound<'_>, file: &File<'_>) -> Result<Checked> {
        let (client, key) = (compound.client()?, file.key(compound.server()));
        let mut known = compound.state().delegated_times(client, key, &compound.stateid(self.stateid)?)?;
        let authority = compound.check_io(file, self.stateid, IoKind::Write)?.authority;
        // "They should all be compared against the same time value for the current time."
        let taken = known.accept(self.held, compound.request.now.wall);
        Ok(Checked { known, taken, authority })
    }

    async fn set(self, compound: &mut Compound<'_>, file: &File<'_>) -> Result {
        // Checked again: the delegation may have been returned or revoked during the wait.
        let Checked { known, .. } = self.check(compound, file)?;
        // Before the attributes are read: from now on nothing moves the times for the holder.
        compound.state().advance_times(compound.client()?, file.key(compound.server()), known);
        compound.forget_fresh();
        let present = compound.attributes().await?;
        let Checked { taken, authority, .. } = self.check(compound, file)?;
        let context = match authority {
            // The delegation was granted with an open for writing: the holder need not own the file.
            Authority::Opened => Context {
                peer: compound.request.peer(),
                ..Context::new(Arc::new(Credentials::root()), compound.request.now.wall)
            },
            Authority::Caller => compound.changing_context(file.export),
        };
        // Equal times are no change.
        let kept = |taken: Option<_>, present| taken.filter(|time| *time != present).map(SetTime::Kept);
        let set = SetAttributes {
            accessed: kept(taken.accessed, present.accessed),
            modified: kept(taken.modified, present.modified),
            ..SetAttributes::default()
        };
        if !set.is_empty() {
            let backend = &file.export.backend;
            let change = backend.setattr(&context, &file.handle, &set, None, authority).await?;
            compound.set_fresh(change.after);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::values::{ModeMasked, SetTime};
    use protocol::nfs4::attributes::{FileAttributes, SetAttributes, number as n};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::create::{CreateArgs, CreateType};
    use protocol::nfs4::ops::setattr::{SetAttrArgs, SetAttrResult};
    use protocol::nfs4::types::{Bitmap, Mode, Stateid, Status, Time, Utf8};

    use xdr::Opaque;

    use crate::testing::{Lab, at, lab, mode, name, putfh, size};

    fn set(attributes: FileAttributes) -> Op {
        Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })
    }

    fn result(lab: &mut Lab, path: &[&'static str], attributes: FileAttributes) -> SetAttrResult {
        match lab.run(crate::testing::at(path, vec![set(attributes)])).results.last() {
            Some(OpResult::SetAttr(result)) => *result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn sets_and_reports_attributes() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let time = Time { seconds: -5, nanoseconds: 999_999_999 };
        let attributes = SetAttributes {
            size: Some(2),
            mode: Some(Mode::from_bits_retain(0o4711)),
            owner: Some(Utf8::from_static(b"12")),
            owner_group: Some(Utf8::from_static(b"34")),
            time_access_set: Some(SetTime::ServerTime),
            time_modify_set: Some(SetTime::ClientTime(time)),
            ..SetAttributes::default()
        };
        let done = result(&mut lab, &["export", "file"], attributes.to_file_attributes());
        assert_eq!(done, SetAttrResult { status: Status::OK, attributes_set: attributes.mask() });
        let numbers = [n::SIZE, n::MODE, n::OWNER, n::OWNER_GROUP, n::TIME_MODIFY, n::TIME_ACCESS];
        let file = lab.attributes(&["export", "file"], &numbers);
        assert_eq!(file.size, Some(2));
        assert_eq!(file.owner.as_deref(), Some(&b"12"[..]));
        assert_eq!(file.owner_group.as_deref(), Some(&b"34"[..]));
        assert_eq!(file.time_modify, Some(time));
        // The server's clock, as given by the test's requests.
        assert_eq!(file.time_access.map(|time| time.seconds), Some(1_000_001));
    }

    #[test]
    fn changes_some_bits_of_the_mode() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let bits = Mode::from_bits_retain;
        let masked = ModeMasked { value: bits(0o111), mask: bits(0o133) };
        let attributes = SetAttributes { mode_set_masked: Some(masked), ..SetAttributes::default() };
        let done = result(&mut lab, &["export", "file"], attributes.to_file_attributes());
        assert_eq!(done.status, Status::OK);
        // 0644 with the bits of 0133 replaced.
        assert_eq!(lab.attributes(&["export", "file"], &[n::MODE]).mode, Some(bits(0o755)));
    }

    #[test]
    fn ignores_the_mode_of_a_symbolic_link() {
        let mut lab = lab();
        let (object_type, attributes) = (CreateType::Link(Opaque::from_static(b"file")), mode(0o777));
        let create = Op::Create(CreateArgs { object_type, name: name("link"), attributes });
        lab.ok(at(&["export"], vec![create]));
        let path = ["export", "link"];
        let before = lab.attributes(&path, &[n::MODE, n::CHANGE]);
        // RFC 8881 §15.2 does not list NOTSUPP for SETATTR, and the request is valid.
        let done = result(&mut lab, &path, mode(0o600));
        assert_eq!(done, SetAttrResult { status: Status::OK, attributes_set: Bitmap::EMPTY });
        assert_eq!(lab.attributes(&path, &[n::MODE, n::CHANGE]), before);
        let (mode, time_modify_set) = (Some(Mode::from_bits_retain(0o600)), Some(SetTime::ServerTime));
        let both = SetAttributes { mode, time_modify_set, ..SetAttributes::default() };
        let attributes_set = Bitmap::of(&[n::TIME_MODIFY_SET]);
        let done = result(&mut lab, &path, both.to_file_attributes());
        assert_eq!(done, SetAttrResult { status: Status::OK, attributes_set });
        lab.uid = 1000;
        let refused = result(&mut lab, &path, crate::testing::mode(0o600));
        assert_eq!(refused, SetAttrResult { status: Status::PERM, attributes_set: Bitmap::EMPTY });
    }

    #[test]
    fn failures_report_an_empty_attrsset() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"");
        let nothing = |status| SetAttrResult { status, attributes_set: Bitmap::EMPTY };
        let unsupported = FileAttributes::new(Bitmap::of(&[n::HIDDEN]), vec![0; 4]).unwrap();
        let read_only = FileAttributes::new(Bitmap::of(&[n::FILEID]), vec![0; 8]).unwrap();
        let cut = FileAttributes::new(Bitmap::of(&[n::SIZE]), vec![0; 4]).unwrap();
        let owner = SetAttributes { owner: Some(Utf8::from_static(b"me@home")), ..Default::default() };
        let path = ["export", "file"];
        assert_eq!(result(&mut lab, &path, unsupported), nothing(Status::ATTRNOTSUPP));
        assert_eq!(result(&mut lab, &path, read_only), nothing(Status::INVAL));
        assert_eq!(result(&mut lab, &path, cut), nothing(Status::BADXDR));
        assert_eq!(result(&mut lab, &path, owner.to_file_attributes()), nothing(Status::BADOWNER));
        assert_eq!(result(&mut lab, &[], mode(0)), nothing(Status::ROFS));
        assert_eq!(result(&mut lab, &["export"], size(0)), nothing(Status::ISDIR));
        lab.uid = 1000;
        assert_eq!(result(&mut lab, &path, mode(0)), nothing(Status::PERM));
        assert_eq!(lab.status(vec![putfh(file), set(size(9))]), Status::ACCESS);
    }

    #[test]
    fn setting_the_size_needs_a_stateid_that_may_write() {
        use protocol::nfs4::ops::open::ShareAccess;
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let truncate = |stateid| Op::SetAttr(SetAttrArgs { stateid, attributes: size(0) });
        let ops = |access| {
            let open = crate::testing::open("file", b"owner", access);
            crate::testing::at(&["export"], vec![open, truncate(Stateid::CURRENT)])
        };
        assert_eq!(lab.status(ops(ShareAccess::READ)), Status::OPENMODE);
        assert_eq!(lab.status(ops(ShareAccess::WRITE)), Status::OK);
        let unknown = Stateid { seqid: 1, other: [7; 12] };
        assert_eq!(lab.status_at(&["export", "file"], truncate(unknown)), Status::BAD_STATEID);
        let chmod = Op::SetAttr(SetAttrArgs { stateid: unknown, attributes: mode(0o600) });
        assert_eq!(lab.status_at(&["export", "file"], chmod), Status::OK, "no size, no stateid");
    }
}
