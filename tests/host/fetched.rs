//! Files that only a client holds: asked for, written, or left where they are.

use std::path::PathBuf;
use std::time::Duration;

use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::attaching::{SNAPSHOT, context, embedded, files, path, queues, resource, starts, with};
use crate::harness::{Client, Options, TestHost, eventually, message, word};

const S: &str = "ahp-session:/s";
const THEIRS: &str = "file:///only/the/client/has/this.txt";
/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3_600);

struct Scene {
    host: TestHost,
    attachments: PathBuf,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn with(settings: HostSettings) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().canonicalize().unwrap();
        let attachments = data.join("attachments");
        let settings = HostSettings { data_directory: Some(data), ..settings };
        let host = TestHost::with(Options { settings, ..Options::default() });
        Self { host, attachments, _directory: directory }
    }

    /// A host that waits for files for as long as it takes.
    fn patient() -> Self {
        Self::with(HostSettings { attachment_timeout: NEVER, ..HostSettings::default() })
    }

    async fn client(&self) -> (Client, String) {
        let mut client = self.host.client("c").await;
        let chat = client.create_session(S).await;
        client.subscribe(&chat).await;
        (client, chat)
    }

    fn files(&self) -> Vec<PathBuf> {
        files(&self.attachments)
    }
}

fn sent(attachment: &Value) -> Value {
    with("/context", json!([attachment]))
}

#[tokio::test]
async fn a_file_that_only_the_client_holds_is_fetched_and_written_while_the_chat_goes_on() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let mut other = scene.host.client("d").await;
    other.subscribe(&chat).await;
    let mut attachment = resource("theirs", THEIRS);
    attachment["nonce"] = json!("n");
    attachment["selection"] =
        json!({ "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 2 } } });
    let seq = client.dispatch(&chat, starts("t", &sent(&attachment))).await;
    let (id, uri) = client.asked().await;
    assert_eq!((uri.as_str(), id.is_u64()), (THEIRS, true));

    // The chat goes on for others; what the same client sends to the session waits behind it.
    let later = client.dispatch(&chat, json!({ "type": "chat/isReadChanged", "isRead": true })).await;
    let titled = client.dispatch(S, json!({ "type": "session/titleChanged", "title": "later" })).await;
    other.accepted(&chat, json!({ "type": "session/titleChanged", "title": "meanwhile" })).await;
    let meanwhile = client.drain().await;
    assert!(meanwhile.iter().all(|message| message["params"]["origin"]["clientId"] != json!("c")), "{meanwhile:?}");

    client.hand_over(&id, b"hello", None).await;
    let echo = client.echo(seq).await;
    assert_eq!(client.echo(later).await["action"]["isRead"], json!(true));
    client.subscribe(S).await;
    assert_eq!(client.subscribe(S).await["state"]["title"], json!("later"));
    let _ = titled;
    let echoed = &echo["action"]["message"]["attachments"][0];
    assert_eq!(std::fs::read(path(&echoed["uri"])).unwrap(), b"hello");
    let tag = json!({ "isSnapshot": true, "contentType": "text/plain" });
    assert_eq!((&echoed["_meta"][SNAPSHOT], &echoed["_meta"]["scrollback.sentAs"]), (&tag, &json!("text")));
    assert_eq!((&echoed["sizeHint"], &echoed["nonce"]), (&json!(5), &json!("n")));
    assert_eq!(echoed["selection"], attachment["selection"]);
    let blocks = context(&client.until_ended("t").await);
    assert_eq!(blocks[1], json!({ "type": "text", "text": "hello" }));
}

#[tokio::test]
async fn echoes_stay_in_the_order_of_their_numbers_whatever_is_fetched() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    client.say(&chat, "busy", "/question go on?").await;
    client.until_type("chat/inputRequested").await;
    let attachment = resource("theirs", THEIRS);
    let mut expected = Vec::new();
    expected.push(client.dispatch(&chat, queues("one", &sent(&attachment))).await);
    expected.push(client.dispatch(&chat, queues("two", &message("plain"))).await);
    expected.push(client.dispatch(&chat, queues("three", &sent(&attachment))).await);
    expected.push(client.dispatch(&chat, starts("refused", &message("no"))).await);
    expected.push(client.dispatch(&chat, json!({ "type": "chat/isReadChanged", "isRead": true })).await);
    for _ in 0..2 {
        let (id, _) = client.asked().await;
        client.hand_over(&id, b"x", Some("text/plain")).await;
    }
    let mut order = Vec::new();
    while order.len() < expected.len() {
        let envelope = client.envelope(|envelope| envelope["origin"]["clientId"] == json!("c")).await;
        order.push(envelope["origin"]["clientSeq"].as_i64().unwrap());
    }
    assert_eq!(order, expected);
    let state = client.subscribe(&chat).await["state"].clone();
    let ids: Vec<&Value> = state["queuedMessages"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(ids, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_client_that_refuses_or_answers_nonsense_keeps_its_file() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let answers = [
        json!({ "error": { "code": -32601, "message": "no such method" } }),
        json!({ "error": { "code": -32008, "message": "gone" } }),
        json!({ "error": 5 }),
        json!({ "result": null }),
        json!({ "result": { "data": "not base64!", "encoding": "base64" } }),
        json!({ "result": { "data": "x", "encoding": "rot13" } }),
        json!({ "result": { "encoding": "base64" } }),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        let turn = format!("t{at}");
        let seq = client.dispatch(&chat, starts(&turn, &sent(&resource("theirs", THEIRS)))).await;
        let (id, _) = client.asked().await;
        let mut message = answer;
        (message["jsonrpc"], message["id"]) = (json!("2.0"), id);
        client.send(message.clone()).await;
        let echo = client.echo(seq).await;
        assert_eq!(echo["action"]["message"]["attachments"], json!([resource("theirs", THEIRS)]), "{message}");
        let blocks = context(&client.until_ended(&turn).await);
        assert_eq!(blocks[1], json!({ "type": "resource_link", "uri": THEIRS, "name": "theirs" }));
    }
    assert_eq!(scene.files(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_file_may_come_as_text() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let seq = client.dispatch(&chat, starts("t", &sent(&resource("theirs", THEIRS)))).await;
    let (id, _) = client.asked().await;
    let result = json!({ "data": "žluťoučký", "encoding": "utf-8", "contentType": "text/markdown" });
    client.send(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    let echo = client.echo(seq).await;
    assert_eq!(echo["action"]["message"]["attachments"][0]["contentType"], "text/markdown");
    assert_eq!(context(&client.until_ended("t").await)[1]["text"], "žluťoučký");
}

#[tokio::test]
async fn a_client_that_does_not_answer_in_time_keeps_its_file_and_a_late_answer_goes_nowhere() {
    let settings = HostSettings { attachment_timeout: Duration::from_millis(20), ..HostSettings::default() };
    let scene = Scene::with(settings);
    let (mut client, chat) = scene.client().await;
    let seq = client.dispatch(&chat, starts("t", &sent(&resource("theirs", THEIRS)))).await;
    let echo = client.echo(seq).await;
    assert_eq!(echo["action"]["message"]["attachments"], json!([resource("theirs", THEIRS)]));
    client.until_ended("t").await;
    client.hand_over(&json!(1), b"late", None).await;
    client.hand_over(&json!("no number"), b"late", None).await;
    client.hand_over(&json!(99), b"late", None).await;
    client.drain().await;
    assert_eq!(scene.files(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_client_that_went_away_is_not_waited_for() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let mut other = scene.host.client("d").await;
    other.subscribe(&chat).await;
    let seq = client.dispatch(&chat, starts("t", &sent(&resource("theirs", THEIRS)))).await;
    let behind = client.dispatch(&chat, json!({ "type": "session/titleChanged", "title": "behind" })).await;
    client.asked().await;
    client.drop_socket().await;
    let echo = other.echo_of("c", seq).await;
    assert_eq!(echo["action"]["message"]["attachments"], json!([resource("theirs", THEIRS)]));
    other.echo_of("c", behind).await;
}

#[tokio::test]
async fn a_large_file_is_left_where_it_is() {
    let settings = HostSettings { attachment_timeout: NEVER, max_fetched_attachment: 10, ..HostSettings::default() };
    let scene = Scene::with(settings);
    let (mut client, chat) = scene.client().await;
    // One that says so is not asked for.
    let mut large = resource("large", THEIRS);
    large["sizeHint"] = json!(11);
    let (echoed, _) = client.context(&chat, "t1", json!([large])).await;
    assert_eq!(echoed, [large]);
    // One that does not say so, or lies, is not kept.
    for (turn, size, kept) in [("t2", 11, false), ("t3", 10, true), ("t4", 9, true)] {
        let mut attachment = resource("x", THEIRS);
        attachment["sizeHint"] = json!(10);
        let seq = client.dispatch(&chat, starts(turn, &sent(&attachment))).await;
        let (id, _) = client.asked().await;
        client.hand_over(&id, &vec![b'a'; size], None).await;
        let echoed = client.echo(seq).await["action"]["message"]["attachments"][0].clone();
        assert_eq!(echoed["uri"] != json!(THEIRS), kept, "{size}");
        client.until_ended(turn).await;
    }
    assert_eq!(scene.files().len(), 2);
}

#[tokio::test]
async fn a_file_of_thirty_two_mebibytes_is_fetched_and_one_byte_more_is_not() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let limit = 32 << 20;
    for (turn, size, kept) in [("t1", limit, true), ("t2", limit + 1, false)] {
        let seq = client.dispatch(&chat, starts(turn, &sent(&resource("x", THEIRS)))).await;
        let (id, _) = client.asked().await;
        client.hand_over(&id, &vec![b'a'; size], Some("application/zip")).await;
        let echoed = client.echo(seq).await["action"]["message"]["attachments"][0].clone();
        assert_eq!(echoed["uri"] != json!(THEIRS), kept, "{size}");
        client.until_ended(turn).await;
    }
    assert_eq!(std::fs::metadata(&scene.files()[0]).unwrap().len(), limit as u64);
    assert!(crate::harness::met("fetched_attachment") > 0);
}

#[tokio::test]
async fn a_folder_of_the_clients_is_not_asked_for() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let mut folder = resource("folder", "file:///only/the/clients");
    folder["displayKind"] = json!("directory");
    let sent = json!([folder, resource("slash", "file:///only/theirs/")]);
    let (echoed, _) = client.context(&chat, "t", sent.clone()).await;
    assert_eq!(json!(echoed), sent);
}

#[tokio::test]
async fn what_is_refused_after_all_leaves_no_file() {
    let scene = Scene::patient();
    let (mut client, chat) = scene.client().await;
    let mut other = scene.host.client("d").await;
    other.subscribe(&chat).await;
    let attachments = json!([resource("theirs", THEIRS), embedded("x", "text/plain", b"x")]);
    let seq = client.dispatch(&chat, starts("t", &with("x", attachments))).await;
    let (id, _) = client.asked().await;
    // Somebody else begins a turn meanwhile.
    other.say(&chat, "first", "/question go on?").await;
    other.until_type("chat/inputRequested").await;
    client.hand_over(&id, b"hello", None).await;
    assert_eq!(word(&client.echo_of("c", seq).await), "turn-in-progress");
    eventually("nothing is left", || scene.files().is_empty()).await;
}

#[tokio::test]
async fn a_new_chat_waits_for_the_files_of_its_first_message() {
    let scene = Scene::patient();
    let (mut client, _) = scene.client().await;
    let params = json!({ "channel": S, "chat": "ahp-chat:/new", "initialMessage": sent(&resource("theirs", THEIRS)) });
    client.send(json!({ "jsonrpc": "2.0", "id": "new", "method": "createChat", "params": params })).await;
    let (id, _) = client.asked().await;
    let listed = client.subscribe(S).await["state"]["chats"].as_array().unwrap().len();
    assert_eq!(listed, 1);
    client.hand_over(&id, b"hello", None).await;
    loop {
        let message = client.next().await.unwrap();
        if message["id"] == json!("new") {
            assert_eq!(message.get("error"), None, "{message}");
            break;
        }
    }
    assert_eq!(scene.files().len(), 1);
    client.subscribe("ahp-chat:/new").await;
}

#[tokio::test]
async fn a_session_stays_awake_for_what_it_waits_for() {
    let settings =
        HostSettings { attachment_timeout: NEVER, idle_timeout: Duration::from_millis(20), ..HostSettings::default() };
    let scene = Scene::with(settings);
    let (mut client, chat) = scene.client().await;
    client.create_session("ahp-session:/other").await;
    let seq = client.dispatch(&chat, starts("t", &sent(&resource("theirs", THEIRS)))).await;
    let (id, _) = client.asked().await;
    // The other session, used later, falls asleep; this one does not.
    eventually("the other one sleeps", || scene.host.host.awake() == 1).await;
    client.hand_over(&id, b"hello", None).await;
    assert_eq!(client.echo(seq).await.get("rejectionReason"), None);
}
