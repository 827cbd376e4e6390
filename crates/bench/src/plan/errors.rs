//! Messages about a plan: file, line, error, and expectation.

use std::ops::Range;

/// The plan's text, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'t> {
    pub(super) file: &'t str,
    pub(super) text: &'t str,
}

impl Source<'_> {
    /// Returns the line of a byte, from 1.
    pub(super) fn line(self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Returns a message about a place.
    pub(super) fn error(self, at: &Range<usize>, why: impl std::fmt::Display) -> String {
        format!("{}:{}: {why}", self.file, self.line(at.start))
    }

    /// Returns a message about the whole plan.
    pub(super) fn whole(self, why: impl std::fmt::Display) -> String {
        format!("{}: {why}", self.file)
    }

    /// Rewords an error of the TOML parser or of serde.
    pub(super) fn reworded(self, error: &toml::de::Error) -> String {
        let message = error.message().trim().replace('\n', ", ");
        let message =
            match message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected ")) {
                Some((key, expected)) => {
                    let known =
                        expected.trim_start_matches("one of ").split(", ").map(|name| name.trim_matches('`'));
                    format!("unknown key `{key}`{}, expected {expected}", did_you_mean(key, known))
                }
                None => message
                    .replace("missing field", "missing key")
                    .replace("unknown variant", "unknown value"),
            };
        let Some(span) = error.span() else { return self.whole(message) };
        let line = self.text.lines().nth(self.line(span.start) - 1).unwrap_or_default().trim();
        self.error(&span, format_args!("{message}, in `{line}`"))
    }
}

/// Returns ` (did you mean …?)` if a known name resembles this one.
pub(super) fn did_you_mean<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    /// A known name with at least this similarity is suggested.
    const SIMILARITY_MIN: f64 = 0.8;
    let similarity = |known: &str| strsim::jaro_winkler(name, known);
    let likely = known.max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
    let likely = likely.filter(|known| similarity(known) >= SIMILARITY_MIN);
    likely.map_or(String::new(), |likely| format!(" (did you mean `{likely}`?)"))
}
