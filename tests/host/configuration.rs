//! The configuration of a session: what it can be, what it is, and what it does.

use ahp_types::commands::{ResolveSessionConfigResult, SessionConfigCompletionsResult};
use serde_json::{Value, json};

use crate::harness::{Client, TestHost, chat_of, markdown, types};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";

async fn resolve(client: &mut Client, config: Value) -> ResolveSessionConfigResult {
    let params = json!({ "channel": ROOT, "provider": "demo", "config": config });
    serde_json::from_value(client.ask("resolveSessionConfig", params).await.unwrap()).unwrap()
}

async fn values(client: &mut Client, property: &str, query: Value) -> Vec<String> {
    let params = json!({ "channel": ROOT, "provider": "demo", "property": property, "query": query });
    let answer = client.ask("sessionConfigCompletions", params).await.unwrap();
    let answer: SessionConfigCompletionsResult = serde_json::from_value(answer).unwrap();
    assert!(answer.items.iter().all(|item| !item.label.is_empty()));
    answer.items.into_iter().map(|item| item.value).collect()
}

#[tokio::test]
async fn the_demo_has_a_property_of_each_kind_and_all_come_each_time() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let first = resolve(&mut client, json!({})).await;
    let kind = |key: &str| first.schema.properties[key].r#type.as_str();
    let kinds = ["greeting", "capitals", "verbosity", "pace", "unasked"].map(kind);
    assert_eq!(kinds, ["string", "boolean", "integer", "number", "array"]);
    assert!(first.schema.properties["mode"].r#enum.is_some() && first.schema.properties["model"].r#enum.is_some());
    assert_eq!(first.schema.properties["language"].enum_dynamic, Some(true));
    assert_eq!(first.schema.properties["version"].read_only, Some(true));
    assert_eq!(first.schema.required, Some(vec!["mode".to_owned()]));
    assert_eq!((&first.values["mode"], &first.values["model"]), (&json!("interactive"), &json!("demo-1")));
    for (key, property) in &first.schema.properties {
        assert!(!property.title.is_empty() && property.description.is_some() && property.default.is_some(), "{key}");
        assert_eq!(first.values.get(key), property.default.as_ref(), "{key}");
    }
    let second = resolve(&mut client, json!({ "mode": "auto", "pace": 1.5 })).await;
    assert_eq!(second.schema, first.schema);
    assert_eq!(second.values.len(), first.values.len());
    assert_eq!((&second.values["mode"], &second.values["pace"]), (&json!("auto"), &json!(1.5)));
    // What was resolved can be sent back as it is.
    let params = json!({ "channel": S, "config": second.values });
    client.ask("createSession", params).await.unwrap();
    let state = client.subscribe(S).await["state"]["config"].clone();
    assert_eq!(state["values"], json!(second.values));
    assert_eq!(state["schema"], json!(second.schema));
}

#[tokio::test]
async fn values_that_are_looked_up_come_by_query_and_those_of_the_schema_too() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let all = values(&mut client, "language", Value::Null).await;
    assert!(all.len() > 20 && all.contains(&"fr".to_owned()), "{all:?}");
    assert_eq!(values(&mut client, "language", json!("swed")).await, ["sv"]);
    assert_eq!(values(&mut client, "language", json!("xyz")).await, [] as [&str; 0]);
    assert_eq!(values(&mut client, "mode", json!("AUTO")).await, ["auto"]);
    assert_eq!(values(&mut client, "greeting", json!("")).await, [] as [&str; 0]);
    for (params, code) in [
        (json!({ "channel": ROOT, "property": "colour" }), -32602),
        (json!({ "channel": ROOT }), -32602),
        (json!({ "channel": S, "property": "mode" }), -32602),
        (json!({ "channel": ROOT, "property": "mode", "provider": "nobody" }), -32002),
        (json!({ "channel": ROOT, "property": "mode", "query": 5 }), -32602),
    ] {
        assert_eq!(client.refused("sessionConfigCompletions", params.clone()).await.0, code, "{params}");
    }
}

#[tokio::test]
async fn values_are_checked_when_a_session_is_created_and_when_it_changes() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    client.create_session(S).await;
    let broken = [
        json!({ "capitals": "yes" }),
        json!({ "verbosity": 1.5 }),
        json!({ "pace": "fast" }),
        json!({ "unasked": "rm" }),
        json!({ "unasked": [1] }),
        json!({ "unasked": vec!["x"; 101] }),
        json!({ "mode": "sideways" }),
        json!({ "colour": 1 }),
        json!({ "mode": null }),
    ];
    for config in broken {
        let params = json!({ "channel": "ahp-session:/t", "config": config });
        assert_eq!(client.refused("createSession", params).await.0, -32602, "{config}");
        let params = json!({ "channel": ROOT, "config": config });
        assert_eq!(client.refused("resolveSessionConfig", params).await.0, -32602, "{config}");
        let change = json!({ "type": "session/configChanged", "config": config });
        assert_eq!(client.rejected(S, change).await, "malformed", "{config}");
    }
    for config in [json!({ "language": "fr" }), json!({ "version": "9" }), json!({ "greeting": "x" })] {
        let change = json!({ "type": "session/configChanged", "config": config });
        assert_eq!(client.rejected(S, change).await, "not-permitted", "{config}");
    }
    // A replacement keeps what is only shown, and has to hold what is required.
    client.subscribe(S).await;
    let whole = |config: Value| json!({ "type": "session/configChanged", "replace": true, "config": config });
    let without = whole(json!({ "greeting": "", "language": "" }));
    assert_eq!(client.rejected(S, without).await, "malformed");
    let heard = client.accepted(S, whole(json!({ "greeting": "", "language": "", "mode": "auto" }))).await;
    assert_eq!(heard["action"]["config"]["version"], json!(env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn a_configuration_does_what_its_descriptions_say() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let config = json!({ "language": "fr", "greeting": "to you.", "capitals": true, "unasked": ["rm"], "pace": 0.1 });
    client.ask("createSession", json!({ "channel": S, "config": config })).await.unwrap();
    let chat = chat_of(S);
    client.subscribe(&chat).await;
    let seen = client.run(&chat, "t1", "/say hi\n/ask-tool rm x").await;
    assert!(types(&seen).contains(&"chat/toolCallComplete"), "{:?}", types(&seen));
    let turn = client.subscribe(&chat).await["state"]["turns"][0].clone();
    assert_eq!(markdown(&turn), ["BONJOUR TO YOU. \nHI "]);
    let change = json!({ "type": "session/configChanged", "config": { "capitals": false } });
    client.subscribe(S).await;
    client.accepted(S, change).await;
    client.run(&chat, "t2", "/say hi").await;
    let turn = client.subscribe(&chat).await["state"]["turns"][1].clone();
    assert_eq!(markdown(&turn), ["hi "]);
}
