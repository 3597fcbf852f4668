//! Somebody with grants for one session alone, and everything by which another session could show.

use serde_json::{Value, json};

use super::http;
use super::requests::{Place, encoded, with};
use crate::harness::{Client, ROOT, chat_of, message};
use crate::resources::{Ground, of};

const READS: &str = "session:read@ahp-session:/own";
const WRITES: &str = "session:write@ahp-session:/own";

/// A host with two sessions, and somebody with these grants.
async fn begin(grants: &[&str]) -> (Ground, Client, Client, String, [Place; 2]) {
    let ground = Ground::new();
    ground.put("a.txt", "text");
    let mut root = ground.host.client("root").await;
    let places = [Place::make(&mut root, "own").await, Place::make(&mut root, "other").await];
    let token = ground.host.add_person("ada", &[], grants).await;
    let ada = ground.host.client_of("ada", &token).await;
    (ground, root, ada, token, places)
}

/// The number and the text of a refusal, without the place's own names.
async fn refusal(client: &mut Client, method: &str, params: Value, place: &Place) -> (i64, String) {
    let error = match client.ask(method, params.clone()).await {
        Err(error) => error,
        Ok(result) => panic!("{method} {params} was answered {result}"),
    };
    (error["code"].as_i64().unwrap(), place.anonymous(&error.to_string()))
}

#[tokio::test]
async fn the_list_the_log_and_the_handshakes_show_that_session_alone() {
    let (ground, mut root, mut ada, token, [own, other]) = begin(&[READS]).await;
    let listed = ada.listed().await;
    assert_eq!(listed.iter().map(|item| &item["resource"]).collect::<Vec<_>>(), [&json!(own.session)]);
    let (status, events) = http(&ground, &token, "GET", "/api/events", None);
    assert_eq!(status, 200);
    assert!(events.contains(&own.chat) && events.contains(&own.canvas), "{events}");
    let names = |text: &str| text.contains(":/other") || text.contains(&other.chat) || text.contains(&other.canvas);
    assert!(!names(&events), "{events}");
    let all =
        [ROOT, &own.session, &own.chat, &own.canvas, &other.session, &other.chat, &other.canvas, "ahp-chat:/other"];
    let mut fresh = Client::connect_with(ground.host.address, &token).await.unwrap_or_else(|status| panic!("{status}"));
    let begun = fresh.initialize("fresh", &all).await;
    assert_eq!(begun["snapshots"].as_array().unwrap().len(), 4, "{begun}");
    assert!(!names(&begun.to_string()), "{begun}");
    let mut again = Client::connect_with(ground.host.address, &token).await.unwrap_or_else(|status| panic!("{status}"));
    let answer = again.reconnect("fresh", 1, &all).await;
    assert_eq!(answer["missing"], json!(all[4..]));
    // What comes later.
    for (place, title) in [(&other, "hidden"), (&own, "shown")] {
        root.accepted(&place.session, json!({ "type": "session/titleChanged", "title": title })).await;
        root.accepted(&place.chat, json!({ "type": "chat/draftChanged", "draft": message(title) })).await;
    }
    for client in [&mut fresh, &mut again] {
        let heard = client.until(|envelope| envelope["action"]["draft"]["text"] == json!("shown")).await;
        let rest = client.drain().await;
        assert!(!heard.iter().chain(&rest).any(|said| names(&said.to_string())), "{heard:?} {rest:?}");
    }
}

#[tokio::test]
async fn no_name_of_another_session_opens_anything_and_a_closed_chat_is_for_those_who_read_the_log() {
    let (ground, _, mut ada, token, [own, other]) = begin(&[READS, WRITES]).await;
    let nowhere = Place::nowhere("none");
    // The session, its default chat by both of its names, another chat, a canvas, a closed chat.
    let names = |place: &Place| {
        let synonym = format!("ahp-chat:/{}", place.id);
        [
            place.session.clone(),
            place.chat.clone(),
            synonym,
            place.named("spare"),
            place.canvas.clone(),
            place.named("closed"),
        ]
    };
    let tail = ground.host.host.store().tail();
    let asked = |channel: &str| {
        let of = |more: Value| with(json!({ "channel": channel }), more);
        [
            ("subscribe", of(json!({}))),
            ("x-scrollback/stateAt", of(json!({ "serverSeq": tail }))),
            ("fetchTurns", of(json!({}))),
            ("completions", of(json!({ "kind": "userMessage", "text": "#", "offset": 1 }))),
            ("x-scrollback/listVisuals", of(json!({}))),
            ("x-scrollback/forkAt", of(json!({ "chat": "ahp-chat:/new", "turnId": "t1" }))),
            ("x-scrollback/sendNow", of(json!({ "id": "x" }))),
            ("disposeChat", of(json!({}))),
            ("disposeSession", of(json!({}))),
        ]
    };
    for (hidden, nothing) in names(&other).iter().zip(&names(&nowhere)) {
        for ((method, of_hidden), (_, of_nothing)) in asked(hidden).into_iter().zip(asked(nothing)) {
            let is = refusal(&mut ada, method, of_hidden, &other).await;
            assert_eq!(is, refusal(&mut ada, method, of_nothing, &nowhere).await, "{method} {hidden}");
            assert!([-32008, -32001].contains(&is.0), "{method} {hidden}: {is:?}");
        }
        for path in ["/api/state", "/api/events"] {
            let get =
                |channel: &str| http(&ground, &token, "GET", &format!("{path}?channel={}", encoded(channel)), None);
            let ((status, body), (_, of_nothing)) = (get(hidden), get(nothing));
            assert_eq!(status, 404, "{path} {hidden}");
            assert_eq!(other.anonymous(&body), nowhere.anonymous(&of_nothing), "{path} {hidden}");
        }
        ada.dispatch(hidden, json!({ "type": "session/titleChanged", "title": "mine" })).await;
        ada.dispatch(hidden, json!({ "type": "chat/draftChanged", "draft": message("mine") })).await;
    }
    let open = names(&own);
    for name in &open[..5] {
        ada.subscribe(name).await;
        ada.ask("x-scrollback/stateAt", json!({ "channel": name, "serverSeq": tail })).await.unwrap();
    }
    let closed = own.named("closed");
    for (method, params) in asked(&closed) {
        let code = refusal(&mut ada, method, params, &own).await.0;
        assert!([-32008, -32001].contains(&code), "{method}: {code}");
    }
    ada.accepted(&own.chat, json!({ "type": "chat/draftChanged", "draft": message("own") })).await;
    assert!(!ada.drain().await.iter().any(|heard| heard["params"]["rejectionReason"].is_string()));
    let by_ada =
        |record: &scrollback::events::Record| record.principal == "user:ada" && other.has(record.channel.as_str());
    assert!(!ground.host.records().iter().any(by_ada));
    // With the log of that session the closed chat is there.
    let token = ground.host.add_person("bob", &[], &[READS, WRITES, "log:read@ahp-session:/own"]).await;
    let mut bob = ground.host.client_of("bob", &token).await;
    bob.ask("x-scrollback/stateAt", json!({ "channel": closed, "serverSeq": tail })).await.unwrap();
    let fork = |from: &Place, to: &str| json!({ "channel": from.named("closed"), "chat": to, "turnId": "t1" });
    bob.ask("x-scrollback/forkAt", fork(&own, "ahp-chat:/forked")).await.unwrap();
    assert_eq!(bob.refused("x-scrollback/forkAt", fork(&other, "ahp-chat:/no")).await.0, -32008);
}

#[tokio::test]
async fn the_log_of_one_session_is_that_sessions_alone() {
    let (ground, _, _, _, [own, other]) = begin(&[]).await;
    let token = ground.host.add_person("bob", &[], &["log:read@ahp-session:/own"]).await;
    let get = |path: String| http(&ground, &token, "GET", &path, None);
    let of = |channel: &str| get(format!("/api/log?channel={}", encoded(channel)));
    let (status, log) = of(&own.chat);
    assert!(status == 200 && log.contains("chat/turnStarted"), "{status} {log}");
    assert_eq!(get(format!("/api/log/{}", own.seq)).0, 200);
    for hidden in [&other.chat, &other.session, "ahp-chat:/other", "ahp-chat:/none", "scrollback:people", ROOT] {
        assert_eq!(of(hidden).0, 404, "{hidden}");
    }
    for seq in [1, other.seq, 1_000_000] {
        assert_eq!(get(format!("/api/log/{seq}")).0, 404, "{seq}");
    }
    for path in ["/api/log", "/api/log/stats", "/api/log/verify"] {
        assert_eq!(get(path.to_owned()).0, 403, "{path}");
    }
}

#[tokio::test]
async fn a_chat_moves_neither_to_nor_from_where_one_may_not_and_makes_no_session() {
    let (_ground, _, mut ada, _, [own, other]) = begin(&[READS, WRITES]).await;
    let nowhere = Place::nowhere("none");
    let to = |place: &Place| json!({ "kind": "session", "session": place.session });
    let moved =
        |from: &Place, destination: Value| json!({ "channel": from.named("moved"), "destination": destination });
    let out = refusal(&mut ada, "moveChat", moved(&own, to(&other)), &other).await;
    assert_eq!(out, refusal(&mut ada, "moveChat", moved(&own, to(&nowhere)), &nowhere).await);
    let into = refusal(&mut ada, "moveChat", moved(&other, to(&own)), &other).await;
    assert_eq!(into, refusal(&mut ada, "moveChat", moved(&nowhere, to(&own)), &nowhere).await);
    assert_eq!((out.0, into.0), (-32008, -32008));
    let alone = json!({ "kind": "newSession" });
    assert_eq!(ada.refused("moveChat", moved(&own, alone)).await, (-32009, "not-permitted".to_owned()));
    // Behind a chat that is not there for her.
    let behind = json!({ "kind": "session", "session": own.session, "after": other.chat });
    let hidden = refusal(&mut ada, "moveChat", moved(&own, behind), &other).await;
    let behind = json!({ "kind": "session", "session": own.session, "after": nowhere.chat });
    assert_eq!(hidden, refusal(&mut ada, "moveChat", moved(&own, behind), &nowhere).await);
    ada.ask("moveChat", moved(&own, to(&own))).await.unwrap();
}

#[tokio::test]
async fn a_chat_is_made_only_out_of_what_one_reads_and_with_what_one_may_do() {
    let (ground, _, mut ada, _, [own, other]) = begin(&[READS, WRITES]).await;
    let nowhere = Place::nowhere("none");
    let new = |chat: &str, more: Value| with(json!({ "channel": own.session, "chat": chat }), more);
    let source = |kind: &str, chat: &str| json!({ "source": { "kind": kind, "chat": chat, "turnId": "t1" } });
    for kind in ["fork", "sideChat"] {
        for (hidden, nothing) in
            [(other.chat.clone(), nowhere.chat.clone()), (other.named("closed"), nowhere.named("closed"))]
        {
            let is = refusal(&mut ada, "createChat", new("ahp-chat:/x", source(kind, &hidden)), &other).await;
            let of_nothing = new("ahp-chat:/x", source(kind, &nothing));
            assert_eq!(is, refusal(&mut ada, "createChat", of_nothing, &nowhere).await, "{kind} {hidden}");
            assert_eq!(is.0, -32008, "{kind} {hidden}");
        }
        assert_eq!(ada.refused("createChat", new("ahp-chat:/x", source(kind, &own.named("closed")))).await.0, -32008);
        ada.ask("createChat", new(&format!("ahp-chat:/ada-{kind}"), source(kind, &own.chat))).await.unwrap();
    }
    // Only to create.
    let token = ground.host.add_person("bob", &[], &[READS, "chat:create@ahp-session:/own"]).await;
    let mut bob = ground.host.client_of("bob", &token).await;
    let first = json!({ "initialMessage": message("/say hi") });
    for more in [source("fork", &own.chat), first.clone()] {
        let is = bob.refused("createChat", new("ahp-chat:/bob", more.clone())).await;
        assert_eq!(is, (-32009, "not-permitted".to_owned()), "{more}");
    }
    let fork = json!({ "channel": own.chat, "chat": "ahp-chat:/bob", "turnId": "t1" });
    assert_eq!(bob.refused("x-scrollback/forkAt", fork).await, (-32009, "not-permitted".to_owned()));
    bob.ask("createChat", new("ahp-chat:/bob", json!({}))).await.unwrap();
    ada.ask("createChat", new("ahp-chat:/ada", first)).await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_to_come_may_be_created_by_who_was_granted_that_one() {
    let (ground, _, _, _, _) = begin(&[]).await;
    let token = ground.host.add_person("bob", &[], &["session:*@ahp-session:/new"]).await;
    let mut bob = ground.host.client_of("bob", &token).await;
    let create = |session: &str| json!({ "channel": session, "provider": "demo" });
    for session in ["ahp-session:/newer", "ahp-session:/other", "demo:/new"] {
        let is = bob.refused("createSession", create(session)).await;
        assert_eq!(is, (-32009, "not-permitted".to_owned()), "{session}");
    }
    bob.ask("createSession", create("ahp-session:/new")).await.unwrap();
    bob.subscribe(&chat_of("ahp-session:/new")).await;
    assert_eq!(bob.listed().await.len(), 1);
}

#[tokio::test]
async fn completions_offer_the_chats_that_one_reads_and_files_to_those_who_read_files() {
    let (ground, _, mut ada, _, [own, _]) = begin(&[READS, WRITES]).await;
    let asked = |text: &str| json!({ "channel": own.chat, "kind": "userMessage", "text": text, "offset": text.len() });
    let offered = ada.ask("completions", asked("#chat:")).await.unwrap();
    assert!(offered.to_string().contains(&own.named("spare")), "{offered}");
    assert!(!offered.to_string().contains("other"), "{offered}");
    for text in ["@", "@a", "#a"] {
        assert_eq!(ada.ask("completions", asked(text)).await.unwrap()["items"], json!([]), "{text}");
    }
    let token = ground.host.add_person("bob", &[], &[READS, "file:read"]).await;
    let mut bob = ground.host.client_of("bob", &token).await;
    for text in ["@a", "#a"] {
        let offered = bob.ask("completions", asked(text)).await.unwrap();
        assert!(offered.to_string().contains("a.txt"), "{text}: {offered}");
    }
}

#[tokio::test]
async fn a_watch_of_files_is_nothing_to_who_reads_no_files() {
    let (ground, mut root, mut ada, _, _) = begin(&[READS, WRITES]).await;
    let answer = root.ask("createResourceWatch", of(&ground.uri(""), json!({}))).await.unwrap();
    let watch = answer["channel"].as_str().unwrap();
    let nothing = "ahp-resource-watch:/none";
    let is = ada.ask("subscribe", json!({ "channel": watch })).await.expect_err("it was shown").to_string();
    let of_nothing = ada.ask("subscribe", json!({ "channel": nothing })).await.expect_err("it was shown").to_string();
    assert_eq!(is.replace(watch, nothing), of_nothing);
    ada.ask("ping", json!({ "channel": ROOT })).await.unwrap();
    root.subscribe(watch).await;
}

#[tokio::test]
async fn who_may_not_do_a_thing_learns_nothing_else_about_it() {
    let (ground, _, mut ada, token, [own, _]) = begin(&[READS]).await;
    ada.subscribe(&own.chat).await;
    for action in [
        json!({ "type": "chat/draftChanged", "draft": 5 }),
        json!({ "type": "chat/turnStarted" }),
        json!({ "type": "chat/truncated" }),
        json!({ "type": "chat/turnCancelled", "turnId": "none" }),
        json!({ "type": "chat/delta", "turnId": "t1", "partId": "p", "content": "x" }),
    ] {
        assert_eq!(ada.rejected(&own.chat, action.clone()).await, "not-permitted", "{action}");
    }
    assert_eq!(ada.rejected(&own.chat, json!({ "type": "chat/levitated" })).await, "unknown-action");
    for (method, params) in [
        ("createChat", json!({ "channel": own.session, "chat": 7 })),
        ("x-scrollback/forkAt", json!({ "channel": own.chat })),
        ("x-scrollback/publishVisual", json!({ "channel": own.chat })),
        ("resourceRead", json!({ "channel": ROOT, "uri": "file:///etc/passwd" })),
        ("createSession", json!({})),
    ] {
        assert_eq!(ada.refused(method, params).await, (-32009, "not-permitted".to_owned()), "{method}");
    }
    for (method, path) in [("POST", "/api/users"), ("POST", "/api/log/erase"), ("GET", "/api/log?nonsense=1")] {
        let (status, body) = http(&ground, &token, method, path, Some(json!("nonsense")));
        assert_eq!(status, 403, "{method} {path}: {body}");
    }
}
