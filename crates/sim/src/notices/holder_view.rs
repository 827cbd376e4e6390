//! What a holder makes of CB_NOTIFY (RFC 8881 §20.4): the names in the directory, changed as it is told.

use std::collections::BTreeSet;

use protocol::nfs4::callback::notify::{Notification, NotifyAdd, NotifyRemove, NotifyRename, notify_type};
use protocol::nfs4::types::Component;
use xdr::{Decode, Reader};

/// Changes `names` as a notification says, which must be one of those that were granted.
///
/// # Errors
/// Where it cannot be, the names being what they are.
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
    if names.remove(&name) { Ok(()) } else { Err(format!("told that {name} went, which was not there")) }
}

/// §20.4.3: what the new entry replaced is told beside it.
fn add(names: &mut BTreeSet<String>, added: &NotifyAdd) -> Result<(), String> {
    for replaced in added.old_entry.iter() {
        remove(names, replaced)?;
    }
    let name = text(&added.new_entry.file);
    if names.insert(name.clone()) { Ok(()) } else { Err(format!("told that {name} came, which was there")) }
}

fn text(name: &Component) -> String {
    String::from_utf8_lossy(name).into_owned()
}
