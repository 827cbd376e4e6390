//! Percent-encoding of paths and values (RFC 3986 §2.1), to and from raw bytes.

use super::error::UrlError;

/// Punctuation that needs no encoding in a path (RFC 3986 §3.3, `pchar` and the slash).
const PATH_PUNCTUATION: &[u8] = b"-._~!$&'()*+,;=:@/";

/// Decodes a path.
///
/// # Errors
/// A `%` without two hexadecimal digits, or an encoded slash or zero byte, which no name can have.
pub(super) fn decode_path(text: &str) -> Result<Vec<u8>, UrlError> {
    let decoded = decode(text)?;
    let slashes = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'/').count();
    if slashes(&decoded) != slashes(text.as_bytes()) {
        return Err(UrlError::new("%2F in a path: no name contains a slash"));
    }
    Ok(decoded)
}

/// Decodes any text.
///
/// # Errors
/// A `%` without two hexadecimal digits, or a byte that must be encoded.
pub(super) fn decode(text: &str) -> Result<Vec<u8>, UrlError> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next(), bytes.next()].map(|digit| digit.and_then(hexadecimal));
                let [Some(high), Some(low)] = digits else {
                    return Err(UrlError::new(format!(
                        "`%` in `{text}` needs two hexadecimal digits: write %25 for the character"
                    )));
                };
                high << 4 | low
            }
            0..=b' ' | 0x7f => {
                return Err(UrlError::new(format!(
                    "a URL has no spaces and control characters: write %{byte:02X}"
                )));
            }
            _ => byte,
        });
    }
    Ok(decoded)
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Encodes a path; slashes stay unchanged.
pub(super) fn encode_path(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || PATH_PUNCTUATION.contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
