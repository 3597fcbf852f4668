//! The host's tools for its agents, through the official client of MCP.

use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock};
use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};
use scrollback::actors::agent::{AgentEvent, Ending};
use scrollback::actors::tools::HostTools;
use serde_json::{Value, json};

use crate::harness::{Client, Options, RecordingAgent, TestHost, eventually};

const SESSION: &str = "ahp-session:/s";
const SECRET: &str = "ahp-session:/secret";
const CONTEXT: &str = "get_session_context";
const PUBLISH: &str = "publish_visual";

/// A host whose agent does nothing by itself, and a client of it.
async fn host() -> (TestHost, RecordingAgent, Client) {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let client = host.client("c").await;
    (host, agent, client)
}

/// Starts a turn, which the agent's process then works on.
async fn prompted(agent: &RecordingAgent, client: &mut Client, chat: &str, turn: &str, text: &str) {
    client.say(chat, turn, text).await;
    eventually("a prompt", || agent.prompts().iter().any(|prompted| prompted == turn)).await;
}

/// The same in a chat that is followed from now on; what the process was given.
async fn given(agent: &RecordingAgent, client: &mut Client, chat: &str, turn: &str) -> HostTools {
    client.subscribe(chat).await;
    prompted(agent, client, chat, turn, "hello").await;
    agent.tools()
}

async fn ends(agent: &RecordingAgent, client: &mut Client, turn: &str) {
    agent.emits(AgentEvent::Ended { turn_id: turn.into(), ending: Ending::Complete }).await;
    client.until_ended(turn).await;
}

/// The official client, connected.
async fn connected(tools: &HostTools) -> RunningService<RoleClient, ()> {
    // Its HTTP client asks for a provider of cryptography, whatever the URL.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = StreamableHttpClientTransportConfig::with_uri(tools.url.clone()).auth_header(tools.token.clone());
    ().serve(StreamableHttpClientTransport::from_config(config)).await.unwrap()
}

async fn call(mcp: &RunningService<RoleClient, ()>, tool: &'static str, arguments: Value) -> CallToolResult {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    mcp.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await.unwrap()
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().filter_map(ContentBlock::as_text);
    texts.map(|text| text.text.clone()).collect()
}

/// What a good call answered.
fn fine(result: &CallToolResult) -> String {
    assert_eq!(result.is_error, Some(false), "{}", text(result));
    text(result)
}

/// What a bad call was told.
fn bad(result: &CallToolResult) -> String {
    assert_eq!(result.is_error, Some(true), "{}", text(result));
    text(result)
}

async fn visuals(client: &mut Client, chat: &str) -> Vec<Value> {
    let listed = client.ask("x-scrollback/listVisuals", json!({ "channel": chat })).await.unwrap();
    listed["visuals"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_process_is_given_tools_that_the_official_client_lists() {
    let (host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let tools = given(&agent, &mut client, &chat, "t").await;
    assert!(tools.url.starts_with(&format!("http://{}/mcp/", host.address)), "{}", tools.url);
    let mcp = connected(&tools).await;
    assert_eq!(mcp.peer_info().unwrap().server_info.as_ref().unwrap().name, "scrollback");
    let listed = mcp.list_all_tools().await.unwrap();
    assert_eq!(listed.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), [CONTEXT, PUBLISH]);
    for tool in &listed {
        assert!(tool.description.as_ref().is_some_and(|words| words.len() > 40), "{}", tool.name);
        assert_eq!(tool.input_schema["type"], "object");
    }
    assert!(mcp.call_tool(CallToolRequestParams::new("rm")).await.is_err(), "a tool that there is not");
}

#[tokio::test]
async fn a_visual_that_is_published_through_the_tool_belongs_to_the_turn() {
    let (_host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let mcp = connected(&given(&agent, &mut client, &chat, "t").await).await;
    let page = json!({ "title": "Sales", "html": "<p>up", "maxHeight": 300, "heights": [[320, 280]] });
    let said = fine(&call(&mcp, PUBLISH, page).await);
    let visual = visuals(&mut client, &chat).await.remove(0);
    assert!(said.contains(visual["id"].as_str().unwrap()), "{said}");
    assert_eq!((&visual["turnId"], &visual["title"]), (&json!("t"), &json!("Sales")));
    assert_eq!((&visual["maxHeight"], &visual["heights"]), (&json!(300), &json!([[320, 280]])));
}

#[tokio::test]
async fn what_may_not_be_published_is_an_error_of_the_tool_that_says_what_to_change() {
    let (host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let mcp = connected(&given(&agent, &mut client, &chat, "t").await).await;
    let tail = host.quiet_tail().await;
    let cases = [
        (json!({ "title": "x".repeat(201), "html": "x" }), "visual-invalid: title: has 201 UTF-16 units"),
        (json!({ "title": "x", "html": "x", "maxHeight": 79 }), "visual-invalid: maxHeight: is 79: use 80 to 2000"),
        (json!({ "title": "x", "html": "x", "heights": vec![[1, 1]; 25] }), "visual-invalid: heights: are 25"),
        (json!({ "title": "x", "html": "" }), "visual-invalid: html: is empty"),
        (json!({ "html": "x" }), "visual-invalid: missing field `title`"),
        (json!({ "title": "x", "html": "x", "height": 5 }), "visual-invalid: unknown field `height`"),
        (json!({ "title": "x", "html": "x".repeat(16 << 20) }), "visual-too-large: html: has 16777216 bytes"),
    ];
    for (arguments, words) in cases {
        let said = bad(&call(&mcp, PUBLISH, arguments).await);
        assert!(said.starts_with(words), "{said}");
    }
    assert_eq!(host.host.store().tail(), tail);
    assert!(visuals(&mut client, &chat).await.is_empty());
}

#[tokio::test]
async fn the_context_is_what_people_said_and_the_agent_answered() {
    let (_host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let tools = given(&agent, &mut client, &chat, "t1").await;
    agent.emits(AgentEvent::Reasoning { turn_id: "t1".into(), text: "secretly".into() }).await;
    agent.says("t1", "one").await;
    agent.emits(AgentEvent::Notice { turn_id: "t1".into(), text: "a notice".into() }).await;
    agent.says("t1", "two").await;
    ends(&agent, &mut client, "t1").await;
    prompted(&agent, &mut client, &chat, "t2", "and then?").await;
    agent.says("t2", "last").await;
    ends(&agent, &mut client, "t2").await;
    let mcp = connected(&tools).await;
    let whole =
        "Chat: hello\n\n[turn t1]\nUser: hello\n\nAgent: one\n\ntwo\n\n[turn t2]\nUser: and then?\n\nAgent: last\n\n";
    for link in [chat.as_str(), SESSION, "ahp-chat:/s"] {
        assert_eq!(fine(&call(&mcp, CONTEXT, json!({ "chat": link })).await), whole, "{link}");
    }
    let first = fine(&call(&mcp, CONTEXT, json!({ "chat": chat, "upToTurn": "t1" })).await);
    assert_eq!(first, "Chat: hello\n\n[turn t1]\nUser: hello\n\nAgent: one\n\ntwo\n\n");

    // What runs is told as far as it is.
    prompted(&agent, &mut client, &chat, "t3", "now").await;
    agent.says("t3", "so far").await;
    client
        .envelope(|e| e["action"]["type"] == json!("chat/delta") || e["action"]["part"]["content"] == json!("so far"))
        .await;
    let running = fine(&call(&mcp, CONTEXT, json!({ "chat": chat })).await);
    assert!(running.contains("[turn t3, still running]\nUser: now\n\nAgent: "), "{running}");
    let pinned = fine(&call(&mcp, CONTEXT, json!({ "chat": chat, "upToTurn": "t2" })).await);
    assert_eq!(pinned, whole);

    for (arguments, words) in [
        (json!({ "chat": chat, "upToTurn": "t9" }), "not-found: upToTurn: there is no turn t9"),
        (json!({ "chat": "ahp-chat:/none" }), "not-found: there is no channel ahp-chat:/none"),
        (json!({ "chat": "ahp-root://" }), "not-found"),
        (json!({ "chat": chat, "before": "what" }), "unknown-cursor: before: what"),
        (json!({ "chat": chat, "before": "0:t9" }), "unknown-cursor"),
        (json!({ "chat": 5 }), "invalid type"),
        (json!({}), "missing field `chat`"),
    ] {
        let said = bad(&call(&mcp, CONTEXT, arguments).await);
        assert!(said.starts_with(words), "{said}");
    }
}

#[tokio::test]
async fn a_long_context_comes_in_pages_that_join_to_the_whole() {
    let (_host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let mut tools = None;
    for (turn, length) in [("t1", 100), ("t2", 40_000), ("t3", 9_000), ("t4", 9_000)] {
        tools = Some(given(&agent, &mut client, &chat, turn).await);
        agent.says(turn, &turn.repeat(length / 2)).await;
        ends(&agent, &mut client, turn).await;
    }
    let mcp = connected(&tools.unwrap()).await;
    let (mut whole, mut pages, mut before) = (String::new(), 0, None);
    loop {
        let mut arguments = json!({ "chat": chat });
        if let Some(before) = &before {
            arguments["before"] = json!(before);
        }
        let page = fine(&call(&mcp, CONTEXT, arguments).await);
        assert!(page.len() < 17 * 1024, "a page of {} bytes", page.len());
        pages += 1;
        let page = page.strip_prefix("Chat: hello\n\n").unwrap();
        let Some(more) = page.strip_prefix("(There is more before this: ask again with before = \"") else {
            whole.insert_str(0, page);
            break;
        };
        let (cursor, rest) = more.split_once("\".)\n\n").unwrap();
        before = Some(cursor.to_owned());
        whole.insert_str(0, rest);
    }
    let turn =
        |turn: &str, length: usize| format!("[turn {turn}]\nUser: hello\n\nAgent: {}\n\n", turn.repeat(length / 2));
    let expected = [turn("t1", 100), turn("t2", 40_000), turn("t3", 9_000), turn("t4", 9_000)].concat();
    assert!(whole == expected, "{} bytes instead of {}", whole.len(), expected.len());
    assert_eq!(pages, 4);
}

#[tokio::test]
async fn an_agent_reads_the_chats_that_its_people_read_and_wakes_nobody() {
    let (host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let other = client.create_session("ahp-session:/other").await;
    given(&agent, &mut client, &other, "o").await;
    agent.says("o", "from elsewhere").await;
    ends(&agent, &mut client, "o").await;
    let mcp = connected(&given(&agent, &mut client, &chat, "t").await).await;
    let starts = agent.starts();
    assert!(fine(&call(&mcp, CONTEXT, json!({ "chat": other })).await).contains("from elsewhere"));
    assert_eq!(agent.starts(), starts);
    client.ask("disposeSession", json!({ "channel": "ahp-session:/other" })).await.unwrap();
    assert!(bad(&call(&mcp, CONTEXT, json!({ "chat": other })).await).starts_with("not-found"));
    drop(host);
}

/// A host with a chat that `ada`, who works in [`SESSION`] alone, may not read; her client, and the first chat of her session.
async fn beside_a_secret() -> (TestHost, RecordingAgent, Client, Client, String) {
    let agent = RecordingAgent::new();
    let host = TestHost::with(Options::of(&agent));
    let mut root = host.client("root").await;
    let chat = root.create_session(SESSION).await;
    root.create_session(SECRET).await;
    root.subscribe(&chat).await;
    let grants = ["session:read@ahp-session:/s", "session:write@ahp-session:/s"];
    let token = host.add_person("ada", &[], &grants).await;
    let mut ada = host.client_of("ada", &token).await;
    ada.subscribe(&chat).await;
    (host, agent, root, ada, chat)
}

async fn reads_the_secret(tools: &HostTools) -> bool {
    let result = call(&connected(tools).await, CONTEXT, json!({ "chat": SECRET })).await;
    if result.is_error == Some(true) {
        assert!(bad(&result).starts_with("not-found"), "{}", text(&result));
    }
    result.is_error == Some(false)
}

#[tokio::test]
async fn an_agent_reads_what_all_may_whose_turns_run_in_its_session() {
    let (host, agent, mut root, mut ada, chat) = beside_a_secret().await;
    root.ask("createChat", json!({ "channel": SESSION, "chat": "ahp-chat:/second" })).await.unwrap();
    prompted(&agent, &mut ada, &chat, "hers", "hello").await;
    let hers = agent.tools();
    assert!(!reads_the_secret(&hers).await);
    // Her agent names the chat in which the turn of somebody runs who may.
    let mut roots = given(&agent, &mut root, "ahp-chat:/second", "roots").await;
    assert!(!reads_the_secret(&HostTools { token: hers.token.clone(), ..roots.clone() }).await);
    assert!(!reads_the_secret(&roots).await);
    ada.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "hers", "duration": 0 })).await;
    root.until_ended("hers").await;
    roots = agent.tools();
    assert!(reads_the_secret(&roots).await, "her turn is over");
    drop(host);
}

#[tokio::test]
async fn who_takes_a_turn_up_or_steers_it_has_asked_for_it_too() {
    let (host, agent, mut root, mut ada, chat) = beside_a_secret().await;
    prompted(&agent, &mut root, &chat, "t", "hello").await;
    let tools = agent.tools();
    assert!(reads_the_secret(&tools).await);
    let failed = Ending::Failed { error_type: "x".into(), message: "broke".into(), resumable: true };
    agent.ended("t", failed.clone()).await;
    root.until_ended("t").await;
    ada.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    eventually("taken up", || agent.prompts().len() == 2).await;
    assert!(!reads_the_secret(&agent.tools()).await);
    // It stays hers as well when the deployment takes it up once more.
    agent.ended("t", failed).await;
    root.until_ended("t").await;
    root.accepted(&chat, json!({ "type": "chat/turnResume", "turnId": "t" })).await;
    eventually("taken up again", || agent.prompts().len() == 3).await;
    assert!(!reads_the_secret(&agent.tools()).await);
    agent.ends("t").await;
    root.until_ended("t").await;

    prompted(&agent, &mut root, &chat, "t2", "hello").await;
    assert!(reads_the_secret(&agent.tools()).await);
    let message = json!({ "text": "tell me", "origin": { "kind": "user" } });
    let steer = json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": "s", "message": message });
    ada.accepted(&chat, steer).await;
    agent.emits(AgentEvent::TakesSteering { turn_id: "t2".into() }).await;
    eventually("steered", || !agent.steered().is_empty()).await;
    assert!(!reads_the_secret(&agent.tools()).await);
    drop(host);
}

/// The status of a request that lists the tools.
async fn status(url: &str, headers: &[(&str, &str)]) -> u16 {
    let (url, headers) = (url.to_owned(), headers.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect());
    let ask = move || {
        let headers: Vec<(String, String)> = headers;
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(&url).header("Content-Type", "application/json");
        let request = request.header("Accept", "application/json, text/event-stream");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": { "name": "by hand", "version": "1" } } });
        request.send(body.to_string()).unwrap().status().as_u16()
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[tokio::test]
async fn only_the_token_of_the_session_opens_the_tools_of_its_chats() {
    let (host, agent, mut client) = host().await;
    let chat = client.create_session(SESSION).await;
    let tools = given(&agent, &mut client, &chat, "t").await;
    client.create_chat(SESSION, "ahp-chat:/peer").await;
    let peer = given(&agent, &mut client, "ahp-chat:/peer", "p").await;
    let other = client.create_session("ahp-session:/other").await;
    let others = given(&agent, &mut client, &other, "o").await;
    assert_eq!(peer.token, tools.token);
    assert_ne!(others.token, tools.token);
    assert_ne!(peer.url, tools.url);
    assert!(tools.token.len() >= 40);

    let bearer = |tools: &HostTools| format!("Bearer {}", tools.token);
    let (own, foreign) = (bearer(&tools), bearer(&others));
    let cases: [(&str, &[(&str, &str)], u16); 11] = [
        (&tools.url, &[("Authorization", &own)], 200),
        (&peer.url, &[("Authorization", &own)], 200),
        (&tools.url, &[("Authorization", &foreign)], 401),
        (&others.url, &[("Authorization", &own)], 401),
        (&tools.url, &[], 401),
        (&tools.url, &[("Authorization", "Bearer ")], 401),
        (&tools.url, &[("Authorization", "Bearer x")], 401),
        (&format!("http://{}/mcp/none", host.address), &[("Authorization", &own)], 401),
        (&format!("{}?tkn={}", tools.url, tools.token), &[], 401),
        (&tools.url, &[("Authorization", &own), ("Host", "evil.example")], 403),
        (&tools.url, &[("Authorization", &own), ("Origin", "https://evil.example")], 403),
    ];
    for (url, headers, expected) in cases {
        assert_eq!(status(url, headers).await, expected, "{url} {headers:?}");
    }

    // Gone with the session.
    client.ask("disposeSession", json!({ "channel": SESSION })).await.unwrap();
    assert_eq!(status(&tools.url, &[("Authorization", &own)]).await, 401);
}

#[tokio::test]
async fn a_token_is_gone_after_a_restart_and_another_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let agent = RecordingAgent::new();
    let options = || Options::of(&agent);
    let host = TestHost::on_disk_with(directory.path(), options());
    let mut client = host.client("c").await;
    let chat = client.create_session(SESSION).await;
    let before = given(&agent, &mut client, &chat, "t1").await;
    ends(&agent, &mut client, "t1").await;
    host.stop();
    let host = TestHost::on_disk_with(directory.path(), options());
    let mut client = host.client("c").await;
    let after = given(&agent, &mut client, &chat, "t2").await;
    assert_ne!(after.token, before.token);
    assert_eq!(status(&after.url, &[("Authorization", &format!("Bearer {}", before.token))]).await, 401);
    assert_eq!(status(&after.url, &[("Authorization", &format!("Bearer {}", after.token))]).await, 200);
}
