//! Properties of procedures that dispatch, reply cache and metrics use before arguments are decoded: one row per procedure.

/// The effect of executing a call again after its reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call changes nothing.
    None,
    /// The second execution has the same result. But it may undo a change that another client made in between.
    Repeatable,
    /// The second execution may fail or change something else, so the reply must be cached.
    Once,
}

/// One procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its number on the wire.
    pub number: u32,
    /// The RFC's name without prefix.
    pub name: &'static str,
    /// The effect of a second execution.
    pub effect: Effect,
}

impl Procedure {
    /// Creates a row of a table.
    #[must_use]
    pub const fn new(number: u32, name: &'static str, effect: Effect) -> Self {
        Self { number, name, effect }
    }

    /// Returns whether a second execution has the same result.
    #[must_use]
    pub const fn is_idempotent(&self) -> bool {
        !matches!(self.effect, Effect::Once)
    }
}

/// One version of a program.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramVersion {
    /// The program's number.
    pub program: u32,
    /// The version's number.
    pub version: u32,
    /// A short name for logs and metrics.
    pub name: &'static str,
    /// All procedures by number, without undefined numbers.
    pub procedures: &'static [Procedure],
}

impl ProgramVersion {
    /// Returns the row of procedure `number`; `None` for `PROC_UNAVAIL`.
    #[inline]
    #[must_use]
    pub fn procedure(&self, number: u32) -> Option<&'static Procedure> {
        match self.procedures.get(number as usize) {
            Some(row) if row.number == number => Some(row),
            _ => self.procedures.iter().find(|row| row.number == number),
        }
    }
}
