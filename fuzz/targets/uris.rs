//! Names and URIs that a client writes, and where in the file system they lead.
//!
//! `ROOT` in the input stands for the allowed directory. Beside it lie a file that nobody may reach and a data directory;
//! in it are links to them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use scrollback::actors::host::is_watch;
use scrollback::attachments::FileRef;
use scrollback::events::Channel;
use scrollback::projections::visual::{canvas_of, of_canvas};
use scrollback::protocol::names;
use scrollback::resources::uri::{file_path, file_uri};
use scrollback::resources::{self, Access, Roots};
use tempfile::TempDir;

const SECRET: &str = "nobody may read this";

struct Place {
    roots: Roots,
    root: PathBuf,
    data: PathBuf,
    _directory: TempDir,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let (root, data, out) = (base.join("root"), base.join("data"), base.join("out"));
    for path in [&root.join("dir/deep"), &data.join("attachments/7"), &data.join("log"), &out] {
        std::fs::create_dir_all(path).unwrap();
    }
    for file in [&out.join("secret"), &data.join("host.json"), &base.join("rootless")] {
        std::fs::write(file, SECRET).unwrap();
    }
    for file in [root.join("dir/file"), root.join("a b"), data.join("attachments/7/0123456789abcdef0123456789abcdef")] {
        std::fs::write(file, "open").unwrap();
    }
    let links: [(&Path, &str); 8] = [
        (&out, "out"),
        (Path::new("../out/secret"), "secret"),
        (&data, "data"),
        (Path::new("dir"), "in"),
        (Path::new("loop"), "loop"),
        (Path::new(".."), "up"),
        (Path::new("/"), "all"),
        (Path::new("nowhere/at/all"), "none"),
    ];
    for (target, name) in links {
        symlink(target, root.join(name)).unwrap();
    }
    let roots = Roots::new(std::slice::from_ref(&root), Some(&data));
    Place { roots, root, data, _directory: directory }
});

pub fn run(text: &str) {
    name(text);
    let place = &*PLACE;
    let uri = text.replace("ROOT", place.root.to_str().unwrap());
    path(&uri);
    reached(place, &uri);
    reached(place, &format!("{}/{text}", file_uri(&place.root)));
}

fn name(text: &str) {
    let _ = (is_watch(text), names::is_chat(text), names::reads_as_session(text));
    if names::is_session(text, ["demo"].into_iter()) {
        assert!(names::reads_as_session(text), "{text:?}");
        assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace()), "{text:?}");
    }
    assert_eq!(Channel::from(text).as_str(), text);
    if let Some(id) = of_canvas(text) {
        assert_eq!(canvas_of(id).as_str(), text);
    }
    if let Some(file) = FileRef::of_uri(text) {
        let name = format!("file:///attachments/{}/{:032x}", file.folder, file.name);
        assert_eq!(FileRef::of_uri(&name), Some(file));
    }
}

/// A path is absolute and plain, and its URI leads back to it.
fn path(uri: &str) {
    let Ok(path) = file_path(uri) else { return };
    assert!(path.is_absolute());
    let parts: Vec<_> = path.components().skip(1).collect();
    assert!(parts.iter().all(|part| matches!(part, std::path::Component::Normal(_))), "{path:?}");
    assert_eq!(file_path(&file_uri(&path)).expect("a URI of a path is one"), path);
}

/// Whatever is permitted, read, listed or resolved lies in the allowed directory, or is a stored attachment.
fn reached(place: &Place, uri: &str) {
    for access in [Access::Read, Access::Look, Access::Write] {
        if place.roots.permit(uri, access).is_ok() {
            within(place, uri, access == Access::Read);
        }
    }
    if let Ok(content) = resources::read(&place.roots, uri, None, 1_000) {
        assert_eq!(content.bytes, b"open", "{uri:?}");
        within(place, uri, true);
    }
    if let Ok(entries) = resources::list(&place.roots, uri, 10_000) {
        within(place, uri, false);
        assert!(entries.iter().all(|entry| !["host.json", "rootless"].contains(&entry.name.as_str())), "{uri:?}");
    }
    for follow in [true, false] {
        let Ok(found) = resources::resolve(&place.roots, uri, follow) else { continue };
        if follow {
            within(place, &found.uri, true);
        }
    }
}

/// Where a URI leads, by the operating system: what is there, or the last directory on the way that is.
fn within(place: &Place, uri: &str, attachments: bool) {
    let path = file_path(uri).expect("what is permitted is a path");
    let there = path.ancestors().find_map(|path| path.canonicalize().ok()).expect("the root is there");
    let is_attachment = attachments && there.starts_with(place.data.join("attachments"));
    assert!(there.starts_with(&place.root) || is_attachment, "{uri:?} leads to {there:?}");
}
