//! Visuals: published by clients and agents, shown as canvases, served in a sandbox, gone when they are removed.

use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::host::HostSettings;
use scrollback::actors::writer::Durability;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{
    Client, Mirrored, Options, RecordingAgent, TestHost, envelopes, eventually, on, streamed, types, word,
};

const SESSION: &str = "ahp-session:/s";
const PUBLISH: &str = "x-scrollback/publishVisual";
const LIST: &str = "x-scrollback/listVisuals";
const REMOVE: &str = "x-scrollback/removeVisual";
/// Of a stored page: 16 MiB.
const MAX_PAGE: usize = 16_777_216;

/// A page as it was served.
struct Served {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Served {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

async fn get(url: &str, headers: &[(&str, &str)]) -> Served {
    let (url, headers) = (url.to_owned(), headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect());
    let ask = move || {
        let headers: Vec<(String, String)> = headers;
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = headers.iter().fold(agent.get(&url), |request, (name, value)| request.header(name, value));
        let response = request.call().unwrap();
        let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap().to_owned();
        let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let status = response.status().as_u16();
        let body = response.into_body().with_config().limit(64 << 20).read_to_string().unwrap();
        Served { status, headers, body }
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

fn page(chat: &str, title: &str, html: &str) -> Value {
    json!({ "channel": chat, "title": title, "html": html })
}

async fn publish(client: &mut Client, chat: &str, title: &str) -> Value {
    client.ask(PUBLISH, page(chat, title, &format!("<p>{title}"))).await.unwrap()
}

async fn list(client: &mut Client, chat: &str) -> Vec<Value> {
    client.ask(LIST, json!({ "channel": chat })).await.unwrap()["visuals"].as_array().unwrap().clone()
}

fn canvas(visual: &Value) -> String {
    format!("ahp-canvas:/{}", visual["id"].as_str().unwrap())
}

fn url(visual: &Value) -> &str {
    visual["url"].as_str().unwrap()
}

/// The number and the word of a refusal.
fn refused(answer: Result<Value, Value>) -> (i64, String, String) {
    let error = answer.expect_err("it was accepted");
    let word = error["data"]["code"].as_str().unwrap().to_owned();
    (error["code"].as_i64().unwrap(), word, error["message"].as_str().unwrap().to_owned())
}

/// The envelopes among messages that are not the root's.
fn heard(messages: &[Value]) -> Vec<Value> {
    envelopes(messages).into_iter().filter(|envelope| envelope["channel"] != json!("ahp-root://")).collect()
}

fn is_whole(host: &TestHost) {
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_visual_is_told_with_all_that_is_known_of_it() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let asked = json!({ "channel": chat, "title": "Sales", "html": "<p>up", "maxHeight": 400,
        "heights": [[320, 500], [640, 300]] });
    let before = host.host.clock().now();
    let visual = client.ask(PUBLISH, asked).await.unwrap();
    assert_eq!((&visual["title"], &visual["maxHeight"]), (&json!("Sales"), &json!(400)));
    assert_eq!(visual["heights"], json!([[320, 500], [640, 300]]));
    assert!(visual.get("turnId").is_none());
    let at = scrollback::clock::parse_rfc3339(visual["at"].as_str().unwrap()).unwrap();
    assert!(at >= before && at <= host.host.clock().now(), "{visual}");
    assert!(url(&visual).starts_with(&format!("http://{}/visuals/", host.address)), "{visual}");
    assert_eq!(visual["size"], json!(get(url(&visual), &[]).await.body.len()));
    let bare = publish(&mut client, &chat, "Bare").await;
    assert!(bare.get("heights").is_none());
    assert_eq!(bare["maxHeight"], json!(600));
    assert_eq!(list(&mut client, &chat).await, [visual, bare]);
    is_whole(&host);
}

#[tokio::test]
async fn a_page_is_served_in_a_sandbox_and_to_nobody_who_guesses() {
    let host = TestHost::start(
        Arc::new(MemoryStore::new().unwrap()),
        Options { token: Some("secret".into()), ..Options::default() },
    );
    let (socket, _) = tokio_tungstenite::connect_async(format!("ws://{}/?tkn=secret", host.address)).await.unwrap();
    let mut client = Client::over(socket);
    client.initialize("c", &[]).await;
    let chat = client.create_session(SESSION).await;
    let visual = publish(&mut client, &chat, "x").await;
    let served = get(url(&visual), &[]).await;
    assert_eq!(served.status, 200);
    assert_eq!(served.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(served.body.ends_with("<p>x") && served.body.contains("scrollback.height"), "{}", served.body);
    let (before_code, id) = url(&visual).rsplit_once('/').unwrap();
    let (start, code) = before_code.rsplit_once('/').unwrap();
    assert!(code.len() >= 40, "{code}");
    let other = publish(&mut client, &chat, "y").await;
    let others_code = url(&other).rsplit('/').nth(1).unwrap();
    let wrong = [
        format!("{start}/{}A/{id}", &code[1..]),
        format!("{start}/{others_code}/{id}"),
        format!("{start}/{code}/{}", other["id"].as_str().unwrap()),
        format!("{start}/{code}/none"),
    ];
    for wrong in wrong {
        assert_eq!(get(&wrong, &[]).await.status, 404, "{wrong}");
    }
    let foreign = get(url(&visual), &[("Host", "evil.example")]).await;
    assert_eq!((foreign.status, foreign.body.contains("<p>x")), (403, false));
    assert_eq!(get(url(&visual), &[("Origin", "https://evil.example")]).await.status, 403);
    for served in [served, foreign, get(&format!("{start}/{code}/none"), &[]).await] {
        let policy = served.header("content-security-policy").unwrap();
        assert!(policy.starts_with("sandbox allow-scripts; default-src 'none';"), "{policy}");
        assert!(!policy.contains("allow-same-origin") && !policy.contains("http"), "{policy}");
        assert_eq!(served.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(served.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(served.header("set-cookie"), None);
    }
}

#[tokio::test]
async fn nothing_that_a_page_leaves_open_swallows_the_script_of_the_host() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let pages = ["<!--", "<script>/*", "</script><textarea>", "<!doctype html><title>", "<plaintext>", "\u{0}</html>"];
    for html in pages {
        let visual = client.ask(PUBLISH, page(&chat, "</title><script>\"", html)).await.unwrap();
        let body = get(url(&visual), &[]).await.body;
        let script = body.strip_prefix("<!doctype html><script>").unwrap_or_else(|| panic!("{body}"));
        let (script, rest) = script.split_once("</script>").unwrap();
        assert!(script.contains("postMessage({type:\"scrollback.height\",height},\"*\")"), "{script}");
        assert_eq!(rest, html.strip_prefix("<!doctype html>").unwrap_or(html));
    }
    is_whole(&host);
}

#[tokio::test]
async fn a_visual_is_a_canvas_of_its_chat_until_it_is_removed() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(SESSION).await;
    client.subscribe(&chat).await;
    let mut visuals = Vec::new();
    for title in ["one", "two", "three"] {
        visuals.push(publish(&mut client, &chat, title).await);
        let listed: Vec<Value> = visuals.iter().map(|visual| json!({ "resource": canvas(visual) })).collect();
        // Before the answer, and nothing else.
        let seen = heard(&client.taken());
        assert_eq!(types(&seen), ["chat/canvasesChanged"]);
        assert_eq!(seen[0]["action"]["canvases"], json!(listed));
        assert_eq!(client.subscribe(&chat).await["state"]["canvases"], json!(listed));
    }
    assert_eq!(list(&mut client, &chat).await, visuals);
    let snapshot = client.subscribe(&canvas(&visuals[1])).await;
    assert_eq!(
        snapshot["state"],
        json!({ "instanceId": visuals[1]["id"], "extensionId": "scrollback", "extensionName": "Scrollback",
            "canvasId": "visual", "title": "two", "url": url(&visuals[1]) })
    );
    let shown = host.quiet_tail().await;
    assert!(snapshot["fromSeq"].as_u64().unwrap() < shown);
    client.taken();

    let left = client.ask(REMOVE, json!({ "channel": chat, "id": visuals[1]["id"] })).await.unwrap();
    assert_eq!(left, json!({ "visuals": [visuals[0], visuals[2]] }));
    let seen = heard(&client.taken());
    assert_eq!(types(&seen), ["canvas/stateChanged", "chat/canvasesChanged"]);
    assert!(seen[0]["action"]["canvas"].get("url").is_none(), "{}", seen[0]);
    assert_eq!(get(url(&visuals[1]), &[]).await.status, 404);
    assert_eq!(get(url(&visuals[0]), &[]).await.status, 200);
    let gone = client.ask("subscribe", json!({ "channel": canvas(&visuals[1]) })).await;
    assert_eq!(refused(gone).0, -32008);
    let never = client.ask("subscribe", json!({ "channel": "ahp-canvas:/never" })).await;
    assert_eq!(refused(never).0, -32008);

    // Removing it once more is fine, as is an id that never was; neither writes anything.
    let tail = host.quiet_tail().await;
    for id in [visuals[1]["id"].clone(), json!("never")] {
        let again = client.ask(REMOVE, json!({ "channel": chat, "id": id })).await.unwrap();
        assert_eq!(again, left);
    }
    assert_eq!(host.host.store().tail(), tail);

    // As it was: then it was there. Where its page was to be had is not what it is now.
    let state_at = |channel: String, seq: u64| json!({ "channel": channel, "serverSeq": seq });
    let before = client.ask("x-scrollback/stateAt", state_at(chat.clone(), shown)).await.unwrap();
    assert_eq!(before["state"]["canvases"].as_array().unwrap().len(), 3);
    let then = client.ask("x-scrollback/stateAt", state_at(canvas(&visuals[1]), shown)).await.unwrap();
    assert_eq!((&then["state"]["title"], then["state"].get("url")), (&json!("two"), None));
    let there = client.ask("x-scrollback/stateAt", state_at(canvas(&visuals[0]), tail)).await.unwrap();
    let now = client.subscribe(&canvas(&visuals[0])).await;
    assert_eq!(there, now);
    is_whole(&host);
}

#[tokio::test]
async fn the_last_one_that_is_removed_clears_the_list() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let visual = publish(&mut client, &chat, "x").await;
    client.ask(REMOVE, json!({ "channel": chat, "id": visual["id"] })).await.unwrap();
    let last = heard(&client.taken()).pop().unwrap();
    assert_eq!(last["action"], json!({ "type": "chat/canvasesChanged" }));
    assert!(client.subscribe(&chat).await["state"].get("canvases").is_none());
    is_whole(&host);
}

#[tokio::test]
async fn a_visual_of_a_chat_that_sleeps_wakes_no_agent() {
    let agent = RecordingAgent::new();
    let settings = HostSettings { idle_timeout: Duration::from_millis(1), ..HostSettings::default() };
    let options = Options { settings, agents: vec![Arc::new(agent.clone())], ..Options::default() };
    let host = TestHost::with(options);
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    for title in ["one", "two"] {
        eventually("asleep", || host.host.awake() == 0 && host.host.actors() == 0).await;
        publish(&mut client, &chat, title).await;
    }
    eventually("asleep", || host.host.actors() == 0).await;
    let titles: Vec<Value> = list(&mut client, &chat).await.iter().map(|visual| visual["title"].clone()).collect();
    assert_eq!(titles, ["one", "two"]);
    eventually("asleep", || host.host.actors() == 0).await;
    let visual = &list(&mut client, &chat).await[0];
    eventually("asleep", || host.host.actors() == 0).await;
    assert_eq!(get(url(visual), &[]).await.status, 200);
    assert_eq!(host.host.actors(), 0, "a page needs nobody awake");
    assert_eq!(client.subscribe(&canvas(visual)).await["state"]["title"], "one");
    assert_eq!(agent.starts(), 0);
    is_whole(&host);
}

#[tokio::test]
async fn a_visual_belongs_to_the_running_turn_unless_another_is_named() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2"] {
        client.say(&chat, turn, "hello").await;
        client.until_ended(turn).await;
    }
    client.say(&chat, "t3", "/question go on?").await;
    client.envelope(|e| e["action"]["type"] == json!("chat/inputRequested")).await;
    assert_eq!(publish(&mut client, &chat, "x").await["turnId"], "t3");
    let named = |turn: &str| json!({ "channel": chat, "title": "x", "html": "x", "turnId": turn });
    for turn in ["t1", "t2", "t3"] {
        assert_eq!(client.ask(PUBLISH, named(turn)).await.unwrap()["turnId"], turn);
    }
    let tail = host.quiet_tail().await;
    let (code, word, message) = refused(client.ask(PUBLISH, named("t4")).await);
    assert_eq!((code, word.as_str()), (-32008, "not-found"));
    assert!(message.contains("turnId") && message.contains("t4"), "{message}");
    assert_eq!(host.host.store().tail(), tail);
    client.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "t3", "duration": 0 })).await;
    client.until_ended("t3").await;
    assert!(publish(&mut client, &chat, "x").await.get("turnId").is_none());
}

#[tokio::test]
async fn what_may_not_be_published_says_what_to_change_and_changes_nothing() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let with = |member: &str, value: Value| {
        let mut asked = page(&chat, "x", "x");
        asked[member] = value;
        asked
    };
    let fine = [
        with("title", json!("x".repeat(200))),
        with("title", json!("\u{1f600}".repeat(100))),
        with("maxHeight", json!(80)),
        with("maxHeight", json!(2000)),
        with("heights", json!(vec![[320, 200]; 24])),
        with("heights", json!([])),
    ];
    for fine in fine {
        client.ask(PUBLISH, fine).await.unwrap();
    }
    let tail = host.quiet_tail().await;
    client.taken();
    let invalid = [
        (with("title", json!("x".repeat(201))), "title"),
        (with("title", json!("\u{1f600}".repeat(100) + "x")), "title"),
        (with("title", json!("")), "title"),
        (with("maxHeight", json!(79)), "maxHeight"),
        (with("maxHeight", json!(2001)), "maxHeight"),
        (with("heights", json!(vec![[320, 200]; 25])), "heights"),
        (with("heights", json!([[0, 200]])), "heights"),
        (with("html", json!("")), "html"),
    ];
    for (asked, member) in invalid {
        let (code, word, message) = refused(client.ask(PUBLISH, asked).await);
        assert_eq!((code, word.as_str()), (-32602, "visual-invalid"), "{message}");
        assert!(message.starts_with(member), "{message}");
    }
    let wrong = [
        (with("title", Value::Null), "title"),
        (with("title", json!(5)), "title"),
        (with("html", json!(["x"])), "html"),
        (with("maxHeight", json!(100.5)), "maxHeight"),
        (with("heights", json!([[320]])), "heights"),
        (with("turnId", json!(1)), "turnId"),
    ];
    for (asked, member) in wrong {
        let (code, word, message) = refused(client.ask(PUBLISH, asked).await);
        assert_eq!((code, word.as_str()), (-32602, "invalid-params"), "{message}");
        assert!(message.starts_with(member), "{message}");
    }
    for channel in ["ahp-chat:/none", SESSION, "ahp-root://", "ahp-canvas:/none"] {
        for (method, asked) in [(PUBLISH, page(channel, "x", "x")), (LIST, json!({ "channel": channel }))] {
            let (code, word, _) = refused(client.ask(method, asked).await);
            assert_eq!((code, word.as_str()), (-32008, "not-found"), "{method} {channel}");
        }
    }
    assert_eq!(host.host.store().tail(), tail);
    assert_eq!(heard(&client.drain().await), Vec::<Value>::new());
}

#[tokio::test]
async fn a_page_of_16_mib_is_stored_and_one_byte_more_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let small = publish(&mut client, &chat, "x").await;
    let around = usize::try_from(small["size"].as_u64().unwrap()).unwrap() - "<p>x".len();
    let of = |bytes: usize| page(&chat, "big", &"x".repeat(bytes - around));
    let big = client.ask(PUBLISH, of(MAX_PAGE)).await.unwrap();
    assert_eq!(big["size"], json!(MAX_PAGE));
    assert_eq!(get(url(&big), &[]).await.body.len(), MAX_PAGE);
    let tail = host.quiet_tail().await;
    let (code, word, message) = refused(client.ask(PUBLISH, of(MAX_PAGE + 1)).await);
    assert_eq!((code, word.as_str()), (-32000, "visual-too-large"));
    assert!(message.contains(&(MAX_PAGE - around).to_string()), "{message}");
    assert!(crate::harness::met("visual") > 0);
    assert_eq!(host.host.store().tail(), tail);
    // A chat with such a page goes on.
    client.subscribe(&chat).await;
    client.say(&chat, "t", "hello").await;
    assert_eq!(streamed(&client.until_ended("t").await), "You said: hello ");
    is_whole(&host);
}

#[tokio::test]
async fn a_chat_holds_so_many_visuals_and_no_more() {
    let settings = HostSettings { max_visuals_in_chat: 2, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let first = publish(&mut client, &chat, "x").await;
    publish(&mut client, &chat, "y").await;
    let (code, word, _) = refused(client.ask(PUBLISH, page(&chat, "z", "z")).await);
    assert_eq!((code, word.as_str()), (-32000, "limit-exceeded"));
    assert!(crate::harness::met("visuals") > 0);
    client.ask(REMOVE, json!({ "channel": chat, "id": first["id"] })).await.unwrap();
    publish(&mut client, &chat, "z").await;
}

#[tokio::test]
async fn a_restart_keeps_the_visuals_and_changes_their_paths() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let (kept, gone) = (publish(&mut client, &chat, "kept").await, publish(&mut client, &chat, "gone").await);
    client.ask(REMOVE, json!({ "channel": chat, "id": gone["id"] })).await.unwrap();
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let now = list(&mut client, &chat).await;
    let without_url = |visual: &Value| {
        let mut visual = visual.clone();
        visual.as_object_mut().unwrap().remove("url");
        visual
    };
    assert_eq!(now.iter().map(without_url).collect::<Vec<_>>(), [without_url(&kept)]);
    let path = |visual: &Value| url(visual).split("/visuals/").nth(1).unwrap().to_owned();
    assert_ne!(path(&now[0]), path(&kept));
    assert!(get(url(&now[0]), &[]).await.body.ends_with("<p>kept"));
    for old in [&kept, &gone] {
        assert_eq!(get(&format!("http://{}/visuals/{}", host.address, path(old)), &[]).await.status, 404);
    }
    is_whole(&host);
}

#[tokio::test]
async fn what_was_just_published_is_served_also_before_it_is_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let durability = Durability::Interval(Duration::from_millis(100));
    let settings = HostSettings { durability, ..HostSettings::default() };
    let host = TestHost::on_disk_with(directory.path(), Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    for title in ["one", "two"] {
        let visual = publish(&mut client, &chat, title).await;
        assert_eq!(get(url(&visual), &[]).await.status, 200);
        // What is not on disk yet can be removed.
        let next = publish(&mut client, &chat, "next").await;
        client.ask(REMOVE, json!({ "channel": chat, "id": next["id"] })).await.unwrap();
        assert_eq!(get(url(&next), &[]).await.status, 404);
    }
    is_whole(&host);
}

#[tokio::test]
async fn the_demo_publishes_and_says_the_id_or_the_refusal() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t1", "/visual Sales <p>up and up").await;
    let seen = client.until_ended("t1").await;
    let visual = list(&mut client, &chat).await.remove(0);
    assert_eq!(streamed(&seen).trim(), visual["id"].as_str().unwrap());
    assert_eq!((&visual["title"], &visual["turnId"]), (&json!("Sales"), &json!("t1")));
    assert!(get(url(&visual), &[]).await.body.ends_with("<p>up and up"));
    // It was said after it was published.
    let order = types(&seen);
    let at = |kind: &str| order.iter().position(|t| *t == kind).unwrap();
    assert!(at("chat/canvasesChanged") < at("chat/delta"), "{order:?}");

    client.say(&chat, "t2", &format!("/visual {} <p>x", "x".repeat(201))).await;
    let said = streamed(&client.until_ended("t2").await);
    assert!(said.starts_with("visual-invalid: title: has 201 UTF-16 units"), "{said}");
    assert_eq!(list(&mut client, &chat).await.len(), 1);
    let last = host.quiet_tail().await;
    let record = |seq| {
        let mut found = None;
        let mut visit = |record: scrollback::events::Record| {
            found = Some(record);
            std::ops::ControlFlow::Break(())
        };
        host.host.store().scan(seq - 1, seq, &mut visit).unwrap();
        found
    };
    let published: Vec<String> = (1..=last)
        .filter_map(record)
        .filter(|record| String::from_utf8_lossy(&record.action).contains("host/visualPublished"))
        .map(|record| record.principal)
        .collect();
    assert_eq!(published, ["agent:demo"]);
}

#[tokio::test]
async fn visuals_go_with_their_chat() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = client.create_session(SESSION).await;
    client.ask("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/c2" })).await.unwrap();
    let visual = publish(&mut client, "ahp-chat:/c2", "x").await;
    let stays = publish(&mut client, &first, "stays").await;
    client.subscribe(&canvas(&visual)).await;
    let seq = host.quiet_tail().await;
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/c2" })).await.unwrap();
    assert_eq!(get(url(&visual), &[]).await.status, 404);
    let gone = client.ask("subscribe", json!({ "channel": canvas(&visual) })).await;
    assert_eq!(refused(gone).0, -32008);
    let gone = client.ask(LIST, json!({ "channel": "ahp-chat:/c2" })).await;
    assert_eq!(refused(gone).0, -32008);
    let mut again = Client::connect(host.address).await;
    let answer = again.reconnect("c", seq, &[&canvas(&visual), &canvas(&stays)]).await;
    assert_eq!(answer["missing"], json!([canvas(&visual)]));
    assert_eq!(get(url(&stays), &[]).await.status, 200);
    client.ask("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(get(url(&stays), &[]).await.status, 404);
    is_whole(&host);
}

#[tokio::test]
async fn a_replay_brings_what_happened_to_canvases_and_a_restart_brings_their_new_pages() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let (one, two) = (publish(&mut client, &chat, "one").await, publish(&mut client, &chat, "two").await);
    let channels = [chat.clone(), canvas(&one), canvas(&two)];
    let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
    let mut mirrored = Mirrored::connect(host.address, "m", &channels).await;
    client.ask(REMOVE, json!({ "channel": chat, "id": two["id"] })).await.unwrap();
    publish(&mut client, &chat, "three").await;

    let mut raw = Client::connect(host.address).await;
    let answer = raw.reconnect("raw", mirrored.last_seen, &channels).await;
    assert_eq!(answer["type"], "replay");
    assert_eq!(answer["missing"], json!([canvas(&two)]));
    let seen = answer["actions"].as_array().unwrap();
    assert_eq!(types(&on(seen, &chat)), ["chat/canvasesChanged", "chat/canvasesChanged"]);
    mirrored.reconnect(host.address).await;
    for channel in [chat.as_str(), &canvas(&one)] {
        mirrored.compare(channel).await.unwrap();
    }
    host.stop();

    let host = TestHost::on_disk(directory.path());
    mirrored.reconnect(host.address).await;
    let shown = mirrored.held(&canvas(&one));
    let mut client = host.client("c").await;
    let now = list(&mut client, &chat).await;
    assert_eq!(shown["url"], now[0]["url"]);
    mirrored.compare(&canvas(&one)).await.unwrap();
    mirrored.compare(&chat).await.unwrap();
    // In the same run it is a replay again.
    publish(&mut client, &chat, "four").await;
    let mut raw = Client::connect(host.address).await;
    let newest = host.quiet_tail().await;
    assert_eq!(raw.reconnect("raw", newest, &[&chat, &canvas(&one)]).await["type"], "replay");
}

#[tokio::test]
async fn two_mirrors_hold_what_the_host_holds_of_visuals() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let first = publish(&mut client, &chat, "first").await;
    let channels = [SESSION.to_owned(), chat.clone(), canvas(&first)];
    let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
    let mut one = Mirrored::connect(host.address, "one", &channels).await;
    let mut two = Mirrored::connect(host.address, "two", &channels).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "/visual a <p>a\n/visual b <p>b\n/say done").await;
    client.until_ended("t").await;
    let all = list(&mut client, &chat).await;
    client.ask(REMOVE, json!({ "channel": chat, "id": all[1]["id"] })).await.unwrap();
    for mirrored in [&mut one, &mut two] {
        mirrored.sync().await;
        for channel in &channels {
            mirrored.compare(channel).await.unwrap();
        }
        mirrored.follow(&canvas(&all[2])).await;
    }
    client.ask(REMOVE, json!({ "channel": chat, "id": all[2]["id"] })).await.unwrap();
    for mirrored in [&mut one, &mut two] {
        // What was said before its snapshot of the chat has arrived with that.
        mirrored.compare(&chat).await.unwrap();
        assert!(mirrored.held(&canvas(&all[2])).get("url").is_none(), "a page that is gone is shown");
    }
    assert_eq!(one.held(&chat), two.held(&chat));
    is_whole(&host);
}

#[tokio::test]
async fn a_client_of_0_9_is_told_of_no_canvas() {
    let host = TestHost::in_memory();
    let mut new = host.client("new").await;
    let chat = new.create_session(SESSION).await;
    let visual = publish(&mut new, &chat, "x").await;
    let mut old = Client::connect(host.address).await;
    let answer = old.initialize_as("0.9.2", "old", &[&chat, &canvas(&visual)]).await;
    assert_eq!(answer["protocolVersion"], "0.9.2");
    let snapshots = answer["snapshots"].as_array().unwrap();
    let of_chat = snapshots.iter().find(|snapshot| snapshot["resource"] == json!(chat)).unwrap();
    assert!(of_chat["state"].get("canvases").is_none(), "{of_chat}");
    let seen = answer["serverSeq"].as_u64().unwrap();
    // It publishes all the same, as an extension of ours, and hears what else happens.
    publish(&mut old, &chat, "y").await;
    new.ask(REMOVE, json!({ "channel": chat, "id": visual["id"] })).await.unwrap();
    new.subscribe(&chat).await;
    new.say(&chat, "t", "hello").await;
    let told = old.until_ended("t").await;
    let of_canvases = |seen: &[Value]| types(seen).iter().filter(|kind| kind.contains("canvas")).count();
    assert_eq!(of_canvases(&told), 0, "{told:?}");
    assert!(old.subscribe(&chat).await["state"].get("canvases").is_none());
    // Its version is remembered.
    let mut again = Client::connect(host.address).await;
    let answer = again.reconnect("old", seen, &[&chat]).await;
    let replayed = answer["actions"].as_array().unwrap();
    assert!(replayed.len() > 3);
    assert_eq!(of_canvases(replayed), 0, "{replayed:?}");
    publish(&mut new, &chat, "z").await;
    assert_eq!(heard(&again.drain().await), Vec::<Value>::new());
    let mut other = Client::connect(host.address).await;
    let answer = other.reconnect("new", seen, &[&chat]).await;
    assert!(of_canvases(answer["actions"].as_array().unwrap()) > 1);
}

#[tokio::test]
async fn no_client_changes_a_canvas() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let visual = publish(&mut client, &chat, "x").await;
    let tail = host.quiet_tail().await;
    let state = client.subscribe(&canvas(&visual)).await["state"].clone();
    let cases = [
        (canvas(&visual), json!({ "type": "canvas/stateChanged", "canvas": state }), "not-dispatchable"),
        (canvas(&visual), json!({ "type": "chat/isReadChanged", "isRead": true }), "not-dispatchable"),
        (canvas(&visual), json!({ "type": "chat/isReadChanged" }), "malformed"),
        (chat.clone(), json!({ "type": "chat/canvasesChanged", "canvases": [] }), "not-dispatchable"),
    ];
    for (channel, action, expected) in cases {
        let seq = client.dispatch(&channel, action.clone()).await;
        assert_eq!(word(&client.echo(seq).await), expected, "{action}");
    }
    assert_eq!(host.host.store().tail(), tail);
}

#[tokio::test]
async fn the_extensions_are_announced() {
    let host = TestHost::in_memory();
    let mut client = Client::connect(host.address).await;
    let answer = client.initialize("c", &[]).await;
    let announced = answer["_meta"]["scrollback.extensions"].as_array().unwrap();
    for name in [PUBLISH, LIST, REMOVE] {
        assert!(announced.contains(&json!(name)), "{name}");
    }
}

#[tokio::test]
async fn a_clear_takes_the_visuals_along() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t", "/visual a <p>a").await;
    publish(&mut client, &chat, "b").await;
    let all = list(&mut client, &chat).await;
    let canvases = [canvas(&all[0]), canvas(&all[1])];
    let mut mirrored = Mirrored::connect(host.address, "m", &[&chat, &canvases[0]]).await;
    let before = host.quiet_tail().await;
    client.taken();
    client.ask("x-scrollback/clear", json!({ "channel": chat })).await.unwrap();
    let seen = heard(&client.taken());
    assert_eq!(types(&seen).iter().filter(|kind| **kind == "chat/canvasesChanged").count(), 1);
    assert!(list(&mut client, &chat).await.is_empty());
    for (visual, canvas) in all.iter().zip(&canvases) {
        assert_eq!(get(url(visual), &[]).await.status, 404);
        assert_eq!(refused(client.ask("subscribe", json!({ "channel": canvas })).await).0, -32008);
    }
    mirrored.sync().await;
    mirrored.compare(&chat).await.unwrap();
    assert!(mirrored.held(&canvases[0]).get("url").is_none());
    let then = client.ask("x-scrollback/stateAt", json!({ "channel": chat, "serverSeq": before })).await.unwrap();
    assert_eq!(then["state"]["canvases"].as_array().unwrap().len(), 2);
    is_whole(&host);
}

#[tokio::test]
async fn a_fork_gets_its_own_copies_of_what_was_published_in_its_turns() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    publish(&mut client, &chat, "before").await;
    client.run(&chat, "t1", "/visual one <p>one").await;
    publish(&mut client, &chat, "between").await;
    client.run(&chat, "t2", "/visual two <p>two").await;
    publish(&mut client, &chat, "behind").await;
    let titles = |visuals: &[Value]| -> Vec<String> {
        visuals.iter().map(|visual| visual["title"].as_str().unwrap().to_owned()).collect()
    };
    let whole = ["before", "one", "between", "two", "behind"];
    let all = list(&mut client, &chat).await;
    assert_eq!(titles(&all), whole);
    assert!(all.iter().all(|visual| visual.get("afterTurn").is_none()));
    let fork = |new: &str, turn: &str| json!({ "channel": SESSION, "chat": new, "source": { "kind": "fork", "chat": chat, "turnId": turn } });
    client.ask("createChat", fork("ahp-chat:/f1", "t1")).await.unwrap();
    client.ask("createChat", fork("ahp-chat:/f2", "t2")).await.unwrap();
    let copies = list(&mut client, "ahp-chat:/f1").await;
    assert_eq!(titles(&copies), ["before", "one", "between"]);
    assert_eq!(copies[1]["turnId"], "t1");
    assert_eq!(titles(&list(&mut client, "ahp-chat:/f2").await), whole);
    assert_eq!(client.subscribe("ahp-chat:/f1").await["state"]["canvases"].as_array().unwrap().len(), 3);

    // They are its own: what becomes of the source's does not touch them, and the other way round.
    for visual in &all {
        client.ask(REMOVE, json!({ "channel": chat, "id": visual["id"] })).await.unwrap();
    }
    let body = get(url(&copies[1]), &[]).await.body;
    assert!(body.ends_with("<p>one"), "{body}");
    assert!(all.iter().zip(&copies).all(|(one, other)| one["id"] != other["id"] && one["url"] != other["url"]));
    assert_eq!(client.subscribe(&canvas(&copies[1])).await["state"]["title"], "one");
    // A fork of the fork has them from there; one at a moment has what was shown then.
    let again = json!({ "channel": SESSION, "chat": "ahp-chat:/f3",
        "source": { "kind": "fork", "chat": "ahp-chat:/f1", "turnId": "t1" } });
    client.ask("createChat", again).await.unwrap();
    assert_eq!(titles(&list(&mut client, "ahp-chat:/f3").await), ["before", "one", "between"]);
    let at = json!({ "channel": chat, "chat": "ahp-chat:/f4", "serverSeq": host.host.store().tail() });
    client.ask("x-scrollback/forkAt", at).await.unwrap();
    assert!(list(&mut client, "ahp-chat:/f4").await.is_empty());
    host.stop();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    assert_eq!(titles(&list(&mut client, "ahp-chat:/f1").await), ["before", "one", "between"]);
    is_whole(&host);
}

#[tokio::test]
async fn a_side_chat_and_a_fork_that_is_refused_get_nothing() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t", "/visual one <p>one").await;
    let made = |kind: &str, turn: &str| json!({ "channel": SESSION, "chat": "ahp-chat:/n", "source": { "kind": kind, "chat": chat, "turnId": turn } });
    let tail = host.quiet_tail().await;
    refused(client.ask("createChat", made("fork", "never")).await);
    assert_eq!(host.host.store().tail(), tail);
    client.ask("createChat", made("sideChat", "t")).await.unwrap();
    assert!(list(&mut client, "ahp-chat:/n").await.is_empty());
    is_whole(&host);
}
