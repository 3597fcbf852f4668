//! Chats of a session: one name each, a default whose role moves on, and peers that are opened and closed.

use scrollback::access::Identity;
use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, envelopes, message, on, streamed, types};

const S: &str = "ahp-session:/s";
const ROOT: &str = "ahp-root://";

fn resources(state: &Value) -> Vec<&str> {
    state["chats"].as_array().unwrap().iter().map(|chat| chat["resource"].as_str().unwrap()).collect()
}

async fn session(client: &mut Client) -> Value {
    client.subscribe(S).await["state"].clone()
}

#[tokio::test]
async fn the_first_chat_has_one_name_everywhere() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let state = session(&mut client).await;
    assert_eq!(state["defaultChat"], json!(chat));
    assert_eq!(resources(&state), [chat.as_str()]);
    assert_eq!(client.subscribe(&chat).await["state"]["resource"], json!(chat));
    let listed = client.listed().await;
    assert_eq!(listed[0]["defaultChat"], json!(chat));
    assert_eq!(resources(&listed[0]), [chat.as_str()]);
}

#[tokio::test]
async fn a_subscription_under_a_synonym_hears_everything_under_that_name() {
    let host = TestHost::in_memory();
    let mut speaker = host.client("a").await;
    let mut listener = host.client("b").await;
    let chat = speaker.create_session(S).await;
    let snapshot = listener.subscribe("ahp-chat:/s").await;
    assert_eq!(snapshot["resource"], json!("ahp-chat:/s"));
    assert_eq!(snapshot["state"]["resource"], json!(chat));
    speaker.subscribe(&chat).await;
    let own = on(&speaker.run(&chat, "t1", "hello").await, &chat);
    let heard = listener.until_ended("t1").await;
    assert_eq!(on(&heard, &chat), Vec::<Value>::new());
    let heard = on(&heard, "ahp-chat:/s");
    let numbers = |seen: &[Value]| seen.iter().map(|e| e["serverSeq"].clone()).collect::<Vec<_>>();
    assert_eq!(numbers(&heard), numbers(&own));

    // What it says under the synonym is the chat's, for everybody.
    let seq = listener.say("ahp-chat:/s", "t2", "from here").await;
    assert_eq!(listener.echo(seq).await["channel"], json!("ahp-chat:/s"));
    let seen = speaker.until_ended("t2").await;
    assert_eq!(on(&seen, "ahp-chat:/s"), Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_that_uses_both_names_hears_each_event_under_both() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.subscribe("ahp-chat:/s").await;
    client.say(&chat, "t", "hello").await;
    let ended = |name: &'static str| {
        move |e: &Value| e["action"]["type"] == json!("chat/turnComplete") && e["channel"] == json!(name)
    };
    let mut seen = client.until(ended("ahp-chat:/s")).await;
    if !seen.iter().any(|e| e["action"]["type"] == json!("chat/turnComplete") && e["channel"] == json!(chat)) {
        seen.extend(client.until(|e| e["channel"] == json!(chat)).await);
    }
    let of = |name: &str| -> Vec<Value> {
        seen.iter().filter(|e| e["channel"] == json!(name)).map(|e| e["serverSeq"].clone()).collect()
    };
    assert_eq!(of(&chat), of("ahp-chat:/s"));
}

#[tokio::test]
async fn of_two_sessions_with_one_id_the_synonym_is_the_older_ones() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let older = client.create_session("demo:/x").await;
    client.create_session("ahp-session:/x").await;
    assert_eq!(client.subscribe("ahp-chat:/x").await["state"]["resource"], json!(older));
}

#[tokio::test]
async fn nobody_creates_a_chat_under_a_synonym() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session(S).await;
    let other = client.create_session("ahp-session:/other").await;
    for name in ["ahp-chat:/s", "ahp-chat:/other"] {
        let params = json!({ "channel": S, "chat": name });
        assert_eq!(client.refused("createChat", params).await, (-32010, "already-exists".to_owned()), "{name}");
    }
    for name in [other.as_str(), "ahp-chat://default/bm9ib2R5", "ahp-chat://subagent/bm9ib2R5/x", "https://x/"] {
        assert_eq!(client.refused("createChat", json!({ "channel": S, "chat": name })).await.0, -32602, "{name}");
    }
    assert_eq!(resources(&session(&mut client).await).len(), 1);
}

#[tokio::test]
async fn the_default_role_goes_to_the_next_in_order_and_the_first_uri_with_it() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    for chat in ["ahp-chat:/p", "ahp-chat:/q"] {
        client.create_chat(S, chat).await;
    }
    session(&mut client).await;
    client.ask("disposeChat", json!({ "channel": first })).await.unwrap();
    let said = envelopes(&client.drain().await);
    let said: Vec<Value> = said.into_iter().filter(|e| e["channel"] == json!(S)).collect();
    assert_eq!(types(&said), ["session/chatRemoved", "session/defaultChatChanged", "session/chatAdded"]);
    assert_eq!(said[2]["action"]["summary"]["movable"], json!(false));
    assert_eq!(said[1]["action"]["defaultChat"], json!("ahp-chat:/p"));
    assert_eq!(client.listed().await[0]["defaultChat"], json!("ahp-chat:/p"));
    for name in [first.as_str(), "ahp-chat:/s"] {
        assert_eq!(client.subscribe(name).await["state"]["resource"], json!("ahp-chat:/p"), "{name}");
    }
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/p" })).await.unwrap();
    assert_eq!(client.subscribe(&first).await["state"]["resource"], json!("ahp-chat:/q"));
    assert_eq!(client.refused("subscribe", json!({ "channel": "ahp-chat:/p" })).await.0, -32008);
}

#[tokio::test]
async fn the_default_role_of_the_last_in_order_goes_to_the_one_before() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    for chat in ["ahp-chat:/p", "ahp-chat:/q"] {
        client.create_chat(S, chat).await;
    }
    session(&mut client).await;
    let change = json!({ "type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/q" });
    client.accepted(S, change).await;
    // The first chat is still there under its own name.
    assert_eq!(client.subscribe(&first).await["state"]["resource"], json!(first));
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/q" })).await.unwrap();
    assert_eq!(session(&mut client).await["defaultChat"], json!("ahp-chat:/p"));
    let nobody = json!({ "type": "session/defaultChatChanged", "defaultChat": "ahp-chat:/q" });
    assert_eq!(client.rejected(S, nobody).await, "malformed");
}

#[tokio::test]
async fn a_peer_chat_is_announced_before_the_answer_and_has_the_sessions_agent_and_directories() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (format!("file://{}", one.path().display()), format!("file://{}", two.path().display()));
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let params = json!({ "channel": S, "workingDirectories": [one, two] });
    client.ask("createSession", params).await.unwrap();
    // The root says by itself how many there are.
    client.until_type("root/activeSessionsChanged").await;
    session(&mut client).await;
    client.drain().await;
    client.create_chat(S, "ahp-chat:/p").await;
    // The answer is awaited first, so what is read now was before it.
    let added = client.next().await.unwrap();
    assert_eq!(added["params"]["action"]["summary"]["resource"], json!("ahp-chat:/p"));
    let less = json!({ "channel": S, "chat": "ahp-chat:/q", "workingDirectories": [two] });
    client.ask("createChat", less).await.unwrap();
    for (chat, directories) in [("ahp-chat:/p", json!([one, two])), ("ahp-chat:/q", json!([two]))] {
        client.subscribe(chat).await;
        assert_eq!(streamed(&client.run(chat, "t", "/cwd").await), directories.to_string());
    }
    let outside = json!({ "channel": S, "chat": "ahp-chat:/r", "workingDirectories": ["file:///"] });
    assert_eq!(client.refused("createChat", outside).await, (-32602, "bad-directory".to_owned()));
    assert_eq!(resources(&session(&mut client).await).len(), 3);
}

#[tokio::test]
async fn a_taken_uri_is_refused_but_the_sessions_own_default_does_nothing_and_succeeds() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    let own = json!({ "channel": S, "chat": first });
    assert_eq!(client.ask("createChat", own).await.unwrap(), Value::Null);
    let taken = (-32010, "already-exists".to_owned());
    let params = json!({ "channel": S, "chat": "ahp-chat:/p" });
    assert_eq!(client.refused("createChat", params.clone()).await, taken);
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/p" })).await.unwrap();
    assert_eq!(client.refused("createChat", params).await, taken);
    let nowhere = json!({ "channel": "ahp-session:/none", "chat": "ahp-chat:/q" });
    assert_eq!(client.refused("createChat", nowhere).await, (-32001, "unknown-session".to_owned()));
}

#[tokio::test]
async fn the_last_chat_and_one_that_is_gone_are_not_disposed() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    let last = client.refused("disposeChat", json!({ "channel": first })).await;
    assert_eq!(last, (-32602, "last-chat".to_owned()));
    let gone = client.refused("disposeChat", json!({ "channel": "ahp-chat:/none" })).await;
    assert_eq!(gone, (-32008, "not-found".to_owned()));
    assert_eq!(client.subscribe(&first).await["state"]["resource"], json!(first));
}

#[tokio::test]
async fn a_disposed_chat_ends_its_turn_and_takes_no_more() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    session(&mut client).await;
    client.subscribe("ahp-chat:/p").await;
    client.say("ahp-chat:/p", "t", "/ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/p" })).await.unwrap();
    let said = envelopes(&client.drain().await);
    let on_the_chat: Vec<Value> = said.iter().filter(|e| e["channel"] == json!("ahp-chat:/p")).cloned().collect();
    assert_eq!(types(&on_the_chat).last(), Some(&"chat/turnCancelled"));
    assert!(types(&said).contains(&"session/inputNeededRemoved"), "{:?}", types(&said));
    let left = session(&mut client).await;
    assert_eq!((left.get("inputNeeded"), resources(&left)), (None, vec![first.as_str()]));
    let listed = client.listed().await[0]["chats"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    // It is kept for those who read the log.
    let kept = host.host.state_at(&Identity::root("test"), "ahp-chat:/p", None).unwrap();
    let kept: Value = serde_json::from_slice(&kept.state).unwrap();
    assert_eq!(kept["turns"][0]["state"], json!("cancelled"));
    // An action for a channel that is gone is ignored in silence.
    client.say("ahp-chat:/p", "t2", "late").await;
    client.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "later": 1 } })).await;
    let rest = envelopes(&client.drain().await);
    assert!(rest.iter().all(|e| e["channel"] != json!("ahp-chat:/p")), "{rest:?}");
}

#[tokio::test]
async fn a_session_holds_so_many_chats_and_no_more() {
    let settings = HostSettings { max_chats_in_session: 2, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    let more = json!({ "channel": S, "chat": "ahp-chat:/q" });
    assert_eq!(client.refused("createChat", more.clone()).await, (-32000, "limit-exceeded".to_owned()));
    assert!(crate::harness::met("chats") > 0);
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/p" })).await.unwrap();
    client.ask("createChat", more).await.unwrap();
}

#[tokio::test]
async fn an_initial_message_begins_the_first_turn() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session(S).await;
    session(&mut client).await;
    let params = json!({ "channel": S, "chat": "ahp-chat:/p", "initialMessage": message("go on") });
    client.ask("createChat", params).await.unwrap();
    // The turn runs when the answer comes: what is read now was before it.
    let before = envelopes(&client.drain().await);
    let at = |fits: &dyn Fn(&Value) -> bool| {
        before.iter().find(|e| fits(&e["action"])).unwrap()["serverSeq"].as_u64().unwrap()
    };
    let added = at(&|action| action["type"] == json!("session/chatAdded"));
    let begun = at(&|action| action["changes"]["status"] == json!(8));
    // A crash leaves both or neither.
    assert_eq!(host.batch_of(added), host.batch_of(begun));
    let state = client.subscribe("ahp-chat:/p").await["state"].clone();
    let turn = match state.get("activeTurn") {
        Some(turn) => turn.clone(),
        None => state["turns"][0].clone(),
    };
    assert_eq!(turn["message"]["text"], json!("go on"));
    assert_eq!(turn["message"]["_meta"]["scrollback.sender"], json!("root:test"));
    assert_eq!(state["title"], json!("go on"));
}

#[tokio::test]
async fn a_chat_that_cannot_be_created_leaves_nothing_behind() {
    let settings = HostSettings { max_message_text: 10, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let first = client.create_session(S).await;
    let bytes = json!({ "type": "embeddedResource", "label": "x", "data": "no base64!", "contentType": "text/plain" });
    let with_bytes = json!({ "text": "x", "origin": { "kind": "user" }, "attachments": [bytes] });
    let fork = json!({ "kind": "fork", "chat": first, "turnId": "t" });
    let side = json!({ "kind": "sideChat", "chat": first, "turnId": "t" });
    let cases = [
        (json!({ "initialMessage": message("eleven char") }), (-32000, "limit-exceeded")),
        (json!({ "initialMessage": with_bytes }), (-32602, "bad-attachment")),
        (json!({ "initialMessage": { "origin": { "kind": "user" } } }), (-32602, "malformed")),
        (json!({ "initialMessage": "hello" }), (-32602, "invalid-params")),
        (json!({ "source": fork }), (-32008, "unknown-turn")),
        (json!({ "source": side }), (-32008, "unknown-turn")),
        (json!({ "source": { "kind": "wormhole" } }), (-32602, "unsupported")),
        (json!({ "source": {} }), (-32602, "unsupported")),
    ];
    for (mut params, (code, word)) in cases {
        params["channel"] = json!(S);
        params["chat"] = json!("ahp-chat:/p");
        assert_eq!(client.refused("createChat", params.clone()).await, (code, word.to_owned()), "{params}");
    }
    assert_eq!(resources(&session(&mut client).await).len(), 1);
    client.create_chat(S, "ahp-chat:/p").await;
}
