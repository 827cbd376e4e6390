//! Errors of URLs and options.

use std::error::Error;
use std::fmt;

/// One sentence about a URL or option that cannot be used. The error is in the text, not in the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError(String);

impl UrlError {
    pub(super) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UrlError {}
