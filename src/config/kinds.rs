//! How the values of keys are written: each kind reads text and the file's own type, and writes what it would read.
//!
//! Each module is for `#[serde(with = "…")]`.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value as a layer holds it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Bool(bool),
    Number(u64),
    Text(String),
    List(Vec<String>),
    Other(serde::de::IgnoredAny),
}

impl Raw {
    fn text(self) -> Option<String> {
        match self {
            Raw::Text(text) => Some(text),
            Raw::Number(number) => Some(number.to_string()),
            Raw::Bool(_) | Raw::List(_) | Raw::Other(_) => None,
        }
    }
}

/// Reads a value with `read`; where that says no, the error says what is wanted.
fn wanted<'de, D: Deserializer<'de>, T>(
    from: D,
    what: &str,
    read: impl FnOnce(Raw) -> Option<T>,
) -> Result<T, D::Error> {
    read(Raw::deserialize(from)?).ok_or_else(|| D::Error::custom(format!("wants {what}")))
}

/// The largest number that a file can hold, so that what is printed can be read.
fn fits(number: &usize) -> bool {
    i64::try_from(*number).is_ok()
}

/// Words of which there are a few.
pub mod word {
    use super::*;

    pub fn serialize<S: Serializer, T: Serialize>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
        let text = wanted(from, "one word", Raw::text)?;
        let word = serde::de::value::StringDeserializer::<serde::de::value::Error>::new(text);
        T::deserialize(word).map_err(D::Error::custom)
    }
}

/// Text that is not empty.
pub mod text {
    use super::*;

    pub fn serialize<S: Serializer>(value: &str, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        wanted(from, "text that is not empty", |raw| raw.text().filter(|text| !text.is_empty()))
    }
}

/// Text; the empty one stands for none.
pub mod optional_text {
    use super::*;

    pub fn serialize<S: Serializer>(value: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.as_deref().unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        Ok(Some(wanted(from, "text", Raw::text)?).filter(|text| !text.is_empty()))
    }
}

/// A list of texts, or one text with commas.
pub mod texts {
    use super::*;

    pub fn serialize<S: Serializer>(value: &[String], to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        wanted(from, "a list of texts", |raw| match raw {
            Raw::List(list) => Some(list),
            raw => Some(raw.text()?.split(',').map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect()),
        })
    }
}

/// A path.
pub mod path {
    use super::*;
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(value: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_string_lossy())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        wanted(from, "a path", |raw| raw.text().filter(|text| !text.is_empty()).map(PathBuf::from))
    }
}

/// A path; the empty one stands for none.
pub mod optional_path {
    use super::*;
    use std::path::PathBuf;

    pub fn serialize<S: Serializer>(value: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.as_deref().unwrap_or("".as_ref()).to_string_lossy())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(optional_text::deserialize(from)?.map(PathBuf::from))
    }
}

/// A list of paths, or one text with commas.
pub mod paths {
    use super::*;
    use std::path::PathBuf;

    pub fn serialize<S: Serializer>(value: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(value.iter().map(|path| path.to_string_lossy()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(texts::deserialize(from)?.into_iter().map(PathBuf::from).collect())
    }
}

/// An address with a port; `localhost` stands for 127.0.0.1.
pub mod address {
    use super::*;
    use std::net::SocketAddr;

    pub fn serialize<S: Serializer>(value: &SocketAddr, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
        wanted(from, "an address and a port, such as \"127.0.0.1:7878\"", |raw| read(&raw.text()?))
    }

    fn read(text: &str) -> Option<SocketAddr> {
        match text.strip_prefix("localhost:") {
            Some(port) => Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?))),
            None => text.parse().ok(),
        }
    }
}

/// A duration, such as `"30s"`.
pub mod span {
    use super::*;
    use std::time::Duration;

    /// The longest that is taken: what is later still cannot be added to every time.
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

    pub fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*value))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        wanted(from, "a duration of at most 100 years with its unit, such as \"30s\" or \"500ms\"", |raw| {
            read(&raw.text()?)
        })
    }

    pub(super) fn read(text: &str) -> Option<Duration> {
        humantime::parse_duration(text).ok().filter(|span| *span <= LONGEST)
    }
}

/// A duration, or `"never"`.
pub mod optional_span {
    use super::*;
    use std::time::Duration;

    pub fn serialize<S: Serializer>(value: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(span) => span::serialize(span, to),
            None => to.serialize_str("never"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        wanted(from, "a duration of at most 100 years with its unit, such as \"30d\", or \"never\"", |raw| {
            match raw.text()?.as_str() {
                "never" => Some(None),
                text => span::read(text).map(Some),
            }
        })
    }
}

/// A list of durations, or one text with commas.
pub mod spans {
    use super::*;
    use std::time::Duration;

    pub fn serialize<S: Serializer>(value: &[Duration], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(value.iter().map(|span| humantime::format_duration(*span).to_string()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
        let texts = texts::deserialize(from)?;
        let spans: Option<Vec<Duration>> = texts.iter().map(|text| span::read(text)).collect();
        spans.ok_or_else(|| D::Error::custom("wants durations with their units, such as [\"1m\", \"5m\"]"))
    }
}

/// A number of bytes, or a size such as `"8MiB"`; more than 0.
pub mod size {
    use super::*;

    pub fn serialize<S: Serializer>(value: &usize, to: S) -> Result<S::Ok, S::Error> {
        size_or_zero::serialize(value, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        wanted(from, "a size above 0, such as \"8MiB\", or a number of bytes", |raw| {
            size_or_zero::read(raw).filter(|size| *size > 0)
        })
    }
}

/// A number of bytes, or a size such as `"8MiB"`.
pub mod size_or_zero {
    use super::*;

    pub fn serialize<S: Serializer>(value: &usize, to: S) -> Result<S::Ok, S::Error> {
        match *value {
            0 => to.serialize_u64(0),
            value if value.is_multiple_of(1 << 20) => to.collect_str(&format_args!("{}MiB", value >> 20)),
            value if value.is_multiple_of(1 << 10) => to.collect_str(&format_args!("{}KiB", value >> 10)),
            value => value.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        wanted(from, "a size, such as \"8MiB\", or a number of bytes", read)
    }

    pub(super) fn read(raw: Raw) -> Option<usize> {
        let bytes = match raw {
            Raw::Number(bytes) => bytes,
            raw => raw.text()?.parse::<bytesize::ByteSize>().ok()?.as_u64(),
        };
        usize::try_from(bytes).ok().filter(fits)
    }
}

/// A number of things, at least 1.
pub mod count {
    use super::*;

    pub fn serialize<S: Serializer>(value: &usize, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
        wanted(from, "a number above 0", read)
    }

    pub(super) fn read(raw: Raw) -> Option<usize> {
        raw.text()?.parse().ok().filter(|count| *count > 0 && fits(count))
    }
}

/// A number of things, at least 1, or `none`.
pub mod optional_count {
    use super::*;

    pub fn serialize<S: Serializer>(value: &Option<usize>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(count) => count.serialize(to),
            None => to.serialize_str("none"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
        wanted(from, "a number above 0, or \"none\"", |raw| match raw {
            Raw::Text(text) if text == "none" => Some(None),
            raw => count::read(raw).map(Some),
        })
    }
}

/// `true` or `false`.
pub mod flag {
    use super::*;

    pub fn serialize<S: Serializer>(value: &bool, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
        wanted(from, "true or false", |raw| match raw {
            Raw::Bool(value) => Some(value),
            raw => raw.text()?.parse().ok(),
        })
    }
}
