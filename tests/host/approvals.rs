//! Approvals and questions: one answer each, whoever gives it, and nothing left open under a finished turn.

use scrollback::actors::agent::{AgentEvent, ToolAsk, ToolDecision};
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually, markdown, message, streamed, types, word};

const S: &str = "ahp-session:/s";

/// Runs a turn up to what the session waits for: the entry.
async fn asked(client: &mut Client, chat: &str, turn: &str, script: &str) -> Value {
    client.say(chat, turn, script).await;
    client.until_type("session/inputNeededSet").await["action"]["request"].clone()
}

fn approve(turn: &str, call: &Value, option: &str) -> Value {
    json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": true,
        "confirmed": "user-action", "selectedOptionId": option })
}

fn deny(turn: &str, call: &Value) -> Value {
    json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": false,
        "reason": "denied", "selectedOptionId": "deny" })
}

fn completed(request: &Value, response: &str, answer: Option<Value>) -> Value {
    let mut action = json!({ "type": "chat/inputCompleted", "requestId": request, "response": response });
    if let Some(answer) = answer {
        action["answers"] = json!({ "answer": answer });
    }
    action
}

fn submitted(kind: &str, value: &str) -> Value {
    json!({ "state": "submitted", "value": { "kind": kind, "value": value } })
}

async fn needed(client: &mut Client) -> Option<Value> {
    client.subscribe(S).await["state"].get("inputNeeded").cloned()
}

async fn waiting(client: &mut Client) -> Value {
    client.listed().await[0]["_meta"]["scrollback.waiting"].clone()
}

fn call_of(turn: &Value) -> Value {
    let parts = turn["responseParts"].as_array().unwrap();
    parts.iter().find(|part| part["kind"] == json!("toolCall")).unwrap()["toolCall"].clone()
}

#[tokio::test]
async fn a_call_that_asks_waits_with_the_agents_options_and_shows_without_opening_the_chat() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    assert_eq!(waiting(&mut client).await, json!(0));
    let entry = asked(&mut client, &chat, "t", "/ask-tool rm -rf x").await;
    assert_eq!((&entry["kind"], &entry["chat"]), (&json!("toolConfirmation"), &json!(chat)));
    let call = entry["toolCall"].clone();
    assert_eq!((&call["status"], &call["toolName"]), (&json!("pending-confirmation"), &json!("rm")));
    assert_eq!((&call["toolInput"], &call["editable"]), (&json!("-rf x"), &json!(true)));
    let options = call["options"].as_array().unwrap();
    let ids: Vec<_> = options.iter().map(|option| (option["id"].clone(), option["kind"].clone())).collect();
    let kinds = ["approve", "approve", "deny"];
    assert_eq!(
        ids,
        ["allow", "allow-always", "deny"].iter().zip(kinds).map(|(i, k)| (json!(i), json!(k))).collect::<Vec<_>>()
    );
    assert_eq!(waiting(&mut client).await, json!(1));
    assert_eq!(client.subscribe(&chat).await["state"]["status"], json!(24));

    client.dispatch(&chat, approve("t", &call["toolCallId"], "allow")).await;
    let seen = client.until_ended("t").await;
    let kinds = types(&seen);
    assert!(kinds.contains(&"session/inputNeededRemoved") && kinds.contains(&"chat/toolCallComplete"), "{kinds:?}");
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!(call_of(&turn)["status"], json!("completed"));
    assert_eq!(call_of(&turn)["content"][0]["text"], json!("-rf x"));
    assert_eq!((needed(&mut client).await, waiting(&mut client).await), (None, json!(0)));
}

#[tokio::test]
async fn a_denied_call_is_cancelled_and_the_turn_goes_on() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let entry = asked(&mut client, &chat, "t", "/ask-tool rm x\n/say on").await;
    client.dispatch(&chat, deny("t", &entry["toolCall"]["toolCallId"])).await;
    client.until_ended("t").await;
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!((&call_of(&turn)["status"], &turn["state"]), (&json!("cancelled"), &json!("complete")));
    assert_eq!(call_of(&turn)["reason"], json!("denied"));
    assert_eq!(markdown(&turn), ["on "]);
}

#[tokio::test]
async fn an_edited_input_is_what_the_tool_runs_with() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let entry = asked(&mut client, &chat, "t", "/ask-tool rm everything").await;
    let mut edited = approve("t", &entry["toolCall"]["toolCallId"], "allow");
    edited["editedToolInput"] = json!("one file");
    client.dispatch(&chat, edited).await;
    client.until_ended("t").await;
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!(call_of(&turn)["content"][0]["text"], json!("one file"));
    assert_eq!(call_of(&turn)["toolInput"], json!("one file"));
}

#[tokio::test]
async fn allow_always_holds_for_that_tool_in_all_chats_of_the_session_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let host = TestHost::on_disk(directory.path());
    let (mut client, chat) = host.open(&[S]).await;
    client.create_chat(S, "ahp-chat:/p").await;
    client.subscribe("ahp-chat:/p").await;
    client.run("ahp-chat:/p", "t0", "/say up").await;
    let entry = asked(&mut client, &chat, "t1", "/ask-tool rm x").await;
    client.dispatch(&chat, approve("t1", &entry["toolCall"]["toolCallId"], "allow-always")).await;
    client.until_ended("t1").await;
    for (at, turn) in [(chat.as_str(), "t2"), ("ahp-chat:/p", "t3")] {
        let seen = client.run(at, turn, "/ask-tool rm y").await;
        assert!(!types(&seen).contains(&"session/inputNeededSet"), "{at}");
    }
    // Nothing wider: another tool asks, and so does this one elsewhere.
    let other = asked(&mut client, &chat, "t4", "/ask-tool mv y").await;
    client.dispatch(&chat, deny("t4", &other["toolCall"]["toolCallId"])).await;
    client.until_ended("t4").await;
    let elsewhere = client.create_session("ahp-session:/other").await;
    client.subscribe(&elsewhere).await;
    client.say(&elsewhere, "t", "/ask-tool rm y").await;
    client
        .envelope(|e| e["action"]["type"] == json!("chat/toolCallReady") && e["action"].get("confirmed").is_none())
        .await;
    host.stop();

    let host = TestHost::on_disk(directory.path());
    let mut client = host.client("c").await;
    client.subscribe(&chat).await;
    client.subscribe(S).await;
    let seen = client.run(&chat, "t5", "/ask-tool rm z").await;
    assert!(types(&seen).contains(&"chat/toolCallComplete"), "{:?}", types(&seen));
    assert!(!types(&seen).contains(&"session/inputNeededSet"), "{:?}", types(&seen));
}

#[tokio::test]
async fn whoever_decides_second_is_refused_and_one_answer_counts() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    let call =
        asked(&mut client, &chat, "t", "/ask-tool rm x\n/question sure?").await["toolCall"]["toolCallId"].clone();
    let echo = client.accepted(&chat, deny("t", &call)).await;
    let second = other.dispatch(&chat, approve("t", &call, "allow")).await;
    let own = |e: &Value| e["origin"] == json!({ "clientId": "d", "clientSeq": second });
    assert_eq!(word(&other.envelope(own).await), "request-not-found");
    assert_eq!(client.rejected(&chat, deny("t", &call)).await, "request-not-found");
    assert!(echo["serverSeq"].as_u64().is_some());
    let state = client.subscribe(&chat).await["state"].clone();
    assert_eq!(call_of(&state["activeTurn"])["status"], json!("cancelled"));
    assert_eq!(client.rejected(&chat, deny("t", &json!("nothing"))).await, "request-not-found");
    assert_eq!(client.rejected(&chat, deny("other", &call)).await, "request-not-found");
}

#[tokio::test]
async fn a_decision_that_says_too_little_or_two_things_is_malformed() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let call = asked(&mut client, &chat, "t", "/ask-tool rm x").await["toolCall"]["toolCallId"].clone();
    let mut bare = approve("t", &call, "allow");
    bare.as_object_mut().unwrap().remove("confirmed");
    let mut mute = deny("t", &call);
    mute.as_object_mut().unwrap().remove("reason");
    let mut other = deny("t", &call);
    other["selectedOptionId"] = json!("allow");
    for action in [bare, mute, other, approve("t", &call, "deny"), approve("t", &call, "maybe")] {
        assert_eq!(client.rejected(&chat, action.clone()).await, "malformed", "{action}");
    }
    let result = json!({ "success": true, "pastTenseMessage": "did" });
    let done = json!({ "type": "chat/toolCallComplete", "turnId": "t", "toolCallId": call, "result": result });
    assert_eq!(client.rejected(&chat, done).await, "not-permitted");
    client.accepted(&chat, deny("t", &call)).await;
}

#[tokio::test]
async fn stopping_a_turn_settles_what_it_left_open() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    for (turn, script) in
        [("t1", "/ask-tool rm x"), ("t2", "/question sure?"), ("t3", "/question-async x\n/ask-tool rm x")]
    {
        client.say(&chat, turn, script).await;
        let wanted = if turn == "t3" { 2 } else { 1 };
        for _ in 0..wanted {
            client.until_type("session/inputNeededSet").await;
        }
        assert_eq!(waiting(&mut client).await, json!(wanted));
        client.cancel(&chat, turn).await;
        client.until_ended(turn).await;
        assert_eq!((needed(&mut client).await, waiting(&mut client).await), (None, json!(0)), "{turn}");
        let state = client.subscribe(&chat).await["state"].clone();
        assert_eq!(state["status"], json!(1), "{turn}");
        assert!(!state.to_string().contains("pending-confirmation"), "{state}");
    }
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    let late = call_of(&turn)["toolCallId"].clone();
    assert_eq!(client.rejected(&chat, approve("t1", &late, "allow")).await, "request-not-found");
}

#[tokio::test]
async fn a_text_question_takes_an_answer_that_all_clients_see_being_written() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let mut other = host.client("d").await;
    other.subscribe(&chat).await;
    let entry = asked(&mut client, &chat, "t", "/question your name?").await;
    assert_eq!(entry["kind"], json!("chatInput"));
    let request = entry["request"]["id"].clone();
    let changed = json!({ "type": "chat/inputAnswerChanged", "requestId": request, "questionId": "answer",
        "answer": { "state": "draft", "value": { "kind": "text", "value": "Ad" } } });
    client.dispatch(&chat, changed).await;
    let heard = other.until_type("chat/inputAnswerChanged").await;
    assert_eq!(heard["action"]["answer"]["value"]["value"], json!("Ad"));
    let synced = client.until_type("session/inputNeededSet").await["action"]["request"]["request"].clone();
    assert_eq!(synced["answers"]["answer"]["value"]["value"], json!("Ad"));
    // Only a submitted answer satisfies a required question.
    assert_eq!(client.rejected(&chat, completed(&request, "accept", None)).await, "malformed");
    let done = completed(&request, "accept", Some(submitted("text", "Ada")));
    other.dispatch(&chat, done.clone()).await;
    assert_eq!(streamed(&client.until_ended("t").await), "answered: Ada ");
    assert_eq!(client.rejected(&chat, done).await, "request-not-found");
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    let part = &turn["responseParts"][0];
    assert_eq!((&part["kind"], &part["response"]), (&json!("inputRequest"), &json!("accept")));
}

#[tokio::test]
async fn a_single_select_takes_one_of_its_options_and_nothing_else() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let entry = asked(&mut client, &chat, "t", "/question which? | red | blue").await;
    let question = &entry["request"]["questions"][0];
    assert_eq!((&question["kind"], &question["required"]), (&json!("single-select"), &json!(true)));
    let request = entry["request"]["id"].clone();
    for wrong in [submitted("selected", "green"), submitted("text", "red"), json!({ "state": "skipped" })] {
        assert_eq!(
            client.rejected(&chat, completed(&request, "accept", Some(wrong.clone()))).await,
            "malformed",
            "{wrong}"
        );
    }
    let nothing = json!({ "type": "chat/inputAnswerChanged", "requestId": request, "questionId": "other" });
    assert_eq!(client.rejected(&chat, nothing).await, "request-not-found");
    client.accepted(&chat, completed(&request, "accept", Some(submitted("selected", "blue")))).await;
    assert_eq!(streamed(&client.until_ended("t").await), "answered: blue ");
}

#[tokio::test]
async fn any_question_can_be_ended_without_an_answer() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    for (turn, response, words) in [("t1", "cancel", "cancelled "), ("t2", "decline", "declined ")] {
        let entry = asked(&mut client, &chat, turn, "/question which? | red | blue").await;
        client.accepted(&chat, completed(&entry["request"]["id"], response, None)).await;
        assert_eq!(streamed(&client.until_ended(turn).await), words);
    }
}

#[tokio::test]
async fn an_async_question_holds_nothing_up_and_ends_with_its_turn() {
    let host = TestHost::in_memory();
    let (mut client, chat) = host.open(&[S]).await;
    let entry = asked(&mut client, &chat, "t1", "/question-async later? | a\n/say on").await;
    assert!(entry["request"]["id"].as_str().unwrap().starts_with("async:"), "{entry}");
    assert_ne!(entry["request"]["questions"][0]["required"], json!(true));
    let seen = client.until_ended("t1").await;
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    assert_eq!(needed(&mut client).await, None);
    let late = completed(&entry["request"]["id"], "accept", Some(submitted("selected", "a")));
    assert_eq!(client.rejected(&chat, late).await, "request-not-found");

    let entry = asked(&mut client, &chat, "t2", "/question-async later? | a\n/question sure?").await;
    let answer = completed(&entry["request"]["id"], "accept", Some(submitted("selected", "a")));
    let second = client.until_type("session/inputNeededSet").await["action"]["request"]["request"]["id"].clone();
    client.accepted(&chat, answer).await;
    client.accepted(&chat, completed(&second, "cancel", None)).await;
    let seen = client.until_ended("t2").await;
    assert!(streamed(&seen).contains("answered: a"), "{}", streamed(&seen));
}

fn recorded() -> (TestHost, RecordingAgent) {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    (host, agent)
}

/// Lets the agent ask about a call in the turn `t` that nothing announced.
async fn asks(agent: &RecordingAgent, call: &str) {
    eventually("the agent is prompted", || agent.prompts() == ["t"]).await;
    let ask = ToolAsk {
        tool_name: "rm".into(),
        display_name: "rm".into(),
        invocation: "Run rm".into(),
        input: Some("x".into()),
        title: None,
        options: Vec::new(),
        editable: false,
    };
    agent.emits(AgentEvent::ToolAsked { turn_id: "t".into(), tool_call_id: call.into(), ask }).await;
}

#[tokio::test]
async fn one_answer_reaches_the_agent_and_a_denial_with_its_reason() {
    let (host, agent) = recorded();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "go").await;
    asks(&agent, "call").await;
    client.until_type("chat/toolCallReady").await;
    let mut why = json!({ "type": "chat/toolCallConfirmed", "turnId": "t", "toolCallId": "call", "approved": false,
        "reason": "denied", "reasonMessage": "not today" });
    client.accepted(&chat, why.clone()).await;
    why["reasonMessage"] = json!("never");
    assert_eq!(client.rejected(&chat, why).await, "request-not-found");
    eventually("the agent hears it", || !agent.decisions().is_empty()).await;
    client.accepted(&chat, json!({ "type": "chat/draftChanged", "draft": message("x") })).await;
    assert_eq!(agent.decisions(), [ToolDecision::Deny { option: None, reason: Some("not today".into()) }]);
}

#[tokio::test]
async fn what_the_agent_settles_by_itself_is_no_longer_asked() {
    let (host, agent) = recorded();
    let (mut client, chat) = host.open(&[S]).await;
    client.say(&chat, "t", "go").await;
    asks(&agent, "call").await;
    client.until_type("session/inputNeededSet").await;
    let settled = AgentEvent::ToolAskSettled { turn_id: "t".into(), tool_call_id: "call".into(), approved: true };
    agent.emits(settled).await;
    client.until_type("session/inputNeededRemoved").await;
    assert_eq!(client.rejected(&chat, approve("t", &json!("call"), "allow")).await, "request-not-found");
    assert_eq!(agent.decisions(), []);
}
