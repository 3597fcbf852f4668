//! What somebody writes: it goes out once, and what did not go out is not lost.

use super::browser::Chromium;
use super::chat::HELD;
use super::served::Served;

const WRITTEN: &str = "document.querySelector('#message').value";

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_leaves_the_field_at_once_and_what_was_not_stays_with_its_chat() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_settings("max_action = \"4KiB\"");
    let window = chromium.window().await;
    window.takes_the_wire("").await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.fill("#message", "once").await;
    window.until(&format!("{HELD}.draft?.text === 'once'")).await;
    // A draft whose echo is on its way, and the message, twice.
    let press = "document.querySelector('#message').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }))";
    window.does(&format!("window.held = []; {press}; window.first = {WRITTEN}; {press}")).await;
    window.until("held.length").await;
    assert_eq!(window.js::<Vec<String>>(&format!("[first, {WRITTEN}]")).await, ["", ""]);
    window.does("window.shown = []; new MutationObserver(() => shown.push(document.querySelector('#message').value)).observe(document.body, { subtree: true, childList: true, attributes: true }); release()").await;
    window.has_turns(1).await;
    let shown: Vec<String> = window.js("shown.filter(Boolean)").await;
    assert!(shown.is_empty(), "{shown:?}");

    // What is written in a moment before somebody goes elsewhere is there when they come back, and everybody sees it then.
    let write = |text: &str| {
        format!(
            "const field = document.querySelector('#message'); field.value = {text}; field.dispatchEvent(new Event('input'))"
        )
    };
    window.press_named("New chat in this session").await;
    window.has_turns(0).await;
    window.does(&format!("window.other = scrollback.chat; {}; scrollback.open(scrollback.session, scrollback.sessionState.defaultChat)", write("'unsent'"))).await;
    window.has_turns(1).await;
    window.until(&format!("{WRITTEN} === ''")).await;
    window.does("scrollback.open(scrollback.session, other)").await;
    window.until(&format!("{WRITTEN} === 'unsent' && {HELD}.draft?.text === 'unsent'")).await;

    // A message that is refused when somebody is elsewhere already comes back in the chat that it was for.
    window
        .does(&format!(
            "{}; {press}; scrollback.open(scrollback.session, scrollback.sessionState.defaultChat)",
            write("'long '.repeat(2000)")
        ))
        .await;
    window.until("document.querySelector('.toast')").await;
    window.has_turns(1).await;
    assert_eq!(window.js::<String>(WRITTEN).await, "");
    window.does("scrollback.open(scrollback.session, other)").await;
    window.until(&format!("{WRITTEN} === 'long '.repeat(2000)")).await;
    assert!(window.js::<bool>(&format!("!{HELD}.queuedMessages && !{HELD}.turns.length")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_somebody_else_ended_says_so_and_gives_back_what_was_written() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let (other, window) = (chromium.window().await, chromium.window().await);
    window.takes_the_wire("").await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.press_named("New chat in this session").await;
    window
        .until("scrollback.sessionState.chats.length === 2 && scrollback.chat !== scrollback.sessionState.defaultChat")
        .await;
    window.turn("hello", 1).await;
    other.chat_window(&host.page("")).await;
    other.click(".session").await;
    other.until("document.querySelector('.chat-link[aria-current]') && scrollback.chatState").await;
    other.click(".chat-link:not([aria-current])").await;
    other.has_turns(1).await;
    // The page hears of the end only after its message went out.
    window.does("window.held = []").await;
    other.click(".menu summary").await;
    other.press_named("End the chat").await;
    other.press_named("End it").await;
    other.until("scrollback.sessionState.chats.length === 1").await;
    window.says("too late").await;
    window.until(&format!("{WRITTEN} === ''")).await;
    window.does("release()").await;
    window.shows("somebody ended it").await;
    window.until(&format!("{WRITTEN} === 'too late' && document.querySelector('#message').readOnly")).await;
    assert!(window.js::<bool>("document.querySelector('.write .primary').disabled").await);
    window.is_for_everybody("chat-ended").await;
    // The rest of the session is there.
    window.click(".session").await;
    window
        .until(&format!("scrollback.chatState && {WRITTEN} === '' && !document.querySelector('#message').disabled"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_with_waiting_messages_by_keyboard_keeps_the_focus() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.says("/sleep 600000").await;
    for (at, text) in ["one", "two", "three"].into_iter().enumerate() {
        window.says(text).await;
        window.until(&format!("document.querySelectorAll('.queue li').length === {}", at + 1)).await;
    }
    let waits = |order: &str, focus: &str| {
        format!(
            "[...document.querySelectorAll('.waiting-text')].map((e) => e.innerText).join() === '{order}' \
             && document.activeElement.getAttribute('aria-label') === '{focus}'"
        )
    };
    window.tab_to("Move up: three").await;
    window.key("Enter").await;
    window.until(&waits("one,three,two", "Move up: three")).await;
    window.key("Enter").await;
    // At the top there is nowhere to go: the next button has it.
    window.until(&waits("three,one,two", "Edit: three")).await;
    window.tab_to("Take back: one").await;
    window.key("Enter").await;
    window.until(&waits("three,two", "Take back: two")).await;
    window.key("Enter").await;
    window.until(&waits("three", "Take back: three")).await;
    window.key("Enter").await;
    window.until(&waits("", "Message")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_files_and_chats_are_offered_and_taken_by_keyboard() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    let directory: String = window.js("scrollback.sessionState.workingDirectories[0]").await;
    let directory = directory.strip_prefix("file://").unwrap();
    std::fs::write(format!("{directory}/honey.txt"), "sweet").unwrap();
    window.until("document.activeElement.id === 'message'").await;
    window.insert("/th").await;
    window
        .until("document.querySelector('.completions:not([hidden]) [role=option]').innerText.startsWith('/think')")
        .await;
    window.is_for_everybody("chat-completions").await;
    // Escape closes, and what is written next asks again.
    window.key("Escape").await;
    window.until("document.querySelector('.completions').hidden").await;
    window.insert("i").await;
    window.until("!document.querySelector('.completions').hidden").await;
    window.key("Tab").await;
    window.until(&format!("{WRITTEN} === '/think ' && document.activeElement.id === 'message'")).await;
    window.insert("of it\n@hon").await;
    window.until("document.querySelectorAll('.completions:not([hidden]) li').length === 1").await;
    window.key("ArrowDown").await;
    window.until("document.querySelector('#' + document.activeElement.getAttribute('aria-activedescendant')).ariaSelected === 'true'").await;
    window.key("Enter").await;
    window.until(&format!("{WRITTEN} === '/think of it\\n@honey.txt '")).await;
    // Without a choice Enter sends, and the file goes along.
    window.insert("/no").await;
    window.key("Enter").await;
    window.has_turns(1).await;
    let attached: Vec<String> =
        window.js(&format!("{HELD}.turns[0].message.attachments.map((one) => one.label)")).await;
    assert_eq!(attached, ["honey.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_grows_is_the_same_as_the_whole_and_keeps_what_is_over() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    let grows = "import('./ui/shared/markdown.js').then(({ Growing, markdown }) => { \
        const text = '# Title\\n\\nOne **bold** word\\n===\\n\\n- a\\n- b\\n\\n  more\\n\\n```js\\nlet a;\\n\\nlet b;\\n```\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n<b>no</b>\\n\\n> said\\n\\n1. x\\n\\n2. y\\n\\nend [link][l] of it\\n\\n[l]: https://example.org/\\n'; \
        const [whole, growing] = [document.createElement('div'), document.createElement('div')]; \
        const view = new Growing(growing); \
        let kept = null; let same = true; \
        for (let at = 1; at <= text.length; at++) { \
          view.show(text.slice(0, at)); \
          whole.replaceChildren(markdown(text.slice(0, at))); \
          if (whole.innerHTML !== growing.innerHTML) return `${whole.innerHTML} and ${growing.innerHTML}`; \
          if (at === 45) kept = growing.firstElementChild; \
          if (at > 45 && at < 120) same &&= growing.firstElementChild === kept; \
        } \
        view.show('another'); \
        return same && growing.textContent.trim() === 'another' ? '' : 'what was over was made anew'; })";
    assert_eq!(window.js::<String>(grows).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_telephone_the_sessions_are_in_a_drawer() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.turn("hello", 1).await;
    window.sized(390, 844).await;
    let shown = "getComputedStyle(document.querySelector('.sidebar')).visibility";
    window.until(&format!("{shown} === 'hidden'")).await;
    window.click(".drawer-button").await;
    window
        .until(&format!("{shown} === 'visible' && document.querySelector('.sidebar').contains(document.activeElement)"))
        .await;
    window.key("Escape").await;
    window.until(&format!("{shown} === 'hidden'")).await;
    window.click(".drawer-button").await;
    // It slides in.
    window.until("document.querySelector('.sidebar').getBoundingClientRect().left === 0").await;
    window.click(".session").await;
    window
        .until(&format!("{shown} === 'hidden' && document.querySelector('.drawer-button').ariaExpanded === 'false'"))
        .await;
    window.has_turns(1).await;
}
