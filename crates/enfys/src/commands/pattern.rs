//! Shell patterns over names of raw bytes, as fnmatch(3) matches them in a UTF-8 locale.

use std::ops::RangeInclusive;

/// A compiled pattern. `*` and `?` match slashes and leading dots too, as in `find`.
#[derive(Debug, Clone)]
pub struct Pattern {
    parts: Vec<Part>,
    ignores_case: bool,
}

#[derive(Debug, Clone)]
enum Part {
    /// `*`
    Any,
    /// `?`
    One,
    Unit(Unit),
    Set {
        is_negated: bool,
        members: Vec<Member>,
    },
}

#[derive(Debug, Clone)]
enum Member {
    Range(RangeInclusive<Unit>),
    Class(Class),
}

/// A character, or a byte that is not one: it matches itself and `?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Character(char),
    Byte(u8),
}

/// A class of POSIX, as in `[[:digit:]]`.
#[derive(Debug, Clone, Copy)]
struct Class(IsMember);

/// Tells whether a character belongs to a class.
type IsMember = fn(char) -> bool;

/// The classes and their names.
const CLASSES: &[(&str, IsMember)] = &[
    ("alnum", char::is_alphanumeric),
    ("alpha", char::is_alphabetic),
    ("blank", |c| c == ' ' || c == '\t'),
    ("cntrl", char::is_control),
    ("digit", |c| c.is_ascii_digit()),
    ("graph", |c| !c.is_control() && !c.is_whitespace()),
    ("lower", char::is_lowercase),
    ("print", |c| !c.is_control()),
    ("punct", |c| c.is_ascii_punctuation()),
    ("space", char::is_whitespace),
    ("upper", char::is_uppercase),
    ("xdigit", |c| c.is_ascii_hexdigit()),
];

impl Pattern {
    /// Compiles a pattern. An incomplete set matches itself literally; a backslash makes the next character literal.
    pub fn new(text: &[u8], ignores_case: bool) -> Self {
        let units = units(text);
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Some(unit) = units.get(at) {
            at += 1;
            parts.push(match unit {
                Unit::Character('*') => Part::Any,
                Unit::Character('?') => Part::One,
                Unit::Character('\\') if at < units.len() => {
                    at += 1;
                    Part::Unit(units[at - 1])
                }
                Unit::Character('[') => match set(&units[at..]) {
                    Some((part, length)) => {
                        at += length;
                        part
                    }
                    None => Part::Unit(*unit),
                },
                unit => Part::Unit(*unit),
            });
        }
        Self { parts, ignores_case }
    }

    /// Returns whether the whole name matches. Takes at most the product of both lengths.
    pub fn matches(&self, name: &[u8]) -> bool {
        let name = units(name);
        let (mut part, mut at) = (0, 0);
        // Where to continue after the last `*` if the rest does not match.
        let mut retry = None;
        loop {
            match self.parts.get(part) {
                Some(Part::Any) => {
                    retry = Some((part, at));
                    part += 1;
                    continue;
                }
                None if at == name.len() => return true,
                Some(single) if at < name.len() && self.is_match(single, name[at]) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            match retry {
                Some((star, from)) if from < name.len() => {
                    retry = Some((star, from + 1));
                    (part, at) = (star + 1, from + 1);
                }
                _ => return false,
            }
        }
    }

    fn is_match(&self, part: &Part, unit: Unit) -> bool {
        match part {
            Part::Any | Part::One => true,
            Part::Unit(own) => *own == unit || self.ignores_case && folded(*own) == folded(unit),
            Part::Set { is_negated, members } => {
                let contains = |unit: Unit| members.iter().any(|member| member.contains(unit));
                let is_in =
                    contains(unit) || self.ignores_case && (contains(folded(unit)) || contains(raised(unit)));
                is_in != *is_negated
            }
        }
    }
}

impl Member {
    fn contains(&self, unit: Unit) -> bool {
        match (self, unit) {
            (Self::Range(range), unit) => range.contains(&unit),
            (Self::Class(Class(contains)), Unit::Character(character)) => contains(character),
            (Self::Class(_), Unit::Byte(_)) => false,
        }
    }
}

/// Splits bytes into characters, and bytes that are not characters.
fn units(bytes: &[u8]) -> Vec<Unit> {
    let mut units = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        units.extend(chunk.valid().chars().map(Unit::Character));
        units.extend(chunk.invalid().iter().copied().map(Unit::Byte));
    }
    units
}

/// Returns the lower-case form of a character that has exactly one.
fn folded(unit: Unit) -> Unit {
    let Unit::Character(character) = unit else { return unit };
    let mut lower = character.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(lower), None) => Unit::Character(lower),
        _ => unit,
    }
}

/// Returns the upper-case form of a character that has exactly one.
fn raised(unit: Unit) -> Unit {
    let Unit::Character(character) = unit else { return unit };
    let mut upper = character.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => Unit::Character(upper),
        _ => unit,
    }
}

/// Parses what follows `[`. Returns the set and its length, or `None` if no `]` ends it.
fn set(units: &[Unit]) -> Option<(Part, usize)> {
    let is_negated = matches!(units.first(), Some(Unit::Character('!' | '^')));
    let first = usize::from(is_negated);
    let (mut members, mut at) = (Vec::new(), first);
    loop {
        match units.get(at)? {
            // In the first place it is a member.
            Unit::Character(']') if at > first => {
                return Some((Part::Set { is_negated, members }, at + 1));
            }
            Unit::Character('[') if units.get(at + 1) == Some(&Unit::Character(':')) => {
                if let Some((class, length)) = class(&units[at + 2..]) {
                    members.push(Member::Class(class));
                    at += 2 + length;
                    continue;
                }
            }
            _ => {}
        }
        let (low, after) = member(units, at)?;
        at = after;
        // A dash before the end is a member.
        let is_range = units.get(at) == Some(&Unit::Character('-'))
            && units.get(at + 1).is_some_and(|unit| *unit != Unit::Character(']'));
        let high = if is_range {
            let (high, after) = member(units, at + 1)?;
            at = after;
            high
        } else {
            low
        };
        members.push(Member::Range(low..=high));
    }
}

/// Returns the member at `at`, which a backslash may precede, and the start of the next one.
fn member(units: &[Unit], at: usize) -> Option<(Unit, usize)> {
    match units.get(at)? {
        Unit::Character('\\') => Some((*units.get(at + 1)?, at + 2)),
        unit => Some((*unit, at + 1)),
    }
}

/// Parses `NAME:]`; returns the class and its length.
fn class(units: &[Unit]) -> Option<(Class, usize)> {
    let end = units.windows(2).position(|pair| pair == [Unit::Character(':'), Unit::Character(']')])?;
    let name: String = units[..end]
        .iter()
        .filter_map(|unit| match unit {
            Unit::Character(character) => Some(*character),
            Unit::Byte(_) => None,
        })
        .collect();
    let (_, contains) = CLASSES.iter().find(|(known, _)| *known == name)?;
    Some((Class(*contains), end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&[u8]], others: &[&[u8]]) {
        let compiled = Pattern::new(pattern.as_bytes(), false);
        for name in matching {
            assert!(compiled.matches(name), "{pattern} and {}", name.escape_ascii());
        }
        for name in others {
            assert!(!compiled.matches(name), "{pattern} and {}", name.escape_ascii());
        }
    }

    #[test]
    fn stars_and_question_marks() {
        check("*", &[b"", b"a", b".hidden", b"a/b", b"\xff"], &[]);
        check("*.c", &[b".c", b"a.c", b"a.b.c"], &[b"a.cc", b"c", b""]);
        check("a*b*c", &[b"abc", b"aXbYc", b"abbc", b"abcbc"], &[b"ab", b"acb", b"xabc"]);
        check("?", &[b"a", "ä".as_bytes(), b"\xff", b"."], &[b"", b"ab", b"\xff\xfe"]);
        check("**?", &[b"a", b"abc"], &[b""]);
    }

    #[test]
    fn sets_have_ranges_classes_and_negation() {
        check("[abc]", &[b"a", b"c"], &[b"d", b"", b"ab"]);
        check("[!a-c]x", &[b"dx", b"\xffx"], &[b"ax", b"cx", b"x"]);
        check("[^a]", &[b"b"], &[b"a"]);
        check("[]a]", &[b"]", b"a"], &[b"b"]);
        check("[a-]", &[b"a", b"-"], &[b"b"]);
        check("[[:digit:]x]", &[b"7", b"x"], &[b"a", b":"]);
        check("[[:upper:]]*", &[b"A", b"Makefile", "Ä".as_bytes()], &[b"a"]);
        check("[\\]]", &[b"]"], &[b"\\"]);
        check("[ä-ü]", &["ö".as_bytes()], &[b"o"]);
    }

    #[test]
    fn an_incomplete_set_matches_itself() {
        check("[a", &[b"[a"], &[b"a"]);
        check("a[", &[b"a["], &[b"a"]);
        check("[[:digit:", &[b"[[:digit:"], &[b"1"]);
    }

    #[test]
    fn a_backslash_makes_a_character_literal() {
        check("\\*", &[b"*"], &[b"a", b"\\*"]);
        check("\\[a]", &[b"[a]"], &[b"a"]);
        check("a\\", &[b"a\\"], &[b"a"]);
    }

    #[test]
    fn case_can_be_ignored() {
        let pattern = Pattern::new("MAKE*[a-f]Ä".as_bytes(), true);
        assert!(pattern.matches("makeXEä".as_bytes()));
        assert!(pattern.matches("MakeBÄ".as_bytes()));
        assert!(!pattern.matches("makeXgä".as_bytes()));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = Pattern::new(&b"a*".repeat(200), false);
        assert!(pattern.matches(&[b'a'; 10_000]));
        assert!(!Pattern::new(&[&b"*a".repeat(200)[..], b"b"].concat(), false).matches(&[b'a'; 10_000]));
    }
}
