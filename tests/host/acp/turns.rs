//! Turns: what the agent says, does and asks.

use serde_json::{Value, json};

use super::{Rig, S, calls, ended, error, notices, parts, said, turn};
use crate::harness::{message, streamed};

fn decision(turn: &str, call: &str, approved: bool, option: Option<&str>) -> Value {
    let mut action =
        json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call, "approved": approved });
    action[if approved { "confirmed" } else { "reason" }] = json!(if approved { "user-action" } else { "denied" });
    if let Some(option) = option {
        action["selectedOptionId"] = json!(option);
    }
    action
}

#[tokio::test]
async fn a_turn_streams_what_the_agent_says_and_its_program_stays_up_for_the_next() {
    let rig = Rig::new(&["banner"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let seen = client.run(&chat, "t1", "/think hm\nhello\n/echo-user no\n/other-session no").await;
    assert_eq!(streamed(&seen), "You said: hello");
    assert_eq!(seen.last().unwrap()["action"]["type"], json!("chat/turnComplete"));
    let first = ended(&mut client, &chat, "t1").await;
    assert_eq!(parts(&first, "reasoning")[0]["content"], json!("hm"));
    let second = turn(&mut client, &chat, "t2", "/history").await;
    assert!(said(&second).contains("You said: hello"), "{second}");
    assert_eq!(rig.programs.alive(), 1);
}

#[tokio::test]
async fn the_agent_is_given_what_its_table_names_and_nothing_else_of_the_hosts_environment() {
    let rig = Rig::new(&[]).with("pass_env = [\"PASSED\"]\nenv = { SET = \"here\" }");
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let said = said(&turn(&mut client, &chat, "t", "/env PASSED\n/env SET\n/env SECRET\n/env HOME").await);
    assert_eq!(said, "onhere(not set)/nowhere");
}

#[tokio::test]
async fn empty_texts_say_nothing_and_texts_of_two_messages_are_two_paragraphs() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let ended = turn(&mut client, &chat, "t", "/say \n/message a one\n/message a , two\n/message b three\n/say ").await;
    assert_eq!(said(&ended), "one, two\n\nthree");
    assert_eq!(ended["responseParts"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_call_runs_through_its_stages_with_its_places_its_input_and_its_edits() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let ended =
        turn(&mut client, &chat, "t", "/say a\n/tool one done\n/say b\n/tool two failed\n/tool three open").await;
    let kinds: Vec<&Value> = ended["responseParts"].as_array().unwrap().iter().map(|part| &part["kind"]).collect();
    assert_eq!(kinds, ["markdown", "toolCall", "markdown", "toolCall", "toolCall"]);
    let [one, two, three] = &calls(&ended)[..] else { panic!("{ended}") };
    assert_eq!((&one["status"], &one["toolName"]), (&json!("completed"), &json!("edit")));
    assert_eq!(one["invocationMessage"], json!("Edit file.txt (/w/file.txt:7)"));
    assert_eq!(one["toolInput"], json!("{\n  \"file\": \"/w/file.txt\"\n}"));
    let content = one["content"].as_array().unwrap();
    assert_eq!(content[0]["type"], json!("fileEdit"));
    assert_eq!(content[0]["after"]["uri"], json!("file:///w/file.txt"));
    assert_eq!(content[0]["diff"], json!({ "added": 1, "removed": 1 }));
    assert_eq!(content[1]["text"], json!("/w/file.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"));
    assert_eq!(content[2]["text"], json!("went well"));
    assert_eq!((&two["success"], &two["error"]["message"]), (&json!(false), &json!("no such file")));
    assert_eq!(three["status"], json!("cancelled"));
}

#[tokio::test]
async fn a_call_that_was_announced_and_one_that_was_not_wait_for_a_decision_made_by_the_kind_of_the_option() {
    for ids in ["string-ids", "banner"] {
        let rig = Rig::new(&[ids]);
        let host = rig.host();
        let (mut client, chat) = rig.open(&host).await;
        client.say(&chat, "t", "/ask one ls\n/ask-unannounced two rm\n/ask three x\n/ask four y").await;
        let needed = client.until_type("session/inputNeededSet").await["action"]["request"]["toolCall"].clone();
        assert_eq!((&needed["status"], &needed["toolName"]), (&json!("pending-confirmation"), &json!("execute")));
        assert_eq!(needed["toolInput"], json!("{\n  \"command\": \"ls\"\n}"));
        let options = needed["options"].as_array().unwrap();
        let options: Vec<_> = options.iter().map(|option| [&option["id"], &option["label"], &option["kind"]]).collect();
        assert_eq!(options[0], [&json!("always"), &json!("Always"), &json!("approve")]);
        assert_eq!(options[2], [&json!("abort"), &json!("No"), &json!("deny")]);
        // Without an option, the one that holds once is taken.
        client.accepted(&chat, decision("t", "one", true, None)).await;
        client.until_type("session/inputNeededSet").await;
        client.accepted(&chat, decision("t", "two", false, None)).await;
        client.until_type("session/inputNeededSet").await;
        client.accepted(&chat, decision("t", "three", true, Some("always"))).await;
        client.until_type("session/inputNeededSet").await;
        client.accepted(&chat, decision("t", "four", false, Some("abort"))).await;
        client.until_ended("t").await;
        let turn = ended(&mut client, &chat, "t").await;
        assert_eq!(said(&turn), "chosen: yeschosen: abortchosen: alwayschosen: abort");
        let statuses: Vec<Value> = calls(&turn).iter().map(|call| call["status"].clone()).collect();
        assert_eq!(statuses, ["completed", "cancelled", "completed", "cancelled"]);
        assert_eq!(calls(&turn)[0]["content"][0]["text"], json!("ran ls"));
    }
}

#[tokio::test]
async fn an_id_that_an_agent_uses_again_in_another_turn_is_another_call_and_the_rest_of_an_old_one_is_none() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "/tool one done\n/tool two open").await;
    let late = |id: &str| {
        let update = json!({ "sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed" });
        format!("/raw-update {update}")
    };
    let second = turn(&mut client, &chat, "t2", &format!("{}\n/tool one done", late("two"))).await;
    let [call] = &calls(&second)[..] else { panic!("{second}") };
    assert_eq!((&call["toolCallId"], &call["status"]), (&json!("one"), &json!("completed")));
    assert_eq!(call["content"][2]["text"], json!("went well"));
    // A question claims an id too.
    client.say(&chat, "t3", &format!("/ask-unannounced one ls\n{}", late("two"))).await;
    client.until_type("session/inputNeededSet").await;
    client.accepted(&chat, decision("t3", "one", true, None)).await;
    client.until_ended("t3").await;
    let third = ended(&mut client, &chat, "t3").await;
    let [call] = &calls(&third)[..] else { panic!("{third}") };
    assert_eq!((&call["status"], &call["content"][0]["text"]), (&json!("completed"), &json!("ran ls")));
}

#[tokio::test]
async fn an_id_that_is_used_again_when_its_turn_is_taken_up_is_another_call_of_it() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t", "/tool one done\n/error -32603 broken").await;
    client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    client.until_ended("t").await;
    let turn = ended(&mut client, &chat, "t").await;
    let ids: Vec<Value> = calls(&turn).iter().map(|call| call["toolCallId"].clone()).collect();
    assert_eq!(ids, ["one", "one:1"], "{turn}");
    assert!(calls(&turn).iter().all(|call| call["status"] == json!("completed")), "{turn}");
}

#[tokio::test]
async fn a_question_that_the_agent_takes_back_or_leaves_open_is_over() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    client.say(&chat, "t", "/ask-twice").await;
    client.until_type("session/inputNeededSet").await;
    let settled = client.until_type("chat/toolCallConfirmed").await;
    assert_eq!((&settled["action"]["toolCallId"], &settled["action"]["approved"]), (&json!("late"), &json!(false)));
    client.until_ended("t").await;
    turn(&mut client, &chat, "u", "/ask-and-wait-for-nothing").await;
    assert_eq!(client.subscribe(S).await["state"].get("inputNeeded"), None);
    // What is left open does not hold up the next turn.
    assert_eq!(said(&turn(&mut client, &chat, "v", "fine").await), "You said: fine");
}

#[tokio::test]
async fn a_plan_is_one_call_that_shows_the_plan_as_it_is() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let plan = |first: &str| {
        let entry = |content: &str, status: &str| json!({ "content": content, "priority": "low", "status": status });
        json!({ "sessionUpdate": "plan", "entries": [entry("look", first), entry("mend", "pending")] }).to_string()
    };
    let script = format!("/raw-update {}\n/say x\n/raw-update {}", plan("in_progress"), plan("completed"));
    let ended = turn(&mut client, &chat, "t", &script).await;
    let [call] = &calls(&ended)[..] else { panic!("{ended}") };
    assert_eq!((&call["toolName"], &call["pastTenseMessage"]), (&json!("plan"), &json!("Plan: 1 of 2 done")));
    assert_eq!(call["content"][0]["text"], json!("- [x] look\n- [ ] mend\n"));
}

#[tokio::test]
async fn usage_is_what_the_agent_counts_wherever_it_says_it() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let first = turn(&mut client, &chat, "t1", "/usage 15 1000\n/qwen-usage").await;
    assert_eq!(first["usage"]["inputTokens"], json!(10));
    assert_eq!(first["usage"]["_meta"]["scrollback.context"], json!({ "used": 15, "size": 1000 }));
    assert_eq!(first["usage"]["_meta"]["scrollback.costSoFar"], json!({ "amount": 0.5, "currency": "USD" }));
    let result = json!({ "stopReason": "end_turn",
        "usage": { "inputTokens": 3, "outputTokens": 4, "totalTokens": 7, "cachedReadTokens": 1 } });
    let second = turn(&mut client, &chat, "t2", &format!("/result {result}")).await;
    assert_eq!(second["usage"], json!({ "inputTokens": 3, "outputTokens": 4, "cacheReadTokens": 1 }));
    let quota = json!({ "stopReason": "end_turn",
        "_meta": { "quota": { "token_count": { "input_tokens": 8, "output_tokens": 9 } } } });
    let third = turn(&mut client, &chat, "t3", &format!("/result {quota}")).await;
    assert_eq!((&third["usage"]["inputTokens"], &third["usage"]["outputTokens"]), (&json!(8), &json!(9)));
}

#[tokio::test]
async fn what_is_not_known_is_let_pass_and_notices_and_compactions_are_told() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let updates = [
        json!({ "sessionUpdate": "from_the_future", "x": 1 }),
        json!({ "sessionUpdate": "session_info_update", "title": "New" }),
        json!({ "sessionUpdate": "notice", "severity": "warning", "title": "Careful", "description": "it is hot" }),
        json!({ "sessionUpdate": "usage_update", "used": 900, "size": 1000 }),
        json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed" }),
    ];
    let mut script: Vec<String> = updates.iter().map(|update| format!("/raw-update {update}")).collect();
    script.push(r#"/raw {"jsonrpc":"2.0","method":"_made/up","params":{}}"#.to_owned());
    script.push(r#"/raw {"jsonrpc":"2.0","id":"odd","method":"made/up","params":{}}"#.to_owned());
    script.push(r#"/raw {"jsonrpc":"2.0","id":99,"result":{}}"#.to_owned());
    script.push("done".to_owned());
    let ended = turn(&mut client, &chat, "t", &script.join("\n")).await;
    assert_eq!(said(&ended), "You said: done");
    let [careful, compacted] = &notices(&ended)[..] else { panic!("{ended}") };
    assert_eq!(careful, "Careful: it is hot");
    assert!(compacted.contains("which held 900 tokens"), "{compacted}");
}

#[tokio::test]
async fn files_are_read_and_written_inside_the_allowed_directories_and_nowhere_else() {
    let rig = Rig::new(&[]);
    std::fs::write(rig.work().join("there.txt"), "one\ntwo\nthree\n").unwrap();
    std::fs::write(rig.path("secret.txt"), "no").unwrap();
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let work = rig.work();
    let work = work.display();
    let script = format!(
        "/read {work}/there.txt\n/read {work}/there.txt 2 1\n/read {work}/missing\n/write {work}/new/file.txt hi there\n\
         /read {work}/../secret.txt\n/write {work}/../secret.txt x\n/terminal ls"
    );
    let ended = turn(&mut client, &chat, "t", &script).await;
    let told = said(&ended);
    assert!(
        told.starts_with(r#"/read: {"content":"one\ntwo\nthree\n"}/read: {"content":"two\n"}/read: -32002"#),
        "{told}"
    );
    assert!(told.ends_with("/write: {}/read: -32602/write: -32602/terminal: -32601"), "{told}");
    assert_eq!(std::fs::read_to_string(rig.work().join("new/file.txt")).unwrap(), "hi there");
    assert_eq!(std::fs::read_to_string(rig.path("secret.txt")).unwrap(), "no");
}

#[tokio::test]
async fn each_reason_to_stop_is_an_ending_of_its_own() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    for (reason, kind, resumable) in [
        ("max_tokens", "max-tokens", true),
        ("max_turn_requests", "max-turn-requests", true),
        ("refusal", "refusal", false),
    ] {
        let ended = turn(&mut client, &chat, reason, &format!("/stop {reason}")).await;
        assert_eq!(error(&ended).0, kind);
        let part = parts(&ended, "error")[0].clone();
        assert_eq!(part.get("resumable").is_some(), resumable, "{part}");
    }
    assert_eq!(turn(&mut client, &chat, "by-itself", "/stop cancelled").await["state"], json!("cancelled"));
    assert_eq!(turn(&mut client, &chat, "odd", "/stop never_heard_of").await["state"], json!("complete"));
}

#[tokio::test]
async fn errors_of_a_prompt_are_limits_logins_or_failures_by_what_they_say() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let overloaded =
        turn(&mut client, &chat, "a", r#"/error -32603 Internal error | {"details":"API Error: 529 overloaded"}"#);
    assert_eq!(error(&overloaded.await).0, "overloaded");
    let usage = r#"/error -32603 You've hit your usage limit. | {"resets_at": 4102444800}"#;
    let usage = turn(&mut client, &chat, "b", usage).await;
    assert_eq!(error(&usage).0, "usage-limit");
    let limit = &parts(&usage, "error")[0]["error"]["_meta"]["scrollback.limit"];
    assert_eq!(limit, &json!({ "kind": "usage", "resetsAt": "2100-01-01T00:00:00.000Z" }));
    let (kind, words) = error(&turn(&mut client, &chat, "c", "/error -32000 Authentication required").await);
    assert_eq!(kind, "agent-login");
    assert!(words.contains("It takes: Log in with a plan (Opens a browser); Use FAKE_KEY."), "{words}");
    let failed =
        error(&turn(&mut client, &chat, "d", r#"/error -32603 Internal error | {"details":"no model"}"#).await);
    assert_eq!(failed, ("agent-error".to_owned(), "Internal error: no model".to_owned()));
    assert_eq!(said(&turn(&mut client, &chat, "e", "on").await), "You said: on");
}

#[tokio::test]
async fn images_go_to_an_agent_that_takes_them_and_files_by_their_links() {
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    for (ability, blocks) in [
        ("images", json!(["text", "image", "resource_link"])),
        ("load", json!(["text", "resource_link", "resource_link"])),
    ] {
        let rig = Rig::new(&[ability]);
        let (agent, found) = rig.probe().await;
        assert_eq!((found.version.as_deref(), found.problem), (Some("fake-acp 1.2.3"), None));
        let host = crate::harness::TestHost::with(rig.options(agent));
        let (mut client, chat) = rig.open(&host).await;
        let file = format!("file://{}/there.txt", rig.work().display());
        std::fs::write(rig.work().join("there.txt"), "x").unwrap();
        let mut sent = message("/blocks");
        sent["attachments"] = json!([{ "type": "embeddedResource", "label": "pixel.png", "data": pixel, "contentType": "image/png" },
            { "type": "resource", "label": "there", "uri": file }]);
        let action = json!({ "type": "chat/turnStarted", "turnId": "t", "startedAt": "2026-11-30T12:00:00.000Z", "message": sent });
        client.dispatch(&chat, action).await;
        client.until_ended("t").await;
        let turn = ended(&mut client, &chat, "t").await;
        let prompt: Vec<Value> = serde_json::from_str(&said(&turn)).unwrap();
        assert_eq!(json!(prompt.iter().map(|block| block["type"].clone()).collect::<Vec<_>>()), blocks, "{ability}");
        assert_eq!(prompt[2]["uri"], json!(file));
    }
}

#[tokio::test]
async fn the_hosts_own_tools_are_passed_to_an_agent_that_reaches_them() {
    for (abilities, servers) in [(vec!["http"], 1), (vec![], 0)] {
        let rig = Rig::new(&abilities);
        let host = rig.host();
        let (mut client, chat) = rig.open(&host).await;
        let opened: Value = serde_json::from_str(&said(&turn(&mut client, &chat, "t", "/opened-with").await)).unwrap();
        assert_eq!(opened["cwd"], json!(rig.work()));
        let passed = opened["mcpServers"].as_array().unwrap();
        assert_eq!(passed.len(), servers);
        for server in passed {
            assert_eq!((&server["type"], &server["name"]), (&json!("http"), &json!("scrollback")));
            assert!(server["url"].as_str().unwrap().starts_with(&format!("http://{}/mcp/", host.address)));
            assert!(server["headers"][0]["value"].as_str().unwrap().starts_with("Bearer "));
        }
    }
}

#[tokio::test]
async fn a_flood_of_words_all_arrives_in_order() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let all: String = (0..20_000).map(|number| format!("{number} ")).collect();
    assert_eq!(streamed(&client.run(&chat, "t", "/flood 20000").await), all);
}
