//! What several windows and drops of the connection must not change: everybody has the host's state, to the last field.

use serde_json::{Value, json};

use super::browser::Chromium;
use super::chat::HELD;
use super::served::Served;
use super::window::Window;

/// Every way in which what the page holds differs from what the host says it was at that event, as `path: held and said`.
const DIFFERENCES: &str = "import('./ui/shared/api.js').then(async ({ get }) => { \
    const differences = []; \
    const compare = (held, said, path) => { \
      if (held && said && typeof held === 'object' && typeof said === 'object') { \
        for (const key of new Set([...Object.keys(held), ...Object.keys(said)])) compare(held[key], said[key], `${path}/${key}`); \
      } else if ((held ?? null) !== (said ?? null)) differences.push(`${path}: ${JSON.stringify(held)} and ${JSON.stringify(said)}`); \
    }; \
    const held = [...scrollback.connection.channels].map(([channel, { state, seq }]) => ({ channel, state, seq })); \
    for (const { channel, state, seq } of held) { \
      const said = await get('api/state', { channel, at: seq }); \
      if (said.fromSeq > seq) differences.push(`${channel}: ${said.fromSeq} after ${seq}`); \
      compare(state, said.state, channel); \
    } \
    return differences; })";

impl Window {
    /// Fails unless all states that the page holds are the host's.
    async fn holds_what_the_host_says(&self) {
        let differences: Vec<String> = self.js(DIFFERENCES).await;
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_long_conversation_the_page_holds_what_the_host_says() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    let quiet = [
        "hello\nand more",
        "/think first\n/tool search bees\n/say **then**\n/usage 10 20\n/notice noted",
        "/words 200",
        "/activity looking\n/say something\n/activity",
        "/fail no",
        "/compact 1000 10",
        "/background short 1",
        "/visual One <p>1</p>",
        "/subagent /say from below",
        "/limit overload",
    ];
    let mut count = 0;
    for text in quiet {
        count += 1;
        window.turn(text, count).await;
        window.holds_what_the_host_says().await;
    }
    window.says("/ask-tool rm a\n/ask-tool rm b\n/question Which? | x | y").await;
    window.press_named("Allow").await;
    window.until("document.querySelectorAll('.decision').length === 1 && document.querySelector('.decision textarea').value === 'b'").await;
    window.holds_what_the_host_says().await;
    window.press_named("Deny").await;
    window.click(".choice input").await;
    window.until(&format!("{HELD}.activeTurn.responseParts.at(-1).request.answers")).await;
    window.holds_what_the_host_says().await;
    window.press_named("Answer").await;
    window.has_turns(count + 1).await;
    window.turn("/say before\n/fail-resumable again\n/say after", count + 2).await;
    window.press_named("Resume").await;
    window.answers("after").await;
    window.has_turns(count + 2).await;
    window.says("/sleep 600000").await;
    window.says("waits").await;
    window.says("waits too").await;
    window.until(&format!("{HELD}.queuedMessages?.length === 2")).await;
    window.holds_what_the_host_says().await;
    window.fill("#message", "a draft").await;
    window.until(&format!("{HELD}.draft")).await;
    window.press_named("Stop").await;
    window.shows("The queue is paused").await;
    window.holds_what_the_host_says().await;
    window.click(".turn:nth-child(2) .turn-actions button:last-child").await;
    window.has_turns(2).await;
    window.holds_what_the_host_says().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_windows_stay_in_step() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let (one, other) = (chromium.window().await, chromium.window().await);
    one.chat_window(&host.page("")).await;
    other.chat_window(&host.page("")).await;
    one.new_session().await;
    other.click(".session").await;
    other.until("scrollback.chatState").await;
    one.turn("hello", 1).await;
    other.has_turns(1).await;
    other.answers("You said: hello").await;

    // A draft of one is seen by the other, and goes when it is sent.
    one.fill("#message", "/ask-tool rm x").await;
    other.until("document.querySelector('#message').value === '/ask-tool rm x'").await;
    one.key("Enter").await;
    other.until("document.querySelector('#message').value === ''").await;
    // What one asks the other answers, and both see it settled.
    other.press_named("Allow").await;
    one.has_turns(2).await;
    one.until("!document.querySelector('.decision')").await;
    other.says("/question Which? | x | y").await;
    one.click(".choice:last-child input").await;
    other.until("document.querySelector('.choice:last-child input').checked").await;
    other.press_named("Answer").await;
    one.has_turns(3).await;
    one.click(".turn:nth-child(1) .turn-actions button:last-child").await;
    other.has_turns(1).await;
    one.holds_what_the_host_says().await;
    other.holds_what_the_host_says().await;
    let (held, others): (Value, Value) = (one.held().await, other.held().await);
    assert_eq!(held["turns"], others["turns"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_and_started_again_finds_its_page_caught_up() {
    let Some(chromium) = Chromium::start().await else { return };
    let mut host = Served::open();
    let (window, other) = (chromium.window().await, chromium.window().await);
    for window in [&window, &other] {
        window.allow("ERR_CONNECTION_REFUSED");
        window.allow("WebSocket connection");
        window.chat_window(&host.page("")).await;
    }
    window.new_session().await;
    window.turn("hello", 1).await;
    other.click(".session").await;
    other.has_turns(1).await;
    window.says("/words 400 10").await;
    window.answers("w40 ").await;
    host.kill();
    window.shows("The connection dropped.").await;
    window.fill("#message", "written meanwhile").await;
    window.is_for_everybody("chat-dropped").await;
    host.start();
    window.until("scrollback.isOpen && !document.querySelector('.banner:not([hidden])')").await;
    window.has_turns(2).await;
    assert_eq!(window.js::<String>("document.querySelector('#message').value").await, "written meanwhile");
    window.key("Enter").await;
    window.has_turns(3).await;
    other.has_turns(3).await;
    for window in [&window, &other] {
        window.holds_what_the_host_says().await;
        let ids: Value = window.js(&format!("{HELD}.turns.map((turn) => turn.message.text)")).await;
        assert_eq!(ids, json!(["hello", "/words 400 10", "written meanwhile"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_is_caught_up_with_by_a_replay_and_by_snapshots() {
    let Some(chromium) = Chromium::start().await else { return };
    for (limit, form) in [("8MiB", "replay"), ("1B", "snapshot")] {
        let host = Served::with_settings(&format!("replay_limit = \"{limit}\""));
        let (one, other) = (chromium.window().await, chromium.window().await);
        one.chat_window(&host.page("")).await;
        one.new_session().await;
        one.turn("hello", 1).await;
        other.chat_window(&host.page("")).await;
        other.click(".session").await;
        other.has_turns(1).await;
        // The browser cuts the socket of one window alone, and it comes back when it is told to.
        let cut = "(() => { const send = WebSocket.prototype.send; window.forms = []; \
            WebSocket.prototype.send = function (text) { \
              if (!this.heard) { this.heard = true; this.addEventListener('message', ({ data }) => { const { result } = JSON.parse(data); if (result?.type) forms.push(result.type); }); } \
              send.call(this, text); }; \
            return true; })()";
        assert!(one.js::<bool>(cut).await);
        assert!(one.js::<bool>("(scrollback.connection.drop(), true)").await);
        other.turn("while it was away", 2).await;
        one.until("scrollback.isOpen").await;
        one.has_turns(2).await;
        one.until(&format!("forms.includes('{form}')")).await;
        one.holds_what_the_host_says().await;
        one.turn("and again", 3).await;
        other.has_turns(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_only_read_sees_what_to_write_with_disabled() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("root");
    let token = host.person("gus", &["--role", "guest"]);
    let (root, guest) = (chromium.window().await, chromium.window().await);
    root.chat_window(&host.page("?tkn=root")).await;
    root.new_session().await;
    root.turn("hello", 1).await;
    root.says("/ask-tool rm x").await;
    guest.chat_window(&host.page(&format!("?tkn={token}"))).await;
    guest.until("document.querySelector('.new-session').disabled").await;
    guest.click(".session").await;
    guest.until("document.querySelector('.decision')").await;
    guest.shows("You may read here, and not write.").await;
    let enabled: Vec<String> = guest
        .js("[...document.querySelectorAll('.chat button, .chat textarea, .chat input')].filter((e) => !e.disabled && e.getClientRects().length).map((e) => e.innerText || e.id)")
        .await;
    assert_eq!(enabled, ["Copy"]);
    guest.is_for_everybody("chat-guest").await;
    root.press_named("Allow").await;
    guest.has_turns(2).await;
    guest.holds_what_the_host_says().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_talked_in_by_keyboard_alone() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.tab_to("Begin a session").await;
    window.key("Enter").await;
    // What one came for has the focus.
    window.until("document.activeElement?.id === 'message' && !document.activeElement.disabled").await;
    window.insert("hello").await;
    window.until("!document.querySelector('.write .primary').disabled").await;
    window.key("Enter").await;
    window.has_turns(1).await;
    window.insert("/ask-tool rm x").await;
    window.key("Enter").await;
    window.until("document.querySelector('.decision')").await;
    window.tab_to("Allow").await;
    window.key("Enter").await;
    window.has_turns(2).await;
    window.until("document.activeElement.id === 'message'").await;
    window.tab_to("Go back to here").await;
    window.key("Enter").await;
    window.has_turns(1).await;
    window.tab_to("Fork").await;
    window.key("Enter").await;
    window.until("scrollback.chatSummary?.origin.kind === 'fork'").await;
    window.has_turns(1).await;
}
