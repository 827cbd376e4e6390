//! The security flavors that an object accepts, and the operations that return WRONGSEC (RFC 8881 §2.6.3.1).

use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::commit::CommitArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::lock::LockUArgs;
use protocol::nfs4::ops::open::{OpenArgs, OpenClaim};
use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::{Needs, WrongSec, operation};
use protocol::nfs4::types::{Bitmap, Opcode, Status};
use xdr::{Decode, Reader};

use super::{Compound, FileHandle};
use crate::Flavors;
use crate::files::object::Object;
use crate::programs::nfs4::status::Result;

impl Compound<'_> {
    /// Returns the flavors that `object` accepts, the preferred one first.
    pub(crate) fn flavors(&self, object: &Object<'_>) -> Flavors {
        match object {
            Object::File(file) => file.export.options.flavors,
            Object::Pseudo(node) => node.flavors(self.exports(), self.request.connection.peer.ip()),
        }
    }

    /// Returns whether `object` accepts the flavor of this call.
    pub(crate) fn allows(&self, object: &Object<'_>) -> bool {
        let flavor = self.request.identity.flavor();
        match object {
            Object::File(file) => file.export.options.flavors.allow(flavor),
            Object::Pseudo(node) => node.allows(flavor, self.exports(), self.request.connection.peer.ip()),
        }
    }

    /// Checks the call for an operation that reaches `object` by name or as a parent.
    ///
    /// # Errors
    /// PERM if the export does not accept the source port, WRONGSEC if it does not accept the flavor.
    pub(crate) fn check_flavor(&self, object: &Object<'_>) -> Result {
        self.check_port(object)?;
        if self.allows(object) { Ok(()) } else { Err(Status::WRONGSEC.into()) }
    }

    /// Checks that the export of `object` accepts the source port.
    ///
    /// # Errors
    /// PERM, as Linux's server.
    fn check_port(&self, object: &Object<'_>) -> Result {
        match object {
            Object::File(file) if self.request.is_port_refused(file.export) => Err(Status::PERM.into()),
            _ => Ok(()),
        }
    }

    /// As [`Self::check_flavor`] for the current directory, so that a caller without access does not learn its names. Directories
    /// above the exports are not checked: their entries are other exports.
    pub(crate) fn check_flavor_within(&self) -> Result {
        match self.current()? {
            Object::Pseudo(_) => Ok(()),
            object => self.check_flavor(&object),
        }
    }

    /// Checks the flavor after an operation that put a file handle; `arguments` start with the next operation.
    ///
    /// # Errors
    /// As [`Self::check_port`]. WRONGSEC if the object does not accept the flavor and no later operation answers that.
    pub(crate) fn check_put(&self, arguments: &Reader) -> Result {
        if let Some(FileHandle::Own(object)) = &self.current {
            self.check_port(object)?;
        }
        match &self.current {
            Some(FileHandle::Own(object))
                if !self.allows(object)
                    && self.is_used(arguments.clone())
                    && !self.is_for_machine(arguments.clone()) =>
            {
                Err(Status::WRONGSEC.into())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether all operations on the handle are in the client's `spo_must_allow` (RFC 8881 §2.10.8.3). The client's machine
    /// principal may then use them with any flavor of the export, as on Linux's server. GETATTR is allowed in addition: Linux's
    /// client sends it with CLOSE and DELEGRETURN. With any other operation the handle is refused.
    fn is_for_machine(&self, mut arguments: Reader) -> bool {
        let Ok(client) = self.client() else { return false };
        let (by, mut is_needed) = (self.credential(), false);
        for _ in self.index + 1..self.count {
            let Some(row) = arguments.u32().ok().and_then(|number| operation(number, self.minor)) else {
                return false;
            };
            match row.wrong_sec {
                WrongSec::Replaced => break,
                // RESTOREFH checks again; other operations on a saved handle are not allowed here.
                WrongSec::Next => continue,
                WrongSec::Put | WrongSec::Itself | WrongSec::ByName => {}
            }
            let is_allowed = client.is_allowed(row.opcode.number(), &by);
            let may = is_allowed || row.opcode == Opcode::Getattr || row.needs == Needs::Nothing;
            if !may || skip_arguments(row.opcode, &mut arguments).is_none() {
                return false;
            }
            is_needed |= is_allowed && row.needs != Needs::Nothing;
        }
        is_needed
    }

    /// Returns whether the next operation uses the current file handle and leaves WRONGSEC to the operation that put it.
    fn is_used(&self, mut arguments: Reader) -> bool {
        for _ in self.index + 1..self.count {
            // An undecodable or unknown operation uses no handle.
            let row = arguments.u32().ok().and_then(|number| operation(number, self.minor));
            if self.minor == 0 && row.is_some_and(|row| row.opcode == Opcode::Secinfo) {
                // RFC 7530 §16.31 keeps the handle current, so a later operation may use it.
                let longest = arguments.remaining();
                if arguments.opaque_ref(longest).is_err() {
                    return false;
                }
                continue;
            }
            match row.map(|row| row.wrong_sec) {
                // RFC 8881 §2.6.3.1.1.1: "the server implementation pretends SAVEFH is not in the series of operations".
                Some(WrongSec::Next) => {}
                Some(WrongSec::ByName) => {
                    return OpenArgs::decode(&mut arguments).is_ok_and(|open| !is_named(&open));
                }
                Some(WrongSec::Put) => return true,
                Some(WrongSec::Itself | WrongSec::Replaced) | None => return false,
            }
        }
        // §2.6.3.1.1.6: a put operation at the end of the compound "MUST NOT return NFS4ERR_WRONGSEC".
        false
    }
}

/// Skips the arguments of GETATTR or of an operation that `spo_must_allow` can name; `None` for others, and for malformed ones.
fn skip_arguments(operation: Opcode, arguments: &mut Reader) -> Option<()> {
    fn skip<T: Decode>(arguments: &mut Reader) -> Option<()> {
        T::decode(arguments).ok().map(drop)
    }
    match operation {
        Opcode::Getattr => skip::<Bitmap>(arguments),
        Opcode::Close => skip::<CloseArgs>(arguments),
        Opcode::Commit => skip::<CommitArgs>(arguments),
        Opcode::Delegreturn => skip::<DelegReturnArgs>(arguments),
        Opcode::Locku => skip::<LockUArgs>(arguments),
        Opcode::OpenDowngrade => skip::<OpenDowngradeArgs>(arguments),
        Opcode::TestStateid => skip::<TestStateidArgs>(arguments),
        Opcode::FreeStateid => skip::<FreeStateidArgs>(arguments),
        _ => None,
    }
}

fn is_named(open: &OpenArgs) -> bool {
    matches!(open.claim, OpenClaim::Null(_) | OpenClaim::DelegateCur(_) | OpenClaim::DelegatePrev(_))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::{Attributes, number as n};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::link::LinkArgs;
    use protocol::nfs4::ops::open::{OpenArgs, OpenClaim, OpenHow, ShareAccess};
    use protocol::nfs4::ops::readdir::ReadDirArgs;
    use protocol::nfs4::ops::rename::RenameArgs;
    use protocol::nfs4::ops::secinfo::{SecInfoArgs, SecInfoNoNameArgs, SecInfoStyle};
    use protocol::nfs4::types::{Bitmap, Handle, Status};
    use rpc::gss::Service;

    use crate::testing::minor0::V40Lab;
    use crate::testing::{Lab, at, create, export, getattr, lab_of, lookup, mode, name, open_args, putfh};
    use crate::{Export, ExportTable, Flavor, Flavors};

    /// A server whose `/open` accepts AUTH_SYS and whose `/shut` was changed to accept Kerberos only, and handles in both: of the
    /// roots, of a directory and of a file.
    struct Two {
        lab: Lab,
        open: Handle,
        shut: Handle,
        directory: Handle,
        file: Handle,
    }

    fn two() -> Two {
        let exports = [export(1, "/open"), export(2, "/shut")];
        let mut lab = lab_of(exports.to_vec());
        lab.ok(at(&["shut"], vec![directory("directory")]));
        let file = lab.file(&["shut", "directory", "file"], b"text");
        let (open, shut, directory) =
            (lab.handle(&["open"]), lab.handle(&["shut"]), lab.handle(&["shut", "directory"]));
        lab.server.replace_exports(ExportTable::new(shut_second(exports)).unwrap());
        Two { lab, open, shut, directory, file }
    }

    fn shut_second([open, mut shut]: [Export; 2]) -> Vec<Export> {
        shut.options.flavors =
            Flavors::new(&[Flavor::Kerberos(Service::Privacy), Flavor::Kerberos(Service::None)]).unwrap();
        vec![open, shut]
    }

    fn directory(text: &'static str) -> Op {
        use protocol::nfs4::ops::create::{CreateArgs, CreateType};
        Op::Create(CreateArgs {
            object_type: CreateType::DIRECTORY,
            name: name(text),
            attributes: mode(0o755),
        })
    }

    fn secinfo(text: &'static str) -> Op {
        Op::SecInfo(SecInfoArgs { name: name(text) })
    }

    fn no_name(style: SecInfoStyle) -> Op {
        Op::SecInfoNoName(SecInfoNoNameArgs { style })
    }

    fn open_by(claim: OpenClaim) -> Op {
        Op::Open(OpenArgs { claim, ..open_args("file", b"owner", ShareAccess::READ, OpenHow::NoCreate) })
    }

    impl Two {
        /// Returns the index of the operation that ends the compound, and its status.
        #[track_caller]
        fn ends(&mut self, ops: Vec<Op>) -> (usize, Status) {
            let result = self.lab.run(ops);
            // SEQUENCE is the first result.
            (result.results.len() - 2, result.status)
        }
    }

    #[test]
    fn put_operations_before_a_use_of_the_handle_answer_wrongsec() {
        let mut two = two();
        let (open, shut, file) = (two.open, two.shut, two.file);
        let used = [getattr(&[n::TYPE]), Op::GetFh, Op::ReadLink, open_by(OpenClaim::Fh), directory("new")];
        for next in used {
            assert_eq!(two.ends(vec![putfh(file), next.clone()]), (0, Status::WRONGSEC), "{next:?}");
            // RFC 8881 §2.6.3.1.1.1: SAVEFH is ignored.
            let saved = vec![putfh(file), Op::SaveFh, Op::SaveFh, next.clone()];
            assert_eq!(two.ends(saved), (0, Status::WRONGSEC), "{next:?}");
        }
        // §2.6.3.1.1.2: the first of two put operations does not fail; RESTOREFH is one.
        assert_eq!(two.ends(vec![putfh(shut), putfh(open), getattr(&[n::TYPE])]), (2, Status::OK));
        let restored = vec![putfh(shut), Op::SaveFh, putfh(open), Op::RestoreFh, getattr(&[n::TYPE])];
        assert_eq!(two.ends(restored), (3, Status::WRONGSEC));
        // §2.6.3.1.1.6: nor does a put operation at the end.
        assert_eq!(two.ends(vec![putfh(shut)]), (0, Status::OK));
        assert_eq!(two.ends(vec![putfh(shut), Op::SaveFh]), (1, Status::OK));
    }

    #[test]
    fn lookup_and_lookupp_report_wrongsec_themselves() {
        let mut two = two();
        let (shut, directory) = (two.shut, two.directory);
        assert_eq!(two.ends(vec![Op::PutRootFh, lookup("shut")]), (1, Status::WRONGSEC));
        assert_eq!(two.ends(vec![Op::PutRootFh, lookup("open"), Op::GetFh]), (2, Status::OK));
        assert_eq!(two.ends(vec![putfh(directory), lookup("file")]), (1, Status::WRONGSEC));
        // The existence of a name is not revealed either.
        assert_eq!(two.ends(vec![putfh(directory), lookup("absent")]), (1, Status::WRONGSEC));
        assert_eq!(
            two.ends(vec![putfh(directory), open_by(OpenClaim::Null(name("file")))]),
            (1, Status::WRONGSEC)
        );
        assert_eq!(two.ends(vec![putfh(directory), create("new", b"owner")]), (1, Status::WRONGSEC));
        assert_eq!(two.ends(vec![putfh(directory), Op::LookupParent]), (1, Status::WRONGSEC));
        // LOOKUPP out of the export leads to objects that others may use too.
        assert_eq!(two.ends(vec![putfh(shut), Op::LookupParent, Op::GetFh]), (2, Status::OK));
    }

    #[test]
    fn secinfo_reports_flavors_to_callers_with_the_wrong_flavor() {
        let mut two = two();
        let (shut, directory) = (two.shut, two.directory);
        // privacy, then none: RFC 2203 §5.3.1's numbers, after RPCSEC_GSS, the mechanism and its quality of protection.
        let oid = [0, 0, 0, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2, 0, 0, 0];
        let entry = |service| [&[0, 0, 0, 6][..], &oid, &[0, 0, 0, 0, 0, 0, 0, service]].concat();
        let kerberos = [&[0, 0, 0, 0, 0, 0, 0, 2][..], &entry(3), &entry(1)].concat();
        for ops in [
            vec![Op::PutRootFh, secinfo("shut")],
            vec![putfh(directory), secinfo("file")],
            vec![putfh(directory), secinfo("absent")],
            vec![putfh(directory), no_name(SecInfoStyle::CURRENT_FH)],
            vec![putfh(directory), no_name(SecInfoStyle::PARENT)],
        ] {
            let reported = match two.lab.last(ops.clone()) {
                OpResult::SecInfo(reported) | OpResult::SecInfoNoName(reported) => reported,
                other => panic!("{other:?}"),
            };
            assert_eq!(xdr::to_bytes(&reported), kerberos, "{ops:?}");
        }
        // Above the exports, any flavor of an export below is accepted.
        let OpResult::SecInfoNoName(reported) =
            two.lab.last(vec![putfh(shut), no_name(SecInfoStyle::PARENT)])
        else {
            panic!()
        };
        assert_eq!(reported.into_result().unwrap().len(), 4, "AUTH_SYS, AUTH_NONE, and Kerberos twice");
    }

    #[test]
    fn a_listing_reports_wrongsec_for_an_entry() {
        let mut two = two();
        let mut list = |numbers: &[u32]| {
            let args = ReadDirArgs {
                cookie: 0,
                cookie_verifier: [0; 8],
                dircount: 0,
                maxcount: 65_536,
                attributes: Bitmap::of(numbers),
            };
            let OpResult::ReadDir(listing) = two.lab.last(at(&[], vec![Op::ReadDir(args)])) else { panic!() };
            let entries = listing.into_result().unwrap().entries;
            entries
                .iter()
                .map(|entry| Attributes::from_file_attributes(&entry.attributes).unwrap())
                .collect::<Vec<_>>()
        };
        let reported = list(&[n::TYPE, n::RDATTR_ERROR, n::MOUNTED_ON_FILEID]);
        assert_eq!(reported[0].rdattr_error, Some(Status::OK));
        assert_eq!((reported[1].rdattr_error, reported[1].file_type), (Some(Status::WRONGSEC), None));
        // RFC 7530 §16.31.5: READDIR itself never fails with WRONGSEC; the entry in the directory above has the error.
        let root = list(&[n::TYPE, n::FSID]);
        assert_ne!(root[0].fsid, root[1].fsid);
        assert_eq!(root[1].fsid, Some(protocol::nfs4::types::Fsid { major: 0, minor: 0 }));
    }

    #[test]
    fn the_saved_handle_needs_no_flavor() {
        let mut two = two();
        let (open, file, directory) = (two.open, two.file, two.directory);
        let link = Op::Link(LinkArgs { new_name: name("link") });
        assert_eq!(two.ends(vec![putfh(file), Op::SaveFh, putfh(open), link]), (3, Status::XDEV));
        let rename = Op::Rename(RenameArgs { old_name: name("file"), new_name: name("new") });
        assert_eq!(two.ends(vec![putfh(directory), Op::SaveFh, putfh(open), rename]), (3, Status::XDEV));
    }

    #[test]
    fn version_4_0_checks_the_flavor_for_operations_after_secinfo() {
        let Two { lab, directory, .. } = two();
        let mut lab = V40Lab::of(&lab.server, 2, b"old");
        assert_eq!(lab.status(vec![putfh(directory), secinfo("file")]), Status::OK);
        assert_eq!(lab.status(vec![putfh(directory), secinfo("file"), Op::GetFh]), Status::WRONGSEC);
        assert_eq!(lab.status(vec![Op::PutRootFh, lookup("shut")]), Status::WRONGSEC);
    }
}
