//! Which chat is the default one, and which may be moved: all but that one, workers and hidden ones.

use std::sync::Arc;

use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, TestHost, envelopes, on, types};

const S: &str = "ahp-session:/s";
const ROOT: &str = "ahp-root://";
const P: &str = "ahp-chat:/p";
const Q: &str = "ahp-chat:/q";

async fn open(host: &TestHost) -> (Client, String) {
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    client.create_chat(S, P).await;
    client.create_chat(S, Q).await;
    client.subscribe(S).await;
    (client, first)
}

/// By chat, whether it says of itself that it is movable; its session has to say the same.
async fn movable(client: &mut Client, chats: &[&str]) -> Vec<bool> {
    let listed = client.subscribe(S).await["state"]["chats"].clone();
    let mut all = Vec::new();
    for chat in chats {
        let own = client.subscribe(chat).await["state"]["movable"].clone();
        let entry = listed.as_array().unwrap().iter().find(|entry| entry["resource"] == json!(chat)).unwrap();
        assert_eq!(entry["movable"], own, "{chat}");
        all.push(own.as_bool().unwrap());
    }
    all
}

fn default(chat: &str) -> Value {
    json!({ "type": "session/defaultChatChanged", "defaultChat": chat })
}

#[tokio::test]
async fn all_but_the_default_chat_are_movable_and_a_change_of_the_role_moves_that() {
    let host = TestHost::in_memory();
    let (mut client, first) = open(&host).await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, S, &first, P, Q]).await;
    assert_eq!(movable(&mut client, &[&first, P, Q]).await, [false, true, true]);
    client.drain().await;
    client.accepted(S, default(Q)).await;
    let said = envelopes(&client.drain().await);
    let of_chat =
        |chat: &str| -> Vec<Value> { on(&said, chat).iter().map(|e| e["action"]["movable"].clone()).collect() };
    assert_eq!((of_chat(&first), of_chat(Q)), (vec![json!(true)], vec![json!(false)]));
    assert_eq!(movable(&mut client, &[&first, P, Q]).await, [true, true, false]);
    client.ask("disposeChat", json!({ "channel": Q })).await.unwrap();
    // The last in order: the role goes to the one before.
    assert_eq!(client.subscribe(S).await["state"]["defaultChat"], json!(P));
    assert_eq!(movable(&mut client, &[&first, P]).await, [true, false]);
    for channel in [ROOT, S, &first, P] {
        mirrored.compare(channel).await.unwrap();
    }
    assert!(mirrored.compare(Q).await.is_none());
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn the_role_and_what_is_movable_outlive_a_restart_and_need_nobody_awake() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let (_, first) = open(&host).await;
    host.stop();
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = host.client("c").await;
    client.subscribe(S).await;
    client.accepted(S, default(P)).await;
    host.stop();
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut client = host.client("c").await;
    assert_eq!(movable(&mut client, &[&first, P, Q]).await, [true, false, true]);
    assert_eq!(client.subscribe("ahp-chat:/s").await["state"]["resource"], json!(P));
    verify(store.as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_role_that_is_held_already_moves_nothing() {
    let host = TestHost::in_memory();
    let (mut client, first) = open(&host).await;
    let before = host.quiet_tail().await;
    assert_eq!(client.accepted(S, default(&first)).await["serverSeq"], json!(before));
    for nobody in ["ahp-chat:/none", "ahp-chat:/s", ""] {
        assert_eq!(client.rejected(S, default(nobody)).await, "malformed", "{nobody}");
    }
    assert_eq!(client.rejected(S, json!({ "type": "session/defaultChatChanged" })).await, "malformed");
    assert_eq!(host.host.store().tail(), before);
    assert!(types(&envelopes(&client.drain().await)).is_empty());
}
