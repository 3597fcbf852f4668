//! People with tokens of their own: who they are, what they may do, and how that ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::Algorithm;
use scrollback::access::Identity;
use scrollback::access::oidc::{Issuer, OidcSettings};
use scrollback::actors::people::PeopleChange;
use scrollback::clock::Clock;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::people::Role;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::issuer::{FakeIssuer, Odd, Page, SigningKey, settings};
use crate::harness::{Client, Options, TestHost, chat_of, eventually, message};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";
const T: &str = "ahp-session:/t";

fn revoke(name: &str, roles: &[Role], grants: &[&str]) -> PeopleChange {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    PeopleChange::Revoke { name: name.into(), roles: roles.to_vec(), grants }
}

fn grant(name: &str, grants: &[&str]) -> PeopleChange {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    PeopleChange::Grant { name: name.into(), roles: Vec::new(), grants }
}

/// What the socket says when it is over.
async fn closing(client: &mut Client) -> (u16, String) {
    client.read_until_closed().await.1
}

async fn refused(client: &mut Client, method: &str, params: Value) -> (i64, String) {
    let error = client.ask(method, params).await.expect_err("it was not refused");
    (error["code"].as_i64().unwrap(), error["data"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_message_says_who_sent_it_and_the_log_who_did_what() {
    let host = TestHost::in_memory();
    let token = host.add_person("ada", &[Role::Member], &[]).await;
    let mut ada = host.client_of("of ada", &token).await;
    let chat = ada.create_session(S).await;
    ada.subscribe(&chat).await;
    ada.say(&chat, "t1", "/say hi").await;
    let started = ada.take(|m| m["params"]["action"]["type"] == "chat/turnStarted").await;
    assert_eq!(started["params"]["action"]["message"]["_meta"]["scrollback.sender"], "user:ada");
    let by: Vec<(String, String)> = host.records().into_iter().map(|r| (r.principal, r.channel.to_string())).collect();
    for (principal, channel) in [("user:ada", S), ("user:ada", chat.as_str()), ("root:test", "scrollback:people")] {
        assert!(by.contains(&(principal.into(), channel.into())), "{principal} {channel}");
    }
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn people_their_grants_and_their_tokens_outlive_a_restart() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let token = host.add_person("ada", &[Role::Guest], &["chat:send@ahp-session:/s"]).await;
    host.client("root").await.create_session(S).await;
    host.stop();
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let mut ada = host.client_of("a", &token).await;
    assert_eq!(ada.ask("listSessions", json!({ "channel": ROOT })).await.unwrap()["items"][0]["resource"], S);
    ada.subscribe(&chat_of(S)).await;
    ada.say(&chat_of(S), "t1", "/say hi").await;
    ada.take(|m| m["params"]["action"]["type"] == "chat/turnComplete").await;
    let create = json!({ "channel": T, "provider": "demo" });
    assert_eq!(refused(&mut ada, "createSession", create).await, (-32009, "not-permitted".into()));
}

#[tokio::test]
async fn a_token_is_good_until_it_ends_is_replaced_or_its_person_goes() {
    let clock = Clock::fixed(1_000_000);
    let host =
        TestHost::start(Arc::new(MemoryStore::new().unwrap()), Options { clock: clock.clone(), ..Options::default() });
    let change = PeopleChange::Add {
        name: "ada".into(),
        roles: vec![Role::Guest],
        grants: Vec::new(),
        expires: Some(Duration::from_secs(60)),
    };
    let first = host.change_people(change).await.token.unwrap();
    assert!(Client::connect_with(host.address, &first).await.is_ok());
    let another = PeopleChange::Token { name: "ada".into(), replace: false, expires: None };
    let second = host.change_people(another).await.token.unwrap();
    clock.advance(60_000);
    assert_eq!(Client::connect_with(host.address, &first).await.err(), Some(401));
    let mut open = host.client_of("a", &second).await;
    let replacing = PeopleChange::Token { name: "ada".into(), replace: true, expires: None };
    let third = host.change_people(replacing).await.token.unwrap();
    assert_eq!(closing(&mut open).await.0, 1008);
    assert_eq!(Client::connect_with(host.address, &second).await.err(), Some(401));
    let mut open = host.client_of("a", &third).await;
    host.change_people(PeopleChange::Remove { name: "ada".into() }).await;
    assert_eq!(closing(&mut open).await.0, 1008);
    assert_eq!(Client::connect_with(host.address, &third).await.err(), Some(401));
}

#[tokio::test]
async fn an_open_connection_ends_when_its_token_does() {
    let host = TestHost::in_memory();
    let expires = Some(Duration::from_secs(2));
    let change = PeopleChange::Add { name: "ada".into(), roles: vec![Role::Guest], grants: Vec::new(), expires };
    let token = host.change_people(change).await.token.unwrap();
    let mut ada = host.client_of("a", &token).await;
    let (code, reason) = closing(&mut ada).await;
    assert_eq!(code, 1008);
    assert!(reason.contains("token has ended"), "{reason}");
}

#[tokio::test]
async fn what_may_no_longer_be_read_stops_at_once_and_is_missing_afterwards() {
    let host = TestHost::in_memory();
    let mut root = host.client("root").await;
    let (s, t) = (root.create_session(S).await, root.create_session(T).await);
    let token = host.add_person("ada", &[], &["session:read@ahp-session:/s", "session:read@ahp-session:/t"]).await;
    let mut ada = host.client_of("a", &token).await;
    for channel in [S, T, &s, &t] {
        ada.subscribe(channel).await;
    }
    host.change_people(revoke("ada", &[], &["session:read@ahp-session:/t"])).await;
    let (code, reason) = closing(&mut ada).await;
    assert_eq!(code, 1008);
    assert!(reason.contains("reconnect"), "{reason}");
    root.subscribe(T).await;
    root.accepted(T, json!({ "type": "session/titleChanged", "title": "secret" })).await;
    let mut ada = Client::connect_with(host.address, &token).await.unwrap_or_else(|status| panic!("{status}"));
    let answer = ada.reconnect("a", 1, &[ROOT, S, T, &s, &t]).await;
    assert_eq!(answer["missing"], json!([T, t]));
    assert!(!answer.to_string().contains("secret"));
}

#[tokio::test]
async fn a_connection_whose_subscriptions_may_still_be_read_stays_when_something_else_is_taken() {
    let host = TestHost::in_memory();
    let chat = host.client("root").await.create_session(S).await;
    let token = host.add_person("ada", &[Role::Guest, Role::Member], &[]).await;
    let mut ada = host.client_of("a", &token).await;
    ada.subscribe(&chat).await;
    host.change_people(revoke("ada", &[Role::Member], &[])).await;
    ada.say(&chat, "t1", "/say hi").await;
    let back = ada.take(|m| m["params"]["rejectionReason"].is_string()).await;
    assert!(back["params"]["rejectionReason"].as_str().unwrap().starts_with("not-permitted:"), "{back}");
    assert_eq!(refused(&mut ada, "disposeChat", json!({ "channel": chat })).await.0, -32009);
    host.change_people(grant("ada", &["chat:send"])).await;
    ada.say(&chat, "t2", "/say hi").await;
    ada.take(|m| m["params"]["action"]["type"] == "chat/turnComplete").await;
}

#[tokio::test]
async fn a_channel_that_one_may_not_read_behaves_as_one_that_is_not_there() {
    let host = TestHost::in_memory();
    let mut root = host.client("root").await;
    root.create_session(S).await;
    let hidden = root.create_session(T).await;
    let token = host.add_person("ada", &[], &["*:*@ahp-session:/s"]).await;
    let mut ada = host.client_of("a", &token).await;
    let commands = [
        ("subscribe", json!({})),
        ("fetchTurns", json!({})),
        ("disposeChat", json!({})),
        ("completions", json!({ "kind": "userMessage", "text": "/", "offset": 1 })),
        ("moveChat", json!({ "destination": { "kind": "session", "session": S } })),
        ("x-scrollback/stateAt", json!({ "serverSeq": 1 })),
        ("x-scrollback/sendNow", json!({ "id": "q" })),
        ("x-scrollback/clear", json!({})),
        ("x-scrollback/compact", json!({})),
        ("x-scrollback/stopBackgroundWork", json!({ "id": "b" })),
        ("x-scrollback/forkAt", json!({ "chat": "ahp-chat:/f", "turnId": "t1" })),
        ("x-scrollback/listVisuals", json!({})),
    ];
    let at = |params: &Value, channel: &str| {
        let mut params = params.clone();
        params["channel"] = json!(channel);
        params
    };
    let nowhere = chat_of("ahp-session:/nowhere");
    for (method, params) in commands {
        let of_hidden = ada.ask(method, at(&params, &hidden)).await.expect_err(method);
        let of_nothing = ada.ask(method, at(&params, &nowhere)).await.expect_err(method);
        let named = of_hidden.to_string().replace(&hidden, "X");
        assert_eq!(named, of_nothing.to_string().replace(&nowhere, "X"), "{method}");
    }
    for (method, session) in [("disposeSession", T), ("createChat", T)] {
        let params = |session: &str| json!({ "channel": session, "chat": "ahp-chat:/new" });
        let of_hidden = ada.ask(method, params(session)).await.expect_err(method).to_string();
        let of_nothing = ada.ask(method, params("ahp-session:/nowhere")).await.expect_err(method).to_string();
        assert_eq!(of_hidden.replace(T, "X"), of_nothing.replace("ahp-session:/nowhere", "X"), "{method}");
    }
    // An action is ignored, as for a channel that is not there: nothing comes back before the next answer.
    ada.say(&hidden, "t1", "hello").await;
    ada.ask("ping", json!({ "channel": ROOT })).await.unwrap();
    assert!(ada.drain().await.is_empty());
    let listed = ada.ask("listSessions", json!({ "channel": ROOT })).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn notifications_are_for_those_who_may_list_the_session() {
    let host = TestHost::in_memory();
    let token = host.add_person("ada", &[], &["session:read@ahp-session:/s"]).await;
    let mut ada = host.client_of("a", &token).await;
    ada.subscribe(ROOT).await;
    let mut root = host.client("root").await;
    for session in [T, S] {
        let chat = root.create_session(session).await;
        root.subscribe(&chat).await;
        root.say(&chat, "t1", "/say hi").await;
        root.take(|m| m["params"]["action"]["type"] == "chat/turnComplete").await;
        root.ask("disposeSession", json!({ "channel": session })).await.unwrap();
    }
    ada.take(|m| m["method"] == "root/sessionRemoved" && m["params"]["session"] == S).await;
    let rest = ada.drain().await;
    assert!(!rest.iter().any(|m| m.to_string().contains(T)), "{rest:?}");
}

#[tokio::test]
async fn a_chat_that_moves_out_of_reach_is_not_heard_any_more() {
    let host = TestHost::in_memory();
    let mut root = host.client("root").await;
    root.create_session(S).await;
    root.create_session(T).await;
    root.create_chat(S, "ahp-chat:/p").await;
    let token = host.add_person("ada", &[], &["session:read@ahp-session:/s"]).await;
    let mut ada = host.client_of("a", &token).await;
    ada.subscribe("ahp-chat:/p").await;
    let destination = json!({ "kind": "session", "session": T });
    root.ask("moveChat", json!({ "channel": "ahp-chat:/p", "destination": destination })).await.unwrap();
    assert_eq!(closing(&mut ada).await.0, 1008);
    let mut ada = host.client_of("a", &token).await;
    assert_eq!(refused(&mut ada, "subscribe", json!({ "channel": "ahp-chat:/p" })).await.0, -32008);
}

#[tokio::test]
async fn a_client_id_is_its_first_users_also_after_a_restart() {
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, Options::default());
    let ada = host.add_person("ada", &[Role::Member], &[]).await;
    let bob = host.add_person("bob", &[Role::Admin], &[]).await;
    host.client_of("laptop", &ada).await;
    let handshakes = |id: &str| {
        let initialize = json!({ "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": id });
        let reconnect = json!({ "channel": ROOT, "clientId": id, "lastSeenServerSeq": 1, "subscriptions": [ROOT] });
        [("initialize", initialize), ("reconnect", reconnect)]
    };
    let tried = async |host: &TestHost| {
        for (method, params) in handshakes("laptop") {
            let mut client = Client::connect_with(host.address, &bob).await.unwrap_or_else(|status| panic!("{status}"));
            assert_eq!(refused(&mut client, method, params).await, (-32009, "not-permitted".into()), "{method}");
        }
        host.client_of("laptop", &ada).await;
    };
    tried(&host).await;
    host.stop();
    tried(&TestHost::start(Arc::clone(&store) as _, Options::default())).await;
}

#[tokio::test]
async fn nobody_gives_or_takes_on_what_they_may_not_do_themselves() {
    let host = TestHost::in_memory();
    host.add_person("warden", &[Role::Guest], &["user:change"]).await;
    host.add_person("boss", &[Role::Admin], &[]).await;
    host.add_person("kid", &[Role::Guest], &[]).await;
    let warden = Identity::bare("user:warden");
    let add = |roles: Vec<Role>, grants: &[&str]| PeopleChange::Add {
        name: "new".into(),
        roles,
        grants: grants.iter().map(|grant| grant.parse().unwrap()).collect(),
        expires: None,
    };
    let token = |name: &str| PeopleChange::Token { name: name.into(), replace: true, expires: None };
    for change in [
        add(vec![Role::Admin], &[]),
        add(vec![], &["chat:send"]),
        grant("warden", &["*:*"]),
        token("boss"),
        revoke("boss", &[Role::Admin], &[]),
        PeopleChange::Remove { name: "boss".into() },
    ] {
        let refusal = host.host.change_people(&warden, change.clone()).await.expect_err("it was not refused");
        assert_eq!(refusal.code, "not-permitted", "{change:?}");
    }
    host.host.change_people(&warden, token("kid")).await.unwrap();
    host.host.change_people(&warden, add(vec![], &["session:read@ahp-session:/s"])).await.unwrap();
}

#[tokio::test]
async fn an_attached_chat_that_the_sender_may_not_read_is_a_pointer_without_an_excerpt() {
    let host = TestHost::in_memory();
    let mut root = host.client("root").await;
    let (own, hidden) = (root.create_session(S).await, root.create_session(T).await);
    root.subscribe(&hidden).await;
    root.say(&hidden, "h1", "/say the secret").await;
    root.take(|m| m["params"]["action"]["type"] == "chat/turnComplete").await;
    let token = host.add_person("ada", &[], &["session:read@ahp-session:/s", "session:write@ahp-session:/s"]).await;
    let mut ada = host.client_of("a", &token).await;
    ada.subscribe(&own).await;
    let attached = json!([{ "type": "chat", "label": "That chat", "resource": hidden, "endTurn": "h9" }]);
    let mut asks = message("/context");
    asks["attachments"] = attached;
    let action = json!({ "type": "chat/turnStarted", "turnId": "t1", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": asks });
    ada.dispatch(&own, action).await;
    ada.take(|m| m["params"]["action"]["type"] == "chat/turnComplete").await;
    let state = ada.subscribe(&own).await["state"].to_string();
    assert!(state.contains("That chat") && !state.contains("the secret"), "{state}");
}

#[tokio::test]
async fn live_events_over_http_show_what_may_be_read_and_end_with_it() {
    let host = TestHost::in_memory();
    let mut root = host.client("root").await;
    root.create_session(S).await;
    root.create_session(T).await;
    let token = host.add_person("ada", &[], &["session:read@ahp-session:/s"]).await;
    let get = |path: &str| {
        let request =
            ureq::get(format!("http://{}{path}", host.address)).header("Authorization", format!("Bearer {token}"));
        request.config().http_status_as_error(false).build()
    };
    let whole = get("/api/events").call().unwrap().into_body().read_to_string().unwrap();
    assert!(whole.contains(S) && !whole.contains(T), "{whole}");
    let one = |path: String| get(&path).call().unwrap().status().as_u16();
    assert_eq!(one(format!("/api/events?channel={T}")), 404);
    assert_eq!(one(format!("/api/state?channel={T}")), 404);
    assert_eq!(one(format!("/api/state?channel={S}")), 200);
    assert_eq!(one("/api/log".into()), 403);
    assert_eq!(one("/api/users".into()), 403);
    let live = get("/api/events").header("Accept", "text/event-stream").call().unwrap();
    let (heard, shown) = (Arc::new(Mutex::new(String::new())), "shown");
    let kept = Arc::clone(&heard);
    let reader = std::thread::spawn(move || {
        let lines = std::io::BufRead::lines(std::io::BufReader::new(live.into_body().into_reader()));
        lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push_str(&line));
    });
    root.subscribe(T).await;
    root.subscribe(S).await;
    root.accepted(T, json!({ "type": "session/titleChanged", "title": "hidden" })).await;
    root.accepted(S, json!({ "type": "session/titleChanged", "title": shown })).await;
    eventually("what may be read is heard", || heard.lock().unwrap().contains(shown)).await;
    host.change_people(PeopleChange::Remove { name: "ada".into() }).await;
    eventually("the stream ends", || reader.is_finished()).await;
    let heard = heard.lock().unwrap().clone();
    assert!(!heard.contains("hidden") && !heard.contains(T), "{heard}");
}

#[tokio::test]
async fn somebody_has_so_many_good_tokens_and_no_more() {
    let host = TestHost::in_memory();
    let first = host.add_person("ada", &[Role::Guest], &[]).await;
    let token = |replace| PeopleChange::Token { name: "ada".into(), replace, expires: None };
    for _ in 1..100 {
        host.change_people(token(false)).await;
    }
    let refusal = host.host.change_people(&Identity::root("test"), token(false)).await.unwrap_err();
    assert_eq!(refusal.code, "limit-exceeded");
    assert!(Client::connect_with(host.address, &first).await.is_ok());
    let last = host.change_people(token(true)).await;
    assert_eq!(last.tokens.len(), 1);
    assert!(Client::connect_with(host.address, &last.token.unwrap()).await.is_ok());
}

#[tokio::test]
async fn streams_end_with_the_token_that_they_came_with() {
    let host = TestHost::in_memory();
    host.client("root").await.create_session(S).await;
    for (name, path, accept) in
        [("ada", "/api/events", "text/event-stream"), ("bob", "/api/log?follow=true", "application/x-ndjson")]
    {
        let expires = Some(Duration::from_secs(2));
        let change = PeopleChange::Add { name: name.into(), roles: vec![Role::Admin], grants: Vec::new(), expires };
        let token = host.change_people(change).await.token.unwrap();
        let request = ureq::get(format!("http://{}{path}", host.address)).header("Accept", accept);
        let live = request.header("Authorization", format!("Bearer {token}")).call().unwrap();
        let reader = std::thread::spawn(move || {
            let _ = std::io::copy(&mut live.into_body().into_reader(), &mut std::io::sink());
        });
        eventually("the stream ends", || reader.is_finished()).await;
    }
}

/// A host that takes tokens of an issuer, and one of its keys.
fn with_issuer(clock: &Clock) -> (TestHost, FakeIssuer, SigningKey) {
    let (issuer, key) = (FakeIssuer::start(), SigningKey::new(Algorithm::ES256, Some("k")));
    issuer.publishes(&[&key]);
    let settings = OidcSettings { leeway: Duration::ZERO, ..settings(&issuer.url) };
    let taken = Issuer::new(settings, clock.clone()).unwrap();
    let options =
        Options { token: Some("deployment".into()), issuer: Some(taken), clock: clock.clone(), ..Options::default() };
    (TestHost::start(Arc::new(MemoryStore::new().unwrap()), options), issuer, key)
}

#[tokio::test]
async fn a_person_of_an_issuer_has_the_roles_of_the_token_and_the_grants_of_this_host() {
    let clock = Clock::system();
    let (host, issuer, key) = with_issuer(&clock);
    host.add_person("ada", &[], &["chat:send"]).await;
    let token = |audience: &str, roles: &[&str]| {
        let expires = clock.now() / 1_000 + 60;
        key.token(&json!({ "iss": issuer.url, "aud": audience, "sub": "ada", "exp": expires, "roles": roles }))
    };
    let mut root = host.client_of("root", "deployment").await;
    let chat = root.create_session(S).await;
    let mut ada = host.client_of("a", &token("scrollback", &["guest", "unheard-of"])).await;
    ada.subscribe(&chat).await;
    ada.say(&chat, "t1", "/say hi").await;
    let started = ada.take(|m| m["params"]["action"]["type"] == "chat/turnStarted").await;
    assert_eq!(started["params"]["action"]["message"]["_meta"]["scrollback.sender"], "user:ada");
    assert_eq!(refused(&mut ada, "disposeSession", json!({ "channel": S })).await.0, -32009);
    assert_eq!(Client::connect_with(host.address, &token("other", &["admin"])).await.err(), Some(401));
    assert_eq!(Client::connect_with(host.address, "a.b.c").await.err(), Some(401));
    issuer.answers(Page::Keys, Some(Odd::Status(500)));
    assert!(Client::connect_with(host.address, &token("scrollback", &[])).await.is_ok(), "its keys are known");
}

#[tokio::test]
async fn a_connection_with_a_token_of_an_issuer_ends_with_it_and_one_whose_keys_are_not_to_be_had_hears_503() {
    let clock = Clock::system();
    let (host, issuer, key) = with_issuer(&clock);
    let token = |seconds: i64| {
        let expires = clock.now() / 1_000 + seconds;
        key.token(&json!({ "iss": issuer.url, "aud": "scrollback", "sub": "ada", "exp": expires, "roles": ["guest"] }))
    };
    issuer.answers(Page::Keys, Some(Odd::Status(500)));
    assert_eq!(Client::connect_with(host.address, &token(60)).await.err(), Some(503));
    drop(host);
    let (host, issuer, key) = with_issuer(&clock);
    let expires = clock.now() / 1_000 + 2;
    let claims = json!({ "iss": issuer.url, "aud": "scrollback", "sub": "ada", "exp": expires, "roles": ["guest"] });
    let mut ada = host.client_of("a", &key.token(&claims)).await;
    assert_eq!(closing(&mut ada).await.0, 1008);
}
