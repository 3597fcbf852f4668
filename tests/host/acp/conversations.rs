//! Conversations that go on: after a restart, after a rewind, in a fork, as the agent can, and else with the transcript.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Rig, S, notices, said, turn};
use crate::harness::{chat_of, message};

const F: &str = "ahp-chat:/f";

/// What the agent knows of its conversation: the texts, in their order.
fn known(turn: &Value) -> Vec<String> {
    let all: Vec<(String, String)> = serde_json::from_str(&said(turn)).unwrap();
    all.into_iter().map(|(_, text)| text).collect()
}

fn has_transcript(turn: &Value) -> bool {
    known(turn).last().unwrap().starts_with("This conversation began before you")
}

/// A host is stopped after one turn and started again: the next turn.
async fn over_a_restart(rig: &Rig) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let host = rig.host_on_disk(directory.path());
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "remember me").await;
    drop(client);
    host.stop();
    let host = rig.host_on_disk(directory.path());
    let mut client = host.client("c").await;
    client.subscribe(&chat_of(S)).await;
    turn(&mut client, &chat, "t2", "/history").await
}

#[tokio::test]
async fn after_a_restart_of_the_host_the_agent_resumes_or_loads_its_conversation() {
    for (abilities, method) in [(&["resume"][..], "resume"), (&["load"], "load"), (&["resume-fails", "load"], "load")] {
        let rig = Rig::lasting(abilities);
        let next = over_a_restart(&rig).await;
        assert_eq!(known(&next), ["remember me", "You said: remember me", "/history"], "{abilities:?}");
        // The history that a load says again is not shown again.
        assert_eq!(notices(&next), [] as [String; 0]);
        assert!(rig.notes().last().unwrap().starts_with(method), "{:?}", rig.notes());
    }
}

#[tokio::test]
async fn an_agent_that_cannot_go_on_or_only_says_so_is_given_the_transcript_and_that_is_told() {
    for (abilities, words) in [
        (&[][..], "This agent cannot take up a conversation again."),
        (&["resume-fails"], "The agent cannot take up this conversation again (\"Method not found\": session/resume)."),
        // It forgot everything; it says so, it opens a session that it does not know, or finds out at the prompt.
        (&["load"], "The agent cannot take up this conversation again (Resource not found"),
        (&["load", "lies"], "The agent does not know this conversation any more."),
        (&["resume", "lies"], "The agent cannot take up this conversation again (Session not found: "),
    ] {
        let rig = Rig::new(abilities);
        let next = over_a_restart(&rig).await;
        assert!(has_transcript(&next), "{abilities:?}: {next}");
        let transcript = known(&next).concat();
        assert!(transcript.contains("User:\nremember me\n\nYou:\nYou said: remember me"), "{transcript}");
        let [told] = &notices(&next)[..] else { panic!("{next}") };
        assert!(told.starts_with(words), "{told}");
        assert!(told.ends_with("It began a new conversation with the transcript of this one."), "{told}");
    }
}

#[tokio::test]
async fn a_turn_that_was_interrupted_is_taken_up_on_a_new_program_with_its_conversation() {
    let rig = Rig::lasting(&["load"]);
    let directory = tempfile::tempdir().unwrap();
    let host = rig.host_on_disk(directory.path());
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "remember me").await;
    // It ends when it is taken up: then it is a turn like any other.
    client.say(&chat, "t2", &format!("/say before \n/wait-unless {}", rig.path("again").display())).await;
    client.until_type("chat/delta").await;
    drop(client);
    std::fs::write(rig.path("again"), "").unwrap();
    host.stop();
    let host = rig.host_on_disk(directory.path());
    let mut client = host.client("c").await;
    let state = client.subscribe(&chat).await["state"].clone();
    if state["turns"].as_array().unwrap().len() < 2 {
        client.until_ended("t2").await;
    }
    let next = turn(&mut client, &chat, "t3", "/history").await;
    assert_eq!(known(&next)[..2], ["remember me", "You said: remember me"], "{next}");
    let taken_up = super::ended(&mut client, &chat, "t2").await;
    assert_eq!((said(&taken_up), &taken_up["state"]), ("before before ".to_owned(), &json!("complete")));
}

#[tokio::test]
async fn after_a_rewind_the_agent_begins_anew_with_the_turns_that_were_kept() {
    let rig = Rig::lasting(&["load"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    for (id, text) in [("t1", "first"), ("t2", "second"), ("t3", "third")] {
        turn(&mut client, &chat, id, text).await;
    }
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    let next = turn(&mut client, &chat, "t4", "/history").await;
    assert!(has_transcript(&next), "{next}");
    let transcript = known(&next).concat();
    assert!(transcript.contains("You said: first") && !transcript.contains("second"), "{transcript}");
    assert_eq!(
        notices(&next),
        [
            "This agent cannot go back in a conversation by itself. It began a new conversation with the transcript of this one."
        ]
    );
    // And it is the new one that goes on from there.
    let last = turn(&mut client, &chat, "t5", "/history").await;
    assert!(notices(&last).is_empty() && !has_transcript(&last), "{last}");
    // A rewind to a turn that was stopped works too.
    client.say(&chat, "t6", "/say x\n/wait").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t6").await;
    client.until_ended("t6").await;
    turn(&mut client, &chat, "t7", "seventh").await;
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t6" })).await;
    let next = turn(&mut client, &chat, "t8", "/history").await;
    assert!(known(&next).concat().contains("/wait") && !known(&next).concat().contains("seventh"), "{next}");
}

#[tokio::test]
async fn a_turn_that_was_resumed_stands_once_in_a_later_transcript_with_all_that_was_answered() {
    let mut rig = Rig::new(&[]);
    rig.limits.cancel_timeout = Duration::from_millis(200);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "/say half\n/error -32603 broken").await;
    client.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t1" })).await;
    client.until_ended("t1").await;
    // The program has to be ended, and its process goes on with another one that knows nothing.
    client.say(&chat, "t2", "/deaf-to-cancel").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t2").await;
    client.until_ended("t2").await;
    let third = turn(&mut client, &chat, "t3", "/history").await;
    let transcript = known(&third).concat();
    assert_eq!(transcript.matches("/error -32603 broken").count(), 1, "{transcript}");
    assert!(transcript.contains("half\n\nhalf"), "{transcript}");
}

#[tokio::test]
async fn a_rewind_whose_first_message_never_arrived_does_not_lead_back_to_the_old_conversation() {
    let rig = Rig::lasting(&["load"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "first").await;
    turn(&mut client, &chat, "t2", "second").await;
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t1" })).await;
    // The program dies before it has said anything in the new conversation.
    turn(&mut client, &chat, "t3", "/die 1").await;
    let next = turn(&mut client, &chat, "t4", "/history").await;
    assert!(has_transcript(&next), "{next}");
    assert!(!known(&next).concat().contains("second"), "{next}");
}

#[tokio::test]
async fn a_fork_has_a_conversation_of_its_own_that_begins_with_the_transcript() {
    let rig = Rig::lasting(&["resume"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "first").await;
    turn(&mut client, &chat, "t2", "second").await;
    let source = json!({ "kind": "fork", "chat": chat, "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    client.subscribe(F).await;
    let forked = turn(&mut client, F, "f1", "/history").await;
    assert!(has_transcript(&forked) && !known(&forked).concat().contains("second"), "{forked}");
    assert!(notices(&forked)[0].starts_with("This agent cannot fork a conversation by itself."));
    let source = turn(&mut client, &chat, "t3", "/history").await;
    assert_eq!(known(&source).len(), 5);
    assert_eq!(rig.programs.alive(), 2);
}

#[tokio::test]
async fn a_side_chat_is_told_of_the_other_one_before_its_message() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "first").await;
    let source = json!({ "kind": "sideChat", "chat": chat, "turnId": "t1" });
    client.ask("createChat", json!({ "channel": S, "chat": F, "source": source })).await.unwrap();
    client.subscribe(F).await;
    let action = json!({ "type": "chat/turnStarted", "turnId": "s1", "startedAt": "2026-11-30T12:00:00.000Z",
        "message": message("why?") });
    client.dispatch(F, action).await;
    client.until_ended("s1").await;
    let told = said(&super::ended(&mut client, F, "s1").await);
    assert!(told.contains("first"), "{told}");
}
