//! Options of Enfys's client in a run: those of nfs(5), and those that only a measurement needs.

use client::config::{SLOTS_MAX, V3_CALLS, V3_CALLS_MAX};
use client::url::Url;

use crate::units::{parse_rate, parse_size, rate_text, size_text};

/// Smallest limit of TCP's buffers: less is no window for a segment.
const TCP_BUFFER_MIN: u64 = 4096;
/// Largest limit of TCP's buffers, which the kernel holds as a signed number.
const TCP_BUFFER_MAX: u64 = i32::MAX as u64;

/// Properties of the packet link between the client and a server that the bench starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// `tcp_buffer=`: maximum of TCP's buffers at both ends, in bytes.
    pub tcp_buffer_bytes: Option<u64>,
    /// `rate=`: bits a second of each direction.
    pub bits_per_second: Option<u64>,
}

impl LinkOptions {
    /// Returns whether none of them is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the arguments of `enfys bench link`.
    #[must_use]
    pub fn arguments(self) -> Vec<String> {
        let buffer = self.tcp_buffer_bytes.map(|bytes| ["--tcp-buffer".to_owned(), size_text(bytes)]);
        let rate = self.bits_per_second.map(|bits| ["--rate".to_owned(), rate_text(bits)]);
        [buffer, rate].into_iter().flatten().flatten().collect()
    }
}

impl std::fmt::Display for LinkOptions {
    /// Writes those that are set, each after a comma: `, rate 1gbit`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(bits) = self.bits_per_second {
            write!(f, ", rate {}", rate_text(bits))?;
        }
        match self.tcp_buffer_bytes {
            Some(bytes) => write!(f, ", TCP buffers of at most {}", size_text(bytes)),
            None => Ok(()),
        }
    }
}

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
    /// The link to the server.
    pub link: LinkOptions,
}

impl ClientOptions {
    /// Parses an address, and further options as in its query: `slots=16&nconnect=2`.
    ///
    /// # Errors
    /// One sentence about the first option that is unknown or has a wrong value.
    pub fn parse(address: &str, more: &str) -> Result<Self, String> {
        let (place, query) = address.split_once('?').unwrap_or((address, ""));
        let url = place.parse().map_err(|error| format!("{place}: {error}"))?;
        let mut options =
            Self { url, slots: SLOTS_MAX, v3_calls: V3_CALLS, caches: false, link: LinkOptions::default() };
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
            "tcp_buffer" => {
                let bytes = parse_size(value)?;
                if !(TCP_BUFFER_MIN..=TCP_BUFFER_MAX).contains(&bytes) {
                    let (least, most) = (size_text(TCP_BUFFER_MIN), size_text(TCP_BUFFER_MAX));
                    return Err(format!("`{word}`: expected a size from {least} to {most}"));
                }
                self.link.tcp_buffer_bytes = Some(bytes);
            }
            "rate" => self.link.bits_per_second = Some(parse_rate(value)?),
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
    fn properties_of_the_link_become_its_arguments() {
        let parsed = ClientOptions::parse("nfs://host/x", "rate=1gbit&tcp_buffer=2MiB").unwrap();
        assert_eq!(parsed.link.arguments(), ["--tcp-buffer", "2MiB", "--rate", "1gbit"]);
        assert_eq!(parsed.link.to_string(), ", rate 1gbit, TCP buffers of at most 2MiB");
        assert!(ClientOptions::parse("nfs://host/x", "caches=on").unwrap().link.is_empty());
    }

    #[test]
    fn wrong_options_are_explained() {
        for (option, part) in [
            ("slots=0", "from 1 to 1024"),
            ("slots", "expected slots=N"),
            ("caches=maybe", "caches=on or caches=off"),
            ("tcp_buffer=1KiB", "a size from 4KiB"),
            ("rate=fast", "fast"),
            ("nconect=2", "did you mean `nconnect`"),
            ("nconnect=99", "nconnect=99"),
        ] {
            let why = ClientOptions::parse("nfs://host/x", option).unwrap_err();
            assert!(why.contains(part), "{option}: {why}");
        }
    }
}
