//! The chat window: everything that somebody can do in it, with the demo agent behind it.

use serde_json::Value;

use super::browser::Chromium;
use super::keys::SHIFT;
use super::served::Served;
use super::window::{Window, quoted};

/// The chat's state as the page holds it.
pub const HELD: &str = "scrollback.chatState";
/// Where the framed pages come from.
const FRAMES: &str = "[...document.querySelectorAll('.visual iframe')].map((frame) => frame.src)";

impl Window {
    /// Opens the chat window and waits for the connection.
    pub async fn chat_window(&self, address: &str) {
        self.goto(address).await;
        self.until("scrollback.isOpen && scrollback.listed").await;
    }

    /// Begins a session and waits until one can write in it.
    pub async fn new_session(&self) {
        self.press_named("New session").await;
        self.until("scrollback.chatState && !document.querySelector('#message').disabled").await;
    }

    /// Writes a message and sends it with Enter.
    pub async fn says(&self, text: &str) {
        self.until("!document.querySelector('#message').disabled").await;
        self.fill("#message", text).await;
        self.until("!document.querySelector('.write .primary').disabled").await;
        self.key("Enter").await;
    }

    /// Waits until no turn runs and `count` turns are finished.
    pub async fn has_turns(&self, count: usize) {
        self.until(&format!("!{HELD}.activeTurn && {HELD}.turns.length === {count} && document.querySelectorAll('.turn').length === {count}"))
            .await;
    }

    /// Sends a message and waits for the end of its turn, the `count`th.
    pub async fn turn(&self, text: &str, count: usize) {
        self.says(text).await;
        self.has_turns(count).await;
    }

    /// Waits until the newest turn shows this.
    pub async fn answers(&self, text: &str) {
        self.until(&format!("document.querySelector('.turn:last-child .answer').innerText.includes({})", quoted(text)))
            .await;
    }

    /// The state that the page holds of the shown chat.
    pub async fn held(&self) -> Value {
        self.js(HELD).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_begins_a_session_and_talks_to_the_demo() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.is_for_everybody("chat-welcome").await;
    window.press_named("Begin a session").await;
    window.until("document.querySelector('.tries:not([hidden])')").await;
    window.is_for_everybody("chat-empty").await;
    window.turn("hello", 1).await;
    window.answers("You said: hello").await;
    window.until("document.querySelector('.session .name').innerText === 'hello'").await;
    assert_eq!(window.text(".chat-head h1").await, "hello");
    window.turn("# Title\n\n**bold** <img src=x onerror=alert(1)> [link](javascript:alert(1))", 2).await;
    window.answers("bold").await;
    // What there is to try stays there, and is written into the field and not sent; with something written it is out of the way.
    window.press_named("A question").await;
    window.until("document.querySelector('#message').value.startsWith('/question') && document.querySelector('.tries').hidden").await;
    window.turn("/say **bold** and `code`", 3).await;
    window.until("document.querySelector('.turn:last-child .markdown strong').innerText === 'bold'").await;
    assert_eq!(
        window.js::<i64>("document.querySelectorAll('.turn img, .turn script, a[href^=javascript]').length").await,
        0
    );
    window.key_with("Enter", SHIFT).await;
    window.insert("two lines").await;
    assert_eq!(window.js::<String>("document.querySelector('#message').value").await, "\ntwo lines");
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_tools_usage_and_notices_show_in_their_turn() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.turn("/think First I weigh it up.\n/tool search for bees\n/notice Something happened\n/say Then I answer.\n/usage 1200 34", 1).await;
    for text in ["Thought", "search", "Something happened", "Then I answer.", "1200 in, 34 out"] {
        window.answers(text).await;
    }
    window.click(".reasoning summary").await;
    window.answers("First I weigh it up.").await;
    window.click(".tool summary").await;
    window.answers("for bees").await;
    window.is_for_everybody("chat-parts").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_asks_is_allowed_with_another_input_allowed_for_good_and_denied() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/ask-tool rm notes.txt").await;
    window.until("document.querySelector('.decision textarea')?.value === 'notes.txt'").await;
    window.until("document.querySelector('.session .chip')?.innerText === 'waits for you'").await;
    window.is_for_everybody("chat-approval").await;
    window.fill(".decision textarea", "old.txt").await;
    window.press_named("Allow").await;
    window.has_turns(1).await;
    let first = window.held().await;
    let call = &first["turns"][0]["responseParts"][0]["toolCall"];
    assert_eq!((call["status"].as_str(), call["toolInput"].as_str()), (Some("completed"), Some("old.txt")));

    window.says("/ask-tool rm b.txt").await;
    window.fill(".decision input", "not this one").await;
    window.press_named("Deny").await;
    window.has_turns(2).await;
    window.answers("not run").await;
    assert_eq!(window.held().await["turns"][1]["responseParts"][0]["toolCall"]["reasonMessage"], "not this one");

    window.says("/ask-tool rm c.txt").await;
    window.press_named("Always allow rm in this session").await;
    window.has_turns(3).await;
    window.turn("/ask-tool rm d.txt", 4).await;
    window.answers("done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_with_a_choice_with_words_and_not_at_all() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/question Tea or coffee? | tea | coffee").await;
    window.until("document.querySelector('.question .primary').disabled").await;
    window.is_for_everybody("chat-question").await;
    window.click(".choice:last-child input").await;
    window.press_named("Answer").await;
    window.has_turns(1).await;
    window.answers("answered: coffee").await;

    window.says("/question What else?").await;
    window.fill(".turn:last-child .question textarea", "cake").await;
    window.press_named("Answer").await;
    window.has_turns(2).await;
    window.answers("answered: cake").await;

    window.says("/question And?").await;
    window.press_named("Do not answer").await;
    window.has_turns(3).await;
    window.answers("Not answered").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_question_has_its_fields() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    let made = "import('./ui/chat/question.js').then(({ QuestionView }) => { \
        window.said = []; \
        const model = { may: () => true, act: (p) => p, answer: async () => {}, complete: async (...a) => said.push(a) }; \
        const view = new QuestionView(null, model); \
        const options = [{ id: 'a', label: 'A' }, { id: 'b', label: 'B' }, { id: 'c', label: 'C' }]; \
        const questions = [ \
          { kind: 'multi-select', id: 'many', message: 'Which?', required: true, options }, \
          { kind: 'integer', id: 'n', message: 'How many?', required: true }, \
          { kind: 'boolean', id: 'sure', message: 'Sure?', required: true }, \
          { kind: 'text', id: 'more', message: 'More?' }, \
          { kind: 'text', id: 'name', message: 'Name?', defaultValue: 'Ada' }, \
          { kind: 'single-select', id: 'own', message: 'Else?', required: true, allowFreeformInput: true, options } ]; \
        window.theirs = (answers) => view.update({ kind: 'inputRequest', request: { id: 'q', questions, answers } }, {}); \
        view.update({ kind: 'inputRequest', request: { id: 'q', questions } }, {}); \
        document.querySelector('.welcome .lead').replaceWith(view.element); return true; })";
    assert!(window.js::<bool>(made).await);
    window.is_for_everybody("chat-questions").await;
    window.click("input[value=a]").await;
    window.click("input[value=c]").await;
    assert!(window.js::<bool>("document.querySelector('.question .primary').disabled").await);
    window.fill("input[type=number]", "7").await;
    window.click("input[value=true]").await;
    window.click("[type=radio][value=b]").await;
    window.fill(".own-words > input", "neither").await;
    window.press_named("Answer").await;
    let said: Value = window.js("said").await;
    let answers = &said[0][2];
    assert_eq!(said[0][1], "accept");
    assert_eq!(answers["many"]["value"], serde_json::json!({ "kind": "selected-many", "value": ["a", "c"] }));
    assert_eq!(answers["n"]["value"]["value"], 7);
    assert_eq!(answers["sure"]["value"]["value"], true);
    assert_eq!(answers["more"]["state"], "skipped");
    assert_eq!(answers["name"]["value"]["value"], "Ada");
    assert_eq!(
        answers["own"]["value"],
        serde_json::json!({ "kind": "selected", "value": "", "freeformValues": ["neither"] })
    );
    let theirs = "{ own: { state: 'draft', value: { kind: 'selected', value: '', freeformValues: ['theirs'] } } }";
    window.does(&format!("theirs({theirs})")).await;
    assert_eq!(window.js::<String>("document.querySelector('.own-words > input').value").await, "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_are_moved_edited_taken_back_and_sent_now() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/sleep 600000").await;
    window.until(&format!("{HELD}.activeTurn")).await;
    for (at, text) in ["one", "two", "three"].into_iter().enumerate() {
        window.says(text).await;
        window.until(&format!("document.querySelectorAll('.queue li').length === {}", at + 1)).await;
    }
    window.is_for_everybody("chat-queue").await;
    window.press_named("Move up: three").await;
    window
        .until("[...document.querySelectorAll('.waiting-text')].map((e) => e.innerText).join() === 'one,three,two'")
        .await;
    window.press_named("Edit: three").await;
    window.until("document.querySelector('#message').value === 'three'").await;
    window.says("four").await;
    window.press_named("Take back: one").await;
    window.until("[...document.querySelectorAll('.waiting-text')].map((e) => e.innerText).join() === 'two,four'").await;
    window.click(".queue li:last-child .small").await;
    window.has_turns(3).await;
    let held = window.held().await;
    let said: Vec<&str> =
        held["turns"].as_array().unwrap().iter().filter_map(|turn| turn["message"]["text"].as_str()).collect();
    assert_eq!(said, ["/sleep 600000", "four", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_stopped_its_queue_pauses_and_the_next_message_lets_it_go_on() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/sleep 600000").await;
    window.says("waits").await;
    window.until("document.querySelectorAll('.queue li').length === 1").await;
    window.press_named("Stop").await;
    window.shows("The queue is paused").await;
    window.answers("stopped").await;
    window.says("goes on").await;
    window.until(&format!("{HELD}.turns.length === 3 && !{HELD}.queuedMessages")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_goes_into_the_running_turn() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/await-steering").await;
    window.until(&format!("{HELD}.activeTurn")).await;
    window.fill("#message", "to the left").await;
    window.press_named("Steer").await;
    window.has_turns(1).await;
    window.answers("steered: to the left").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_goes_back_forks_asks_aside_and_is_cleared() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    for (at, text) in ["one", "two", "three"].into_iter().enumerate() {
        window.turn(text, at + 1).await;
    }
    let of_turn = |at: usize, label: &str| format!(".turn:nth-child({at}) .turn-actions button:nth-child({label})");
    window.click(&of_turn(2, "3")).await;
    window.until("scrollback.chatSummary?.origin.kind === 'fork'").await;
    window.has_turns(2).await;
    window.turn("on another way", 3).await;
    window.is_for_everybody("chat-fork").await;

    window.click(".session").await;
    window.until("scrollback.chat === scrollback.sessionState.defaultChat").await;
    window.has_turns(3).await;
    window.click(&of_turn(1, "4")).await;
    window.has_turns(1).await;
    // What was dropped comes back in a fork.
    window.until("document.querySelector('.toast button')").await;
    window.is_for_everybody("chat-back").await;
    window.press_named("Fork what was dropped").await;
    window.until("scrollback.chatSummary?.origin.kind === 'fork' && !document.querySelector('.toast')").await;
    window.has_turns(3).await;
    window.answers("three").await;
    window.click(".session").await;
    window.until("scrollback.chat === scrollback.sessionState.defaultChat").await;
    window.has_turns(1).await;
    window.turn("/history", 2).await;
    window.answers("one").await;
    assert!(!window.text(".turn:last-child .answer").await.contains("three"));

    window.click(&of_turn(1, "2")).await;
    window.until("scrollback.chatSummary?.origin.kind === 'sideChat'").await;
    window.has_turns(0).await;
    window.turn("/context", 1).await;
    window.answers("one").await;

    window.click(".session").await;
    window.has_turns(2).await;
    window.click(".menu summary").await;
    window.press_named("Clear the chat").await;
    window.is_for_everybody("chat-clear").await;
    window.press_named("Clear").await;
    window.has_turns(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_background_work_are_seen_and_stopped() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/subagent /ask-tool rm a.txt").await;
    window.shows("Also waits for you").await;
    window.click(".waits-elsewhere a").await;
    window.press_named("Allow").await;
    window.shows("This chat belongs to an agent.").await;
    window.has_turns(1).await;
    window.is_for_everybody("chat-worker").await;
    window.click(".session").await;
    window.has_turns(1).await;
    window.says("/background build 600000").await;
    window.press_named("Stop: build").await;
    window.until(&format!("!{HELD}.backgroundWork?.length")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_told_and_resumed_and_visuals_are_framed() {
    let Some(chromium) = Chromium::start().await else { return };
    let mut host = Served::open();
    let window = chromium.window().await;
    window.allow("ERR_CONNECTION_REFUSED");
    window.allow("WebSocket connection");
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.turn("/say before\n/fail-resumable no luck\n/say after", 1).await;
    window.answers("no luck").await;
    window.is_for_everybody("chat-error").await;
    window.press_named("Resume").await;
    window.answers("after").await;
    window.turn("/visual Circle <h1>Round</h1><div style=height:300px></div>", 2).await;
    window.until("document.querySelector('.visual iframe')").await;
    let frame: String = window.js("document.querySelector('.visual iframe').sandbox.value").await;
    assert_eq!(frame, "allow-scripts");
    window.until("parseInt(document.querySelector('.visual iframe').style.height) > 300").await;
    window.shot("chat-visual").await;
    // A page of a client belongs to no turn.
    let publish = "scrollback.connection.request('x-scrollback/publishVisual', \
                   { channel: scrollback.chat, title: 'Mine', html: '<p>mine</p>' }).then(() => true)";
    assert!(window.js::<bool>(publish).await);
    window.until("document.querySelector('.turns ~ .visuals figcaption')?.innerText === 'Mine'").await;
    // A host that was started again has them elsewhere.
    let before: Vec<String> = window.js(FRAMES).await;
    host.kill();
    window.shows("The connection dropped.").await;
    host.start();
    window
        .until(&format!("scrollback.isOpen && {FRAMES}.every((src) => !{}.includes(src))", serde_json::json!(before)))
        .await;
    window.until("parseInt(document.querySelector('.visual iframe').style.height) > 300").await;
    let copy = "Object.defineProperty(navigator, 'clipboard', { value: undefined }); \
                document.addEventListener('copy', () => (window.copied = document.activeElement.value))";
    window.does(copy).await;
    window.click(".turn:first-child .turn-actions button").await;
    window.shows("The answer was copied.").await;
    assert!(window.js::<String>("copied").await.contains("before"));
}

#[tokio::test(flavor = "multi_thread")]
async fn chats_and_sessions_are_renamed_archived_and_ended() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.turn("hello", 1).await;
    let choose = async |item: &str| {
        window.click(".menu summary").await;
        window.press_named(item).await;
    };
    choose("Rename the chat").await;
    window.fill("dialog input", "Greetings").await;
    window.key("Enter").await;
    window.until("document.querySelector('.chat-head h1').innerText === 'Greetings'").await;
    choose("Rename the session").await;
    window.fill("dialog input", "Work").await;
    window.key("Enter").await;
    window.until("document.querySelector('.session .name').innerText === 'Work'").await;
    choose("Settings of the session").await;
    window.is_for_everybody("chat-settings").await;
    let resume = "[...document.querySelectorAll('dialog .field')].find((one) => one.innerText.includes('Resume when a limit lifts')).querySelector('select')";
    window.does(&format!("{resume}.value = '1'")).await;
    window.press_named("Change").await;
    window.until("scrollback.sessionState.config.values.resumeAtReset === false").await;
    choose("New chat in this session").await;
    window.until("document.querySelectorAll('.chat-link').length === 2").await;
    window.has_turns(0).await;
    choose("End the chat").await;
    window.press_named("End it").await;
    window.has_turns(1).await;
    choose("Archive the session").await;
    window.until("document.querySelector('.archive .session')").await;
    choose("End the session").await;
    window.press_named("End it").await;
    window.until("!document.querySelector('.session') && !scrollback.session").await;
}
