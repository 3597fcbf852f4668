//! Exports and imports.

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::command::{filled, scrollback};
use crate::harness::markdown;

/// The lines of an export behind its header, which has the time in it.
fn behind_the_header(export: &Path) -> Vec<String> {
    fs::read_to_string(export).unwrap().lines().skip(1).map(str::to_owned).collect()
}

/// Events as they are listed, without what the hash of a token takes.
fn without_lengths_of_tokens(mut events: Vec<Value>) -> Vec<Value> {
    for event in events.iter_mut().filter(|event| event["type"] == json!("host/userTokenMade")) {
        event["bytes"] = Value::Null;
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_an_export_has_every_event_and_every_state() {
    let place = Place::new();
    place.fill().await;
    let (file, copy, again) = (place.at("log.jsonl"), place.at("copy"), place.at("again.jsonl"));
    let said = place.object("log export --data {} -o {}", &[&place.data, &file]);
    let events = place.events(&place.data);
    assert_eq!(said["events"], json!(events.len()));
    let loaded = place.object("log import {} --data {}", &[&file, &copy]);
    assert_eq!((&loaded["events"], &loaded["attachments"]), (&json!(events.len()), &json!(1)));
    place.is_sound(&copy);
    is_for_the_owner_alone(&copy);
    assert_eq!(without_lengths_of_tokens(place.events(&copy)), without_lengths_of_tokens(events));
    assert_eq!(place.states(&copy, None), place.states(&place.data, None));
    place.run("log export --data {} -o {}", &[&copy, &again]).printed();
    assert_eq!(behind_the_header(&again), behind_the_header(&file));
    // No hash of a token travels, and what was erased is not there.
    let text = fs::read_to_string(&file).unwrap();
    let hash = text.lines().find(|line| line.contains("host/userTokenMade")).unwrap();
    assert!(hash.contains("\"hash\":\"\""), "{hash}");
    assert!(text.contains("<p>page</p>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_on_an_import_goes_on_where_the_other_stopped() {
    let place = Place::new();
    place.fill().await;
    let (file, copy) = (place.at("log.jsonl"), place.at("copy"));
    place.run("log export --data {} -o {}", &[&place.data, &file]).printed();
    place.run("log import {} --data {}", &[&file, &copy]).printed();
    let newest = place.object("log stats --data {}", &[&copy])["newest"].as_u64().unwrap();
    let host = Host::start(place.home.path(), &copy, &[]);
    let mut client = client_of(&host, "d").await;
    // The fork of a chat that was erased has its turns, and goes on.
    let snapshot = client.subscribe(G).await;
    assert!(markdown(&snapshot["state"]["turns"][0]).concat().contains(SECRET), "{snapshot}");
    let envelopes = client.run(G, "g1", "/say on").await;
    assert!(envelopes.iter().all(|envelope| envelope["serverSeq"].as_u64().unwrap() > newest));
    // An id that was used once stays used.
    client.subscribe(&first_chat()).await;
    let refused = client.say(&first_chat(), "t3", "again").await;
    assert!(client.echo(refused).await["rejectionReason"].as_str().unwrap().starts_with("duplicate-turn"));
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    place.is_sound(&copy);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_one_channel_stands_by_itself() {
    let place = Place::new();
    place.fill().await;
    for (number, uri) in [F, G, &first_chat(), S, "scrollback:people", "ahp-root://"].into_iter().enumerate() {
        let (file, copy) = (place.at(&format!("{number}.jsonl")), place.at(&format!("copy{number}")));
        place.run("log export --channel {} --data {} -o {}", &[Path::new(uri), &place.data, &file]).printed();
        place.run("log import {} --data {}", &[&file, &copy]).printed();
        place.is_sound(&copy);
        let state = |data: &Path| place.object("log state {} --data {}", &[Path::new(uri), data]);
        assert_eq!(state(&copy), state(&place.data), "{uri}");
    }
    // The fork came with the turns of its source and with the attachment, and not with the source.
    let copy = place.at("copy0");
    assert!(place.events(&copy).iter().all(|event| event["channel"] != json!(first_chat())));
    assert!(bytes_under(&copy.join("attachments")) >= 700_000);
    let host = Host::start(place.home.path(), &copy, &[]);
    let mut client = client_of(&host, "d").await;
    let turns = client.subscribe(F).await["state"]["turns"].clone();
    assert_eq!(turns.as_array().unwrap().len(), 5);
    client.run(F, "f1", "/say on").await;
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    place.is_sound(&copy);
    let none = place.run("log export --channel ahp-chat:/none --data {}", &[&place.data]);
    none.is_refused(1, &["there is no channel ahp-chat:/none"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_goes_to_stdout_and_an_import_comes_from_stdin_and_a_host_exports_the_same() {
    let place = Place::new();
    place.fill().await;
    let file = place.at("log.jsonl");
    place.run("log export --data {} -o {}", &[&place.data, &file]).printed();
    let printed = place.run("log export --data {}", &[&place.data]).printed();
    assert_eq!(printed.lines().skip(1).collect::<Vec<_>>(), behind_the_header(&file));
    let mut import = crate::command::scrollback(place.home.path(), &["log", "import", "-", "--data", "piped"]);
    let ran = import.stdin(fs::File::open(&file).unwrap()).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let host = Host::start(place.home.path(), &place.at("piped"), &[]);
    let of_host = place.run("log export --data {}", &[&place.at("piped")]).printed();
    assert_eq!(host.stop("TERM").0, 0);
    // A start may add events of its own; what was there is the same.
    let records = |lines: Vec<&str>| -> Vec<String> {
        lines.into_iter().filter(|line| line.starts_with("{\"serverSeq\"")).map(str::to_owned).collect()
    };
    let (ours, theirs) = (records(printed.lines().collect()), records(of_host.lines().collect()));
    assert_eq!(theirs[..ours.len()], ours);
}

/// Somebody who exports to a link, a pipe or a device means what it stands for.
#[test]
fn an_export_goes_into_what_its_path_names_and_replaces_files_alone() {
    let place = Place::new();
    let data = filled(place.home.path(), 10);
    let (plain, real, link, pipe) = (place.at("plain"), place.at("real"), place.at("link"), place.at("pipe"));
    place.run("log export --data {} -o {}", &[&data, &plain]).printed();
    fs::write(&real, "older\n").unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    place.run("log export --data {} -o {}", &[&data, &link]).printed();
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("real"));
    assert_eq!(behind_the_header(&real), behind_the_header(&plain));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    place.run("log export --data {} -o {}", &[&data, &pipe]).printed();
    let through: Vec<_> = reader.join().unwrap().lines().skip(1).map(str::to_owned).collect();
    assert_eq!(through, behind_the_header(&plain));
    assert!(!fs::metadata(&pipe).unwrap().is_file());
    // A link to nothing, and one to itself, are told of.
    for (name, target) in [("dangling", "nothing"), ("around", "around")] {
        let link = place.at(name);
        std::os::unix::fs::symlink(target, &link).unwrap();
        place.run("log export --data {} -o {}", &[&data, &link]).is_refused(1, &[name]);
        assert!(link.is_symlink());
    }
}

#[test]
fn paths_that_are_no_text_are_as_good_as_others() {
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    let odd = |name: &str| place.home.path().join(std::ffi::OsStr::from_bytes(&[name.as_bytes(), b"\xff\nx"].concat()));
    let (data, file, copy, backup, again) = (odd("data"), odd("file"), odd("copy"), odd("backup"), odd("again"));
    fs::rename(filled(place.home.path(), 10), &data).unwrap();
    let run = |words: &str, paths: &[&Path]| {
        let mut paths = paths.iter();
        let mut command = scrollback(place.home.path(), &[]);
        for word in words.split(' ') {
            match word {
                "{}" => command.arg(paths.next().unwrap()),
                word => command.arg(word),
            };
        }
        Ran::from(command.output().unwrap()).printed()
    };
    for (verb, paths) in [
        ("log export --json --data {} -o {}", [&data, &file]),
        ("log import --json {} --data {}", [&file, &copy]),
        ("backup --json {} --data {}", [&backup, &data]),
        ("restore --json {} --data {}", [&backup, &again]),
    ] {
        let said: Value = serde_json::from_str(&run(verb, &paths.map(PathBuf::as_path))).unwrap();
        assert_eq!(said["events"], json!(10), "{verb}: {said}");
    }
    for data in [&copy, &again] {
        assert!(run("log verify --data {}", &[data]).starts_with("ok: "));
    }
}
