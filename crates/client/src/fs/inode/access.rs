//! The known permissions of callers.

use std::collections::HashMap;

use crate::cache::FileId;
use crate::config::Caller;

/// Objects whose permissions are remembered; with more, all are forgotten.
const OBJECTS_MAX: usize = 4096;
/// Callers that are remembered for one object; with more, the first one is forgotten.
const CALLERS_MAX: usize = 8;

/// Permissions of callers, with the numbers of [`crate::results::access`]. An object's are dropped when its mode, owner or access
/// control list may have changed; while its attributes are not fresh, the caller of this cache does not use them.
#[derive(Debug, Default)]
pub(super) struct AccessCache {
    objects: HashMap<FileId, Vec<Rights>>,
}

#[derive(Debug)]
struct Rights {
    caller: Caller,
    asked: u32,
    granted: u32,
}

impl AccessCache {
    /// Returns the granted ones of the requested permissions, if all are known.
    pub(super) fn get(&self, object: FileId, caller: &Caller, asked: u32) -> Option<u32> {
        let rights = self.objects.get(&object)?.iter().find(|rights| rights.caller == *caller)?;
        (rights.asked & asked == asked).then_some(rights.granted & asked)
    }

    /// Notes the granted ones of the requested permissions.
    pub(super) fn note(&mut self, object: FileId, caller: &Caller, asked: u32, granted: u32) {
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&object) {
            self.objects.clear();
        }
        let callers = self.objects.entry(object).or_default();
        if let Some(rights) = callers.iter_mut().find(|rights| rights.caller == *caller) {
            rights.asked |= asked;
            rights.granted = rights.granted & !asked | granted & asked;
            return;
        }
        if callers.len() == CALLERS_MAX {
            callers.remove(0);
        }
        callers.push(Rights { caller: caller.clone(), asked, granted: granted & asked });
    }

    /// Forgets the permissions of an object.
    pub(super) fn forget(&mut self, object: FileId) {
        self.objects.remove(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::access::{EXECUTE, LOOKUP, READ};

    #[test]
    fn only_requested_permissions_are_known() {
        let (mut cache, object, caller) = (AccessCache::default(), FileId(1), Caller::anonymous());
        cache.note(object, &caller, READ | LOOKUP, READ);
        assert_eq!(cache.get(object, &caller, READ | LOOKUP), Some(READ));
        assert_eq!(cache.get(object, &caller, READ | EXECUTE), None);
        cache.note(object, &caller, LOOKUP | EXECUTE, LOOKUP);
        assert_eq!(cache.get(object, &caller, READ | LOOKUP | EXECUTE), Some(READ | LOOKUP));
        cache.forget(object);
        assert_eq!(cache.get(object, &caller, READ), None);
    }

    #[test]
    fn objects_and_callers_are_bounded() {
        let mut cache = AccessCache::default();
        for object in 0..3 * OBJECTS_MAX as u64 {
            cache.note(FileId(object), &Caller::anonymous(), READ, READ);
        }
        assert!(cache.objects.len() <= OBJECTS_MAX);
    }
}
