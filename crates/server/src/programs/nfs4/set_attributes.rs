//! Decodes the attributes to set in SETATTR, CREATE and OPEN.

use protocol::nfs4::attributes::acl::Acl;
use protocol::nfs4::attributes::values::{ModeMasked, ModeUmask, SetTime as WireSetTime};
use protocol::nfs4::attributes::{FileAttributes, SetAttributes as Wire};
use protocol::nfs4::types::{Bitmap, Mode, Status, Time, Utf8};
use vfs::{SetAttributes, SetTime, Timestamp};

use super::attributes::supported;
use crate::IdNames;
use crate::id_names::IdKind;
use crate::state::{ReportedTimes, timestamp};

/// All bits of `mode4`.
const MODE_BITS: u32 = 0o7777;
/// All bits of `mu_umask`.
const UMASK_BITS: u32 = 0o777;

/// The decoded attributes that a client sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttributeChanges {
    /// Attributes that the backend sets directly.
    pub(crate) set: SetAttributes,
    /// Mode bits to change, which need the current mode.
    pub(crate) masked: Option<ModeMasked>,
    /// The ACL, which is set after all other attributes.
    pub(crate) acl: Option<Acl>,
    /// Delegated times, which are also set after the others because they change nothing else.
    pub(crate) held: ReportedTimes,
    /// The attributes requested; equals `attrsset` when all are set.
    pub(crate) mask: Bitmap,
}

impl AttributeChanges {
    /// Decodes `attributes`; the operation can set those in `allowed`.
    ///
    /// # Errors
    /// ATTRNOTSUPP for an attribute that objects do not have; INVAL for one that cannot be set or has an impossible
    /// value; BADOWNER; BADXDR.
    pub(crate) fn parse(
        attributes: &FileAttributes,
        minor: u32,
        allowed: Bitmap,
        names: Option<&IdNames>,
    ) -> Result<Self, Status> {
        let wire =
            Wire::from_file_attributes(attributes, supported(minor)).map_err(|error| error.status())?;
        // Supported, but not settable here: TIME_CREATE in any operation; times in EXCLUSIVE4_1, for which §18.16.3 requires INVAL.
        if !attributes.mask.is_subset(allowed) {
            return Err(Status::INVAL);
        }
        // RFC 8881 §6.2.5: "If the mode and mode_set_masked attributes are both specified in the same SETATTR, the server
        // MUST also return NFS4ERR_INVAL."
        if wire.mode.is_some() && wire.mode_set_masked.is_some() {
            return Err(Status::INVAL);
        }
        // RFC 8275 §5: "The server MUST return NFS4ERR_INVAL if the client attempts to set both mode and mode_umask in
        // the same operation."
        let (mode, umask) = match (wire.mode, wire.mode_umask) {
            (Some(_), Some(_)) => return Err(Status::INVAL),
            (mode, None) => (mode, None),
            (None, Some(ModeUmask { mode, umask })) => (Some(mode), Some(umask_bits(umask)?)),
        };
        let held = ReportedTimes {
            accessed: wire.time_deleg_access.map(valid).transpose()?,
            modified: wire.time_deleg_modify.map(valid).transpose()?,
        };
        let set = SetAttributes {
            mode: mode.map(mode_bits).transpose()?,
            umask,
            uid: wire.owner.as_ref().map(|text| parse_id(text, IdKind::User, names)).transpose()?,
            gid: wire.owner_group.as_ref().map(|text| parse_id(text, IdKind::Group, names)).transpose()?,
            size: wire.size,
            accessed: wire.time_access_set.map(set_time).transpose()?,
            modified: wire.time_modify_set.map(set_time).transpose()?,
        };
        let masked = wire.mode_set_masked;
        if let Some(ModeMasked { value, mask }) = masked {
            mode_bits(value)?;
            mode_bits(mask)?;
        }
        Ok(Self { set, masked, acl: wire.acl, held, mask: attributes.mask })
    }

    /// Returns the attributes to set on an object whose current mode is `present`.
    pub(crate) fn over(&self, present: u32) -> SetAttributes {
        match self.masked {
            None => self.set,
            // RFC 8881 §6.2.5: only the bits of the mask take the new value.
            Some(ModeMasked { value, mask }) => {
                SetAttributes { mode: Some(present & !mask.bits() | value.bits() & mask.bits()), ..self.set }
            }
        }
    }
}

fn mode_bits(mode: Mode) -> Result<u32, Status> {
    if mode.bits() & !MODE_BITS == 0 { Ok(mode.bits()) } else { Err(Status::INVAL) }
}

/// RFC 8275 §5: "Only the nine low-order mode4 bits of mu_umask are defined.  A server MUST return NFS4ERR_INVAL if bits other
/// than those nine are set."
fn umask_bits(umask: Mode) -> Result<u32, Status> {
    if umask.bits() & !UMASK_BITS == 0 { Ok(umask.bits()) } else { Err(Status::INVAL) }
}

fn set_time(time: WireSetTime) -> Result<SetTime, Status> {
    match time {
        WireSetTime::ServerTime => Ok(SetTime::Now),
        WireSetTime::ClientTime(time) => valid(time).map(SetTime::To),
    }
}

fn valid(time: Time) -> Result<Timestamp, Status> {
    timestamp(time).ok_or(Status::INVAL)
}

/// Parses an owner or group: a known name or a decimal number.
///
/// RFC 8881 §5.9: "decimal numeric values with no leading zeros". An unknown name is BADOWNER, and so is `u32::MAX`, which means
/// "no change" in POSIX.
pub(super) fn parse_id(text: &Utf8, kind: IdKind, names: Option<&IdNames>) -> Result<u32, Status> {
    if text.is_empty() {
        return Err(Status::INVAL);
    }
    let text = std::str::from_utf8(text).map_err(|_| Status::BADOWNER)?;
    if let Some(id) = names.and_then(|names| names.id(kind, text)) {
        return Ok(id);
    }
    let is_canonical =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    let id = if is_canonical { text.parse().ok() } else { None };
    id.filter(|id| *id != u32::MAX).ok_or(Status::BADOWNER)
}

/// Returns the name of an owner or group, or its decimal number.
pub(super) fn id_text(id: u32, kind: IdKind, names: Option<&IdNames>) -> Utf8 {
    let name = names.and_then(|names| names.text(kind, id));
    // At most ten digits, or a name and a domain of bounded lengths.
    Utf8::new(name.unwrap_or_else(|| id.to_string())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::types::Time;

    use super::*;
    use crate::programs::nfs4::attributes::{can_set, can_set_with_creation};

    fn parse(wire: &Wire) -> Result<AttributeChanges, Status> {
        AttributeChanges::parse(&wire.to_file_attributes(), 1, can_set(1), None)
    }

    fn owner(text: &'static str) -> Wire {
        Wire { owner: Some(Utf8::from_static(text.as_bytes())), ..Wire::default() }
    }

    #[test]
    fn owners_are_decimal_numbers() {
        assert_eq!(parse(&owner("1000")).unwrap().set.uid, Some(1000));
        assert_eq!(parse(&owner("0")).unwrap().set.uid, Some(0));
        for (text, status) in [
            ("", Status::INVAL),
            ("007", Status::BADOWNER),
            ("+1", Status::BADOWNER),
            ("4294967295", Status::BADOWNER),
            ("4294967296", Status::BADOWNER),
            ("nobody@example.org", Status::BADOWNER),
            ("\u{661}", Status::BADOWNER),
        ] {
            assert_eq!(parse(&owner(text)).unwrap_err(), status, "{text}");
        }
    }

    #[test]
    fn parses_owner_names() {
        let names = IdNames::new("example.org", [("alice".to_owned(), 1000)], [("staff".to_owned(), 50)]);
        let parse =
            |wire: &Wire| AttributeChanges::parse(&wire.to_file_attributes(), 1, can_set(1), Some(&names));
        assert_eq!(parse(&owner("alice@example.org")).unwrap().set.uid, Some(1000));
        assert_eq!(parse(&owner("1001")).unwrap().set.uid, Some(1001), "numbers still are numbers");
        for unknown in ["staff@example.org", "alice@elsewhere", "alice"] {
            assert_eq!(parse(&owner(unknown)).unwrap_err(), Status::BADOWNER, "{unknown}");
        }
        let group = Wire { owner_group: Some(Utf8::from_static(b"staff@example.org")), ..Wire::default() };
        assert_eq!(parse(&group).unwrap().set.gid, Some(50));
    }

    #[test]
    fn refuses_impossible_values() {
        let time = |nanoseconds| Wire {
            time_modify_set: Some(WireSetTime::ClientTime(Time { seconds: 1, nanoseconds })),
            ..Wire::default()
        };
        assert!(parse(&time(999_999_999)).is_ok());
        assert_eq!(parse(&time(1_000_000_000)).unwrap_err(), Status::INVAL);
        let mode = Wire { mode: Some(Mode::from_bits_retain(0o10_000)), ..Wire::default() };
        assert_eq!(parse(&mode).unwrap_err(), Status::INVAL);
    }

    #[test]
    fn distinguishes_unsupported_and_read_only_attributes() {
        let of = |number, length: usize| {
            let attributes = FileAttributes::new(Bitmap::of(&[number]), vec![0; length]).unwrap();
            AttributeChanges::parse(&attributes, 1, can_set(1), None).unwrap_err()
        };
        assert_eq!(of(n::HIDDEN, 4), Status::ATTRNOTSUPP);
        assert_eq!(of(n::FILEID, 8), Status::INVAL);
        assert_eq!(of(n::TIME_CREATE, 12), Status::INVAL);
        assert_eq!(of(n::MODE, 3), Status::BADXDR);
        assert_eq!(of(n::MODE, 8), Status::BADXDR);
    }

    #[test]
    fn mode_umask_needs_create_and_version_4_2() {
        let bits = Mode::from_bits_retain;
        let wire = |umask| Wire {
            mode_umask: Some(ModeUmask { mode: bits(0o1666), umask: bits(umask) }),
            ..Wire::default()
        };
        let parse = |wire: &Wire, minor, allowed| {
            AttributeChanges::parse(&wire.to_file_attributes(), minor, allowed, None)
        };
        let set = parse(&wire(0o027), 2, can_set_with_creation(2)).unwrap().set;
        assert_eq!((set.mode, set.umask), (Some(0o1666), Some(0o027)));
        assert_eq!(parse(&wire(0o1022), 2, can_set_with_creation(2)).unwrap_err(), Status::INVAL);
        let both = Wire { mode: Some(Mode::RUSR), ..wire(0o022) };
        assert_eq!(parse(&both, 2, can_set_with_creation(2)).unwrap_err(), Status::INVAL);
        // "in other operations that take fattr4 arguments, the server MUST reject it with NFS4ERR_INVAL."
        assert_eq!(parse(&wire(0o022), 2, can_set(2)).unwrap_err(), Status::INVAL);
        assert_eq!(parse(&wire(0o022), 1, can_set_with_creation(1)).unwrap_err(), Status::ATTRNOTSUPP);
    }

    #[test]
    fn masked_mode_changes_only_its_bits() {
        let masked =
            Some(ModeMasked { value: Mode::from_bits_retain(0o070), mask: Mode::from_bits_retain(0o077) });
        let wanted = parse(&Wire { mode_set_masked: masked, ..Wire::default() }).unwrap();
        assert_eq!(wanted.over(0o4755).mode, Some(0o4770));
        let both = Wire { mode_set_masked: masked, mode: Some(Mode::RUSR), ..Wire::default() };
        assert_eq!(parse(&both).unwrap_err(), Status::INVAL);
    }
}
