//! Arguments and results of the versions: offsets have 64 bits in version 4, and 32 in the others.

use protocol::nlm::{
    CancelArgs, Holder, LockArgs, Notify, Res, ShareArgs, ShareRes, TestArgs, TestReply, TestRes, UnlockArgs,
    VERSION,
};
use xdr::{Decode, Encode, Reader, Writer};

use super::Results;

/// Arguments that have a form with offsets of 32 bits.
pub(super) trait Versioned: Decode {
    /// The form of versions 1 and 3.
    type Narrow: Decode + Into<Self>;
}

impl Versioned for TestArgs {
    type Narrow = TestArgs<u32>;
}

impl Versioned for LockArgs {
    type Narrow = LockArgs<u32>;
}

impl Versioned for CancelArgs {
    type Narrow = CancelArgs<u32>;
}

impl Versioned for UnlockArgs {
    type Narrow = UnlockArgs<u32>;
}

impl Versioned for ShareArgs {
    type Narrow = Self;
}

impl Versioned for Notify {
    type Narrow = Self;
}

/// Decodes arguments. Ignores bytes after them, like Linux's server: some clients pad.
pub(super) fn decode<T: Versioned>(version: u32, mut arguments: Reader) -> Option<T> {
    if version == VERSION {
        return T::decode(&mut arguments).ok();
    }
    T::Narrow::decode(&mut arguments).ok().map(Into::into)
}

/// Encodes results.
pub(super) fn encode(version: u32, results: &Results, reply: &mut Writer) {
    match results {
        Results::Status(cookie, stat) => Res { cookie: cookie.clone(), stat: *stat }.encode(reply),
        Results::Share(cookie, stat) => {
            ShareRes { cookie: cookie.clone(), stat: *stat, sequence: 0 }.encode(reply);
        }
        Results::Test(cookie, stat) if version == VERSION => {
            TestRes { cookie: cookie.clone(), stat: stat.clone() }.encode(reply);
        }
        Results::Test(cookie, stat) => {
            TestRes { cookie: cookie.clone(), stat: narrow_reply(stat) }.encode(reply);
        }
    }
}

fn narrow_reply(reply: &TestReply) -> TestReply<u32> {
    match reply {
        TestReply::Denied(holder) => TestReply::Denied(narrow_holder(holder)),
        TestReply::Other(status) => TestReply::Other(*status),
    }
}

/// Returns the holder of a lock in 32 bits. A lock that conflicts with a range of 32 bits begins there; one that ends beyond ends
/// at the end of the file.
fn narrow_holder(holder: &Holder) -> Holder<u32> {
    let Holder { exclusive, svid, oh, l_offset, l_len } = holder;
    let l_offset = u32::try_from(*l_offset).unwrap_or(u32::MAX);
    let ends_within = u32::try_from(*l_len).ok().filter(|length| l_offset.checked_add(*length).is_some());
    Holder { exclusive: *exclusive, svid: *svid, oh: oh.clone(), l_offset, l_len: ends_within.unwrap_or(0) }
}

/// Encodes the arguments of the GRANTED for a LOCK in the LOCK's version.
pub(super) fn granted(version: u32, args: &LockArgs) -> bytes::Bytes {
    let LockArgs { cookie, exclusive, alock, .. } = args.clone();
    if version == VERSION {
        return super::encoded(&TestArgs { cookie, exclusive, alock });
    }
    // They arrived as 32 bits.
    let [l_offset, l_len] = [alock.l_offset, alock.l_len].map(|value| value as u32);
    let protocol::nlm::Lock { caller_name, fh, oh, svid, .. } = alock;
    let alock = protocol::nlm::Lock { caller_name, fh, oh, svid, l_offset, l_len };
    super::encoded(&TestArgs { cookie, exclusive, alock })
}

#[cfg(test)]
mod tests {
    use protocol::nlm::NetObj;

    use super::*;

    #[test]
    fn holders_beyond_32_bits_are_clamped_and_never_wrapped() {
        let narrow = |l_offset, l_len| {
            let holder = Holder { exclusive: true, svid: 1, oh: NetObj::default(), l_offset, l_len };
            let holder = narrow_holder(&holder);
            (holder.l_offset, holder.l_len)
        };
        assert_eq!(narrow(5, 10), (5, 10));
        assert_eq!(narrow(5, 0), (5, 0));
        assert_eq!(narrow(5, 1 << 32), (5, 0));
        assert_eq!(narrow(u64::from(u32::MAX), 1), (u32::MAX, 0), "it ends beyond 32 bits");
        assert_eq!(narrow(1 << 32, 1), (u32::MAX, 0));
    }
}
