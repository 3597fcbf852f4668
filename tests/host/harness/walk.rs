//! Two mirrored clients that do whatever chance says, at once and without waiting for each other.
//!
//! A [`Choice`] is read in the light of what its client knows then, so a choice may come too late: the host's refusal is
//! part of the walk. After it, [`Walk::settle`] ends what runs and compares everything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use ahp_types::state::{
    ChatInputQuestion, ChatState, PendingMessage, ResponsePart, SessionInputRequest, ToolCallConfirmationState,
};
use scrollback::access::Identity;
use scrollback::events::rows::{ChannelKind, ChannelRow};
use scrollback::events::{ServerSeq, Table};
use scrollback::projections::catalogue;
use scrollback::projections::verify::verify;
use serde_json::{Value, json};

use super::{Mirrored, ROOT, Random, TestHost, attaching, laws, message};

/// One step: who does what, and two numbers that settle the details.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub who: u64,
    pub what: u64,
    pub a: u64,
    pub b: u64,
}

impl Choice {
    pub fn random(random: &mut Random) -> Self {
        let mut next = || random.below(1 << 32);
        Self { who: next(), what: next(), a: next(), b: next() }
    }
}

/// What a step may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    Start,
    Cancel,
    Queue,
    Steer,
    TakeBackSteering,
    SendNow,
    Edit,
    TakeBack,
    Reorder,
    Draft,
    Title,
    Mark,
    Answer,
    CreateChat,
    DisposeChat,
    Configure,
    Sessions,
    Drop,
    DefaultChat,
    ActiveClient,
    Directory,
    Listen,
    Compare,
    Rewind,
    Clear,
    Fork,
    SideChat,
    ForkAt,
    Move,
    Attach,
    Visual,
    Resume,
    Restore,
    Erase,
}

/// How often each is done, of all the weights together. A new deed is a row here, an arm in [`Walk::step`], and what it does.
const DEEDS: &[(u64, Deed)] = &[
    (5, Deed::Start),
    (2, Deed::Cancel),
    (3, Deed::Queue),
    (2, Deed::Steer),
    (1, Deed::TakeBackSteering),
    (1, Deed::SendNow),
    (1, Deed::Edit),
    (1, Deed::TakeBack),
    (1, Deed::Reorder),
    (1, Deed::Draft),
    (1, Deed::Title),
    (2, Deed::Mark),
    (4, Deed::Answer),
    (1, Deed::CreateChat),
    (2, Deed::DisposeChat),
    (1, Deed::Configure),
    (1, Deed::Sessions),
    (3, Deed::Drop),
    (1, Deed::DefaultChat),
    (1, Deed::ActiveClient),
    (3, Deed::Directory),
    (1, Deed::Listen),
    (1, Deed::Compare),
    (2, Deed::Rewind),
    (1, Deed::Clear),
    (2, Deed::Fork),
    (1, Deed::SideChat),
    (1, Deed::ForkAt),
    (1, Deed::Move),
    (2, Deed::Attach),
    (1, Deed::Visual),
    (2, Deed::Resume),
    (2, Deed::Restore),
    (1, Deed::Erase),
];

impl Deed {
    /// All the weights together.
    pub fn weights() -> u64 {
        DEEDS.iter().map(|(weight, _)| weight).sum()
    }

    fn of(what: u64) -> Self {
        let mut left = what % Self::weights();
        let found = DEEDS.iter().find(|(weight, _)| {
            let here = left < *weight;
            left = left.saturating_sub(*weight);
            here
        });
        found.unwrap().1
    }
}

/// What the demo is asked to do.
const SCRIPTS: &[&str] = &[
    "/client-tool tests all\n/words 3",
    "hello there",
    "/words 40",
    "/words 30 1",
    "/think hmm\n/say well\n/tool cat whiskers\nthat is it",
    "/ask-tool rm everything",
    "/question Which? | red | blue",
    "/question Why?",
    "/question-async Later? | yes | no\n/words 5 2",
    "/activity digging\n/words 10 1\n/usage 10 20",
    "/notice careful\n/fail broken",
    "/fail-resumable try again",
    "/background build 5\nstarted",
    "/sleep 30000",
    "/ask-tool one 1\n/question Go on? | yes | no\n/ask-tool two 2",
    "/compact 900 90\n/crash",
    "/visual A-page <p>hi</p>\n/say shown",
    "/subagent /words 9 1 ;; /subagent /ask-tool deep down ;; /fail never\nback",
    "/subagent /say left behind ;; /background watch 20 ;; /words 20 2\n/fail in vain",
    "/words 5 1\n/await-steering\n/words 3\n/await-steering",
    "",
];

/// Directories that are there on any machine.
const DIRECTORIES: &[&str] = &["file:///usr", "file:///tmp", "file:///etc", "file:///usr/bin", "file:///"];

/// Who asks for what clients cannot.
const OPERATOR: &str = "root:walk";

/// A session or a chat that is on no list any more.
struct Gone {
    uri: String,
    /// The turns that a chat had then.
    turns: Option<Value>,
}

/// What is to be erased: it may be there when the host is back, or not.
struct Doomed {
    uri: String,
    /// The chats that go with a session.
    chats: Vec<String>,
}

/// The walk so far.
pub struct Walk {
    pub host: TestHost,
    pub mirrors: Vec<Mirrored>,
    sessions: Vec<String>,
    names: u64,
    pub drops: u64,
    pub compared: u64,
    /// Turns that somebody went back to or forked at, with their chats.
    ever: Vec<(String, String)>,
    gone: Vec<Gone>,
    doomed: Option<Doomed>,
    /// The sessions and chats that were erased.
    erased: BTreeSet<String>,
    /// What the log told of turns when something was last erased.
    told: laws::Paths,
    /// The chat that each client attached something in last.
    attached: [Option<String>; 2],
    /// What was recorded when something was last erased.
    ever_recorded: BTreeMap<String, u64>,
    /// How often each deed was tried.
    pub done: BTreeMap<Deed, u64>,
    /// How often each command was served.
    pub served: BTreeMap<&'static str, u64>,
}

impl Walk {
    /// Two clients of `host`, and a session that both follow.
    pub async fn begin(host: TestHost) -> Self {
        let mut mirrors = Vec::new();
        for id in ["ada", "bob"] {
            mirrors.push(Mirrored::connect(host.address, id, &[ROOT]).await);
        }
        let mut walk = Self {
            host,
            mirrors,
            sessions: Vec::new(),
            names: 0,
            drops: 0,
            compared: 0,
            ever: Vec::new(),
            gone: Vec::new(),
            doomed: None,
            erased: BTreeSet::new(),
            told: laws::Paths::new(),
            attached: [None, None],
            ever_recorded: BTreeMap::new(),
            done: BTreeMap::new(),
            served: BTreeMap::new(),
        };
        walk.create_session(0, 0).await;
        walk
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    async fn create_session(&mut self, who: usize, which: u64) {
        let uri = self.name("ahp-session:/s");
        let mut params = json!({ "channel": uri });
        let directories: Vec<String> = DIRECTORIES.iter().map(ToString::to_string).collect();
        params["workingDirectories"] = json!(some(&directories, which));
        params.as_object_mut().unwrap().retain(|_, value| *value != json!([]));
        assert!(self.ask(who, "createSession", params).await, "{uri} is not created");
        self.sessions.push(uri);
    }

    /// Follows what this client has heard of and does not follow yet.
    async fn follow(&mut self, who: usize) {
        for session in self.sessions.clone() {
            let mirror = &mut self.mirrors[who];
            if !mirror.channels.contains(&session) {
                mirror.follow(&session).await;
            }
            let listed: Vec<String> = match mirror.session(&session) {
                Some(state) => state.chats.iter().map(|chat| chat.resource.clone()).collect(),
                None => continue,
            };
            for chat in listed {
                if !mirror.channels.contains(&chat) {
                    mirror.follow(&chat).await;
                }
            }
        }
    }

    /// Takes one step.
    pub async fn step(&mut self, choice: Choice) {
        let who = (choice.who % 2) as usize;
        self.follow(who).await;
        let mut chats = self.mirrors[who].chats();
        if chats.is_empty() {
            // It has not heard yet of the chats that are left.
            self.mirrors[who].sync().await;
            self.follow(who).await;
            chats = self.mirrors[who].chats();
        }
        let chat = chats[(choice.a % chats.len() as u64) as usize].clone();
        let session = self.sessions[(choice.b % self.sessions.len() as u64) as usize].clone();
        let deed = Deed::of(choice.what);
        *self.done.entry(deed).or_default() += 1;
        match deed {
            Deed::Start => self.start(who, &chat, choice.b).await,
            Deed::Cancel => self.cancel(who, &chat).await,
            Deed::Steer => self.steer(who, &chat, choice.b).await,
            Deed::TakeBackSteering => self.take_back_steering(who, &chat).await,
            Deed::Queue => self.queue(who, &chat, choice.b).await,
            Deed::Edit => self.edit(who, &chat, choice.b).await,
            Deed::TakeBack => self.take_back(who, &chat, choice.b).await,
            Deed::SendNow => self.send_now(who, &chat, choice.b).await,
            Deed::Reorder => self.reorder(who, &chat, choice.b).await,
            Deed::Draft => self.draft(who, &chat, choice.b).await,
            Deed::Title => self.title(who, if choice.b.is_multiple_of(2) { &chat } else { &session }).await,
            Deed::Mark => self.mark(who, if choice.b.is_multiple_of(2) { &chat } else { &session }, choice).await,
            Deed::Answer => self.answer(who, choice).await,
            Deed::CreateChat => self.create_chat(who, &session, choice.b).await,
            Deed::DisposeChat => self.dispose_chat(who, &chat).await,
            Deed::Configure => self.configure(who, &session, choice).await,
            Deed::Sessions => self.sessions_come_and_go(who, choice).await,
            Deed::Drop => self.drop_out(who).await,
            Deed::DefaultChat => self.default_chat(who, &chat).await,
            Deed::ActiveClient => self.active_client(who, &session, choice).await,
            Deed::Directory => self.directory(who, &chat, &session, choice).await,
            Deed::Listen => self.mirrors[who].sync().await,
            Deed::Compare => self.compare(who, choice).await,
            Deed::Rewind => self.rewind(who, &chat, choice.b).await,
            Deed::Clear => self.clear(who, &chat, choice.b).await,
            Deed::Fork => self.fork(who, &chat, choice.b).await,
            Deed::SideChat => self.side_chat(who, &chat, choice.b).await,
            Deed::ForkAt => self.fork_at(who, &chat, choice.b).await,
            Deed::Move => self.move_chat(who, &chat, &session, choice).await,
            Deed::Attach => self.attach(who, &chat, choice).await,
            Deed::Visual => self.visual(who, &chat, choice.b).await,
            Deed::Resume => self.resume(who, &chat).await,
            Deed::Restore => self.restore(who, choice.a).await,
            Deed::Erase => self.erase(&chat, &session, choice).await,
        }
    }

    /// Asks; a refusal is part of the walk too. Whether it was served.
    async fn ask(&mut self, who: usize, method: &'static str, params: Value) -> bool {
        let served = self.mirrors[who].client.ask(method, params).await.is_ok();
        *self.served.entry(method).or_default() += u64::from(served);
        served
    }

    async fn dispatch(&mut self, who: usize, channel: &str, action: Value) -> i64 {
        self.mirrors[who].client.dispatch(channel, action).await
    }

    async fn start(&mut self, who: usize, chat: &str, script: u64) {
        let turn = self.name("t");
        let text = SCRIPTS[(script % SCRIPTS.len() as u64) as usize];
        self.mirrors[who].client.say(chat, &turn, text).await;
    }

    async fn cancel(&mut self, who: usize, chat: &str) {
        let turn = self.mirrors[who].chat(chat).and_then(|chat| chat.active_turn.as_ref()).map(|turn| turn.id.clone());
        let turn = turn.unwrap_or_else(|| "none".into());
        let action = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 3 });
        self.dispatch(who, chat, action).await;
    }

    async fn queue(&mut self, who: usize, chat: &str, script: u64) {
        let id = self.name("q");
        let text = SCRIPTS[(script % SCRIPTS.len() as u64) as usize];
        let action = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message(text) });
        self.dispatch(who, chat, action).await;
    }

    async fn steer(&mut self, who: usize, chat: &str, which: u64) {
        let id = match which % 3 {
            // One that waits already is edited, or moved.
            0 => self.steering(who, chat),
            1 if which.is_multiple_of(2) => self.one_queued(who, chat, which),
            _ => self.name("s"),
        };
        let text = self.name("steer ");
        let action =
            json!({ "type": "chat/pendingMessageSet", "kind": "steering", "id": id, "message": message(&text) });
        self.dispatch(who, chat, action).await;
    }

    async fn take_back_steering(&mut self, who: usize, chat: &str) {
        let id = self.steering(who, chat);
        self.dispatch(who, chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "steering", "id": id })).await;
    }

    async fn send_now(&mut self, who: usize, chat: &str, which: u64) {
        let params = json!({ "channel": chat, "id": self.one_queued(who, chat, which) });
        // Refused where it went out meanwhile.
        self.ask(who, "x-scrollback/sendNow", params).await;
    }

    fn steering(&self, who: usize, chat: &str) -> String {
        let slot = self.mirrors[who].chat(chat).and_then(|chat| chat.steering_message.as_ref());
        slot.map_or_else(|| "s0".into(), |message| message.id.clone())
    }

    fn queued(&self, who: usize, chat: &str) -> Vec<PendingMessage> {
        let chat = self.mirrors[who].chat(chat);
        chat.into_iter().flat_map(|chat| chat.queued_messages.iter().flatten().cloned()).collect()
    }

    fn one_queued(&self, who: usize, chat: &str, which: u64) -> String {
        let queued = self.queued(who, chat);
        let at = which % (queued.len() as u64 + 1);
        queued.get(at as usize).map_or_else(|| "q1".into(), |message| message.id.clone())
    }

    async fn edit(&mut self, who: usize, chat: &str, which: u64) {
        let id = self.one_queued(who, chat, which);
        let text = self.name("edited ");
        let action = json!({ "type": "chat/pendingMessageSet", "kind": "queued", "id": id, "message": message(&text) });
        self.dispatch(who, chat, action).await;
    }

    async fn take_back(&mut self, who: usize, chat: &str, which: u64) {
        let id = self.one_queued(who, chat, which);
        self.dispatch(who, chat, json!({ "type": "chat/pendingMessageRemoved", "kind": "queued", "id": id })).await;
    }

    async fn reorder(&mut self, who: usize, chat: &str, which: u64) {
        let mut order: Vec<String> = self.queued(who, chat).into_iter().map(|message| message.id).collect();
        order.reverse();
        // Some are left out: the host broadcasts every id all the same.
        order.truncate(1 + (which % 3) as usize);
        self.dispatch(who, chat, json!({ "type": "chat/queuedMessagesReordered", "order": order })).await;
    }

    async fn draft(&mut self, who: usize, chat: &str, which: u64) {
        let action = match which % 3 {
            0 => json!({ "type": "chat/draftChanged" }),
            _ => json!({ "type": "chat/draftChanged", "draft": message(&self.name("draft ")) }),
        };
        self.dispatch(who, chat, action).await;
    }

    async fn title(&mut self, who: usize, channel: &str) {
        let title = self.name("title ");
        self.dispatch(who, channel, json!({ "type": "session/titleChanged", "title": title })).await;
    }

    async fn mark(&mut self, who: usize, channel: &str, choice: Choice) {
        let kind = if channel.starts_with("ahp-chat:") { "chat" } else { "session" };
        let on = choice.a.is_multiple_of(2);
        let action = match choice.a % 4 {
            0 | 1 => json!({ "type": format!("{kind}/isReadChanged"), "isRead": on }),
            _ => json!({ "type": format!("{kind}/isArchivedChanged"), "isArchived": on }),
        };
        self.dispatch(who, channel, action).await;
    }

    /// The ids of a chat's turns, as far as the client knows: those that ended, and the one that runs.
    fn turns(&self, who: usize, chat: &str) -> Vec<String> {
        let chat = self.mirrors[who].chat(chat);
        let ended = chat.into_iter().flat_map(|chat| chat.turns.iter().map(|turn| turn.id.clone()));
        let running = chat.and_then(|chat| chat.active_turn.as_ref()).map(|turn| turn.id.clone());
        ended.chain(running).collect()
    }

    /// One of them, or one that was never there.
    fn one_turn(&self, who: usize, chat: &str, which: u64) -> String {
        let turns = self.turns(who, chat);
        let at = which % (turns.len() as u64 + 1);
        turns.get(at as usize).cloned().unwrap_or_else(|| "never".into())
    }

    /// Takes up the last turn, which may have failed for good, or well.
    async fn resume(&mut self, who: usize, chat: &str) {
        let last = self.mirrors[who].chat(chat).and_then(|chat| chat.turns.last()).map(|turn| turn.id.clone());
        let action = json!({ "type": "chat/turnResume", "turnId": last.unwrap_or_else(|| "never".into()) });
        self.dispatch(who, chat, action).await;
    }

    async fn rewind(&mut self, who: usize, chat: &str, which: u64) {
        let turn = self.one_turn(who, chat, which);
        self.ever.push((chat.to_owned(), turn.clone()));
        self.dispatch(who, chat, json!({ "type": "chat/truncated", "turnId": turn })).await;
    }

    async fn clear(&mut self, who: usize, chat: &str, which: u64) {
        let params = json!({ "channel": chat, "force": which.is_multiple_of(2) });
        self.ask(who, "x-scrollback/clear", params).await;
    }

    /// The session that has this chat, as the client knows.
    fn session_of(&self, who: usize, chat: &str) -> Option<String> {
        let of = self.sessions.iter().find(|session| {
            let state = self.mirrors[who].session(session);
            state.is_some_and(|state| state.chats.iter().any(|listed| listed.resource == chat))
        });
        of.cloned()
    }

    async fn made_of(&mut self, who: usize, chat: &str, mut source: Value, script: u64) {
        let Some(session) = self.session_of(who, chat) else { return };
        let new = self.name("ahp-chat:/c");
        source["chat"] = json!(chat);
        let mut params = json!({ "channel": session, "chat": new, "source": source });
        if script.is_multiple_of(3) {
            params["initialMessage"] = message(SCRIPTS[(script % SCRIPTS.len() as u64) as usize]);
        }
        self.ask(who, "createChat", params).await;
    }

    async fn fork(&mut self, who: usize, chat: &str, which: u64) {
        let turn = self.one_turn(who, chat, which);
        self.ever.push((chat.to_owned(), turn.clone()));
        self.made_of(who, chat, json!({ "kind": "fork", "turnId": turn }), which).await;
    }

    async fn side_chat(&mut self, who: usize, chat: &str, which: u64) {
        let turn = self.one_turn(who, chat, which);
        let mut source = json!({ "kind": "sideChat", "turnId": turn });
        if which.is_multiple_of(2) {
            source["selection"] = json!({ "text": "  a few words " });
        }
        self.made_of(who, chat, source, which).await;
    }

    /// At a turn that somebody went back to or forked at once, which may be dropped by now, or at a number.
    async fn fork_at(&mut self, who: usize, chat: &str, which: u64) {
        let new = self.name("ahp-chat:/c");
        let known = self.ever.get((which % (self.ever.len() as u64 + 1)) as usize).cloned();
        let params = match known {
            Some((chat, turn)) => json!({ "channel": chat, "chat": new, "turnId": turn }),
            None => json!({ "channel": chat, "chat": new, "serverSeq": self.mirrors[who].last_seen }),
        };
        self.ask(who, "x-scrollback/forkAt", params).await;
    }

    /// To the front, behind another chat, or into a session of its own.
    async fn move_chat(&mut self, who: usize, chat: &str, session: &str, choice: Choice) {
        let mut destination = json!({ "kind": "session", "session": session });
        let there = self.mirrors[who].session(session).map(|session| session.chats.clone()).unwrap_or_default();
        match choice.a % 4 {
            0 if self.sessions.len() < 4 => destination = json!({ "kind": "newSession" }),
            1 => {}
            _ => {
                let after = there.get((choice.a / 4 % (there.len() as u64 + 1)) as usize);
                destination["after"] = json!(after.map(|chat| chat.resource.as_str()));
                destination.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            }
        }
        let params = json!({ "channel": chat, "destination": destination });
        let Ok(moved) = self.mirrors[who].client.ask("moveChat", params).await else { return };
        *self.served.entry("moveChat").or_default() += 1;
        let session = moved["session"].as_str().unwrap().to_owned();
        if !self.sessions.contains(&session) {
            self.sessions.push(session);
        }
    }

    /// A message with a file or another chat in it, at once or queued.
    async fn attach(&mut self, who: usize, chat: &str, choice: Choice) {
        let chats = self.mirrors[who].chats();
        let other = &chats[(choice.b % chats.len() as u64) as usize];
        let file = attaching::embedded("notes", "text/plain", format!("bytes {}", choice.a).as_bytes());
        let attachment = match choice.a % 3 {
            0 => json!([file]),
            1 => json!([{ "type": "chat", "label": "there", "resource": other }]),
            _ => json!([file, { "type": "chat", "label": "here", "resource": chat }]),
        };
        let message = attaching::with("/context\n/say read", attachment);
        let action = match choice.b % 2 {
            0 => attaching::starts(&self.name("t"), &message),
            _ => attaching::queues(&self.name("q"), &message),
        };
        self.dispatch(who, chat, action).await;
        self.attached[who] = Some(chat.to_owned());
    }

    async fn visual(&mut self, who: usize, chat: &str, which: u64) {
        let shown = self.mirrors[who].chat(chat).and_then(|chat| serde_json::to_value(&chat.canvases).ok());
        let shown = shown.as_ref().and_then(|canvases| canvases[0]["id"].as_str().map(str::to_owned));
        match shown {
            Some(id) if which.is_multiple_of(3) => {
                self.ask(who, "x-scrollback/removeVisual", json!({ "channel": chat, "id": id })).await;
            }
            _ => {
                let params = json!({ "channel": chat, "title": self.name("page "), "html": "<p>hello</p>" });
                self.ask(who, "x-scrollback/publishVisual", params).await;
            }
        }
    }

    /// Answers one of the things that wait, as its session lists them.
    async fn answer(&mut self, who: usize, choice: Choice) {
        let mirror = &self.mirrors[who];
        let waiting = self.sessions.iter().filter_map(|session| mirror.session(session));
        let waiting: Vec<SessionInputRequest> =
            waiting.flat_map(|session| session.input_needed.iter().flatten().cloned()).collect();
        if waiting.is_empty() {
            return;
        }
        let (chat, action) = match &waiting[(choice.a % waiting.len() as u64) as usize] {
            SessionInputRequest::ChatInput(input) => (input.chat.clone(), answer(&input.request, choice)),
            SessionInputRequest::ToolConfirmation(ask) => {
                let ToolCallConfirmationState::PendingConfirmation(call) = &ask.tool_call else { return };
                (ask.chat.clone(), decision(&ask.turn_id, &call.tool_call_id, choice))
            }
            SessionInputRequest::ToolClientExecution(call) => {
                let result = json!({ "success": choice.b.is_multiple_of(2), "pastTenseMessage": "ran" });
                let action = json!({ "type": "chat/toolCallComplete", "turnId": call.turn_id,
                    "toolCallId": call.tool_call.tool_call_id, "result": result });
                (call.chat.clone(), action)
            }
            _ => return,
        };
        self.dispatch(who, &chat, action).await;
    }

    /// The directories of a session.
    fn directories(&self, who: usize, session: &str) -> Vec<String> {
        let session = self.mirrors[who].session(session);
        session.into_iter().flat_map(|session| session.working_directories.iter().flatten().cloned()).collect()
    }

    /// A session's directories change, which may take some from its chats; or a chat's do, among those of its session.
    async fn directory(&mut self, who: usize, chat: &str, session: &str, choice: Choice) {
        let new = DIRECTORIES[(choice.a % DIRECTORIES.len() as u64) as usize].to_owned();
        let one = |of: &[String]| of.get((choice.a % (of.len() as u64 + 1)) as usize).unwrap_or(&new).clone();
        let there = one(&self.directories(who, session));
        let home = self.session_of(who, chat).unwrap_or_default();
        let own = self.mirrors[who].chat(chat).and_then(|chat| chat.working_directories.clone());
        let above = self.directories(who, &home);
        let (channel, action) = match choice.b % 8 {
            0 | 1 => (chat, json!({ "type": "chat/workingDirectorySet", "directory": one(&above) })),
            2 => {
                let directory = one(&own.unwrap_or(above));
                (chat, json!({ "type": "chat/workingDirectoryRemoved", "directory": directory }))
            }
            3 => (session, json!({ "type": "session/workingDirectoryRemoved", "directory": there })),
            4 | 5 => {
                (session, json!({ "type": "session/workingDirectoryReplaced", "directory": there, "replacement": new }))
            }
            _ => (session, json!({ "type": "session/workingDirectorySet", "directory": new })),
        };
        self.dispatch(who, channel, action).await;
    }

    async fn create_chat(&mut self, who: usize, session: &str, script: u64) {
        let chat = self.name("ahp-chat:/c");
        let mut params = json!({ "channel": session, "chat": chat });
        let directories = some(&self.directories(who, session), script / 4);
        if !directories.is_empty() {
            params["workingDirectories"] = json!(directories);
        }
        if script.is_multiple_of(2) {
            params["initialMessage"] = message(SCRIPTS[(script % SCRIPTS.len() as u64) as usize]);
        }
        // Refused where the session is gone.
        self.ask(who, "createChat", params).await;
    }

    async fn dispose_chat(&mut self, who: usize, chat: &str) {
        // Refused for the last chat of a session.
        if self.ask(who, "disposeChat", json!({ "channel": chat })).await {
            let turns = Some(self.turns_in_the_log(chat));
            self.gone.push(Gone { uri: chat.to_owned(), turns });
            self.follows_no_more(|channel| channel == chat);
        }
    }

    /// The turns of a chat, open or closed.
    fn turns_in_the_log(&self, chat: &str) -> Value {
        let state = self.host.host.state_at(&Identity::root("test"), chat, None).unwrap();
        let state: Value = serde_json::from_slice(&state.state).unwrap();
        state["turns"].clone()
    }

    /// Clients that hear of an end follow what ended no more.
    fn follows_no_more(&mut self, ended: impl Fn(&str) -> bool) {
        for mirror in &mut self.mirrors {
            mirror.channels.retain(|channel| !ended(channel));
        }
    }

    /// What was closed or disposed is back: it has the turns that it had, and both clients may follow it again.
    async fn restore(&mut self, who: usize, which: u64) {
        if self.gone.is_empty() {
            return;
        }
        let at = (which % self.gone.len() as u64) as usize;
        let uri = self.gone[at].uri.clone();
        // What is sent already is for what is gone.
        for mirror in &mut self.mirrors {
            mirror.sync().await;
        }
        if let Err(refused) = self.host.host.restore(OPERATOR, &uri).await {
            assert_eq!(refused.code, "disposed", "{uri}");
            return;
        }
        *self.served.entry("log restore").or_default() += 1;
        let gone = self.gone.remove(at);
        assert!(self.mirrors[who].follow(&uri).await, "{uri} is not back");
        match gone.turns {
            None => self.sessions.push(uri),
            Some(turns) => {
                let held = json!(self.mirrors[who].chat(&uri).unwrap().turns);
                let same = turns.as_array().unwrap().iter().zip(held.as_array().unwrap()).all(|(l, r)| l == r);
                assert!(same && turns.as_array().unwrap().len() <= held.as_array().unwrap().len(), "{turns} is {held}");
            }
        }
    }

    /// What is gone is erased, or sometimes what is open.
    async fn erase(&mut self, chat: &str, session: &str, choice: Choice) {
        let uri = match choice.a % 8 {
            0 if self.sessions.len() > 1 => session.to_owned(),
            1 => chat.to_owned(),
            _ if self.gone.is_empty() => return,
            _ => self.gone[(choice.b % self.gone.len() as u64) as usize].uri.clone(),
        };
        let doomed = self.doom(uri);
        match self.host.host.erase(OPERATOR, &doomed.uri).await {
            Ok(_) => {
                *self.served.entry("log erase").or_default() += 1;
                self.erased(doomed);
            }
            // Of a session with one chat that is erased itself.
            Err(refused) => assert_eq!(refused.code, "last-chat", "{}", doomed.uri),
        }
    }

    /// Notes what the log tells of what is to be erased: forks of it have it still.
    fn doom(&mut self, uri: String) -> Doomed {
        let store = self.host.host.store();
        self.told = laws::branches(store.as_ref(), &self.told).paths;
        self.ever_recorded = self.recorded();
        let chats = self.chats_of(&uri);
        Doomed { uri, chats }
    }

    /// Every chat that is in a session, open or closed.
    fn chats_of(&self, session: &str) -> Vec<String> {
        let store = self.host.host.store();
        let row = catalogue::channel(store.as_ref(), session).unwrap().unwrap();
        let mut chats = Vec::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            let listed: ChannelRow = serde_json::from_slice(value).unwrap();
            if listed.session == row.id && listed.kind == ChannelKind::Chat {
                chats.push(String::from_utf8(key.to_vec()).unwrap());
            }
            ControlFlow::Continue(())
        };
        store.scan_rows(Table::ChannelByUri, &[], None, visit).unwrap();
        chats
    }

    fn erased(&mut self, doomed: Doomed) {
        let Doomed { uri, chats } = doomed;
        self.follows_no_more(|channel| channel == uri || chats.iter().any(|c| c == channel));
        self.sessions.retain(|session| *session != uri);
        self.erased.insert(uri);
        self.erased.extend(chats);
        let erased = &self.erased;
        self.gone.retain(|gone| !erased.contains(&gone.uri));
    }

    /// Begins to erase what is gone on a host whose store fails now or in a moment: some of it may be carried out, or all.
    pub async fn erase_at_the_end(&mut self, which: u64) {
        if self.gone.is_empty() {
            return;
        }
        let doomed = self.doom(self.gone[(which % self.gone.len() as u64) as usize].uri.clone());
        let _ = self.host.host.erase(OPERATOR, &doomed.uri).await;
        self.doomed = Some(doomed);
    }

    async fn configure(&mut self, who: usize, session: &str, choice: Choice) {
        let (channel, action) = match choice.a % 3 {
            0 => (
                ROOT,
                json!({ "type": "root/configChanged", "config": { "deferredTitleGeneration": choice.b.is_multiple_of(2) } }),
            ),
            1 => (session, json!({ "type": "session/configChanged", "config": { "verbosity": choice.b % 2 } })),
            _ => {
                let mode = ["interactive", "auto"][(choice.b % 2) as usize];
                (session, json!({ "type": "session/configChanged", "config": { "mode": mode } }))
            }
        };
        self.dispatch(who, channel, action).await;
    }

    async fn sessions_come_and_go(&mut self, who: usize, choice: Choice) {
        if self.sessions.len() < 3 {
            return self.create_session(who, choice.b).await;
        }
        let session = self.sessions.remove((choice.a % self.sessions.len() as u64) as usize);
        let gone = self.ask(who, "disposeSession", json!({ "channel": session })).await;
        assert!(gone, "{session} is not disposed");
        let chats = self.chats_of(&session);
        self.follows_no_more(|channel| channel == session || chats.iter().any(|chat| chat == channel));
        self.gone.push(Gone { uri: session, turns: None });
    }

    async fn drop_out(&mut self, who: usize) {
        // What it attached is worked on without it, and would come into the chat when all seems to be quiet.
        if let Some(chat) = self.attached[who].take() {
            let mirror = &mut self.mirrors[who];
            if mirror.channels.contains(&chat) || mirror.follow(&chat).await {
                self.decided_in(who, &chat).await;
            }
        }
        self.drop_and_come_back(who).await;
    }

    async fn drop_and_come_back(&mut self, who: usize) {
        let address = self.host.address;
        self.mirrors[who].reconnect(address).await;
        self.drops += 1;
    }

    async fn default_chat(&mut self, who: usize, chat: &str) {
        if let Some(session) = self.session_of(who, chat) {
            let action = json!({ "type": "session/defaultChatChanged", "defaultChat": chat });
            self.dispatch(who, &session, action).await;
        }
    }

    async fn active_client(&mut self, who: usize, session: &str, choice: Choice) {
        let id = self.mirrors[who].id.clone();
        let action = match choice.a % 2 {
            0 => json!({ "type": "session/activeClientRemoved", "clientId": id }),
            _ => json!({ "type": "session/activeClientSet", "activeClient": { "clientId": id,
                "tools": [{ "name": "tests" }] } }),
        };
        self.dispatch(who, session, action).await;
    }

    async fn compare(&mut self, who: usize, choice: Choice) {
        let channels: Vec<String> = self.mirrors[who].channels.iter().cloned().collect();
        let channel = &channels[(choice.a % channels.len() as u64) as usize];
        if self.mirrors[who].compare(channel).await.is_some() {
            self.compared += 1;
        }
    }

    /// Waits until the host has decided on all that the clients sent.
    async fn decided(&mut self) {
        for who in 0..self.mirrors.len() {
            for chat in self.mirrors[who].chats() {
                self.decided_in(who, &chat).await;
            }
        }
    }

    /// Waits until the host has decided on all that this client sent to a chat.
    async fn decided_in(&mut self, who: usize, chat: &str) {
        if self.mirrors[who].compare(chat).await.is_some() {
            let draft = message(&self.name("last draft "));
            let seq = self.dispatch(who, chat, json!({ "type": "chat/draftChanged", "draft": draft })).await;
            self.mirrors[who].until_echo(seq).await;
        }
    }

    /// Cancels what runs and waits until nothing does.
    pub async fn settle(&mut self) {
        self.decided().await;
        self.follow(0).await;
        loop {
            self.mirrors[0].sync().await;
            self.follow(0).await;
            let chats = self.mirrors[0].chats();
            let running: Vec<(String, String)> = chats.iter().filter_map(|chat| self.running(chat)).collect();
            for (chat, turn) in &running {
                let action = json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": 0 });
                let seq = self.dispatch(0, chat, action).await;
                self.mirrors[0].until_echo(seq).await;
            }
            if !running.is_empty() {
                continue;
            }
            if !chats.iter().any(|chat| has_background(self.mirrors[0].chat(chat))) {
                return;
            }
            self.mirrors[0].next().await;
        }
    }

    fn running(&self, chat: &str) -> Option<(String, String)> {
        let turn = self.mirrors[0].chat(chat)?.active_turn.as_ref()?;
        Some((chat.to_owned(), turn.id.clone()))
    }

    /// What of it came into the log: how often each type of action was there at once.
    pub fn recorded(&self) -> BTreeMap<String, u64> {
        let mut types: BTreeMap<String, u64> = BTreeMap::new();
        let visit = &mut |record: scrollback::events::Record| {
            let said: Value = serde_json::from_slice(&record.action).unwrap();
            *types.entry(said["type"].as_str().unwrap().to_owned()).or_default() += 1;
            ControlFlow::Continue(())
        };
        self.host.host.store().scan(0, ServerSeq::MAX, visit).unwrap();
        for (kind, before) in &self.ever_recorded {
            let now = types.entry(kind.clone()).or_default();
            *now = (*now).max(*before);
        }
        types
    }

    /// Settles; then both mirrors, the snapshots, the fold of the log and what stands beside it have to be the same.
    pub async fn finish(&mut self) {
        self.settle().await;
        for who in 0..self.mirrors.len() {
            self.mirrors[who].sync().await;
            self.follow(who).await;
            let channels: BTreeSet<String> = self.mirrors[who].channels.clone();
            for channel in channels {
                let Some(snapshot) = self.mirrors[who].compare(&channel).await else { continue };
                // A program may have ended since: the fold is asked for as of the snapshot.
                let at = snapshot["fromSeq"].as_u64();
                let state = self.host.host.state_at(&Identity::root("test"), &channel, at).unwrap();
                let folded: Value = serde_json::from_slice(&state.state).unwrap();
                assert_eq!(snapshot["state"], folded, "{channel}: the log folds to another state");
                assert_eq!(snapshot["fromSeq"], json!(state.from_seq), "{channel}");
                self.compared += 1;
            }
        }
        let chats = self.mirrors[0].chats();
        assert_eq!(chats, self.mirrors[1].chats());
        for chat in chats {
            self.idle(&chat);
        }
        let store = self.host.host.store();
        let told = laws::branches(store.as_ref(), &self.told).chats;
        for chat in self.mirrors[0].chats() {
            let held = self.mirrors[0].chat(&chat).unwrap().turns.iter().map(|turn| &turn.id);
            assert!(held.clone().eq(&told[&chat]), "{chat} has {held:?}, and the log tells of {:?}", told[&chat]);
        }
        let running = laws::check_after_erasures(store.as_ref(), &self.erased);
        assert_eq!(running, Vec::<String>::new(), "turns that never ended");
        for erased in &self.erased {
            assert!(catalogue::channel(store.as_ref(), erased).unwrap().is_none(), "{erased} was erased and is known");
        }
        verify(store.as_ref(), &mut |_| {}).unwrap();
        super::rebuilt::has_the_rows_that_its_records_say(store.as_ref());
    }

    /// Nothing is left open in a chat where nothing runs.
    fn idle(&self, chat: &str) {
        let state = self.mirrors[0].chat(chat).unwrap();
        assert!(state.active_turn.is_none() && state.activity.is_none(), "{chat}: {state:?}");
        let open = state.turns.iter().flat_map(|turn| &turn.response_parts).any(|part| match part {
            ResponsePart::ToolCall(call) => {
                !["completed", "cancelled"].contains(&json!(call.tool_call)["status"].as_str().unwrap())
            }
            _ => false,
        });
        assert!(!open, "{chat}: a tool call is open under a finished turn");
        let paused = self.sessions.iter().filter_map(|session| self.mirrors[0].session(session)).any(|session| {
            let listed = json!(session)["_meta"]["scrollback.pausedQueues"].clone();
            listed.as_array().into_iter().flatten().any(|paused| paused == chat)
        });
        assert!(state.steering_message.is_none(), "{chat}: a message waits for a turn that does not run");
        let waits = state.queued_messages.iter().flatten().next().is_some();
        assert_eq!(waits, paused, "{chat}: messages wait in a queue that is not paused, or an empty one is");
    }

    /// Restarts the host on what `start` opens, and both clients come back.
    pub async fn restart(mut self, start: impl FnOnce() -> TestHost) -> Self {
        for mirror in &mut self.mirrors {
            mirror.client.hang_up().await;
        }
        self.goes_on(TestHost::stop, start).await
    }

    /// The host is gone from one moment to the next, `fence` being what keeps it from writing any more; `start` opens what it
    /// left, and both clients come back.
    pub async fn crash(self, fence: impl FnOnce(), start: impl FnOnce() -> TestHost) -> Self {
        let gone = |host: TestHost| {
            fence();
            host.abandon();
        };
        self.goes_on(gone, start).await
    }

    async fn goes_on(self, end: impl FnOnce(TestHost), start: impl FnOnce() -> TestHost) -> Self {
        end(self.host);
        let mut walk = Self { host: start(), ..self };
        if let Some(doomed) = walk.doomed.take()
            && catalogue::channel(walk.host.host.store().as_ref(), &doomed.uri).unwrap().is_none()
        {
            walk.erased(doomed);
        }
        for who in 0..walk.mirrors.len() {
            walk.drop_and_come_back(who).await;
        }
        walk
    }
}

/// Some of these, as the bits of `which` say.
fn some(of: &[String], which: u64) -> Vec<String> {
    of.iter().enumerate().filter(|(at, _)| which >> at & 1 == 1).map(|(_, one)| one.clone()).collect()
}

fn has_background(chat: Option<&ChatState>) -> bool {
    chat.is_some_and(|chat| chat.background_work.iter().flatten().next().is_some())
}

fn answer(request: &ahp_types::state::ChatInputRequest, choice: Choice) -> Value {
    let question = request.questions.iter().flatten().next();
    let (id, value) = match question {
        Some(ChatInputQuestion::SingleSelect(q)) => {
            let option = &q.options[(choice.b % q.options.len() as u64) as usize];
            (q.id.clone(), json!({ "kind": "selected", "value": option.id }))
        }
        Some(ChatInputQuestion::Text(q)) => (q.id.clone(), json!({ "kind": "text", "value": "because" })),
        other => panic!("the demo asks no such question: {other:?}"),
    };
    match choice.b % 5 {
        0 => json!({ "type": "chat/inputCompleted", "requestId": request.id, "response": "cancel" }),
        1 => json!({ "type": "chat/inputAnswerChanged", "requestId": request.id, "questionId": id,
            "answer": { "state": "draft", "value": value } }),
        _ => json!({ "type": "chat/inputCompleted", "requestId": request.id, "response": "accept",
            "answers": { id: { "state": "submitted", "value": value } } }),
    }
}

fn decision(turn: &str, call: &str, choice: Choice) -> Value {
    let head = json!({ "type": "chat/toolCallConfirmed", "turnId": turn, "toolCallId": call });
    let rest = match choice.b % 4 {
        0 => json!({ "approved": false, "reason": "denied", "selectedOptionId": "deny", "reasonMessage": "no" }),
        1 => json!({ "approved": true, "confirmed": "user-action", "editedToolInput": "less" }),
        _ => json!({ "approved": true, "confirmed": "user-action", "selectedOptionId": "allow" }),
    };
    let mut action = head;
    action.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    action
}
