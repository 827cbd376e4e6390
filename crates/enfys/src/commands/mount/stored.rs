//! A mount in the service manager's store of file descriptors (systemd.service(5), `FileDescriptorStoreMax`), between two processes of
//! a service.
//!
//! The process that ends hands the mount over to a thread of its own, as to another process ([`super::hand_over`]). That puts the
//! descriptors of the device and one of a file in memory with the rest into the store. The file has the length of a JSON text in 8 bytes,
//! that text (an [`Offer`] and the state of the files), and the description of the device.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use fuse::HandOver;
use mount::FilesState;
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use store::error_text;

use super::hand_over::{self, Offer};
use crate::systemd;

/// The name of the file with the state.
const STATE: &str = "enfys-state";
/// The first part of the names of the device's descriptors; a number follows, in whose order they belong.
const DEVICE: &str = "enfys-device-";

/// A mount from the store.
pub struct Stored {
    pub offer: Offer,
    pub state: FilesState,
    pub device: HandOver,
    /// The names in the store.
    pub names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    offer: Offer,
    state: FilesState,
}

/// Starts a thread that will put the mount into the store, and returns the socket over which it must be handed over.
///
/// # Errors
/// One sentence.
pub fn store() -> Result<UnixStream, String> {
    if !systemd::has_manager() {
        return Err("no service manager has started this process".to_owned());
    }
    let (own, other) = UnixStream::pair().map_err(|error| error_text(&error).to_string())?;
    std::thread::spawn(move || {
        if let Err(error) = put(&other) {
            // The process notices the end of the connection, and continues.
            tracing::error!(error, "the mount cannot be stored");
        }
    });
    Ok(own)
}

fn put(socket: &UnixStream) -> Result<(), String> {
    let failed = |error: std::io::Error| error_text(&error).to_string();
    let offer = hand_over::read_offer(socket)?;
    let (state, device) = hand_over::take(socket)?;
    let (description, devices) = device.into_parts().map_err(failed)?;
    if let Some(size) = systemd::store_size()
        && size <= devices.len()
    {
        return Err(format!("FileDescriptorStoreMax={size} is too small: {} are needed", devices.len() + 1));
    }
    let text = serde_json::to_vec(&Text { offer, state }).map_err(|error| error.to_string())?;
    let file = rustix::fs::memfd_create(STATE, MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = File::from(file);
    let parts = [&(text.len() as u64).to_ne_bytes()[..], &text, &description];
    parts.iter().try_for_each(|part| file.write_all(part)).map_err(failed)?;
    let mut named = vec![(STATE.to_owned(), file.as_fd())];
    named.extend(
        devices.iter().enumerate().map(|(number, device)| (format!("{DEVICE}{number}"), device.as_fd())),
    );
    systemd::store(&named).map_err(failed)?;
    hand_over::taken(socket)
}

/// Returns the mount that the service manager has passed to this process; `None` if it has passed none.
///
/// # Errors
/// One sentence: what was passed cannot be used.
pub fn passed() -> Result<Option<Stored>, String> {
    let passed = systemd::passed_descriptors().map_err(|error| error_text(&error).to_string())?;
    let mut file = None;
    let mut devices: Vec<(usize, OwnedFd)> = Vec::new();
    let mut names = Vec::new();
    for (name, descriptor) in passed {
        if name == STATE {
            file = Some(File::from(descriptor));
        } else if let Some(number) = name.strip_prefix(DEVICE).and_then(|number| number.parse().ok()) {
            devices.push((number, descriptor));
        } else {
            continue;
        }
        names.push(name);
    }
    if names.is_empty() {
        return Ok(None);
    }
    devices.sort_by_key(|(number, _)| *number);
    let file = file
        .filter(|_| !devices.is_empty())
        .ok_or("the service manager has stored only a part of the mount")?;
    let devices = devices.into_iter().map(|(_, device)| device).collect();
    let (Text { offer, state }, device) = read(file, devices)?;
    Ok(Some(Stored { offer, state, device, names }))
}

fn read(mut file: File, devices: Vec<OwnedFd>) -> Result<(Text, HandOver), String> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_err(|error| error_text(&error).to_string())?;
    let wrong = || "the stored state is invalid".to_owned();
    let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
    let length = usize::try_from(u64::from_ne_bytes(*length)).ok().filter(|length| *length <= rest.len());
    let (text, description) = rest.split_at(length.ok_or_else(wrong)?);
    let text = serde_json::from_slice(text).map_err(|error| format!("the stored state: {error}"))?;
    let device = HandOver::from_parts(description, devices);
    Ok((text, device.map_err(|error| error_text(&error).to_string())?))
}
