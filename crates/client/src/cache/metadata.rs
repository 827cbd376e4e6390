//! The caches of metadata together: attributes, names and listings of one server.

use super::attributes::{AttributeCache, Timeouts};
use super::directory::DirectoryCache;
use super::limiter::{Limiter, User};
use super::names::{LookupCache, NameCache};

/// Parts of the budget: an eighth for attributes, a sixteenth each for names and listings.
const ATTRIBUTES_PART: u64 = 8;
const NAMES_PART: u64 = 16;
const DIRECTORIES_PART: u64 = 16;

/// Mount options of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// `acregmin`, `acregmax`, `acdirmin`, `acdirmax`, `actimeo`, `noac`.
    pub timeouts: Timeouts,
    /// `lookupcache`.
    pub lookup: LookupCache,
    /// False for `nordirplus`.
    pub readdirplus: bool,
    /// False for `nocto`: a file whose attributes may be used without a request is opened without asking whether it has changed.
    pub close_to_open: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            lookup: LookupCache::default(),
            readdirplus: true,
            close_to_open: true,
        }
    }
}

/// Attributes, names and listings. Together they use at most a quarter of the budget.
pub struct Metadata {
    /// Attributes and epochs.
    pub attributes: AttributeCache,
    /// Names and absent names.
    pub names: NameCache,
    /// Listings.
    pub directories: DirectoryCache,
}

impl Metadata {
    /// Creates empty caches that share one user of the budget.
    pub fn new(limiter: &Limiter, options: Options) -> Self {
        let (user, total): (User, u64) = (limiter.user(), limiter.budget().total);
        Self {
            attributes: AttributeCache::new(user.clone(), total / ATTRIBUTES_PART, options.timeouts),
            names: NameCache::new(user.clone(), total / NAMES_PART, options.lookup),
            directories: DirectoryCache::new(user, total / DIRECTORIES_PART, options.readdirplus),
        }
    }

    /// Releases `bytes`, from each cache in proportion to its size. Returns the bytes released.
    pub fn give_up(&mut self, bytes: u64) -> u64 {
        let sizes = [self.directories.bytes(), self.names.bytes(), self.attributes.bytes()];
        let total = u128::from(sizes.iter().sum::<u64>()).max(1);
        let [directories, names, attributes] =
            sizes.map(|size| (u128::from(bytes) * u128::from(size)).div_ceil(total) as u64);
        let mut released = 0;
        if directories > 0 {
            released += self.directories.reclaim(directories);
        }
        if names > 0 {
            released += self.names.reclaim(names);
        }
        if attributes > 0 {
            released += self.attributes.reclaim(attributes);
        }
        released
    }

    /// Returns the bytes accounted.
    pub fn bytes(&self) -> u64 {
        self.directories.bytes() + self.names.bytes() + self.attributes.bytes()
    }
}
