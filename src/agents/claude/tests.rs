//! Conversations line by line, and lines that nobody should say.

use ahp_types::common::JsonObject;
use serde_json::{Value, json};

use super::settings::Chosen;
use super::talk::{Heard, Talk};
use super::wire::Said;
use crate::actors::agent::{AgentEvent, AgentInput, Ending, Prompt, PromptBlock, PromptKind};

fn talk() -> Talk {
    let mut talk = Talk::new("claude", Chosen::of(&JsonObject::new(), "default"), "default", None);
    talk.restarted();
    talk
}

fn prompt(turn: &str) -> Prompt {
    let message = serde_json::from_value(json!({ "text": "hi", "origin": { "kind": "user" } })).unwrap();
    let blocks = vec![PromptBlock::Text { text: "hi".into() }];
    Prompt { turn_id: turn.into(), message, blocks, attempt: 0, kind: PromptKind::Message }
}

/// The id that the last line for the CLI has.
fn written(talk: &Talk) -> String {
    talk.lines.back().unwrap()["uuid"].as_str().unwrap().to_owned()
}

fn hear(talk: &mut Talk, line: &Value) -> Heard {
    talk.heard(Said::of(line))
}

fn init() -> Value {
    json!({ "type": "system", "subtype": "init", "session_id": "s", "model": "m" })
}

fn endings(talk: &Talk) -> Vec<&Ending> {
    let ended = talk.out.iter().filter_map(|event| match event {
        AgentEvent::Ended { ending, .. } => Some(ending),
        _ => None,
    });
    ended.collect()
}

/// Lines as they are said, each with all that is read of it.
fn lines() -> Vec<Value> {
    vec![
        init(),
        json!({ "type": "system", "subtype": "status", "status": "compacting" }),
        json!({ "type": "system", "subtype": "compact_boundary", "compact_metadata": { "pre_tokens": 1, "post_tokens": 1 } }),
        json!({ "type": "system", "subtype": "api_retry", "error": "x", "error_status": 1 }),
        json!({ "type": "system", "subtype": "task_started", "task_id": "k", "tool_use_id": "c", "task_type": "local_agent",
            "prompt": "p", "description": "d", "is_backgrounded": true }),
        json!({ "type": "system", "subtype": "task_notification", "task_id": "k", "tool_use_id": "c", "status": "x" }),
        json!({ "type": "command_lifecycle", "command_uuid": "u", "state": "started" }),
        json!({ "type": "stream_event", "event": { "type": "content_block_start", "content_block": { "type": "tool_use",
            "id": "c", "name": "Bash" } } }),
        json!({ "type": "stream_event", "event": { "type": "content_block_delta", "delta": { "type": "text_delta",
            "text": "t" } } }),
        json!({ "type": "assistant", "uuid": "a", "message": { "content": [{ "type": "tool_use", "id": "c", "name": "Bash",
            "input": { "command": "x" } }] } }),
        json!({ "type": "assistant", "parent_tool_use_id": "c", "message": { "content": [{ "type": "text", "text": "x" }] } }),
        json!({ "type": "control_request", "request_id": "r", "request": { "subtype": "can_use_tool", "tool_name": "Bash",
            "input": {}, "tool_use_id": "c", "permission_suggestions": [{ "type": "setMode", "mode": "x" }] } }),
        json!({ "type": "control_request", "request_id": "q", "request": { "subtype": "can_use_tool",
            "tool_name": "AskUserQuestion", "input": { "questions": [{ "question": "?", "options": [{ "label": "l" }] }] } } }),
        json!({ "type": "control_cancel_request", "request_id": "r" }),
        json!({ "type": "control_request", "request_id": "o", "request": { "subtype": "elicitation" } }),
        json!({ "type": "control_response", "response": { "subtype": "error", "request_id": "host-1", "error": "x" } }),
        json!({ "type": "user", "uuid": "u", "message": { "content": [{ "type": "tool_result", "tool_use_id": "c",
            "content": "x", "is_error": false }] }, "tool_use_result": { "filePath": "/x", "structuredPatch": [] } }),
        json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "rejected", "resetsAt": 5 } }),
        json!({ "type": "result", "subtype": "success", "is_error": false, "usage": { "input_tokens": 1 },
            "modelUsage": { "m": {} }, "total_cost_usd": 1.0, "num_turns": 1, "errors": ["x"] }),
    ]
}

/// The same value with one thing in it replaced, for each thing in it.
fn spoilt(value: &Value, with: &Value) -> Vec<Value> {
    let mut all = vec![with.clone()];
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                for spoilt in spoilt(field, with) {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), spoilt);
                    all.push(Value::Object(fields));
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                for spoilt in spoilt(item, with) {
                    let mut items = items.clone();
                    items[at] = spoilt;
                    all.push(Value::Array(items));
                }
            }
        }
        _ => {}
    }
    all
}

#[test]
fn no_line_is_too_odd_to_be_heard() {
    for with in [json!(null), json!(-1), json!("ä"), json!([[]]), json!({ "x": null }), json!(1e300)] {
        for spoilt_line in lines().iter().flat_map(|line| spoilt(line, &with)) {
            let mut talk = talk();
            talk.begin(prompt("t"));
            hear(&mut talk, &init());
            hear(&mut talk, &spoilt_line);
            for line in lines() {
                hear(&mut talk, &line);
            }
            talk.run_announced();
            talk.cancel("t");
        }
    }
}

#[test]
fn a_run_about_something_else_does_not_end_a_turn_whose_message_waits() {
    let mut talk = talk();
    talk.begin(prompt("t"));
    let message = written(&talk);
    let state = |state: &str| json!({ "type": "command_lifecycle", "command_uuid": message, "state": state });
    let over = json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1 });
    hear(&mut talk, &state("queued"));
    hear(&mut talk, &init());
    hear(&mut talk, &over);
    assert_eq!(endings(&talk), [] as [&Ending; 0]);
    hear(&mut talk, &state("started"));
    hear(&mut talk, &init());
    hear(&mut talk, &over);
    assert_eq!(endings(&talk), [&Ending::Complete]);
    assert!(talk.turn.is_none());
}

#[test]
fn a_stopped_turn_whose_message_never_went_in_is_over_when_it_is_taken_back() {
    let mut talk = talk();
    talk.begin(prompt("t"));
    let message = written(&talk);
    assert!(talk.cancel("t"));
    assert!(talk.turn.is_some());
    hear(&mut talk, &json!({ "type": "command_lifecycle", "command_uuid": message, "state": "cancelled" }));
    assert!(talk.turn.is_none());
    assert_eq!(endings(&talk), [&Ending::Cancelled]);
}

#[test]
fn a_message_into_a_turn_that_is_never_read_comes_back_and_the_turn_ends() {
    let mut talk = talk();
    talk.begin(prompt("t"));
    let message = written(&talk);
    hear(&mut talk, &json!({ "type": "command_lifecycle", "command_uuid": message, "state": "started" }));
    hear(&mut talk, &init());
    let message = serde_json::from_value(json!({ "text": "x", "origin": { "kind": "user" } })).unwrap();
    talk.told(AgentInput::Steer { turn_id: "t".into(), id: "s".into(), message, blocks: Vec::new() });
    let steering = written(&talk);
    hear(&mut talk, &json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1 }));
    assert_eq!(endings(&talk), [] as [&Ending; 0]);
    hear(&mut talk, &json!({ "type": "command_lifecycle", "command_uuid": steering, "state": "refused" }));
    assert_eq!(endings(&talk), [&Ending::Complete]);
}

fn lifecycle(message: &str, state: &str) -> Value {
    json!({ "type": "command_lifecycle", "command_uuid": message, "state": state })
}

fn failed(text: &str) -> Value {
    json!({ "type": "result", "subtype": "error_during_execution", "is_error": true, "num_turns": 0, "errors": [text] })
}

#[test]
fn a_turn_whose_message_is_taken_into_a_run_of_another_ends_with_it() {
    let mut talk = talk();
    talk.begin(prompt("t"));
    let message = written(&talk);
    hear(&mut talk, &lifecycle("another", "started"));
    hear(&mut talk, &init());
    hear(&mut talk, &lifecycle(&message, "started"));
    hear(&mut talk, &json!({ "type": "result", "subtype": "success", "is_error": false, "num_turns": 1 }));
    assert_eq!(endings(&talk), [&Ending::Complete]);
}

#[test]
fn a_conversation_is_lost_only_where_the_program_says_so_and_nobody_stopped_the_turn() {
    let lost = "No conversation found with session ID: old";
    let old = || {
        let mut talk = Talk::new("claude", Chosen::of(&JsonObject::new(), "default"), "default", Some("old".into()));
        talk.restarted();
        talk.begin(prompt("t"));
        talk
    };
    assert_eq!(hear(&mut old(), &failed(lost)), Heard::Lost(lost.into()));
    let mut other = old();
    assert_eq!(hear(&mut other, &failed("no memory left")), Heard::Nothing);
    assert!(matches!(endings(&other)[..], [Ending::Failed { .. }]));
    let mut stopped = old();
    stopped.cancel("t");
    assert_eq!(hear(&mut stopped, &failed(lost)), Heard::Nothing);
    assert_eq!(endings(&stopped), [&Ending::Cancelled]);
}

#[test]
fn what_a_worker_asks_that_has_no_chat_or_was_stopped_is_denied() {
    let cancel = AgentInput::Cancel { turn_id: String::new() };
    for silences in [
        AgentInput::WorkerRefused { worker: "w".into(), problem: "too deep".into() },
        AgentInput::OfWorker { worker: "w".into(), input: Box::new(cancel) },
    ] {
        let mut talk = talk();
        talk.begin(prompt("t"));
        hear(&mut talk, &init());
        let calls = |parent: Option<&str>, id: &str| {
            json!({ "type": "assistant", "parent_tool_use_id": parent,
                "message": { "content": [{ "type": "tool_use", "id": id, "name": "Task", "input": {} }] } })
        };
        let asks = |call: &str| {
            json!({ "type": "control_request", "request_id": format!("ask-{call}"),
                "request": { "subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": call } })
        };
        hear(&mut talk, &calls(None, "w"));
        // A worker of the worker asks.
        hear(&mut talk, &calls(Some("w"), "v"));
        hear(&mut talk, &calls(Some("v"), "c1"));
        hear(&mut talk, &asks("c1"));
        talk.lines.clear();
        talk.told(silences);
        hear(&mut talk, &calls(Some("w"), "c2"));
        hear(&mut talk, &asks("c2"));
        let answers: Vec<&Value> = talk.lines.iter().map(|line| &line["response"]).collect();
        assert_eq!(answers.len(), 2, "{answers:?}");
        for (answer, request) in answers.iter().zip(["ask-c1", "ask-c2"]) {
            assert_eq!((&answer["request_id"], &answer["response"]["behavior"]), (&json!(request), &json!("deny")));
        }
        talk.lines.clear();
        // The turn's own calls ask people.
        hear(&mut talk, &calls(None, "c3"));
        hear(&mut talk, &asks("c3"));
        assert!(talk.lines.is_empty(), "{:?}", talk.lines);
    }
}

#[test]
fn a_message_keeps_its_own_model_while_the_one_of_the_session_changes() {
    let models = |talk: &mut Talk| -> Vec<Value> {
        let requests = talk.lines.drain(..).map(|mut line| line["request"].take());
        requests
            .filter(|request| request["subtype"] == "set_model")
            .map(|mut request| request["model"].take())
            .collect()
    };
    let mut talk = talk();
    let mut named = prompt("t");
    named.message.model = serde_json::from_value(json!({ "id": "opus" })).unwrap();
    talk.begin(named);
    assert_eq!(models(&mut talk), ["opus"]);
    talk.told(AgentInput::Configured { config: JsonObject::from_iter([("model".to_owned(), json!("haiku"))]) });
    assert_eq!(models(&mut talk), [] as [Value; 0]);
    talk.cancel("t");
    talk.begin(prompt("t2"));
    assert_eq!(models(&mut talk), ["haiku"]);
}

#[test]
fn points_are_told_once_the_chat_knows_the_conversation_that_they_are_in() {
    let mut talk = talk();
    talk.goes_back = true;
    talk.conversation = Some("old".into());
    talk.begin(prompt("t"));
    let message = written(&talk);
    hear(&mut talk, &json!({ "type": "command_lifecycle", "command_uuid": message, "state": "started" }));
    assert!(!talk.out.iter().any(|event| matches!(event, AgentEvent::RewindPoint { .. })));
    hear(&mut talk, &init());
    let told: Vec<&str> = talk
        .out
        .iter()
        .filter_map(|event| match event {
            AgentEvent::Conversation { .. } => Some("conversation"),
            AgentEvent::RewindPoint { .. } => Some("point"),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["conversation", "point"]);
}
