//! The plan's text as serde reads it. Values keep their positions in the text for error messages.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;

use super::value::Values;
use crate::units::parse_time;

/// A version of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NfsVersion {
    /// RFC 1094.
    #[serde(rename = "2")]
    V2,
    /// RFC 1813.
    #[serde(rename = "3")]
    V3,
    /// RFC 7530.
    #[serde(rename = "4.0")]
    V40,
    /// RFC 8881.
    #[serde(rename = "4.1")]
    V41,
    /// RFC 7862.
    #[serde(rename = "4.2")]
    V42,
}

impl fmt::Display for NfsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "2",
            Self::V3 => "3",
            Self::V40 => "4.0",
            Self::V41 => "4.1",
            Self::V42 => "4.2",
        })
    }
}

/// The state of caches when a run starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Empty; each target says how.
    Cold,
    /// The caches as the warm-up left them.
    #[default]
    Warm,
}

/// A time with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time(pub(super) Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_time(&text).map(Self).map_err(D::Error::custom)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PlanFile {
    pub(super) name: Option<String>,
    pub(super) rounds: Option<Spanned<u32>>,
    pub(super) duration: Option<Spanned<Time>>,
    pub(super) warm_up: Option<Time>,
    pub(super) seed: Option<u64>,
    #[serde(default)]
    pub(super) caches: Caches,
    #[serde(default)]
    pub(super) matrix: MatrixTable,
    #[serde(default)]
    pub(super) target: Vec<Spanned<TargetTable>>,
    #[serde(default)]
    pub(super) workload: Vec<Spanned<WorkloadTable>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct MatrixTable {
    pub(super) versions: Option<Spanned<Vec<Spanned<NfsVersion>>>>,
    pub(super) delays: Option<Spanned<Vec<Spanned<Time>>>>,
    pub(super) options: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) threads: Option<Spanned<Vec<Spanned<u32>>>>,
    pub(super) clients: Option<Spanned<Vec<Spanned<u32>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct TargetTable {
    pub(super) name: Spanned<String>,
    pub(super) server: Spanned<String>,
    pub(super) versions: Option<Spanned<Vec<Spanned<NfsVersion>>>>,
    pub(super) delays: Option<Spanned<Vec<Spanned<Time>>>>,
    pub(super) options: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) cold: Option<Spanned<String>>,
    pub(super) metrics: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct WorkloadTable {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) set: BTreeMap<Spanned<String>, Spanned<Values>>,
}
