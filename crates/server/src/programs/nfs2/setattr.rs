use protocol::nfs2::SattrArgs;
use vfs::Authority;
use xdr::Writer;

use super::reply::{
    Failure, answer, check_size, fattr, fattr_after_change, resolve_writable, set_attributes,
};
use crate::files::recall::announce_change;
use crate::files::rights::Right;
use crate::files::stateless::{check_denials, recall_conflicts};
use crate::request::Request;
use crate::state::{Conflict, IoKind};

/// SETATTR (RFC 1094 §2.2.3).
pub(super) async fn serve(request: &Request<'_>, args: SattrArgs, reply: &mut Writer) -> Result<(), Failure> {
    let target = resolve_writable(request, &args.file)?;
    let set = set_attributes(&args.attributes)?;
    if let Some(size) = set.size {
        check_size(target.export, size)?;
        check_denials(request, &target, IoKind::Write)?;
    }
    let _changing = announce_change(request, &target.handle);
    // A SETATTR that sets nothing needs no right, and recalls nothing.
    if !set.is_empty() {
        let right = Right::Attributes(&set, Authority::Caller);
        recall_conflicts(request, &target, Conflict::Any, right).await?;
    }
    if set.size.is_some() {
        // Again after the wait, as in `admit_io`.
        check_denials(request, &target, IoKind::Write)?;
    }
    let backend = &target.export.backend;
    let change = backend.setattr(&target.context, &target.handle, &set, None, Authority::Caller).await?;
    let shown = match set.is_empty() {
        true => fattr(target.export, &change.after)?,
        false => fattr_after_change(target.export, &change.after),
    };
    answer(reply, shown)
}

#[cfg(test)]
mod tests {
    use protocol::nfs2::{AttrStat, Proc, Sattr, SattrArgs, Stat, TimeVal};

    use crate::programs::nfs2::tests::{Client, attributes};

    #[test]
    fn sets_only_given_attributes() {
        let client = Client::new();
        let file = client.create(b"file");
        client.write(file, 0, b"12345");
        let set = |sattr| client.call::<AttrStat>(Proc::SETATTR, &SattrArgs { file, attributes: sattr });
        let cut = attributes(set(Sattr { size: 2, mode: 0o100_600, ..Sattr::NONE }));
        assert_eq!((cut.size, cut.mode, cut.uid), (2, 0o100_600, 0));
        let mtime = TimeVal { seconds: u32::MAX - 1, useconds: 999_999 };
        let timed = attributes(set(Sattr { mtime, uid: 12, ..Sattr::NONE }));
        assert_eq!((timed.mtime, timed.uid, timed.gid, timed.size), (mtime, 12, cut.gid, 2));
        assert_eq!(timed.atime, cut.atime);
        let same = attributes(set(Sattr::NONE));
        assert_eq!(same, timed, "nothing was requested");
    }

    #[test]
    fn a_change_of_a_large_file_succeeds() {
        let client = Client::new();
        let file = client.large_file(b"large", 1 << 33);
        let set = |attributes| client.call::<AttrStat>(Proc::SETATTR, &SattrArgs { file, attributes });
        let changed = attributes(set(Sattr { mode: 0o600, ..Sattr::NONE }));
        assert_eq!((changed.mode, changed.size), (0o100_600, u32::MAX));
        assert_eq!(set(Sattr::NONE), AttrStat::Fail(Stat::FBIG), "nothing was changed");
    }

    #[test]
    fn a_size_beyond_the_greatest_is_refused() {
        let client = Client::with(|options| options.v2_signed_sizes = true);
        let file = client.create(b"file");
        let set = |size| {
            let attributes = Sattr { size, ..Sattr::NONE };
            client.call::<AttrStat>(Proc::SETATTR, &SattrArgs { file, attributes })
        };
        assert_eq!(set(1 << 31), AttrStat::Fail(Stat::FBIG));
        assert_eq!(attributes(set((1 << 31) - 1)).size, (1 << 31) - 1);
    }
}
