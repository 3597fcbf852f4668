//! Completions of a message that is being written.

use std::fs;
use std::os::unix::fs::symlink;

use ahp_types::commands::CompletionsResult;
use serde_json::{Value, json};

use crate::harness::{Client, Options, TestHost, chat_of};
use crate::resources::Ground;
use scrollback::protocol::ProtocolSettings;

const S: &str = "ahp-session:/s";

async fn items(client: &mut Client, chat: &str, text: &str) -> Vec<Value> {
    items_at(client, chat, text, text.encode_utf16().count()).await
}

async fn items_at(client: &mut Client, chat: &str, text: &str, offset: usize) -> Vec<Value> {
    let params = json!({ "channel": chat, "kind": "userMessage", "text": text, "offset": offset });
    let answer = client.ask("completions", params).await.unwrap();
    let _: CompletionsResult = serde_json::from_value(answer.clone()).unwrap();
    answer["items"].as_array().unwrap().clone()
}

fn texts(items: &[Value]) -> Vec<&str> {
    items.iter().map(|item| item["insertText"].as_str().unwrap()).collect()
}

async fn session(ground: &Ground, directory: &str) -> (Client, String) {
    let mut client = ground.host.client("c").await;
    let params = json!({ "channel": S, "provider": "demo", "workingDirectories": [ground.uri(directory)] });
    client.ask("createSession", params).await.unwrap();
    (client, chat_of(S))
}

#[tokio::test]
async fn a_slash_at_the_beginning_of_a_line_offers_the_commands_of_the_agent() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let all = items(&mut client, &chat, "/").await;
    assert!(texts(&all).contains(&"/say") && texts(&all).contains(&"/ask-tool"), "{all:?}");
    let some = items(&mut client, &chat, "/sa").await;
    assert_eq!(texts(&some), ["/say"]);
    let say = &some[0];
    assert_eq!((&say["rangeStart"], &say["rangeEnd"]), (&json!(0), &json!(3)));
    assert_eq!((&say["attachment"]["type"], &say["attachment"]["label"]), (&json!("simple"), &json!("/say")));
    assert!(say["attachment"]["_meta"]["scrollback.description"].as_str().is_some_and(|text| !text.is_empty()));
    // Each can be sent as it is offered: none is an unknown step.
    let second = items(&mut client, &chat, "one\n/fail").await;
    assert_eq!(texts(&second), ["/fail", "/fail-resumable"]);
    assert_eq!(second[0]["rangeStart"], json!(4));
    for text in ["", "say", "see /sa", "/say x", "/zzz"] {
        assert_eq!(items(&mut client, &chat, text).await, [] as [Value; 0], "{text}");
    }
}

#[tokio::test]
async fn an_at_offers_the_paths_of_the_chats_directories_prefix_matches_first() {
    let ground = Ground::new();
    for path in [
        "w/foo.ts",
        "w/src/foobar.rs",
        "w/src/a/xfoo.md",
        "w/foo dir/x",
        "w/.hidden/foo",
        "w/.git/foo",
        "w/node_modules/foo",
        "w/target/foo",
    ] {
        ground.put(path, "x");
    }
    ground.put("elsewhere/foo.txt", "x");
    let (mut client, chat) = session(&ground, "w").await;
    let found = items(&mut client, &chat, "look at @foo").await;
    assert_eq!(texts(&found), ["@foo dir", "@foo.ts", "@foo dir/x", "@src/foobar.rs", "@src/a/xfoo.md"]);
    let wanted = json!({ "insertText": "@foo.ts", "rangeStart": 8, "rangeEnd": 12, "attachment": { "type": "resource",
        "label": "foo.ts", "displayKind": "document", "uri": ground.uri("w/foo.ts") } });
    assert_eq!(found[1], wanted);
    assert_eq!(found[0]["attachment"]["displayKind"], json!("directory"));
    assert_eq!(found[0]["attachment"]["uri"], json!(ground.uri("w/foo dir")));
    assert_eq!(texts(&items(&mut client, &chat, "@SRC/F").await), ["@src/foobar.rs"]);
    assert_eq!(texts(&items(&mut client, &chat, "@.hid").await), ["@.hidden", "@.hidden/foo"]);
    assert_eq!(texts(&items(&mut client, &chat, "@").await)[..2], ["@foo dir", "@foo.ts"]);
    // What stands behind the cursor is nobody's business.
    let middle = items_at(&mut client, &chat, "😀 @foo.ts and more", 7).await;
    assert_eq!((&middle[1]["rangeStart"], &middle[1]["rangeEnd"]), (&json!(3), &json!(7)));
}

#[tokio::test]
async fn links_lead_nobody_out_of_the_directories_and_into_no_circle() {
    let ground = Ground::new();
    ground.put("w/foo", "x");
    symlink(&ground.outside, ground.inside.join("w/foo-out")).unwrap();
    symlink(ground.outside.join("secret"), ground.inside.join("w/foo-secret")).unwrap();
    symlink("../data", ground.inside.join("w/foo-data")).unwrap();
    // What may be reached and is in no directory of the chat.
    ground.put("elsewhere/bar", "x");
    symlink("../elsewhere", ground.inside.join("w/foo-elsewhere")).unwrap();
    symlink("../elsewhere/bar", ground.inside.join("w/foo-bar")).unwrap();
    symlink(".", ground.inside.join("w/foo-loop")).unwrap();
    symlink("foo", ground.inside.join("w/foo-link")).unwrap();
    symlink("none", ground.inside.join("w/foo-none")).unwrap();
    let (mut client, chat) = session(&ground, "w").await;
    assert_eq!(texts(&items(&mut client, &chat, "@foo").await), ["@foo", "@foo-link", "@foo-loop"]);
    assert_eq!(items(&mut client, &chat, "@secret").await, [] as [Value; 0]);
    // The host's own directory is in nobody's way.
    let params = json!({ "channel": "ahp-session:/t", "provider": "demo", "workingDirectories": [ground.uri("")] });
    client.ask("createSession", params).await.unwrap();
    assert_eq!(items(&mut client, &chat_of("ahp-session:/t"), "@data").await, [] as [Value; 0]);
}

#[tokio::test]
async fn a_huge_tree_is_answered_in_time_with_fifty_at_most() {
    let ground = Ground::new();
    for number in 0..300 {
        fs::create_dir_all(ground.inside.join(format!("w/{number}"))).unwrap();
        ground.put(&format!("w/{number}/foo"), "x");
    }
    let (mut client, chat) = session(&ground, "w").await;
    assert_eq!(items(&mut client, &chat, "@foo").await.len(), 50);
    assert_eq!(items(&mut client, &chat, "#").await.len(), 50);
    // Without any time at all it is answered, too.
    let protocol = ProtocolSettings { completion_time: std::time::Duration::ZERO, ..ProtocolSettings::default() };
    let host = TestHost::with(Options { protocol, ..Options::default() });
    let mut client = host.client("c").await;
    let params = json!({ "channel": S, "provider": "demo", "workingDirectories": [ground.uri("w")] });
    client.ask("createSession", params).await.unwrap();
    assert_eq!(items(&mut client, &chat, "@foo").await, [] as [Value; 0]);
    assert!(crate::harness::met("completions") > 0);
}

#[tokio::test]
async fn a_hash_on_its_way_to_chat_offers_the_other_chats_and_files_and_any_other_files_alone() {
    let ground = Ground::new();
    ground.put("w/chart.svg", "x");
    ground.put("w/photo.png", "x");
    let (mut client, chat) = session(&ground, "w").await;
    for (uri, title) in [("ahp-chat:/a", "Alpha"), ("ahp-chat:/b", "Beta")] {
        client.create_chat(S, uri).await;
        client.subscribe(uri).await;
        client.accepted(uri, json!({ "type": "session/titleChanged", "title": title })).await;
    }
    let all = items(&mut client, &chat, "see #").await;
    assert_eq!(texts(&all), ["#chat:Alpha", "#chat:Beta", "#chart.svg", "#photo.png"]);
    let wanted = json!({ "insertText": "#chat:Alpha", "rangeStart": 4, "rangeEnd": 5,
        "attachment": { "type": "chat", "label": "Alpha", "resource": "ahp-chat:/a" } });
    assert_eq!(all[0], wanted);
    assert_eq!(all[2]["attachment"]["displayKind"], json!("image"));
    assert_eq!(texts(&items(&mut client, &chat, "#cha").await), ["#chat:Alpha", "#chat:Beta", "#chart.svg"]);
    assert_eq!(texts(&items(&mut client, &chat, "#chat:be").await), ["#chat:Beta"]);
    assert_eq!(texts(&items(&mut client, &chat, "#pho").await), ["#photo.png"]);
    assert_eq!(texts(&items(&mut client, "ahp-chat:/a", "#chat:b").await), ["#chat:Beta"]);
}

#[tokio::test]
async fn offsets_count_utf16_units_and_are_refused_elsewhere() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    let ask =
        |text: &str, offset: Value| json!({ "channel": chat, "kind": "userMessage", "text": text, "offset": offset });
    for (text, offset) in
        [("a😀", json!(2)), ("a", json!(2)), ("a", json!(-1)), ("a", json!(0.5)), ("", json!(1)), ("a", json!("0"))]
    {
        let refused = client.refused("completions", ask(text, offset.clone())).await;
        assert_eq!(refused, (-32602, "invalid-params".to_owned()), "{text} {offset}");
    }
    for (text, offset) in [("a😀", 0), ("a😀", 1), ("a😀", 3), ("", 0)] {
        assert_eq!(client.ask("completions", ask(text, json!(offset))).await, Ok(json!({ "items": [] })), "{text}");
    }
    let found = items(&mut client, &chat, "😀\n/say").await;
    assert_eq!((&found[0]["rangeStart"], &found[0]["rangeEnd"]), (&json!(3), &json!(7)));
    for params in [json!({ "channel": chat }), json!({ "channel": chat, "kind": "userMessage", "offset": 0 })] {
        assert_eq!(client.refused("completions", params).await.0, -32602);
    }
    let nowhere = json!({ "channel": "ahp-chat:/none", "kind": "userMessage", "text": "", "offset": 0 });
    assert_eq!(client.refused("completions", nowhere).await, (-32008, "not-found".to_owned()));
    let later = json!({ "channel": chat, "kind": "commitMessage", "text": "/s", "offset": 2 });
    assert_eq!(client.ask("completions", later).await, Ok(json!({ "items": [] })));
}
