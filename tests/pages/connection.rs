//! A connection that is cut where it hurts, and what a page is subscribed to meanwhile.

use serde_json::Value;

use super::browser::Chromium;
use super::chat::HELD;
use super::served::Served;
use super::talk;
use super::window::quoted;

const BANNER: &str = "document.querySelector('.banner:not([hidden])')";

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_closes_inside_a_handshake_or_a_subscription_is_made_again() {
    let Some(chromium) = Chromium::start().await else { return };
    let mut host = Served::open();
    let window = chromium.window().await;
    window.allow("ERR_CONNECTION_REFUSED");
    window.allow("WebSocket connection");
    window.takes_the_wire("window.cut = (text) => text.includes('\"initialize\"');").await;
    window.chat_window(&host.page("")).await;
    window.new_session().await;
    window.turn("hello", 1).await;
    // Within a handshake, and while a session and its chat are asked for.
    for (cut, step) in [
        ("'\"reconnect\"'", "scrollback.connection.drop()"),
        ("'\"channel\":\"ahp-session'", "location.reload()"),
        ("'\"channel\":\"ahp-chat'", "location.reload()"),
    ] {
        let cut = format!(
            "window.cut = (text) => text.includes({cut}) && text.includes('subscri') || text.includes({cut}) && text.includes('reconnect')"
        );
        if step == "location.reload()" {
            window.goto("about:blank").await;
            window.takes_the_wire(&cut).await;
            window.goto(&host.page("")).await;
            window.click(".session").await;
        } else {
            window.does(&format!("{cut}; {step}")).await;
        }
        window.until("!window.cut && scrollback.isOpen").await;
        window.has_turns(1).await;
    }
    // *Try now* does not wait for the time that the page would let pass.
    window.does("const real = setTimeout; window.setTimeout = (run, ms, ...more) => ([200, 500, 1000, 2000, 4000, 8000].includes(ms) ? 0 : real(run, ms, ...more))").await;
    host.kill();
    window.shows("The connection dropped.").await;
    host.start();
    window.press_named("Try now").await;
    window.until(&format!("scrollback.isOpen && !{BANNER}")).await;
    window.turn("and on", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_connection_that_fails_says_so_and_is_tried_again() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.allow("WebSocket connection");
    window.takes_the_wire("window.deaf = true;").await;
    window.goto(&host.page("")).await;
    window.shows("The host does not answer.").await;
    window.is_for_everybody("chat-unreached").await;
    window.does("window.deaf = false").await;
    window.press_named("Try now").await;
    window.until(&format!("scrollback.isOpen && scrollback.listed && !{BANNER}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_token_the_page_comes_back_as_another_client_and_a_link_needs_no_list() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("root");
    let window = chromium.window().await;
    window.chat_window(&host.page("?tkn=root")).await;
    window.new_session().await;
    window.turn("hello", 1).await;
    let session: String = window.js("scrollback.session").await;
    let grants = ["session:state", "chat:turns"].map(|what| format!("{what}@{session}"));
    let token = host.person("rita", &["--grant", &grants[0], "--grant", &grants[1]]);
    let before: String = window.js("scrollback.connection.clientId").await;
    window
        .does(&format!("sessionStorage.setItem('scrollback.token', {}); scrollback.connection.drop()", quoted(&token)))
        .await;
    window.until("scrollback.isOpen && scrollback.me.principal === 'user:rita'").await;
    window.has_turns(1).await;
    assert_ne!(window.js::<String>("scrollback.connection.clientId").await, before);
    window.shows("You may read here, and not write.").await;
    // The link alone leads there, for who may list nothing.
    window.does("location.reload()").await;
    window.until("scrollback.listed").await;
    window.has_turns(1).await;
    assert!(!window.js::<bool>("Boolean(document.querySelector('.toast'))").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_on_before_an_answer_is_there_is_subscribed_to_where_they_are_alone() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.takes_the_wire("").await;
    window.chat_window(&host.page("")).await;
    for session in ["ahp-session:/a", "ahp-session:/b"] {
        window.talk(talk::session(session, "one")).await;
    }
    window.talk(vec![serde_json::json!({ "method": "createChat", "params": { "channel": "ahp-session:/b", "chat": "ahp-chat:/second" } })]).await;
    window.until("scrollback.sessions.size === 2").await;
    window.does("window.held = []; scrollback.open('ahp-session:/a')").await;
    window.until("scrollback.session === 'ahp-session:/a'").await;
    window.does("scrollback.open('ahp-session:/b')").await;
    window.until("scrollback.session === 'ahp-session:/b'").await;
    window.does("release()").await;
    window.until("scrollback.chatState").await;
    // The first chat's answer is on its way when another one is chosen.
    window.does("window.mark = sent.length; window.held = []; window.first = scrollback.sessionState.defaultChat; scrollback.open('ahp-session:/b', first)").await;
    window
        .until("sent.slice(mark).some(({ method, params }) => method === 'subscribe' && params.channel === first)")
        .await;
    window.does("scrollback.open('ahp-session:/b', 'ahp-chat:/second')").await;
    window
        .until("sent.some(({ method, params }) => method === 'subscribe' && params.channel === 'ahp-chat:/second')")
        .await;
    window.does("release()").await;
    window.until("scrollback.chatState?.resource === scrollback.chat").await;
    let mut held: Vec<String> = window.js("[...scrollback.connection.channels.keys()]").await;
    held.sort();
    assert_eq!(held, ["ahp-chat:/second", "ahp-root://", "ahp-session:/b"]);
    let left: Vec<String> =
        window.js("sent.filter(({ method }) => method === 'unsubscribe').map(({ params }) => params.channel)").await;
    assert!(left.contains(&"ahp-session:/a".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_without_an_echo_brings_the_window_of_turns_again_and_not_all_of_them() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_settings("replay_limit = \"1B\"");
    let window = chromium.window().await;
    window.takes_the_wire("").await;
    window.chat_window(&host.page("")).await;
    let mut steps = talk::session("ahp-session:/long", "long");
    let chat = talk::chat_of("ahp-session:/long");
    steps.extend((0..33).map(|at| talk::say(&chat, &format!("t{at}"), "/say yes")));
    window.talk(steps).await;
    window.click(".session").await;
    window.has_turns(30).await;
    window.does("sent.length = 0; window.held = []; scrollback.draft('mine').then(() => (window.taken = true))").await;
    window.until("held.length > 0").await;
    window.does("window.held = null; scrollback.connection.drop()").await;
    window.until("window.taken && scrollback.isOpen").await;
    window.until("sent.some(({ method }) => method === 'subscribe')").await;
    let asked: Value = window.js("sent.find(({ method }) => method === 'subscribe').params.view").await;
    assert_eq!(asked, serde_json::json!({ "turns": 30 }));
    window.until(&format!("{HELD}.draft?.text === 'mine'")).await;
    window.has_turns(30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_behind_the_hundred_newest_is_there_when_it_is_open_and_when_something_happens_in_it() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.chat_window(&host.page("")).await;
    let chat = talk::chat_of("ahp-session:/old");
    let mut steps = talk::session("ahp-session:/old", "old");
    steps.push(talk::say(&chat, "t", "/say yes"));
    steps.push(serde_json::json!({ "method": "createChat", "params": { "channel": "ahp-session:/old", "chat": "ahp-chat:/other" } }));
    let newer = |at| serde_json::json!({ "method": "createSession", "params": { "channel": format!("ahp-session:/new{at}"), "provider": "demo" } });
    steps.extend((0..100).map(newer));
    window.talk(steps).await;
    window.goto("about:blank").await;
    window.chat_window(&host.page("#session=ahp-session:/old")).await;
    window.until("scrollback.sessions.size === 100 && !scrollback.sessions.has('ahp-session:/old')").await;
    window.until("document.querySelector('.session[aria-current] .name').innerText === 'old'").await;
    window.until("document.querySelectorAll('.chat-link').length === 2").await;
    window.goto("about:blank").await;
    window.chat_window(&host.page("")).await;
    window.until("document.querySelectorAll('.session').length === 100").await;
    window.does(&format!("scrollback.send('/ask-tool rm x', {})", quoted(&chat))).await;
    window.until("[...document.querySelectorAll('.session')].some((e) => e.innerText.includes('old') && e.innerText.includes('waits for you'))").await;
}
