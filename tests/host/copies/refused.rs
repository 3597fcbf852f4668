//! What is not what it should be: one clear line, exit 1, and nothing that is half made.

use std::fs;

use super::*;
use crate::command::filled;

/// Fails unless `data` is no data directory; an import into it then succeeds.
#[track_caller]
fn nothing_came_of_it(place: &Place, good: &Path, data: &Path) {
    assert!(!data.join("FORMAT").exists());
    place.run("log list --data {}", &[data]).is_refused(1, &[data.to_str().unwrap()]);
    place.run("log import {} --data {}", &[good, data]).printed();
    place.is_sound(data);
}

#[test]
fn a_file_that_was_cut_off_or_edited_is_refused_and_its_line_is_named() {
    let place = Place::new();
    let data = filled(place.home.path(), 30);
    let (good, bad) = (place.at("good.jsonl"), place.at("bad.jsonl"));
    place.run("log export --data {} -o {}", &[&data, &good]).printed();
    let text = fs::read_to_string(&good).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let name = bad.to_str().unwrap();
    let line = |number: usize| format!("line {number}: ");
    let without =
        |gone: usize| lines.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, l)| *l).collect::<String>();
    let swapped = |a: usize, b: usize| {
        let mut lines = lines.clone();
        lines.swap(a, b);
        lines.concat()
    };
    let last = lines.len();
    let cases = [
        (String::new(), line(1), "nothing in it"),
        (text[..text.len() - 10].to_owned(), line(last), "cut off"),
        (lines[..last - 1].concat(), line(last), "the end is missing"),
        (lines[..9].concat() + &lines[9][..30], line(10), "cut off"),
        (text.replacen("\"activeSessions\":7", "\"activeSessions\":8", 1), line(8), "its checksum is wrong"),
        (text.replacen("{\"serverSeq\":9", "{\"serverSeq\":x", 1), line(10), "it cannot be read"),
        (without(5), line(last - 1), "lines were written before it"),
        (swapped(6, 7), line(8), "stands behind event"),
        (text.clone() + "{}\n", line(last + 1), ""),
        (text.replacen("\"format\":1", "\"format\":9", 1), line(1), "written by a newer Scrollback"),
        ("hello\n".to_owned(), line(1), "it cannot be read"),
        ("{\"a\":1}\n".to_owned(), line(1), "no line of a Scrollback log"),
        (lines[1..].concat(), line(1), "no header"),
    ];
    for (number, (text, line, problem)) in cases.into_iter().enumerate() {
        let copy = place.at(&format!("copy{number}"));
        fs::write(&bad, text).unwrap();
        place.run("log import {} --data {}", &[&bad, &copy]).is_refused(1, &[name, &line, problem]);
        if copy.exists() {
            nothing_came_of_it(&place, &good, &copy);
        }
    }
    place.run("log import {} --data {}", &[&place.at("none"), &place.at("copy")]).is_refused(1, &["none"]);
    // What somebody's file says is no command for a terminal.
    fs::write(&bad, lines[0].to_owned() + "{\"failed\":\"gone\\n\\u001b[31mred\\u202e\"}\n").unwrap();
    let said = "gone \u{fffd}[31mred\u{fffd}\n";
    place.run("log import {} --data {}", &[&bad, &place.at("copy")]).is_refused(1, &[said]);
}

#[test]
fn a_directory_that_holds_events_or_something_else_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let data = filled(place.home.path(), 5);
    let (file, backup) = (place.at("log.jsonl"), place.at("backup"));
    place.run("log export --data {} -o {}", &[&data, &file]).printed();
    place.run("backup {} --data {}", &[&backup, &data]).printed();
    let other = place.at("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), "x").unwrap();
    // Somebody's own folders, which have the names of ours.
    let alike = place.at("alike");
    for folder in ["incoming", "log", "attachments", "parts"] {
        fs::create_dir_all(alike.join(folder)).unwrap();
        fs::write(alike.join(folder).join("mine"), "x").unwrap();
    }
    for (directory, words) in [
        (&data, "holds events already"),
        (&other, "is not a Scrollback data directory"),
        (&alike, "is not a Scrollback data directory"),
    ] {
        let before = modes_under(directory);
        place.run("log import {} --data {}", &[&file, directory]).is_refused(1, &[words]);
        place.run("restore {} --data {}", &[&backup, directory]).is_refused(1, &[words]);
        assert_eq!(modes_under(directory), before);
    }
    for directory in [&other, &alike] {
        let before = modes_under(directory);
        place.run("backup {} --data {}", &[directory, &data]).is_refused(1, &["it is not empty"]);
        assert_eq!(modes_under(directory), before);
    }
    for folder in ["incoming", "log"] {
        fs::remove_dir_all(alike.join(folder)).unwrap();
    }
    let before = modes_under(&alike);
    place.run("backup {} --data {}", &[&alike, &data]).is_refused(1, &["it is not empty"]);
    assert_eq!(modes_under(&alike), before);
    place.is_sound(&data);
    let host = Host::start(place.home.path(), &data, &[]);
    place.run("log import {} --data {}", &[&file, &data]).is_refused(1, &["is in use by"]);
    drop(host);
    place.run("backup {} --data {}", &[&file, &data]).is_refused(1, &["log.jsonl: is not a directory"]);
    place.run("backup {} --data {}", &[&other, &data]).is_refused(1, &["other: it is not empty"]);
    place.run("restore {} --data {}", &[&other, &place.at("new")]).is_refused(1, &["there is no backup in it"]);
    place.run("backup {} --data {}", &[&backup, &place.at("nowhere")]).is_refused(1, &["there is no such directory"]);
    // One without events is filled.
    let empty = place.at("empty");
    let made = scrollback::events::DataDirectory::open_or_create(&empty).unwrap();
    let store = scrollback::events::SledStore::open(made.path(), Default::default()).unwrap();
    store.close_clean().unwrap();
    drop((store, made));
    // What fails leaves it a data directory, with what else a host put into it.
    fs::create_dir(empty.join("agents")).unwrap();
    let cut = place.at("cut.jsonl");
    let text = fs::read(&file).unwrap();
    fs::write(&cut, &text[..text.len() - 10]).unwrap();
    place.run("log import {} --data {}", &[&cut, &empty]).is_refused(1, &["cut off"]);
    let host = Host::start(place.home.path(), &empty, &[]);
    assert_eq!(host.stop("TERM").0, 0);
    let made = place.run("log import {} --data {}", &[&file, &empty]);
    made.is_refused(1, &["holds events already"]);
}

#[test]
fn a_backup_of_another_log_or_by_a_newer_version_is_refused() {
    let place = Place::new();
    let data = filled(place.home.path(), 20);
    let backup = place.at("backup");
    place.run("backup {} --data {}", &[&backup, &data]).printed();
    let home = tempfile::tempdir().unwrap();
    let shorter = filled(home.path(), 10);
    place.run("backup {} --data {}", &[&backup, &shorter]).is_refused(1, &["of another log", "ends at 10"]);
    // As long as the first, and another one.
    let host = Host::start(place.home.path(), &shorter, &[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client = client_of(&host, "c").await;
        let chat = client.create_session(S).await;
        client.subscribe(&chat).await;
        client.run(&chat, "t", "/words 20").await;
    });
    place.run("backup {} --data {}", &[&backup, &shorter]).is_refused(1, &["of another log", "event 20"]);
    assert_eq!(host.stop("TERM").0, 0);
    place.run("restore {} --data {}", &[&backup, &place.at("copy")]).printed();
    let manifest = backup.join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let not_written = "it is not what was written, so nothing of this backup can be trusted";
    for (edited, words) in [
        (text.replacen("\"upto\":20", "\"upto\":10", 1).into_bytes(), not_written),
        (text[..100].to_owned().into_bytes(), not_written),
        ([&text.as_bytes()[..100], &[0xff; 20], &text.as_bytes()[120..]].concat(), not_written),
        (with(&text, "\"format\":1", "\"format\":2").into_bytes(), "written by a newer Scrollback"),
    ] {
        fs::write(&manifest, edited).unwrap();
        place.run("restore {} --data {}", &[&backup, &place.at("other")]).is_refused(1, &["manifest.json", words]);
        place.run("backup {} --data {}", &[&backup, &data]).is_refused(1, &["manifest.json", words]);
    }
    // Somebody's manifest leads out of the backup, and to what has no end.
    fs::write(&manifest, with(&text, "000001-0001.jsonl", "../../../dev/zero")).unwrap();
    place.run("restore {} --data {}", &[&backup, &place.at("other")]).is_refused(1, &["is no name of a part"]);
    fs::write(&manifest, &text).unwrap();
    let part = backup.join("parts/000001-0001.jsonl");
    fs::rename(&part, place.at("part")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &part).unwrap();
    place.run("restore {} --data {}", &[&backup, &place.at("other")]).is_refused(1, &["0001.jsonl", "and no file"]);
    assert!(!place.at("other").exists());
}

/// The manifest with one thing in another's place, and a right checksum.
fn with(manifest: &str, from: &str, to: &str) -> String {
    let value: Value = serde_json::from_str(manifest).unwrap();
    let text = value["manifest"].to_string();
    assert!(text.contains(from), "{text}");
    let text = text.replacen(from, to, 1);
    let sum = scrollback::projections::people::hash(&text);
    format!("{{\"manifest\":{text},\"sha256\":\"{sum}\"}}\n")
}
