//! Backups and restores, one after the other.

use std::fs;

use serde_json::json;

use super::*;

impl Place {
    #[track_caller]
    fn back_up(&self, to: &Path) -> Value {
        self.object("backup {} --data {}", &[to, &self.data])
    }

    /// Restores, and returns what was said.
    #[track_caller]
    fn restore(&self, from: &Path, to: &Path) -> Value {
        let said = self.object("restore {} --data {}", &[from, to]);
        self.is_sound(to);
        said
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_of_a_backup_has_every_event_and_every_state_and_the_numbers_jump() {
    let place = Place::new();
    place.fill().await;
    let (backup, copy) = (place.at("backup"), place.at("copy"));
    let made = place.back_up(&backup);
    let events = place.events(&place.data);
    assert_eq!((&made["events"], &made["attachments"], &made["anew"]), (&json!(events.len()), &json!(1), &json!(true)));
    is_for_the_owner_alone(&backup);
    let restored = place.restore(&backup, &copy);
    is_for_the_owner_alone(&copy);
    let mut copied = place.events(&copy);
    let jump = copied.pop().unwrap();
    assert_eq!(copied, events);
    assert_eq!((&jump["type"], &jump["action"]["upto"]), (&json!("host/restored"), &made["upto"]));
    assert!(jump["serverSeq"].as_u64().unwrap() > made["upto"].as_u64().unwrap() + (1 << 32));
    assert_eq!(restored["next"].as_u64().unwrap(), jump["serverSeq"].as_u64().unwrap() + 1);
    let (mut before, mut after) = (place.states(&place.data, None), place.states(&copy, None));
    // The jump is an event of the root, and changes nothing of it.
    for states in [&mut before, &mut after] {
        states.get_mut("ahp-root://").unwrap()["fromSeq"] = json!(null);
    }
    assert_eq!(after, before);
    // A backup of what was restored goes on in the directory of the first.
    let host = Host::start(place.home.path(), &copy, &[]);
    client_of(&host, "d").await.create_session("ahp-session:/new").await;
    assert_eq!(host.stop("TERM").0, 0);
    let second = place.object("backup {} --data {}", &[&backup, &copy]);
    assert_eq!(second["anew"], json!(false));
    place.restore(&backup, &place.at("third"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_backup_writes_what_is_new_alone() {
    let place = Place::new();
    place.fill().await;
    let backup = place.at("backup");
    let first = place.back_up(&backup);
    assert!(first["written"].as_u64().unwrap() > 700_000);
    let size = bytes_under(&backup);
    let nothing = place.back_up(&backup);
    assert_eq!((&nothing["events"], &nothing["written"]), (&json!(0), &json!(0)));
    assert_eq!(bytes_under(&backup), size);

    let host = place.host();
    let mut client = client_of(&host, "d").await;
    client.subscribe(F).await;
    client.run(F, "f1", "/say a few words more").await;
    let second = place.back_up(&backup);
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    let (events, written) = (second["events"].as_u64().unwrap(), second["written"].as_u64().unwrap());
    let all = place.events(&place.data);
    assert!(0 < events && events < 100 && written < 100_000, "{second}");
    assert_eq!(second["bytes"].as_u64().unwrap(), first["bytes"].as_u64().unwrap() + written);
    let copy = place.at("copy");
    place.restore(&backup, &copy);
    let upto = second["upto"].as_u64().unwrap();
    let then: Vec<_> = all.into_iter().filter(|event| event["serverSeq"].as_u64().unwrap() <= upto).collect();
    let mut copied = place.events(&copy);
    copied.pop();
    assert_eq!(copied, then);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_work_after_a_restore_and_not_after_an_import() {
    let place = Place::new();
    let host = place.host();
    let token = place.object("user add ada --role member --data {}", &[&place.data])["token"].clone();
    assert_eq!(host.stop("TERM").0, 0);
    let (backup, file) = (place.at("backup"), place.at("log.jsonl"));
    place.back_up(&backup);
    place.restore(&backup, &place.at("restored"));
    place.run("log export --data {} -o {}", &[&place.data, &file]).printed();
    place.run("log import {} --data {}", &[&file, &place.at("imported")]).printed();
    for (name, works) in [("restored", true), ("imported", false)] {
        let host = Host::start(place.home.path(), &place.at(name), &[]);
        let token_file = place.at("token");
        fs::write(&token_file, token.as_str().unwrap()).unwrap();
        let listed = place.run("log list --limit 1 --url {} --token-file {}", &[Path::new(&host.url()), &token_file]);
        // A member may not read the log, and hears that; a stranger's token is not taken.
        assert_eq!(listed.err.contains("needs log:read"), works, "{listed:?}");
        assert_eq!(listed.err.contains("does not take this token"), !works, "{listed:?}");
        let backed_up =
            place.run("backup {} --url {} --token-file {}", &[&place.at("b"), Path::new(&host.url()), &token_file]);
        assert!(backed_up.status == 1 && !backed_up.err.contains("event"), "{backed_up:?}");
        assert_eq!(host.stop("TERM").0, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_erased_is_not_in_a_backup_that_is_made_later() {
    let place = Place::new();
    place.fill().await;
    let host = place.host();
    let mut client = client_of(&host, "d").await;
    client.create_chat(S, "ahp-chat:/x").await;
    client.subscribe("ahp-chat:/x").await;
    let said = "nothing that anybody should read";
    client.run("ahp-chat:/x", "x1", &format!("/say {said}")).await;
    let backup = place.at("backup");
    place.back_up(&backup);
    let has_it = || {
        let parts = fs::read_dir(backup.join("parts")).unwrap().flatten();
        // The demo says it word by word; the message has it whole.
        parts.filter(|part| fs::read_to_string(part.path()).unwrap().contains(said)).count()
    };
    assert_eq!(has_it(), 1);
    place.run("log erase ahp-chat:/x --yes --data {}", &[&place.data]).printed();
    let second = place.back_up(&backup);
    assert_eq!((&second["anew"], has_it()), (&json!(true), 0));
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    place.restore(&backup, &place.at("copy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_was_damaged_is_told_and_made_anew() {
    let place = Place::new();
    place.fill().await;
    let backup = place.at("backup");
    place.back_up(&backup);
    let part = fs::read_dir(backup.join("parts")).unwrap().next().unwrap().unwrap().path();
    let whole = fs::read(&part).unwrap();
    let name = part.to_str().unwrap();
    for (damaged, words) in [
        (whole[..whole.len() / 2].to_vec(), "its length is wrong"),
        ([&whole[..900], b"X", &whole[901..]].concat(), "its checksum is wrong"),
    ] {
        fs::write(&part, damaged).unwrap();
        let copy = place.at("copy");
        place.run("restore {} --data {}", &[&backup, &copy]).is_refused(1, &[name, words]);
        assert!(!copy.join("FORMAT").exists());
    }
    let ran = place.run("backup {} --data {} --json", &[&backup, &place.data]);
    assert!(ran.status == 0 && ran.err.contains("made anew") && ran.out.contains("\"anew\":true"), "{ran:?}");
    place.restore(&backup, &place.at("copy"));
    let attachment = modes_under(&backup.join("attachments")).pop().unwrap().0;
    fs::remove_file(&attachment).unwrap();
    let missing = place.run("restore {} --data {}", &[&backup, &place.at("other")]);
    missing.is_refused(1, &[attachment.to_str().unwrap(), "it is missing in the backup"]);
}
