//! Parses the words of a command line to an expression.

use super::compare::{Age, AgeUnit, Compare, Size};
use super::test::{Permissions, Test, Which};
use super::{Action, Expression, Instruction, NESTING_MAX, WORDS_MAX};
use crate::commands::attributes::FileKind;
use crate::commands::lookup::Lookup;
use crate::commands::mode::ModeChange;
use crate::commands::pattern::Pattern;

/// Minimum similarity of an unknown predicate to a known one that the error suggests.
const SIMILARITY_MIN: f64 = 0.75;

/// How a predicate is parsed.
enum Predicate {
    /// Needs no argument.
    Plain(Test),
    Act(Action),
    /// Makes a test of its argument, or returns the expected form.
    Argument(fn(&[u8], &dyn Lookup) -> Option<Test>, &'static str),
    /// An option of the whole search.
    Depth,
    MinDepth,
    MaxDepth,
    Newer,
}

use Predicate::{Act, Argument, Plain};

const AGE: &str = "a number, as in 1, +1 (older) or -1 (newer)";
const NUMBER: &str = "a whole number, as in 1, +1 (more) or -1 (less)";

/// All predicates except operators.
#[rustfmt::skip]
const PREDICATES: &[(&str, Predicate)] = &[
    ("-name", Argument(|text, _| Some(Test::Name(Pattern::new(text, false))), "a pattern")),
    ("-iname", Argument(|text, _| Some(Test::Name(Pattern::new(text, true))), "a pattern")),
    ("-path", Argument(|text, _| Some(Test::Path(Pattern::new(text, false))), "a pattern")),
    ("-wholename", Argument(|text, _| Some(Test::Path(Pattern::new(text, false))), "a pattern")),
    ("-ipath", Argument(|text, _| Some(Test::Path(Pattern::new(text, true))), "a pattern")),
    ("-iwholename", Argument(|text, _| Some(Test::Path(Pattern::new(text, true))), "a pattern")),
    ("-size", Argument(|text, _| Some(Test::Size(Size::parse(utf8(text)?)?)), "a size, as in 10k, +1M or -512c (units: c w b k M G)")),
    ("-type", Argument(|text, _| kinds(text), "letters of f d l b c s p, with commas between")),
    ("-empty", Plain(Test::Empty)),
    ("-newer", Predicate::Newer),
    ("-mtime", Argument(|text, _| age(text, Which::Modified, AgeUnit::Days), AGE)),
    ("-mmin", Argument(|text, _| age(text, Which::Modified, AgeUnit::Minutes), AGE)),
    ("-atime", Argument(|text, _| age(text, Which::Accessed, AgeUnit::Days), AGE)),
    ("-amin", Argument(|text, _| age(text, Which::Accessed, AgeUnit::Minutes), AGE)),
    ("-ctime", Argument(|text, _| age(text, Which::Changed, AgeUnit::Days), AGE)),
    ("-cmin", Argument(|text, _| age(text, Which::Changed, AgeUnit::Minutes), AGE)),
    ("-perm", Argument(|text, _| permissions(text), "a mode, as in 644, -u+w (all bits) or /222 (any bit)")),
    ("-user", Argument(|text, names| owner(text, |name| names.user(name)).map(Test::User), "a user that exists, or a number")),
    ("-group", Argument(|text, names| owner(text, |name| names.group(name)).map(Test::Group), "a group that exists, or a number")),
    ("-uid", Argument(|text, _| number(text).map(Test::User), NUMBER)),
    ("-gid", Argument(|text, _| number(text).map(Test::Group), NUMBER)),
    ("-links", Argument(|text, _| number(text).map(Test::Links), NUMBER)),
    ("-inum", Argument(|text, _| number(text).map(Test::FileId), NUMBER)),
    ("-true", Plain(Test::True)),
    ("-false", Plain(Test::False)),
    ("-print", Act(Action::Print)),
    ("-print0", Act(Action::Print0)),
    ("-ls", Act(Action::List)),
    ("-delete", Act(Action::Delete)),
    ("-prune", Act(Action::Prune)),
    ("-quit", Act(Action::Quit)),
    ("-depth", Predicate::Depth),
    ("-mindepth", Predicate::MinDepth),
    ("-maxdepth", Predicate::MaxDepth),
];

/// Entries that `-prune` protects would be removed.
const PRUNE_AND_DELETE: &str =
    "`-delete` implies `-depth`, with which `-prune` does nothing: give `-depth` as well to continue anyway";

/// Operators, for suggestions.
const OPERATORS: &[&str] = &["-a", "-and", "-o", "-or", "-not"];

/// Parses an expression; without words it prints every entry.
///
/// # Errors
/// One line that names the word and what was expected.
pub fn parse(words: &[Vec<u8>], names: &dyn Lookup) -> Result<Expression, String> {
    if words.len() > WORDS_MAX {
        return Err(format!("an expression has at most {WORDS_MAX} words, this one has {}", words.len()));
    }
    let mut parser =
        Parser { words, at: 0, names, nesting: 0, acts: false, has_depth: false, expression: empty() };
    if words.is_empty() {
        parser.emit(Instruction::Test(Test::True));
    } else {
        parser.list()?;
    }
    if let Some(word) = parser.peek() {
        let shown = String::from_utf8_lossy(word);
        return Err(match word {
            b")" => "`)` without `(`".to_owned(),
            _ => format!("`{shown}` is not expected here: paths come before the expression"),
        });
    }
    let (prunes, deletes) = (parser.acts_by(Action::Prune), parser.acts_by(Action::Delete));
    if prunes && deletes && !parser.has_depth {
        return Err(PRUNE_AND_DELETE.to_owned());
    }
    if !parser.acts {
        // `EXPRESSION -a -print`.
        let end = parser.expression.code.len() + 2;
        parser.emit(Instruction::JumpIf(false, end));
        parser.emit(Instruction::Act(Action::Print));
    }
    Ok(parser.expression)
}

fn empty() -> Expression {
    Expression {
        code: Vec::new(),
        min_depth: 0,
        max_depth: usize::MAX,
        is_depth_first: false,
        references: Vec::new(),
        needs_emptiness: false,
    }
}

struct Parser<'a> {
    words: &'a [Vec<u8>],
    at: usize,
    names: &'a dyn Lookup,
    nesting: usize,
    /// Whether there is an action other than `-prune` and `-quit`.
    acts: bool,
    /// Whether `-depth` was given.
    has_depth: bool,
    expression: Expression,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a [u8]> {
        self.words.get(self.at).map(Vec::as_slice)
    }

    fn takes(&mut self, operators: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| operators.iter().any(|known| known.as_bytes() == word));
        self.at += usize::from(is_there);
        is_there
    }

    /// Returns whether the expression has this action.
    fn acts_by(&self, action: Action) -> bool {
        self.expression.code.iter().any(|known| matches!(known, Instruction::Act(act) if *act == action))
    }

    fn emit(&mut self, instruction: Instruction) -> usize {
        self.expression.code.push(instruction);
        self.expression.code.len() - 1
    }

    /// Makes a jump go to the next instruction.
    fn land(&mut self, jump: usize) {
        let here = self.expression.code.len();
        if let Instruction::JumpIf(_, target) = &mut self.expression.code[jump] {
            *target = here;
        }
    }

    /// `A , B`: both, and the value of the last.
    fn list(&mut self) -> Result<(), String> {
        self.or()?;
        while self.takes(&[","]) {
            self.or()?;
        }
        Ok(())
    }

    /// `A -o B`
    fn or(&mut self) -> Result<(), String> {
        self.and()?;
        let mut jumps = Vec::new();
        while self.takes(&["-o", "-or"]) {
            jumps.push(self.emit(Instruction::JumpIf(true, 0)));
            self.and()?;
        }
        jumps.into_iter().for_each(|jump| self.land(jump));
        Ok(())
    }

    /// `A -a B`, or `A B`
    fn and(&mut self) -> Result<(), String> {
        self.not()?;
        let mut jumps = Vec::new();
        loop {
            let is_explicit = self.takes(&["-a", "-and"]);
            let ends = matches!(self.peek(), None | Some(b"-o" | b"-or" | b")" | b","));
            if ends && !is_explicit {
                break;
            }
            jumps.push(self.emit(Instruction::JumpIf(false, 0)));
            self.not()?;
        }
        jumps.into_iter().for_each(|jump| self.land(jump));
        Ok(())
    }

    /// `! A`, `( A )` or a predicate.
    fn not(&mut self) -> Result<(), String> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(format!("at most {NESTING_MAX} parentheses and negations stand inside each other"));
        }
        if self.takes(&["!", "-not"]) {
            self.not()?;
            self.emit(Instruction::Not);
        } else if self.takes(&["("]) {
            if self.peek() == Some(b")") {
                return Err("`(` and `)` need an expression between them".into());
            }
            self.list()?;
            if !self.takes(&[")"]) {
                return Err("`(` without `)`".into());
            }
        } else {
            self.predicate()?;
        }
        self.nesting -= 1;
        Ok(())
    }

    fn predicate(&mut self) -> Result<(), String> {
        let Some(word) = self.peek() else {
            let before = self.words.last().map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
            return Err(format!("an expression is expected after `{before}`"));
        };
        let shown = String::from_utf8_lossy(word);
        let known = PREDICATES.iter().find(|(name, _)| name.as_bytes() == word);
        let Some((name, predicate)) = known else { return Err(unknown(&shown)) };
        self.at += 1;
        let instruction = match predicate {
            Plain(test) => Instruction::Test(test.clone()),
            Act(action) => {
                self.note_action(*action);
                Instruction::Act(*action)
            }
            Argument(make, expected) => {
                let argument = self.argument(name)?;
                let test = make(argument, self.names).ok_or_else(|| {
                    let found = String::from_utf8_lossy(argument);
                    format!("`{name}` expects {expected}, found `{found}`")
                })?;
                Instruction::Test(test)
            }
            Predicate::Newer => {
                let path = self.argument(name)?.to_vec();
                self.expression.references.push(path);
                Instruction::Test(Test::Newer(self.expression.references.len() - 1))
            }
            Predicate::Depth => {
                self.expression.is_depth_first = true;
                self.has_depth = true;
                Instruction::Test(Test::True)
            }
            Predicate::MinDepth => {
                self.expression.min_depth = self.depth(name)?;
                Instruction::Test(Test::True)
            }
            Predicate::MaxDepth => {
                self.expression.max_depth = self.depth(name)?;
                Instruction::Test(Test::True)
            }
        };
        self.expression.needs_emptiness |= matches!(instruction, Instruction::Test(Test::Empty));
        self.emit(instruction);
        Ok(())
    }

    fn note_action(&mut self, action: Action) {
        self.acts |= !matches!(action, Action::Prune | Action::Quit);
        // A directory is removed after its entries.
        self.expression.is_depth_first |= action == Action::Delete;
    }

    fn argument(&mut self, name: &str) -> Result<&'a [u8], String> {
        let argument = self.peek().ok_or_else(|| format!("`{name}` needs an argument"))?;
        self.at += 1;
        Ok(argument)
    }

    fn depth(&mut self, name: &str) -> Result<usize, String> {
        let argument = self.argument(name)?;
        let is_number = argument.iter().all(u8::is_ascii_digit);
        let depth = utf8(argument).and_then(|text| text.parse().ok()).filter(|_| is_number);
        depth.ok_or_else(|| {
            let found = String::from_utf8_lossy(argument);
            format!("`{name}` expects a whole number of levels, found `{found}`")
        })
    }
}

fn utf8(text: &[u8]) -> Option<&str> {
    str::from_utf8(text).ok()
}

fn number(text: &[u8]) -> Option<Compare> {
    Compare::parse(utf8(text)?)
}

fn age(text: &[u8], which: Which, unit: AgeUnit) -> Option<Test> {
    Some(Test::Age(which, Age::parse(utf8(text)?, unit)?))
}

fn owner(text: &[u8], lookup: impl Fn(&str) -> Option<u32>) -> Option<Compare> {
    let text = utf8(text)?;
    let number = lookup(text).map(|number| number.to_string());
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    Compare::parse(&number.or_else(|| is_number.then(|| text.to_owned()))?)
}

fn kinds(text: &[u8]) -> Option<Test> {
    let kind = |letter: &[u8]| match letter {
        b"f" => Some(FileKind::Regular),
        b"d" => Some(FileKind::Directory),
        b"l" => Some(FileKind::Symlink),
        b"b" => Some(FileKind::BlockDevice),
        b"c" => Some(FileKind::CharacterDevice),
        b"s" => Some(FileKind::Socket),
        b"p" => Some(FileKind::Fifo),
        _ => None,
    };
    text.split(|byte| *byte == b',').map(kind).collect::<Option<_>>().map(Test::Kind)
}

fn permissions(text: &[u8]) -> Option<Test> {
    let text = utf8(text)?;
    let bits = |mode: &str| Some(ModeChange::parse(mode, 0).ok()?.apply(0, false));
    Some(Test::Permissions(match text.as_bytes().first()? {
        b'-' => Permissions::All(bits(&text[1..])?),
        b'/' => Permissions::Any(bits(&text[1..])?),
        _ => Permissions::Exactly(bits(text)?),
    }))
}

fn unknown(word: &str) -> String {
    if !word.starts_with('-') {
        return format!("`{word}` is not expected here: paths come before the expression");
    }
    let known = PREDICATES.iter().map(|(name, _)| *name).chain(OPERATORS.iter().copied());
    let near = known
        .map(|known| (strsim::jaro_winkler(word, known), known))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_MIN)
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    match near {
        Some((_, known)) => format!("unknown predicate `{word}`: did you mean `{known}`?"),
        None => format!("unknown predicate `{word}`"),
    }
}
