//! Messages between the server and its helper, of fixed sizes; a request has a descriptor of the file system.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use vfs::{Quota, QuotaKind, QuotaUse};

const REQUEST_BYTES: usize = 12;
const ANSWER_BYTES: usize = 4 + 4 + 2 * USE_BYTES;
/// Four numbers, and which of them are set.
const USE_BYTES: usize = 4 * 8 + 4;

/// A question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub number: u32,
    pub kind: QuotaKind,
    pub id: u32,
}

/// The answer to the request of this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub number: u32,
    /// The error number of a failure; 0 for a quota, [`NONE`] for none.
    error: i32,
    quota: Quota,
}

/// There is no quota.
const NONE: i32 = -1;

/// Sends a request about the file system of `file`.
pub fn send(socket: BorrowedFd<'_>, request: &Request, file: BorrowedFd<'_>) -> io::Result<()> {
    let kind: u32 = match request.kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
    };
    let mut bytes = [0; REQUEST_BYTES];
    for (place, number) in bytes.chunks_exact_mut(4).zip([request.number, kind, request.id]) {
        place.copy_from_slice(&number.to_ne_bytes());
    }
    let files = [file];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a request; `None` at the end.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is none.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Request, OwnedFd)>> {
    let mut bytes = [0; REQUEST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut file = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    let [number, kind, id] = [0, 4, 8].map(|at| u32_at(&bytes, at));
    let kind = match kind {
        0 => QuotaKind::User,
        1 => QuotaKind::Group,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    match file {
        Some(file) if received.bytes == REQUEST_BYTES => Ok(Some((Request { number, kind, id }, file))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Answer {
    pub fn new(number: u32, result: io::Result<Option<Quota>>) -> Self {
        let (error, quota) = match result {
            Ok(Some(quota)) => (0, quota),
            Ok(None) => (NONE, Quota::default()),
            Err(error) => {
                (error.raw_os_error().filter(|number| *number > 0).unwrap_or(libc::EIO), Quota::default())
            }
        };
        Self { number, error, quota }
    }

    pub fn result(&self) -> io::Result<Option<Quota>> {
        match self.error {
            0 => Ok(Some(self.quota)),
            NONE => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn bytes(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&self.number.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_ne_bytes());
        let (first, second) = bytes[8..].split_at_mut(USE_BYTES);
        put_use(&self.quota.bytes, first);
        put_use(&self.quota.files, second);
        bytes
    }

    fn parse(bytes: &[u8; ANSWER_BYTES]) -> Self {
        Self {
            number: u32_at(bytes, 0),
            error: u32_at(bytes, 4).cast_signed(),
            quota: Quota { bytes: use_in(&bytes[8..]), files: use_in(&bytes[8 + USE_BYTES..]) },
        }
    }

    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        rustix::net::send(socket, &self.bytes(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives an answer.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the helper has ended, and those of a wait that is too long.
    pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut bytes = [0; ANSWER_BYTES];
        let (received, _) = rustix::net::recv(socket, &mut bytes, RecvFlags::empty())?;
        if received == ANSWER_BYTES {
            Ok(Self::parse(&bytes))
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

fn put_use(of: &QuotaUse, into: &mut [u8]) {
    let deadline = of.deadline.map(i64::cast_unsigned);
    let (mut set, values) = (0_u32, [Some(of.used), of.soft, of.hard, deadline]);
    for (index, value) in values.into_iter().enumerate() {
        set |= u32::from(value.is_some()) << index;
        into[index * 8..index * 8 + 8].copy_from_slice(&value.unwrap_or(0).to_ne_bytes());
    }
    into[32..36].copy_from_slice(&set.to_ne_bytes());
}

fn use_in(bytes: &[u8]) -> QuotaUse {
    let set = u32_at(bytes, 32);
    let value = |index: usize| (set & 1 << index != 0).then(|| u64_at(bytes, index * 8));
    QuotaUse {
        used: u64_at(bytes, 0),
        soft: value(1),
        hard: value(2),
        deadline: value(3).map(u64::cast_signed),
    }
}

#[cfg(test)]
pub mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    pub const QUOTA: Quota = Quota {
        bytes: QuotaUse { used: 1 << 40, soft: Some(7), hard: Some(u64::MAX), deadline: Some(-5) },
        files: QuotaUse { used: 3, soft: None, hard: Some(0), deadline: None },
    };

    #[test]
    fn answers_round_trip() {
        for result in [Ok(Some(QUOTA)), Ok(None), Err(libc::EPERM)] {
            let of = |result: Result<_, i32>| result.map_err(io::Error::from_raw_os_error);
            let parsed = Answer::parse(&Answer::new(9, of(result)).bytes());
            assert_eq!(parsed.number, 9);
            let back = parsed.result().map_err(|error| error.raw_os_error().unwrap());
            assert_eq!(back, result);
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let refused = |bytes: &[u8]| {
            rustix::net::send(&one, bytes, SendFlags::NOSIGNAL).unwrap();
            receive(other.as_fd()).unwrap_err().kind()
        };
        // Without a descriptor; short; of an unknown kind; long.
        assert_eq!(refused(&[0; REQUEST_BYTES]), io::ErrorKind::InvalidData);
        assert_eq!(refused(&[0; REQUEST_BYTES - 1]), io::ErrorKind::InvalidData);
        assert_eq!(refused(&[2; REQUEST_BYTES]), io::ErrorKind::InvalidData);
        assert_eq!(refused(&[0; 4096]), io::ErrorKind::InvalidData);
        let request = Request { number: 1, kind: QuotaKind::Group, id: 50 };
        send(one.as_fd(), &request, one.as_fd()).unwrap();
        let (received, _) = receive(other.as_fd()).unwrap().unwrap();
        assert_eq!(received, request);
        drop(one);
        assert!(receive(other.as_fd()).unwrap().is_none());
    }
}
