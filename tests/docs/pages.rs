//! The documents, taken apart: fenced blocks, headings, links, tables.

use std::fs;
use std::path::{Path, PathBuf};

/// A document.
pub struct Page {
    /// Its path from the root of the repository.
    pub path: PathBuf,
    pub text: String,
}

/// A fenced block.
#[derive(Debug, Clone)]
pub struct Block {
    /// `docs/x.md:12`, the line of its fence.
    pub place: String,
    /// What stands behind the fence.
    pub info: String,
    pub text: String,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README.md, CHANGELOG.md and everything under docs/.
pub fn all() -> Vec<Page> {
    let mut paths = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths.into_iter().map(|path| page(path.to_str().unwrap())).collect()
}

pub fn page(path: &str) -> Page {
    Page { path: PathBuf::from(path), text: fs::read_to_string(root().join(path)).unwrap() }
}

impl Page {
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open = false;
        for (number, line) in self.text.lines().enumerate() {
            match (line.strip_prefix("```"), open) {
                (Some(info), false) => {
                    let place = format!("{}:{}", self.path.display(), number + 1);
                    blocks.push(Block { place, info: info.trim().to_owned(), text: String::new() });
                    open = true;
                }
                (Some(_), true) => open = false,
                (None, true) => {
                    let block = blocks.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, false) => {}
            }
        }
        assert!(!open, "{}: a block is not closed", self.path.display());
        blocks
    }

    /// The text outside of fenced blocks.
    pub fn prose(&self) -> String {
        let mut open = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.starts_with("```") {
                open = !open;
            } else if !open {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// The targets of its links.
    pub fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let behind = prose.match_indices("](").map(|(at, _)| &prose[at + 2..]);
        behind.filter_map(|rest| Some(rest[..rest.find(')')?].to_owned())).collect()
    }

    /// The anchors of its headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let slug = |line: &str| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        };
        headings.map(slug).collect()
    }

    /// The cells of every row of the table whose first cell is headed `head`, without backticks.
    pub fn table(&self, head: &str) -> Vec<Vec<String>> {
        let prose = self.prose();
        let mut rows = Vec::new();
        let mut in_table = false;
        for line in prose.lines() {
            let Some(inner) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                in_table = false;
                continue;
            };
            let cells: Vec<String> = inner.split('|').map(|cell| cell.trim().to_owned()).collect();
            if cells[0] == head {
                in_table = true;
            } else if in_table && !cells[0].starts_with("---") {
                rows.push(cells);
            }
        }
        assert!(!rows.is_empty(), "{} has no table headed {head}", self.path.display());
        rows
    }
}

/// What stands in backticks.
pub fn words(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The Rust files under `folder`, without their tests, each as its path and its text.
pub fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
                found.push((path, code));
            }
        }
    }
    found
}

/// The text literals that stand right behind `before` in the code under `folders`.
pub fn literals_behind(folders: &[&str], before: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, code) in folders.iter().flat_map(|folder| sources(folder)) {
        for (at, _) in code.match_indices(before) {
            let rest = code[at + before.len()..].trim_start();
            if let Some(literal) = rest.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                found.push(literal.to_owned());
            }
        }
    }
    found
}
