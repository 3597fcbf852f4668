//! What the process logs, told to clients that subscribed to it.

use scrollback::actors::people::PeopleChange;
use scrollback::clock::Clock;
use scrollback::telemetry::ToClients;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::harness::{Client, TestHost};

const ROOT: &str = "ahp-root://";
const WARN: &str = "ahp-otlp://logs/warn";

/// Logs of this process go to clients from now on.
fn logs() {
    let to_clients = ToClients::start(Clock::system()).unwrap();
    let _ = tracing_subscriber::registry().with(to_clients).try_init();
}

fn warns(text: &str) {
    tracing::warn!(target: "scrollback::test", "{text}");
}

/// What the client is told next, and under which name.
async fn told(client: &mut Client) -> (String, Vec<String>) {
    let message = client.take(|message| message["method"] == "otlp/exportLogs").await;
    let params = &message["params"];
    let records = params["payload"]["resourceLogs"][0]["scopeLogs"][0]["logRecords"].as_array().unwrap();
    let texts = records.iter().map(|record| record["body"]["stringValue"].as_str().unwrap().to_owned());
    (params["channel"].as_str().unwrap().to_owned(), texts.collect())
}

/// Warns until the client is told of it, under this name.
async fn hears(client: &mut Client, name: &str, text: &str) {
    warns(text);
    loop {
        let (channel, texts) = told(client).await;
        assert_eq!(channel, name);
        if texts.iter().any(|told| told == text) {
            return;
        }
    }
}

#[tokio::test]
async fn what_is_logged_is_told_from_a_severity_on_to_those_who_subscribed() {
    logs();
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    // A channel of logs has no state, and any case of its severity is one.
    assert_eq!(client.ask("subscribe", json!({ "channel": "ahp-otlp://logs/WARN" })).await.unwrap(), json!({}));
    tracing::info!(target: "scrollback::test", "too little");
    hears(&mut client, "ahp-otlp://logs/WARN", "the first").await;
    let missing = client.ask("subscribe", json!({ "channel": "ahp-otlp://logs/loud" })).await.unwrap_err();
    assert_eq!(missing["code"], -32008, "{missing}");
    client
        .send(json!({ "jsonrpc": "2.0", "method": "unsubscribe", "params": { "channel": "ahp-otlp://logs/WARN" } }))
        .await;
    client.ask("ping", json!({ "channel": ROOT })).await.unwrap();
    warns("nobody listens");
    assert_eq!(client.ask("subscribe", json!({ "channel": WARN })).await.unwrap(), json!({}));
    hears(&mut client, WARN, "the second").await;
}

#[tokio::test]
async fn a_handshake_names_the_channel_subscribes_to_it_and_comes_back_to_it() {
    logs();
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let hello = json!({ "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": "d", "initialSubscriptions": [ROOT, WARN] });
    let mut other = Client::connect(host.address).await;
    let result: Value = other.ask("initialize", hello).await.unwrap();
    assert_eq!(result["telemetry"], json!({ "logs": "ahp-otlp://logs/{level}" }));
    assert_eq!(result["snapshots"].as_array().unwrap().len(), 1);
    hears(&mut other, WARN, "after the handshake").await;
    let mut back = Client::connect(host.address).await;
    let again = json!({ "channel": ROOT, "clientId": "d", "lastSeenServerSeq": 0, "subscriptions": [ROOT, WARN] });
    let result: Value = back.ask("reconnect", again).await.unwrap();
    assert!(!result.to_string().contains("otlp"), "{result}");
    hears(&mut back, WARN, "after coming back").await;
    client.ask("ping", json!({ "channel": ROOT })).await.unwrap();
}

#[tokio::test]
async fn who_may_not_read_the_host_has_no_such_channel_and_loses_it_with_the_grant() {
    logs();
    let host = TestHost::in_memory();
    let (ada, bob) =
        (host.add_person("ada", &[], &["host:read"]).await, host.add_person("bob", &[], &["session:read"]).await);
    let (mut ada, mut bob) = (host.client_of("a", &ada).await, host.client_of("b", &bob).await);
    let refused = bob.ask("subscribe", json!({ "channel": WARN })).await.unwrap_err();
    assert_eq!(refused["code"], -32008, "{refused}");
    assert_eq!(ada.ask("subscribe", json!({ "channel": WARN })).await.unwrap(), json!({}));
    hears(&mut ada, WARN, "for her").await;
    let grants = vec!["host:read".parse().unwrap()];
    host.change_people(PeopleChange::Revoke { name: "ada".into(), roles: Vec::new(), grants }).await;
    assert_eq!(ada.read_until_closed().await.1.0, 1008);
}
