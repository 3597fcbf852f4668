//! Bytes in messages: written once, named by the message, given to the agent as they may be, and gone with the last message
//! that names them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::agent::AgentExtras;
use scrollback::actors::host::HostSettings;
use scrollback::events::gated::GatedStore;
use scrollback::events::memory::MemoryStore;
use scrollback::events::{LogFault, Store};
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::attaching::{SNAPSHOT, context, embedded, files, path, queues, resource, starts, with};
use crate::harness::{Client, Options, TestHost, chat_of, eventually, message, word};

const S: &str = "ahp-session:/s";
const PNG: &[u8] = b"\x89PNG not really";

/// A host on disk, and the folder of its attachments.
fn on_disk() -> (tempfile::TempDir, PathBuf, TestHost) {
    let directory = tempfile::tempdir().unwrap();
    let attachments = directory.path().canonicalize().unwrap().join("attachments");
    let host = TestHost::on_disk(directory.path());
    (directory, attachments, host)
}

async fn in_chat(host: &TestHost) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    (client, chat)
}

/// Starts a turn that goes on until somebody answers.
async fn busy(client: &mut Client, chat: &str) {
    client.say(chat, "busy", "/question go on?").await;
    client.until_type("chat/inputRequested").await;
}

/// Answers the question of the turn that [`busy`] began.
async fn go_on(client: &mut Client, chat: &str) {
    let state = client.subscribe(chat).await["state"].clone();
    let asked = state["activeTurn"]["responseParts"][0]["request"]["id"].clone();
    client.dispatch(chat, json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "cancel" })).await;
}

#[tokio::test]
async fn bytes_are_written_once_before_the_message_which_names_them_and_never_holds_them() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    let mut picture = embedded("../../../etc/x.png", "image/png", PNG);
    picture["range"] = json!({ "start": { "line": 0, "character": 1 }, "end": { "line": 0, "character": 2 } });
    picture["displayKind"] = json!("image");
    picture["_meta"] = json!({ "theirs": { "a": 1 }, "scrollback.sentAs": "forged" });
    let (echoed, blocks) = client.context(&chat, "t", json!([picture.clone()])).await;
    let file = path(&echoed[0]["uri"]);
    assert_eq!(
        echoed[0],
        json!({ "type": "resource", "label": "../../../etc/x.png", "uri": format!("file://{}", file.display()),
            "sizeHint": PNG.len(), "contentType": "image/png", "range": picture["range"], "displayKind": "image",
            "_meta": { "theirs": { "a": 1 }, SNAPSHOT: { "isSnapshot": true, "contentType": "image/png" },
                "scrollback.sentAs": "image" } })
    );
    assert_eq!(blocks[1], json!({ "type": "image", "mimeType": "image/png", "size": PNG.len() }));
    assert_eq!(files(&attachments), std::slice::from_ref(&file));
    assert_eq!(fs::read(&file).unwrap(), PNG);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = file.parent().unwrap();
    assert_eq!((mode(&file), mode(folder), mode(&attachments)), (0o400, 0o700, 0o700));
    assert_eq!(folder.parent().unwrap(), attachments);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");

    // What it came back as is kept, and never the bytes.
    let turns = client.subscribe(&chat).await["state"]["turns"].clone();
    assert_eq!(turns[0]["message"]["attachments"], json!(echoed));
    host.stop_and_scan(|actions| {
        assert!(!actions.iter().any(|action| action.to_string().contains("embeddedResource")));
    });
}

#[tokio::test]
async fn what_goes_inline_is_told_by_type_and_size() {
    let settings = HostSettings { max_inline_image: 50, max_inline_text: 40, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat) = in_chat(&host).await;
    let image = |kind: &str, size: usize| (embedded("i", kind, &vec![7; size]), kind.to_owned(), size);
    let cases = [
        (image("image/jpeg", 50), "image"),
        (image("image/gif", 49), "image"),
        (image("image/webp", 51), "path"),
        (image("image/bmp", 10), "path"),
        ((embedded("t", "text/plain", &[b'x'; 40]), "text/plain".into(), 40), "text"),
        ((embedded("t", "application/json", &[b'x'; 39]), "application/json".into(), 39), "text"),
        ((embedded("t", "text/plain", &[b'x'; 41]), "text/plain".into(), 41), "path"),
        ((embedded("t", "text/plain", &[0xff; 3]), "text/plain".into(), 3), "path"),
        ((embedded("p", "application/pdf", b"pdf"), "application/pdf".into(), 3), "path"),
    ];
    let attachments: Vec<Value> = cases.iter().map(|((attachment, ..), _)| attachment.clone()).collect();
    let (echoed, blocks) = client.context(&chat, "t", json!(attachments)).await;
    assert_eq!(blocks.len(), cases.len() + 1);
    assert_eq!(blocks[0], json!({ "type": "text", "text": "/context" }));
    for (at, ((_, kind, size), how)) in cases.iter().enumerate() {
        let echoed = &echoed[at];
        assert_eq!(echoed["_meta"]["scrollback.sentAs"], json!(how), "{echoed}");
        let block = match *how {
            "image" => json!({ "type": "image", "mimeType": kind, "size": size }),
            "text" => json!({ "type": "text", "text": "x".repeat(*size) }),
            _ => {
                json!({ "type": "resource_link", "uri": echoed["uri"], "name": echoed["label"], "mimeType": kind })
            }
        };
        assert_eq!(blocks[at + 1], block);
    }
}

#[tokio::test]
async fn the_limits_of_what_goes_inline_are_five_mebibytes_and_sixty_four_kibibytes_inclusive() {
    let host = TestHost::in_memory();
    let (mut client, chat) = in_chat(&host).await;
    let sizes = [("image/png", 5_242_880), ("image/png", 5_242_881), ("text/plain", 65_536), ("text/plain", 65_537)];
    let attachments: Vec<Value> = sizes.iter().map(|(kind, size)| embedded("x", kind, &vec![b'a'; *size])).collect();
    let (echoed, blocks) = client.context(&chat, "t", json!(attachments)).await;
    let how: Vec<&Value> = echoed.iter().map(|attachment| &attachment["_meta"]["scrollback.sentAs"]).collect();
    assert_eq!(how, ["image", "path", "text", "path"]);
    assert_eq!(blocks[1], json!({ "type": "image", "mimeType": "image/png", "size": 5_242_880 }));
    assert_eq!(blocks[3]["text"].as_str().unwrap().len(), 65_536);
}

#[tokio::test]
async fn an_agent_that_takes_no_images_gets_paths() {
    let extras = AgentExtras { images: false, ..AgentExtras::default() };
    let agent = crate::harness::RecordingAgent::new().with_extras(extras);
    let host = TestHost::with(Options { agents: vec![Arc::new(agent)], ..Options::default() });
    let (mut client, chat) = in_chat(&host).await;
    let sent = with("look", json!([embedded("x", "image/png", PNG)]));
    let echo = client.accepted(&chat, starts("t", &sent)).await;
    assert_eq!(echo["action"]["message"]["attachments"][0]["_meta"]["scrollback.sentAs"], "path");
}

#[tokio::test]
async fn bytes_that_are_not_base64_are_refused_and_leave_nothing() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    let good = embedded("good", "text/plain", b"good");
    for data in ["not base64!", "aGk", "a===", "aGk=\n", "_-8="] {
        let mut bad = embedded("bad", "text/plain", b"");
        bad["data"] = json!(data);
        let sent = with("x", json!([good, bad]));
        let before = client.subscribe(&chat).await;
        for action in [starts("t", &sent), queues("m", &sent), json!({ "type": "chat/draftChanged", "draft": sent })] {
            let refused = client.act(&chat, action.clone()).await;
            assert_eq!(word(&refused), "bad-attachment", "{data}");
            assert_eq!(refused["action"], action);
        }
        let params = json!({ "channel": S, "chat": "ahp-chat:/new", "initialMessage": sent });
        assert_eq!(client.refused("createChat", params).await, (-32602, "bad-attachment".into()));
        assert_eq!(client.subscribe(&chat).await, before);
    }
    assert_eq!(files(&attachments), Vec::<PathBuf>::new());
    // Neither id is used up.
    client.accepted(&chat, starts("t", &message("x"))).await;
}

#[tokio::test]
async fn what_would_be_refused_writes_nothing() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    busy(&mut client, &chat).await;
    let sent = with("x", json!([embedded("x", "text/plain", b"x")]));
    assert_eq!(client.rejected(&chat, starts("t", &sent)).await, "turn-in-progress");
    assert_eq!(client.rejected(&chat, starts("busy", &sent)).await, "duplicate-turn");
    let foreign = json!({ "channel": S, "chat": chat_of("ahp-session:/other"), "initialMessage": sent });
    assert_eq!(client.refused("createChat", foreign).await.1, "malformed");
    assert!(!attachments.exists());
}

#[tokio::test]
async fn a_queued_message_and_its_turn_share_one_file_and_one_taken_back_takes_it_along() {
    let (directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    busy(&mut client, &chat).await;
    let queued = |label: &str| with("/context", json!([embedded(label, "text/plain", label.as_bytes())]));
    let echo = client.accepted(&chat, queues("kept", &queued("kept"))).await;
    let kept = path(&echo["action"]["message"]["attachments"][0]["uri"]);
    client.accepted(&chat, queues("back", &queued("back"))).await;
    client.accepted(&chat, queues("edited", &queued("edited"))).await;
    assert_eq!(files(&attachments).len(), 3);

    client.accepted(&chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "back" })).await;
    eventually("the file of what was taken back is gone", || files(&attachments).len() == 2).await;
    // An edit that keeps the attachment keeps the file; one that does not lets it go.
    let mut edit = with("/context", json!([]));
    edit["attachments"] = echo["action"]["message"]["attachments"].clone();
    edit["text"] = json!("/context\nedited");
    let edited = client.accepted(&chat, queues("kept", &edit)).await;
    assert_eq!(edited["action"]["message"]["attachments"], echo["action"]["message"]["attachments"]);
    client.accepted(&chat, queues("edited", &message("without"))).await;
    eventually("the file of what was edited away is gone", || files(&attachments) == [kept.clone()]).await;
    client.accepted(&chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "edited" })).await;

    go_on(&mut client, &chat).await;
    let started = client.envelope(|e| e["action"]["queuedMessageId"] == json!("kept")).await;
    let turn = started["action"]["turnId"].as_str().unwrap().to_owned();
    assert_eq!(path(&started["action"]["message"]["attachments"][0]["uri"]), kept);
    let blocks = crate::harness::streamed(&client.until_ended(&turn).await);
    assert!(blocks.contains(r#"{"type":"text","text":"kept"}"#), "{blocks}");

    // Kept over a restart, also once it was swept for what nobody refers to.
    host.stop();
    let orphan = kept.with_file_name("0".repeat(32));
    fs::write(&orphan, "left by a host that died").unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    eventually("the orphan is swept", || !orphan.exists()).await;
    assert_eq!(files(&attachments), [kept]);
    assert_eq!(verify(host.host.store().as_ref(), &mut |_| {}).unwrap().channels, 3);
}

#[tokio::test]
async fn a_draft_keeps_its_file_until_it_is_replaced_and_hands_it_to_the_message_that_it_becomes() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    let draft = |message: &Value| json!({ "type": "chat/draftChanged", "draft": message });
    let first = with("a", json!([embedded("a", "text/plain", b"a")]));
    let echo = client.accepted(&chat, draft(&first)).await;
    let first = path(&echo["action"]["draft"]["attachments"][0]["uri"]);
    let second = with("b", json!([embedded("b", "image/png", b"b")]));
    let echo = client.accepted(&chat, draft(&second)).await;
    let drafted = echo["action"]["draft"].clone();
    let file = path(&drafted["attachments"][0]["uri"]);
    eventually("the replaced draft's file is gone", || files(&attachments) == [file.clone()]).await;
    assert!(!first.exists());

    // The same draft again changes nothing, and writes nothing.
    let again = client.accepted(&chat, draft(&drafted)).await;
    assert_eq!(again["serverSeq"], echo["serverSeq"]);
    let echo = client.accepted(&chat, starts("t", &with("/context", drafted["attachments"].clone()))).await;
    assert_eq!(echo["action"]["message"]["attachments"], drafted["attachments"]);
    let blocks = context(&client.until_ended("t").await);
    assert_eq!(blocks[1], json!({ "type": "image", "mimeType": "image/png", "size": 1 }));
    // The draft is gone; the turn keeps the file.
    let other = with("c", json!([embedded("c", "text/plain", b"c")]));
    client.accepted(&chat, draft(&other)).await;
    client.accepted(&chat, json!({ "type": "chat/draftChanged" })).await;
    eventually("the last draft's file is gone", || files(&attachments) == [file.clone()]).await;
}

#[tokio::test]
async fn a_new_chats_first_message_has_its_attachments_like_any_other() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, _) = in_chat(&host).await;
    let sent = with("/context", json!([embedded("note", "text/plain", b"hello")]));
    client.ask("createChat", json!({ "channel": S, "chat": "ahp-chat:/new", "initialMessage": sent })).await.unwrap();
    let state = client.subscribe("ahp-chat:/new").await["state"].clone();
    let turn = if state["turns"][0].is_object() { &state["turns"][0] } else { &state["activeTurn"] };
    let attachment = &turn["message"]["attachments"][0];
    assert_eq!(attachment["_meta"]["scrollback.sentAs"], "text");
    assert_eq!(files(&attachments), [path(&attachment["uri"])]);
    eventually("the file is not in hand any more", || files(&attachments).len() == 1).await;
}

#[tokio::test]
async fn what_is_somebodys_own_file_or_no_file_is_left_as_sent() {
    // Nobody is asked for any of it, or the test would wait for ever.
    let directory = tempfile::tempdir().unwrap();
    let settings = HostSettings { attachment_timeout: Duration::from_secs(3_600), ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), Options { settings, ..Options::default() });
    let attachments = directory.path().canonicalize().unwrap().join("attachments");
    let (mut client, chat) = in_chat(&host).await;
    let own = directory.path().join("own.png");
    fs::write(&own, PNG).unwrap();
    let own = format!("file://{}", own.display());
    let mut tagged = resource("tagged", &own);
    tagged["_meta"] = json!({ SNAPSHOT: { "isSnapshot": true, "contentType": "image/png" } });
    let sent = json!([
        resource("own", &own),
        resource("folder", &format!("file://{}", directory.path().display())),
        resource("web", "https://example.org/x.png"),
        resource("theirs", "vscode-agent-client:/x"),
        json!({ "type": "simple", "label": "simple", "modelRepresentation": "in words" }),
        json!({ "type": "annotations", "label": "notes", "resource": "ahp-session:/s/annotations" }),
    ]);
    let (echoed, blocks) = client.context(&chat, "t1", sent.clone()).await;
    assert_eq!(json!(echoed), sent);
    let link = |name: &str, uri: &str| json!({ "type": "resource_link", "uri": uri, "name": name });
    assert_eq!(blocks[1], link("own", &own));
    assert_eq!(blocks[3], link("web", "https://example.org/x.png"));
    assert_eq!(blocks[5], json!({ "type": "text", "text": "in words" }));
    assert_eq!(blocks.len(), 6);

    // A client that calls it a copy does not make the host read it.
    let (echoed, blocks) = client.context(&chat, "t2", json!([tagged])).await;
    assert_eq!(echoed[0]["_meta"]["scrollback.sentAs"], "path");
    assert_eq!(blocks[1], link("tagged", &own));
    assert!(!attachments.exists());
}

#[tokio::test]
async fn a_disk_that_takes_no_file_leaves_the_attachment_as_it_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let blocked = directory.path().join("a file where the folder should be");
    fs::write(&blocked, "").unwrap();
    let settings = HostSettings { data_directory: Some(blocked), ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat) = in_chat(&host).await;
    let sent = json!([embedded("note", "text/plain", b"hello"), embedded("pdf", "application/pdf", b"x")]);
    let (echoed, blocks) = client.context(&chat, "t", sent.clone()).await;
    assert_eq!(json!(echoed), sent);
    assert_eq!(blocks[1], json!({ "type": "text", "text": "hello" }));
    assert_eq!(client.subscribe(&chat).await["state"]["turns"][0]["message"]["attachments"], sent);
}

#[tokio::test]
async fn the_file_is_on_disk_before_the_message_and_goes_again_with_one_that_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().canonicalize().unwrap();
    let attachments = data.join("attachments");
    let settings = HostSettings { data_directory: Some(data), ..HostSettings::default() };
    let store = GatedStore::new(MemoryStore::new().unwrap());
    let gate = store.gate();
    let host = TestHost::start(Arc::new(store), Options { settings, ..Options::default() });
    let (mut client, chat) = in_chat(&host).await;
    client.drain().await;
    eventually("nothing is on its way", || host.host.writer().queued() == 0).await;
    gate.hold();
    let before = host.quiet_tail().await;
    let sent = with("x", json!([embedded("x", "text/plain", b"lost")]));
    let seq = client.dispatch(&chat, starts("t", &sent)).await;
    tokio::task::spawn_blocking({
        let gate = gate.clone();
        move || gate.wait_until_held()
    })
    .await
    .unwrap();
    let written = files(&attachments);
    assert_eq!(written.len(), 1);
    assert_eq!(fs::read(&written[0]).unwrap(), b"lost");
    assert_eq!(host.host.store().tail(), before);
    gate.fail_next(LogFault::Engine("the test says no".into()));
    gate.release_all();
    assert_eq!(word(&client.echo(seq).await), "log-unavailable");
    eventually("the file is gone", || files(&attachments).is_empty()).await;
    // The same again is taken.
    client.accepted(&chat, starts("t", &sent)).await;
    assert_eq!(files(&attachments).len(), 1);
}

#[tokio::test]
async fn a_message_that_is_sent_again_is_told_what_became_of_it_and_writes_nothing() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    let sent = starts("t", &with("x", json!([embedded("x", "text/plain", b"x")])));
    let seq = client.dispatch(&chat, sent.clone()).await;
    let echo = client.echo(seq).await;
    client.drop_socket().await;
    let mut again = Client::connect(host.address).await;
    again.reconnect("c", echo["serverSeq"].as_u64().unwrap() - 1, &["ahp-root://", &chat]).await;
    again.next_seq = seq - 1;
    again.dispatch(&chat, sent).await;
    let told = again.echo(seq).await;
    assert_eq!(told["action"], echo["action"]);
    assert_eq!(files(&attachments).len(), 1);
}

#[tokio::test]
async fn a_file_that_is_gone_goes_by_its_path() {
    let (_directory, _, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    busy(&mut client, &chat).await;
    let sent = with("/context", json!([embedded("note", "text/plain", b"hello")]));
    let echo = client.accepted(&chat, queues("m", &sent)).await;
    let attachment = &echo["action"]["message"]["attachments"][0];
    fs::remove_file(path(&attachment["uri"])).unwrap();
    go_on(&mut client, &chat).await;
    let started = client.envelope(|e| e["action"]["queuedMessageId"] == json!("m")).await;
    let blocks = context(&client.until_ended(started["action"]["turnId"].as_str().unwrap()).await);
    assert_eq!(blocks[1]["uri"], attachment["uri"]);
}

#[tokio::test]
async fn who_refers_to_what_is_as_the_log_says() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store), Options::default());
    let (mut client, chat) = in_chat(&host).await;
    busy(&mut client, &chat).await;
    let sent = with("x", json!([embedded("x", "text/plain", b"x")]));
    client.accepted(&chat, queues("a", &sent)).await;
    client.accepted(&chat, queues("b", &sent)).await;
    client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": sent })).await;
    client.accepted(&chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": "a" })).await;
    go_on(&mut client, &chat).await;
    client.envelope(|e| e["action"]["queuedMessageId"] == json!("b")).await;
    host.stop();
    verify(store.as_ref(), &mut |_| {}).unwrap();
    crate::harness::rebuilt::has_the_rows_that_its_records_say(store.as_ref());

    // A reference that is missing is noticed.
    let table = scrollback::events::Table::Attachment;
    let mut keys = Vec::new();
    let mut visit = |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    store.scan_rows(table, &[], None, &mut visit).unwrap();
    assert_eq!(keys.len(), 2, "the turn's and the draft's");
    let gone = scrollback::events::RowOp::Delete { table, key: keys[0].clone() };
    store.append(&[scrollback::events::Batch { events: Vec::new(), rows: vec![gone] }]).unwrap();
    let fault = verify(store.as_ref(), &mut |_| {}).unwrap_err();
    assert!(fault.problem.contains("attachment"), "{fault}");
}

#[tokio::test]
async fn a_fork_shares_the_file_and_a_turn_that_was_dropped_keeps_it() {
    let (directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    client.run(&chat, "one", "/say one").await;
    let (echoed, _) = client.context(&chat, "two", json!([embedded("x", "text/plain", b"x")])).await;
    let source = json!({ "kind": "fork", "chat": chat, "turnId": "two" });
    client.ask("createChat", json!({ "channel": S, "chat": "ahp-chat:/fork", "source": source })).await.unwrap();
    let turns = client.subscribe("ahp-chat:/fork").await["state"]["turns"].clone();
    assert_eq!(turns[1]["message"]["attachments"], json!(echoed));
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "one" })).await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let turns = client.subscribe("ahp-chat:/fork").await["state"]["turns"].clone();
    assert_eq!(turns[1]["message"]["attachments"], json!(echoed));
    assert_eq!(files(&attachments), [path(&echoed[0]["uri"])]);
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_steering_message_that_is_used_leaves_its_file_to_the_turn_and_one_taken_back_does_not() {
    let (_directory, attachments, host) = on_disk();
    let (mut client, chat) = in_chat(&host).await;
    busy(&mut client, &chat).await;
    let steers = |id: &str| {
        let sent = with("this way", json!([embedded("x", "text/plain", b"x")]));
        json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": sent })
    };
    client.accepted(&chat, steers("back")).await;
    assert_eq!(files(&attachments).len(), 1);
    client.accepted(&chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "steering", "id": "back" })).await;
    eventually("what was taken back is gone", || files(&attachments).is_empty()).await;
    client.cancel(&chat, "busy").await;
    client.until_ended("busy").await;

    client.say(&chat, "t", "/await-steering").await;
    client.accepted(&chat, steers("used")).await;
    let said = crate::harness::streamed(&client.until_ended("t").await);
    assert_eq!(said.trim(), "steered: this way");
    assert_eq!(files(&attachments).len(), 1);
    host.stop();
}
