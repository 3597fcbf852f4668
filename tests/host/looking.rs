//! What the pages for admins ask: the list of sessions and its search, where chats came from, states in windows, the overview.

use std::sync::Arc;
use std::time::Duration;

use scrollback::events::memory::MemoryStore;
use scrollback::projections::people::Role;
use serde_json::{Value, json};

use crate::command::{Host as Process, scrollback};
use crate::harness::{Client, Options, PATIENCE, TestHost, eventually};

const S: &str = "ahp-session:/s";

/// A request of whoever has this token: the status, and the body as JSON.
fn get_with(host: &TestHost, token: Option<&str>, path: &str) -> (u16, Value) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    let agent: ureq::Agent = config.build().into();
    let request = agent.get(format!("http://{}{}", host.address, path.replace(' ', "%20")));
    let request = match token {
        Some(token) => request.header("Authorization", format!("Bearer {token}")),
        None => request,
    };
    let response = request.call().unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.into_body().read_to_string().unwrap()).unwrap())
}

fn get(host: &TestHost, path: &str) -> Value {
    let (status, body) = get_with(host, None, path);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn found(page: &Value) -> Vec<String> {
    page["sessions"].as_array().unwrap().iter().map(|one| one["resource"].as_str().unwrap().to_owned()).collect()
}

async fn titled(client: &mut Client, session: &str, title: &str) -> String {
    let chat = client.create_session(session).await;
    client.subscribe(session).await;
    let seq = client.dispatch(session, json!({ "type": "session/titleChanged", "title": title })).await;
    client.echo(seq).await;
    chat
}

#[tokio::test]
async fn sessions_are_found_by_title_uri_and_people_newest_first() {
    let host = TestHost::in_memory();
    let token = host.add_person("ada", &[Role::Member], &[]).await;
    let mut client = host.client("c").await;
    let mut ada = host.client_of("a", &token).await;
    titled(&mut client, "ahp-session:/alpha", "Fix the Parser").await;
    titled(&mut client, "ahp-session:/beta", "Write the docs").await;
    titled(&mut ada, "ahp-session:/gamma", "Parser again").await;
    let search = |words: &str| found(&get(&host, &format!("/api/sessions?search={words}")));
    eventually("the newest is found", || search("").len() == 3).await;
    assert_eq!(search("PARSER"), ["ahp-session:/gamma", "ahp-session:/alpha"]);
    assert_eq!(search("parser fix"), ["ahp-session:/alpha"]);
    assert_eq!(search("session:/beta"), ["ahp-session:/beta"]);
    eventually("the log was read for people", || search("user:ada") == ["ahp-session:/gamma"]).await;
    assert_eq!(search("nothing of it"), [] as [String; 0]);
    let listed = get(&host, "/api/sessions?search=gamma");
    assert_eq!(listed["sessions"][0]["people"], json!(["user:ada"]));
    // What changes is found as it is now.
    let seq = client.dispatch("ahp-session:/beta", json!({ "type": "session/titleChanged", "title": "Poetry" })).await;
    client.echo(seq).await;
    eventually("the new title is found", || search("poetry") == ["ahp-session:/beta"]).await;
    assert_eq!(search("docs"), [] as [String; 0]);
}

#[tokio::test]
async fn the_list_of_sessions_is_paged_and_disposed_ones_are_for_who_reads_the_log() {
    let host = TestHost::in_memory();
    let guest = host.add_person("gus", &[Role::Guest], &[]).await;
    let one = host.add_person("one", &[], &["session:read@ahp-session:/p3"]).await;
    let mut client = host.client("c").await;
    for n in 0..7 {
        titled(&mut client, &format!("ahp-session:/p{n}"), "Page").await;
    }
    client.ask("disposeSession", json!({ "channel": "ahp-session:/p0" })).await.unwrap();
    let all = |token: Option<&str>, more: &str| {
        let (mut listed, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = get_with(&host, token, &format!("/api/sessions?search=page&limit=2{more}{cursor}")).1;
            listed.extend(found(&page));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return listed,
            }
        }
    };
    eventually("the disposed one is gone", || all(None, "").len() == 6).await;
    let listed = all(None, "");
    assert_eq!(
        (listed.first().unwrap().as_str(), listed.last().unwrap().as_str()),
        ("ahp-session:/p6", "ahp-session:/p1")
    );
    assert_eq!(all(None, "&disposed=true").len(), 7);
    assert_eq!(all(Some(&guest), "&disposed=true").len(), 6);
    assert_eq!(all(Some(&one), ""), ["ahp-session:/p3"]);
    assert_eq!(get_with(&host, None, "/api/sessions?cursor=x").0, 400);
}

#[tokio::test]
async fn the_lineage_of_a_session_shows_forks_side_chats_workers_and_what_rewinds_dropped() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2", "t3"] {
        client.run(&chat, turn, &format!("/say {turn}")).await;
    }
    client.run(&chat, "w", "/subagent /say done").await;
    let source = json!({ "kind": "fork", "chat": chat, "turnId": "t2" });
    client.ask("createChat", json!({ "channel": S, "chat": "ahp-chat:/f", "source": source })).await.unwrap();
    let source = json!({ "kind": "sideChat", "chat": "ahp-chat:/f", "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": "ahp-chat:/side", "source": source })).await.unwrap();
    let seq = client.dispatch(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    client.echo(seq).await;
    client.run(&chat, "t4", "/say instead").await;
    client.ask("disposeChat", json!({ "channel": "ahp-chat:/side" })).await.unwrap();
    let tree = get(&host, &format!("/api/lineage?session={S}"));
    let chats = tree["chats"].as_array().unwrap();
    let of = |uri: &str| chats.iter().find(|one| one["resource"] == json!(uri)).cloned().unwrap_or_default();
    assert_eq!((&of("ahp-chat:/f")["parent"], &of("ahp-chat:/f")["turns"]), (&json!(chat), &json!(2)));
    assert_eq!(of("ahp-chat:/side"), Value::Null);
    let worker = chats.iter().find(|one| one["origin"]["kind"] == json!("tool")).unwrap();
    assert_eq!(worker["parent"], json!(chat));
    let first = of(&chat);
    assert_eq!(first["turns"], json!(2));
    let [dropped] = first["branches"].as_array().unwrap().as_slice() else { panic!("{first}") };
    assert_eq!((&dropped["turns"], &dropped["turnId"], &dropped["after"]), (&json!(3), &json!("w"), &json!("t1")));
    assert_eq!(dropped["text"], json!("/say t2"));
    // What was said is for those alone who read the chat.
    let other = host.add_person("one", &[], &["session:state@ahp-session:/s"]).await;
    let (status, seen) = get_with(&host, Some(&other), &format!("/api/lineage?session={S}"));
    assert_eq!((status, seen["chats"].as_array().unwrap().len()), (200, chats.len()));
    assert!(!seen.to_string().contains("/say t2"), "{seen}");
    // By any chat of it, and with what was closed.
    let closed = get(&host, &format!("/api/lineage?session={chat}&closed=true"));
    let side = closed["chats"].as_array().unwrap().iter().find(|one| one["closed"] == json!(true)).unwrap();
    assert_eq!((&side["resource"], &side["parent"]), (&json!("ahp-chat:/side"), &json!("ahp-chat:/f")));
    assert_eq!(get_with(&host, None, "/api/lineage?session=ahp-session:/none").0, 404);
}

#[tokio::test]
async fn a_state_at_an_event_comes_with_as_many_turns_as_are_asked_for() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for turn in ["t1", "t2", "t3"] {
        client.run(&chat, turn, "/say so").await;
    }
    let extent = get(&host, &format!("/api/extent?channel={chat}"));
    let ends: Vec<u64> =
        extent["turns"].as_array().unwrap().iter().map(|turn| turn["serverSeq"].as_u64().unwrap()).collect();
    assert_eq!((ends.len(), &extent["ended"]), (3, &json!(3)));
    let ids = |path: &str| {
        let state = get(&host, path)["state"].clone();
        let ids: Vec<Value> = state["turns"].as_array().unwrap().iter().map(|turn| turn["id"].clone()).collect();
        (ids, state["turnsNextCursor"].is_string())
    };
    assert_eq!(ids(&format!("/api/state?channel={chat}&turns=2")), (vec![json!("t2"), json!("t3")], true));
    assert_eq!(ids(&format!("/api/state?channel={chat}&turns=1&at={}", ends[1])), (vec![json!("t2")], true));
    assert_eq!(ids(&format!("/api/state?channel={chat}&at={}", ends[1])), (vec![json!("t1"), json!("t2")], false));
}

#[tokio::test]
async fn everybody_hears_what_they_may_do_themselves() {
    let host = TestHost::in_memory();
    let guest = host.add_person("gus", &[Role::Guest], &["chat:fork@ahp-session:/s"]).await;
    let nobody = host.add_person("nina", &[], &[]).await;
    let me = get_with(&host, Some(&guest), "/api/me").1;
    assert_eq!(me["principal"], json!("user:gus"));
    assert_eq!(me["may"], json!(["chat:turns", "session:list", "session:state"]));
    assert_eq!(me["maySomewhere"], json!(["chat:turns", "chat:fork", "session:list", "session:state"]));
    assert_eq!(get_with(&host, Some(&nobody), "/api/me").1["may"], json!([]));
    assert!(get(&host, "/api/me")["may"].as_array().unwrap().contains(&json!("host:admin")));
}

#[tokio::test]
async fn the_overview_names_who_is_connected_what_is_awake_and_what_runs() {
    let host = TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options::default());
    let mut client = host.client("c").await;
    let chat = titled(&mut client, S, "At work").await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "/sleep 600000").await;
    eventually("it runs", || get(&host, "/api/overview")["now"]["running"] == json!(1)).await;
    let overview = get(&host, "/api/overview");
    assert_eq!(overview["connected"], json!([{ "principal": "root:test", "connections": 1 }]));
    let running = &overview["running"][0];
    assert_eq!((&running["session"], &running["chat"]), (&json!(S), &json!(chat)));
    assert!(running["title"].as_str().is_some_and(|title| !title.is_empty()), "{running}");
    assert_eq!(overview["awake"][0]["session"], json!(S));
    assert_eq!((&overview["now"]["sessions"], &overview["problem"]), (&json!(1), &Value::Null));
    assert_eq!(overview["warnings"], json!([]));
}

#[test]
fn the_overview_of_a_real_host_has_samples_of_what_it_wrote_and_the_configuration_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "a-secret-token").unwrap();
    let mut command = scrollback(directory.path(), &["serve", "--listen", "127.0.0.1:0", "--data", "data"]);
    let host = Process::spawn(command.env("SCROLLBACK_TOKEN_FILE", &token));
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(30))).build().into();
    let get = |path: &str| -> String {
        let request = agent.get(format!("http://127.0.0.1:{}{path}", host.port));
        let response = request.header("Authorization", "Bearer a-secret-token").call().unwrap();
        response.into_body().read_to_string().unwrap()
    };
    let overview: Value = serde_json::from_str(&get("/api/overview")).unwrap();
    assert!(!overview["samples"].as_array().unwrap().is_empty(), "{overview}");
    assert!(overview["now"]["diskBytes"].as_u64().unwrap() > 0 && overview["now"]["freeBytes"].is_u64());
    let configuration = get("/api/config");
    assert!(!configuration.contains("a-secret-token"));
    let settings: Vec<Value> = serde_json::from_str(&configuration).unwrap();
    let file = settings.iter().find(|setting| setting["key"] == json!("token_file")).unwrap();
    assert_eq!(file["from"], json!("environment SCROLLBACK_TOKEN_FILE"));
}
