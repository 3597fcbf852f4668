//! The params of a message, read one by one, leniently: unknown members are fine, `null` is absent.
//!
//! A member that is missing or wrong is refused with -32602 and its name.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::invalid_params;
use crate::actors::command::Refusal;
use crate::events::channel::ROOT;

/// Bytes of the longest URI or client id that is taken.
pub const MAX_NAME: usize = 2_048;
/// Bytes of the longest URI of a resource: a path of 4,096 bytes, each of them percent-encoded.
pub const MAX_URI: usize = 3 * 4_096 + 256;

/// Params by name.
#[derive(Debug)]
pub struct Params<'a>(HashMap<String, &'a RawValue>);

impl<'a> Params<'a> {
    /// Reads the members of `raw`; no params are no members.
    ///
    /// # Errors
    /// A refusal when they are not an object.
    pub fn read(raw: Option<&'a RawValue>) -> Result<Self, Refusal> {
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Ok(Self(HashMap::new())) };
        serde_json::from_str(raw.get()).map(Self).map_err(|_| invalid_params("params", "must be an object"))
    }

    /// The JSON of a member.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// A member that may be absent; `what` says what it must be.
    ///
    /// # Errors
    /// A refusal when it is something else.
    pub fn optional<T: DeserializeOwned>(&self, name: &str, what: &str) -> Result<Option<T>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        serde_json::from_str(raw.get()).map(Some).map_err(|_| invalid_params(name, &format!("must be {what}")))
    }

    /// A member that must be there.
    ///
    /// # Errors
    /// A refusal when it is absent or something else.
    pub fn required<T: DeserializeOwned>(&self, name: &str, what: &str) -> Result<T, Refusal> {
        self.optional(name, what)?.ok_or_else(|| invalid_params(name, "is missing"))
    }

    /// A name: a string that is not empty and not longer than [`MAX_NAME`].
    ///
    /// # Errors
    /// A refusal when it is not.
    pub fn name(&self, name: &str) -> Result<String, Refusal> {
        let value: String = self.required(name, "a string")?;
        check_name(name, &value)?;
        Ok(value)
    }

    /// The channel that the message is about.
    ///
    /// # Errors
    /// A refusal when there is none.
    pub fn channel(&self) -> Result<String, Refusal> {
        self.name("channel")
    }

    /// Checks that the message is for the root channel.
    ///
    /// # Errors
    /// A refusal when it names another channel or none.
    pub fn for_root(&self) -> Result<(), Refusal> {
        if self.channel()? == ROOT { Ok(()) } else { Err(invalid_params("channel", "must be ahp-root://")) }
    }
}

/// Checks the size of a URI or an id.
///
/// # Errors
/// A refusal when it is empty or too long.
pub fn check_name(field: &str, value: &str) -> Result<(), Refusal> {
    match value.len() {
        0 => Err(invalid_params(field, "must not be empty")),
        1..=MAX_NAME => Ok(()),
        _ => Err(invalid_params(field, "must not be longer than 2048 bytes")),
    }
}

/// Checks the size of a resource's URI.
///
/// # Errors
/// A refusal when it is empty or too long.
pub fn check_uri(field: &str, uri: &str) -> Result<(), Refusal> {
    match uri.len() {
        0 => Err(invalid_params(field, "must not be empty")),
        1..=MAX_URI => Ok(()),
        _ => Err(invalid_params(field, &format!("must not be longer than {MAX_URI} bytes"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(json: &str, read: impl FnOnce(&Params<'_>) -> T) -> T {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        read(&Params::read(Some(&raw)).unwrap())
    }

    #[test]
    fn a_missing_member_is_named() {
        let refusal = with("{}", |params| params.channel().unwrap_err());
        assert_eq!(refusal.message, "channel: is missing");
    }

    #[test]
    fn a_wrong_member_is_named_with_what_it_must_be() {
        let refusal = with(r#"{"limit":"5"}"#, |params| params.optional::<u64>("limit", "a number").unwrap_err());
        assert_eq!(refusal.message, "limit: must be a number");
    }

    #[test]
    fn null_is_absent_and_unknown_members_are_fine() {
        let limit = with(r#"{"limit":null,"other":{}}"#, |params| params.optional::<u64>("limit", "a number"));
        assert_eq!(limit.unwrap(), None);
    }

    #[test]
    fn params_that_are_no_object_are_refused() {
        let raw: Box<RawValue> = serde_json::from_str("[1]").unwrap();
        assert!(Params::read(Some(&raw)).is_err());
    }

    #[test]
    fn names_are_bounded() {
        let long = format!(r#"{{"channel":"{}"}}"#, "x".repeat(MAX_NAME + 1));
        assert!(with(&long, |params| params.channel().is_err()));
        assert!(with(r#"{"channel":""}"#, |params| params.channel().is_err()));
    }
}
