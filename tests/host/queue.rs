//! Waiting messages: first in, first out, one turn each, and a pause after every ending but a natural one.

use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, message, on, types, word};

const S: &str = "ahp-session:/s";

/// Runs a turn that waits for a person.
async fn busy(client: &mut Client, chat: &str, turn: &str) {
    client.say(chat, turn, "/question sure?").await;
    client.until_type("chat/inputRequested").await;
}

/// Lets the waiting turn complete.
async fn finish(client: &mut Client, chat: &str) {
    let state = client.subscribe(chat).await["state"].clone();
    let parts = state["activeTurn"]["responseParts"].as_array().unwrap().clone();
    let open = parts.iter().find(|part| part["kind"] == json!("inputRequest")).unwrap();
    let answer = json!({ "type": "chat/inputCompleted", "requestId": open["request"]["id"], "response": "decline" });
    client.dispatch(chat, answer).await;
}

async fn waiting(client: &mut Client, chat: &str) -> Vec<String> {
    let state = client.subscribe(chat).await["state"].clone();
    let queued = state["queuedMessages"].as_array().cloned().unwrap_or_default();
    queued.iter().map(|queued| queued["id"].as_str().unwrap().to_owned()).collect()
}

async fn paused(client: &mut Client) -> Value {
    client.subscribe(S).await["state"]["_meta"]["scrollback.pausedQueues"].clone()
}

fn set(id: &str, text: &str) -> Value {
    json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message(text) })
}

fn removed(id: &str) -> Value {
    json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id })
}

#[tokio::test]
async fn a_message_queued_while_idle_goes_out_at_once_in_two_steps() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    client.queue(&chat, "m1", "hello").await;
    let seen = client.until(|e| e["action"]["type"] == json!("chat/turnComplete")).await;
    let seen = on(&seen, &chat);
    let first = ["chat/pendingMessageSet", "chat/pendingMessageRemoved", "chat/turnStarted"];
    assert_eq!(types(&seen)[..3], first);
    assert_eq!(seen[2]["action"]["queuedMessageId"], json!("m1"));
    assert_eq!(seen[2].get("origin"), None);
    assert_eq!(waiting(&mut client, &chat).await, Vec::<String>::new());
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!("hello"));
}

#[tokio::test]
async fn queued_messages_go_out_first_in_first_out_one_turn_each() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t").await;
    for id in ["m1", "m2", "m3"] {
        client.queue(&chat, id, &format!("/say {id}")).await;
    }
    client.envelope(|e| e["action"]["id"] == json!("m3")).await;
    assert_eq!(waiting(&mut client, &chat).await, ["m1", "m2", "m3"]);
    finish(&mut client, &chat).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.extend(client.until(|e| e["action"]["type"] == json!("chat/turnComplete")).await);
    }
    let kinds = ["chat/turnComplete", "chat/pendingMessageRemoved", "chat/turnStarted"];
    let steps: Vec<Value> =
        on(&seen, &chat).into_iter().filter(|e| kinds.contains(&types(std::slice::from_ref(e))[0])).collect();
    let expected = [kinds[0], kinds[1], kinds[2], kinds[0], kinds[1], kinds[2], kinds[0], kinds[1], kinds[2], kinds[0]];
    assert_eq!(types(&steps), expected);
    let ids = |n: usize| steps[n]["action"]["queuedMessageId"].clone();
    assert_eq!([ids(2), ids(5), ids(8)], [json!("m1"), json!("m2"), json!("m3")]);
}

#[tokio::test]
async fn every_ending_but_a_natural_one_pauses_the_queue_and_shows_it() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    for (turn, script) in [("t1", "/question a"), ("t2", "/question a\n/fail no"), ("t3", "/question a\n/crash")] {
        client.say(&chat, turn, script).await;
        client.until_type("chat/inputRequested").await;
        let id = format!("m-{turn}");
        client.accepted(&chat, set(&id, "waits")).await;
        assert_ne!(paused(&mut client).await, json!([chat]), "{turn}");
        if turn == "t1" {
            client.cancel(&chat, turn).await;
        } else {
            finish(&mut client, &chat).await;
        }
        client.until_ended(turn).await;
        let meta = client.until_type("session/metaChanged").await;
        assert_eq!(meta["action"]["_meta"]["scrollback.pausedQueues"], json!([chat]), "{turn}");
        // Taking back the last one lifts the pause: an empty queue is not paused.
        client.accepted(&chat, removed(&id)).await;
        assert_eq!(paused(&mut client).await, json!([]), "{turn}");
    }
}

#[tokio::test]
async fn an_empty_queue_is_not_paused() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t").await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    client.queue(&chat, "m", "/say goes").await;
    let sent = client.until_type("chat/turnStarted").await;
    assert_eq!(sent["action"]["queuedMessageId"], json!("m"));
    assert_ne!(paused(&mut client).await, json!([chat]));
}

#[tokio::test]
async fn a_paused_queue_survives_a_restart_and_nothing_leaves_it_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t").await;
    for id in ["m1", "m2", "m3"] {
        client.accepted(&chat, set(id, "/say x")).await;
    }
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    client.subscribe(S).await;
    assert_eq!(paused(&mut client).await, json!([chat]));
    // Neither an edit nor a new order nor taking one back lifts the pause.
    client.accepted(&chat, set("m1", "/say edited")).await;
    client.accepted(&chat, json!({ "type": "chat/queuedMessagesReordered", "order": ["m2"] })).await;
    client.accepted(&chat, removed("m3")).await;
    let seen = client.drain().await;
    assert!(seen.iter().all(|m| m["params"]["action"]["type"] != json!("chat/turnStarted")), "{seen:?}");
    assert_eq!(waiting(&mut client, &chat).await, ["m2", "m1"]);
    // A new one does: it is appended, the head goes out, the rest follow.
    client.queue(&chat, "m4", "/say last").await;
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.push(client.until_type("chat/turnStarted").await["action"]["queuedMessageId"].clone());
        client.until_type("chat/turnComplete").await;
    }
    assert_eq!(sent, [json!("m2"), json!("m1"), json!("m4")]);
    assert_eq!(paused(&mut client).await, json!([]));
}

#[tokio::test]
async fn a_persons_turn_lifts_the_pause_and_the_queue_follows_it() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t1").await;
    client.accepted(&chat, set("m", "/say queued")).await;
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    client.say(&chat, "t2", "/say first").await;
    client.until_ended("t2").await;
    let sent = client.until_type("chat/turnStarted").await;
    assert_eq!(sent["action"]["queuedMessageId"], json!("m"));
    client.until_type("chat/turnComplete").await;
    assert_eq!(paused(&mut client).await, json!([]));
}

#[tokio::test]
async fn a_waiting_message_is_edited_in_its_place_and_the_edit_is_what_goes_out() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t").await;
    for id in ["m1", "m2"] {
        client.accepted(&chat, set(id, "/say old")).await;
    }
    client.accepted(&chat, set("m1", "/say new")).await;
    assert_eq!(waiting(&mut client, &chat).await, ["m1", "m2"]);
    finish(&mut client, &chat).await;
    let sent = client.until_type("chat/turnStarted").await;
    assert_eq!(sent["action"]["message"]["text"], json!("/say new"));
}

#[tokio::test]
async fn an_id_that_went_out_or_was_taken_back_stays_used() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[S]).await;
    client.queue(&chat, "went", "/say x").await;
    client.until_type("chat/turnComplete").await;
    busy(&mut client, &chat, "t").await;
    client.accepted(&chat, set("back", "x")).await;
    client.accepted(&chat, removed("back")).await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    let check = async |client: &mut Client| {
        for id in ["went", "back"] {
            assert_eq!(client.rejected(&chat, set(id, "again")).await, "request-not-found", "{id}");
            assert_eq!(client.rejected(&chat, removed(id)).await, "request-not-found", "{id}");
        }
        assert_eq!(client.rejected(&chat, removed("never")).await, "request-not-found");
        let order = json!({ "type": "chat/queuedMessagesReordered", "order": ["went"] });
        assert_eq!(client.rejected(&chat, order).await, "request-not-found");
    };
    check(&mut client).await;
    host.stop();
    let host = TestHost::on_disk(directory.path());
    // Another client: the same one with the same numbers would be heard as sending again.
    let mut client = host.client("d").await;
    client.subscribe(&chat).await;
    check(&mut client).await;
}

#[tokio::test]
async fn an_order_is_told_with_every_id_so_that_all_agree() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    busy(&mut client, &chat, "t").await;
    for id in ["z", "a", "m"] {
        client.accepted(&chat, set(id, "x")).await;
    }
    let order = |ids: Value| json!({ "type": "chat/queuedMessagesReordered", "order": ids });
    let echo = client.accepted(&chat, order(json!(["m", "gone", "m"]))).await;
    assert_eq!(echo["action"]["order"], json!(["m", "z", "a"]));
    let heard = other.until_type("chat/queuedMessagesReordered").await;
    assert_eq!(heard["action"], echo["action"]);
    assert_eq!(waiting(&mut client, &chat).await, ["m", "z", "a"]);
    // What changes nothing is heard by its sender alone, and takes no number.
    let again = client.accepted(&chat, order(json!(["m"]))).await;
    assert_eq!(again["serverSeq"], echo["serverSeq"]);
    client.accepted(&chat, set("q", "x")).await;
    other.envelope(|e| e["action"]["id"] == json!("q")).await;
    let rest = other.drain().await;
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_clients_own_turn_takes_nothing_out_of_the_queue() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t1").await;
    client.accepted(&chat, set("m", "/say queued")).await;
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    let claims = json!({ "type": "chat/turnStarted", "turnId": "t2", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": message("/question sure?"), "queuedMessageId": "m" });
    let echo = client.accepted(&chat, claims).await;
    assert_eq!(echo["action"].get("queuedMessageId"), None);
    assert_eq!(waiting(&mut client, &chat).await, ["m"]);
}

#[tokio::test]
async fn so_many_messages_wait_and_no_more() {
    let settings = HostSettings { max_queued_messages: 2, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat) = host.open(&[S]).await;
    busy(&mut client, &chat, "t").await;
    client.accepted(&chat, set("m1", "x")).await;
    client.accepted(&chat, set("m2", "x")).await;
    assert_eq!(client.rejected(&chat, set("m3", "x")).await, "limit-exceeded");
    assert!(crate::harness::met("queued_messages") > 0);
    client.accepted(&chat, set("m2", "edited")).await;
    client.accepted(&chat, removed("m1")).await;
    client.accepted(&chat, set("m3", "x")).await;
    assert_eq!(waiting(&mut client, &chat).await, ["m2", "m3"]);
}

#[tokio::test]
async fn a_kind_of_waiting_that_nobody_knows_is_malformed() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let odd = json!({ "type": "chat/pendingMessageSet", "kind": "later", "id": "s", "message": message("x") });
    assert_eq!(word(&client.act(&chat, odd).await), "malformed");
}
