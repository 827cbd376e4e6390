//! Allocate, holes, seek, and copies and clones by the server.

use client::errno::Errno;
use client::results::Content;

use super::{BOTH, Feature, Outcome, Place, fails, holds, pattern, same};

const MIB: u64 = 1 << 20;
const HOLE: u64 = 64 << 10;

pub(super) fn reserved_space_and_holes(place: &Place) -> Outcome {
    let file = place.fs().open(b"space", &BOTH)?;
    let content = pattern(MIB as usize);
    file.write_at(MIB, content.clone())?;
    if place.of(Feature::Seek, file.seek(0, Content::Data))?.is_some() {
        same("the first data", MIB, file.seek(0, Content::Data)?)?;
        same("the first hole", 0, file.seek(0, Content::Hole)?)?;
        same("the hole at the end", 2 * MIB, file.seek(MIB, Content::Hole)?)?;
        fails("data behind the end", file.seek(2 * MIB, Content::Data), Errno::ENXIO)?;
    }
    if place.of(Feature::Allocate, file.allocate(2 * MIB, MIB))?.is_some() {
        same("the size after allocate", 3 * MIB, file.stat()?.size)?;
        holds("reserved space reads as zeros", file.read_at(2 * MIB, 100)? == [0; 100])?;
    }
    if place.of(Feature::PunchHole, file.punch_hole(MIB, HOLE))?.is_some() {
        holds("a hole reads as zeros", file.read_at(MIB, HOLE as usize)?.iter().all(|byte| *byte == 0))?;
        if place.of(Feature::Seek, file.seek(0, Content::Data))?.is_some() {
            same("data behind a hole", MIB + HOLE, file.seek(0, Content::Data)?)?;
        }
        let rest = place.other().read(b"space")?;
        holds(
            "what is behind the hole",
            rest[(MIB + HOLE) as usize..(2 * MIB) as usize] == content[HOLE as usize..],
        )?;
    }
    Ok(file.close()?)
}

pub(super) fn copies_and_clones(place: &Place) -> Outcome {
    let fs = place.fs();
    let content = pattern(3 * MIB as usize + 5);
    let (source, target) = (fs.open(b"source", &BOTH)?, fs.open(b"target", &BOTH)?);
    source.write_at(0, content.clone())?;
    if let Some(mut done) = place.of(Feature::Copy, target.copy_from(&source, 0, 0, content.len() as u64))? {
        // A copy may be shorter than requested.
        while done < content.len() as u64 {
            let count = target.copy_from(&source, done, done, content.len() as u64 - done)?;
            holds("a copy goes on", count > 0)?;
            done += count;
        }
        same("a copy from the end", 0, target.copy_from(&source, done, done, 10)?)?;
        target.sync()?;
        holds("the copy is equal", place.other().read(b"target")? == content)?;
        let part = target.copy_from(&source, 10, 20, 5)?;
        same("a part", content[10..10 + part as usize].to_vec(), target.read_at(20, part as usize)?)?;
    }
    target.close()?;
    let target = fs.open(b"clone", &BOTH)?;
    if place.of(Feature::Clone, target.clone_from(&source, 0, 0, 0))?.is_some() {
        target.sync()?;
        holds("the clone is equal", place.other().read(b"clone")? == content)?;
        target.write_at(0, "changed")?;
        same("the source of a clone that was changed", content[..7].to_vec(), source.read_at(0, 7)?)?;
    }
    target.close()?;
    Ok(source.close()?)
}
