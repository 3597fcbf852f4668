//! One decision with all that it entails is one append: read from the log, batch by batch.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use scrollback::events::{Kind, ServerSeq};
use scrollback::projections::action::type_of;
use serde_json::json;

use crate::harness::{TestHost, message};

const S: &str = "ahp-session:/s";

/// The types of all actions of the log, batch by batch.
fn batches(host: &TestHost) -> Vec<Vec<String>> {
    let mut batches: BTreeMap<ServerSeq, Vec<String>> = BTreeMap::new();
    let visit = &mut |record: scrollback::events::Record| {
        if record.kind == Kind::Action {
            batches.entry(record.batch.0).or_default().push(type_of(&record.action).into_owned());
        }
        ControlFlow::Continue(())
    };
    host.host.store().scan(0, ServerSeq::MAX, visit).unwrap();
    batches.into_values().collect()
}

/// The batch that holds an action of this type; there is one.
fn batch_of(host: &TestHost, kind: &str) -> Vec<String> {
    let mut holding = batches(host).into_iter().filter(|batch| batch.iter().any(|held| held == kind));
    let found = holding.next().unwrap();
    assert_eq!(holding.next(), None, "{kind} in two batches");
    found
}

#[tokio::test]
async fn a_call_that_asks_and_all_that_it_entails_is_one_batch() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(S).await;
    client.say(&chat, "t", "/ask-tool rm x").await;
    client.until_type("session/inputNeededSet").await;
    let batch = batch_of(&host, "chat/toolCallReady");
    for entailed in ["session/inputNeededSet", "session/chatUpdated"] {
        assert!(batch.iter().any(|kind| kind == entailed), "{entailed} is not in {batch:?}");
    }
}

#[tokio::test]
async fn an_ending_and_all_that_it_entails_is_one_batch() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(S).await;
    client.subscribe(&chat).await;
    client.say(&chat, "t", "/activity busy\n/question sure?").await;
    client.until_type("session/inputNeededSet").await;
    client.queue(&chat, "m", "waits").await;
    client.cancel(&chat, "t").await;
    client.until_type("session/metaChanged").await;
    let batch = batch_of(&host, "chat/turnCancelled");
    for entailed in ["chat/activityChanged", "session/inputNeededRemoved", "session/metaChanged", "session/chatAdded"] {
        assert!(batch.iter().any(|kind| kind == entailed), "{entailed} is not in {batch:?}");
    }
}

#[tokio::test]
async fn a_queued_message_that_goes_out_leaves_the_queue_and_begins_its_turn_in_one_batch() {
    let host = TestHost::in_memory();
    let mut client = host.client("c").await;
    let chat = client.create_session(S).await;
    client.subscribe(&chat).await;
    client.dispatch(&chat, json!({ "type": "chat/draftChanged", "draft": message("d") })).await;
    client.queue(&chat, "m", "/say hello").await;
    client.until_type("chat/turnComplete").await;
    let batch = batch_of(&host, "chat/turnStarted");
    assert_eq!(batch[..3], ["chat/pendingMessageSet", "chat/pendingMessageRemoved", "chat/turnStarted"]);
    assert!(batch.iter().any(|kind| kind == "session/chatUpdated"), "{batch:?}");
    let created = batch_of(&host, "session/ready");
    assert!(created.iter().any(|kind| kind == "session/chatAdded"), "{created:?}");
}
