//! Modes: the text of `ls`, and the changes of `chmod`.

use super::attributes::{Attributes, FileKind};

/// Permission bits with set-user-ID, set-group-ID and sticky.
pub const ALL_BITS: u32 = 0o7777;
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Returns the ten characters of `ls -l`.
pub fn mode_string(attributes: &Attributes) -> String {
    let kind = match attributes.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::BlockDevice => 'b',
        FileKind::CharacterDevice => 'c',
        FileKind::Socket => 's',
        FileKind::Fifo => 'p',
    };
    let mode = attributes.mode;
    let execute = |bit: u32, special: u32, both: char, special_only: char| match (mode & bit, mode & special)
    {
        (0, 0) => '-',
        (_, 0) => 'x',
        (0, _) => special_only,
        (_, _) => both,
    };
    let bit = |bit: u32, shown: char| if mode & bit == 0 { '-' } else { shown };
    [
        kind,
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        execute(0o100, SET_USER, 's', 'S'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        execute(0o010, SET_GROUP, 's', 'S'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        execute(0o001, STICKY, 't', 'T'),
    ]
    .into_iter()
    .collect()
}

/// A change of modes: octal, or symbolic as in `u+rwX,g-w,o=,+t`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeChange(Vec<Action>);

/// One operator with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Action {
    /// Bits of the classes that it may change.
    affected: u32,
    operator: Operator,
    permissions: Permissions,
    /// Bits of the umask that are unchanged, since no class was named.
    masked: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    /// Sets exactly the given bits; a directory's set-ID bits are kept unless they are named.
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permissions {
    /// Bits for all classes, and whether `X` was among them.
    Bits { bits: u32, executes_if_any: bool },
    /// The bits that a class has, by the shift of its bits.
    CopyOf(u32),
    /// All twelve bits of an octal number with this many digits.
    Octal { bits: u32, clears_set_ids: bool },
}

/// Maximum number of octal digits: with five a directory's set-ID bits are cleared too.
const OCTAL_DIGITS_MAX: usize = 8;

impl ModeChange {
    /// Parses a mode. Without a class, bits of `umask` are not changed.
    ///
    /// # Errors
    /// One line with the expected form.
    pub fn parse(text: &str, umask: u32) -> Result<Self, String> {
        let wrong = || {
            format!(
                "invalid mode `{text}`: expected an octal number, as in 644, or changes, as in u+rwX,g-w,o="
            )
        };
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return octal(text).ok_or_else(wrong);
        }
        let mut actions = Vec::new();
        for clause in text.split(',') {
            actions.extend(clause_actions(clause, umask).ok_or_else(wrong)?);
        }
        Ok(Self(actions))
    }

    /// Returns the changed mode of an object with these attributes.
    pub fn apply(&self, mode: u32, is_directory: bool) -> u32 {
        self.0.iter().fold(mode & ALL_BITS, |mode, action| action.apply(mode, is_directory))
    }
}

impl Action {
    fn apply(self, mode: u32, is_directory: bool) -> u32 {
        let mut affected = self.affected;
        let bits = match self.permissions {
            Permissions::Bits { bits, executes_if_any } => {
                let executes = executes_if_any && (is_directory || mode & 0o111 != 0);
                bits | if executes { 0o111 } else { 0 }
            }
            Permissions::CopyOf(shift) => (mode >> shift & 0o7) * 0o111,
            Permissions::Octal { bits, clears_set_ids } => {
                // GNU chmod keeps a directory's set-ID bits unless the number has leading zeros or names them.
                if is_directory && !clears_set_ids {
                    affected &= !(SET_USER | SET_GROUP) | bits;
                }
                bits
            }
        };
        let bits = bits & affected & !self.masked;
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => {
                // As with octal numbers, `u=` keeps a directory's set-ID bits.
                if is_directory && !matches!(self.permissions, Permissions::Octal { .. }) {
                    affected &= !(SET_USER | SET_GROUP) | bits;
                }
                mode & !affected | bits
            }
        }
    }
}

fn octal(text: &str) -> Option<ModeChange> {
    let bits = u32::from_str_radix(text, 8).ok()?;
    let is_octal = text.len() <= OCTAL_DIGITS_MAX && bits <= ALL_BITS;
    let clears_set_ids = text.len() > 4;
    is_octal.then(|| {
        let permissions = Permissions::Octal { bits, clears_set_ids };
        ModeChange(vec![Action { affected: ALL_BITS, operator: Operator::Set, permissions, masked: 0 }])
    })
}

/// Parses `[ugoa…][+-=][rwxXst…|ugo]…`.
fn clause_actions(clause: &str, umask: u32) -> Option<Vec<Action>> {
    let operators = clause.find(['+', '-', '='])?;
    let (classes, mut rest) = clause.split_at(operators);
    let mut affected = 0;
    for class in classes.chars() {
        affected |= match class {
            'u' => SET_USER | 0o700,
            'g' => SET_GROUP | 0o070,
            'o' => STICKY | 0o007,
            'a' => ALL_BITS,
            _ => return None,
        };
    }
    let masked = if classes.is_empty() { umask & 0o777 } else { 0 };
    let affected = if classes.is_empty() { ALL_BITS } else { affected };
    let mut actions = Vec::new();
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        rest = &rest[1..];
        let end = rest.find(['+', '-', '=']).unwrap_or(rest.len());
        let permissions = permissions(&rest[..end])?;
        // `u+t` has no effect, as in chmod(1): the sticky bit belongs to `o`, `a` and no class.
        actions.push(Action { affected, operator, permissions, masked });
        rest = &rest[end..];
    }
    Some(actions)
}

fn permissions(text: &str) -> Option<Permissions> {
    if let "u" | "g" | "o" = text {
        let shift = match text {
            "u" => 6,
            "g" => 3,
            _ => 0,
        };
        return Some(Permissions::CopyOf(shift));
    }
    let (mut bits, mut executes_if_any) = (0, false);
    for permission in text.chars() {
        match permission {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => executes_if_any = true,
            's' => bits |= SET_USER | SET_GROUP,
            't' => bits |= STICKY,
            _ => return None,
        }
    }
    Some(Permissions::Bits { bits, executes_if_any })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::attributes::OfTest;

    #[test]
    fn the_string_shows_kind_permissions_and_special_bits() {
        for (kind, mode, shown) in [
            (FileKind::Regular, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Directory, 0o1776, "drwxrwxrwT"),
            (FileKind::Regular, 0o4755, "-rwsr-xr-x"),
            (FileKind::Regular, 0o6644, "-rwSr-Sr--"),
            (FileKind::Symlink, 0o777, "lrwxrwxrwx"),
            (FileKind::BlockDevice, 0o660, "brw-rw----"),
            (FileKind::CharacterDevice, 0, "c---------"),
            (FileKind::Socket, 0o755, "srwxr-xr-x"),
            (FileKind::Fifo, 0o600, "prw-------"),
        ] {
            assert_eq!(mode_string(&Attributes { mode, ..Attributes::of_test(kind) }), shown);
        }
    }

    /// The modes that GNU chmod 9.1 sets on a file and a directory with umask 022.
    #[test]
    fn changes_are_those_of_chmod() {
        for (text, before, file, directory) in [
            ("644", 0o777, 0o644, 0o644),
            ("0644", 0o4777, 0o644, 0o4644),
            ("00644", 0o4777, 0o644, 0o644),
            ("1777", 0o755, 0o1777, 0o1777),
            ("u+rwX,g-w,o=", 0o464, 0o640, 0o740),
            ("u+rwX", 0o411, 0o711, 0o711),
            ("a+X", 0o600, 0o600, 0o711),
            ("a+X", 0o610, 0o711, 0o711),
            ("+t", 0o755, 0o1755, 0o1755),
            ("+w", 0o444, 0o644, 0o644),
            ("a+w", 0o444, 0o666, 0o666),
            ("-w", 0o666, 0o466, 0o466),
            ("g=u", 0o640, 0o660, 0o660),
            ("o=g-w", 0o760, 0o764, 0o764),
            ("u+s,g+s", 0o755, 0o6755, 0o6755),
            ("+s", 0o755, 0o6755, 0o6755),
            ("u=rw", 0o4755, 0o655, 0o4655),
            ("u-s", 0o4755, 0o755, 0o755),
            ("a=r", 0o1755, 0o444, 0o444),
            ("ug=rwx,o=", 0o1000, 0o770, 0o770),
        ] {
            let change = ModeChange::parse(text, 0o022).unwrap();
            let made = (change.apply(before, false), change.apply(before, true));
            assert_eq!(made, (file, directory), "{text} of {before:o}: {:o} and {:o}", made.0, made.1);
        }
    }

    #[test]
    fn invalid_modes_are_refused() {
        for wrong in ["", "8", "77777", "u", "rw", "u+q", "u+rw,", "z+r", "u+ug", "0x1ff", "+,"] {
            let error = ModeChange::parse(wrong, 0).expect_err(wrong);
            assert!(error.starts_with(&format!("invalid mode `{wrong}`")), "{error}");
        }
    }
}
