//! Attributes: tshark shows each word of the mask, then the values of its bits.

use protocol::nfs4::attributes::values::SetTime;
use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes, known, number};
use protocol::nfs4::types::Time;

use crate::shown;
use crate::shown::{Shown, Shows};

shown!(SetTime, |time, shows| {
    match time {
        SetTime::ServerTime => shows.put("nfs.set_it", 0),
        SetTime::ClientTime(time) => {
            shows.put("nfs.set_it", 1);
            time.show(shows);
        }
    }
});

shown!(FileAttributes, |wire, shows| {
    // Attributes of SETATTR and similar operations also decode as settable ones.
    if wire.mask.is_subset(SetAttributes::FIELDS) {
        let set = SetAttributes::from_file_attributes(wire, known(2)).unwrap();
        assert_eq!(&set.to_file_attributes(), wire);
    }
    let attributes = Attributes::from_file_attributes(wire).unwrap();
    assert_eq!(&attributes.to_file_attributes(), wire);
    for (index, word) in wire.mask.words().iter().enumerate().filter(|(_, word)| **word != 0) {
        shows.hex("nfs.attr_mask", *word);
        for number in wire.mask.iter().filter(|number| *number as usize / 32 == index) {
            shows.put("nfs.attr", number);
            value(shows, &attributes, number).unwrap_or_else(|| panic!("nothing shows attribute {number}"));
        }
    }
});

/// Shows the value of attribute `number`; `None` for those without a recording.
fn value(shows: &mut Shows, a: &Attributes, number: u32) -> Option<()> {
    match number {
        number::SUPPORTED_ATTRS => shows.bitmap("nfs.attr_mask", &a.supported_attrs?),
        number::SUPPATTR_EXCLCREAT => shows.bitmap("nfs.attr_mask", &a.suppattr_exclcreat?),
        number::TYPE => shows.put("nfs.nfs_ftype4", a.file_type?.0),
        number::FH_EXPIRE_TYPE => shows.hex("nfs.fattr4_fh_expire_type", a.fh_expire_type?.bits()),
        number::CHANGE => shows.put("nfs.changeid4", a.change?),
        number::SIZE => shows.put("nfs.fattr4.size", a.size?),
        number::LINK_SUPPORT => shows.flag("nfs.fattr4_link_support", a.link_support?),
        number::SYMLINK_SUPPORT => shows.flag("nfs.fattr4_symlink_support", a.symlink_support?),
        number::FSID => {
            shows.put("nfs.fsid4.major", a.fsid?.major);
            shows.put("nfs.fsid4.minor", a.fsid?.minor);
        }
        number::RDATTR_ERROR => shows.put("nfs.nfsstat4", a.rdattr_error?.0),
        number::ACLSUPPORT => shows.put("nfs.fattr4.aclsupport", a.aclsupport?.bits()),
        number::CASE_INSENSITIVE => shows.flag("nfs.fattr4_case_insensitive", a.case_insensitive?),
        number::CASE_PRESERVING => shows.flag("nfs.fattr4_case_preserving", a.case_preserving?),
        number::FILEHANDLE => shows.handle(a.filehandle.as_ref()?),
        number::FILEID => shows.put("nfs.fattr4.fileid", a.fileid?),
        number::MODE => shows.put("nfs.mode", a.mode?.bits()),
        number::MODE_UMASK => {
            shows.put("nfs.mode", a.mode_umask?.mode.bits());
            shows.put("nfs.fattr4.umask", a.mode_umask?.umask.bits());
        }
        number::NUMLINKS => shows.put("nfs.fattr4.numlinks", a.numlinks?),
        number::OWNER => shows.text("nfs.fattr4_owner", a.owner.as_ref()?),
        number::OWNER_GROUP => shows.text("nfs.fattr4_owner_group", a.owner_group.as_ref()?),
        number::RAWDEV => {
            shows.put("nfs.specdata1", a.rawdev?.major);
            shows.put("nfs.specdata2", a.rawdev?.minor);
        }
        number::SPACE_USED => shows.put("nfs.fattr4.space_used", a.space_used?),
        number::MOUNTED_ON_FILEID => shows.hex64("nfs.fattr4.mounted_on_fileid", a.mounted_on_fileid?),
        number::TIME_ACCESS_SET => a.time_access_set?.show(shows),
        number::TIME_MODIFY_SET => a.time_modify_set?.show(shows),
        _ => time(a, number)?.show(shows),
    }
    Some(())
}

fn time(a: &Attributes, number: u32) -> Option<Time> {
    match number {
        number::TIME_ACCESS => a.time_access,
        number::TIME_METADATA => a.time_metadata,
        number::TIME_MODIFY => a.time_modify,
        _ => None,
    }
}
