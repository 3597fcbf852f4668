//! `file:` URIs and paths of this host.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::ResourceFault;

/// The absolute path that a `file:` URI of this host names: percent-encoding decoded, `.` and `..` taken by the text.
///
/// # Errors
/// [`ResourceFault::Outside`] for another scheme or another host, [`ResourceFault::Malformed`] for what is no URI.
pub fn file_path(uri: &str) -> Result<PathBuf, ResourceFault> {
    let malformed = |problem: &str| ResourceFault::Malformed(format!("{problem}: file:///absolute/path is wanted"));
    let (scheme, rest) = uri.split_once(':').ok_or_else(|| malformed("there is no scheme"))?;
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    if !is_scheme {
        return Err(malformed("there is no scheme"));
    }
    if !scheme.eq_ignore_ascii_case("file") {
        return Err(ResourceFault::Outside);
    }
    let rest = rest.strip_prefix("//").ok_or_else(|| malformed("the path is not absolute"))?;
    let (host, _) = rest.split_at(rest.find('/').ok_or_else(|| malformed("there is no path"))?);
    if !host.is_empty() && !host.eq_ignore_ascii_case("localhost") {
        return Err(ResourceFault::Outside);
    }
    let path = rest.get(host.len()..).unwrap_or_default();
    let bytes = decoded(path.as_bytes()).ok_or_else(|| malformed("the percent-encoding is broken"))?;
    if bytes.contains(&0) {
        return Err(malformed("a path holds no NUL"));
    }
    Ok(flat(Path::new(&OsString::from_vec(bytes))))
}

fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok().filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail.get(2..)?;
    }
    Some(bytes)
}

/// An absolute path without `.`, `..` and doubled slashes.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::from("/");
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => flat.push(name),
            std::path::Component::ParentDir => drop(flat.pop()),
            _ => {}
        }
    }
    flat
}

/// The `file:` URI of an absolute path.
pub fn file_uri(path: &Path) -> String {
    let mut uri = String::from("file://");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(uri: &str) -> String {
        file_path(uri).unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn a_path_becomes_a_file_uri_and_comes_back() {
        assert_eq!(file_uri(Path::new("/home/ada")), "file:///home/ada");
        assert_eq!(file_uri(Path::new("/a b/ü%")), "file:///a%20b/%C3%BC%25");
        assert_eq!(path("file:///a%20b/%C3%BC%25"), "/a b/ü%");
        assert_eq!((path("file://localhost/a"), path("FILE:///a")), ("/a".into(), "/a".into()));
    }

    #[test]
    fn dots_are_taken_by_the_text_however_they_are_written() {
        for uri in ["file:///a/b/../c", "file:///a/./c", "file:///a//c", "file:///a/b/%2e%2E/c", "file:///../a/c"] {
            assert_eq!(path(uri), "/a/c", "{uri}");
        }
        assert_eq!(path("file:///a%2f..%2Fb"), "/b");
    }

    #[test]
    fn what_is_no_uri_is_malformed_and_what_is_elsewhere_is_outside() {
        for uri in
            ["", "/a", "file:a", "file:/", "file://", "file:///%", "file:///%zz", "file:///%+1", "file:///a%00", ":/a"]
        {
            assert!(matches!(file_path(uri), Err(ResourceFault::Malformed(_))), "{uri}");
        }
        for uri in ["http://x/a", "virtual:/a", "file://elsewhere/a", "ahp-root://"] {
            assert!(matches!(file_path(uri), Err(ResourceFault::Outside)), "{uri}");
        }
    }
}
