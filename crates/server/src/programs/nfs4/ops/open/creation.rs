//! Creation (RFC 8881 §18.16.1, `createhow4`): creates or finds the file, and removes it if the OPEN fails.

use protocol::nfs4::attributes::number;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim};
use protocol::nfs4::types::{Bitmap, ChangeInfo, Status};
use vfs::{Attributes, Authority, Context, Create, CreateMode, Created, FileKind, OpenAccess, SetAttributes};

use super::super::lookup::not_directory;
use super::existing::{Target, by_name, check_regular};
use crate::IdNames;
use crate::files::names;
use crate::files::object::{File, Object};
use crate::programs::nfs4::acl::creation::{finish, first_attributes};
use crate::programs::nfs4::attributes::{can_set_with_creation, can_set_with_exclusive};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::set_attributes::AttributeChanges;
use crate::programs::nfs4::status::Result;
use crate::state::SlotRequest;

/// A `createhow4` as the backend takes it.
struct Creation {
    mode: CreateMode,
    wanted: AttributeChanges,
}

impl Creation {
    fn parse(how: &CreateHow, minor: u32, names: Option<&IdNames>) -> std::result::Result<Self, Status> {
        let attributes = can_set_with_creation(minor);
        Ok(match how {
            CreateHow::Unchecked(set) => Self {
                mode: CreateMode::Unchecked,
                wanted: AttributeChanges::parse(set, minor, attributes, names)?,
            },
            CreateHow::Guarded(set) => Self {
                mode: CreateMode::Guarded,
                wanted: AttributeChanges::parse(set, minor, attributes, names)?,
            },
            CreateHow::Exclusive(verifier) => {
                Self { mode: CreateMode::Exclusive(*verifier), wanted: AttributeChanges::default() }
            }
            // "If the client attempts to set in cva_attrs an attribute that is not in suppattr_exclcreat, the server MUST
            // return NFS4ERR_INVAL" (§18.16.3).
            CreateHow::Exclusive41(how) => Self {
                mode: CreateMode::Exclusive(how.verifier),
                wanted: AttributeChanges::parse(
                    &how.attributes,
                    minor,
                    can_set_with_exclusive(minor),
                    names,
                )?,
            },
        })
    }
}

/// A planned creation.
struct Plan<'r> {
    creation: Creation,
    directory: File<'r>,
    what: Create,
    /// Without the size: truncation follows the share reservation.
    set: SetAttributes,
}

/// Makes the checks that need no backend. Returns only the parsed arguments if nothing can be created here.
fn plan<'r>(
    compound: &Compound<'r>,
    name: &[u8],
    how: &CreateHow,
) -> Result<std::result::Result<Plan<'r>, Creation>> {
    // "If the client attempts to use EXCLUSIVE4 on a persistent session, … the server MUST return NFS4ERR_INVAL" (§18.16.3).
    let is_persistent = compound.session().is_some_and(SlotRequest::is_persistent);
    if is_persistent && matches!(how, CreateHow::Exclusive(_)) {
        return Err(Status::INVAL.into());
    }
    let creation = Creation::parse(how, compound.minor, compound.id_names())?;
    let directory = match compound.current()? {
        Object::File(directory) if !directory.export.options.read_only => directory,
        _ => return Ok(Err(creation)),
    };
    names::check(name)?;
    let set = first_attributes(compound, &directory, &creation.wanted, FileKind::Regular)?;
    let what = Create::File(creation.mode);
    Ok(Ok(Plan { creation, directory, what, set: SetAttributes { size: None, ..set } }))
}

/// CLAIM_NULL with creation.
pub(super) async fn create<'r>(
    compound: &mut Compound<'r>,
    name: &[u8],
    (how, access): (&CreateHow, OpenAccess),
) -> Result<Box<Target<'r>>> {
    let plan = match plan(compound, name, how)? {
        Ok(plan) => plan,
        // An existing file can still be opened, as by open(2) with O_CREAT on a read-only file system.
        Err(creation) => return existing_on_read_only(compound, name, &creation, access).await,
    };
    let (creation, directory) = (&plan.creation, &plan.directory);
    let context = compound.opening_context(directory.export);
    let place = directory.place(&context);
    let mut created = match compound.changer().create(place, name, &plan.what, &plan.set).await {
        Ok(created) => created,
        Err(vfs::Error::NotDirectory) => return Err(not_directory(compound, directory).await),
        // The name exists and is not a regular file.
        Err(vfs::Error::Exists) if creation.mode == CreateMode::Unchecked => {
            by_name(compound, name, access, None).await?;
            return Err(Status::EXIST.into());
        }
        Err(error) => return Err(error.into()),
    };
    check_regular(&created.attributes)?;
    let is_ours = plan.is_ours(&created, &context);
    if is_ours {
        finish(compound, (directory, name), creation.wanted.acl.as_ref(), &mut created).await?;
    }
    Ok(Box::new(plan.made(&created, is_ours)))
}

impl<'r> Plan<'r> {
    /// Returns whether the caller may open the file regardless of its mode, and have its attributes set.
    fn is_ours(&self, created: &Created, context: &Context) -> bool {
        created.is_new || is_own_retry(&self.creation, &created.attributes, context.credentials.uid)
    }

    /// Returns the file to open.
    fn made(&self, created: &Created, is_ours: bool) -> Target<'r> {
        let size = self.creation.wanted.set.size;
        let (size, attributes_set) = if is_ours {
            let mask = attributes_set(self.creation.wanted.mask, created.verifier_in_times);
            (size.filter(|size| *size != created.attributes.size), mask)
        } else {
            // "When an UNCHECKED4 create encounters an existing file, the attributes specified by createattrs are not used,
            // except that when createattrs specifies the size attribute with a size of zero, the existing file is truncated."
            let size = size.filter(|size| *size == 0 && self.creation.mode == CreateMode::Unchecked);
            (size, if size.is_some() { Bitmap::of(&[number::SIZE]) } else { Bitmap::EMPTY })
        };
        Target {
            file: self.directory.with(created.handle),
            authority: if is_ours { Authority::Opened } else { Authority::Caller },
            is_new: created.is_new,
            seen: created.is_new.then_some(created.attributes),
            change: ChangeInfo {
                atomic: created.directory.atomic,
                before: created.directory.before.change,
                after: created.directory.after.change,
            },
            attributes_set,
            size,
        }
    }
}

/// Returns the `attrset` of a creation.
///
/// RFC 8881 §18.16.3: "The response field, attrset, indicates both which attributes the server set from cva_attrs and
/// which attributes the server used to store the verifier."
fn attributes_set(set: Bitmap, verifier_in_times: bool) -> Bitmap {
    let times = Bitmap::of(&[number::TIME_ACCESS, number::TIME_MODIFY]);
    if verifier_in_times { set.union(times) } else { set }
}

/// Returns whether an exclusive creation that found its verifier is a retry by the creator. The file is then as creation left it,
/// and the caller may open it regardless of its mode.
///
/// RFC 8881 §18.16.3: "If the object does exist and the stored verifier matches the client provided verifier, the server
/// uses the existing object as the newly created object." The verifier is not secret (a backend may
/// keep it in readable times), so it proves nothing: any other OPEN with it needs the caller's rights, and does not truncate.
fn is_own_retry(creation: &Creation, found: &Attributes, caller: u32) -> bool {
    // A caller that sets an owner is that owner already, or may change owners.
    let may_give = caller == 0 && creation.wanted.set.uid == Some(found.uid);
    let is_callers = found.uid == caller || may_give;
    matches!(creation.mode, CreateMode::Exclusive(_)) && found.size == 0 && is_callers
}

/// Opens an existing file in an export in which nothing can be created.
async fn existing_on_read_only<'r>(
    compound: &mut Compound<'r>,
    name: &[u8],
    creation: &Creation,
    access: OpenAccess,
) -> Result<Box<Target<'r>>> {
    match by_name(compound, name, access, None).await {
        Ok(_) if creation.mode != CreateMode::Unchecked => Err(Status::EXIST.into()),
        // RFC 8881 §18.16.3: with a size of zero "the existing file is truncated", which fails here.
        Ok(_) if creation.wanted.set.size == Some(0) => Err(Status::ROFS.into()),
        Err(failure) if failure == Status::NOENT.into() => Err(Status::ROFS.into()),
        other => other,
    }
}

/// Removes a new file whose OPEN fails with DELAY: a guarded retry would get EXIST, and the mode could refuse its creator.
pub(super) async fn undo_create(
    compound: &Compound<'_>,
    arguments: &OpenArgs,
    target: &Target<'_>,
    created: &Attributes,
) {
    let (OpenClaim::Null(name), Ok(Object::File(directory))) = (&arguments.claim, compound.current()) else {
        return;
    };
    let place = (&directory, &name[..]);
    crate::files::undo_create::undo_create(compound.request, compound.who(), place, &target.file, created)
        .await;
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{FileAttributes, number as n};
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::open::{
        CreateVerifierAttributes, OpenDelegation, OpenHow, OpenResultFlags, ShareAccess,
    };
    use protocol::nfs4::ops::setattr::SetAttrArgs;
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{Mode, StableHow, Stateid};
    use vfs::fault::{Fault, Method, Rule};
    use xdr::Opaque;

    use super::super::tests::{creating, opened};
    use super::*;
    use crate::testing::{
        at, create, export, faulty, lab, lab_of, lab_with, lookup, mode, open, open_args, size,
    };

    #[test]
    fn the_creator_opens_a_new_file_whatever_its_mode() {
        let mut lab = lab();
        lab.ok(at(
            &["export"],
            vec![Op::SetAttr(protocol::nfs4::ops::setattr::SetAttrArgs {
                stateid: Stateid::ANONYMOUS,
                attributes: mode(0o777),
            })],
        ));
        lab.uid = 1000;
        let done = opened(&mut lab, creating("new", CreateHow::Guarded(mode(0))));
        assert!(done.change.atomic && done.change.before != done.change.after);
        assert_eq!(done.attributes_set, Bitmap::of(&[n::MODE]));
        assert_eq!(done.flags, OpenResultFlags::LOCKTYPE_POSIX);
        assert_eq!(done.delegation, OpenDelegation::None);
        // A second open needs permission by the mode.
        let again = open("new", b"other", ShareAccess::READ);
        assert_eq!(lab.status_at(&["export"], again), Status::ACCESS);
    }

    #[test]
    fn unchecked_opens_existing_files_and_truncates_only_to_zero() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"hello");
        let done = opened(&mut lab, creating("file", CreateHow::Unchecked(size(3))));
        assert_eq!(done.attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(5));
        let done = opened(&mut lab, creating("file", CreateHow::Unchecked(size(0))));
        assert_eq!(done.attributes_set, Bitmap::of(&[n::SIZE]));
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(0));
        let done = opened(&mut lab, creating("new", CreateHow::Unchecked(size(7))));
        assert_eq!(done.attributes_set, Bitmap::of(&[n::SIZE]));
        assert_eq!(lab.attributes(&["export", "new"], &[n::SIZE]).size, Some(7));
        let guarded = creating("new", CreateHow::Guarded(FileAttributes::default()));
        assert_eq!(lab.status_at(&["export"], guarded), Status::EXIST);
    }

    #[test]
    fn exclusive_creation_is_repeated_only_with_its_verifier() {
        let mut lab = lab();
        let how = |verifier| {
            CreateHow::Exclusive41(CreateVerifierAttributes {
                verifier: [verifier; 8],
                attributes: mode(0o640),
            })
        };
        let first = opened(&mut lab, creating("file", how(1)));
        assert_eq!(first.attributes_set, Bitmap::of(&[n::MODE]));
        let again = opened(&mut lab, creating("file", how(1)));
        assert_eq!(again.stateid.other, first.stateid.other, "the same owner, the same file");
        assert_eq!(lab.status_at(&["export"], creating("file", how(2))), Status::EXIST);
        let times = protocol::nfs4::attributes::SetAttributes {
            time_modify_set: Some(protocol::nfs4::attributes::values::SetTime::ServerTime),
            ..Default::default()
        };
        let with_times = CreateHow::Exclusive41(CreateVerifierAttributes {
            verifier: [1; 8],
            attributes: times.to_file_attributes(),
        });
        assert_eq!(lab.status_at(&["export"], creating("other", with_times)), Status::INVAL);
        let bare = opened(&mut lab, creating("bare", CreateHow::Exclusive([5; 8])));
        assert_eq!(bare.attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.status_at(&["export"], creating("bare", CreateHow::Exclusive([6; 8]))), Status::EXIST);
    }

    #[test]
    fn attrset_includes_times_that_hold_the_verifier() {
        let mode = Bitmap::of(&[n::MODE]);
        assert_eq!(attributes_set(mode, true), Bitmap::of(&[n::MODE, n::TIME_ACCESS, n::TIME_MODIFY]));
        assert_eq!(attributes_set(mode, false), mode);
        // RFC 8881 §18.16.4: "any bits set in the former but not the latter identify the attributes used to store the verifier."
        let reported = attributes_set(can_set_with_exclusive(1), true).difference(can_set_with_exclusive(1));
        assert_eq!(reported, Bitmap::of(&[n::TIME_ACCESS, n::TIME_MODIFY]));
    }

    #[test]
    fn an_exclusive_verifier_grants_no_access_and_no_truncation() {
        let mut lab = lab();
        let writable = SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o777) };
        lab.ok(at(&["export"], vec![Op::SetAttr(writable)]));
        let exclusive = |length| {
            let set = protocol::nfs4::attributes::SetAttributes {
                mode: Some(Mode::from_bits_retain(0o600)),
                size: length,
                ..Default::default()
            };
            let attributes = set.to_file_attributes();
            creating(
                "file",
                CreateHow::Exclusive41(CreateVerifierAttributes { verifier: [7; 8], attributes }),
            )
        };
        lab.uid = 1000;
        opened(&mut lab, exclusive(None));
        lab.uid = 2000;
        assert_eq!(lab.status_at(&["export"], exclusive(None)), Status::ACCESS);
        // Nor with an owner to set.
        let set = protocol::nfs4::attributes::SetAttributes {
            owner: Some(protocol::nfs4::types::Utf8::from_static(b"1000")),
            ..Default::default()
        };
        let attributes = set.to_file_attributes();
        let with_owner = CreateVerifierAttributes { verifier: [7; 8], attributes };
        let with_owner = creating("file", CreateHow::Exclusive41(with_owner));
        assert_eq!(lab.status_at(&["export"], with_owner), Status::ACCESS);
        lab.uid = 1000;
        let write = Op::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::FileSync,
            data: Opaque::from_static(b"data"),
        });
        lab.ok(at(&["export"], vec![exclusive(None), write]));
        lab.uid = 2000;
        assert_eq!(lab.status_at(&["export"], exclusive(Some(0))), Status::ACCESS);
        lab.uid = 1000;
        assert_eq!(opened(&mut lab, exclusive(Some(0))).attributes_set, Bitmap::EMPTY);
        assert_eq!(lab.attributes(&["export", "file"], &[n::SIZE]).size, Some(4));
    }

    #[test]
    fn a_delayed_open_leaves_no_file() {
        let mut lab = lab_with(vec![export(1, "/export")], |settings| settings.max_state = 2);
        lab.ok(at(&["export"], vec![create("a", b"owner")]));
        lab.ok(at(&["export"], vec![create("b", b"owner")]));
        assert_eq!(lab.status_at(&["export"], create("c", b"owner")), Status::DELAY);
        assert_eq!(lab.status_at(&["export"], lookup("c")), Status::NOENT);

        let (exported, backend) = faulty();
        let mut lab = lab_of(vec![exported]);
        backend.add(Rule::on(Method::Open, Fault::Fail(vfs::Error::Later)));
        assert_eq!(lab.status_at(&["export"], create("file", b"owner")), Status::DELAY);
        backend.heal();
        assert_eq!(lab.status_at(&["export"], create("file", b"owner")), Status::OK, "not EXIST");
    }

    #[test]
    fn refuses_on_read_only_exports_and_pseudo_directories() {
        let mut exported = export(1, "/export");
        let mut lab = lab_of(vec![exported.clone()]);
        lab.file(&["export", "file"], b"hello");
        exported.options.read_only = true;
        lab.server.replace_exports(crate::ExportTable::new(vec![exported]).unwrap());
        let unchecked = |access, text| {
            let how = CreateHow::Unchecked(FileAttributes::default());
            Op::Open(open_args(text, b"owner", access, OpenHow::Create(how)))
        };
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::READ, "file")), Status::OK);
        let how = OpenHow::Create(CreateHow::Unchecked(size(0)));
        let truncating = Op::Open(open_args("file", b"owner", ShareAccess::READ, how));
        assert_eq!(lab.status_at(&["export"], truncating), Status::ROFS);
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::BOTH, "file")), Status::ROFS);
        assert_eq!(lab.status_at(&["export"], unchecked(ShareAccess::READ, "new")), Status::ROFS);
        assert_eq!(lab.status_at(&[], unchecked(ShareAccess::READ, "new")), Status::ROFS);
        assert_eq!(lab.status_at(&[], unchecked(ShareAccess::READ, "export")), Status::ISDIR);
        assert_eq!(lab.status_at(&[], open("absent", b"o", ShareAccess::READ)), Status::NOENT);
    }
}
