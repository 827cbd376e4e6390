//! Options of Enfys's client in a run: those of nfs(5), and those that only a measurement needs.

use client::config::{SLOTS_MAX, V3_CALLS, V3_CALLS_MAX};
use client::url::Url;

/// A server's address with all options of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The address with the options of nfs(5).
    pub url: Url,
    /// `slots=`: slots that are requested in versions 4.1 and 4.2.
    pub slots: u32,
    /// `v3_calls=`: calls in flight at most in versions 3 and 4.0, which have no slots.
    pub v3_calls: u32,
    /// `caches=on`: names, attributes and data are cached, by the options of nfs(5) for them. Otherwise every operation is a request.
    pub caches: bool,
}

impl ClientOptions {
    /// Parses an address, and further options as in its query: `slots=16&nconnect=2`.
    ///
    /// # Errors
    /// One sentence about the first option that is unknown or has a wrong value.
    pub fn parse(address: &str, more: &str) -> Result<Self, String> {
        let (place, query) = address.split_once('?').unwrap_or((address, ""));
        let url = place.parse().map_err(|error| format!("{place}: {error}"))?;
        let mut options = Self { url, slots: SLOTS_MAX, v3_calls: V3_CALLS, caches: false };
        let mut rest: Vec<&str> = Vec::new();
        for word in query.split('&').chain(more.split('&')).filter(|word| !word.is_empty()) {
            if !options.apply(word)? {
                rest.push(word);
            }
        }
        let whole = format!("{place}?{}", rest.join("&"));
        options.url = whole.parse().map_err(|error| format!("{error}"))?;
        Ok(options)
    }

    /// Applies an option that only the bench has; returns false for others.
    fn apply(&mut self, word: &str) -> Result<bool, String> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = |most: u32| {
            let number = value.parse().ok().filter(|number| (1..=most).contains(number));
            number.ok_or_else(|| format!("`{word}`: expected {name}=N, from 1 to {most}"))
        };
        match name {
            "slots" => self.slots = number(SLOTS_MAX)?,
            "v3_calls" => self.v3_calls = number(V3_CALLS_MAX)?,
            "caches" => {
                self.caches = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("`{word}`: expected caches=on or caches=off")),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns all values for a result: names with texts.
    #[must_use]
    pub fn described(&self) -> [(String, String); 4] {
        let caches = if self.caches { "on" } else { "off" };
        [
            ("client".to_owned(), self.url.to_string()),
            ("slots".to_owned(), self.slots.to_string()),
            ("v3_calls".to_owned(), self.v3_calls.to_string()),
            ("caches".to_owned(), caches.to_owned()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_and_those_of_nfs_may_be_mixed() {
        let parsed = ClientOptions::parse("nfs://host/x?slots=4&nconnect=2", "caches=on&rsize=4096").unwrap();
        assert_eq!((parsed.slots, parsed.v3_calls, parsed.caches), (4, V3_CALLS, true));
        assert_eq!(parsed.url.options.connections, Some(2));
        assert_eq!(parsed.url.options.read_size, Some(4096));
        let last = ClientOptions::parse("nfs://host/x?slots=4", "slots=8").unwrap();
        assert_eq!(last.slots, 8, "the last one of a kind applies");
    }

    #[test]
    fn wrong_options_are_explained() {
        for (option, part) in [
            ("slots=0", "from 1 to 1024"),
            ("slots", "expected slots=N"),
            ("caches=maybe", "caches=on or caches=off"),
            ("nconect=2", "did you mean `nconnect`"),
            ("nconnect=99", "nconnect=99"),
        ] {
            let why = ClientOptions::parse("nfs://host/x", option).unwrap_err();
            assert!(why.contains(part), "{option}: {why}");
        }
    }
}
