//! PUTROOTFH (RFC 8881 §18.21): starts at the root of the pseudo file system.

use crate::nfs4::compound::Compound;
use crate::nfs4::object::Object;
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>) -> Result {
    let root = compound.exports().pseudo().root();
    compound.set_current(Object::Pseudo(root), None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::types::{FileType, Fsid};

    use crate::testing::lab;

    #[test]
    fn the_root_is_a_directory_of_its_own_file_system() {
        let mut lab = lab();
        let root = lab.attributes(&[], &[n::TYPE, n::FSID]);
        assert_eq!(root.file_type, Some(FileType::DIRECTORY));
        assert_eq!(root.fsid, Some(Fsid { major: 0, minor: 0 }));
        assert_ne!(lab.attributes(&["export"], &[n::FSID]).fsid, root.fsid);
    }
}
