//! The protected resource of an endpoint: the keys of `[agents.NAME]` by which people bring their own tokens.

use serde::Serialize;

/// A resource whose tokens clients give with `authenticate`. Its names are those of the keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceConfig {
    /// Its identifier.
    pub protected_resource: String,
    /// What people see.
    pub resource_name: Option<String>,
    /// Where clients get tokens for it.
    pub authorization_servers: Vec<String>,
    /// The scopes that they are to ask for.
    pub scopes: Vec<String>,
}

/// The longest identifier.
const MAX_URL: usize = 2_048;

impl ResourceConfig {
    /// What is wrong with it: the key, and why.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        url(&self.protected_resource).map_err(|problem| format!(".protected_resource: {problem}"))?;
        for server in &self.authorization_servers {
            url(server).map_err(|problem| format!(".authorization_servers: {problem}"))?;
        }
        if self.resource_name.as_ref().is_some_and(String::is_empty) {
            return Err(".resource_name: wants text that is not empty".to_owned());
        }
        let is_scope = |scope: &String| !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.scopes.iter().all(is_scope) {
            return Err(".scopes: wants words without spaces".to_owned());
        }
        Ok(())
    }
}

/// What RFC 9728 takes for an identifier: an `https` URL without a fragment. It is shown to clients.
fn url(text: &str) -> Result<(), String> {
    let wanted = || Err("wants a URL such as \"https://api.example.com\"".to_owned());
    if text.len() > MAX_URL || text.contains(['#', '@']) || !text.starts_with("https://") {
        return wanted();
    }
    match text.parse::<http::Uri>() {
        Ok(uri) if uri.host().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => wanted(),
    }
}
