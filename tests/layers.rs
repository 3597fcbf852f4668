//! Reads the source and fails on an import that goes backwards, and on a word outside the one place that may know it.
//!
//! Imports go one way: `events` ← `projections`, `resources` ← `actors` ← `agents`, `access`, `admin` ← `protocol` ← `cli`, `main`.
//! `clock`, `config` and `telemetry` are for all. Modules of one step may use each other, but not in a circle of two.
//!
//! This is a reader of text, not a compiler: comments, strings and character literals are told from code, paths that
//! begin with `crate`, `scrollback` or `super` are followed. A re-export under another name is beyond it.

// A test may panic, and so may what only tests call.
#![allow(clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The steps, from what everybody may use to what nobody may. A folder or file under `src` that is not here fails.
const STEPS: [&[&str]; 7] = [
    &["clock", "config", "telemetry"],
    &["events"],
    &["projections", "attachments", "resources", "backup"],
    &["actors"],
    &["agents", "access", "admin", "pages", "visuals", "tools"],
    &["protocol"],
    &["cli", "main", "lib"],
];

/// A word that only some places know. `places` are prefixes of paths under `src`.
struct Secret {
    /// What it is, for the message.
    what: &'static str,
    /// Finds it in a file.
    known: fn(&Source) -> bool,
    /// Who may know it, each with the reason.
    places: &'static [(&'static str, &'static str)],
}

/// The secrets. An exception is a line here, with its reason.
const SECRETS: [Secret; 6] = [
    Secret {
        what: "the engine sled",
        known: |source| source.has_word("sled"),
        places: &[("events/sled_store", "the one implementation on sled")],
    },
    Secret {
        what: "actix's actors",
        known: |source| source.has_path("actix::"),
        places: &[("actors/", "where the actors are")],
    },
    Secret {
        what: "actix's web server",
        known: |source| ["actix_web::", "actix_ws::"].iter().any(|path| source.has_path(path)),
        places: &[
            ("protocol/", "sockets"),
            ("admin/", "endpoints"),
            ("pages/", "pages for browsers"),
            ("visuals/", "pages of agents"),
            ("tools/", "the host's tools for its agents"),
            ("access/", "reads a request's token, origin and host"),
            ("cli/", "starts the server"),
            ("cli.rs", "starts the server"),
            ("main.rs", "starts the runtime"),
        ],
    },
    Secret {
        what: "actix's runtime",
        known: |source| source.has_path("actix_rt::"),
        places: &[
            ("protocol/", "sockets are tasks of it"),
            ("admin/", "pages are tasks of it"),
            ("cli/", "starts it"),
            ("cli.rs", "starts it"),
            ("main.rs", "starts it"),
            ("actors/", "arbiters are its threads"),
            ("agents/", "processes are tasks on their chat's thread"),
        ],
    },
    Secret {
        what: "JSON-RPC",
        known: |source| source.strings.contains("jsonrpc"),
        places: &[
            ("protocol/", "where frames are read and written"),
            (
                "actors/envelope",
                "puts the constant head of a notification before stored bytes, once for all subscribers",
            ),
        ],
    },
    Secret {
        what: "the time",
        known: |source| ["Utc::now", "Local::now", "SystemTime::now"].iter().any(|call| source.has_path(call)),
        places: &[("clock.rs", "the one that asks")],
    },
];

/// A file under `src`, taken apart.
struct Source {
    /// Its path under `src`, with `/`.
    path: String,
    /// Its code without comments and without what stands in strings.
    code: String,
    /// What stands in its strings, one a line.
    strings: String,
}

impl Source {
    /// Takes `text` apart.
    fn new(path: &str, text: &str) -> Self {
        let (code, strings) = split_strings(text);
        Self { path: path.to_owned(), code, strings }
    }

    /// Whether `path` occurs in the code and does not begin in the middle of a word.
    fn has_path(&self, path: &str) -> bool {
        self.code.match_indices(path).any(|(at, _)| !ends_in_word(&self.code[..at]))
    }

    /// Whether `word` occurs in the code as a word of its own.
    fn has_word(&self, word: &str) -> bool {
        self.code
            .match_indices(word)
            .any(|(at, _)| !ends_in_word(&self.code[..at]) && !self.code[at + word.len()..].starts_with(is_word))
    }

    /// The top-level module that it belongs to.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        if self.path.starts_with("bin/") { "main" } else { first.trim_end_matches(".rs") }
    }

    /// How many `super::` lead from it to the crate's root.
    fn depth(&self) -> usize {
        let names = self.path.split('/').filter(|name| !matches!(*name, "mod.rs" | "lib.rs" | "main.rs"));
        names.count()
    }

    /// The top-level modules that it names.
    fn uses(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let to_root = "super::".repeat(self.depth());
        let roots = ["crate::", "scrollback::", to_root.as_str()];
        for root in roots.iter().filter(|root| !root.is_empty()) {
            for (at, _) in self.code.match_indices(root) {
                let before = &self.code[..at];
                if !ends_in_word(before) && !before.ends_with("::") {
                    found.extend(first_names(&self.code[at + root.len()..]));
                }
            }
        }
        // What is no module of ours is a name of the crate's root, such as a macro.
        found.retain(|name| step_of(name).is_some() || name.starts_with(char::is_lowercase));
        found
    }
}

/// The names that a path goes on with: `events::Log` gives `events`, `{clock::Clock, events::{a, b}}` both modules.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return word_at_start(path).into_iter().collect();
    };
    let mut names = Vec::new();
    let (mut depth, mut start) = (0_usize, 0_usize);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                names.extend(word_at_start(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// The word that `text` begins with.
fn word_at_start(text: &str) -> Option<String> {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// Whether `c` can stand in a word.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `text` ends in the middle of a word.
fn ends_in_word(text: &str) -> bool {
    text.ends_with(is_word)
}

/// Code without comments and with empty strings, and the strings, one a line.
fn split_strings(text: &str) -> (String, String) {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut code, mut strings, mut i) = (String::new(), String::new(), 0);
    while i < chars.len() {
        let raw = raw_string_at(&chars, i);
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => i = block_comment_end(&chars, i),
            _ if raw.is_some() && !ends_in_word(&code) => {
                let (start, hashes) = raw.unwrap_or_default();
                let end = (start..chars.len()).find(|&j| at(j) == '"' && (1..=hashes).all(|k| at(j + k) == '#'));
                let end = end.unwrap_or(chars.len());
                strings.extend(&chars[start..end]);
                strings.push('\n');
                code.push_str("\"\"");
                i = end + 1 + hashes;
            }
            ('"', _) => {
                let mut j = i + 1;
                while j < chars.len() && at(j) != '"' {
                    j += if at(j) == '\\' { 2 } else { 1 };
                }
                let end = j.min(chars.len());
                strings.extend(&chars[i + 1..end]);
                strings.push('\n');
                code.push_str("\"\"");
                i = end + 1;
            }
            // A character, not a lifetime: '"' would begin a string.
            ('\'', '\\') => {
                let end = (i + 3..chars.len()).find(|&j| at(j) == '\'').unwrap_or(chars.len());
                i = end + 1;
            }
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            (c, _) => {
                code.push(c);
                i += 1;
            }
        }
    }
    (code, strings)
}

/// Where the text of a raw string that begins at `i` begins, and how many `#` it has.
fn raw_string_at(chars: &[char], i: usize) -> Option<(usize, usize)> {
    let mut j = i;
    if matches!(chars.get(j), Some('b' | 'c')) {
        j += 1;
    }
    if chars.get(j) != Some(&'r') {
        return None;
    }
    j += 1;
    let hashes = chars[j..].iter().take_while(|c| **c == '#').count();
    (chars.get(j + hashes) == Some(&'"')).then_some((j + hashes + 1, hashes))
}

/// The place after a block comment that begins at `i`; they nest.
fn block_comment_end(chars: &[char], mut i: usize) -> usize {
    let mut depth = 0_usize;
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

/// The step that a top-level module stands on.
fn step_of(module: &str) -> Option<usize> {
    STEPS.iter().position(|step| step.contains(&module))
}

/// Every fault of `sources`, one a line, for a person to read.
fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut arrows: BTreeMap<(String, String), String> = BTreeMap::new();
    for source in sources {
        let own = source.module();
        let Some(step) = step_of(own) else {
            faults.push(format!("src/{}: `{own}` has no place in STEPS", source.path));
            continue;
        };
        for used in source.uses() {
            match step_of(&used) {
                Some(other) if other > step => {
                    faults.push(format!("src/{}: `{own}` uses `{used}`, which comes after it", source.path));
                }
                Some(other) if other == step && used != own => {
                    arrows.insert((own.to_owned(), used), source.path.clone());
                }
                _ => {}
            }
        }
        faults.extend(told(source));
    }
    for ((from, to), path) in &arrows {
        if from < to && arrows.contains_key(&(to.clone(), from.clone())) {
            faults.push(format!("src/{path}: `{from}` and `{to}` use each other"));
        }
    }
    faults
}

/// The secrets that `source` knows and should not.
fn told(source: &Source) -> Vec<String> {
    let wrong = |secret: &&Secret| {
        (secret.known)(source) && !secret.places.iter().any(|(place, _)| source.path.starts_with(place))
    };
    let say = |secret: &Secret| {
        let places: Vec<&str> = secret.places.iter().map(|(place, _)| *place).collect();
        format!("src/{}: knows of {}; only {} may", source.path, secret.what, places.join(", "))
    };
    SECRETS.iter().filter(wrong).map(say).collect()
}

/// Every Rust file below `folder`, as paths under `root`.
fn read_sources(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|e| panic!("{}: {e}", folder.display())).path();
        if path.is_dir() {
            read_sources(root, &path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let under = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            found.push(Source::new(&under, &text));
        }
    }
}

/// The faults of one planted file.
fn planted(path: &str, text: &str) -> Vec<String> {
    faults(&[Source::new(path, text)])
}

#[test]
fn no_arrow_under_src_goes_backwards() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    read_sources(&root, &root, &mut sources);
    assert!(sources.len() > 5, "only {} files were found under {}", sources.len(), root.display());
    let faults = faults(&sources);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn arrows_that_go_forward_are_no_fault() {
    let text = "use crate::clock::Clock;\nuse crate::{events::{Batch, Record}, projections::Head};\nuse super::Chat;";
    assert_eq!(planted("actors/chat.rs", text), Vec::<String>::new());
    assert_eq!(planted("main.rs", "use scrollback::cli;\nfn main() {}"), Vec::<String>::new());
}

#[test]
fn a_use_of_a_later_step_is_a_fault() {
    let faults = planted("events/log.rs", "use crate::actors::Chat;");
    assert_eq!(faults, ["src/events/log.rs: `events` uses `actors`, which comes after it"]);
}

#[test]
fn a_path_in_an_expression_is_a_fault_too() {
    assert_eq!(planted("projections/chat.rs", "fn f() { crate::protocol::send(1) }").len(), 1);
}

#[test]
fn every_name_of_a_group_is_followed() {
    let text = "use crate::{\n    clock::Clock,\n    events::{Batch, log::{EventLog, Rows}},\n    protocol::Frame,\n};";
    let faults = planted("actors/chat.rs", text);
    assert_eq!(faults, ["src/actors/chat.rs: `actors` uses `protocol`, which comes after it"]);
}

#[test]
fn supers_up_to_the_root_are_followed() {
    assert_eq!(planted("events/log.rs", "use super::super::actors::Chat;").len(), 1);
    assert_eq!(planted("events/mod.rs", "use super::actors::Chat;").len(), 1);
    assert_eq!(planted("events/log.rs", "use super::actors::Chat;"), Vec::<String>::new());
    assert_eq!(planted("clock.rs", "use super::events::Batch;").len(), 1);
}

#[test]
fn the_crate_by_its_own_name_is_followed() {
    assert_eq!(planted("actors/chat.rs", "use scrollback::protocol::Frame;").len(), 1);
}

#[test]
fn two_of_one_step_that_use_each_other_are_a_fault() {
    let one = Source::new("access/mod.rs", "use crate::admin::Page;");
    let other = Source::new("admin/mod.rs", "use crate::access::Grant;");
    assert_eq!(faults(&[one, other]), ["src/access/mod.rs: `access` and `admin` use each other"]);
    assert_eq!(planted("admin/mod.rs", "use crate::access::Grant;"), Vec::<String>::new());
}

#[test]
fn a_folder_without_a_place_is_a_fault() {
    assert_eq!(planted("utils/mod.rs", ""), ["src/utils/mod.rs: `utils` has no place in STEPS"]);
}

#[test]
fn only_the_sled_store_names_sled() {
    assert_eq!(planted("events/memory.rs", "fn f(db: sled::Db) {}").len(), 1);
    assert_eq!(planted("events/mod.rs", "use sled;").len(), 1);
    assert_eq!(planted("events/sled_store.rs", "use sled::Db;"), Vec::<String>::new());
    assert_eq!(planted("events/sled_store/keys.rs", "use sled::Db;"), Vec::<String>::new());
    assert_eq!(planted("events/mod.rs", "pub mod sled_store; // on sled"), Vec::<String>::new());
}

#[test]
fn only_actors_names_actix_and_only_the_outer_folders_its_web_server() {
    assert_eq!(planted("protocol/socket.rs", "use actix::Addr;").len(), 1);
    assert_eq!(planted("protocol/socket.rs", "use actix_web::HttpRequest;"), Vec::<String>::new());
    assert_eq!(planted("actors/chat.rs", "use actix::Actor;"), Vec::<String>::new());
    assert_eq!(planted("events/log.rs", "use actix_rt::spawn;").len(), 1);
}

#[test]
fn only_protocol_writes_json_rpc() {
    assert_eq!(planted("access/mod.rs", r##"const HEAD: &str = r#"{"jsonrpc":"2.0"}"#;"##).len(), 1);
    assert_eq!(planted("access/mod.rs", r#"const HEAD: &[u8] = b"{\"jsonrpc\":\"2.0\"}";"#).len(), 1);
    assert_eq!(planted("access/mod.rs", "// not \"jsonrpc\"\nfn jsonrpc() {}"), Vec::<String>::new());
    assert_eq!(planted("protocol/frame.rs", r#"const KEY: &str = "jsonrpc";"#), Vec::<String>::new());
}

#[test]
fn only_clock_asks_the_time() {
    assert_eq!(planted("actors/chat.rs", "fn f() { let t = chrono::Utc::now(); }").len(), 1);
    assert_eq!(planted("cli/mod.rs", "fn f() { std::time::SystemTime::now(); }").len(), 1);
    assert_eq!(planted("clock.rs", "fn f() { Utc::now(); }"), Vec::<String>::new());
}

#[test]
fn comments_strings_and_characters_hide_nothing_and_plant_nothing() {
    let quiet = "/* crate::actors::A /* nested */ crate::cli::B */\n//! crate::protocol::C\nlet s = \"crate::cli::D\";";
    assert_eq!(planted("events/log.rs", quiet), Vec::<String>::new());
    for before in
        ["let q = '\"';", "let b = b'\\'';", "fn f<'a>(x: &'a str) {}", "let s = r#\"a \" b\"#;", "let e = \"\\\"\";"]
    {
        let text = format!("{before}\nuse crate::cli::Verb;");
        assert_eq!(planted("events/log.rs", &text).len(), 1, "after {before}");
    }
}
