//! Windows: a client that asks for the newest turns gets the older ones page by page, and no client gets a hole.

use ahp::reducers::apply_action_to_chat;
use ahp_types::state::ChatState;
use scrollback::actors::host::HostSettings;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, envelopes};

const S: &str = "ahp-session:/s";
const ALL: usize = 120;

/// A chat with turns t1 to t120.
async fn long(host: &TestHost) -> (Client, String) {
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    for number in 1..=ALL {
        client.run(&chat, &format!("t{number}"), &format!("/say answer {number}")).await;
    }
    (client, chat)
}

async fn view(client: &mut Client, chat: &str, turns: u64) -> Value {
    let params = json!({ "channel": chat, "view": { "turns": turns } });
    client.ask("subscribe", params).await.unwrap()["snapshot"]["state"].clone()
}

fn numbers(turns: &Value) -> Vec<usize> {
    let ids = turns.as_array().unwrap().iter().map(|turn| turn["id"].as_str().unwrap()[1..].parse().unwrap());
    ids.collect()
}

/// Fetches what the cursor of `state` stands for; the page came before the answer.
async fn page(client: &mut Client, chat: &str, cursor: &Value) -> Value {
    client.drain().await;
    let answer = client.ask("fetchTurns", json!({ "channel": chat, "cursor": cursor })).await.unwrap();
    assert_eq!(answer, json!({}));
    let came = envelopes(&client.taken());
    came.into_iter()
        .find(|envelope| envelope["action"]["type"] == json!("chat/turnsLoaded"))
        .expect("no page came before")
}

#[tokio::test]
async fn a_view_shows_the_newest_turns_and_without_one_all_come() {
    let host = TestHost::in_memory();
    let (mut client, chat) = long(&host).await;
    let all = client.subscribe(&chat).await["state"].clone();
    assert_eq!(numbers(&all["turns"]), (1..=ALL).collect::<Vec<_>>());
    assert_eq!(all.get("turnsNextCursor"), None);
    let some = view(&mut client, &chat, 20).await;
    assert_eq!(numbers(&some["turns"]), (101..=ALL).collect::<Vec<_>>());
    assert!(some["turnsNextCursor"].is_string(), "{some}");
    assert_eq!(some["turns"][0], all["turns"][100]);
    let more = view(&mut client, &chat, 500).await;
    assert_eq!((numbers(&more["turns"]).len(), more.get("turnsNextCursor")), (ALL, None));
    let none = view(&mut client, &chat, 0).await;
    assert_eq!(none["turns"], json!([]));
    assert!(none["turnsNextCursor"].is_string());
}

#[tokio::test]
async fn older_turns_come_in_pages_before_the_answer_until_none_is_left() {
    let host = TestHost::in_memory();
    let (mut client, chat) = long(&host).await;
    let state = view(&mut client, &chat, 10).await;
    let mut folded: ChatState = serde_json::from_value(state.clone()).unwrap();
    let (mut cursor, mut sizes) = (state["turnsNextCursor"].clone(), Vec::new());
    while !cursor.is_null() {
        let page = page(&mut client, &chat, &cursor).await;
        sizes.push(page["action"]["turns"].as_array().unwrap().len());
        apply_action_to_chat(&mut folded, &serde_json::from_value(page["action"].clone()).unwrap());
        cursor = page["action"]["turnsNextCursor"].clone();
    }
    assert_eq!(sizes, [50, 50, 10]);
    let whole = client.subscribe(&chat).await["state"].clone();
    assert_eq!(serde_json::to_value(&folded).unwrap(), whole);
}

#[tokio::test]
async fn clients_with_different_windows_get_no_holes_and_each_its_own_cursor() {
    let host = TestHost::in_memory();
    let (mut narrow, chat) = long(&host).await;
    let (mut wide, mut whole) = (host.client("wide").await, host.client("whole").await);
    let state = view(&mut narrow, &chat, 10).await;
    let mut folds: Vec<ChatState> = vec![
        serde_json::from_value(state.clone()).unwrap(),
        serde_json::from_value(view(&mut wide, &chat, 40).await).unwrap(),
        serde_json::from_value(whole.subscribe(&chat).await["state"].clone()).unwrap(),
    ];
    // One page by each of the two that have a window, and then something that all hear.
    let first = page(&mut narrow, &chat, &state["turnsNextCursor"]).await;
    assert_eq!(numbers(&first["action"]["turns"]), (61..=110).collect::<Vec<_>>());
    let heard = wide.until_type("chat/turnsLoaded").await;
    assert_eq!(numbers(&heard["action"]["turns"]), (61..=80).collect::<Vec<_>>());
    assert_eq!(heard["serverSeq"], first["serverSeq"]);
    let cursor = heard["action"]["turnsNextCursor"].clone();
    let second = page(&mut wide, &chat, &cursor).await;
    assert_eq!(numbers(&second["action"]["turns"]), (11..=60).collect::<Vec<_>>());
    let echoed = narrow.until_type("chat/turnsLoaded").await;
    let draft = json!({ "type": "chat/draftChanged", "draft": crate::harness::message("x") });
    narrow.dispatch(&chat, draft).await;
    let last = narrow.until_type("chat/draftChanged").await;
    // Who has everything hears of both pages and is shown none of their turns.
    let heard_by_all = whole.until(|e| e["serverSeq"] == last["serverSeq"]).await;
    let empty: Vec<&Value> = heard_by_all.iter().filter(|e| e["action"]["type"] == json!("chat/turnsLoaded")).collect();
    assert!(empty.iter().all(|e| e["action"] == json!({ "type": "chat/turnsLoaded", "turns": [] })), "{empty:?}");
    assert_eq!(empty.len(), 2);
    for (fold, actions) in folds.iter_mut().zip([vec![&first, &echoed], vec![&heard, &second], empty]) {
        for envelope in actions {
            apply_action_to_chat(fold, &serde_json::from_value(envelope["action"].clone()).unwrap());
        }
    }
    let ids = |fold: &ChatState| fold.turns.iter().map(|turn| turn.id.clone()).collect::<Vec<_>>();
    let from = |first: usize| (first..=ALL).map(|number| format!("t{number}")).collect::<Vec<_>>();
    assert_eq!((ids(&folds[0]), ids(&folds[1]), ids(&folds[2])), (from(11), from(11), from(1)));
    assert!(folds[0].turns_next_cursor.is_some() && folds[2].turns_next_cursor.is_none());
}

#[tokio::test]
async fn a_turn_that_ends_later_is_in_no_page_twice() {
    let host = TestHost::in_memory();
    let (mut client, chat) = long(&host).await;
    let state = view(&mut client, &chat, 5).await;
    let mut fold: ChatState = serde_json::from_value(state.clone()).unwrap();
    let mut seen = client.run(&chat, "t121", "/say more").await;
    seen.push(page(&mut client, &chat, &state["turnsNextCursor"]).await);
    seen.extend(client.run(&chat, "t122", "/say still more").await);
    for envelope in seen.iter().filter(|envelope| envelope["channel"] == json!(chat)) {
        apply_action_to_chat(&mut fold, &serde_json::from_value(envelope["action"].clone()).unwrap());
    }
    let ids: Vec<String> = fold.turns.iter().map(|turn| turn.id.clone()).collect();
    assert_eq!(ids, (66..=122).map(|number| format!("t{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_unknown_cursor_is_refused_and_shows_nothing() {
    let host = TestHost::in_memory();
    let (mut client, chat) = long(&host).await;
    let other = client.create_session("ahp-session:/short").await;
    view(&mut client, &chat, 10).await;
    client.drain().await;
    let long = view(&mut client, &chat, 10).await["turnsNextCursor"].clone();
    for cursor in [json!("x"), json!("before:"), json!("before:0"), json!("before:1"), json!("before:9999"), json!("")]
    {
        let refused = client.refused("fetchTurns", json!({ "channel": chat, "cursor": cursor })).await;
        assert_eq!(refused.0, -32602, "{cursor}");
    }
    let refused = client.refused("fetchTurns", json!({ "channel": other, "cursor": long })).await;
    assert_eq!(refused, (-32602, "unknown-cursor".to_owned()));
    assert_eq!(client.refused("fetchTurns", json!({ "channel": chat, "cursor": 5 })).await.0, -32602);
    let rest = envelopes(&client.drain().await);
    assert!(rest.iter().all(|e| e["action"]["type"] != json!("chat/turnsLoaded")), "{rest:?}");
}

#[tokio::test]
async fn a_snapshot_over_the_limit_comes_as_the_newest_turns_that_fit() {
    let settings = HostSettings { max_snapshot: 20_000, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let (mut client, chat) = long(&host).await;
    let state = client.subscribe(&chat).await["state"].clone();
    let shown = numbers(&state["turns"]);
    assert!(state.to_string().len() < 25_000, "{}", state.to_string().len());
    assert!(shown.len() < ALL && shown.len() > 10, "{shown:?}");
    assert_eq!(shown, (ALL + 1 - shown.len()..=ALL).collect::<Vec<_>>());
    let page = page(&mut client, &chat, &state["turnsNextCursor"]).await;
    assert_eq!(numbers(&page["action"]["turns"]).last(), Some(&(ALL - shown.len())));
}

/// A chat of `count` turns beside others.
async fn filled(client: &mut Client, chat: &str, count: usize) {
    for number in 1..=count {
        client.run(chat, &format!("t{number}"), "/say x").await;
    }
}

#[tokio::test]
async fn a_cursor_belongs_to_the_chat_that_gave_it_out() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let one = client.create_session(S).await;
    client.create_chat(S, "ahp-chat:/two").await;
    for chat in [one.as_str(), "ahp-chat:/two"] {
        client.subscribe(chat).await;
        filled(&mut client, chat, 8).await;
    }
    let own = view(&mut client, &one, 3).await["turnsNextCursor"].clone();
    let other = view(&mut client, "ahp-chat:/two", 3).await["turnsNextCursor"].clone();
    assert_ne!(own, other);
    client.drain().await;
    let text = own.as_str().unwrap();
    let forged = [
        other.as_str().unwrap().to_owned(),
        text.replacen("before:", "before:+", 1),
        text.replacen("before:", "before:0", 1),
        text.replacen("before:6", "before:9999999999999999999999", 1),
        text.replacen("before:6", "before:99", 1),
        text.to_uppercase(),
        format!("{text} "),
        format!("{text}:"),
        "x".repeat(3_000),
    ];
    for cursor in forged {
        let refused = client.refused("fetchTurns", json!({ "channel": one, "cursor": cursor })).await;
        assert_eq!(refused.0, -32602, "{cursor}");
    }
    assert_eq!(envelopes(&client.drain().await), [] as [Value; 0]);
    let page = page(&mut client, &one, &own).await;
    assert_eq!(numbers(&page["action"]["turns"]), [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn a_page_without_a_cursor_goes_on_from_the_callers_own_window_and_is_empty_at_the_end() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    filled(&mut client, &chat, 60).await;
    view(&mut client, &chat, 4).await;
    for wanted in [(7..=56).collect::<Vec<_>>(), (1..=6).collect(), Vec::new()] {
        let page = page(&mut client, &chat, &Value::Null).await;
        assert_eq!(numbers(&page["action"]["turns"]), wanted);
    }
    // The same cursor again shows nobody anything twice.
    let state = view(&mut client, &chat, 4).await;
    page(&mut client, &chat, &state["turnsNextCursor"]).await;
    let again = page(&mut client, &chat, &state["turnsNextCursor"]).await;
    assert_eq!(again["action"]["turns"], json!([]));
}

#[tokio::test]
async fn pages_of_several_clients_at_once_leave_nobody_with_a_hole() {
    let host = TestHost::in_memory();
    let mut first = host.client("first").await;
    let chat = first.create_session(S).await;
    first.subscribe(&chat).await;
    filled(&mut first, &chat, 70).await;
    let mut clients = [first, host.client("second").await, host.client("third").await];
    let mut folds: Vec<ChatState> = Vec::new();
    for (client, turns) in clients.iter_mut().zip([33, 9, 2]) {
        folds.push(serde_json::from_value(view(client, &chat, turns).await).unwrap());
        client.drain().await;
    }
    // All ask at once, each with its own cursor, until all have everything.
    for _ in 0..3 {
        for (client, fold) in clients.iter_mut().zip(&folds) {
            let params = json!({ "channel": chat, "cursor": fold.turns_next_cursor });
            client.ask("fetchTurns", params).await.unwrap();
        }
        for (client, fold) in clients.iter_mut().zip(&mut folds) {
            for envelope in envelopes(&client.drain().await) {
                apply_action_to_chat(fold, &serde_json::from_value(envelope["action"].clone()).unwrap());
            }
            let ids: Vec<String> = fold.turns.iter().map(|turn| turn.id.clone()).collect();
            let whole: Vec<String> = (71 - ids.len()..=70).map(|number| format!("t{number}")).collect();
            assert_eq!(ids, whole, "a hole");
        }
    }
    assert!(folds.iter().all(|fold| fold.turns.len() == 70 && fold.turns_next_cursor.is_none()));
}

#[tokio::test]
async fn a_snapshot_that_no_turn_fits_into_has_none_and_a_cursor_that_brings_them() {
    let settings = HostSettings { max_snapshot: 12_000, ..HostSettings::default() };
    let host = TestHost::with(Options { settings, ..Options::default() });
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "/say small").await;
    client.run(&chat, "t2", &format!("/say {}", "long ".repeat(2_000))).await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!(state["turns"], json!([]));
    let first = page(&mut client, &chat, &state["turnsNextCursor"]).await;
    assert_eq!(numbers(&first["action"]["turns"]), [1, 2]);
}
