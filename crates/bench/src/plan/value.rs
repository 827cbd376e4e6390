//! Values of parameters.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// The value of one parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// A count.
    Count(u64),
    /// A word, or a number with a unit.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(value) => value.fmt(f),
            Self::Count(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

/// One value, or a list of values that the plan multiplies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values(pub(super) Vec<Value>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = match toml::Value::deserialize(deserializer)? {
            toml::Value::Array(values) => values,
            value => vec![value],
        };
        values.into_iter().map(value).collect::<Result<_, _>>().map(Self).map_err(D::Error::custom)
    }
}

fn value(value: toml::Value) -> Result<Value, String> {
    match value {
        toml::Value::Boolean(value) => Ok(Value::Boolean(value)),
        toml::Value::String(value) => Ok(Value::Text(value)),
        toml::Value::Integer(value) => match u64::try_from(value) {
            Ok(value) => Ok(Value::Count(value)),
            Err(_) => Err(format!("{value}: a parameter is not negative")),
        },
        other => Err(format!("expected a number, a string, true or false, found a {}", other.type_str())),
    }
}
