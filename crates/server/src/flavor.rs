//! Security flavors as exports, MOUNT and SECINFO name them (RFC 2623 §2.2, RFC 8881 §2.6.1): an RPC flavor, and for RPCSEC_GSS its
//! mechanism and service.

use std::fmt;
use std::str::FromStr;

use rpc::auth::AuthFlavor;
use rpc::gss::Service;

/// The security flavor of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Flavor {
    /// `AUTH_NONE`.
    None,
    /// `AUTH_SYS`.
    Sys,
    /// RPCSEC_GSS with Kerberos version 5.
    Kerberos(Service),
}

impl Flavor {
    /// All flavors, the weakest first.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Sys,
        Self::Kerberos(Service::None),
        Self::Kerberos(Service::Integrity),
        Self::Kerberos(Service::Privacy),
    ];

    /// Returns the name in a configuration, as in `exports(5)` and in mount options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sys => "sys",
            Self::Kerberos(Service::None) => "krb5",
            Self::Kerberos(Service::Integrity) => "krb5i",
            Self::Kerberos(Service::Privacy) => "krb5p",
        }
    }

    /// Returns the number that MOUNT lists (RFC 2623 §2.2 and its section 6's registry of pseudo flavors).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::None => AuthFlavor::NONE.0,
            Self::Sys => AuthFlavor::SYS.0,
            Self::Kerberos(Service::None) => 390_003,
            Self::Kerberos(Service::Integrity) => 390_004,
            Self::Kerberos(Service::Privacy) => 390_005,
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Flavor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|flavor| flavor.name() == text);
        known.ok_or_else(|| format!("`{text}` is not a security flavor: use none, sys, krb5, krb5i, krb5p"))
    }
}

/// The flavors that an export takes, the most preferred first: at least one, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flavors {
    list: [Flavor; Flavor::ALL.len()],
    count: u8,
}

/// Why a list of flavors is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlavorsError {
    /// The list is empty.
    Empty,
    /// The list has this flavor twice.
    Twice(Flavor),
}

impl fmt::Display for FlavorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("expected at least one security flavor"),
            Self::Twice(flavor) => write!(f, "`{flavor}` is listed twice"),
        }
    }
}

impl std::error::Error for FlavorsError {}

impl Flavors {
    /// AUTH_SYS alone: the default.
    pub const SYS: Self = Self { list: [Flavor::Sys; Flavor::ALL.len()], count: 1 };

    const NONE: Self = Self { list: [Flavor::None; Flavor::ALL.len()], count: 1 };

    /// Makes a list, the most preferred flavor first.
    ///
    /// # Errors
    /// See [`FlavorsError`].
    pub fn new(flavors: &[Flavor]) -> Result<Self, FlavorsError> {
        let (first, rest) = flavors.split_first().ok_or(FlavorsError::Empty)?;
        let mut list = Self { list: [*first; Flavor::ALL.len()], count: 1 };
        for flavor in rest {
            if !list.insert(*flavor) {
                return Err(FlavorsError::Twice(*flavor));
            }
        }
        Ok(list)
    }

    /// Adds a flavor as the least preferred. Returns whether it was new.
    fn insert(&mut self, flavor: Flavor) -> bool {
        let is_new = !self.iter().any(|known| known == flavor);
        if is_new {
            self.list[usize::from(self.count)] = flavor;
            self.count += 1;
        }
        is_new
    }

    /// Returns these, followed by those of `other`.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        for flavor in other.iter() {
            self.insert(flavor);
        }
        self
    }

    /// Returns all of them, the most preferred first.
    pub fn iter(&self) -> impl Iterator<Item = Flavor> {
        self.list.into_iter().take(usize::from(self.count))
    }

    /// Returns whether a call by `flavor` is allowed. AUTH_SYS allows AUTH_NONE too: a caller who may claim any user may also be anonymous.
    #[must_use]
    pub fn allow(&self, flavor: Flavor) -> bool {
        let is_listed = |wanted| self.iter().any(|listed| listed == wanted);
        is_listed(flavor) || flavor == Flavor::None && is_listed(Flavor::Sys)
    }

    /// As [`Self::iter`], with AUTH_NONE if it is allowed without being listed.
    #[must_use]
    pub fn allowed(self) -> Self {
        if self.allow(Flavor::None) { self.union(Self::NONE) } else { self }
    }
}

impl Default for Flavors {
    fn default() -> Self {
        Self::SYS
    }
}

/// As exports(5) writes them: `sys:krb5`.
impl fmt::Display for Flavors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.iter().map(Flavor::name).collect();
        f.write_str(&names.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KRB5: Flavor = Flavor::Kerberos(Service::None);
    const KRB5P: Flavor = Flavor::Kerberos(Service::Privacy);

    #[test]
    fn lists_keep_their_order_and_have_each_once() {
        assert_eq!(Flavors::new(&[KRB5P, Flavor::Sys]).map(|list| list.to_string()), Ok("krb5p:sys".into()));
        assert_eq!(Flavors::new(&[]), Err(FlavorsError::Empty));
        assert_eq!(Flavors::new(&[KRB5, Flavor::Sys, KRB5]), Err(FlavorsError::Twice(KRB5)));
        let all = Flavors::new(&Flavor::ALL).unwrap();
        assert_eq!(all.union(Flavors::SYS), all);
        assert_eq!(Flavors::SYS.union(Flavors::new(&[KRB5]).unwrap()).to_string(), "sys:krb5");
    }

    #[test]
    fn null_credentials_are_allowed_with_sys() {
        let kerberos = Flavors::new(&[KRB5]).unwrap();
        let allowed = |list: Flavors| Flavor::ALL.map(|flavor| list.allow(flavor));
        assert_eq!(allowed(Flavors::SYS), [true, true, false, false, false]);
        assert_eq!(allowed(kerberos), [false, false, true, false, false]);
        assert_eq!(allowed(Flavors::new(&[Flavor::None]).unwrap()), [true, false, false, false, false]);
        assert_eq!(Flavors::SYS.allowed().to_string(), "sys:none");
        assert_eq!(kerberos.allowed(), kerberos);
    }

    #[test]
    fn names_are_those_of_mount_options() {
        let named = |text: &str| text.parse::<Flavor>().map(Flavor::number);
        // RFC 2623 §6.1's pseudo flavors.
        for (name, number) in
            [("none", 0), ("sys", 1), ("krb5", 390_003), ("krb5i", 390_004), ("krb5p", 390_005)]
        {
            assert_eq!(named(name), Ok(number));
        }
        assert!(named("krb4").is_err());
        assert_eq!(Flavor::Kerberos(Service::Privacy).to_string(), "krb5p");
    }
}
