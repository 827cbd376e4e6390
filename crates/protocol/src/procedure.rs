//! What is known of a procedure before its arguments are decoded: one row each, read by dispatch, reply cache and metrics.

/// What happens when a call is executed twice, because its first reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing is changed, so nothing can go wrong.
    None,
    /// The repetition leads to the same state and is answered alike. But it may undo what somebody else did in between.
    Repeatable,
    /// The repetition may be answered with an error, or do something else: its reply must be kept.
    Once,
}

/// One procedure of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Procedure {
    /// Its number on the wire.
    pub number: u32,
    /// Its name in the RFC, without prefix.
    pub name: &'static str,
    /// What a repetition does.
    pub effect: Effect,
}

impl Procedure {
    /// A row of a table.
    #[must_use]
    pub const fn new(number: u32, name: &'static str, effect: Effect) -> Self {
        Self { number, name, effect }
    }

    /// Whether a repetition is answered alike.
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
    /// All procedures, by number; numbers that the version does not define are left out.
    pub procedures: &'static [Procedure],
}

impl ProgramVersion {
    /// The row of procedure `number`; `None` where the answer is `PROC_UNAVAIL`.
    #[inline]
    #[must_use]
    pub fn procedure(&self, number: u32) -> Option<&'static Procedure> {
        match self.procedures.get(number as usize) {
            Some(row) if row.number == number => Some(row),
            _ => self.procedures.iter().find(|row| row.number == number),
        }
    }
}
