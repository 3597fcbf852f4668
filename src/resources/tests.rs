use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// An allowed directory `in`, a directory `out` beside it, and a data directory within the allowed one.
struct Ground {
    _all: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
    roots: Roots,
}

fn ground() -> Ground {
    let all = tempfile::tempdir().unwrap();
    let real = all.path().canonicalize().unwrap();
    let (inside, outside) = (real.join("in"), real.join("out"));
    for directory in [&inside, &outside, &inside.join("data/attachments/s"), &inside.join("data/store")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(inside.join("data/store/db"), "log").unwrap();
    fs::write(inside.join("data/attachments/s/a.png"), "png").unwrap();
    let roots = Roots::new(std::slice::from_ref(&inside), Some(&inside.join("data")));
    Ground { _all: all, inside, outside, roots }
}

impl Ground {
    fn uri(&self, path: &str) -> String {
        uri::file_uri(&self.inside.join(path))
    }

    fn read(&self, path: &str) -> Result<String, ResourceFault> {
        let content = read(&self.roots, &self.uri(path), None, 1_000)?;
        Ok(String::from_utf8(content.bytes).unwrap())
    }

    fn write(&self, path: &str, how: &Write<'_>) -> Result<String, ResourceFault> {
        write(&self.roots, &self.uri(path), how)?;
        Ok(fs::read_to_string(self.inside.join(path)).unwrap())
    }

    /// The names that are left in the allowed directory.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.inside.join(path)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).filter(|n| n != "data").collect();
        names.sort();
        names
    }
}

fn is_outside<T>(done: Result<T, ResourceFault>) -> bool {
    matches!(done, Err(ResourceFault::Outside))
}

#[test]
fn links_out_of_the_allowed_directories_lead_nowhere_at_the_end_and_in_the_middle() {
    let ground = ground();
    symlink(&ground.outside, ground.inside.join("door")).unwrap();
    symlink(ground.outside.join("secret"), ground.inside.join("letter")).unwrap();
    symlink("../out/none", ground.inside.join("dangling")).unwrap();
    symlink("loop", ground.inside.join("loop")).unwrap();
    for path in ["door", "door/secret", "door/none", "letter", "dangling", "loop", "../out/secret", "../out/none"] {
        let uri = ground.uri(path);
        assert!(is_outside(ground.read(path)), "{path}");
        assert!(is_outside(list(&ground.roots, &uri, 1_000)), "{path}");
        assert!(is_outside(resolve(&ground.roots, &uri, true)), "{path}");
        assert!(is_outside(make_directory(&ground.roots, &uri)), "{path}");
        assert!(is_outside(write(&ground.roots, &uri, &Write::default())), "{path}");
        assert!(is_outside(ground.roots.permit(&uri, Access::Read)), "{path}");
    }
    for path in ["door/secret", "../out/secret"] {
        let (uri, to) = (ground.uri(path), ground.uri("copy"));
        assert!(is_outside(delete(&ground.roots, &uri, true)), "{path}");
        assert!(is_outside(copy(&ground.roots, &uri, &to, false)), "{path}");
        assert!(is_outside(rename(&ground.roots, &uri, &to, false)), "{path}");
        assert!(is_outside(rename(&ground.roots, &ground.uri("door"), &uri, false)), "{path}");
    }
    assert_eq!(fs::read_to_string(ground.outside.join("secret")).unwrap(), "secret");
    // A link is moved, resolved and deleted as itself.
    rename(&ground.roots, &ground.uri("letter"), &ground.uri("moved"), false).unwrap();
    let found = resolve(&ground.roots, &ground.uri("moved"), false).unwrap();
    assert_eq!((found.kind, found.uri), (FoundKind::Symlink, ground.uri("moved")));
    delete(&ground.roots, &ground.uri("moved"), true).unwrap();
    delete(&ground.roots, &ground.uri("door"), true).unwrap();
    assert!(ground.outside.join("secret").exists());
}

#[test]
fn links_within_the_allowed_directories_are_followed() {
    let ground = ground();
    fs::create_dir(ground.inside.join("d")).unwrap();
    fs::write(ground.inside.join("d/f"), "text").unwrap();
    symlink("d", ground.inside.join("e")).unwrap();
    symlink("e/f", ground.inside.join("g")).unwrap();
    assert_eq!((ground.read("e/f").unwrap(), ground.read("g").unwrap()), ("text".into(), "text".into()));
    assert_eq!(resolve(&ground.roots, &ground.uri("g"), true).unwrap().uri, ground.uri("d/f"));
    ground.write("g", &Write { data: b"new", ..Write::default() }).unwrap();
    assert!(ground.inside.join("g").is_symlink());
    assert_eq!(fs::read_to_string(ground.inside.join("d/f")).unwrap(), "new");
    let entries = list(&ground.roots, &ground.uri(""), 1_000).unwrap();
    let told: Vec<(&str, bool)> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_directory)).collect();
    assert_eq!(told, [("d", true), ("e", true), ("g", false)]);
}

#[test]
fn the_data_directory_is_never_reached_but_for_attachments_that_are_read() {
    let ground = ground();
    symlink("data", ground.inside.join("alias")).unwrap();
    for path in ["data", "data/store", "data/store/db", "alias", "alias/store/db", "data/none", "data/attachmentsx"] {
        let uri = ground.uri(path);
        assert!(is_outside(ground.read(path)), "{path}");
        assert!(is_outside(list(&ground.roots, &uri, 1_000)), "{path}");
        assert!(is_outside(resolve(&ground.roots, &uri, true)), "{path}");
        assert!(is_outside(make_directory(&ground.roots, &uri)), "{path}");
        assert!(is_outside(copy(&ground.roots, &uri, &ground.uri("x"), false)), "{path}");
    }
    assert_eq!(ground.read("data/attachments/s/a.png").unwrap(), "png");
    assert_eq!(ground.read("alias/attachments/s/a.png").unwrap(), "png");
    let attachment = ground.uri("data/attachments/s/a.png");
    assert!(is_outside(write(&ground.roots, &attachment, &Write::default())));
    assert!(is_outside(delete(&ground.roots, &attachment, false)));
    assert!(is_outside(copy(&ground.roots, &ground.uri("x"), &attachment, false)));
    assert!(is_outside(list(&ground.roots, &ground.uri("data/attachments"), 1_000)));
    assert!(!list(&ground.roots, &ground.uri(""), 1_000).unwrap().iter().any(|entry| entry.name == "data"));
    // Nor is what it lies in moved, overwritten or deleted, and a copy leaves it out.
    let all = ground.inside.parent().unwrap().to_owned();
    let roots = Roots::new(std::slice::from_ref(&all), Some(&ground.inside.join("data")));
    let (inside, other) = (ground.uri(""), uri::file_uri(&all.join("other")));
    assert!(is_outside(delete(&roots, &inside, true)));
    assert!(is_outside(rename(&roots, &inside, &other, false)));
    make_directory(&roots, &other).unwrap();
    assert!(is_outside(rename(&roots, &other, &inside, false)));
    assert!(is_outside(copy(&roots, &other, &inside, false)));
    fs::write(ground.inside.join("f"), "text").unwrap();
    copy(&roots, &inside, &uri::file_uri(&all.join("copy")), false).unwrap();
    assert!(all.join("copy/f").exists() && !all.join("copy/data").exists());
    // The same directory under another name of the file system is told by what it is.
    let moved = all.join("elsewhere");
    fs::rename(ground.inside.join("data"), &moved).unwrap();
    symlink(&moved, ground.inside.join("data")).unwrap();
    assert!(is_outside(read(&roots, &uri::file_uri(&moved.join("store/db")), None, 1_000)));
}

#[test]
fn the_modes_of_writing_place_the_data() {
    let ground = ground();
    let with = |mode, position, data| Write { data, mode, position, ..Write::default() };
    for (mode, position, wanted) in [
        (Mode::Truncate, 0, "XY"),
        (Mode::Truncate, 3, "012XY"),
        (Mode::Append, 0, "0123456789XY"),
        (Mode::Append, 4, "012345XY6789"),
        (Mode::Append, 10, "XY0123456789"),
        (Mode::Insert, 0, "XY0123456789"),
        (Mode::Insert, 7, "0123456XY789"),
        (Mode::Insert, 10, "0123456789XY"),
    ] {
        ground.write("f", &with(Mode::Truncate, 0, b"0123456789")).unwrap();
        assert_eq!(ground.write("f", &with(mode, position, b"XY")).unwrap(), wanted, "{mode:?} {position}");
        let beyond = ground.write("f", &with(mode, 99, b"XY"));
        assert!(matches!(beyond, Err(ResourceFault::Malformed(_))), "{mode:?}");
        fs::remove_file(ground.inside.join("f")).unwrap();
        assert_eq!(ground.write("f", &with(mode, 0, b"XY")).unwrap(), "XY", "a new file, {mode:?}");
    }
    assert_eq!(ground.names(""), ["f"]);
}

#[test]
fn a_write_keeps_the_mode_and_leaves_nothing_beside_the_file() {
    let ground = ground();
    let path = ground.inside.join("run.sh");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    ground.write("run.sh", &Write { data: b"new", ..Write::default() }).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    for broken in [
        Write { create_only: true, ..Write::default() },
        Write { if_match: Some("x"), ..Write::default() },
        Write { position: 9, ..Write::default() },
    ] {
        assert!(ground.write("run.sh", &broken).is_err());
    }
    assert!(ground.write("none/f", &Write::default()).is_err());
    assert!(ground.write("run.sh/f", &Write::default()).is_err());
    assert_eq!((ground.names(""), ground.read("run.sh").unwrap()), (vec!["run.sh".to_owned()], "new".into()));
}

#[test]
fn a_version_that_was_overtaken_is_a_conflict() {
    let ground = ground();
    let etag = |path: &str| resolve(&ground.roots, &ground.uri(path), true).unwrap().etag;
    ground.write("f", &Write { data: b"1", ..Write::default() }).unwrap();
    let first = etag("f");
    assert_eq!(first, etag("f"));
    let write = |data, tag: &str| ground.write("f", &Write { data, if_match: Some(tag), ..Write::default() });
    write(b"2", &first).unwrap();
    assert!(matches!(write(b"3", &first), Err(ResourceFault::Conflict)));
    let appended = Write { data: b"x", mode: Mode::Append, if_match: Some(&first), ..Write::default() };
    assert!(matches!(ground.write("f", &appended), Err(ResourceFault::Conflict)));
    let missing = Write { if_match: Some(&first), ..Write::default() };
    assert!(matches!(ground.write("none", &missing), Err(ResourceFault::Conflict)));
    assert_eq!(ground.read("f").unwrap(), "2");
}

#[test]
fn appends_of_many_lose_nothing() {
    let ground = ground();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ground = &ground;
            scope.spawn(move || {
                for _ in 0..25 {
                    let line = format!("{thread}\n");
                    let write = Write { data: line.as_bytes(), mode: Mode::Append, ..Write::default() };
                    super::write(&ground.roots, &ground.uri("log"), &write).unwrap();
                }
            });
        }
    });
    let log = fs::read_to_string(ground.inside.join("log")).unwrap();
    for thread in 0..8 {
        assert_eq!(log.lines().filter(|line| *line == thread.to_string()).count(), 25);
    }
}

#[test]
fn one_of_many_creators_wins() {
    let ground = ground();
    let won: usize = std::thread::scope(|scope| {
        let one = |data: &'static [u8]| {
            let ground = &ground;
            scope.spawn(move || {
                let write = Write { data, create_only: true, ..Write::default() };
                usize::from(super::write(&ground.roots, &ground.uri("f"), &write).is_ok())
            })
        };
        let all: Vec<_> = (0..8).map(|_| one(b"mine")).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((won, ground.names("")), (1, vec!["f".to_owned()]));
}

#[test]
fn what_is_no_file_is_neither_read_nor_waited_for() {
    let ground = ground();
    rustix::fs::mkfifoat(rustix::fs::CWD, ground.inside.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    assert!(matches!(ground.read("pipe"), Err(ResourceFault::NotAFile)));
    assert!(matches!(ground.write("pipe", &Write::default()), Err(ResourceFault::NotAFile)));
    assert!(matches!(ground.read(""), Err(ResourceFault::NotAFile)));
    assert!(matches!(list(&ground.roots, &ground.uri("pipe"), 9), Err(ResourceFault::NotADirectory)));
    assert!(matches!(resolve(&ground.roots, &ground.uri("none"), true), Err(ResourceFault::NotFound)));
    assert_eq!(resolve(&ground.roots, &ground.uri(""), true).unwrap().kind, FoundKind::Directory);
}

#[test]
fn copies_and_moves_replace_in_one_step_or_not_at_all() {
    let ground = ground();
    let put = |path: &str, text: &str| {
        fs::create_dir_all(ground.inside.join(path).parent().unwrap()).unwrap();
        fs::write(ground.inside.join(path), text).unwrap();
    };
    let both = [copy, rename];
    for (index, act) in both.into_iter().enumerate() {
        for (path, text) in [("a", "a"), ("b", "b"), ("d/x/f", "f"), ("e/old", "old")] {
            put(path, text);
        }
        let act = |from: &str, to: &str, only_new| act(&ground.roots, &ground.uri(from), &ground.uri(to), only_new);
        assert!(matches!(act("a", "b", true), Err(ResourceFault::Exists(_))));
        assert!(matches!(act("a", "d", false), Err(ResourceFault::Exists(_))));
        assert!(matches!(act("d", "a", false), Err(ResourceFault::Exists(_))));
        assert!(matches!(act("d", "d/x/y", false), Err(ResourceFault::Malformed(_))));
        assert!(matches!(act("d/x", "d", false), Err(ResourceFault::Malformed(_))));
        assert!(matches!(act("none", "b", false), Err(ResourceFault::NotFound)));
        assert!(matches!(act("a", "none/b", false), Err(ResourceFault::NotFound)));
        assert!(is_outside(act("a", "", false)));
        act("a", "a", false).unwrap();
        act("a", "b", false).unwrap();
        act("d", "e", false).unwrap();
        assert_eq!((ground.read("b").unwrap(), ground.read("e/x/f").unwrap()), ("a".into(), "f".into()));
        assert!(!ground.inside.join("e/old").exists());
        let left = if index == 0 { vec!["a", "b", "d", "e"] } else { vec!["b", "e"] };
        assert_eq!(ground.names(""), left);
    }
}

#[test]
fn directories_are_made_with_those_they_lie_in_and_deleted_whole_only_when_asked() {
    let ground = ground();
    let (deep, roots) = (ground.uri("a/b/c"), &ground.roots);
    make_directory(roots, &deep).unwrap();
    make_directory(roots, &deep).unwrap();
    fs::write(ground.inside.join("a/f"), "x").unwrap();
    for path in ["a/f", "a/f/g"] {
        assert!(matches!(make_directory(roots, &ground.uri(path)), Err(ResourceFault::Exists(_))), "{path}");
    }
    assert!(matches!(delete(roots, &ground.uri("a"), false), Err(ResourceFault::NotEmpty)));
    delete(roots, &deep, false).unwrap();
    delete(roots, &ground.uri("a"), true).unwrap();
    assert!(matches!(delete(roots, &ground.uri("a"), true), Err(ResourceFault::NotFound)));
    assert!(is_outside(delete(roots, &ground.uri(""), true)));
    assert_eq!(ground.names(""), Vec::<String>::new());
}

#[test]
fn content_is_told_by_name_and_bytes() {
    let ground = ground();
    for (name, bytes, encoding, content_type) in [
        ("a.txt", &b"text"[..], Encoding::Utf8, "text/plain"),
        ("a.ts", b"let a = 1", Encoding::Utf8, "text/plain"),
        ("a.json", b"{}", Encoding::Utf8, "application/json"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0", Encoding::Base64, "image/png"),
        ("a.md", b"\0\x01", Encoding::Base64, "application/octet-stream"),
        ("nul", b"a\0b", Encoding::Base64, "application/octet-stream"),
        ("noname", b"", Encoding::Utf8, "text/plain"),
    ] {
        fs::write(ground.inside.join(name), bytes).unwrap();
        let content = read(&ground.roots, &ground.uri(name), None, 100).unwrap();
        let told = (content.encoding, content.content_type.as_str());
        assert_eq!(told, (encoding, content_type), "{name}");
        let found = resolve(&ground.roots, &ground.uri(name), true).unwrap();
        assert_eq!(found.content_type.as_deref(), Some(content_type), "{name}");
        assert_eq!(found.size, Some(bytes.len() as u64));
    }
    let asked = |name: &str, wanted| read(&ground.roots, &ground.uri(name), Some(wanted), 100).unwrap().encoding;
    assert_eq!(asked("a.txt", Encoding::Base64), Encoding::Base64);
    assert_eq!(asked("a.png", Encoding::Utf8), Encoding::Base64);
    assert!(matches!(read(&ground.roots, &ground.uri("a.txt"), None, 3), Err(ResourceFault::TooLarge(3))));
}
