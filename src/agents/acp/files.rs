//! `fs/read_text_file` and `fs/write_text_file`: what a program reads and writes through the host, inside the allowed
//! directories. It may reach more by itself: it runs as the host's user.

use std::path::Path;

use agent_client_protocol::v1::schema::{ReadTextFileRequest, WriteTextFileRequest};
use agent_client_protocol::{Error, ErrorCode};
use serde_json::{Value, json};

use crate::resources::uri::file_uri;
use crate::resources::{self, ResourceFault, Roots, Write};

/// How large a file may be that is read, in bytes.
const MAX_READ: u64 = 16 << 20;

/// Answers `fs/read_text_file`. Blocks.
///
/// # Errors
/// Why not, as the program is told it.
pub(super) fn read(roots: &Roots, request: &ReadTextFileRequest) -> Result<Value, Error> {
    let uri = absolute(&request.path)?;
    let content = resources::read(roots, &uri, None, MAX_READ).map_err(|fault| told(&request.path, &fault))?;
    let text = String::from_utf8(content.bytes)
        .map_err(|_| Error::invalid_params().data(format!("{} is no text", request.path.display())))?;
    Ok(json!({ "content": lines(&text, request.line, request.limit) }))
}

/// Answers `fs/write_text_file`. The folders that the file lies in are made. Blocks.
///
/// # Errors
/// Why not, as the program is told it.
pub(super) fn write(roots: &Roots, request: &WriteTextFileRequest) -> Result<Value, Error> {
    let uri = absolute(&request.path)?;
    let told = |fault: ResourceFault| told(&request.path, &fault);
    if let Some(folder) = request.path.parent() {
        resources::make_directory(roots, &file_uri(folder)).map_err(told)?;
    }
    let write = Write { data: request.content.as_bytes(), ..Write::default() };
    resources::write(roots, &uri, &write).map_err(told)?;
    Ok(json!({}))
}

fn absolute(path: &Path) -> Result<String, Error> {
    if path.is_absolute() {
        return Ok(file_uri(path));
    }
    Err(Error::invalid_params().data(format!("{} is no absolute path", path.display())))
}

fn told(path: &Path, fault: &ResourceFault) -> Error {
    let error = match fault {
        ResourceFault::NotFound => Error::new(ErrorCode::RESOURCE_NOT_FOUND, "Resource not found"),
        ResourceFault::System(_) | ResourceFault::Full => Error::internal_error(),
        _ => Error::invalid_params(),
    };
    error.data(format!("{}: {fault}", path.display()))
}

/// `limit` lines from `line` on, which counts from 1; all where they are not given.
fn lines(text: &str, line: Option<u32>, limit: Option<u32>) -> String {
    let first = line.map_or(0, |line| line.saturating_sub(1) as usize);
    let limit = limit.map_or(usize::MAX, |limit| limit as usize);
    text.split_inclusive('\n').skip(first).take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_count_from_one_and_what_is_not_given_is_all() {
        let text = "a\nb\nc";
        assert_eq!(lines(text, None, None), text);
        assert_eq!(lines(text, Some(2), Some(1)), "b\n");
        assert_eq!(lines(text, Some(0), Some(2)), "a\nb\n");
        assert_eq!(lines(text, Some(3), None), "c");
        assert_eq!(lines(text, Some(9), Some(9)), "");
    }

    #[test]
    fn files_are_read_and_written_inside_the_allowed_directories_only() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let roots = Roots::new(&[directory.path().to_owned()], None);
        let file = directory.path().canonicalize().unwrap().join("new/deep/file.txt");
        let text = "one\ntwo\n".to_owned();
        write(&roots, &WriteTextFileRequest::new("s", &file, text)).unwrap();
        assert_eq!(read(&roots, &ReadTextFileRequest::new("s", &file).line(2)).unwrap(), json!({ "content": "two\n" }));

        let missing = read(&roots, &ReadTextFileRequest::new("s", directory.path().join("missing"))).unwrap_err();
        assert_eq!(i32::from(missing.code), -32002);
        let refused = outside.path().canonicalize().unwrap().join("file.txt");
        let request = WriteTextFileRequest::new("s", &refused, "x".to_owned());
        assert_eq!(i32::from(write(&roots, &request).unwrap_err().code), -32602);
        std::os::unix::fs::symlink(&refused, directory.path().join("link")).unwrap();
        std::fs::write(&refused, "secret").unwrap();
        let link = directory.path().canonicalize().unwrap().join("link");
        assert!(read(&roots, &ReadTextFileRequest::new("s", link)).is_err());
        assert!(read(&roots, &ReadTextFileRequest::new("s", "relative")).is_err());
        std::fs::write(&file, b"\xff\xfe").unwrap();
        assert!(read(&roots, &ReadTextFileRequest::new("s", &file)).is_err());
    }
}
