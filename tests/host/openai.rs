//! Endpoints of chat completions behind chats: what they are asked, what becomes of their answers, and all the ways in which they
//! fail.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Bytes;
use scrollback::actors::agent::{
    Agent, AgentEvent, AgentInput, Conversation, Exchange, ProcessStart, Prompt, PromptBlock, PromptKind,
};
use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{self, AgentLimits, EndpointLimits, Surroundings};
use scrollback::clock::Clock;
use scrollback::config::{Environment, agents as tables};
use scrollback::resources::Roots;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::harness::attaching::{embedded, starts, with};
use crate::harness::endpoint::{DONE, End, FakeEndpoint, Reply, breaks, calls, chunk, delta, finish, refuses, says};
use crate::harness::{Client, Options, TestHost, chat_of, eventually, markdown, message, on, streamed, types};

const S: &str = "ahp-session:/s";
const F: &str = "ahp-chat:/f";
const NOW: i64 = 1_795_996_800_000;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\nimage";

/// How an endpoint is configured and talked to.
#[derive(Clone)]
struct Setup {
    /// Lines of its table beside the usual ones.
    table: &'static str,
    environment: &'static [(&'static str, &'static str)],
    limits: AgentLimits,
    clock: Clock,
}

impl Default for Setup {
    fn default() -> Self {
        Self { table: "", environment: &[], limits: AgentLimits::default(), clock: Clock::system() }
    }
}

impl Setup {
    fn of(table: &'static str) -> Self {
        Self { table, ..Self::default() }
    }

    fn patient_for(idle: Duration) -> Self {
        let endpoint = EndpointLimits { idle_timeout: idle, ..EndpointLimits::default() };
        Self { limits: AgentLimits { endpoint, ..AgentLimits::default() }, ..Self::default() }
    }

    /// The agent `local` at this URL.
    fn agent(&self, base_url: &str) -> Arc<dyn Agent> {
        let table =
            format!("[agents.local]\nkind = \"openai\"\nbase_url = \"{base_url}\"\nmodel = \"stub\"\n{}", self.table);
        let table: toml::Table = toml::from_str(&table).unwrap();
        let environment = Environment::of(self.environment);
        let surroundings = Surroundings {
            programs: Programs::new(&environment, None, EndingSteps::default()).unwrap(),
            roots: Arc::new(Roots::new(&[], None)),
            data_directory: None,
            limits: self.limits.clone(),
        };
        agents::configured(&tables::read(&table["agents"]).unwrap(), &environment, &surroundings).pop().unwrap()
    }

    fn options(&self, base_url: &str) -> Options {
        Options { agents: vec![self.agent(base_url)], clock: self.clock.clone(), ..Options::default() }
    }
}

/// An endpoint, a host with it, and a chat of it.
struct Scene {
    endpoint: FakeEndpoint,
    host: TestHost,
    client: Client,
    chat: String,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    async fn with(setup: Setup) -> Self {
        let endpoint = FakeEndpoint::start();
        let host = TestHost::with(setup.options(&url(&endpoint)));
        let client = host.client("c").await;
        Self { endpoint, host, client, chat: chat_of(S) }.opened().await
    }

    async fn opened(mut self) -> Self {
        self.client.ask("createSession", json!({ "channel": S, "provider": "local" })).await.unwrap();
        self.client.subscribe(S).await;
        self.client.subscribe(&self.chat).await;
        self
    }

    /// Runs a turn to its end: every envelope of the chat.
    async fn run(&mut self, turn: &str, text: &str) -> Vec<Value> {
        on(&self.client.run(&self.chat, turn, text).await, &self.chat)
    }

    /// Runs a turn that ends in an error: its type, its words, and whether it can be resumed.
    async fn fails(&mut self, turn: &str, text: &str) -> (String, String, bool) {
        let end = self.run(turn, text).await.pop().unwrap()["action"].clone();
        assert_eq!(end["type"], "chat/error", "{end}");
        let error = &end["part"]["error"];
        let text = |key: &str| error[key].as_str().unwrap().to_owned();
        (text("errorType"), text("message"), end["part"]["resumable"] == json!(true))
    }

    async fn state(&mut self) -> Value {
        self.client.subscribe(&self.chat).await["state"].clone()
    }

    async fn last_turn(&mut self) -> Value {
        self.state().await["turns"].as_array().unwrap().last().unwrap().clone()
    }
}

fn url(endpoint: &FakeEndpoint) -> String {
    format!("http://{}/v1", endpoint.address)
}

fn pairs(told: &[(&str, &str)]) -> Vec<(String, String)> {
    told.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

fn notices(turn: &Value) -> Vec<String> {
    let parts = turn["responseParts"].as_array().unwrap().iter();
    let notices = parts.filter(|part| part["kind"] == json!("systemNotification"));
    notices.map(|part| part["content"].as_str().unwrap().to_owned()).collect()
}

fn tool_calls(turn: &Value) -> Vec<Value> {
    let parts = turn["responseParts"].as_array().unwrap().iter();
    parts.filter(|part| part["kind"] == json!("toolCall")).map(|part| part["toolCall"].clone()).collect()
}

fn resume(turn: &str) -> Value {
    json!({ "type": "chat/turnResume", "turnId": turn })
}

// What is asked and answered.

#[tokio::test]
async fn an_answer_is_streamed_with_its_reasoning_and_its_usage() {
    let setup = Setup {
        environment: &[("STUB_KEY", "secret")],
        ..Setup::of("api_key_env = \"STUB_KEY\"\nsystem = \"Be brief.\"")
    };
    let mut scene = Scene::with(setup).await;
    let mut pieces = vec![
        delta(json!({ "role": "assistant", "content": "" })),
        delta(json!({ "reasoning_content": "hm" })),
        delta(json!({ "reasoning": "m", "content": null })),
        delta(json!({ "content": "Hel" })),
        delta(json!({ "content": "lo" })),
    ];
    pieces.extend(finish("stop"));
    scene.endpoint.answers(Reply::Stream(pieces, End::Orderly));
    let seen = scene.run("t1", "hello?").await;
    assert_eq!(types(&seen).last(), Some(&"chat/turnComplete"));
    let turn = scene.last_turn().await;
    assert_eq!(markdown(&turn), ["Hello"]);
    assert_eq!(turn["responseParts"][0]["content"], "hmm");
    let usage = json!({ "inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 4, "model": "stub" });
    assert_eq!(turn["usage"], usage);
    let asked = scene.endpoint.last();
    assert_eq!(asked.authorization.as_deref(), Some("Bearer secret"));
    assert_eq!(asked.told(), pairs(&[("system", "Be brief."), ("user", "hello?")]));
    assert_eq!((&asked.body["model"], &asked.body["stream"]), (&json!("stub"), &json!(true)));
    assert_eq!(asked.body["stream_options"], json!({ "include_usage": true }));
    assert_eq!((asked.body.get("temperature"), asked.body.get("reasoning_effort")), (None, None));
}

#[tokio::test]
async fn the_endpoint_is_told_the_whole_conversation_each_time() {
    let mut scene = Scene::new().await;
    scene.run("t1", "one").await;
    scene.endpoint.answers(Reply::Stream(finish("stop").to_vec(), End::Orderly));
    scene.run("t2", "two").await;
    scene.run("t3", "three").await;
    let told = [
        ("user", "one"),
        ("assistant", "You said: one"),
        ("user", "two"),
        ("assistant", "(no answer)"),
        ("user", "three"),
    ];
    assert_eq!(scene.endpoint.last().told(), pairs(&told));
    assert_eq!(scene.endpoint.last().authorization, None);
}

#[tokio::test]
async fn the_configuration_chooses_the_model_and_how_it_answers() {
    let mut scene = Scene::new().await;
    let config = json!({ "model": "other", "temperature": 0.5, "reasoningEffort": "low" });
    // Nothing is known of the endpoint's models before it was asked for them.
    let change = json!({ "type": "session/configChanged", "config": config });
    assert_eq!(scene.client.rejected(S, change.clone()).await, "malformed");
    assert_eq!(scene.host.host.agents()[0].probe().await.problem, None);
    scene.client.accepted(S, change).await;
    let models =
        json!({ "channel": "ahp-root://", "provider": "local", "property": "model", "config": {}, "query": "OTH" });
    let found = scene.client.ask("sessionConfigCompletions", models).await.unwrap();
    assert_eq!(found["items"], json!([{ "value": "other", "label": "other" }]));
    scene.run("t1", "one").await;
    let body = scene.endpoint.last().body;
    assert_eq!(
        (&body["model"], &body["temperature"], &body["reasoning_effort"]),
        (&json!("other"), &json!(0.5), &json!("low"))
    );
    // A message may name another model.
    let mut message = message("two");
    message["model"] = json!({ "id": "third" });
    scene.client.dispatch(&scene.chat, starts("t2", &message)).await;
    scene.client.until_ended("t2").await;
    assert_eq!(scene.endpoint.last().body["model"], "third");
}

#[tokio::test]
async fn images_go_along_where_the_model_takes_them() {
    for (table, takes) in [("images = true", true), ("", false)] {
        let mut scene = Scene::with(Setup::of(table)).await;
        let sent = with("look", json!([embedded("x.png", "image/png", PNG)]));
        scene.client.dispatch(&scene.chat, starts("t", &sent)).await;
        scene.client.until_ended("t").await;
        let content = scene.endpoint.last().body["messages"][0]["content"].clone();
        if takes {
            assert_eq!(content[0], json!({ "type": "text", "text": "look" }));
            let image = content[1]["image_url"]["url"].as_str().unwrap();
            assert!(image.starts_with("data:image/png;base64,iVBO"), "{image}");
        } else {
            let text = content.as_str().unwrap();
            assert!(text.starts_with("look\n\n[x.png](file:///"), "{text}");
        }
    }
}

// Tools.

#[tokio::test]
async fn the_model_calls_the_tools_of_the_host_and_is_told_what_came_of_it() {
    let mut scene = Scene::new().await;
    let page = json!({ "title": "Sales", "html": "<p>up" }).to_string();
    scene.endpoint.answers(calls("publish_visual", &page));
    scene.endpoint.answers(calls("publish_visual", "{\"title\": \"no end"));
    scene.endpoint.answers(calls("rm", "{}"));
    scene.endpoint.answers(says(&["Look at it."]));
    let seen = scene.run("t", "draw").await;
    let turn = scene.last_turn().await;
    let calls = tool_calls(&turn);
    assert_eq!(calls.len(), 3, "{:?}", types(&seen));
    assert_eq!((&calls[0]["status"], &calls[0]["toolInput"]), (&json!("completed"), &json!(page)));
    assert_eq!(
        (&calls[0]["success"], &calls[1]["success"], &calls[2]["success"]),
        (&json!(true), &json!(false), &json!(false))
    );
    let published = calls[0]["content"][0]["text"].as_str().unwrap();
    assert!(published.starts_with("Published as visual "), "{published}");
    assert_eq!(markdown(&turn), ["Look at it."]);
    assert_eq!((&turn["usage"]["inputTokens"], &turn["usage"]["cacheReadTokens"]), (&json!(40), &json!(16)));
    let visuals = scene.client.ask("x-scrollback/listVisuals", json!({ "channel": scene.chat })).await.unwrap();
    assert_eq!((&visuals["visuals"][0]["title"], &visuals["visuals"][0]["turnId"]), (&json!("Sales"), &json!("t")));

    let asked = scene.endpoint.asked();
    let tools: Vec<&Value> = asked[0].body["tools"].as_array().unwrap().iter().map(|tool| &tool["function"]).collect();
    assert_eq!((tools.len(), &tools[1]["name"]), (2, &json!("publish_visual")));
    assert_eq!(tools[1]["parameters"]["type"], "object");
    let messages = asked[3].body["messages"].as_array().unwrap();
    let roles: Vec<&Value> = messages.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"]);
    assert_eq!(messages[1]["tool_calls"][0]["function"], json!({ "name": "publish_visual", "arguments": page }));
    assert_eq!((&messages[2]["tool_call_id"], &messages[2]["content"]), (&json!("c1"), &json!(published)));
    // What was no JSON is not told again: endpoints refuse it.
    assert_eq!(messages[3]["tool_calls"][0]["function"]["arguments"], "{}");
    assert!(messages[4]["content"].as_str().unwrap().starts_with("the arguments are no JSON"));
    assert!(messages[6]["content"].as_str().unwrap().contains("there is no tool rm"), "{}", messages[6]);
}

#[tokio::test]
async fn a_model_that_calls_tools_without_end_is_stopped() {
    let endpoint = EndpointLimits { max_tool_rounds: 2, ..EndpointLimits::default() };
    let limits = AgentLimits { endpoint, ..AgentLimits::default() };
    let mut scene = Scene::with(Setup { limits, ..Setup::default() }).await;
    for _ in 0..3 {
        scene.endpoint.answers(calls("get_session_context", "{}"));
    }
    let (kind, words, resumable) = scene.fails("t", "go").await;
    assert_eq!((kind.as_str(), resumable), ("tool-rounds", true));
    assert!(words.contains("called tools 2 times"), "{words}");
    assert_eq!(scene.endpoint.asked().len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_takes_no_tools_answers_without_them() {
    let mut scene = Scene::new().await;
    scene.endpoint.answers(refuses(400, "stub does not support tools", ""));
    scene.run("t1", "one").await;
    let turn = scene.last_turn().await;
    assert_eq!(markdown(&turn), ["You said: one"]);
    let said = notices(&turn);
    assert!(said.len() == 1 && said[0].contains("without the tools of the host"), "{said:?}");
    scene.run("t2", "two").await;
    let asked = scene.endpoint.asked();
    let has_tools: Vec<bool> = asked.iter().map(|asked| asked.body.get("tools").is_some()).collect();
    assert_eq!(has_tools, [true, false, false]);
    assert!(notices(&scene.last_turn().await).is_empty());
}

// Limits.

#[tokio::test]
async fn a_limit_of_usage_is_waited_for_and_the_turn_is_taken_up_when_it_lifts() {
    let clock = Clock::fixed(NOW);
    let mut scene = Scene::with(Setup { clock: clock.clone(), ..Setup::default() }).await;
    let headers = vec![("retry-after", "60".to_owned())];
    scene.endpoint.answers(Reply::Status(429, headers, json!({ "error": { "message": "slow down" } }).to_string()));
    let end = scene.run("t", "hello").await.pop().unwrap()["action"].clone();
    let error = &end["part"]["error"];
    assert_eq!((&error["errorType"], &end["part"]["resumable"]), (&json!("usage-limit"), &json!(true)));
    assert!(error["message"].as_str().unwrap().ends_with("it says: slow down"), "{error}");
    let limit = &error["_meta"]["scrollback.limit"];
    assert_eq!(limit, &json!({ "kind": "usage", "resetsAt": scrollback::clock::rfc3339(NOW + 60_000) }));
    clock.advance(60_000);
    scene.client.until_ended("t").await;
    assert_eq!(scene.endpoint.asked().len(), 2);
    assert_eq!(scene.last_turn().await["state"], "complete");
}

#[tokio::test]
async fn an_overloaded_endpoint_ends_the_turn_as_overloaded() {
    for reply in [
        refuses(503, "loading the model", ""),
        refuses(529, "busy", ""),
        Reply::Stream(vec![chunk(json!({ "error": { "type": "overloaded_error", "message": "busy" } }))], End::Orderly),
    ] {
        let mut scene = Scene::new().await;
        scene.endpoint.answers(reply);
        let (kind, _, resumable) = scene.fails("t", "hello").await;
        assert_eq!((kind.as_str(), resumable), ("overloaded", true));
    }
}

// What is wrong, in words.

#[tokio::test]
async fn a_refused_key_is_named_by_its_variable() {
    let unset = Setup::of("api_key_env = \"STUB_KEY\"");
    let set = Setup { environment: &[("STUB_KEY", "wrong")], ..unset.clone() };
    for (setup, expected) in [
        (Setup::default(), "set `api_key_env` of [agents.local]"),
        (unset, "the variable STUB_KEY is not set"),
        (set, "refused the key that the host's variable STUB_KEY holds (401); it says: no"),
    ] {
        let mut scene = Scene::with(setup).await;
        scene.endpoint.answers(refuses(401, "no", "invalid_api_key"));
        let (kind, words, _) = scene.fails("t", "hello").await;
        assert_eq!(kind, "unauthorized");
        assert!(words.contains(expected) && !words.contains("wrong"), "{words}");
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_and_a_request_that_is_refused_are_told() {
    let mut scene = Scene::new().await;
    scene.endpoint.answers(refuses(404, "pull it first", "model_not_found"));
    let (kind, words, _) = scene.fails("t1", "hello").await;
    assert_eq!(kind, "unknown-model");
    assert!(words.contains("has no model stub") && words.ends_with("it says: pull it first"), "{words}");
    scene.endpoint.answers(refuses(400, "temperature is too high", ""));
    let (kind, words, resumable) = scene.fails("t2", "hello").await;
    assert_eq!((kind.as_str(), resumable), ("endpoint-refused", false));
    assert!(words.ends_with("refused the request (400); it says: temperature is too high"), "{words}");
    scene.endpoint.answers(Reply::Status(502, Vec::new(), "<html>bad gateway".into()));
    let (kind, words, resumable) = scene.fails("t3", "hello").await;
    assert_eq!((kind.as_str(), resumable), ("endpoint-failed", true));
    assert!(words.ends_with("failed (502); it says: <html>bad gateway"), "{words}");
    // Nothing of that is in the way of the next turn.
    scene.run("t4", "on").await;
    assert_eq!(markdown(&scene.last_turn().await), ["You said: on"]);
}

#[tokio::test]
async fn where_nothing_listens_the_url_is_named_and_the_next_turn_tries_again() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    let endpoint = FakeEndpoint::start();
    let agent = Setup::default().agent(&format!("http://{address}/v1"));
    let problem = agent.probe().await.problem.unwrap();
    assert!(
        problem.starts_with(&format!("nothing answers at http://{address}/v1: see whether the server is up")),
        "{problem}"
    );
    let host = TestHost::with(Options { agents: vec![agent], ..Options::default() });
    let client = host.client("c").await;
    let mut scene = Scene { endpoint, host, client, chat: chat_of(S) }.opened().await;
    for turn in ["t1", "t2"] {
        let (kind, words, resumable) = scene.fails(turn, "hello").await;
        assert_eq!((kind.as_str(), resumable), ("endpoint-unreachable", true));
        assert!(words.contains(&address.to_string()), "{words}");
    }
}

#[tokio::test]
async fn a_probe_says_what_is_wrong_and_does_not_wait_for_ever() {
    let endpoint = FakeEndpoint::start();
    let limits = EndpointLimits { probe_timeout: Duration::from_millis(50), ..EndpointLimits::default() };
    let short = Setup { limits: AgentLimits { endpoint: limits, ..AgentLimits::default() }, ..Setup::default() };
    let html = || Reply::Status(200, Vec::new(), "<html>".into());
    let never = Reply::After(Arc::new(Notify::new()), Box::new(html()));
    for (setup, reply, expected) in [
        (Setup::default(), refuses(404, "", ""), "lists no models: see whether `base_url`"),
        (Setup::default(), refuses(401, "", ""), "wants a key"),
        (Setup::default(), html(), "in a form that is not OpenAI's"),
        (short, never, "did not list its models within 50ms"),
    ] {
        endpoint.lists(reply);
        let problem = setup.agent(&url(&endpoint)).probe().await.problem.unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
}

#[tokio::test]
async fn what_the_probe_found_is_said_of_the_agent() {
    let endpoint = FakeEndpoint::start();
    let ids = |agent: &dyn Agent| agent.info().models.into_iter().map(|model| model.id).collect::<Vec<_>>();
    let agent = Setup::default().agent(&url(&endpoint));
    assert_eq!(ids(agent.as_ref()), ["stub"]);
    assert_eq!(agent.probe().await.problem, None);
    assert_eq!(ids(agent.as_ref()), ["stub", "other"]);
    assert_eq!(agent.info().models[0].max_context_window, Some(4_096));
    // A list in the configuration goes before the endpoint's.
    let agent = Setup::of("models = [\"small\", \"stub\"]").agent(&url(&endpoint));
    agent.probe().await;
    assert_eq!(ids(agent.as_ref()), ["stub", "small"]);
    let extras = serde_json::to_value(agent.extras()).unwrap();
    let expected = json!({ "steering": false, "rewind": true, "compact": false, "resume": true, "images": false,
        "stopsWorkers": false });
    assert_eq!(extras, expected);
}

// What breaks off.

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error_that_can_be_resumed() {
    for end in [End::Cut, End::Orderly] {
        let mut scene = Scene::new().await;
        scene.run("t0", "zero").await;
        scene.endpoint.answers(breaks(&["half ", "an answer"], end));
        let (kind, words, resumable) = scene.fails("t", "hello").await;
        assert_eq!((kind.as_str(), resumable), ("endpoint-cut", true));
        assert!(words.contains("broke off in the middle"), "{words}");
        assert_eq!(markdown(&scene.last_turn().await), ["half an answer"]);
        scene.client.dispatch(&scene.chat, resume("t")).await;
        scene.client.until_ended("t").await;
        let asked = scene.endpoint.last().told();
        // Asked again, and told that it is: the half answer is not held against the model.
        assert_eq!(asked[..2], pairs(&[("user", "zero"), ("assistant", "You said: zero")]));
        assert!(asked.len() == 3 && asked[2].1.starts_with("hello\n\n"), "{asked:?}");
        assert_eq!(scene.last_turn().await["state"], "complete");
    }
}

#[tokio::test]
async fn an_answer_without_its_last_word_is_whole_all_the_same() {
    let word = |end| {
        let mut pieces = vec![delta(json!({ "content": "done" }))];
        pieces.extend(finish("stop").into_iter().take(1));
        Reply::Stream(pieces, end)
    };
    let bare =
        Reply::Stream(vec![delta(json!({ "content": "done" })), Bytes::from_static(DONE.as_bytes())], End::Orderly);
    for reply in [word(End::Orderly), word(End::Cut), bare] {
        let mut scene = Scene::new().await;
        scene.endpoint.answers(reply);
        let seen = scene.run("t", "hello").await;
        assert_eq!((types(&seen).last(), streamed(&seen).as_str()), (Some(&"chat/turnComplete"), "done"));
    }
}

#[tokio::test]
async fn what_is_no_answer_ends_the_turn_and_nothing_else() {
    let bytes = |bytes: &'static [u8]| Reply::Stream(vec![Bytes::from_static(bytes)], End::Hang);
    let long = format!("data: {{\"x\": \"{}\"", "x".repeat(70_000));
    let cases = [
        (bytes(b"data: no JSON\n\n"), "is no piece of an answer"),
        (bytes(b"data: \xff\xfe\n\n"), "is no piece of an answer"),
        (bytes(b"data: [1]\n\n"), "is no piece of an answer"),
        (bytes(b"what is this\n\n"), "is no piece of an answer"),
        (Reply::Stream(vec![Bytes::from(long)], End::Hang), "more than 65536 bytes at once"),
        (
            Reply::Status(200, vec![("content-type", "text/html".into())], "<html>hi".into()),
            "no stream but \"text/html\": <html>hi",
        ),
        (Reply::Status(200, Vec::new(), String::new()), "answered no stream"),
    ];
    let limits = AgentLimits { max_message: 65_536, ..AgentLimits::default() };
    let mut scene = Scene::with(Setup { limits, ..Setup::default() }).await;
    for (number, (reply, expected)) in cases.into_iter().enumerate() {
        scene.endpoint.answers(reply);
        let (kind, words, resumable) = scene.fails(&format!("t{number}"), "hello").await;
        assert_eq!((kind.as_str(), resumable), ("endpoint-garbage", true));
        assert!(words.contains(expected), "{words}");
    }
    scene.run("last", "on").await;
    assert_eq!(markdown(&scene.last_turn().await), ["You said: on"]);
}

#[tokio::test]
async fn pieces_may_be_cut_anywhere_and_comments_are_no_words() {
    let mut scene = Scene::new().await;
    let whole = [delta(json!({ "content": "Grüße, 世界" })), Bytes::from_static(b": still here\r\n\r\n")];
    let whole = whole.into_iter().chain(finish("stop")).flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>();
    let bytes = whole.into_iter().map(|byte| Bytes::from(vec![byte])).collect();
    scene.endpoint.answers(Reply::Stream(bytes, End::Orderly));
    let seen = scene.run("t", "hello").await;
    assert_eq!(streamed(&seen), "Grüße, 世界");
}

#[tokio::test]
async fn an_endpoint_that_hangs_is_given_up() {
    let mut scene = Scene::with(Setup::patient_for(Duration::from_millis(100))).await;
    let never = Reply::After(Arc::new(Notify::new()), Box::new(says(&["late"])));
    for (turn, reply, words_of_it) in [
        ("t1", never, "did not begin to answer within 100ms"),
        ("t2", breaks(&["half"], End::Hang), "said nothing more within 100ms"),
        ("t3", breaks(&[], End::Hang), "said nothing more within 100ms"),
    ] {
        scene.endpoint.answers(reply);
        let (kind, words, resumable) = scene.fails(turn, "hello").await;
        assert_eq!((kind.as_str(), resumable), ("endpoint-timeout", true));
        assert!(words.ends_with(words_of_it), "{words}");
    }
}

#[tokio::test]
async fn an_endpoint_that_is_slow_is_waited_for_and_that_is_said_once() {
    let limits = AgentLimits { slow_start: Duration::from_millis(20), ..AgentLimits::default() };
    let mut scene = Scene::with(Setup { limits, ..Setup::default() }).await;
    let go = Arc::new(Notify::new());
    scene.endpoint.answers(Reply::After(Arc::clone(&go), Box::new(says(&["late"]))));
    scene.client.say(&scene.chat, "t", "hello").await;
    let is_notice = |e: &Value| e["action"]["part"]["kind"] == json!("systemNotification");
    let notice = scene.client.envelope(is_notice).await;
    assert!(notice["action"]["part"]["content"].as_str().unwrap().contains("slow to answer"), "{notice}");
    go.notify_one();
    scene.client.until_ended("t").await;
    let turn = scene.last_turn().await;
    assert_eq!((notices(&turn).len(), markdown(&turn)), (1, vec!["late".to_owned()]));
}

// Stopping.

#[tokio::test]
async fn a_turn_that_is_stopped_closes_its_connection_and_counts_with_what_it_said() {
    let mut scene = Scene::new().await;
    scene.endpoint.answers(breaks(&["half"], End::Alive));
    scene.client.say(&scene.chat, "t1", "one").await;
    scene.client.envelope(|e| e["action"]["content"] == json!("half")).await;
    assert_eq!(scene.endpoint.open(), 1);
    scene.client.cancel(&scene.chat, "t1").await;
    assert_eq!(types(&scene.client.until_ended("t1").await).last(), Some(&"chat/turnCancelled"));
    eventually("the connection is closed", || scene.endpoint.open() == 0).await;
    scene.run("t2", "two").await;
    assert_eq!(scene.endpoint.last().told(), pairs(&[("user", "one"), ("assistant", "half"), ("user", "two")]));
    // So does a chat that is closed.
    scene.endpoint.answers(breaks(&["half"], End::Alive));
    scene.client.say(&scene.chat, "t3", "three").await;
    eventually("it answers", || scene.endpoint.open() == 1).await;
    scene.client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
    eventually("the connection is closed", || scene.endpoint.open() == 0).await;
}

struct Nothing;

impl Conversation for Nothing {
    fn exchanges(&self) -> Vec<Exchange> {
        Vec::new()
    }
}

#[tokio::test]
async fn a_turn_is_stopped_also_while_nobody_reads_what_it_says() {
    let endpoint = FakeEndpoint::start();
    let agent = Setup::default().agent(&url(&endpoint));
    let start = ProcessStart {
        session: S.into(),
        chat: F.into(),
        directories: Vec::new(),
        config: Default::default(),
        conversation: Arc::new(Nothing),
        resume: None,
        back_to: None,
        memory: Default::default(),
        mcp: None,
        clock: Clock::system(),
        resource_tokens: Arc::default(),
    };
    let prompt = |turn: &str| {
        let message = serde_json::from_value(message("go")).unwrap();
        let blocks = vec![PromptBlock::Text { text: "go".into() }];
        AgentInput::Prompt(Prompt { turn_id: turn.into(), message, blocks, attempt: 0, kind: PromptKind::Message })
    };
    // The bounded way to the chat is full at once.
    let (sink, mut events) = tokio::sync::mpsc::channel(1);
    let mut process = agent.start(start, sink);
    let flood = vec![delta(json!({ "content": "flood" })); 20_000];
    endpoint.answers(Reply::Stream(flood, End::Alive));
    process.send(prompt("t1"));
    eventually("it answers", || endpoint.open() == 1).await;
    process.send(AgentInput::Cancel { turn_id: "t1".into() });
    eventually("the connection is closed", || endpoint.open() == 0).await;
    process.send(prompt("t2"));
    let mut ended = Vec::new();
    while ended.len() < 2 {
        if let AgentEvent::Ended { turn_id, .. } = events.recv().await.unwrap() {
            ended.push(turn_id);
        }
    }
    assert_eq!(ended, ["t1", "t2"]);
    drop(process);
    assert!(events.recv().await.is_none(), "a process whose handle is gone ends");
}

// The conversation is the host's.

#[tokio::test]
async fn a_context_that_is_too_long_begins_with_newer_turns() {
    let mut scene = Scene::new().await;
    for turn in ["1", "2", "3"] {
        scene.run(turn, turn).await;
    }
    let too_long = || refuses(400, "too long", "context_length_exceeded");
    scene.endpoint.answers(too_long());
    scene.run("4", "4").await;
    assert_eq!(scene.endpoint.last().told(), pairs(&[("user", "3"), ("assistant", "You said: 3"), ("user", "4")]));
    let said = notices(&scene.last_turn().await);
    assert!(said.len() == 1 && said[0].contains("is not told the oldest 2 turns"), "{said:?}");
    for _ in 0..3 {
        scene.endpoint.answers(too_long());
    }
    let (kind, words, resumable) = scene.fails("5", "5").await;
    assert_eq!((kind.as_str(), resumable), ("context-too-long", false));
    assert!(words.contains("choose a model with a longer context"), "{words}");
    assert_eq!(scene.endpoint.last().told(), pairs(&[("user", "5")]));
}

/// A host on disk with the endpoint, and a client of it.
async fn on_disk(directory: &Path, endpoint: &FakeEndpoint) -> (TestHost, Client) {
    let host = TestHost::on_disk_with(directory, Setup::default().options(&url(endpoint)));
    let client = host.client("c").await;
    (host, client)
}

#[tokio::test]
async fn the_conversation_goes_on_after_a_restart_of_the_host() {
    let directory = tempfile::tempdir().unwrap();
    let endpoint = FakeEndpoint::start();
    let (host, mut client) = on_disk(directory.path(), &endpoint).await;
    client.ask("createSession", json!({ "channel": S, "provider": "local" })).await.unwrap();
    let chat = chat_of(S);
    client.subscribe(&chat).await;
    client.run(&chat, "t1", "one").await;
    endpoint.answers(breaks(&["half"], End::Alive));
    client.say(&chat, "t2", "two").await;
    client.envelope(|e| e["action"]["content"] == json!("half")).await;
    host.stop();
    eventually("the connection is closed", || endpoint.open() == 0).await;

    // The turn that was interrupted is asked again.
    let asked = endpoint.asked().len();
    let (_host, mut client) = on_disk(directory.path(), &endpoint).await;
    client.subscribe(&chat).await;
    eventually("it is asked again", || endpoint.asked().len() > asked).await;
    let told = endpoint.last().told();
    assert_eq!(told[..2], pairs(&[("user", "one"), ("assistant", "You said: one")]));
    assert!(told.len() == 3 && told[2].1.starts_with("two\n\n"), "{told:?}");
    let mut state = client.subscribe(&chat).await["state"].clone();
    if state.get("activeTurn").is_some() {
        client.until_ended("t2").await;
        state = client.subscribe(&chat).await["state"].clone();
    }
    assert_eq!(state["turns"][1]["state"], "complete");
    client.run(&chat, "t3", "three").await;
    let told = endpoint.last().told();
    assert_eq!((told.len(), &told[4].1), (5, &"three".to_owned()));
}

#[tokio::test]
async fn a_rewind_a_fork_and_a_side_chat_tell_the_endpoint_what_belongs_to_them() {
    let mut scene = Scene::new().await;
    for turn in ["1", "2", "3"] {
        scene.run(turn, turn).await;
    }
    let chat = scene.chat.clone();
    let fork = json!({ "channel": S, "chat": F, "source": { "kind": "fork", "chat": chat, "turnId": "2" } });
    scene.client.ask("createChat", fork).await.unwrap();
    scene.client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "1" })).await;
    scene.run("4", "4").await;
    let one = [("user", "1"), ("assistant", "You said: 1")];
    assert_eq!(scene.endpoint.last().told(), pairs(&[one[0], one[1], ("user", "4")]));

    scene.client.subscribe(F).await;
    scene.client.run(F, "f", "fork").await;
    let two = [("user", "2"), ("assistant", "You said: 2")];
    assert_eq!(scene.endpoint.last().told(), pairs(&[one[0], one[1], two[0], two[1], ("user", "fork")]));
    // A turn that was stopped can be gone back to as well.
    scene.endpoint.answers(breaks(&["half"], End::Alive));
    scene.client.say(F, "f2", "stop").await;
    scene.client.envelope(|e| e["action"]["content"] == json!("half")).await;
    scene.client.cancel(F, "f2").await;
    scene.client.until_ended("f2").await;
    scene.client.run(F, "f3", "dropped").await;
    scene.client.accepted(F, json!({ "type": "chat/truncated", "turnId": "f2" })).await;
    scene.client.run(F, "f4", "on").await;
    let told = scene.endpoint.last().told();
    assert_eq!(told[6..], pairs(&[("user", "stop"), ("assistant", "half"), ("user", "on")]));

    let side = json!({ "channel": S, "chat": "ahp-chat:/side",
        "source": { "kind": "sideChat", "chat": chat, "turnId": "4" } });
    scene.client.ask("createChat", side).await.unwrap();
    scene.client.subscribe("ahp-chat:/side").await;
    scene.client.run("ahp-chat:/side", "s", "aside").await;
    let told = scene.endpoint.last().told();
    assert_eq!(told.len(), 1);
    assert!(told[0].1.contains("You said: 4") && told[0].1.ends_with("aside"), "{told:?}");
}
