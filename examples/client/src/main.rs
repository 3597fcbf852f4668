//! A client of an Agent Host Protocol host, written with the official crates `ahp` and `ahp-ws`.
//!
//! It connects, creates a session, sends one message, prints the answer as it streams, asks on the terminal about tools
//! that want an approval, comes back when the connection drops, and exits when the turn has ended.
//!
//! ```sh
//! cargo run --package client -- "hello"
//! ```
//!
//! How it works: the client keeps a `ChatState` and folds every action into it with the official reducers, as the host
//! does. What is printed is what the state holds and was not printed yet. So an answer reads the same whether it came word by
//! word, in the replay after a reconnect, or as a snapshot.
//!
//! Exit status: 0 when the turn completed, 1 when it was stopped or failed or the host could not be reached, 2 for bad usage.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::Duration;

use ahp::ahp_types::actions::{
    ActionEnvelope, ChatInputCompletedAction, ChatToolCallConfirmedAction, ChatTurnCancelledAction,
    ChatTurnStartedAction, StateAction,
};
use ahp::ahp_types::commands::{CreateSessionParams, ReconnectResult, SubscribeView};
use ahp::ahp_types::state::{
    ChatInputResponseKind, ChatState, ConfirmationOption, ConfirmationOptionKind, Message, MessageKind, MessageOrigin,
    ResponsePart, Snapshot, SnapshotState, ToolCallCancellationReason, ToolCallConfirmationReason,
    ToolCallPendingConfirmationState, ToolCallState, ToolResultContent, TurnState,
};
use ahp::ahp_types::{PROTOCOL_VERSION, common::StringOrMarkdown};
use ahp::reducers::apply_action_to_chat;
use ahp::{Client, ClientConfig, ClientError, ClientEventStream, SubscriptionEvent};
use ahp_ws::WebSocketTransport;
use clap::Parser;

/// How many events may wait in the client. The library drops what is over it without a word, so it is generous.
const EVENTS_AHEAD: usize = 65_536;
/// How often a dropped connection is tried again, and how long the first wait is; each next one is twice as long.
const ATTEMPTS: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Sends one message to an Agent Host Protocol host and prints the answer.
#[derive(Parser)]
struct Args {
    /// The message. For the demo agent a line that begins with / is a step, such as "/ask-tool rm notes.txt"
    message: String,
    /// The address of the host
    #[arg(long, default_value = "ws://127.0.0.1:7878", env = "SCROLLBACK_URL")]
    url: String,
    /// The token of the host, where it wants one
    #[arg(long, env = "SCROLLBACK_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Go on in this session instead of creating one, such as ahp-session:/…
    #[arg(long, value_name = "URI")]
    session: Option<String>,
    /// The agent of a new session; the host's default where it is not given
    #[arg(long, value_name = "PROVIDER")]
    agent: Option<String>,
    /// Allow every tool without asking
    #[arg(long)]
    yes: bool,
}

/// What ends the program before the turn has ended.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("no host answers at {url}: {source}\nIs it running? Start one with: scrollback serve")]
    Unreachable { url: String, source: ahp_ws::WebSocketTransportError },
    #[error("the host wants a token, and got none or a wrong one: give it with --token or SCROLLBACK_TOKEN")]
    NoToken,
    #[error("{what}: {source}")]
    Client { what: &'static str, source: ClientError },
    #[error("the host refused the message: {0}")]
    Refused(String),
    #[error("{0} is not there any more")]
    Gone(String),
    #[error("the host answered something else than the protocol says: {0}")]
    Unexpected(&'static str),
    #[error("{0}")]
    Output(#[from] std::io::Error),
}

impl Problem {
    /// Whether it is worth another try: the host is not up, or the connection dropped again.
    fn passes(&self) -> bool {
        match self {
            Problem::Unreachable { .. } => true,
            Problem::Client { source, .. } => is_drop(source),
            _ => false,
        }
    }
}

/// Whether the library failed because the connection ended. To a request that was on its way it says so with an error of
/// its own, which looks like one of the host's.
fn is_drop(fault: &ClientError) -> bool {
    match fault {
        ClientError::Shutdown | ClientError::Transport(_) => true,
        ClientError::Rpc(error) => error.code == -32000 && error.message == "transport closed",
        _ => false,
    }
}

/// Names what was being done when the library failed.
fn during(what: &'static str) -> impl Fn(ClientError) -> Problem {
    move |source| Problem::Client { what, source }
}

/// A connection, and everything that comes on it.
struct Connection {
    client: Client,
    events: ClientEventStream,
}

impl Connection {
    /// Opens the socket. The handshake comes next: `initialize`, or `reconnect` for a client that was here before.
    async fn open(args: &Args) -> Result<Self, Problem> {
        let transport = WebSocketTransport::connect(&address(args)).await.map_err(|source| {
            // The host checks the token before it upgrades the request.
            if source.to_string().contains("401") {
                Problem::NoToken
            } else {
                Problem::Unreachable { url: args.url.clone(), source }
            }
        })?;
        let config = ClientConfig { subscription_buffer: EVENTS_AHEAD, ..ClientConfig::default() };
        let client = Client::connect(transport, config).await.map_err(during("connecting"))?;
        // Before anything is asked for, so that nothing is missed.
        let events = client.events();
        Ok(Self { client, events })
    }
}

/// The address with the token, which goes into the query: the library sets no headers.
fn address(args: &Args) -> String {
    let Some(token) = &args.token else { return args.url.clone() };
    let encoded: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let slash = if args.url.trim_start_matches("ws://").trim_start_matches("wss://").contains('/') { "" } else { "/" };
    format!("{}{slash}?tkn={encoded}", args.url)
}

/// The one turn that this program is about, over all its connections.
struct Conversation<'a> {
    args: &'a Args,
    /// What a host knows this client by when it comes back.
    client_id: String,
    chat: String,
    /// The newest event that is folded into `state`.
    last_seen: u64,
    state: ChatState,
    turn_id: String,
    /// When the message was sent; a repeated message is the same to the letter.
    started_at: String,
    screen: Screen,
    /// Tool calls and questions that were answered.
    answered: HashSet<String>,
    cancelled: bool,
}

impl<'a> Conversation<'a> {
    /// Shakes hands, and opens the default chat of a new session, or of the one that the arguments name.
    async fn begin(args: &'a Args, connection: &Connection) -> Result<Self, Problem> {
        let (client, client_id) = (&connection.client, format!("example-{}", ulid::Ulid::new()));
        let versions = vec![PROTOCOL_VERSION.to_owned()];
        client.initialize(client_id.clone(), versions, Vec::new()).await.map_err(during("initialize"))?;
        let session = match &args.session {
            Some(session) => session.clone(),
            None => create_session(client, args.agent.clone()).await?,
        };
        let (opened, _) = client.subscribe(session.clone()).await.map_err(during("opening the session"))?;
        let Some(Snapshot { state: SnapshotState::Session(opened), .. }) = opened.snapshot else {
            return Err(Problem::Unexpected("the snapshot of a session is no session"));
        };
        let chat = opened.default_chat.ok_or(Problem::Unexpected("the session has no default chat"))?;
        // Of the turns before, only the last one matters here.
        let view = SubscribeView { turns: Some(1) };
        let opened = client.subscribe_with_options(chat.clone(), None, Some(view)).await;
        let (opened, _) = opened.map_err(during("opening the chat"))?;
        let (state, last_seen) = chat_of(opened.snapshot.into_iter().collect(), &chat)?;
        eprintln!("{session}");
        Ok(Self {
            args,
            client_id,
            chat,
            last_seen,
            state,
            turn_id: ulid::Ulid::new().to_string(),
            started_at: now(),
            screen: Screen::default(),
            answered: HashSet::new(),
            cancelled: false,
        })
    }

    /// Sends the message. Said twice, because a connection dropped, it is one message all the same: the host knows the turn id.
    async fn send(&self, client: &Client) -> Result<(), Problem> {
        let origin = MessageOrigin { kind: MessageKind::User };
        let message = Message {
            text: self.args.message.clone(),
            origin,
            attachments: None,
            model: None,
            agent: None,
            meta: None,
        };
        let action = StateAction::ChatTurnStarted(ChatTurnStartedAction {
            turn_id: self.turn_id.clone(),
            started_at: self.started_at.clone(),
            message,
            queued_message_id: None,
            meta: None,
        });
        self.dispatch(client, action).await
    }

    /// An action is never answered: it comes back as an event, or with the reason why not. Where the connection has just
    /// dropped, the action is said again after the reconnect.
    async fn dispatch(&self, client: &Client, action: StateAction) -> Result<(), Problem> {
        match client.dispatch(self.chat.clone(), action).await {
            Err(fault) if !is_drop(&fault) => Err(during("sending")(fault)),
            _ => Ok(()),
        }
    }

    /// Follows the chat on this connection. `None`: the connection dropped.
    async fn follow(&mut self, connection: &mut Connection) -> Result<Option<TurnState>, Problem> {
        loop {
            if let Some(ending) = self.show()? {
                return Ok(Some(ending));
            }
            self.answer(&connection.client).await?;
            tokio::select! {
                event = connection.events.recv() => match event {
                    Some(event) => if let SubscriptionEvent::Action(envelope) = event.event { self.fold(&envelope)? },
                    None => return Ok(None),
                },
                _ = tokio::signal::ctrl_c() => self.interrupted(&connection.client).await?,
            }
        }
    }

    /// Folds an event into the state; a refusal of the message ends the program.
    fn fold(&mut self, envelope: &ActionEnvelope) -> Result<(), Problem> {
        if envelope.channel != self.chat {
            return Ok(());
        }
        if let Some(reason) = &envelope.rejection_reason {
            // A refused action changed nothing, and must not be folded.
            let of_ours =
                matches!(&envelope.action, StateAction::ChatTurnStarted(turn) if turn.turn_id == self.turn_id);
            return match reason.split(':').next() {
                // The message had arrived before the connection dropped.
                Some("duplicate-turn") => Ok(()),
                _ if of_ours => Err(Problem::Refused(reason.clone())),
                // Somebody else was faster, or the turn has ended.
                _ => Ok(()),
            };
        }
        // Behind a snapshot, older events may still be on their way.
        if envelope.server_seq > self.last_seen {
            apply_action_to_chat(&mut self.state, &envelope.action);
            self.last_seen = envelope.server_seq;
        }
        Ok(())
    }

    /// Prints what is new. Returns how the turn ended, once it has.
    fn show(&mut self) -> Result<Option<TurnState>, Problem> {
        if let Some(turn) = self.state.active_turn.as_ref().filter(|turn| turn.id == self.turn_id) {
            self.screen.show(&turn.response_parts)?;
        }
        let Some(turn) = self.state.turns.iter().find(|turn| turn.id == self.turn_id) else { return Ok(None) };
        self.screen.show(&turn.response_parts)?;
        self.screen.end()?;
        Ok(Some(turn.state))
    }

    /// Answers what the running turn waits for.
    async fn answer(&mut self, client: &Client) -> Result<(), Problem> {
        let waiting: Vec<ResponsePart> = match &self.state.active_turn {
            Some(turn) if turn.id == self.turn_id => turn.response_parts.clone(),
            _ => return Ok(()),
        };
        for part in waiting {
            match part {
                ResponsePart::ToolCall(call) => {
                    if let ToolCallState::PendingConfirmation(call) = call.tool_call
                        && self.answered.insert(call.tool_call_id.clone())
                    {
                        let action = self.decide(call).await?;
                        self.dispatch(client, action).await?;
                    }
                }
                ResponsePart::InputRequest(asked)
                    if asked.response.is_none() && self.answered.insert(asked.request.id.clone()) =>
                {
                    self.screen.say("This example answers no questions: it is ended with cancel.")?;
                    let (request_id, response) = (asked.request.id, ChatInputResponseKind::Cancel);
                    let cancel = ChatInputCompletedAction { request_id, response, answers: None };
                    self.dispatch(client, StateAction::ChatInputCompleted(cancel)).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Asks on the terminal whether a tool may run.
    async fn decide(&mut self, call: ToolCallPendingConfirmationState) -> Result<StateAction, Problem> {
        let options = call.options.clone().unwrap_or_default();
        let chosen = if self.args.yes {
            options.iter().position(|option| option.kind == ConfirmationOptionKind::Approve)
        } else {
            self.screen.say(&format!("{} wants to run {}", call.display_name, input_of(&call)))?;
            ask(options.clone()).await?
        };
        let chosen = chosen.and_then(|at| options.get(at));
        // Without options, --yes allows and everything else denies.
        let approved = match chosen {
            Some(option) => option.kind == ConfirmationOptionKind::Approve,
            None => self.args.yes && options.is_empty(),
        };
        Ok(StateAction::ChatToolCallConfirmed(ChatToolCallConfirmedAction {
            turn_id: self.turn_id.clone(),
            tool_call_id: call.tool_call_id,
            meta: None,
            approved,
            confirmed: approved.then_some(ToolCallConfirmationReason::UserAction),
            reason: (!approved).then_some(ToolCallCancellationReason::Denied),
            edited_tool_input: None,
            user_suggestion: None,
            reason_message: None,
            selected_option_id: chosen.map(|option| option.id.clone()),
        }))
    }

    /// Ctrl-C stops the turn; the second one stops the program.
    async fn interrupted(&mut self, client: &Client) -> Result<(), Problem> {
        if std::mem::replace(&mut self.cancelled, true) {
            std::process::exit(1);
        }
        self.cancel(client).await
    }

    async fn cancel(&self, client: &Client) -> Result<(), Problem> {
        // The host puts the real duration into the event.
        let cancel = ChatTurnCancelledAction { turn_id: self.turn_id.clone(), duration: 0, meta: None };
        self.dispatch(client, StateAction::ChatTurnCancelled(cancel)).await
    }

    /// Tries for a while to take up the chat on a new connection.
    async fn come_back(&mut self) -> Result<Connection, Problem> {
        self.screen.say("The connection dropped; coming back.")?;
        let mut wait = FIRST_WAIT;
        for _ in 1..ATTEMPTS {
            tokio::time::sleep(wait).await;
            match self.take_up().await {
                Err(problem) if problem.passes() => wait *= 2,
                result => return result,
            }
        }
        self.take_up().await
    }

    /// Asks on a new connection for everything after the newest event that was folded, and folds it.
    async fn take_up(&mut self) -> Result<Connection, Problem> {
        let connection = Connection::open(self.args).await?;
        let client = &connection.client;
        let last_seen = i64::try_from(self.last_seen).unwrap_or(i64::MAX);
        let missed = client.reconnect(self.client_id.clone(), last_seen, vec![self.chat.clone()]).await;
        match missed.map_err(during("reconnect"))? {
            ReconnectResult::Replay(replay) if replay.missing.contains(&self.chat) => {
                return Err(Problem::Gone(self.chat.clone()));
            }
            ReconnectResult::Replay(replay) => replay.actions.iter().try_for_each(|envelope| self.fold(envelope))?,
            ReconnectResult::Snapshot(snapshot) => {
                (self.state, self.last_seen) = chat_of(snapshot.snapshots, &self.chat)?;
            }
        }
        // What was said last may have been lost with the connection. Said twice it does no harm.
        self.answered.clear();
        if !self.has_arrived() {
            self.send(client).await?;
        } else if self.cancelled {
            self.cancel(client).await?;
        }
        Ok(connection)
    }

    /// Whether the host has the message.
    fn has_arrived(&self) -> bool {
        let turns = self.state.turns.iter().map(|turn| &turn.id);
        turns.chain(self.state.active_turn.iter().map(|turn| &turn.id)).any(|id| *id == self.turn_id)
    }
}

async fn create_session(client: &Client, provider: Option<String>) -> Result<String, Problem> {
    let session = format!("ahp-session:/{}", ulid::Ulid::new());
    let params = CreateSessionParams {
        channel: session.clone(),
        meta: None,
        provider,
        working_directories: None,
        config: None,
        progress_token: None,
        active_client: None,
    };
    // The answer is null. There is no method of the library for it.
    client.request::<_, ()>("createSession", params).await.map_err(during("creating a session"))?;
    Ok(session)
}

/// The chat's state in `snapshots`, and the newest event that it holds.
fn chat_of(snapshots: Vec<Snapshot>, chat: &str) -> Result<(ChatState, u64), Problem> {
    let found = snapshots.into_iter().find(|snapshot| snapshot.resource == chat);
    match found.map(|snapshot| (snapshot.state, snapshot.from_seq)) {
        Some((SnapshotState::Chat(state), seq)) => Ok((*state, u64::try_from(seq).unwrap_or_default())),
        Some(_) => Err(Problem::Unexpected("the snapshot of a chat is no chat")),
        None => Err(Problem::Gone(chat.to_owned())),
    }
}

/// Which of `options` somebody chooses on the terminal; `None` where nobody can be asked.
async fn ask(options: Vec<ConfirmationOption>) -> Result<Option<usize>, Problem> {
    let asked = tokio::task::spawn_blocking(move || -> std::io::Result<Option<usize>> {
        let stdin = std::io::stdin();
        for (at, option) in options.iter().enumerate() {
            eprintln!("  {}  {}", at + 1, option.label);
        }
        loop {
            eprint!("Which? ");
            let mut line = String::new();
            if stdin.lock().read_line(&mut line)? == 0 {
                eprintln!("nobody answers, so it is denied");
                return Ok(options.iter().position(|option| option.kind == ConfirmationOptionKind::Deny));
            }
            match line.trim().parse::<usize>() {
                Ok(number) if (1..=options.len()).contains(&number) => return Ok(Some(number - 1)),
                _ => eprintln!("a number from 1 to {}", options.len()),
            }
        }
    });
    match asked.await {
        Ok(chosen) => Ok(chosen?),
        Err(_) => Ok(None),
    }
}

/// What was printed of the turn, so that nothing is printed twice: answers on stdout, all else on stderr.
#[derive(Default)]
struct Screen {
    /// Bytes of each text that were printed, by the place of its part in the turn.
    texts: HashMap<usize, usize>,
    /// Parts that were said, by their place in the turn.
    said: HashSet<usize>,
    /// The part whose text stands in the last line, and where.
    in_line: Option<(usize, Stream)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Answer,
    Aside,
}

impl Stream {
    fn write(self, text: &str) -> std::io::Result<()> {
        match self {
            Stream::Answer => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(text.as_bytes())?;
                stdout.flush()
            }
            Stream::Aside => std::io::stderr().write_all(text.as_bytes()),
        }
    }
}

impl Screen {
    /// Prints what these parts have more than they had.
    fn show(&mut self, parts: &[ResponsePart]) -> std::io::Result<()> {
        for (at, part) in parts.iter().enumerate() {
            match part {
                ResponsePart::Markdown(part) => self.text(at, Stream::Answer, &part.content)?,
                ResponsePart::Reasoning(part) => self.text(at, Stream::Aside, &part.content)?,
                ResponsePart::ToolCall(part) => self.tool(at, &part.tool_call)?,
                ResponsePart::SystemNotification(part) => self.once(at, "note", plain(&part.content))?,
                ResponsePart::Error(part) => self.once(at, "error", &part.error.message)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Text that grows: what is new of it.
    fn text(&mut self, at: usize, stream: Stream, content: &str) -> std::io::Result<()> {
        let printed = self.texts.get(&at).copied().unwrap_or_default();
        let Some(new) = content.get(printed..).filter(|new| !new.is_empty()) else { return Ok(()) };
        if self.in_line != Some((at, stream)) {
            self.end()?;
        }
        if printed == 0 && stream == Stream::Aside {
            stream.write("[thinking] ")?;
        }
        self.texts.insert(at, content.len());
        self.in_line = (!new.ends_with('\n')).then_some((at, stream));
        stream.write(new)
    }

    fn tool(&mut self, at: usize, call: &ToolCallState) -> std::io::Result<()> {
        match call {
            ToolCallState::Completed(call) => {
                let texts = call.content.iter().flatten().filter_map(|content| match content {
                    ToolResultContent::Text(content) => Some(content.text.as_str()),
                    _ => None,
                });
                let result: Vec<&str> = texts.collect();
                self.once(at, &call.display_name, &result.join("\n"))
            }
            ToolCallState::Cancelled(call) => self.once(at, &call.display_name, "did not run"),
            _ => Ok(()),
        }
    }

    /// Says something about the part at `at`, unless that was done already.
    fn once(&mut self, at: usize, what: &str, text: &str) -> std::io::Result<()> {
        if self.said.insert(at) { self.say(&format!("[{what}] {text}")) } else { Ok(()) }
    }

    /// Says something in a line of its own that is not part of the answer.
    fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.end()?;
        Stream::Aside.write(&format!("{line}\n"))
    }

    /// Ends the line that has text in it.
    fn end(&mut self) -> std::io::Result<()> {
        match self.in_line.take() {
            Some((_, stream)) => stream.write("\n"),
            None => Ok(()),
        }
    }
}

fn plain(text: &StringOrMarkdown) -> &str {
    match text {
        StringOrMarkdown::Plain(text) => text,
        StringOrMarkdown::Markdown { markdown } => markdown,
    }
}

fn input_of(call: &ToolCallPendingConfirmationState) -> String {
    let input = call.tool_input.as_ref().map(serde_json::to_string).and_then(Result::ok);
    input.unwrap_or_else(|| "without input".to_owned())
}

/// The time as the protocol writes it.
#[allow(clippy::disallowed_methods, reason = "a client has a clock of its own")]
fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

async fn run(args: &Args) -> Result<TurnState, Problem> {
    let mut connection = Connection::open(args).await?;
    let mut conversation = Conversation::begin(args, &connection).await?;
    conversation.send(&connection.client).await?;
    loop {
        if let Some(ending) = conversation.follow(&mut connection).await? {
            connection.client.shutdown().await;
            return Ok(ending);
        }
        connection = conversation.come_back().await?;
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args).await {
        Ok(TurnState::Complete) => ExitCode::SUCCESS,
        Ok(TurnState::Cancelled) => {
            eprintln!("The turn was stopped.");
            ExitCode::FAILURE
        }
        Ok(TurnState::Error) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("client: {problem}");
            ExitCode::FAILURE
        }
    }
}
