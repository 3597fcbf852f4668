//! Who may do what, through a real socket and over real HTTP: every role, and people with grants for one session alone, against
//! every command, action and route. What is expected stands in `tests/fixtures/permissions.txt`, written by hand.

mod one_session;
mod requests;

use std::collections::BTreeSet;
use std::time::Duration;

use scrollback::access::table;
use scrollback::projections::people::Role;
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tokio::time::timeout;

use self::requests::Place;
use crate::harness::{Client, PATIENCE, ROOT};
use crate::resources::Ground;

/// What is expected.
const WRITTEN: &str = include_str!("../../fixtures/permissions.txt");
/// What clients may dispatch, by the protocol.
const CLIENT_ACTIONS: &str = include_str!("../../fixtures/client-actions.txt");
/// How long an echo is waited for that is expected.
const ECHO: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Done, or refused for something else than who asks.
    Permitted,
    Refused,
    /// As if what is named were not there.
    Hidden,
}

/// A line of what is written.
struct Line {
    /// `command`, `action` or `route`.
    what: &'static str,
    name: String,
    /// By column; `None` where no session is named.
    cells: Vec<Option<Outcome>>,
}

fn lines() -> Vec<Line> {
    let written = WRITTEN.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let line = |text: &'static str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.len() >= 10, "{text}");
        let (name, cells) = words.split_at(words.len() - 8);
        let outcome = |word: &&str| match *word {
            "yes" => Some(Outcome::Permitted),
            "no" => Some(Outcome::Refused),
            "hidden" => Some(Outcome::Hidden),
            "-" => None,
            other => panic!("{other} is no outcome: {text}"),
        };
        Line { what: name[0], name: name[1..].join(" "), cells: cells.iter().map(outcome).collect() }
    };
    written.map(line).collect()
}

/// Somebody with a column of their own.
struct Person {
    name: &'static str,
    roles: &'static [Role],
    grants: &'static [&'static str],
    /// The columns for the session `own`, and for another one.
    columns: (usize, usize),
}

impl Person {
    /// What is expected of a line: in the session `own`, and in another one, where it names a session.
    fn expects(&self, line: &Line) -> (Outcome, Option<Outcome>) {
        let own = line.cells[self.columns.0].expect("what happens in the own session");
        // The reader's other session says whether the line names one at all.
        (own, line.cells[5].and(line.cells[self.columns.1]))
    }
}

/// Somebody on a host of their own, with what to do things with.
struct Round {
    ground: Ground,
    root: Client,
    client: Client,
    name: &'static str,
    token: String,
    own: Place,
    other: Place,
    /// How many names that name nothing were made up.
    made_up: usize,
}

impl Round {
    async fn begin(person: &Person) -> Self {
        let ground = Ground::new();
        ground.put("a.txt", "text");
        let host = &ground.host;
        let mut root = host.client("root").await;
        let (own, other) = (Place::make(&mut root, "own").await, Place::make(&mut root, "other").await);
        host.add_person("bob", &[], &[]).await;
        // What is asked of the agents waits until each was probed.
        let probed = async {
            host.host.probe_agents();
            host.host.agent_reports().await
        };
        LocalSet::new().run_until(probed).await;
        let token = host.add_person(person.name, person.roles, person.grants).await;
        let mut client = host.client_of(person.name, &token).await;
        for channel in [ROOT, &own.session, &own.chat, &other.session, &other.chat] {
            // What may be read is heard; the line of `subscribe` says what that is.
            let _ = client.ask("subscribe", json!({ "channel": channel })).await;
        }
        Self { ground, root, client, name: person.name, token, own, other, made_up: 0 }
    }

    fn nowhere(&mut self) -> Place {
        self.made_up += 1;
        Place::nowhere(&format!("none-{}", self.made_up))
    }

    fn place(&self, is_own: bool) -> &Place {
        if is_own { &self.own } else { &self.other }
    }

    /// Sends a command about a place: its answer.
    async fn command(&mut self, method: &str, place: &Place) -> Result<Value, Value> {
        let params = requests::command(method, place, (self.name, self.client.next_seq), &self.ground);
        match method {
            "initialize" | "reconnect" => {
                let fresh = Client::connect_with(self.ground.host.address, &self.token).await;
                fresh.unwrap_or_else(|status| panic!("{status}")).ask(method, params).await
            }
            "dispatchAction" => {
                self.client.next_seq += 1;
                self.client.ask(method, params).await
            }
            _ => self.client.ask(method, params).await,
        }
    }

    /// Sends a request about a place: the status and the body.
    fn request(&self, route: &str, place: &Place) -> (u16, String) {
        let (path, body) = requests::request(route, place);
        http(&self.ground, &self.token, route.split_once(' ').unwrap().0, &path, body)
    }

    /// What becomes of a command or a request, and what is wrong with the refusal.
    async fn outcome(&mut self, line: &Line, is_own: bool) -> (Outcome, Option<String>) {
        let place = self.place(is_own).clone();
        let answer = self.answer(line, &place).await;
        let outcome = match &answer {
            Ok(_) => return (Outcome::Permitted, None),
            Err((-32009 | 403, _)) => Outcome::Refused,
            Err((-32008 | -32001 | 404, _)) => Outcome::Hidden,
            Err(_) => return (Outcome::Permitted, None),
        };
        // What names no session has nothing that could be hidden.
        if line.cells[5].is_none() {
            let is_refused = outcome == Outcome::Refused;
            return (if is_refused { outcome } else { Outcome::Permitted }, None);
        }
        let nowhere = self.nowhere();
        let of_nothing = self.answer(line, &nowhere).await;
        let told = |answer: Result<(), (i64, String)>, place: &Place| {
            answer.err().map(|(code, text)| format!("{code} {}", place.anonymous(&text)))
        };
        let (of_this, of_nothing) = (told(answer.clone(), &place), told(of_nothing, &nowhere));
        let is_same = of_this == of_nothing;
        match outcome {
            Outcome::Hidden if !is_same => (Outcome::Permitted, None),
            Outcome::Hidden => (outcome, None),
            _ => (outcome, (!is_same).then(|| format!("{of_this:?} instead of {of_nothing:?}"))),
        }
    }

    /// Whether it was done, or the number and the text of the refusal.
    async fn answer(&mut self, line: &Line, place: &Place) -> Result<(), (i64, String)> {
        if line.what == "command" {
            let answer = self.command(&line.name, place).await;
            return answer.map(drop).map_err(|error| (error["code"].as_i64().unwrap(), error.to_string()));
        }
        let (status, body) = self.request(&line.name, place);
        if status < 400 { Ok(()) } else { Err((status.into(), body)) }
    }

    /// What becomes of an action. One that is expected to be ignored is looked for behind everything that could tell of it.
    async fn outcome_of_action(&mut self, line: &Line, is_own: bool, expected: Outcome) -> Outcome {
        let place = self.place(is_own).clone();
        let (on, kind) = line.name.split_once(' ').unwrap();
        let (channel, action) = requests::action(on, kind, &place, self.name, &self.ground);
        let seq = self.client.dispatch(&channel, action).await;
        if expected != Outcome::Hidden {
            let Ok(echo) = timeout(ECHO, self.client.echo(seq)).await else { return Outcome::Hidden };
            let reason = echo["rejectionReason"].as_str().unwrap_or_default();
            return if reason.starts_with("not-permitted:") { Outcome::Refused } else { Outcome::Permitted };
        }
        self.client.ask("ping", json!({ "channel": ROOT })).await.unwrap();
        self.root.ask("x-scrollback/listVisuals", json!({ "channel": place.chat })).await.unwrap();
        let heard = self.client.drain().await;
        let origin = json!({ "clientId": self.name, "clientSeq": seq });
        let Some(echo) = heard.iter().find(|message| message["params"]["origin"] == origin) else {
            return Outcome::Hidden;
        };
        if echo["params"]["rejectionReason"].is_string() { Outcome::Refused } else { Outcome::Permitted }
    }
}

/// A request of somebody with this token: the status and the body.
fn http(ground: &Ground, token: &str, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
    let agent: ureq::Agent = config.build().into();
    let url = format!("http://{}{path}", ground.host.address);
    let bearer = format!("Bearer {token}");
    let response = match (method, body) {
        ("GET", _) => agent.get(&url).header("Authorization", bearer).call(),
        ("DELETE", _) => agent.delete(&url).header("Authorization", bearer).call(),
        (_, body) => {
            let request = agent.post(&url).header("Authorization", bearer).header("Content-Type", "application/json");
            request.send(body.unwrap_or_default().to_string())
        }
    };
    let response = response.unwrap();
    (response.status().as_u16(), response.into_body().read_to_string().unwrap())
}

/// Does everything that is written in one's name, and compares.
async fn compare(person: Person) {
    let mut round = Round::begin(&person).await;
    let mut wrong = Vec::new();
    for line in lines() {
        let (own, other) = person.expects(&line);
        for (is_own, expected) in [(false, other), (true, Some(own))] {
            let Some(expected) = expected else { continue };
            let (outcome, problem) = match line.what {
                "action" => (round.outcome_of_action(&line, is_own, expected).await, None),
                _ => round.outcome(&line, is_own).await,
            };
            let place = if is_own { "own" } else { "other" };
            if outcome != expected {
                wrong.push(format!("{} in {place}: {outcome:?} instead of {expected:?}", line.name));
            }
            // What may be read may be told of.
            let reads = !person.roles.is_empty() || is_own && !person.grants.is_empty();
            if let Some(problem) = problem.filter(|_| !reads) {
                wrong.push(format!("{} in {place} tells that it is there: {problem}", line.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}: {wrong:#?}", person.name);
    if person.roles.is_empty() {
        let by = format!("user:{}", person.name);
        let left =
            round.ground.host.records().into_iter().find(|r| r.principal == by && round.other.has(r.channel.as_str()));
        assert_eq!(left.map(|record| record.seq), None, "{} left something where they may do nothing", person.name);
    }
}

#[tokio::test]
async fn an_admin_may_do_what_is_written_down() {
    compare(Person { name: "admin", roles: &[Role::Admin], grants: &[], columns: (0, 0) }).await;
}

#[tokio::test]
async fn a_member_may_do_what_is_written_down() {
    compare(Person { name: "member", roles: &[Role::Member], grants: &[], columns: (1, 1) }).await;
}

#[tokio::test]
async fn a_guest_may_do_what_is_written_down() {
    compare(Person { name: "guest", roles: &[Role::Guest], grants: &[], columns: (2, 2) }).await;
}

#[tokio::test]
async fn somebody_without_grants_may_do_what_is_written_down() {
    compare(Person { name: "nobody", roles: &[], grants: &[], columns: (3, 3) }).await;
}

#[tokio::test]
async fn a_reader_of_one_session_may_do_what_is_written_down() {
    let grants = &["session:read@ahp-session:/own"];
    compare(Person { name: "reader", roles: &[], grants, columns: (4, 5) }).await;
}

#[tokio::test]
async fn a_worker_in_one_session_may_do_what_is_written_down() {
    let grants = &["session:read@ahp-session:/own", "session:write@ahp-session:/own"];
    compare(Person { name: "worker", roles: &[], grants, columns: (6, 7) }).await;
}

#[test]
fn every_command_action_and_route_has_its_line_and_no_other_has() {
    let lines = lines();
    let written: Vec<String> = lines.iter().map(|line| format!("{} {}", line.what, line.name)).collect();
    let commands = table::COMMANDS.iter().map(|(name, _)| format!("command {name}"));
    let routes = table::ROUTES.iter().map(|(method, path, _)| format!("route {method} {path}"));
    let actions = CLIENT_ACTIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let there: BTreeSet<String> = commands.chain(routes).chain(actions.map(|line| format!("action {line}"))).collect();
    let once: BTreeSet<String> = written.iter().cloned().collect();
    assert_eq!(once.len(), written.len(), "something is written twice");
    assert_eq!(there.difference(&once).collect::<Vec<_>>(), [] as [&String; 0], "is not written");
    assert_eq!(once.difference(&there).collect::<Vec<_>>(), [] as [&String; 0], "is not there");
}
