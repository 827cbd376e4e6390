use core::fmt::{self, Write as _};

/// Maximum bytes of a value that a log line shows.
const SHOWN_BYTES_MAX: usize = 256;

/// Shows bytes that came from outside as one quoted value of a log line: `"Linux NFSv4.2 host"`.
///
/// Quotes, backslashes, control characters and invalid UTF-8 are escaped, so that no peer writes lines or terminal
/// sequences into the log. Text after 256 bytes is replaced by `…`.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        f.write_char('"')?;
        for chunk in shown.utf8_chunks() {
            // As `Debug`, without the quotes around it.
            let quoted = format!("{:?}", chunk.valid());
            f.write_str(&quoted[1..quoted.len() - 1])?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        f.write_char('"')?;
        if shown.len() < self.0.len() { f.write_char('…') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_quoted_word_on_one_line() {
        for (bytes, shown) in [
            (&b""[..], r#""""#),
            (b"Linux NFSv4.2 host", r#""Linux NFSv4.2 host""#),
            ("Grüße".as_bytes(), r#""Grüße""#),
            (b"a\"b\\c", r#""a\"b\\c""#),
            (b"line\nline\r\x1b[31m\0", r#""line\nline\r\u{1b}[31m\0""#),
            (b"\xff\xfe", r#""\xff\xfe""#),
            // Reverses the order in which a terminal shows the following text.
            ("\u{202e}".as_bytes(), r#""\u{202e}""#),
        ] {
            assert_eq!(Quoted(bytes).to_string(), shown);
        }
        let long = [b'x'; SHOWN_BYTES_MAX + 1];
        assert_eq!(Quoted(&long).to_string(), format!("\"{}\"…", "x".repeat(SHOWN_BYTES_MAX)));
    }
}
