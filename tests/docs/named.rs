//! The tests that there are, by the names that nextest prints, read from their sources: nothing is built or run for it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::pages::root;

/// Every test, as `scrollback MODULE::TEST` for those beside the code and `BINARY MODULE::TEST` for the others.
pub fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (binary, file) in binaries() {
        read(&file, &format!("{binary} "), &mut found);
    }
    found
}

/// The roots that are built into test binaries, each with its name.
fn binaries() -> Vec<(String, PathBuf)> {
    let mut found = vec![("scrollback".to_owned(), root().join("src/lib.rs"))];
    for (folder, prefix) in [("tests", ""), ("examples", "example/")] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{prefix}{}", path.file_stem().unwrap().to_str().unwrap());
            let file = if path.is_dir() { path.join("main.rs") } else { path };
            if file.extension().is_some_and(|ending| ending == "rs") && file.is_file() {
                found.push((name, file));
            }
        }
    }
    found
}

/// Adds the tests of `file` and of the modules that it declares; their names begin with `prefix`. Counts on the format that
/// `cargo fmt` gives.
fn read(file: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    // The modules that are open, each with the line that closes it.
    let mut open: Vec<(String, String)> = Vec::new();
    let mut attributes: Vec<&str> = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        if code.starts_with("#[") {
            attributes.push(code);
            continue;
        }
        if code.is_empty() || code.starts_with("//") {
            continue;
        }
        let of = std::mem::take(&mut attributes);
        if open.last().is_some_and(|(_, end)| end == line) {
            open.pop();
            continue;
        }
        let path = || open.iter().fold(prefix.to_owned(), |path, (name, _)| format!("{path}{name}::"));
        let code = code.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        if let Some(declared) = code.strip_prefix("mod ") {
            if let Some(name) = declared.strip_suffix(" {") {
                open.push((name.to_owned(), format!("{indent}}}")));
            } else if let Some(name) = declared.strip_suffix(';') {
                read(&file_of(file, name, &of), &format!("{}{name}::", path()), found);
            }
        } else if let Some(rest) = code.trim_start_matches("async ").strip_prefix("fn ")
            && of.iter().any(|attribute| is_test(attribute))
        {
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.insert(format!("{}{name}", path()));
        }
    }
}

fn is_test(attribute: &str) -> bool {
    let name = attribute.trim_start_matches("#[").split([']', '(']).next().unwrap_or_default();
    name == "test" || name.ends_with("::test")
}

/// The file of the module `name` that `parent` declares.
fn file_of(parent: &Path, name: &str, attributes: &[&str]) -> PathBuf {
    let folder = parent.parent().unwrap();
    let given = attributes.iter().find_map(|attribute| attribute.strip_prefix("#[path = \"")?.split('"').next());
    if let Some(given) = given {
        return folder.join(given);
    }
    let stem = parent.file_stem().unwrap().to_str().unwrap();
    let is_root = ["main", "lib", "mod"].contains(&stem) || folder.ends_with("tests");
    let folder = if is_root { folder.to_owned() } else { folder.join(stem) };
    let file = folder.join(format!("{name}.rs"));
    if file.is_file() { file } else { folder.join(name).join("mod.rs") }
}
