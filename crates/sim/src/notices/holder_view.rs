//! Applies CB_NOTIFY (RFC 8881 §20.4) to a holder's view of the names in a directory.

use std::collections::BTreeSet;

use protocol::nfs4::callback::notify::{Notification, NotifyAdd, NotifyRemove, NotifyRename, notify_type};
use protocol::nfs4::types::Component;
use xdr::{Decode, Reader};

/// Applies a notification to `names`.
///
/// # Errors
/// Returns that it contradicts the names.
pub(super) fn apply(names: &mut BTreeSet<String>, notification: &Notification) -> Result<(), String> {
    let mut values = Reader::new(notification.values.bytes().clone());
    for kind in notification.mask.iter() {
        match kind {
            notify_type::REMOVE_ENTRY => remove(names, &value(&mut values)?)?,
            notify_type::ADD_ENTRY => add(names, &value(&mut values)?)?,
            notify_type::RENAME_ENTRY => {
                let renamed: NotifyRename = value(&mut values)?;
                remove(names, &renamed.old_entry)?;
                add(names, &renamed.new_entry)?;
            }
            other => return Err(format!("notification {other}")),
        }
    }
    values.finish().map_err(|error| error.to_string())
}

fn value<T: Decode>(values: &mut Reader) -> Result<T, String> {
    T::decode(values).map_err(|error| error.to_string())
}

fn remove(names: &mut BTreeSet<String>, removed: &NotifyRemove) -> Result<(), String> {
    let name = text(&removed.old_entry.file);
    if names.remove(&name) { Ok(()) } else { Err(format!("removal of {name}, which does not exist")) }
}

/// §20.4.3: a new entry comes with the entry that it has replaced.
fn add(names: &mut BTreeSet<String>, added: &NotifyAdd) -> Result<(), String> {
    for replaced in added.old_entry.iter() {
        remove(names, replaced)?;
    }
    let name = text(&added.new_entry.file);
    if names.insert(name.clone()) { Ok(()) } else { Err(format!("addition of {name}, which exists")) }
}

fn text(name: &Component) -> String {
    String::from_utf8_lossy(name).into_owned()
}
