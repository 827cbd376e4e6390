//! The procedure tables match the procedure numbers, and the RFCs for non-idempotent procedures.

use protocol::procedure::{Effect, ProgramVersion};
use protocol::{mount, nfs2, nfs3, nfsacl, nlm, nsm, portmap, rpcbind, rquota};

/// Checks that each row has the index of its number and the name of the constant.
fn agrees(table: &ProgramVersion, numbers: &[u32], name: impl Fn(u32) -> Option<&'static str>) {
    let rows: Vec<u32> = table.procedures.iter().map(|row| row.number).collect();
    assert_eq!(rows, numbers, "{}", table.name);
    for number in numbers {
        assert_eq!(table.procedure(*number).map(|row| row.name), name(*number), "{}", table.name);
    }
    assert_eq!(table.procedure(numbers.iter().max().unwrap() + 1), None);
    assert_eq!(table.procedure(u32::MAX), None);
    for gap in (0..rows.len() as u32).filter(|number| !numbers.contains(number)) {
        assert_eq!(table.procedure(gap), None, "{}", table.name);
    }
}

#[test]
fn tables_match_the_constants() {
    let to = |last: u32| (0..=last).collect::<Vec<_>>();
    agrees(&nfs3::TABLE, &to(21), |n| nfs3::Proc(n).name());
    agrees(&mount::TABLE_1, &to(6), |n| mount::Proc(n).name());
    agrees(&mount::TABLE_2, &to(7), |n| mount::Proc(n).name());
    agrees(&mount::TABLE_3, &to(5), |n| mount::Proc(n).name());
    agrees(&portmap::TABLE, &to(5), |n| portmap::Proc(n).name());
    agrees(&rpcbind::TABLE_3, &to(8), |n| rpcbind::Proc(n).name());
    agrees(&rpcbind::TABLE_4, &to(12), |n| rpcbind::Proc(n).name());
    agrees(&nfs2::TABLE, &to(17), |n| nfs2::Proc(n).name());
    // RFC 1813 §6.2 does not define 16 to 19.
    agrees(&nlm::TABLE, &[to(15), (20..=23).collect()].concat(), |n| nlm::Proc(n).name());
    agrees(&nsm::TABLE, &to(6), |n| nsm::Proc(n).name());
    agrees(&rquota::TABLE_1, &to(4), |n| rquota::Proc(n).name());
    agrees(&rquota::TABLE_2, &to(4), |n| rquota::Proc(n).name());
    agrees(&nfsacl::TABLE, &to(2), |n| nfsacl::Proc(n).name());
}

#[test]
fn non_idempotent_procedures_match_the_rfcs() {
    let once: Vec<_> =
        nfs3::TABLE.procedures.iter().filter(|row| row.effect == Effect::Once).map(|row| row.name).collect();
    // RFC 1813 §4.5: the server caches replies of non-idempotent procedures: those that change names or have a guard.
    assert_eq!(once, ["SETATTR", "CREATE", "MKDIR", "SYMLINK", "MKNOD", "REMOVE", "RMDIR", "RENAME", "LINK"]);
    assert!(nfs3::TABLE.procedure(nfs3::Proc::WRITE.0).unwrap().is_idempotent());
    assert!(!nfs3::TABLE.procedure(nfs3::Proc::REMOVE.0).unwrap().is_idempotent());
}
