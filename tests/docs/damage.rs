//! What the page for operators says of damaged directories is what the program says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::command::{self, Host, run, scrollback};
use super::pages::{page, words};

/// A data directory with some events, closed in order.
fn directory(home: &Path, name: &str, events: u64) -> PathBuf {
    let path = home.join(name);
    fs::rename(command::filled(home, events), &path).unwrap();
    path
}

/// What `serve` says of `data`, which it must refuse with one line.
fn said(home: &Path, data: &Path) -> String {
    let ran = run(home, &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{ran:?}");
    // The engine may say something of its own before.
    let line = ran.err.lines().last().unwrap_or_default().to_owned();
    assert!(line.contains(data.to_str().unwrap()), "{ran:?}");
    line
}

/// Each line of the table, made by doing that to a directory.
fn lines(home: &Path) -> Vec<(&'static str, String)> {
    let at = |name: &str| directory(home, name, 5);
    let mut lines = Vec::new();

    let held = at("held");
    let host = Host::start(home, &held, &[]);
    lines.push(("is in use by", said(home, &held)));
    drop(host);

    let foreign = home.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter.txt"), "hello").unwrap();
    lines.push(("is not a Scrollback data directory", said(home, &foreign)));

    let begun = home.join("begun");
    fs::create_dir_all(begun.join("incoming")).unwrap();
    fs::write(begun.join("incoming/begun"), "").unwrap();
    lines.push(("was not finished", said(home, &begun)));

    let newer = at("newer");
    fs::write(newer.join("FORMAT"), "scrollback 2\n").unwrap();
    lines.push(("written by a newer Scrollback", said(home, &newer)));

    let short = at("short");
    fs::copy(directory(home, "longer", 9).join("floor"), short.join("floor")).unwrap();
    lines.push(("the store came back short", said(home, &short)));

    let wiped = at("wiped");
    let bytes = fs::read(wiped.join("log/db")).unwrap();
    fs::write(wiped.join("log/db"), vec![0xa5; bytes.len()]).unwrap();
    lines.push(("the store came back short", said(home, &wiped)));

    let bare = at("bare");
    fs::remove_file(bare.join("floor")).unwrap();
    lines.push(("its file floor is missing", said(home, &bare)));

    let garbled = at("garbled");
    fs::write(garbled.join("floor"), "scrollback-floor 1\nstart 1\n").unwrap();
    lines.push(("its file floor is damaged", said(home, &garbled)));

    let empty = at("empty");
    fs::remove_file(empty.join("log/db")).unwrap();
    lines.push(("log/db is missing", said(home, &empty)));

    let broken = at("broken");
    fs::write(broken.join("log/conf"), "nonsense\n").unwrap();
    lines.push(("the log cannot be opened", said(home, &broken)));

    // Nothing may grow, as on a disk without room.
    let full = at("full");
    let limited =
        format!("trap '' XFSZ; ulimit -f 1; exec {} serve --data {}", env!("CARGO_BIN_EXE_scrollback"), full.display());
    let ran =
        command::Ran::from(Command::new("sh").args(["-c", &limited]).env_clear().current_dir(home).output().unwrap());
    lines.push(("make room on its disk", ran.err));

    let verb = scrollback(home, &["log", "stats", "--data", "nowhere"]).output().unwrap();
    lines.push(("there is no such directory", String::from_utf8(verb.stderr).unwrap()));
    lines
}

#[test]
fn the_host_says_of_a_damaged_directory_what_the_page_lists() {
    let home = tempfile::tempdir().unwrap();
    let lines = lines(home.path());
    for (wanted, line) in &lines {
        assert!(line.contains(wanted), "{wanted}: {line}");
    }
    let table = page("docs/operating.md").table("the line says");
    let documented = table.iter().flat_map(|row| words(&row[0])).map(|text| text.trim_end_matches(" …").to_owned());
    let made = lines.iter().map(|(wanted, _)| (*wanted).to_owned());
    assert_eq!(documented.collect::<BTreeSet<_>>(), made.collect());
}

#[test]
fn verify_opens_a_directory_without_its_floor() {
    let home = tempfile::tempdir().unwrap();
    for (name, floor) in [("missing", None), ("garbled", Some("nonsense"))] {
        let data = directory(home.path(), name, 5);
        fs::remove_file(data.join("floor")).unwrap();
        if let Some(floor) = floor {
            fs::write(data.join("floor"), floor).unwrap();
        }
        let printed = run(home.path(), &["log", "verify", "--data", data.to_str().unwrap()]).printed();
        assert!(printed.starts_with("ok: 5 events"), "{printed}");
    }
}

#[test]
fn what_a_damaged_directory_holds_goes_into_a_new_one_behind_all_numbers_that_were_given() {
    let home = tempfile::tempdir().unwrap();
    let longer = fs::read(directory(home.path(), "longer", 9).join("floor")).unwrap();
    for (name, floor, status) in [("short", Some(&*longer), 1), ("garbled", Some(b"nonsense"), 0), ("missing", None, 0)]
    {
        let data = directory(home.path(), name, 5);
        fs::remove_file(data.join("floor")).unwrap();
        if let Some(floor) = floor {
            fs::write(data.join("floor"), floor).unwrap();
        }
        let (file, new) = (home.path().join(format!("{name}.jsonl")), home.path().join(format!("new-{name}")));
        let (data, file, new) = (data.to_str().unwrap(), file.to_str().unwrap(), new.to_str().unwrap());
        let ran = run(home.path(), &["log", "export", "--data", data, "-o", file]);
        assert_eq!(ran.status, status, "{name}: {ran:?}");
        assert_eq!(ran.err.contains("what is there was written"), status == 1, "{name}: {ran:?}");
        let loaded = run(home.path(), &["log", "import", file, "--data", new, "--json"]).json_lines().remove(0);
        let given: u64 = if name == "short" { 9 } else { 5 };
        assert_eq!(loaded["events"], 5, "{name}: {loaded}");
        assert!(loaded["next"].as_u64().unwrap() > given, "{name}: {loaded}");
        assert_eq!(loaded["next"].as_u64().unwrap() > 1_000_000, name != "short", "{name}: {loaded}");
        run(home.path(), &["log", "verify", "--data", new]).printed();
        drop(Host::start(home.path(), Path::new(new), &[]));
    }
}
