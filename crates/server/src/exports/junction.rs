//! Exports inside exports: file systems that are mounted below an exported directory, served like `crossmnt` of exports(5).
//!
//! Each has its own id in handles and its own `fsid`. The outer backend refuses its mount points with [`vfs::Error::Access`]; only then
//! the server looks for a [`Junction`], so that other lookups cost the same with and without junctions.

use std::collections::HashMap;
use std::sync::Arc;

use vfs::Handle;

use crate::{Export, ExportError, ExportId, ExportTable};

/// The mount point of an export inside another one.
#[derive(Debug, Clone)]
pub struct Junction {
    /// The export with the mount point. It may be the inner one of another junction.
    pub outer: ExportId,
    /// The directory of the outer export that has the mount point.
    pub directory: Handle,
    /// The name of the mount point there.
    pub name: Vec<u8>,
    /// `fileid` of the directory that is covered.
    pub covered_fileid: u64,
    /// The entries of the mounted export, for different clients; at least one. Its path begins with the path of the outer export.
    pub inner: Vec<Arc<Export>>,
}

/// All junctions of a table.
#[derive(Debug, Default)]
pub(crate) struct Junctions {
    all: Vec<Junction>,
    by_directory: HashMap<(ExportId, Handle), Vec<usize>>,
    by_inner: HashMap<ExportId, usize>,
}

impl Junctions {
    /// Returns the export of this number that is mounted inside another.
    pub(crate) fn export(&self, id: ExportId) -> Option<&Arc<Export>> {
        self.entries(id)?.first()
    }

    /// Returns all entries of such an export.
    pub(crate) fn entries(&self, id: ExportId) -> Option<&Vec<Arc<Export>>> {
        self.of(id).map(|junction| &junction.inner)
    }

    fn of(&self, inner: ExportId) -> Option<&Junction> {
        self.by_inner.get(&inner).map(|index| &self.all[*index])
    }
}

impl ExportTable {
    /// Adds exports inside others.
    ///
    /// # Errors
    /// [`ExportError::SameId`].
    pub fn with_junctions(mut self, junctions: Vec<Junction>) -> Result<Self, ExportError> {
        for junction in junctions {
            let Some(inner) = junction.inner.first() else { continue };
            if let Some(other) = self.by_id(inner.id) {
                return Err(ExportError::SameId(other.path.clone(), inner.path.clone()));
            }
            let Junctions { all, by_directory, by_inner } = &mut self.junctions;
            by_directory.entry((junction.outer, junction.directory)).or_default().push(all.len());
            by_inner.insert(inner.id, all.len());
            all.push(junction);
        }
        Ok(self)
    }

    /// Returns the exports that are mounted inside others.
    pub fn nested(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.junctions.all.iter().filter_map(|junction| junction.inner.first())
    }

    /// Returns the mount points in a directory.
    pub(crate) fn junctions_in(
        &self,
        outer: ExportId,
        directory: &Handle,
    ) -> impl Iterator<Item = &Junction> {
        let junctions = &self.junctions;
        let is_any = !junctions.all.is_empty();
        let here = is_any.then(|| junctions.by_directory.get(&(outer, *directory))).flatten();
        here.into_iter().flatten().map(|index| &junctions.all[*index])
    }

    /// Returns the mount point of this export inside another.
    pub(crate) fn junction_of(&self, inner: ExportId) -> Option<&Junction> {
        self.junctions.of(inner)
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::attributes::number as n;
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::Status;
    use vfs::Error;
    use vfs::fault::{Fault, Method, Rule};

    use super::*;
    use crate::testing::{at, export, faulty, lab_of};

    fn junction(outer: &Export, inner: Export) -> Junction {
        let (directory, name) = (outer.backend.root(), b"disk".to_vec());
        Junction { outer: outer.id, directory, name, covered_fileid: 77, inner: vec![Arc::new(inner)] }
    }

    #[test]
    fn lookup_crosses_where_the_backend_refuses_a_mount_point_and_the_caller_may_search() {
        let (outer, backend) = faulty();
        let mut lab = lab_of(vec![outer.clone()]);
        let junction = junction(&outer, export(2, "/export/disk"));
        let table = ExportTable::new(vec![outer]).unwrap().with_junctions(vec![junction]).unwrap();
        lab.server.replace_exports(table);
        backend.add(Rule::on(Method::Lookup, Fault::Fail(Error::Access)));
        let seen = lab.attributes(&["export", "disk"], &[n::FSID, n::MOUNTED_ON_FILEID]);
        assert_ne!(seen.fsid, lab.attributes(&["export"], &[n::FSID]).fsid);
        assert_eq!(seen.mounted_on_fileid, Some(77));
        assert_eq!(lab.status(at(&["export", "other"], vec![])), Status::ACCESS, "nothing is mounted there");
        let top = lab.handle(&["export"]);
        let up = at(&["export", "disk"], vec![Op::LookupParent, Op::GetFh]);
        assert_eq!(lab.last(up), protocol::nfs4::compound::OpResult::GetFh(Ok(top).into()));
        backend.add(Rule::on(Method::Access, Fault::Fail(Error::Access)).times(1));
        assert_eq!(lab.status(at(&["export", "disk"], vec![])), Status::ACCESS, "no right to search");
        // After the inner export is removed its handles are stale.
        let inside = lab.handle(&["export", "disk"]);
        let outer = Export::clone(lab.server.exports().iter().next().unwrap());
        lab.server.replace_exports(ExportTable::new(vec![outer]).unwrap());
        assert_eq!(lab.status(vec![crate::testing::putfh(inside)]), Status::STALE);
    }

    #[test]
    fn an_inner_export_has_an_id_of_its_own() {
        let outer = export(1, "/export");
        let junctions = vec![junction(&outer, export(1, "/export/disk"))];
        let table = ExportTable::new(vec![outer]).unwrap().with_junctions(junctions);
        assert_eq!(table.unwrap_err(), ExportError::SameId("/export".into(), "/export/disk".into()));
    }
}
