//! Tokens that people bring for the resource of an agent: whose turns they serve, how they end, and that nobody sees them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use scrollback::actors::agent::Agent;
use scrollback::actors::people::PeopleChange;
use scrollback::agents::programs::{EndingSteps, Programs};
use scrollback::agents::{self, AgentLimits, Surroundings};
use scrollback::clock::Clock;
use scrollback::config::{Environment, agents as tables};
use scrollback::projections::people::Role;
use scrollback::resources::Roots;
use serde_json::{Value, json};

use crate::harness::endpoint::{FakeEndpoint, Reply, says};
use crate::harness::{Client, Options, TestHost, chat_of, envelopes, is_ending, streamed};

const ROOT: &str = "ahp-root://";
const S: &str = "ahp-session:/s";
const R: &str = "https://api.example.com";
const NOW: i64 = 1_795_996_800_000;

/// The resource as clients are told of it.
fn resource() -> Value {
    json!({ "resource": R, "resource_name": "Example", "authorization_servers": ["https://login.example.com"],
        "scopes_supported": ["chat"] })
}

fn agent(endpoint: &FakeEndpoint) -> Arc<dyn Agent> {
    let table = format!(
        "[agents.vendor]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\nmodel = \"stub\"\nprotected_resource = \"{R}\"\n\
         resource_name = \"Example\"\nauthorization_servers = [\"https://login.example.com\"]\nscopes = [\"chat\"]\n",
        endpoint.address
    );
    let table: toml::Table = toml::from_str(&table).unwrap();
    let environment = Environment::of(&[]);
    let surroundings = Surroundings {
        programs: Programs::new(&environment, None, EndingSteps::default()).unwrap(),
        roots: Arc::new(Roots::new(&[], None)),
        data_directory: None,
        limits: AgentLimits::default(),
    };
    agents::configured(&tables::read(&table["agents"]).unwrap(), &environment, &surroundings).pop().unwrap()
}

/// An endpoint that lets nobody in without a good token, a host with it, and a chat of ada's.
struct Scene {
    endpoint: FakeEndpoint,
    host: TestHost,
    clock: Clock,
    token: String,
    ada: Client,
    chat: String,
}

impl Scene {
    async fn new() -> Self {
        let endpoint = FakeEndpoint::start();
        endpoint.lets_in(&["good", "better"]);
        let clock = Clock::fixed(NOW);
        let options = Options { agents: vec![agent(&endpoint)], clock: clock.clone(), ..Options::default() };
        let host = TestHost::with(options);
        let token = host.add_person("ada", &[Role::Member], &[]).await;
        let mut ada = watching(&host, "of ada", &token).await;
        ada.ask("createSession", json!({ "channel": S, "provider": "vendor" })).await.unwrap();
        let chat = chat_of(S);
        ada.subscribe(&chat).await;
        Self { endpoint, host, clock, token, ada, chat }
    }

    /// Runs a turn of ada's to its end.
    async fn run(&mut self, turn: &str) -> Value {
        self.ada.say(&self.chat, turn, "hello").await;
        ended(&mut self.ada, turn).await
    }

    /// Takes the turn up; returns its new end.
    async fn resume(&mut self, turn: &str) -> Value {
        self.ada.dispatch(&self.chat, json!({ "type": "chat/turnResume", "turnId": turn })).await;
        ended(&mut self.ada, turn).await
    }

    /// What the endpoint was let in with, request by request.
    fn bearers(&self) -> Vec<String> {
        let asked = self.endpoint.asked().into_iter();
        asked.map(|asked| asked.authorization.unwrap_or_default().replace("Bearer ", "")).collect()
    }
}

/// A client of somebody that hears what the root's subscribers hear.
async fn watching(host: &TestHost, id: &str, token: &str) -> Client {
    let mut client = Client::connect_with(host.address, token).await.unwrap();
    client.initialize(id, &[ROOT]).await;
    client
}

async fn ended(client: &mut Client, turn: &str) -> Value {
    let ends = |m: &Value| is_ending(&m["params"]["action"]) && m["params"]["action"]["turnId"] == json!(turn);
    client.take(ends).await["params"]["action"].clone()
}

async fn authenticate(client: &mut Client, token: &str) -> Value {
    give(client, json!({ "channel": ROOT, "resource": R, "token": token })).await
}

async fn give(client: &mut Client, params: Value) -> Value {
    client.ask("authenticate", params).await.expect("it was refused")
}

/// What the client is asked for: waited for.
async fn asked_for(client: &mut Client) -> Value {
    client.take(|m| m["method"] == "auth/required").await["params"].clone()
}

fn required(reason: &str) -> Value {
    json!({ "channel": ROOT, "resource": resource(), "reason": reason })
}

/// Checks that a turn ended for want of a token, and can be taken up.
fn wants_token(end: &Value) {
    let error = &end["part"]["error"];
    assert_eq!((&end["type"], &error["errorType"]), (&json!("chat/error"), &json!("auth-required")), "{end}");
    assert_eq!(end["part"]["resumable"], true, "{end}");
    assert!(error["message"].as_str().unwrap().contains(R), "{end}");
}

#[tokio::test]
async fn the_root_says_what_an_agent_wants_a_token_for_and_it_starts_without_one() {
    let scene = Scene::new().await;
    let mut client = Client::connect(scene.host.address).await;
    let hello = client.initialize("c", &[ROOT]).await;
    let vendor = &hello["snapshots"][0]["state"]["agents"][0];
    assert_eq!(vendor["protectedResources"], json!([resource()]), "{hello}");
    let agent = agent(&scene.endpoint);
    assert_eq!(agent.probe().await.problem, None);
    assert_eq!(agent.info().models.len(), 1);
}

#[tokio::test]
async fn a_turn_without_a_token_asks_its_sender_and_goes_on_once_there_is_one() {
    let mut scene = Scene::new().await;
    let mut second = watching(&scene.host, "ada too", &scene.token).await;
    let mut other = scene.host.client("root").await;
    wants_token(&scene.run("t1").await);
    for client in [&mut scene.ada, &mut second] {
        assert_eq!(asked_for(client).await, required("required"));
    }
    assert!(scene.endpoint.asked().is_empty());
    assert_eq!(authenticate(&mut scene.ada, "good").await, json!({}));
    assert_eq!(scene.resume("t1").await["type"], "chat/turnComplete");
    assert_eq!(scene.bearers(), ["good"]);
    let told = other.drain().await;
    assert!(!told.iter().any(|m| m["method"] == "auth/required"), "{told:?}");
}

#[tokio::test]
async fn a_token_serves_the_turns_of_who_gave_it_and_no_others() {
    let mut scene = Scene::new().await;
    let chat = scene.chat.clone();
    let mut other = scene.host.client("root").await;
    other.subscribe(&chat).await;
    authenticate(&mut scene.ada, "good").await;
    other.say(&chat, "t1", "hello").await;
    wants_token(&ended(&mut other, "t1").await);
    assert_eq!(asked_for(&mut other).await, required("required"));
    // Whoever takes it up: it is asked in the name of who sent the message.
    ended(&mut scene.ada, "t1").await;
    wants_token(&scene.resume("t1").await);
    assert!(scene.endpoint.asked().is_empty());
    authenticate(&mut other, "better").await;
    assert_eq!(scene.run("t2").await["type"], "chat/turnComplete");
    other.say(&chat, "t3", "hello").await;
    assert_eq!(ended(&mut other, "t3").await["type"], "chat/turnComplete");
    assert_eq!(scene.bearers(), ["good", "better"]);
}

#[tokio::test]
async fn a_token_is_gone_with_its_connection_and_the_newest_of_a_person_counts() {
    let mut scene = Scene::new().await;
    let mut second = watching(&scene.host, "ada too", &scene.token).await;
    authenticate(&mut scene.ada, "good").await;
    authenticate(&mut second, "better").await;
    scene.run("t1").await;
    second.hang_up().await;
    second.read_until_closed().await;
    assert_eq!(scene.run("t2").await["type"], "chat/turnComplete");
    assert_eq!(scene.bearers(), ["better", "good"]);
    // The same person on another connection brings nothing along.
    let mut third = watching(&scene.host, "ada again", &scene.token).await;
    third.subscribe(&scene.chat).await;
    scene.ada.hang_up().await;
    scene.ada.read_until_closed().await;
    third.say(&scene.chat, "t3", "hello").await;
    wants_token(&ended(&mut third, "t3").await);
    assert_eq!(asked_for(&mut third).await, required("required"));
    assert_eq!(scene.endpoint.asked().len(), 2);
}

#[tokio::test]
async fn who_is_shut_out_leaves_no_token_behind() {
    let mut scene = Scene::new().await;
    authenticate(&mut scene.ada, "good").await;
    let replace = PeopleChange::Token { name: "ada".into(), replace: true, expires: None };
    let token = scene.host.change_people(replace).await.token.unwrap();
    assert_eq!(scene.ada.read_until_closed().await.1.0, 1008);
    let mut ada = watching(&scene.host, "ada again", &token).await;
    ada.subscribe(&scene.chat).await;
    ada.say(&scene.chat, "t1", "hello").await;
    wants_token(&ended(&mut ada, "t1").await);
    assert!(scene.endpoint.asked().is_empty());
}

#[tokio::test]
async fn a_token_that_has_expired_is_not_used() {
    let mut scene = Scene::new().await;
    give(
        &mut scene.ada,
        json!({ "channel": ROOT, "resource": R, "token": "good", "expiresIn": 60, "scopes": ["chat"] }),
    )
    .await;
    assert_eq!(scene.run("t1").await["type"], "chat/turnComplete");
    scene.clock.advance(60_000);
    wants_token(&scene.run("t2").await);
    assert_eq!(asked_for(&mut scene.ada).await, required("expired"));
    assert_eq!(scene.bearers(), ["good"]);
    authenticate(&mut scene.ada, "better").await;
    assert_eq!(scene.resume("t2").await["type"], "chat/turnComplete");
}

#[tokio::test]
async fn the_empty_token_takes_back_what_this_connection_gave() {
    let mut scene = Scene::new().await;
    authenticate(&mut scene.ada, "good").await;
    assert_eq!(authenticate(&mut scene.ada, "").await, json!({}));
    wants_token(&scene.run("t1").await);
    assert_eq!(asked_for(&mut scene.ada).await, required("required"));
    assert!(scene.endpoint.asked().is_empty());
}

#[tokio::test]
async fn a_token_that_the_endpoint_refuses_is_forgotten() {
    let mut scene = Scene::new().await;
    authenticate(&mut scene.ada, "sesame-of-yesterday").await;
    let end = scene.run("t1").await;
    wants_token(&end);
    assert!(!end.to_string().contains("sesame"), "{end}");
    assert!(end["part"]["error"]["message"].as_str().unwrap().contains("(hidden)"), "{end}");
    assert_eq!(asked_for(&mut scene.ada).await, required("expired"));
    wants_token(&scene.resume("t1").await);
    assert_eq!(scene.bearers(), ["sesame-of-yesterday"]);
    authenticate(&mut scene.ada, "good").await;
    assert_eq!(scene.resume("t1").await["type"], "chat/turnComplete");
}

#[tokio::test]
async fn an_endpoint_that_forbids_something_keeps_its_token() {
    let mut scene = Scene::new().await;
    authenticate(&mut scene.ada, "good").await;
    scene.endpoint.answers(Reply::Status(403, Vec::new(), "not for good".into()));
    let end = scene.run("t1").await;
    assert_eq!((&end["part"]["error"]["errorType"], &end["part"]["resumable"]), (&json!("unauthorized"), &json!(true)));
    scene.endpoint.answers(says(&["yes"]));
    assert_eq!(scene.resume("t1").await["type"], "chat/turnComplete");
    assert_eq!(scene.bearers(), ["good", "good"]);
}

#[tokio::test]
async fn what_is_no_token_for_a_resource_of_an_agent_is_refused() {
    let mut scene = Scene::new().await;
    let long = "x".repeat((16 << 10) + 1);
    for (params, word) in [
        (json!({ "channel": S, "resource": R, "token": "sesame" }), "invalid-params"),
        (json!({ "channel": ROOT, "token": "sesame" }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": ["sesame"] }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesame two" }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesäme" }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": long }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesame", "expiresIn": 0 }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesame", "expiresIn": -1 }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesame", "expiresIn": 1.5 }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": R, "token": "sesame", "scopes": "sesame" }), "invalid-params"),
        (json!({ "channel": ROOT, "resource": "https://sesame.example.com", "token": "sesame" }), "unknown-resource"),
    ] {
        let error = scene.ada.ask("authenticate", params.clone()).await.unwrap_err();
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32602), &json!(word)), "{params}");
        assert!(!["sesame", "sesä"].iter().any(|token| error.to_string().contains(token)), "{error}");
    }
    wants_token(&scene.run("t1").await);
    let largest = "x".repeat(16 << 10);
    give(&mut scene.ada, json!({ "channel": ROOT, "resource": R, "token": largest, "expiresIn": u64::MAX })).await;
    assert_eq!(asked_for(&mut scene.ada).await, required("required"));
    wants_token(&scene.resume("t1").await);
    assert_eq!(scene.endpoint.asked().len(), 1);
}

/// What was traced in this process, by whatever thread.
static TRACED: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();

#[derive(Clone)]
struct Traces(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Traces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Traces everything from now on: what the host and its libraries trace, and not what the clients of these tests do, which are
/// the ones to know the tokens.
fn trace() -> Arc<Mutex<Vec<u8>>> {
    let start = || {
        let traced = Arc::<Mutex<Vec<u8>>>::default();
        let traces = Traces(Arc::clone(&traced));
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("trace,tungstenite=off,tokio_tungstenite=off")
            .with_writer(move || traces.clone())
            .with_ansi(false);
        subscriber.init();
        traced
    };
    Arc::clone(TRACED.get_or_init(start))
}

#[tokio::test]
async fn no_token_is_written_down_sent_to_anybody_traced_or_counted() {
    let traced = trace();
    let mut scene = Scene::new().await;
    let chat = scene.chat.clone();
    scene.endpoint.lets_in(&["sesame-that-is-good"]);
    let mut second = watching(&scene.host, "ada too", &scene.token).await;
    let mut other = scene.host.client("root").await;
    for client in [&mut second, &mut other] {
        client.subscribe(S).await;
        client.subscribe(&chat).await;
    }
    let mut frames = Vec::new();
    for (turn, token) in [("t1", "sesame-that-is-bad"), ("t2", "sesame-that-is-good")] {
        frames.push(authenticate(&mut scene.ada, token).await);
        frames.push(scene.run(turn).await);
    }
    assert_eq!(scene.bearers(), ["sesame-that-is-bad", "sesame-that-is-good"]);
    assert_eq!(frames.last().unwrap()["type"], "chat/turnComplete");
    frames.push(authenticate(&mut scene.ada, "").await);
    for client in [&mut scene.ada, &mut second, &mut other] {
        let snapshot = client.subscribe(&chat).await;
        frames.push(snapshot);
        frames.extend(client.drain().await);
    }
    assert!(streamed(&envelopes(&frames)).contains("You said"));
    let metrics = reqwest::get(format!("http://{}/metrics", scene.host.address)).await.unwrap().text().await.unwrap();
    let log: Vec<String> = scene.host.records().into_iter().map(|record| format!("{record:?}")).collect();
    let actions: Vec<String> =
        scene.host.log().into_iter().map(|(_, action)| String::from_utf8_lossy(&action).into_owned()).collect();
    let traced = String::from_utf8_lossy(&traced.lock().unwrap_or_else(PoisonError::into_inner)).into_owned();
    assert!(traced.contains("TRACE"));
    let frames: Vec<String> = frames.iter().map(Value::to_string).collect();
    let all = [("log", log.join("\n")), ("actions", actions.join("\n")), ("frames", frames.join("\n"))];
    for (place, text) in all.into_iter().chain([("metrics", metrics), ("traces", traced)]) {
        let line = text.lines().find(|line| line.contains("sesame"));
        assert_eq!(line, None, "a token is in the {place}");
    }
}
