use super::inode::Inode;
use crate::{Error, Handle, Result};

/// The first byte of every handle of a file system in memory, which distinguishes them from handles of other backends.
const HANDLE_TAG: u8 = b'M';

/// Tag, instance, file id.
const HANDLE_LENGTH: usize = 1 + 8 + 8;

/// All objects, found in constant time.
///
/// A file id is a place in the table (from 1) in the low half and the place's generation in the high half, so it
/// is never reused, and a handle with it never leads to another file.
#[derive(Debug)]
pub(super) struct Table {
    instance: u64,
    max_files: u32,
    places: Vec<TableSlot>,
    free: Vec<u32>,
    /// Objects that were refused because all places were used.
    refusals: u64,
}

#[derive(Debug)]
struct TableSlot {
    generation: u32,
    inode: Option<Box<Inode>>,
}

impl Table {
    pub(super) fn new(instance: u64, max_files: u32) -> Self {
        Self { instance, max_files, places: Vec::new(), free: Vec::new(), refusals: 0 }
    }

    /// Returns the number of objects that were refused because all places were used.
    pub(super) fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Inserts an object.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if all file slots are used.
    pub(super) fn insert(&mut self, inode: Inode) -> Result<u64> {
        let inode = Some(Box::new(inode));
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.inode = inode;
            return Ok(fileid(index, place.generation));
        }
        if self.places.len() >= self.max_files as usize {
            self.refusals += 1;
            return Err(Error::NoSpace);
        }
        self.places.push(TableSlot { generation: 0, inode });
        Ok(fileid(self.places.len() as u32 - 1, 0))
    }

    pub(super) fn remove(&mut self, fileid: u64) -> Option<Box<Inode>> {
        let index = index(fileid)?;
        let place =
            self.places.get_mut(index as usize).filter(|place| place.generation == generation(fileid))?;
        let inode = place.inode.take()?;
        // A place whose generations are used up is retired, after 2^32 files of one slot.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(index);
        }
        Some(inode)
    }

    pub(super) fn get(&self, fileid: u64) -> Option<&Inode> {
        let place = self.places.get(index(fileid)? as usize)?;
        place.inode.as_deref().filter(|_| place.generation == generation(fileid))
    }

    pub(super) fn get_mut(&mut self, fileid: u64) -> Option<&mut Inode> {
        let place = self.places.get_mut(index(fileid)? as usize)?;
        place.inode.as_deref_mut().filter(|_| place.generation == generation(fileid))
    }

    /// Returns the number of file slots, and of free ones.
    pub(super) fn report(&self) -> (u64, u64) {
        let taken = self.places.len() - self.free.len();
        (u64::from(self.max_files), u64::from(self.max_files) - taken as u64)
    }

    pub(super) fn handle(&self, fileid: u64) -> Handle {
        let mut bytes = [0; HANDLE_LENGTH];
        bytes[0] = HANDLE_TAG;
        bytes[1..9].copy_from_slice(&self.instance.to_be_bytes());
        bytes[9..].copy_from_slice(&fileid.to_be_bytes());
        Handle::new(&bytes).expect("a handle of memory is shorter than the limit")
    }

    /// Returns the file id in a handle.
    ///
    /// # Errors
    /// [`Error::BadHandle`] if the handle was never issued, [`Error::Stale`] if its file was removed, perhaps
    /// with an earlier instance.
    pub(super) fn resolve(&self, handle: &Handle) -> Result<u64> {
        let bytes: &[u8; HANDLE_LENGTH] = (**handle).try_into().map_err(|_| Error::BadHandle)?;
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (instance, fileid) = (number(1), number(9));
        if bytes[0] != HANDLE_TAG {
            return Err(Error::BadHandle);
        }
        if instance != self.instance {
            return Err(Error::Stale);
        }
        let place =
            index(fileid).and_then(|index| self.places.get(index as usize)).ok_or(Error::BadHandle)?;
        if generation(fileid) > place.generation {
            return Err(Error::BadHandle);
        }
        self.get(fileid).map(|_| fileid).ok_or(Error::Stale)
    }
}

fn fileid(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | (u64::from(index) + 1)
}

fn index(fileid: u64) -> Option<u32> {
    (fileid as u32).checked_sub(1)
}

fn generation(fileid: u64) -> u32 {
    (fileid >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::inode::Body;
    use super::*;
    use crate::Timestamp;

    fn inode() -> Inode {
        Inode::new(Body::Fifo, 0o644, (0, 0), Timestamp::default())
    }

    #[test]
    fn a_reused_place_gets_another_file_id_and_the_old_handle_is_stale() {
        let mut table = Table::new(7, 1);
        let first = table.insert(inode()).unwrap();
        assert_eq!(first, 1);
        assert_eq!(table.insert(inode()), Err(Error::NoSpace));
        let old = table.handle(first);
        table.remove(first).unwrap();
        let second = table.insert(inode()).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.resolve(&old), Err(Error::Stale));
        assert_eq!(table.resolve(&table.handle(second)), Ok(second));
        assert!(table.remove(first).is_none());
    }

    #[test]
    fn an_unknown_handle_is_a_bad_handle() {
        let mut table = Table::new(7, 4);
        let fileid = table.insert(inode()).unwrap();
        let good = table.handle(fileid).to_vec();
        for (at, value) in [(0, b'N'), (16, 9), (16, 0), (12, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(table.resolve(&Handle::new(&bytes).unwrap()), Err(Error::BadHandle), "{at}");
        }
        for length in 0..good.len() {
            assert_eq!(table.resolve(&Handle::new(&good[..length]).unwrap()), Err(Error::BadHandle));
        }
        assert_eq!(Table::new(8, 4).resolve(&table.handle(fileid)), Err(Error::Stale), "another instance");
    }
}
