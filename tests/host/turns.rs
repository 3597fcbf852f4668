//! Turns: echoed once, signed, streamed without loss, named, and ended exactly once.

use scrollback::actors::host::HostSettings;
use scrollback::clock::Clock;
use serde_json::{Value, json};

use crate::harness::{
    Client, Options, RecordingAgent, TestHost, eventually, is_ending, markdown, message, on, streamed, types, word,
};

const S: &str = "ahp-session:/s";

fn with(settings: HostSettings) -> TestHost {
    TestHost::with(Options { settings, ..Options::default() })
}

async fn turns(client: &mut Client, chat: &str) -> Vec<Value> {
    client.subscribe(chat).await["state"]["turns"].as_array().unwrap().clone()
}

fn started(turn: &str, message: Value) -> Value {
    json!({ "type": "chat/turnStarted", "turnId": turn, "startedAt": "2026-11-30T12:00:00.000Z", "message": message })
}

#[tokio::test]
async fn a_running_turn_is_active_and_moves_to_the_turns_when_it_ends() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "/say so\n/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!((&state["activeTurn"]["id"], &state["turns"]), (&json!("t"), &json!([])));
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!((state.get("activeTurn"), &state["turns"][0]["id"]), (None, &json!("t")));
}

#[tokio::test]
async fn both_clients_hear_a_turn_once_in_the_same_order() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    let own = client.run(&chat, "t", "/think a\n/tool x y\nhello there").await;
    let heard = other.until_ended("t").await;
    let (own, heard) = (on(&own, &chat), on(&heard, &chat));
    assert_eq!(own, heard);
    assert_eq!(types(&own).iter().filter(|kind| **kind == "chat/turnStarted").count(), 1);
    assert_eq!(own[0]["origin"]["clientId"], json!("c"));
    assert!(own[1..].iter().all(|envelope| envelope.get("origin").is_none()), "{own:?}");
}

#[tokio::test]
async fn a_message_says_who_sent_it_and_what_a_client_writes_in_our_names_is_replaced() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let mut forged = message("hello");
    forged["_meta"] = json!({ "scrollback.sender": "user:queen", "scrollback.x": 1, "theirs": 2 });
    let mut action = started("t", forged.clone());
    action["_meta"] = json!({ "scrollback.y": 1, "theirs": 3 });
    let echo = client.accepted(&chat, action).await;
    let signed = json!({ "scrollback.sender": "root:test", "theirs": 2 });
    assert_eq!(echo["action"]["message"]["_meta"], signed);
    assert_eq!(echo["action"]["_meta"], json!({ "theirs": 3 }));
    client.until_ended("t").await;
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": forged });
    client.dispatch(&chat, queued).await;
    let set = client.until_type("chat/pendingMessageSet").await;
    assert_eq!(set["action"]["message"]["_meta"], signed);
    let sent = client.until_type("chat/turnStarted").await;
    assert_eq!(sent["action"]["message"]["_meta"], signed);
    assert_eq!(turns(&mut client, &chat).await[0]["message"]["_meta"], signed);
}

#[tokio::test]
async fn every_ending_takes_its_duration_from_the_hosts_clock() {
    let clock = Clock::fixed(1_795_996_800_000);
    let host = TestHost::with(Options { clock: clock.clone(), ..Options::default() });
    let (mut client, chat) = host.open(&[]).await;
    for (turn, script, takes) in [("t1", "/question a", 1_500), ("t2", "/question a\n/fail no", 2_500)] {
        client.say(&chat, turn, script).await;
        let asked = client.until_type("chat/inputRequested").await["action"]["request"]["id"].clone();
        clock.advance(takes);
        let skip = json!({ "type": "chat/inputCompleted", "requestId": asked, "response": "decline" });
        client.dispatch(&chat, skip).await;
        let ending = client.until_ended(turn).await.pop().unwrap();
        assert_eq!(ending["action"]["duration"], json!(takes));
    }
    client.say(&chat, "t3", "/question a").await;
    client.until_type("chat/inputRequested").await;
    clock.advance(700);
    let lie = json!({ "type": "chat/turnCancelled", "turnId": "t3", "duration": -5 });
    let echo = client.accepted(&chat, lie).await;
    assert_eq!(echo["action"]["duration"], json!(700));
    client.say(&chat, "t4", "/question a").await;
    client.until_type("chat/inputRequested").await;
    clock.advance(-10_000);
    client.cancel(&chat, "t4").await;
    assert_eq!(client.until_ended("t4").await.pop().unwrap()["action"]["duration"], json!(0));
}

#[tokio::test]
async fn a_chat_and_its_session_are_named_after_the_first_message() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.subscribe(S).await;
    let long = format!("  fix\n\tthe   {}", "ä".repeat(80));
    let seq = client.say(&chat, "t1", &long).await;
    client.echo(seq).await;
    let name = format!("fix the {}", "ä".repeat(52));
    let renamed = client.envelope(|e| e["action"]["type"] == json!("session/titleChanged")).await;
    assert_eq!((&renamed["channel"], &renamed["action"]["title"]), (&json!(chat), &json!(name)));
    client.until_ended("t1").await;
    client.run(&chat, "t2", "another").await;
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!(name));
    let session = client.subscribe(S).await["state"].clone();
    assert_eq!((&session["title"], &session["chats"][0]["title"]), (&json!(name), &json!(name)));
    assert_eq!(client.listed().await[0]["title"], json!(name));
}

#[tokio::test]
async fn a_message_of_attachments_alone_names_the_chat_by_the_first_label() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let mut sent = message(" \n");
    sent["attachments"] = json!([{ "type": "resource", "label": "notes  of\nmay", "uri": "https://example.org/x",
        "displayKind": "document" }]);
    client.accepted(&chat, started("t", sent)).await;
    client.until_ended("t").await;
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!("notes of may"));
}

#[tokio::test]
async fn a_rename_on_a_chats_channel_names_the_chat_and_on_the_sessions_the_session() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.subscribe(S).await;
    client.create_chat(S, "ahp-chat:/p").await;
    let title = |title: &str| json!({ "type": "session/titleChanged", "title": title });
    client.accepted(S, title("the session")).await;
    let seq = client.dispatch("ahp-chat:/p", title("the peer")).await;
    let seen = client.until(|e| e["action"]["changes"]["title"] == json!("the peer")).await;
    assert_eq!(seen.last().unwrap()["channel"], json!(S));
    client.subscribe("ahp-chat:/p").await;
    let echo = client.accepted("ahp-chat:/p", title("the peer again")).await;
    assert_eq!(echo["channel"], json!("ahp-chat:/p"));
    assert!(seq > 0);
    for channel in [S, "ahp-chat:/p", chat.as_str()] {
        for blank in ["", " \t\n"] {
            assert_eq!(client.rejected(channel, title(blank)).await, "malformed");
        }
    }
    let state = client.subscribe(S).await["state"].clone();
    assert_eq!(state["title"], json!("the session"));
    assert_eq!(state["chats"][0]["title"], json!(""));
    assert_eq!(state["chats"][1]["title"], json!("the peer again"));
}

#[tokio::test]
async fn deferred_titles_leave_naming_to_people_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    let bad = json!({ "type": "root/configChanged", "config": { "deferredTitleGeneration": "yes" } });
    assert_eq!(client.rejected("ahp-root://", bad).await, "malformed");
    let change = json!({ "type": "root/configChanged", "config": { "deferredTitleGeneration": true } });
    client.accepted("ahp-root://", change).await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[]).await;
    let seen = client.run(&chat, "t", "hello").await;
    assert!(!types(&seen).contains(&"session/titleChanged"), "{:?}", types(&seen));
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!(""));
    client.accepted(&chat, json!({ "type": "session/titleChanged", "title": "by hand" })).await;
    assert_eq!(client.subscribe(&chat).await["state"]["title"], json!("by hand"));
}

#[tokio::test]
async fn an_activity_is_cleared_at_every_ending() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    for (turn, end) in [("t1", "/say done"), ("t2", "/fail no"), ("t3", "/crash"), ("t4", "/question sure?")] {
        client.say(&chat, turn, &format!("/activity busy\n{end}")).await;
        if turn == "t4" {
            client.until_type("chat/inputRequested").await;
            client.cancel(&chat, turn).await;
        }
        client.until_ended(turn).await;
        let next = client.until_type("chat/activityChanged").await;
        assert_eq!(next["action"].get("activity"), None, "{turn}");
        assert_eq!(client.subscribe(&chat).await["state"].get("activity"), None, "{turn}");
    }
}

#[tokio::test]
async fn a_turn_goes_on_without_any_connection() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t", "/words 30 5").await;
    client.until_type("chat/delta").await;
    client.drop_socket().await;
    let mut client = host.client("c2").await;
    let state = client.subscribe(&chat).await["state"].clone();
    if state.get("activeTurn").is_some() {
        client.until_ended("t").await;
    }
    let turn = turns(&mut client, &chat).await.remove(0);
    assert_eq!((&turn["id"], &turn["state"]), (&json!("t"), &json!("complete")));
    assert!(markdown(&turn)[0].ends_with("w30 "), "{turn}");
}

#[tokio::test]
async fn late_output_of_a_cancelled_turn_goes_nowhere() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t1", "/words 100000").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    let turn = turns(&mut client, &chat).await.remove(0);
    assert_eq!(turn["state"], json!("cancelled"));
    let heard = client.run(&chat, "t2", "/say fresh").await;
    let of_the_first = heard.iter().filter(|e| e["action"]["turnId"] == json!("t1"));
    assert_eq!(of_the_first.count(), 0);
    assert_eq!(streamed(&heard), "fresh ");
    let both = turns(&mut client, &chat).await;
    assert_eq!(both[0], turn);
    assert_eq!(both.len(), 2);
}

/// The agent does not stop when it is told to: what it goes on saying is of no turn.
#[tokio::test]
async fn an_agent_that_talks_on_after_the_stop_is_not_heard() {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let (mut client, chat) = host.open(&[]).await;
    client.say(&chat, "t1", "go").await;
    eventually("the agent is prompted", || agent.prompts() == ["t1"]).await;
    agent.says("t1", "before ").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    agent.says("t1", "late ").await;
    client.say(&chat, "t2", "go").await;
    eventually("the agent is prompted again", || agent.prompts() == ["t1", "t2"]).await;
    agent.says("t1", "later ").await;
    agent.says("t2", "fresh ").await;
    let heard = client.until(|e| e["action"]["content"] == json!("fresh ")).await;
    assert_eq!(streamed(&heard), "fresh ");
    assert_eq!(markdown(&turns(&mut client, &chat).await[0]), ["before "]);
}

#[tokio::test]
async fn a_failed_turn_and_a_crash_end_once_and_say_whether_they_can_go_on() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    for (turn, script, kind, resumable) in [
        ("t1", "/fail no", "demo", None),
        ("t2", "/fail-resumable no", "demo", Some(true)),
        ("t3", "/crash", "agent-gone", Some(true)),
    ] {
        let heard = client.run(&chat, turn, script).await;
        let part = heard.last().unwrap()["action"]["part"].clone();
        assert_eq!(part["error"]["errorType"], json!(kind));
        assert_eq!(part.get("resumable").and_then(Value::as_bool), resumable, "{part}");
        assert_eq!(heard.iter().filter(|e| is_ending(&e["action"])).count(), 1);
    }
    assert_eq!(client.run(&chat, "t4", "alive").await.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

#[tokio::test]
async fn a_turn_that_cannot_begin_is_refused_without_harm() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    client.run(&chat, "t0", "hello").await;
    client.say(&chat, "t1", "/question sure?").await;
    client.until_type("chat/inputRequested").await;
    let before = client.subscribe(&chat).await["state"].clone();
    let busy = client.act(&chat, started("t2", message("me too"))).await;
    assert_eq!(word(&busy), "turn-in-progress");
    assert!(busy["rejectionReason"].as_str().unwrap().contains("chat/pendingMessageSet"), "{busy}");
    for seen in ["t0", "t1"] {
        assert_eq!(client.rejected(&chat, started(seen, message("again"))).await, "duplicate-turn");
    }
    let other = json!({ "type": "chat/turnCancelled", "turnId": "t0", "duration": 0 });
    assert_eq!(client.rejected(&chat, other.clone()).await, "no-active-turn");
    assert_eq!(client.subscribe(&chat).await["state"], before);
    client.cancel(&chat, "t1").await;
    client.until_ended("t1").await;
    assert_eq!(client.rejected(&chat, other).await, "no-active-turn");
    let mut odd = started("t3", message("x"));
    for time in ["yesterday", "", "2026-11-30", "12:00:00Z", "2026-13-30T12:00:00Z"] {
        odd["startedAt"] = json!(time);
        assert_eq!(client.rejected(&chat, odd.clone()).await, "malformed", "{time}");
    }
    // Times that the reducers cannot read: the turn would never end.
    for time in ["2026-11-30T12:00:00.1234567890Z", "2026-11-30T12:00:00\u{2212}05:00"] {
        odd["startedAt"] = json!(time);
        assert_eq!(client.rejected(&chat, odd.clone()).await, "malformed", "{time}");
    }
    for origin in ["agent", "tool", "systemNotification"] {
        let forged = json!({ "text": "x", "origin": { "kind": origin } });
        assert_eq!(client.rejected(&chat, started("t3", forged)).await, "malformed", "{origin}");
    }
    assert_eq!(client.rejected(&chat, started("", message("x"))).await, "malformed");
    assert_eq!(turns(&mut client, &chat).await.len(), 2);
}

#[tokio::test]
async fn every_form_of_a_time_that_is_taken_lets_the_turn_end() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[]).await;
    let times = [
        "2026-11-30T12:00:00.123456789Z",
        "2026-11-30 12:00:00z",
        "2026-11-30T23:59:60.999+23:59",
        "1970-01-02T00:00:00-23:59",
        "9987-01-01T00:00:00Z",
    ];
    for (n, time) in times.into_iter().enumerate() {
        let turn = format!("t{n}");
        let mut action = started(&turn, message("x"));
        action["startedAt"] = json!(time);
        client.accepted(&chat, action).await;
        client.until_ended(&turn).await;
        assert_eq!(turns(&mut client, &chat).await.len(), n + 1, "{time}");
    }
}

#[tokio::test]
async fn a_turn_that_holds_too_many_parts_ends_in_an_error_that_says_so() {
    let host = with(HostSettings { max_parts_in_turn: 3, ..HostSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    client.run(&chat, "t1", "/say a\n/notice b\n/notice c").await;
    let heard = client.run(&chat, "t2", "/say a\n/notice b\n/say c\n/notice d\n/say e").await;
    let ending = &heard.last().unwrap()["action"];
    assert_eq!(ending["part"]["error"]["errorType"], json!("limit-exceeded"));
    assert!(crate::harness::met("parts") > 0);
    let both = turns(&mut client, &chat).await;
    assert_eq!((&both[0]["state"], &both[1]["state"]), (&json!("complete"), &json!("error")));
    assert_eq!(markdown(&both[1]), ["a ", "c "]);
    assert_eq!(client.run(&chat, "t3", "/say on").await.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
}

#[tokio::test]
async fn a_text_may_be_as_long_as_the_limit_and_no_longer() {
    let host = with(HostSettings { max_message_text: 100, ..HostSettings::default() });
    let (mut client, chat) = host.open(&[]).await;
    let over = "ä".repeat(50) + "x";
    assert_eq!(client.rejected(&chat, started("t1", message(&over))).await, "limit-exceeded");
    let draft = json!({ "type": "chat/draftChanged", "draft": message(&over) });
    assert_eq!(client.rejected(&chat, draft).await, "limit-exceeded");
    let queued = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": "m", "message": message(&over) });
    assert_eq!(client.rejected(&chat, queued).await, "limit-exceeded");
    assert!(crate::harness::met("message_text") > 0);
    let exact = "ä".repeat(50);
    client.accepted(&chat, started("t1", message(&exact))).await;
    client.until_ended("t1").await;
    assert_eq!(turns(&mut client, &chat).await.len(), 1);
}
