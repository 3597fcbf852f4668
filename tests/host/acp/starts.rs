//! Starts, and programs that do not.

use std::time::Duration;

use serde_json::json;

use super::{Rig, error, notices, said, turn};
use crate::harness::TestHost;

#[tokio::test]
async fn a_program_that_is_not_there_not_executable_or_exits_at_once_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    let text = text.display().to_string();
    for (rig, words) in [
        (
            Rig::of(vec!["/nowhere/agent".into()]),
            "/nowhere/agent is not there: install it, or mend the agent's `command`",
        ),
        (Rig::of(vec!["no-such-agent-anywhere".into()]), "no-such-agent-anywhere is not installed"),
        (Rig::of(vec![text.clone()]), "is no program that the host's user may run"),
        (
            Rig::new(&["exits=3"]),
            "ended before it was ready (exit status: 3); the end of what it wrote to stderr: fake_acp: it was told to exit",
        ),
        (Rig::of(vec!["echo".into(), "hello".into()]), "ended before it was ready"),
        (Rig::of(vec!["yes".into(), "hello".into()]), "does not speak the Agent Client Protocol: it wrote \"hello\""),
        (Rig::new(&["version=7"]), "speaks version 7 of the Agent Client Protocol"),
        (Rig::new(&["login"]), "fake wants a login. It takes: Log in with a plan (Opens a browser); Use FAKE_KEY."),
    ] {
        let (agent, found) = rig.probe().await;
        let problem = found.problem.unwrap();
        assert!(problem.contains(words), "{problem}");
        let host = TestHost::with(rig.options(agent));
        let (mut client, chat) = rig.open(&host).await;
        for id in ["t", "u"] {
            let (kind, told) = error(&turn(&mut client, &chat, id, "hello").await);
            assert_eq!(kind, "agent-gone");
            assert!(told.contains(words), "{told}");
            assert!(told.contains("fake"), "{told}");
        }
        drop(host);
        tokio::time::timeout(crate::harness::PATIENCE, rig.programs.ended()).await.unwrap();
    }
}

#[tokio::test]
async fn a_slow_start_is_told_and_one_that_never_ends_is_ended() {
    let mut rig = Rig::new(&["slow=400"]);
    rig.limits.slow_start = Duration::from_millis(50);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let slow = turn(&mut client, &chat, "t", "hello").await;
    assert_eq!(
        (notices(&slow), said(&slow)),
        (vec!["fake is still starting.".to_owned()], "You said: hello".to_owned())
    );

    let mut rig = Rig::new(&["never-ready"]);
    rig.limits.max_start = Duration::from_millis(200);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let (_, told) = error(&turn(&mut client, &chat, "t", "hello").await);
    assert!(told.contains("was not ready after 0.2 s"), "{told}");
    tokio::time::timeout(crate::harness::PATIENCE, rig.programs.ended()).await.unwrap();
    let (_, found) = rig.probe().await;
    assert!(found.problem.unwrap().contains("was not ready after 0.2 s"));
}

#[tokio::test]
async fn a_message_that_is_stopped_before_the_program_is_up_never_reaches_it() {
    let rig = Rig::new(&["slow=300"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    client.say(&chat, "t", "not this").await;
    client.until_type("chat/turnStarted").await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    let next = turn(&mut client, &chat, "u", "/history").await;
    assert!(!said(&next).contains("not this"), "{next}");
}

#[tokio::test]
async fn a_probe_ends_its_program_and_what_it_found_is_known_at_the_next_start_of_the_host() {
    let rig = Rig::new(&["modes", "images", "directories", "close"]);
    let (agent, found) = rig.probe().await;
    assert_eq!((found.version.as_deref(), found.problem), (Some("fake-acp 1.2.3"), None));
    tokio::time::timeout(crate::harness::PATIENCE, rig.programs.ended()).await.unwrap();
    for agent in [agent, rig.agent()] {
        let info = agent.info();
        let models: Vec<_> = info.models.iter().map(|model| (model.id.as_str(), model.max_context_window)).collect();
        assert_eq!(models, [("small", Some(1000)), ("large", None)]);
        assert!(info.capabilities.unwrap().multiple_working_directories.is_some());
        let extras = agent.extras();
        assert!(extras.images && extras.compact && extras.resume && extras.rewind && !extras.steering);
        let commands: Vec<_> = agent.commands().into_iter().map(|command| (command.name, command.arguments)).collect();
        assert_eq!(commands[1], ("review".to_owned(), "what to look at".to_owned()));
        let (schema, defaults) = agent.configuration();
        assert_eq!(json!(defaults), json!({ "mode": "ask", "model": "small" }));
        assert_eq!(schema.properties["mode"].enum_labels.as_ref().unwrap()[1], "Automatic");
    }
    // Another configuration begins with nothing.
    assert_eq!(rig.with("display_name = \"Other\"").agent().commands(), []);
}
