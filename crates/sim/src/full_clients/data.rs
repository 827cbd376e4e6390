//! A program that writes files in turn with other programs, under a lock file, and reads them without the lock.
//!
//! Each version of a file is a number of blocks that name the version. The holder of the lock finds the last version, whole. A client
//! without the lock finds, in each block, no version older than the last one that was synced before its OPEN.

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::error::OpError;
use client::results::{Creation, NewObject, OpenMode, Opened, Stability};
use futures_util::future::try_join_all;
use protocol::nfs4::types::Status;

use super::program::Program;

/// Bytes of a block.
pub(super) const BLOCK: usize = 256;
/// Maximum number of blocks of a file.
const BLOCKS_MAX: u64 = 12;
/// Number of attempts of a program to get a lock.
const TRIES: u32 = 6;

/// Returns the name of a file.
pub(super) fn file_name(file: usize) -> String {
    format!("file{file}")
}

/// Returns the number of blocks that a version has.
pub(super) fn blocks(file: usize, version: u64) -> u64 {
    1 + (version.wrapping_mul(0x9e37_79b9).wrapping_add(file as u64 * 7) >> 3) % BLOCKS_MAX
}

/// Returns a block of a version.
pub(super) fn block(file: usize, version: u64, index: u64) -> [u8; BLOCK] {
    let mut block = [(version as u8) ^ (index as u8) ^ 0x5a; BLOCK];
    block[..8].copy_from_slice(&version.to_be_bytes());
    block[8..16].copy_from_slice(&index.to_be_bytes());
    block[16..24].copy_from_slice(&(file as u64).to_be_bytes());
    block
}

/// Returns the content of a version.
pub(super) fn content(file: usize, version: u64) -> Vec<u8> {
    (0..blocks(file, version)).flat_map(|index| block(file, version, index)).collect()
}

/// Runs `rounds` rounds, each on a random file, or on the file `own` if files are private.
///
/// # Errors
/// An impossible result.
pub(super) async fn run(mut program: Program, own: usize, rounds: u32) -> Result<(), String> {
    clean_up(&mut program).await?;
    for _ in 0..rounds {
        program.pause(6_000).await;
        let files = program.model.borrow().files.len() as u64;
        let file = program.rng.below(files) as usize;
        let is_private = program.model.borrow().is_private;
        if program.rng.chance(40) {
            read_unlocked(&mut program, file).await?;
        } else if is_private {
            update(&mut program, own).await?;
        } else if acquire(&mut program, file).await? {
            update(&mut program, file).await?;
            release(&mut program, file).await?;
        }
    }
    Ok(())
}

fn lock_name(file: usize) -> String {
    format!("lock{file}")
}

/// Returns the text of a lock file, which names its holder.
fn lock_text(program: &Program) -> Bytes {
    let (host, boot, number) = program.id;
    Bytes::from(format!("{host}.{boot}.{number}"))
}

/// Returns whether the lock of a file is a symbolic link that names its holder, or a file that is created exclusively.
fn is_named(file: usize) -> bool {
    file.is_multiple_of(2)
}

/// Tries to get the lock of a file; returns whether it did.
async fn acquire(program: &mut Program, file: usize) -> Result<bool, String> {
    let name = lock_name(file);
    let (client, caller) = (program.client.clone(), program.caller.clone());
    for _ in 0..TRIES {
        program.begin(format!("acquire {name}"));
        let set = SetAttributes::with_mode(0o600);
        let outcome = if is_named(file) {
            let link = NewObject::Symlink(lock_text(program));
            let made = client.create_object(&caller, program.directory, name.as_bytes(), &link, &set);
            made.await.map(|_| None)
        } else {
            let creation = Creation::Exclusive(program.rng.next_u64().to_be_bytes());
            let mode = OpenMode::WRITE;
            let opened = client.open(&caller, program.directory, name.as_bytes(), mode, creation, &set);
            opened.await.map(Some)
        };
        match outcome {
            Ok(opened) => {
                take(program, file)?;
                if let Some(Opened { object, state, .. }) = opened {
                    let closed = client.close_file(&caller, object.handle, &state).await;
                    program.must("close the lock file", closed)?;
                }
                return Ok(true);
            }
            Err(OpError::Status(Status::EXIST)) => program.pause(4_000).await,
            Err(error) => return Err(program.wrong(&format!("acquire {name}"), &error)),
        }
    }
    Ok(false)
}

/// Notes that the program has a lock, which no other program may have.
fn take(program: &Program, file: usize) -> Result<(), String> {
    let holder = program.model.borrow_mut().files[file].holder.replace(program.id);
    match holder {
        None => Ok(()),
        Some(holder) => Err(program.wrong(&format!("has {} beside", lock_name(file)), &holder)),
    }
}

async fn release(program: &mut Program, file: usize) -> Result<(), String> {
    let name = lock_name(file);
    program.begin(format!("release {name}"));
    // It is free some time before the reply.
    program.model.borrow_mut().files[file].holder = None;
    let (client, caller) = (program.client.clone(), program.caller.clone());
    let removed = client.remove_file(&caller, program.directory, name.as_bytes()).await;
    program.must(&format!("release {name}"), removed).map(|_| ())
}

/// Removes locks of earlier runs of this host's programs, if a lock names them.
async fn clean_up(program: &mut Program) -> Result<(), String> {
    let (client, caller, directory) = (program.client.clone(), program.caller.clone(), program.directory);
    let files = program.model.borrow().files.len();
    let (host, boot, number) = program.id;
    for file in (0..files).filter(|file| boot > 1 && is_named(*file)) {
        let name = lock_name(file);
        program.begin(format!("clean up {name}"));
        let read = async {
            let found = client.lookup(&caller, directory, name.as_bytes()).await?;
            client.read_link(&caller, found.handle).await
        };
        let text = match read.await {
            Ok(text) => text,
            // Another program has removed it meanwhile.
            Err(OpError::Status(Status::NOENT | Status::STALE)) => continue,
            Err(error) => return Err(program.wrong(&format!("clean up {name}"), &error)),
        };
        let is_old = (1..boot).any(|boot| text == format!("{host}.{boot}.{number}"));
        if is_old {
            program.model.borrow_mut().files[file].holder = Some(program.id);
            release(program, file).await?;
        }
    }
    Ok(())
}

/// Reads the last version and writes the next one, while the program has the lock.
async fn update(program: &mut Program, file: usize) -> Result<(), String> {
    let name = file_name(file);
    program.begin(format!("open {name}"));
    let (client, caller) = (program.client.clone(), program.caller.clone());
    let set = SetAttributes::default();
    let opened =
        client.open(&caller, program.directory, name.as_bytes(), OpenMode::BOTH, Creation::No, &set).await;
    let opened = program.must(&format!("open {name}"), opened)?;
    check_locked(program, file, &opened).await?;
    let version = {
        let mut model = program.model.borrow_mut();
        let shared = &mut model.files[file];
        shared.begun += 1;
        shared.begun
    };
    write(program, file, version, &opened).await?;
    {
        // All of it is synced.
        program.model.borrow_mut().files[file].synced = version;
    }
    if program.rng.chance(50) {
        check_locked(program, file, &opened).await?;
    }
    program.begin(format!("close {name}"));
    let closed = client.close_file(&caller, opened.object.handle, &opened.state).await;
    program.must(&format!("close {name}"), closed)
}

/// Reads the whole file.
async fn read(program: &Program, opened: &Opened) -> Result<Vec<u8>, String> {
    let (client, caller) = (&program.client, &program.caller);
    let mut content = Vec::new();
    loop {
        let (handle, offset) = (opened.object.handle, content.len() as u64);
        let reply = client.read(caller, handle, &opened.state, offset, 4 * BLOCK as u32).await;
        let reply = program.must("read", reply)?;
        content.extend_from_slice(&reply.data);
        if reply.eof {
            return Ok(content);
        }
    }
}

/// Checks the content while the program has the lock.
async fn check_locked(program: &Program, file: usize, opened: &Opened) -> Result<(), String> {
    program.begin(format!("read {} with the lock", file_name(file)));
    let found = read(program, opened).await?;
    let shared = program.model.borrow().files[file];
    if shared.is_exact() {
        if found != content(file, shared.synced) {
            let why = describe(&found);
            return Err(program.wrong(&format!("{} is not version {}", file_name(file), shared.synced), &why));
        }
        program.checked();
        return Ok(());
    }
    check_blocks(program, file, &found, (shared.synced, shared.begun))
}

/// Reads without the lock.
async fn read_unlocked(program: &mut Program, file: usize) -> Result<(), String> {
    let name = file_name(file);
    program.begin(format!("read {name} without the lock"));
    let oldest = program.model.borrow().files[file].synced;
    let (client, caller) = (program.client.clone(), program.caller.clone());
    let set = SetAttributes::default();
    let opened =
        client.open(&caller, program.directory, name.as_bytes(), OpenMode::READ, Creation::No, &set).await;
    let opened = program.must(&format!("open {name}"), opened)?;
    let found = read(program, &opened).await?;
    let closed = client.close_file(&caller, opened.object.handle, &opened.state).await;
    program.must(&format!("close {name}"), closed)?;
    let newest = program.model.borrow().files[file].begun;
    check_blocks(program, file, &found, (oldest, newest))
}

/// Checks that each block is of a version in a range, or was not written yet.
pub(super) fn check_blocks(
    program: &Program,
    file: usize,
    found: &[u8],
    (oldest, newest): (u64, u64),
) -> Result<(), String> {
    for (index, bytes) in found.chunks(BLOCK).enumerate() {
        let index = index as u64;
        let is_right = (oldest..=newest).any(|version| bytes == block(file, version, index));
        // Beyond the end of the shortest version, later blocks may be written before earlier ones.
        let shortest = (oldest..=newest).map(|version| blocks(file, version)).min().unwrap_or_default();
        let is_gap = index >= shortest && bytes.iter().all(|byte| *byte == 0);
        if !(is_right || is_gap && newest > oldest) {
            let what = format!("block {index} of {} is not of {oldest} to {newest}", file_name(file));
            return Err(program.wrong(&what, &describe(found)));
        }
    }
    program.checked();
    Ok(())
}

/// Returns the versions of all blocks.
pub(super) fn describe(found: &[u8]) -> Vec<u64> {
    let version = |block: &[u8]| block.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    found.chunks(BLOCK).map(version).collect()
}

/// Writes a version, and returns once it is stable.
async fn write(program: &mut Program, file: usize, version: u64, opened: &Opened) -> Result<(), String> {
    let (client, caller) = (program.client.clone(), program.caller.clone());
    let (handle, state) = (opened.object.handle, &opened.state);
    let size = blocks(file, version) * BLOCK as u64;
    program.begin(format!("truncate {} for version {version}", file_name(file)));
    if size < opened.object.attributes.size.max(blocks(file, version - 1) * BLOCK as u64) {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let cut = client.set_attributes(&caller, handle, state, &set).await;
        program.must("truncate", cut)?;
    }
    let mut parts = Vec::new();
    let mut next = 0;
    while next < blocks(file, version) {
        let end = (next + 1 + program.rng.below(4)).min(blocks(file, version));
        let data: Vec<u8> = (next..end).flat_map(|index| block(file, version, index)).collect();
        let stability = match program.rng.below(10) {
            0 => Stability::FileSync,
            1 => Stability::DataSync,
            _ => Stability::Unstable,
        };
        parts.push((next * BLOCK as u64, Bytes::from(data), stability));
        next = end;
    }
    program.begin(format!("write version {version} of {}", file_name(file)));
    let written =
        parts.iter().map(|(offset, data, stability)| write_part(program, opened, *offset, data, *stability));
    let verifiers = try_join_all(written).await?;
    program.pause(3_000).await;
    program.begin(format!("commit version {version} of {}", file_name(file)));
    let committed = client.commit(&caller, handle, 0, 0).await;
    let committed = program.must("commit", committed)?;
    for ((offset, data, _), verifier) in parts.iter().zip(verifiers) {
        // Data that a crash may have lost are written again, synchronously.
        if verifier.iter().any(|verifier| *verifier != committed.verifier) {
            write_part(program, opened, *offset, data, Stability::FileSync).await?;
        }
    }
    Ok(())
}

/// Writes a part of a file; returns the verifiers of unstable data.
async fn write_part(
    program: &Program,
    opened: &Opened,
    mut offset: u64,
    data: &Bytes,
    stability: Stability,
) -> Result<Vec<[u8; 8]>, String> {
    let (mut data, mut verifiers) = (data.clone(), Vec::new());
    while !data.is_empty() {
        let (handle, state) = (opened.object.handle, &opened.state);
        let reply =
            program.client.write(&program.caller, handle, state, offset, data.clone(), stability).await;
        let reply = program.must("write", reply)?;
        if reply.stability == Stability::Unstable {
            verifiers.push(reply.verifier);
        }
        offset += u64::from(reply.count);
        data = data.slice(reply.count as usize..);
    }
    Ok(verifiers)
}
