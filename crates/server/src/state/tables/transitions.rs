//! Legal transitions as tables, which the code executes and the tests check.

/// One row: a phase, an event, and the next phase.
pub(crate) type Row<P, E> = (P, E, P);

/// Returns the next phase; `None` if the table has no such row.
pub(crate) fn step<P: Copy + PartialEq, E: Copy + PartialEq>(
    table: &[Row<P, E>],
    from: P,
    event: E,
) -> Option<P> {
    table.iter().find(|row| row.0 == from && row.1 == event).map(|row| row.2)
}

/// Checks a table: no two rows for one phase and event, and every phase is reachable from `start`. Prints the table, which
/// `--nocapture` shows.
#[cfg(test)]
pub(crate) fn check_table<P, E>(table: &[Row<P, E>], start: P, phases: &[P])
where
    P: Copy + PartialEq + std::fmt::Debug,
    E: Copy + PartialEq + std::fmt::Debug,
{
    println!("{}:", std::any::type_name::<P>());
    for (index, row) in table.iter().enumerate() {
        println!("  {:?} --{:?}--> {:?}", row.0, row.1, row.2);
        let same = |other: &Row<P, E>| other.0 == row.0 && other.1 == row.1;
        assert!(!table[..index].iter().any(same), "two rows for {:?} on {:?}", row.0, row.1);
    }
    let mut reached = vec![start];
    while let Some(row) = table.iter().find(|row| reached.contains(&row.0) && !reached.contains(&row.2)) {
        reached.push(row.2);
    }
    for phase in phases {
        assert!(reached.contains(phase), "{phase:?} is never reached");
    }
}
