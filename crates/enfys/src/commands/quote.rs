//! Names on a terminal: quoted for the shell where they need it, so that no name sends control characters.

/// How names are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoting {
    /// As they are: for pipes and files.
    Raw,
    /// Quoted for the shell where needed: for terminals.
    Shell,
}

/// Characters that a shell would interpret. `#` and `~` are added at the beginning.
const SPECIAL: &[char] =
    &[' ', '!', '"', '$', '&', '\'', '(', ')', '*', ';', '<', '=', '>', '?', '[', '\\', '^', '`', '|'];

impl Quoting {
    /// Returns the quoting for standard output.
    pub fn of_terminal(is_terminal: bool) -> Self {
        if is_terminal { Self::Shell } else { Self::Raw }
    }

    /// Returns the name as it is printed.
    pub fn quote(self, name: &[u8]) -> Vec<u8> {
        match self {
            Self::Raw => name.to_vec(),
            Self::Shell => shell_quoted(name).into_bytes(),
        }
    }
}

/// Returns a name as a word of a shell.
pub fn shell_quoted(name: &[u8]) -> String {
    match str::from_utf8(name) {
        Ok(text) if !text.contains(is_unprintable) => quoted_text(text),
        _ => quoted_bytes(name),
    }
}

/// Returns whether a character must not be sent to a terminal: control characters, and those that change the direction or are
/// invisible.
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn quoted_text(text: &str) -> String {
    let is_special = text.is_empty()
        || text.starts_with(['#', '~'])
        || text == "{"
        || text == "}"
        || text.contains(SPECIAL);
    if !is_special {
        return text.to_owned();
    }
    // Double quotes are more readable around an apostrophe, if nothing inside them is special.
    if text.contains('\'') && !text.contains(['"', '$', '`', '\\', '!']) {
        return format!("\"{text}\"");
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Quotes bytes of which some are unprintable, as in `'a'$'\n''b'`.
fn quoted_bytes(name: &[u8]) -> String {
    let mut quoted = String::from("'");
    let mut is_escape = false;
    let mut push = |text: &str, escape: bool| {
        match (is_escape, escape) {
            (false, true) => quoted.push_str("'$'"),
            (true, false) => quoted.push_str("''"),
            _ => {}
        }
        is_escape = escape;
        quoted.push_str(text);
    };
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_unprintable(character) {
                character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push(&escaped(byte), true));
            } else if character == '\'' {
                push("'\\''", false);
            } else {
                push(character.encode_utf8(&mut [0; 4]), false);
            }
        }
        chunk.invalid().iter().for_each(|byte| push(&escaped(*byte), true));
    }
    quoted.push('\'');
    // The first two quotes are empty if the name begins with an escape; the shell then needs only `$''`.
    quoted
}

/// Returns a byte inside `$'…'`.
fn escaped(byte: u8) -> String {
    match byte {
        0x07 => "\\a".into(),
        0x08 => "\\b".into(),
        b'\t' => "\\t".into(),
        b'\n' => "\\n".into(),
        0x0b => "\\v".into(),
        0x0c => "\\f".into(),
        b'\r' => "\\r".into(),
        byte => format!("\\{byte:03o}"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// The output of GNU `ls` on a terminal.
    #[test]
    fn names_are_quoted_where_a_shell_needs_it() {
        for (name, shown) in [
            (&b"plain.txt"[..], "plain.txt"),
            (b"a-b_c,d+e@f:g%h", "a-b_c,d+e@f:g%h"),
            (b"two words", "'two words'"),
            (b"it's", "\"it's\""),
            (b"it's $5", "'it'\\''s $5'"),
            (b"a*b", "'a*b'"),
            (b"#a", "'#a'"),
            (b"a#", "a#"),
            (b"~", "'~'"),
            (b"a~", "a~"),
            (b"{", "'{'"),
            (b"{a}", "{a}"),
            (b"]", "]"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"\xff", "''$'\\377'"),
            (b"\n", "''$'\\n'"),
            (b"a\x1b[1m", "'a'$'\\033''[1m'"),
            ("ä€".as_bytes(), "ä€"),
        ] {
            assert_eq!(shell_quoted(name), shown, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn nothing_is_quoted_for_pipes() {
        assert_eq!(Quoting::Raw.quote(b"a\n\xff"), b"a\n\xff");
        assert_eq!(Quoting::Shell.quote(b"a b"), b"'a b'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// A shell reads the quoted name as the name.
        #[test]
        fn a_shell_reads_the_name_back(name in proptest::collection::vec(1_u8.., 1..20)) {
            let quoted = std::ffi::OsString::from_vec(shell_quoted(&name).into_bytes());
            let mut script = std::ffi::OsString::from("printf %s ");
            script.push(quoted);
            match Command::new("bash").arg("-c").arg(script).output() {
                Ok(output) => prop_assert_eq!(output.stdout, name),
                Err(error) => println!("skipped: no bash: {error}"),
            }
        }

        /// No control character reaches a terminal.
        #[test]
        fn nothing_unprintable_is_printed(name in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(!shell_quoted(&name).contains(is_unprintable));
        }
    }
}
