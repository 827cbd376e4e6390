//! Capabilities (capabilities(7)): those that serving needs are kept, all others are removed from every set.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// The capabilities of a server that acts as its callers.
///
/// SYS_ADMIN would lift the limits of fanotify(7), and is not kept. SYS_RESOURCE must not be kept: setfsuid(2) leaves it to a thread
/// that acts as a caller, who could then exceed quotas and use blocks reserved for root.
pub const KEPT: CapabilitySet = CapabilitySet::SETUID // setfsuid(2): to become each caller
    .union(CapabilitySet::SETGID) // setfsgid(2), setgroups(2): with the caller's groups
    .union(CapabilitySet::DAC_OVERRIDE) // files are opened once for all callers, regardless of their modes
    .union(CapabilitySet::DAC_READ_SEARCH) // open_by_handle_at(2)
    .union(CapabilitySet::FOWNER) // callers that are root: modes, times, ACLs, sticky directories
    .union(CapabilitySet::CHOWN) // root callers: owners and groups
    .union(CapabilitySet::FSETID) // root callers: set-group-ID for groups that root is not in
    .union(CapabilitySet::MKNOD) // root callers: device files
    .union(CapabilitySet::NET_BIND_SERVICE); // port 111, and source ports that other servers trust

/// Without all of these, the server acts as its own user for all callers.
const TO_ACT_AS_CALLERS: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::DAC_OVERRIDE);

/// Useless to a server that acts as its own user. FSETID would even be harmful: a write to a set-user-ID file, which the server makes
/// with its own capabilities, would leave the bit.
const ONLY_TO_ACT_AS_CALLERS: CapabilitySet =
    CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::FSETID);

/// The highest capability number that the kernel's sets can hold.
const LAST: u32 = 63;

/// Removes all capabilities that serving does not need from this thread. Returns the names of the remaining ones.
///
/// # Errors
/// The reason why they could not be removed.
pub fn reduce() -> Result<String, String> {
    let failed = |error: Errno| error.to_string();
    let before = capabilities(None).map_err(failed)?;
    let is_root = rustix::process::geteuid().is_root();
    let kept = kept(before.permitted, is_root);
    let bounding = limit_bounding_set(kept);
    // Fails before Linux 4.3, which has no ambient set.
    let _ = clear_ambient_capability_set();
    let sets = CapabilitySets {
        effective: before.effective & kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(failed)?;
    let names = names(kept);
    Ok(match bounding {
        Ok(()) => names,
        // no_new_privs still prevents a program from gaining capabilities.
        Err(Errno::PERM) if !is_root => format!("{names}; bounding set unchanged (needs root)"),
        Err(error) => format!("{names}; bounding set unchanged: {error}"),
    })
}

fn kept(permitted: CapabilitySet, is_root: bool) -> CapabilitySet {
    let acts_as_callers = is_root && permitted.contains(TO_ACT_AS_CALLERS);
    permitted & if acts_as_callers { KEPT } else { KEPT - ONLY_TO_ACT_AS_CALLERS }
}

/// Reduces the bounding set to `kept`. Needs CAP_SETPCAP unless there is nothing to remove.
fn limit_bounding_set(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..=LAST {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            // This kernel has no capability with this number or a higher one.
            Err(Errno::INVAL) => break,
            Ok(true) if !kept.contains(one) => remove_capability_from_bounding_set(one)?,
            other => drop(other?),
        }
    }
    Ok(())
}

fn names(set: CapabilitySet) -> String {
    let names: Vec<_> = set.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    if names.is_empty() { "none".into() } else { names.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = include_str!("../../../../contrib/enfys.service");

    #[test]
    fn a_server_that_acts_as_callers_keeps_only_what_that_needs() {
        assert_eq!(kept(CapabilitySet::all(), true), KEPT);
        for dangerous in [
            CapabilitySet::SYS_ADMIN,
            CapabilitySet::SYS_RESOURCE,
            CapabilitySet::SYS_PTRACE,
            CapabilitySet::SYS_MODULE,
            CapabilitySet::SETPCAP,
            CapabilitySet::SETFCAP,
            CapabilitySet::LINUX_IMMUTABLE,
        ] {
            assert!(!KEPT.intersects(dangerous), "{dangerous:?}");
        }
    }

    #[test]
    fn only_existing_capabilities_are_kept() {
        let of_container = KEPT - CapabilitySet::DAC_READ_SEARCH - CapabilitySet::MKNOD;
        assert_eq!(kept(of_container | CapabilitySet::SYS_CHROOT, true), of_container);
        assert_eq!(kept(CapabilitySet::empty(), false), CapabilitySet::empty());
    }

    #[test]
    fn a_server_that_cannot_act_as_callers_does_not_keep_capabilities_for_it() {
        let left = |permitted, is_root| kept(permitted, is_root) & ONLY_TO_ACT_AS_CALLERS;
        for missing in [CapabilitySet::SETUID, CapabilitySet::SETGID, CapabilitySet::DAC_OVERRIDE] {
            assert_eq!(left(CapabilitySet::all() - missing, true), CapabilitySet::empty(), "{missing:?}");
        }
        assert_eq!(left(CapabilitySet::all(), false), CapabilitySet::empty());
        let port = CapabilitySet::NET_BIND_SERVICE;
        assert_eq!(kept(port, false), port, "an ordinary user with a port below 1024");
    }

    #[test]
    fn the_unit_has_the_same_bounding_set() {
        let line = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let mut of_unit: Vec<_> = line.expect("a bounding set").split(' ').map(str::to_lowercase).collect();
        let mut kept: Vec<_> = names(KEPT).split(',').map(|name| format!("cap_{name}")).collect();
        of_unit.sort();
        kept.sort();
        assert_eq!(of_unit, kept);
    }

    #[test]
    fn a_thread_has_only_the_kept_capabilities_afterwards() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root's capabilities");
            return;
        }
        let left = || {
            reduce().expect("a thread can drop its capabilities");
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("status");
            ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|name| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a set");
                u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a number")
            })
        };
        let [inheritable, permitted, effective, bounding, ambient] =
            std::thread::spawn(left).join().expect("thread");
        assert_eq!((inheritable, ambient), (0, 0));
        assert_eq!(permitted & !KEPT.bits(), 0);
        assert_eq!((effective, bounding), (permitted, permitted));
    }
}
