//! Kinds of option values.

use super::error::UrlError;

/// A value that follows `NAME=`.
pub(super) trait Value: Sized {
    /// Parses the value of the option `name`.
    fn parse(name: &str, text: &str) -> Result<Self, UrlError>;
}

/// Defines an enum whose values are words.
macro_rules! words {
    ($(#[$documentation:meta])* $Name:ident { $($(#[$of_variant:meta])* $Variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$documentation])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$of_variant])* $Variant),+
        }

        impl $Name {
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$Variant),+];
            const WORDS: &[(&str, Self)] = &[$(($word, Self::$Variant)),+];

            /// Returns the value of a word.
            pub(super) fn from_word(word: &str) -> Option<Self> {
                Self::WORDS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
            }

            /// Returns the word in options.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$Variant => $word),+
                }
            }
        }

        impl Value for $Name {
            fn parse(name: &str, text: &str) -> Result<Self, UrlError> {
                Self::from_word(text).ok_or_else(|| {
                    let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
                    UrlError::new(format!("`{name}={text}`: expected one of {}", words.join(", ")))
                })
            }
        }
    };
}

words! {
    /// A version of the protocol.
    Version {
        /// Version 2.
        V2 = "2",
        /// Version 3.
        V3 = "3",
        /// The highest minor version of 4 that both sides support.
        V4 = "4",
        /// Version 4.0.
        V4_0 = "4.0",
        /// Version 4.1.
        V4_1 = "4.1",
        /// Version 4.2.
        V4_2 = "4.2",
    }
}

words! {
    /// The transport of calls.
    Transport {
        /// TCP.
        Tcp = "tcp",
        /// UDP, which has no version 4.
        Udp = "udp",
    }
}

words! {
    /// How calls name the user to the server.
    Security {
        /// AUTH_SYS: numbers of user and groups.
        Sys = "sys",
    }
}

words! {
    /// The behavior when a server does not answer.
    Recovery {
        /// Requests are repeated until it does.
        Hard = "hard",
        /// After `retrans` repetitions the call fails with EIO.
        Soft = "soft",
        /// After `retrans` repetitions the call fails with ETIMEDOUT.
        Softerr = "softerr",
    }
}

words! {
    /// Which results of lookups are cached.
    LookupCache {
        /// Names that exist and names that do not.
        All = "all",
        /// Names that exist.
        Positive = "pos",
        /// None.
        None = "none",
    }
}

words! {
    /// Which locks are kept on this machine.
    LocalLock {
        /// None; all are the server's.
        None = "none",
        /// BSD locks (flock).
        Flock = "flock",
        /// POSIX locks (fcntl).
        Posix = "posix",
        /// All.
        All = "all",
    }
}

words! {
    /// Whether directories are read with attributes and handles of their entries.
    ReaddirPlus {
        /// When a directory is first read, or has changed.
        Heuristic = "rdirplus",
        /// Always.
        Force = "force",
        /// Never.
        Never = "nordirplus",
    }
}

/// A number within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds(pub(super) u32, pub(super) u32);

impl Bounds {
    /// Parses a decimal number within the bounds.
    pub(super) fn parse(self, name: &str, text: &str) -> Result<u32, UrlError> {
        let Self(least, most) = self;
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<u32>().ok().filter(|number| is_number && (least..=most).contains(number));
        number.ok_or_else(|| {
            UrlError::new(format!("`{name}={text}`: expected a whole number from {least} to {most}"))
        })
    }
}
