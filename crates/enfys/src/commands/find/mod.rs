//! The expressions of `find`, as in GNU findutils: parsed to a short program that runs once for each entry.

mod command;
mod compare;
mod parse;
mod test;

pub use command::{FindArguments, run};
pub use parse::parse;
pub use test::{Context, Entry};

use test::Test;

/// Maximum number of words of an expression.
pub const WORDS_MAX: usize = 10_000;
/// Maximum number of parentheses and negations inside each other.
pub const NESTING_MAX: usize = 200;

/// The action of an expression on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Prints the path and a newline.
    Print,
    /// Prints the path and a zero byte.
    Print0,
    /// Prints a line as `ls -dils` does.
    List,
    /// Removes the entry. Its value is the success.
    Delete,
    /// Does not descend into this directory.
    Prune,
    /// Ends the search.
    Quit,
}

/// A parsed expression with its options.
#[derive(Debug)]
pub struct Expression {
    code: Vec<Instruction>,
    /// Minimum depth of entries for which it is evaluated; start points have 0.
    pub min_depth: usize,
    /// Greatest depth of entries.
    pub max_depth: usize,
    /// Whether a directory's entries come before the directory.
    pub is_depth_first: bool,
    /// Paths whose modification times `-newer` compares with, for [`Context::references`].
    pub references: Vec<Vec<u8>>,
    /// Whether `-empty` needs [`Entry::is_empty_directory`].
    pub needs_emptiness: bool,
}

/// One step of the program. There is one value: of the last test or action.
#[derive(Debug)]
enum Instruction {
    Test(Test),
    Act(Action),
    Not,
    /// Jumps to another instruction if the value is this.
    JumpIf(bool, usize),
}

impl Expression {
    /// Starts an evaluation.
    pub fn start(&self) -> Evaluation<'_> {
        Evaluation { code: &self.code, next: 0, value: true }
    }
}

/// The evaluation of an expression for one entry. The caller executes each action and reports its value.
#[derive(Debug)]
pub struct Evaluation<'e> {
    code: &'e [Instruction],
    next: usize,
    value: bool,
}

impl Evaluation<'_> {
    /// Returns the next action; `None` at the end. Every call is with the same entry.
    pub fn next(&mut self, entry: &Entry<'_>, context: &Context) -> Option<Action> {
        while let Some(instruction) = self.code.get(self.next) {
            self.next += 1;
            match instruction {
                Instruction::Test(test) => self.value = test.holds(entry, context),
                Instruction::Not => self.value = !self.value,
                Instruction::JumpIf(value, target) if self.value == *value => self.next = *target,
                Instruction::JumpIf(..) => {}
                Instruction::Act(action) => {
                    self.value = true;
                    return Some(*action);
                }
            }
        }
        None
    }

    /// Notes that the last action failed.
    pub fn failed(&mut self) {
        self.value = false;
    }
}

#[cfg(test)]
mod tests;
