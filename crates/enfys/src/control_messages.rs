//! The form of messages on control sockets: one JSON object on a line, with the version of the protocol.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The part of messages that is the same in all versions.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Message<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

/// Why a message cannot be read.
#[derive(Debug)]
pub enum ReadError {
    /// The other side speaks this version.
    OtherVersion(u32),
    /// The message is invalid.
    Invalid(serde_json::Error),
}

/// Returns a message as a line.
///
/// # Errors
/// Those of the content's serialization.
pub fn to_line(version: u32, content: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&Message { version, content })?;
    line.push(b'\n');
    Ok(line)
}

/// Returns the content of a message of this version.
///
/// # Errors
/// The message is of another version, or invalid.
pub fn read<T: DeserializeOwned>(text: &[u8], version: u32) -> Result<T, ReadError> {
    let header: Header = serde_json::from_slice(text).map_err(ReadError::Invalid)?;
    if header.version != version {
        return Err(ReadError::OtherVersion(header.version));
    }
    serde_json::from_slice::<Message<T>>(text).map(|message| message.content).map_err(ReadError::Invalid)
}
