//! The demo as its chat sees it: driven through the port, on a clock that moves by itself when everybody waits.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahp_types::common::JsonObject;
use ahp_types::state::{
    ChatInputAnswer, ChatInputAnswerValue, ChatInputAnswered, ChatInputQuestion, ChatInputRequest,
    ChatInputResponseKind, ChatInputSelectedAnswerValue, ChatInputTextAnswerValue, ConfirmationOptionKind, Message,
    MessageKind, MessageOrigin, ModelSelection, ToolResultContent,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::LocalSet;
use tokio::time::{Instant, timeout};

use super::DemoAgent;
use crate::actors::agent::{
    Agent, AgentEvent, AgentInput, AgentProcess, Conversation, EVENTS_AHEAD, Ending, Exchange, ProcessStart, Prompt,
    PromptBlock, PromptKind, ToolDecision,
};
use crate::clock::Clock;
use crate::events::Channel;

/// Longer than any script here takes, on the paused clock.
const NEVER: Duration = Duration::from_secs(86_400);

fn paused<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

/// Lets every task go on until it waits.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[derive(Default)]
struct Before {
    exchanges: Vec<Exchange>,
    reads: AtomicUsize,
}

impl Conversation for Before {
    fn exchanges(&self) -> Vec<Exchange> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.exchanges.clone()
    }
}

fn exchange(turn_id: &str, message: &str, answer: &str) -> Exchange {
    Exchange { turn_id: turn_id.to_owned(), message: message.to_owned(), answer: answer.to_owned() }
}

/// How a process is started, with what a test does not care about filled in.
#[derive(Default)]
struct Setup {
    config: JsonObject,
    conversation: Arc<Before>,
    memory: BTreeMap<String, Value>,
    capacity: Option<usize>,
}

impl Setup {
    fn start(&self, agent: &DemoAgent, chat: &str) -> Chat {
        let (sink, events) = channel(self.capacity.unwrap_or(EVENTS_AHEAD));
        let start = ProcessStart {
            session: Channel::from("ahp-session:/s"),
            chat: Channel::from(format!("ahp-chat:/{chat}")),
            directories: vec!["file:///a".to_owned(), "file:///b".to_owned()],
            config: self.config.clone(),
            conversation: self.conversation.clone(),
            resume: None,
            back_to: None,
            mcp: None,
            memory: self.memory.clone(),
            clock: Clock::fixed(1_000),
            resource_tokens: Arc::default(),
        };
        Chat { process: agent.start(start, sink), events }
    }
}

fn config(value: Value) -> Setup {
    let Value::Object(config) = value else { panic!("not an object") };
    Setup { config, ..Setup::default() }
}

/// The chat's side of one process.
struct Chat {
    process: Box<dyn AgentProcess>,
    events: Receiver<AgentEvent>,
}

impl Chat {
    fn new() -> Self {
        Setup::default().start(&DemoAgent::default(), "c")
    }

    fn prompt(&mut self, turn_id: &str, text: &str) {
        self.process.send(AgentInput::Prompt(prompt(turn_id, text, 0)));
    }

    fn resume(&mut self, turn_id: &str, text: &str) {
        self.process.send(AgentInput::Prompt(prompt(turn_id, text, 1)));
    }

    fn cancel(&mut self, turn_id: &str) {
        self.process.send(AgentInput::Cancel { turn_id: turn_id.to_owned() });
    }

    fn decide(&mut self, tool_call_id: &str, decision: ToolDecision) {
        self.process.send(AgentInput::Decide { tool_call_id: tool_call_id.to_owned(), decision });
    }

    fn approve(&mut self, tool_call_id: &str, option: &str) {
        self.decide(tool_call_id, ToolDecision::Approve { option: Some(option.to_owned()), edited_input: None });
    }

    fn respond(&mut self, request: &ChatInputRequest, response: ChatInputResponseKind, value: Option<&str>) {
        let question = request.questions.as_ref().unwrap().first().unwrap();
        let (id, value) = match question {
            ChatInputQuestion::SingleSelect(question) => (
                &question.id,
                value.map(|value| {
                    let value = value.to_owned();
                    ChatInputAnswerValue::Selected(ChatInputSelectedAnswerValue { value, freeform_values: None })
                }),
            ),
            ChatInputQuestion::Text(question) => (
                &question.id,
                value.map(|value| ChatInputAnswerValue::Text(ChatInputTextAnswerValue { value: value.to_owned() })),
            ),
            other => panic!("{other:?}"),
        };
        let answers = value
            .map(|value| (id.clone(), ChatInputAnswer::Submitted(ChatInputAnswered { value })))
            .into_iter()
            .collect::<HashMap<_, _>>();
        self.process.send(AgentInput::Answer { request_id: request.id.clone(), response, answers });
    }

    /// The next event, but for the point to go back to that every turn begins with, and the positions that it keeps.
    async fn next(&mut self) -> AgentEvent {
        loop {
            let event = self.event().await;
            if position(&event).is_none() {
                return event;
            }
        }
    }

    async fn event(&mut self) -> AgentEvent {
        self.heard().await.expect("the process is over")
    }

    async fn heard(&mut self) -> Option<AgentEvent> {
        loop {
            let event = timeout(NEVER, self.events.recv()).await.expect("the process neither speaks nor ends");
            if !matches!(event, Some(AgentEvent::RewindPoint { .. })) {
                return event;
            }
        }
    }

    /// Everything up to the end of the turn, or of the process.
    async fn rest(&mut self) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        loop {
            events.push(self.event().await);
            if matches!(events.last(), Some(AgentEvent::Ended { .. } | AgentEvent::Gone { .. })) {
                return events;
            }
        }
    }

    async fn turn(&mut self, turn_id: &str, text: &str) -> Vec<String> {
        self.prompt(turn_id, text);
        brief(&self.rest().await)
    }

    /// What a turn says, its text joined.
    async fn says(&mut self, turn_id: &str, text: &str) -> String {
        self.prompt(turn_id, text);
        said(&self.rest().await)
    }

    /// Reads up to the ask for a decision, whose call it returns.
    async fn asked_tool(&mut self) -> String {
        loop {
            if let AgentEvent::ToolAsked { tool_call_id, .. } = self.next().await {
                return tool_call_id;
            }
        }
    }

    async fn asked(&mut self) -> ChatInputRequest {
        loop {
            if let AgentEvent::Asked { request, .. } = self.next().await {
                return request;
            }
        }
    }

    async fn is_over(&mut self) -> bool {
        self.heard().await.is_none()
    }

    async fn is_silent(&mut self) -> bool {
        settle().await;
        self.events.try_recv().is_err()
    }
}

fn message(text: &str) -> Message {
    Message {
        text: text.to_owned(),
        origin: MessageOrigin { kind: MessageKind::User },
        attachments: None,
        model: None,
        agent: None,
        meta: None,
    }
}

fn prompt(turn_id: &str, text: &str, attempt: u32) -> Prompt {
    let blocks = vec![PromptBlock::Text { text: text.to_owned() }];
    Prompt { turn_id: turn_id.to_owned(), message: message(text), blocks, attempt, kind: PromptKind::Message }
}

fn said(events: &[AgentEvent]) -> String {
    events
        .iter()
        .filter_map(|event| if let AgentEvent::Text { text, .. } = event { Some(&**text) } else { None })
        .collect()
}

/// Each event in a few words, so that a test can say what order it wants; without the positions that it keeps.
fn brief(events: &[AgentEvent]) -> Vec<String> {
    events.iter().filter(|event| position(event).is_none()).map(in_brief).collect()
}

/// The step that a turn goes on with when it is taken up, where an event keeps one.
fn position(event: &AgentEvent) -> Option<u64> {
    match event {
        AgentEvent::Remember { key, value } if key.starts_with("position:") => value["step"].as_u64(),
        _ => None,
    }
}

fn positions(events: &[AgentEvent]) -> Vec<u64> {
    events.iter().filter_map(position).collect()
}

fn in_brief(event: &AgentEvent) -> String {
    match event {
        AgentEvent::Text { text, .. } => format!("text {text}"),
        AgentEvent::Reasoning { text, .. } => format!("reasoning {text}"),
        AgentEvent::ToolStarted { tool_name, .. } => format!("started {tool_name}"),
        AgentEvent::ToolRunning { input, .. } => format!("running {}", input.as_deref().unwrap_or("-")),
        AgentEvent::ToolAsked { ask, .. } => format!("asked {}", ask.tool_name),
        AgentEvent::ToolDone { result, .. } => match result.content.as_deref() {
            Some([ToolResultContent::Text(text)]) if result.success => format!("done {}", text.text),
            other => panic!("{other:?}"),
        },
        AgentEvent::Asked { .. } => "question".to_owned(),
        AgentEvent::Notice { text, .. } => format!("notice {text}"),
        AgentEvent::Usage { usage, .. } => {
            let tokens = |count: Option<i64>| count.unwrap_or(-1);
            let model = usage.model.as_deref().unwrap_or("-");
            format!("usage {} {} {model}", tokens(usage.input_tokens), tokens(usage.output_tokens))
        }
        AgentEvent::Activity { text } => format!("activity {}", text.as_deref().unwrap_or("-")),
        AgentEvent::Remember { key, value } => format!("remember {key} {value}"),
        AgentEvent::Gone { .. } => "gone".to_owned(),
        AgentEvent::Ended { ending: Ending::Complete, .. } => "complete".to_owned(),
        AgentEvent::Ended { ending: Ending::Cancelled, turn_id } => format!("cancelled {turn_id}"),
        AgentEvent::Ended { ending: Ending::Failed { error_type, message, resumable }, .. } => {
            format!("failed {error_type} {message}{}", if *resumable { " resumable" } else { "" })
        }
        AgentEvent::Ended { ending: Ending::Limited { kind, resets_at, .. }, .. } => {
            format!("limited {} {resets_at:?}", kind.word())
        }
        other => panic!("the demo does not say {other:?}"),
    }
}

// What it says of itself.

#[test]
fn the_demo_is_advertised_with_what_it_can_do_now() {
    let agent = DemoAgent::default();
    let info = serde_json::to_value(agent.info()).unwrap();
    assert_eq!(agent.provider(), "demo");
    assert_eq!((&info["provider"], &info["displayName"]), (&json!("demo"), &json!("Demo")));
    let directories = json!({"primaryReplacement": true});
    assert_eq!(
        info["capabilities"],
        json!({"multipleChats": {"fork": true, "sideChat": true}, "multipleWorkingDirectories": directories})
    );
    assert!(info["models"].as_array().unwrap().iter().all(|model| model["provider"] == "demo"));
    assert!(agent.extras().images && agent.extras().resume && agent.extras().steering);
}

// What it says.

#[test]
fn a_plain_line_is_streamed_word_by_word() {
    paused(async {
        let events = Chat::new().turn("t", "hello  world").await;
        assert_eq!(events, ["text You ", "text said: ", "text hello  ", "text world ", "complete"]);
    });
}

#[test]
fn a_blank_message_is_answered() {
    paused(async {
        let mut chat = Chat::new();
        assert_eq!(chat.says("t1", "").await, "You said: ");
        assert_eq!(chat.says("t2", " \n\n").await, "You said: ");
    });
}

#[test]
fn lines_of_text_are_joined_by_a_newline_until_another_part_comes() {
    paused(async {
        let events = Chat::new().turn("t", "/say a b\n/nope\n/usage 1 2\n/words 2\n/tool ls x\n/say c").await;
        let wanted = [
            "text a ",
            "text b ",
            "text \nunknown ",
            "text step: ",
            "text /nope ",
            "usage 1 2 demo-1",
            "text \nw1 ",
            "text w2 ",
            "started ls",
            "running x",
            "done x",
            "text c ",
            "complete",
        ];
        assert_eq!(events, wanted);
    });
}

#[test]
fn reasoning_notices_and_questions_interrupt_text() {
    paused(async {
        let script = "/say a\n/think b\n/think c\n/say d\n/notice e\n/say f\n/question-async g\n/say h";
        let wanted = [
            "text a ",
            "reasoning b",
            "reasoning \nc",
            "text d ",
            "notice e",
            "text f ",
            "question",
            "text h ",
            "complete",
        ];
        assert_eq!(Chat::new().turn("t", script).await, wanted);
    });
}

#[test]
fn words_come_one_each_pause() {
    paused(async {
        let mut chat = Chat::new();
        let begun = Instant::now();
        chat.prompt("t", "/words 3 250");
        for (word, at) in [("text w1 ", 0), ("text w2 ", 250), ("text w3 ", 500), ("complete", 500)] {
            assert_eq!(in_brief(&chat.next().await), word);
            assert_eq!(begun.elapsed(), Duration::from_millis(at), "{word}");
        }
        assert_eq!(chat.turn("u", "/words 0").await, ["complete"]);
    });
}

#[test]
fn sleep_waits_and_says_nothing() {
    paused(async {
        let begun = Instant::now();
        assert_eq!(Chat::new().turn("t", "/sleep 5000").await, ["complete"]);
        assert_eq!(begun.elapsed(), Duration::from_secs(5));
    });
}

#[test]
fn activity_is_set_and_cleared() {
    paused(async {
        let events = Chat::new().turn("t", "/activity reading\n/activity").await;
        assert_eq!(events, ["activity reading", "activity -", "complete"]);
    });
}

#[test]
fn usage_names_the_model_of_the_message_or_of_the_session() {
    paused(async {
        let mut chat = config(json!({"model": "demo-2"})).start(&DemoAgent::default(), "c");
        assert_eq!(chat.turn("t", "/usage 10 20").await, ["usage 10 20 demo-2", "complete"]);
        let mut chosen = prompt("u", "/usage 0 0", 0);
        chosen.message.model = Some(ModelSelection { id: "demo-1".to_owned(), config: None });
        chat.process.send(AgentInput::Prompt(chosen));
        assert_eq!(brief(&chat.rest().await), ["usage 0 0 demo-1", "complete"]);
    });
}

#[test]
fn bad_arguments_are_said_and_the_script_goes_on() {
    paused(async {
        let text = Chat::new().says("t", "/words many\n/say on").await;
        assert_eq!(text, "bad arguments: /words needs a number \non ");
    });
}

// Tools.

#[test]
fn tool_calls_have_ids_of_their_own() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/tool ls\n/tool ls");
        let events = chat.rest().await;
        let ids: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                AgentEvent::ToolStarted { tool_call_id, .. } => Some(("started", tool_call_id)),
                AgentEvent::ToolRunning { tool_call_id, .. } => Some(("running", tool_call_id)),
                AgentEvent::ToolDone { tool_call_id, .. } => Some(("done", tool_call_id)),
                _ => None,
            })
            .collect();
        let [(_, a), (_, b), (_, c), (_, d), (_, e), (_, f)] = ids[..] else { panic!("{ids:?}") };
        assert!(a == b && b == c && d == e && e == f && a != d);
    });
}

#[test]
fn a_tool_that_asks_offers_its_options_and_an_editable_input() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/ask-tool rm -r x");
        assert_eq!(in_brief(&chat.next().await), "started rm");
        let AgentEvent::ToolAsked { ask, .. } = chat.next().await else { panic!("no ask") };
        assert!(ask.editable);
        assert_eq!(ask.input.as_deref(), Some("-r x"));
        let options: Vec<_> = ask.options.iter().map(|option| (option.id.as_str(), option.kind.clone())).collect();
        let (approve, deny) = (ConfirmationOptionKind::Approve, ConfirmationOptionKind::Deny);
        assert_eq!(options, [("allow", approve.clone()), ("allow-always", approve), ("deny", deny)]);
        assert!(ask.options[1].label.contains("rm"));
        assert!(chat.is_silent().await);
    });
}

#[test]
fn an_approved_call_runs_with_its_input_or_with_the_edited_one() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/ask-tool rm x\n/ask-tool rm x");
        let call = chat.asked_tool().await;
        chat.approve(&call, "allow");
        assert_eq!(in_brief(&chat.next().await), "done x");
        let call = chat.asked_tool().await;
        chat.decide(&call, ToolDecision::Approve { option: None, edited_input: Some("y".to_owned()) });
        assert_eq!(brief(&chat.rest().await), ["done y", "complete"]);
    });
}

#[test]
fn a_denial_ends_the_call_and_the_script_goes_on() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/ask-tool rm x\n/say on");
        let call = chat.asked_tool().await;
        chat.decide(&call, ToolDecision::Deny { option: Some("deny".to_owned()), reason: Some("no".to_owned()) });
        assert_eq!(brief(&chat.rest().await), ["text on ", "complete"]);
    });
}

#[test]
fn allow_always_is_remembered_before_the_call_runs_and_names_one_tool() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/ask-tool rm x\n/ask-tool rm y\n/ask-tool ls z");
        let call = chat.asked_tool().await;
        chat.approve(&call, "allow-always");
        let mut events = Vec::new();
        while events.last().is_none_or(|last: &String| !last.starts_with("asked")) {
            events.push(in_brief(&chat.next().await));
        }
        let wanted =
            ["remember allow:rm true", "done x", "started rm", "running y", "done y", "started ls", "asked ls"];
        assert_eq!(events, wanted);
    });
}

#[test]
fn allow_always_holds_in_the_chats_that_run_and_after_a_restart() {
    paused(async {
        let agent = DemoAgent::default();
        let (mut first, mut second) = (Setup::default().start(&agent, "c"), Setup::default().start(&agent, "d"));
        first.prompt("t", "/ask-tool rm x");
        let call = first.asked_tool().await;
        first.approve(&call, "allow-always");
        first.rest().await;
        assert_eq!(second.turn("u", "/ask-tool rm y").await, ["started rm", "running y", "done y", "complete"]);

        let memory = BTreeMap::from([("allow:rm".to_owned(), Value::Bool(true))]);
        let mut later = Setup { memory, ..Setup::default() }.start(&DemoAgent::default(), "e");
        assert_eq!(later.turn("v", "/ask-tool rm z").await, ["started rm", "running z", "done z", "complete"]);
    });
}

// Questions.

#[test]
fn a_question_with_options_is_one_required_choice_and_its_answer_is_said() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/question Which one? | a | b c\n/say on");
        let request = chat.asked().await;
        let Some([ChatInputQuestion::SingleSelect(question)]) = request.questions.as_deref() else {
            panic!("{request:?}")
        };
        assert_eq!((question.message.as_str(), question.required), ("Which one?", Some(true)));
        assert_eq!(question.options.iter().map(|option| option.label.as_str()).collect::<Vec<_>>(), ["a", "b c"]);
        assert!(!request.id.starts_with("async:"));
        assert!(chat.is_silent().await);
        chat.respond(&request, ChatInputResponseKind::Accept, Some("b c"));
        assert_eq!(said(&chat.rest().await), "answered: b c \non ");
    });
}

#[test]
fn a_question_without_options_is_a_required_text() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/question Why?");
        let request = chat.asked().await;
        assert!(matches!(request.questions.as_deref(), Some([ChatInputQuestion::Text(q)]) if q.required == Some(true)));
        chat.respond(&request, ChatInputResponseKind::Accept, Some("because of that"));
        assert_eq!(said(&chat.rest().await), "answered: because of that ");
    });
}

#[test]
fn a_question_that_nobody_answers_says_how_it_ended() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/question a\n/question b\n/question c");
        for response in [ChatInputResponseKind::Decline, ChatInputResponseKind::Cancel, ChatInputResponseKind::Accept] {
            let request = chat.asked().await;
            chat.respond(&request, response, None);
        }
        assert_eq!(said(&chat.rest().await), "skipped ");
        chat.prompt("u", "/question a | b\n/question c");
        let request = chat.asked().await;
        chat.respond(&request, ChatInputResponseKind::Decline, None);
        assert_eq!(in_brief(&chat.next().await), "text declined ");
        let request = chat.asked().await;
        chat.respond(&request, ChatInputResponseKind::Cancel, None);
        assert_eq!(said(&chat.rest().await), "cancelled ");
    });
}

#[test]
fn a_turn_does_not_wait_for_an_async_question_and_says_its_answer_after_the_step_that_runs() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/question-async Which? | a | b\n/say on\n/sleep 1000\n/say off");
        let request = chat.asked().await;
        assert!(request.id.starts_with("async:"));
        let Some([ChatInputQuestion::SingleSelect(question)]) = request.questions.as_deref() else {
            panic!("{request:?}")
        };
        assert_eq!(question.required, Some(false));
        assert_eq!(in_brief(&chat.next().await), "text on ");
        settle().await;
        chat.respond(&request, ChatInputResponseKind::Accept, Some("a"));
        assert_eq!(said(&chat.rest().await), "\nanswered: a \noff ");
    });
}

#[test]
fn an_async_question_ends_with_its_turn() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/question-async Which? | a");
        let request = chat.asked().await;
        assert_eq!(brief(&chat.rest().await), ["complete"]);
        chat.respond(&request, ChatInputResponseKind::Accept, Some("a"));
        assert_eq!(chat.says("u", "/say x").await, "x ");
    });
}

// Stopping.

#[test]
fn a_cancel_stops_every_step_that_waits_at_once() {
    let scripts = [
        "/sleep 3600000",
        "/words 3 3600000",
        "/ask-tool rm x",
        "/question Why?",
        "/question Which? | a",
        "/say a\n/sleep 9000",
    ];
    for script in scripts {
        paused(async {
            let mut chat = Chat::new();
            let begun = Instant::now();
            chat.prompt("t", &format!("{script}\n/say never"));
            settle().await;
            chat.cancel("t");
            let events = brief(&chat.rest().await);
            assert_eq!(events.last().unwrap(), "cancelled t", "{script}");
            assert!(!events.contains(&"text never ".to_owned()), "{script}");
            assert_eq!(begun.elapsed(), Duration::ZERO, "{script}");
            assert_eq!(chat.turn("u", "/say next").await, ["text next ", "complete"], "{script}");
        });
    }
}

#[test]
fn late_answers_for_a_cancelled_turn_are_ignored() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/ask-tool rm x");
        let call = chat.asked_tool().await;
        chat.cancel("t");
        chat.rest().await;
        chat.approve(&call, "allow-always");
        chat.prompt("u", "/question Why?");
        let request = chat.asked().await;
        chat.cancel("u");
        chat.rest().await;
        chat.prompt("v", "/ask-tool rm y");
        let fresh = chat.asked_tool().await;
        chat.respond(&request, ChatInputResponseKind::Accept, Some("late"));
        chat.approve(&call, "allow");
        assert!(chat.is_silent().await);
        chat.approve(&fresh, "allow");
        assert_eq!(brief(&chat.rest().await), ["done y", "complete"]);
    });
}

#[test]
fn a_cancel_for_a_turn_that_has_ended_or_never_was_does_nothing() {
    paused(async {
        let mut chat = Chat::new();
        chat.turn("t", "/say a").await;
        chat.cancel("t");
        chat.cancel("nope");
        assert!(chat.is_silent().await);
        chat.prompt("u", "/sleep 100");
        chat.cancel("t");
        assert_eq!(brief(&chat.rest().await), ["complete"]);
    });
}

#[test]
fn close_ends_the_process_at_whatever_it_waits_for() {
    for script in ["", "/sleep 3600000", "/ask-tool rm x", "/question Why?", "/words 5 3600000"] {
        paused(async {
            let setup = Setup::default();
            let mut chat = setup.start(&DemoAgent::default(), "c");
            if !script.is_empty() {
                chat.prompt("t", script);
            }
            settle().await;
            while chat.events.try_recv().is_ok() {}
            chat.process.send(AgentInput::Close);
            assert!(chat.is_over().await, "{script}");
            chat.prompt("u", "/say x");
            assert!(chat.is_over().await, "{script}");
            assert_eq!(Arc::strong_count(&setup.conversation), 1, "{script}");
        });
    }
}

#[test]
fn a_process_whose_chat_is_gone_ends() {
    for script in ["", "/sleep 3600000", "/question Why?"] {
        paused(async {
            let setup = Setup::default();
            let mut chat = setup.start(&DemoAgent::default(), "c");
            if !script.is_empty() {
                chat.prompt("t", script);
            }
            settle().await;
            drop(chat.events);
            settle().await;
            assert_eq!(Arc::strong_count(&setup.conversation), 1, "{script}");
        });
    }
}

#[test]
fn dropping_its_handle_ends_the_process() {
    paused(async {
        let mut chat = Chat::new();
        settle().await;
        chat.process = Box::new(Deaf);
        assert!(chat.is_over().await);
    });
}

struct Deaf;

impl AgentProcess for Deaf {
    fn send(&mut self, _input: AgentInput) {}
}

// A chat that is behind.

#[test]
fn the_process_is_never_further_ahead_than_its_queue() {
    paused(async {
        let mut chat = Setup { capacity: Some(2), ..Setup::default() }.start(&DemoAgent::default(), "c");
        chat.prompt("t", "/words 100");
        for number in 1..=100 {
            settle().await;
            assert!(chat.events.len() <= 2);
            assert_eq!(in_brief(&chat.next().await), format!("text w{number} "));
        }
        assert_eq!(brief(&chat.rest().await), ["complete"]);
    });
}

#[test]
fn a_cancel_reaches_a_turn_that_waits_for_its_chat() {
    paused(async {
        let mut chat = Setup { capacity: Some(2), ..Setup::default() }.start(&DemoAgent::default(), "c");
        chat.prompt("t", "/words 100");
        settle().await;
        assert!(matches!(chat.events.try_recv(), Ok(AgentEvent::RewindPoint { .. })));
        settle().await;
        chat.cancel("t");
        settle().await;
        assert_eq!(brief(&chat.rest().await), ["text w1 ", "text w2 ", "cancelled t"]);
    });
}

#[test]
fn turns_that_begin_while_the_chat_is_behind_wait_and_can_be_cancelled() {
    paused(async {
        let mut chat = Setup { capacity: Some(1), ..Setup::default() }.start(&DemoAgent::default(), "c");
        chat.prompt("t", "/words 100");
        settle().await;
        assert!(matches!(chat.events.try_recv(), Ok(AgentEvent::RewindPoint { turn_id, .. }) if turn_id == "t"));
        settle().await;
        chat.cancel("t");
        chat.prompt("u", "/say no");
        chat.cancel("u");
        chat.prompt("v", "/say yes");
        settle().await;
        assert_eq!(brief(&chat.rest().await), ["text w1 ", "cancelled t"]);
        assert_eq!(brief(&chat.rest().await), ["cancelled u"]);
        assert_eq!(brief(&chat.rest().await), ["text yes ", "complete"]);
    });
}

#[test]
fn close_reaches_a_process_that_waits_for_its_chat() {
    paused(async {
        let setup = Setup { capacity: Some(1), ..Setup::default() };
        let mut chat = setup.start(&DemoAgent::default(), "c");
        chat.prompt("t", "/words 100");
        settle().await;
        chat.process.send(AgentInput::Close);
        settle().await;
        assert_eq!(Arc::strong_count(&setup.conversation), 1);
    });
}

// Failing.

#[test]
fn a_failure_ends_the_turn_with_what_it_was_told() {
    paused(async {
        let mut chat = Chat::new();
        assert_eq!(chat.turn("t", "/say a\n/fail it broke\n/say b").await, ["text a ", "failed demo it broke"]);
        assert_eq!(chat.turn("u", "/say c").await, ["text c ", "complete"]);
    });
}

#[test]
fn a_resumed_turn_goes_on_with_the_step_after_the_one_that_failed() {
    paused(async {
        let mut chat = Chat::new();
        let script = "/say a\n/fail-resumable one\n/say b\n/fail-resumable two\n/say c";
        chat.prompt("t", script);
        let events = chat.rest().await;
        assert_eq!(positions(&events), [1, 2]);
        assert_eq!(brief(&events), ["text a ", "failed demo one resumable"]);
        chat.resume("t", script);
        let events = chat.rest().await;
        assert_eq!(positions(&events), [3, 4]);
        assert_eq!(brief(&events), ["text b ", "failed demo two resumable"]);
        chat.resume("t", script);
        assert_eq!(brief(&chat.rest().await), ["text c ", "complete"]);
    });
}

#[test]
fn a_limit_ends_the_turn_with_the_time_when_it_lifts_and_the_turn_goes_on_after_it() {
    paused(async {
        let mut chat = Chat::new();
        let script = "/limit usage 5\n/limit overload\n/say b";
        assert_eq!(chat.turn("t", script).await, ["limited usage Some(6000)"]);
        chat.resume("t", script);
        assert_eq!(brief(&chat.rest().await), ["limited overload None"]);
        chat.resume("t", script);
        assert_eq!(brief(&chat.rest().await), ["text b ", "complete"]);
    });
}

#[test]
fn a_crash_is_the_last_that_a_process_says() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/say a\n/crash\n/say b");
        let events = chat.rest().await;
        assert_eq!((positions(&events), brief(&events)), (vec![1, 2], vec!["text a ".to_owned(), "gone".to_owned()]));
        chat.prompt("u", "/say c");
        assert!(chat.is_over().await);
    });
}

#[test]
fn a_new_process_goes_on_after_the_crash_that_it_finds_in_memory() {
    paused(async {
        let memory = BTreeMap::from([("position:ahp-chat:/c".to_owned(), json!({"turn": "t", "step": 2}))]);
        let setup = Setup { memory, ..Setup::default() };
        let mut chat = setup.start(&DemoAgent::default(), "c");
        chat.resume("t", "/say a\n/crash\n/say b");
        assert_eq!(brief(&chat.rest().await), ["text b ", "complete"]);

        let mut elsewhere = setup.start(&DemoAgent::default(), "d");
        elsewhere.resume("t", "/say a\n/crash\n/say b");
        assert_eq!(brief(&elsewhere.rest().await), ["text a ", "gone"]);
    });
}

#[test]
fn a_turn_taken_up_by_a_process_that_does_not_know_it_was_at_its_first_step() {
    paused(async {
        let mut chat = Chat::new();
        chat.resume("t", "/say a\n/say b");
        assert_eq!(brief(&chat.rest().await), ["text a ", "text \nb ", "complete"]);
    });
}

#[test]
fn each_step_that_is_done_is_kept_behind_what_it_said() {
    paused(async {
        let mut chat = Chat::new();
        chat.prompt("t", "/say a\n/tool ls x\n/say b");
        let events = chat.rest().await;
        let at = |step| events.iter().position(|event| position(event) == Some(step)).unwrap();
        let before = |end: usize| brief(&events[..end]);
        assert_eq!(before(at(1)), ["text a "]);
        assert_eq!(before(at(2)).last().unwrap(), "done x");
        assert_eq!(positions(&events), [1, 2]);
        let memory = BTreeMap::from([("position:ahp-chat:/c".to_owned(), json!({"turn": "t", "step": 1}))]);
        let mut next = Setup { memory, ..Setup::default() }.start(&DemoAgent::default(), "c");
        next.resume("t", "/say a\n/tool ls x\n/say b");
        assert_eq!(brief(&next.rest().await), ["started ls", "running x", "done x", "text b ", "complete"]);
    });
}

// What it was handed.

#[test]
fn context_says_the_blocks_as_they_were_handed_with_sizes_for_images() {
    paused(async {
        let mut chat = Chat::new();
        let mut handed = prompt("t", "/context", 0);
        for data in ["aGVsbG8=", "aGVsbG8h", "aA==", ""] {
            handed.blocks.push(PromptBlock::Image { mime_type: "image/png".to_owned(), data: data.to_owned() });
        }
        for mime_type in [None, Some("text/plain".to_owned())] {
            let (uri, name) = ("file:///a/b".to_owned(), "b".to_owned());
            handed.blocks.push(PromptBlock::ResourceLink { uri, name, mime_type });
        }
        chat.process.send(AgentInput::Prompt(handed));
        let wanted = concat!(
            r#"[{"type":"text","text":"/context"},"#,
            r#"{"type":"image","mimeType":"image/png","size":5},{"type":"image","mimeType":"image/png","size":6},"#,
            r#"{"type":"image","mimeType":"image/png","size":1},{"type":"image","mimeType":"image/png","size":0},"#,
            r#"{"type":"resource_link","uri":"file:///a/b","name":"b"},"#,
            r#"{"type":"resource_link","uri":"file:///a/b","name":"b","mimeType":"text/plain"}]"#,
        );
        assert_eq!(said(&chat.rest().await), wanted);
    });
}

#[test]
fn cwd_says_the_directories_it_was_started_with() {
    paused(async {
        assert_eq!(Chat::new().says("t", "/cwd").await, r#"["file:///a","file:///b"]"#);
    });
}

fn history(entries: &[(&str, &str, &str)]) -> String {
    let entries: Vec<_> = entries
        .iter()
        .flat_map(|(id, asked, answered)| {
            [
                format!(r#"{{"id":"{id}","role":"user","text":{}}}"#, json!(asked)),
                format!(r#"{{"id":"{id}","role":"assistant","text":{}}}"#, json!(answered)),
            ]
        })
        .collect();
    format!("[{}]", entries.join(","))
}

#[test]
fn history_begins_empty_and_counts_what_was_answered_even_when_it_was_stopped_or_failed() {
    paused(async {
        let mut chat = Chat::new();
        assert_eq!(chat.says("t1", "/history").await, "[]");
        chat.turn("t2", "hi").await;
        chat.turn("t3", "/say a\n/tool ls x\n/think b\n/say c").await;
        chat.prompt("t4", "/say partly\n/sleep 1000");
        chat.next().await;
        settle().await;
        chat.cancel("t4");
        chat.rest().await;
        chat.turn("t5", "/fail no").await;
        let wanted = history(&[
            ("t1", "/history", "[]"),
            ("t2", "hi", "You said: hi "),
            ("t3", "/say a\n/tool ls x\n/think b\n/say c", "a \n\nc "),
            ("t4", "/say partly\n/sleep 1000", "partly "),
            ("t5", "/fail no", ""),
        ]);
        assert_eq!(chat.says("t6", "/history").await, wanted);
    });
}

#[test]
fn history_of_a_new_process_begins_with_the_conversation_which_is_read_once_and_when_needed() {
    paused(async {
        let exchanges = vec![exchange("t1", "hi", "hello"), exchange("t2", "/fail-resumable x", "half")];
        let conversation = Arc::new(Before { exchanges, reads: AtomicUsize::new(0) });
        let setup = Setup { conversation: conversation.clone(), ..Setup::default() };
        let mut chat = setup.start(&DemoAgent::default(), "c");
        chat.turn("t3", "/say a").await;
        assert_eq!(conversation.reads.load(Ordering::Relaxed), 0);
        let wanted = [("t1", "hi", "hello"), ("t2", "/fail-resumable x", "half"), ("t3", "/say a", "a ")];
        assert_eq!(chat.says("t4", "/history").await, history(&wanted));
        chat.says("t5", "/history").await;
        assert_eq!(conversation.reads.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn history_leaves_out_the_turn_that_runs_and_joins_one_that_was_taken_up() {
    paused(async {
        let mut chat = Chat::new();
        let script = "/say a\n/fail-resumable x\n/say b\n/history";
        chat.turn("t", script).await;
        chat.resume("t", script);
        assert_eq!(said(&chat.rest().await), "b \n[]");
        assert_eq!(chat.says("u", "/history").await, history(&[("t", script, "a \n\nb \n[]")]));
    });
}

#[test]
fn history_joins_a_turn_that_another_process_began_and_this_one_took_up() {
    paused(async {
        let script = "/say a\n/crash\n/say b";
        let conversation =
            Arc::new(Before { exchanges: vec![exchange("t", script, "a ")], reads: AtomicUsize::new(0) });
        let memory = BTreeMap::from([("position:ahp-chat:/c".to_owned(), json!({"turn": "t", "step": 2}))]);
        let mut chat = Setup { conversation, memory, ..Setup::default() }.start(&DemoAgent::default(), "c");
        chat.resume("t", script);
        chat.rest().await;
        assert_eq!(chat.says("u", "/history").await, history(&[("t", script, "a \n\nb ")]));
    });
}

// Configuration.

#[test]
fn in_automatic_mode_no_tool_asks() {
    paused(async {
        let mut chat = config(json!({"mode": "auto"})).start(&DemoAgent::default(), "c");
        assert_eq!(chat.turn("t", "/ask-tool rm x").await, ["started rm", "running x", "done x", "complete"]);
    });
}

#[test]
fn a_change_of_configuration_holds_from_the_next_turn_on() {
    paused(async {
        let mut chat = Chat::new();
        let Value::Object(config) = json!({"verbosity": 0}) else { panic!("not an object") };
        assert_eq!(chat.turn("t", "/think a").await, ["reasoning a", "complete"]);
        chat.prompt("u", "/sleep 10\n/think b");
        settle().await;
        chat.process.send(AgentInput::Configured { config });
        assert_eq!(brief(&chat.rest().await), ["reasoning b", "complete"]);
        assert_eq!(chat.turn("v", "/think c").await, ["complete"]);
        chat.process.send(AgentInput::Configured { config: JsonObject::new() });
        assert_eq!(chat.turn("w", "/think d").await, ["reasoning d", "complete"]);
    });
}

#[test]
fn the_greeting_goes_before_the_first_answer_of_a_chat_only() {
    paused(async {
        let greeting = config(json!({"greeting": "good day"}));
        let mut chat = greeting.start(&DemoAgent::default(), "c");
        assert_eq!(chat.says("t", "/say a").await, "good day \na ");
        assert_eq!(chat.says("u", "/say b").await, "b ");
        let conversation = Arc::new(Before { exchanges: vec![exchange("t", "x", "y")], reads: AtomicUsize::new(0) });
        let mut later = Setup { conversation, ..greeting }.start(&DemoAgent::default(), "c");
        assert_eq!(later.says("v", "/say c").await, "c ");
    });
}
