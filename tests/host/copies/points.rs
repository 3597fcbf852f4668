//! Restores to every point of a log.

use std::sync::atomic::AtomicBool;

use scrollback::events::{SledOptions, SledStore};
use scrollback::projections::compaction;
use serde_json::json;

use super::*;
use crate::command::filled;

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_at_every_event_has_the_states_of_then() {
    let place = Place::new();
    let host = place.host();
    let mut client = client_of(&host, "c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "/say one").await;
    let source = json!({ "kind": "fork", "chat": chat, "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    client.run(&chat, "t2", "/tool read x").await;
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    let backup = place.at("backup");
    let upto = place.object("backup {} --data {}", &[&backup, &place.data])["upto"].as_u64().unwrap();
    let events = place.events(&place.data);
    let lines = place.run("log export --data {}", &[&place.data]).printed();
    let batches: Vec<(u64, u64)> = lines
        .lines()
        .filter(|line| line.starts_with("{\"serverSeq\""))
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["serverSeq"].as_u64().unwrap(), line["batch"][1].as_u64().unwrap()))
        .collect();
    let mut restored_to = 0;
    for (seq, last_of_batch) in batches {
        let copy = place.at(&format!("at{seq}"));
        let said = place.object(&format!("restore {{}} --at {seq} --data {{}}"), &[&backup, &copy]);
        if seq != last_of_batch {
            // Of one decision all events come, or none.
            assert_eq!((&said["upto"], &said["leftOutTo"]), (&json!(restored_to), &json!(last_of_batch)), "at {seq}");
            continue;
        }
        restored_to = seq;
        assert_eq!((&said["upto"], said.get("leftOutTo")), (&json!(seq), None), "at {seq}");
        let mut copied = place.events(&copy);
        assert_eq!(copied.pop().unwrap()["type"], json!("host/restored"));
        assert_eq!(copied, events[..copied.len()]);
        let (mut then, mut now) = (place.states(&place.data, Some(restored_to)), place.states(&copy, None));
        now.get_mut("ahp-root://").unwrap()["fromSeq"] = then["ahp-root://"]["fromSeq"].clone();
        then.retain(|uri, _| uri != "scrollback:people");
        now.retain(|uri, _| uri != "scrollback:people");
        assert_eq!(now, then, "at {seq}");
    }
    assert_eq!(restored_to, upto);
    let beyond = place.run(&format!("restore {{}} --at {} --data {{}}", upto + 1), &[&backup, &place.at("beyond")]);
    beyond.is_refused(1, &["there is no event", &format!("its newest is {upto}")]);
    place
        .run("restore {} --at 0 --data {}", &[&backup, &place.at("none")])
        .is_refused(1, &["nothing was decided by then"]);
    // A host goes on from the middle: what ran then is taken up or ended.
    let middle = place.at(&format!("at{}", upto - 2));
    let host = Host::start(place.home.path(), &middle, &[]);
    let mut client = client_of(&host, "d").await;
    client.subscribe(&chat).await;
    client.run(&chat, "t9", "/say on").await;
    client.hang_up().await;
    assert_eq!(host.stop("TERM").0, 0);
    place.is_sound(&middle);
}

fn opened(data: &Path) -> SledStore {
    SledStore::open(data, SledOptions::default()).unwrap()
}

/// A compaction puts a copy in the log's place that was held against it; what that finds is looked at here with copies that lack something.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_is_not_what_the_log_is_does_not_take_its_place() {
    let place = Place::new();
    place.fill().await;
    let backup = place.at("backup");
    let upto = place.object("backup {} --data {}", &[&backup, &place.data])["upto"].as_u64().unwrap();
    let old = opened(&place.data);
    let check = |new: &SledStore, upto| compaction::check(&old, new, upto, &AtomicBool::new(false));
    let copy_at = |seq: u64| {
        let copy = place.at(&format!("copy{seq}"));
        place.run(&format!("restore {{}} --at {seq} --data {{}}"), &[&backup, &copy]).printed();
        opened(&copy)
    };
    let whole = copy_at(upto);
    assert_eq!(check(&whole, upto), Ok(()));
    let short = copy_at(upto / 2);
    assert_eq!(check(&short, upto / 4), Ok(()));
    let fault = check(&short, upto).unwrap_err();
    assert!(fault.ends_with(" is missing"), "{fault}");
    let other = opened(&filled(place.home.path(), upto));
    let fault = check(&other, upto).unwrap_err();
    assert!(fault.ends_with(" is not what it was"), "{fault}");
}
