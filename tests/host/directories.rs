//! The directories of a session and of its chats: inside the allowed ones, a chat's among its session's, and what an agent is
//! started in.

use std::sync::Arc;

use scrollback::actors::host::HostSettings;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use crate::harness::{Client, Mirrored, Options, RecordingAgent, TestHost, chat_of, eventually, streamed};

const S: &str = "ahp-session:/s";
const ROOT: &str = "ahp-root://";

/// Directories that are there while a test runs.
struct Places {
    root: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c", "d"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root }
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", self.root.path().join(name).display())
    }

    fn uris(&self, names: &str) -> Vec<String> {
        names.chars().map(|name| self.uri(&name.to_string())).collect()
    }

    fn options(&self) -> Options {
        let settings = HostSettings { allowed_directories: vec![self.root.path().into()], ..HostSettings::default() };
        Options { settings, ..Options::default() }
    }

    async fn open(&self, host: &TestHost, names: &str) -> (Client, String) {
        let mut client = host.client("c").await;
        let params = json!({ "channel": S, "workingDirectories": self.uris(names) });
        client.ask("createSession", params).await.unwrap();
        client.subscribe(S).await;
        let chat = chat_of(S);
        client.subscribe(&chat).await;
        (client, chat)
    }
}

fn set(kind: &str, directory: &str) -> Value {
    json!({ "type": format!("{kind}/workingDirectorySet"), "directory": directory })
}

fn removed(kind: &str, directory: &str) -> Value {
    json!({ "type": format!("{kind}/workingDirectoryRemoved"), "directory": directory })
}

fn replaced(directory: &str, replacement: &str) -> Value {
    json!({ "type": "session/workingDirectoryReplaced", "directory": directory, "replacement": replacement })
}

async fn cwd(client: &mut Client, chat: &str, turn: &str) -> Value {
    serde_json::from_str(&streamed(&client.run(chat, turn, "/cwd").await)).unwrap()
}

#[tokio::test]
async fn a_changed_directory_is_what_the_agent_of_the_chat_is_started_in_at_its_next_turn() {
    let places = Places::new();
    let host = TestHost::with(places.options());
    let (mut client, chat) = places.open(&host, "a").await;
    assert_eq!(cwd(&mut client, &chat, "t1").await, json!(places.uris("a")));
    client.accepted(S, set("session", &places.uri("b"))).await;
    assert_eq!(cwd(&mut client, &chat, "t2").await, json!(places.uris("ab")));
    client.accepted(S, replaced(&places.uri("a"), &places.uri("c"))).await;
    assert_eq!(cwd(&mut client, &chat, "t3").await, json!(places.uris("cb")));
    client.accepted(&chat, set("chat", &places.uri("b"))).await;
    assert_eq!(cwd(&mut client, &chat, "t4").await, json!(places.uris("b")));
    client.accepted(S, removed("session", &places.uri("b"))).await;
    assert_eq!(cwd(&mut client, &chat, "t5").await, json!([]));
    // It is the same conversation all the time.
    let history = streamed(&client.run(&chat, "t6", "/history").await);
    let history: Value = serde_json::from_str(&history).unwrap();
    assert_eq!(history.as_array().unwrap().len(), 10, "{history}");
    verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn only_the_process_of_the_chat_that_changed_is_started_anew_and_no_running_turn_is_broken() {
    let places = Places::new();
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options { agents: Options::of(&agent).agents, ..places.options() });
    let (mut client, chat) = places.open(&host, "ab").await;
    client.create_chat(S, "ahp-chat:/p").await;
    client.subscribe("ahp-chat:/p").await;
    for (at, chat) in [chat.as_str(), "ahp-chat:/p"].into_iter().enumerate() {
        client.say(chat, &format!("first-{at}"), "x").await;
        eventually("it is prompted", || agent.prompts().len() == at + 1).await;
    }
    // The newest process is the peer's, whose turn goes on in the old directories.
    client.accepted("ahp-chat:/p", set("chat", &places.uri("b"))).await;
    agent.says("first-1", "still here").await;
    client.envelope(|e| e["action"]["content"] == json!("still here")).await;
    assert_eq!(agent.starts(), 2);
    client.cancel(&chat, "first-0").await;
    client.until_ended("first-0").await;
    client.cancel("ahp-chat:/p", "first-1").await;
    client.until_ended("first-1").await;
    client.say(&chat, "second-0", "x").await;
    eventually("the same process is prompted again", || agent.prompts().len() == 3).await;
    assert_eq!(agent.starts(), 2);
    client.say("ahp-chat:/p", "second-1", "x").await;
    eventually("the other one's successor", || agent.prompts().len() == 4).await;
    assert_eq!(agent.starts(), 3);
}

#[tokio::test]
async fn a_directory_that_a_session_may_not_have_is_refused_and_nothing_moves() {
    let places = Places::new();
    std::os::unix::fs::symlink("/", places.root.path().join("escape")).unwrap();
    std::fs::write(places.root.path().join("file"), "x").unwrap();
    let host = TestHost::with(places.options());
    let (mut client, chat) = places.open(&host, "ab").await;
    let a = places.uri("a");
    let before = host.quiet_tail().await;
    for (channel, action) in [
        (S, set("session", "file:///")),
        (S, set("session", &places.uri("gone"))),
        (S, set("session", &places.uri("escape"))),
        (S, set("session", &places.uri("file"))),
        (S, set("session", "https://example.com/")),
        (S, replaced(&a, "file:///")),
        (S, replaced(&a, &places.uri("escape"))),
        // The agent says that its first directory is replaced and never removed.
        (S, removed("session", &a)),
        (&chat, set("chat", &places.uri("c"))),
        (&chat, set("chat", "file:///")),
    ] {
        assert_eq!(client.rejected(channel, action.clone()).await, "bad-directory", "{action}");
    }
    for (channel, action) in [
        (S, set("session", &a)),
        (S, removed("session", &places.uri("c"))),
        (S, replaced(&places.uri("c"), &places.uri("d"))),
        (S, replaced(&a, &a)),
        (&chat, removed("chat", &places.uri("c"))),
    ] {
        let echo = client.accepted(channel, action.clone()).await;
        assert_eq!(echo["serverSeq"], json!(before), "{action} changes nothing");
    }
    assert_eq!(host.host.store().tail(), before);
    client.accepted(S, removed("session", &places.uri("b"))).await;
    assert_eq!(client.rejected(S, removed("session", &a)).await, "bad-directory", "the last one");
}

#[tokio::test]
async fn what_goes_from_a_session_goes_from_its_chats_also_from_those_that_sleep() {
    let places = Places::new();
    let store = Arc::new(MemoryStore::new().unwrap());
    let host = TestHost::start(Arc::clone(&store) as _, places.options());
    let (mut client, first) = places.open(&host, "abc").await;
    let create =
        |chat: &str, names: &str| json!({ "channel": S, "chat": chat, "workingDirectories": places.uris(names) });
    client.ask("createChat", create("ahp-chat:/ab", "ab")).await.unwrap();
    client.ask("createChat", create("ahp-chat:/bc", "bc")).await.unwrap();
    client.ask("createChat", create("ahp-chat:/c", "c")).await.unwrap();
    host.stop();

    let host = TestHost::start(Arc::clone(&store) as _, places.options());
    let channels = [ROOT, S, first.as_str(), "ahp-chat:/ab", "ahp-chat:/bc", "ahp-chat:/c"];
    let mut mirrored = Mirrored::connect(host.address, "m", &channels).await;
    let mut client = host.client("c").await;
    client.subscribe(S).await;
    client.accepted(S, removed("session", &places.uri("b"))).await;
    let of = |state: &Value, chat: &str| {
        let chats = state["chats"].as_array().unwrap();
        chats.iter().find(|listed| listed["resource"] == json!(chat)).unwrap()["workingDirectories"].clone()
    };
    let state = client.subscribe(S).await["state"].clone();
    assert_eq!(state["workingDirectories"], json!(places.uris("ac")));
    for (chat, names) in [("ahp-chat:/ab", "a"), ("ahp-chat:/bc", "c"), ("ahp-chat:/c", "c")] {
        assert_eq!(client.subscribe(chat).await["state"]["workingDirectories"], json!(places.uris(names)), "{chat}");
        assert_eq!(of(&state, chat), json!(places.uris(names)), "{chat}");
    }
    client.accepted(S, replaced(&places.uri("c"), &places.uri("d"))).await;
    let state = client.subscribe(S).await["state"].clone();
    assert_eq!(
        (of(&state, "ahp-chat:/bc"), of(&state, "ahp-chat:/ab")),
        (json!(places.uris("d")), json!(places.uris("a")))
    );
    assert_eq!(client.subscribe(&first).await["state"].get("workingDirectories"), None);
    for channel in channels {
        mirrored.compare(channel).await.unwrap();
    }
    verify(store.as_ref(), &mut |_| {}).unwrap();
}

#[tokio::test]
async fn a_chat_that_named_no_directory_keeps_all_others_when_one_is_taken_from_it() {
    let places = Places::new();
    let host = TestHost::with(places.options());
    let (mut client, chat) = places.open(&host, "abc").await;
    let mut mirrored = Mirrored::connect(host.address, "m", &[ROOT, S, &chat]).await;
    client.accepted(&chat, removed("chat", &places.uri("b"))).await;
    assert_eq!(client.subscribe(&chat).await["state"]["workingDirectories"], json!(places.uris("ac")));
    assert_eq!(cwd(&mut client, &chat, "t").await, json!(places.uris("ac")));
    // It is a subset of its own now: what the session gets is not its.
    client.accepted(S, set("session", &places.uri("d"))).await;
    assert_eq!(cwd(&mut client, &chat, "u").await, json!(places.uris("ac")));
    mirrored.compare(S).await.unwrap();
    mirrored.compare(&chat).await.unwrap();
}
