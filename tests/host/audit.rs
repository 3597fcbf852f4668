//! Who did what: the log says it of everybody, marks what an audit looks for, and the process's own log says nothing of what
//! people wrote or came in with.

use std::path::Path;
use std::process::Stdio;

use scrollback::projections::people::Role;
use serde_json::{Value, json};

use crate::command::{Host, scrollback};
use crate::harness::{Client, Options, TestHost, chat_of};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";

fn listed(host: &TestHost, query: &str) -> Vec<Value> {
    let answer = ureq::get(format!("http://{}/api/log?{query}", host.address)).call().unwrap();
    let text = answer.into_body().read_to_string().unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn the_log_marks_what_an_audit_looks_for_and_says_who_did_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let mut options = Options::default();
    options.settings.allowed_directories = vec![root.clone()];
    let store = std::sync::Arc::new(scrollback::events::memory::MemoryStore::new().unwrap());
    let host = TestHost::start(store, options);
    let token = host.add_person("ada", &[Role::Member], &["config:change"]).await;
    let mut ada = host.client_of("a", &token).await;
    ada.subscribe(ROOT).await;
    let chat = ada.create_session(S).await;
    ada.subscribe(&chat).await;
    ada.subscribe(S).await;
    let uri = |name: &str| format!("file://{}/{name}", root.display());
    let write = json!({ "channel": ROOT, "uri": uri("a.txt"), "data": "the words", "encoding": "utf-8" });
    ada.ask("resourceWrite", write).await.unwrap();
    let copy = json!({ "channel": ROOT, "source": uri("a.txt"), "destination": uri("b.txt") });
    ada.ask("resourceCopy", copy).await.unwrap();
    ada.ask("resourceDelete", json!({ "channel": ROOT, "uri": uri("b.txt") })).await.unwrap();
    ada.ask("resourceRead", json!({ "channel": ROOT, "uri": uri("a.txt") })).await.unwrap();
    ada.ask("resourceDelete", json!({ "channel": ROOT, "uri": uri("c.txt") })).await.unwrap_err();
    ada.accepted(ROOT, json!({ "type": "root/configChanged", "config": { "deferredTitleGeneration": true } })).await;
    ada.say(&chat, "t1", "/ask-tool rm -rf").await;
    let asked = ada.envelope(|e| e["action"]["type"] == "chat/toolCallReady").await;
    let call = asked["action"]["toolCallId"].clone();
    let confirm = json!({ "type": "chat/toolCallConfirmed", "turnId": "t1", "toolCallId": call, "approved": true,
        "confirmed": "user-action", "selectedOptionId": "allow" });
    ada.accepted(&chat, confirm).await;
    ada.until_ended("t1").await;
    let marked = listed(&host, "by=user:ada&privileged=true");
    let types: Vec<&str> = marked.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let wanted = ["host/resourceChanged"; 3].into_iter().chain(["root/configChanged", "chat/toolCallConfirmed"]);
    assert_eq!(types, wanted.collect::<Vec<_>>());
    let operations: Vec<&str> =
        marked[..3].iter().map(|event| event["action"]["operation"].as_str().unwrap()).collect();
    assert_eq!(operations, ["write", "copy", "delete"]);
    assert_eq!(marked[1]["action"]["destination"], uri("b.txt"));
    assert!(marked.iter().all(|event| event["privileged"] == true));
    assert!(!marked[0].to_string().contains("the words"), "what was written is nobody's but the file's");
    let all = listed(&host, "by=user:ada");
    assert!(all.len() > marked.len() && all.iter().all(|event| event["principal"] == "user:ada"));
    let people = listed(&host, "privileged=true&by=root:test");
    assert!(people.iter().any(|event| event["type"] == "host/userTokenMade" && event["action"]["hash"] == ""));
}

/// Starts the real binary with every word of its log in a file.
fn talkative(home: &Path, token: &str, log: &Path) -> Host {
    let data = home.join("data");
    let mut command = scrollback(home, &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()]);
    command.args(["--log-level", "trace"]).env("SCROLLBACK_TOKEN", token);
    Host::spawn_logging(&mut command, Stdio::from(std::fs::File::create(log).unwrap()))
}

#[tokio::test]
async fn the_own_log_of_a_host_has_no_token_and_no_word_of_anybody_at_any_level() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let host = talkative(home.path(), "deployment-secret", &log);
    let address = ([127, 0, 0, 1], host.port).into();
    let post = |path: &str, body: Value| {
        let request = ureq::post(format!("{}{path}", host.url())).header("Authorization", "Bearer deployment-secret");
        let answer = request.header("Content-Type", "application/json").send(body.to_string()).unwrap();
        serde_json::from_str::<Value>(&answer.into_body().read_to_string().unwrap()).unwrap()
    };
    let made = post("/api/users", json!({ "name": "ada", "roles": ["member"] }));
    let token = made["token"].as_str().unwrap().to_owned();
    let mut ada = Client::connect_with(address, &token).await.unwrap_or_else(|status| panic!("{status}"));
    ada.initialize("a", &[ROOT]).await;
    ada.create_session(S).await;
    let chat = chat_of(S);
    ada.subscribe(&chat).await;
    for (turn, text) in
        [("t1", "/say word-of-ada"), ("t2", "/fail word-of-ada"), ("t3", "/crash"), ("t4", "/nothing word-of-ada")]
    {
        ada.say(&chat, turn, text).await;
        ada.until_ended(turn).await;
    }
    // Refused in every way: the reasons are for the sender.
    let odd = json!({ "type": "chat/turnStarted", "turnId": "t9", "message": { "text": "word-of-ada" } });
    ada.dispatch(&chat, odd).await;
    ada.dispatch(&chat, json!({ "type": "word-of-ada", "text": "word-of-ada" })).await;
    ada.dispatch(
        &chat,
        json!({ "type": "chat/draftChanged", "draft": { "text": "word-of-ada", "origin": { "kind": "user" } } }),
    )
    .await;
    ada.ask("createChat", json!({ "channel": S, "chat": "word-of-ada" })).await.unwrap_err();
    ada.ask("x-scrollback/publishVisual", json!({ "channel": chat, "title": "", "html": "word-of-ada" }))
        .await
        .unwrap_err();
    ada.ask("no-such-method", json!({ "text": "word-of-ada" })).await.unwrap_err();
    ada.send_text("{\"jsonrpc\": word-of-ada").await;
    ada.send(json!({ "jsonrpc": "2.0", "method": "word-of-ada", "params": { "text": "word-of-ada" } })).await;
    assert_eq!(Client::connect_with(address, "sbt_wrong-token").await.err(), Some(401));
    assert_eq!(Client::connect_with(address, "wrong-token").await.err(), Some(401));
    ada.drain().await;
    assert_eq!(host.stop("TERM").0, 0);
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("serving") && said.contains("stopped"), "{said}");
    assert!(said.contains(&format!("http://{address}/")), "where the pages are: {said}");
    let secrets = ["deployment-secret", token.as_str(), "wrong-token", "word-of-ada"];
    for secret in secrets {
        let line = said.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
}

#[tokio::test]
async fn the_hosts_own_secrets_and_data_are_out_of_reach_in_an_allowed_directory_too() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("data/log")).unwrap();
    std::fs::create_dir_all(root.join("keys")).unwrap();
    std::fs::write(root.join("keys/token"), "deployment-secret").unwrap();
    let mut options = Options::default();
    options.settings.allowed_directories = vec![root.clone()];
    options.settings.data_directory = Some(root.join("data"));
    options.settings.secret_files = vec![root.join("keys/token")];
    let store = std::sync::Arc::new(scrollback::events::memory::MemoryStore::new().unwrap());
    let host = TestHost::start(store, options);
    let token = host.add_person("ada", &[Role::Member], &[]).await;
    let mut ada = host.client_of("a", &token).await;
    std::os::unix::fs::symlink(root.join("keys/token"), root.join("link")).unwrap();
    let uri = |name: &str| format!("file://{}/{name}", root.display());
    let read = |name: &str| ("resourceRead", json!({ "channel": ROOT, "uri": uri(name) }));
    let copy = json!({ "channel": ROOT, "source": uri("keys"), "destination": uri("copy") });
    let list = json!({ "channel": ROOT, "uri": uri("data/attachments") });
    let moved = json!({ "channel": ROOT, "source": uri("keys"), "destination": uri("moved") });
    for (method, params) in [
        read("keys/token"),
        read("link"),
        ("resourceCopy", copy),
        ("resourceMove", moved),
        ("resourceList", list),
        ("createSession", json!({ "channel": S, "provider": "demo", "workingDirectories": [uri("data/log")] })),
    ] {
        let error = ada.ask(method, params).await.expect_err(method);
        assert_eq!(error["code"], -32009, "{method}: {error}");
    }
    assert!(root.join("keys/token").exists() && !root.join("copy").exists());
}
