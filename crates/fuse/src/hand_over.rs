//! The hand-over of a running mount to another process: descriptors, negotiated settings, and unanswered requests.
//!
//! The message on the socket: 8 bytes [`MAGIC`], the number of bytes that follow in 8 bytes, both with the descriptors attached; then the
//! length of the description in 4 bytes, the description as JSON, and for each request the number of its descriptor in 4 bytes, 1 byte that is
//! 1 if it was interrupted, and the request as the kernel sent it, which begins with its length. Numbers are in the machine's byte order.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use bytes::{Buf, Bytes};

use crate::descriptors::{receive_descriptors, send_descriptors};
use crate::negotiate::{State, invalid};

/// First bytes of a hand-over; the digit is its version.
const MAGIC: [u8; 8] = *b"enfysho1";
/// Maximum number of bytes of the description and the requests.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes of the first part.
const START: usize = 16;
/// Bytes before a request.
const BEFORE_REQUEST: usize = 5;

/// A request that was read and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Index of the descriptor that read it, and to which its reply must be written.
    pub(crate) channel: u32,
    pub(crate) is_interrupted: bool,
    pub(crate) message: Bytes,
}

/// A mount without a session.
#[derive(Debug)]
pub struct HandOver {
    pub(crate) devices: Vec<OwnedFd>,
    pub(crate) state: State,
    pub(crate) carried: Vec<Carried>,
}

impl HandOver {
    /// Returns the negotiated settings.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the number of requests that are not answered.
    pub fn pending(&self) -> usize {
        self.carried.len()
    }

    /// Sends the mount to a process that runs already: starting one can wait for the mount, if this process has files open on it. The mount lives while either process has it, so a receiver that confirms lets the sender drop it.
    ///
    /// # Errors
    /// Errors of the socket; `InvalidData` if the requests exceed 1 GiB.
    pub fn send(&self, mut socket: &UnixStream) -> io::Result<()> {
        let payload = self.payload()?;
        let mut start = [0; START];
        start[..8].copy_from_slice(&MAGIC);
        start[8..].copy_from_slice(&(payload.len() as u64).to_ne_bytes());
        let fds: Vec<_> = self.devices.iter().map(AsFd::as_fd).collect();
        send_descriptors(socket, &start, &fds)?;
        socket.write_all(&payload)
    }

    /// Takes the mount apart: a description, and the descriptors in their order. [`Self::from_parts`] joins them, also in another process.
    ///
    /// # Errors
    /// `InvalidData` if the requests exceed 1 GiB.
    pub fn into_parts(self) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        Ok(([&MAGIC[..], &self.payload()?].concat(), self.devices))
    }

    /// Joins the parts of a mount.
    ///
    /// # Errors
    /// `InvalidData` if the description is none, or one of another version.
    pub fn from_parts(description: &[u8], devices: Vec<OwnedFd>) -> io::Result<Self> {
        let Some(payload) = description.strip_prefix(&MAGIC) else {
            return Err(invalid("not a hand-over, or one of another version"));
        };
        let (state, carried) = parse(Bytes::copy_from_slice(payload))?;
        Ok(Self { devices, state, carried })
    }

    fn payload(&self) -> io::Result<Vec<u8>> {
        let state = serde_json::to_vec(&self.state)?;
        let requests =
            self.carried.iter().map(|request| BEFORE_REQUEST + request.message.len()).sum::<usize>();
        if (requests + state.len() + 4) as u64 > BYTES_MAX {
            return Err(invalid("the requests under way are too large to be handed over"));
        }
        let mut payload = Vec::with_capacity(4 + state.len() + requests);
        // Some dozens of bytes.
        payload.extend((state.len() as u32).to_ne_bytes());
        payload.extend(state);
        for request in &self.carried {
            payload.extend(request.channel.to_ne_bytes());
            payload.push(u8::from(request.is_interrupted));
            payload.extend_from_slice(&request.message);
        }
        Ok(payload)
    }

    /// Receives a mount.
    ///
    /// # Errors
    /// Errors of the socket; `InvalidData` if the message is not a hand-over, or one of another version.
    pub fn receive(mut socket: &UnixStream) -> io::Result<Self> {
        let mut start = [0; START];
        let (length, devices) = receive_descriptors(socket, &mut start)?;
        socket.read_exact(&mut start[length..])?;
        let (magic, rest) = start.split_at(8);
        let size = u64::from_ne_bytes(rest.try_into().unwrap_or_default());
        if magic != MAGIC {
            return Err(invalid("not a hand-over, or one of another version"));
        }
        if size > BYTES_MAX {
            return Err(invalid("the hand-over is too large"));
        }
        // Grows as bytes arrive, regardless of the announced length.
        let mut payload = Vec::new();
        socket.take(size).read_to_end(&mut payload)?;
        if payload.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (state, carried) = parse(payload.into())?;
        Ok(Self { devices, state, carried })
    }
}

fn parse(mut payload: Bytes) -> io::Result<(State, Vec<Carried>)> {
    let truncated = || invalid("the hand-over is truncated");
    let length = payload.try_get_u32_ne().map_err(|_| truncated())? as usize;
    if length > payload.len() {
        return Err(truncated());
    }
    let state = serde_json::from_slice(&payload.split_to(length))?;
    let mut carried = Vec::new();
    while !payload.is_empty() {
        let channel = payload.try_get_u32_ne().map_err(|_| truncated())?;
        let is_interrupted = payload.try_get_u8().map_err(|_| truncated())? != 0;
        let length = payload.clone().try_get_u32_ne().map_err(|_| truncated())? as usize;
        if length < size_of::<u32>() || length > payload.len() {
            return Err(truncated());
        }
        // Copied: the payload's memory must not live as long as its last request.
        let message = Bytes::copy_from_slice(&payload.split_to(length));
        carried.push(Carried { channel, is_interrupted, message });
    }
    Ok((state, carried))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Capabilities;

    fn hand_over(messages: &[&'static [u8]]) -> HandOver {
        let null = || std::fs::File::open("/dev/null").expect("a device that is always there").into();
        let state = State {
            minor: 40,
            capabilities: Capabilities::POSIX_LOCKS | Capabilities::HAS_RESEND,
            max_write: 1 << 20,
            max_readahead: 131_072,
        };
        let carried = |message: &&'static [u8]| {
            let mut bytes = (message.len() as u32 + 4).to_ne_bytes().to_vec();
            bytes.extend_from_slice(message);
            Carried { channel: 1, is_interrupted: true, message: bytes.into() }
        };
        HandOver { devices: vec![null(), null()], state, carried: messages.iter().map(carried).collect() }
    }

    #[test]
    fn arrives_as_it_was_sent() {
        let (one, other) = UnixStream::pair().expect("a pair of sockets");
        let sent = hand_over(&[b"first", b"", &[7; 100_000]]);
        let received = std::thread::scope(|scope| {
            scope.spawn(|| sent.send(&one).expect("a working socket"));
            HandOver::receive(&other).expect("the message sent above")
        });
        assert_eq!(received.devices.len(), 2);
        assert_eq!((&received.state, &received.carried), (&sent.state, &sent.carried));
    }

    #[test]
    fn is_joined_from_its_parts() {
        let (description, devices) =
            hand_over(&[b"first", &[7; 1000]]).into_parts().expect("a small payload");
        let joined = HandOver::from_parts(&description, devices).expect("the parts from above");
        assert_eq!((joined.devices.len(), joined.carried), (2, hand_over(&[b"first", &[7; 1000]]).carried));
        assert!(HandOver::from_parts(&description[1..], Vec::new()).is_err());
    }

    #[test]
    fn refuses_other_messages() {
        let (mut one, other) = UnixStream::pair().expect("a pair of sockets");
        one.write_all(&[0; 64]).expect("room for some bytes");
        assert!(HandOver::receive(&other).expect_err("no magic").to_string().contains("not a hand-over"));
    }

    #[test]
    fn refuses_lengths_that_lie() {
        let payload = hand_over(&[b"abc"]).payload().expect("a small payload");
        assert!(parse(payload.clone().into()).is_ok());
        for end in 0..payload.len() {
            // Complete only without its requests.
            let state_end = 4 + u32::from_ne_bytes(payload[..4].try_into().expect("four bytes")) as usize;
            assert_eq!(parse(Bytes::copy_from_slice(&payload[..end])).is_ok(), end == state_end, "{end}");
        }
        let mut lying = payload.clone();
        lying[..4].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(parse(lying.into()).is_err());
    }
}
