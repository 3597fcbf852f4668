//! `file:` URIs of this host, and the paths that they name.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The path that a `file:` URI of this host names.
pub fn file_path(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail.get(2..)?;
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then(|| PathBuf::from(text))
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

    #[test]
    fn a_path_becomes_a_file_uri_and_comes_back() {
        assert_eq!(file_uri(Path::new("/home/ada")), "file:///home/ada");
        assert_eq!(file_uri(Path::new("/a b/ü%")), "file:///a%20b/%C3%BC%25");
        for path in ["/home/ada", "/a b/ü%", "/x#y?z"] {
            assert_eq!(file_path(&file_uri(Path::new(path))).as_deref(), Some(Path::new(path)));
        }
    }

    #[test]
    fn what_names_no_path_here_is_none() {
        for uri in ["file://server/share", "file:relative", "https://x/y", "file:///a%0", "file:///a%00b", ""] {
            assert_eq!(file_path(uri), None, "{uri}");
        }
        assert_eq!(file_path("file://localhost/a").as_deref(), Some(Path::new("/a")));
    }
}
