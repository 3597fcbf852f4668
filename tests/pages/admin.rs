//! The admin pages: what each shows and does, by mouse and by keyboard, and to somebody who may not.

use super::browser::Chromium;
use super::served::Served;
use super::talk::{chat_of, lineage, say, session};
use super::window::Window;

const S: &str = "ahp-session:/parser";

/// A window on a host with a session that has a lineage, and two more.
async fn furnished(chromium: &Chromium, host: &Served, token: &str) -> Window {
    let window = chromium.window().await;
    window.goto(&host.page(&format!("admin/configuration{token}"))).await;
    shown(&window, "configuration").await;
    let mut steps = lineage(S, "Fix the parser");
    steps.extend(session("ahp-session:/docs", "Write the first-hour page"));
    steps.push(say(&chat_of("ahp-session:/docs"), "d1", "/say A page that one reads in an hour."));
    steps.extend(session("ahp-session:/nightly", "Why is the nightly run red?"));
    steps.push(say(&chat_of("ahp-session:/nightly"), "n1", "/fail the build machine is gone"));
    window.talk(steps).await;
    window
}

/// Waits until the admin page with this id has filled its place.
async fn shown(window: &Window, id: &str) {
    window.until(&format!("document.querySelector('main')?.dataset.shown === '{id}'")).await;
}

fn page(name: &str, channel: &str) -> String {
    format!("admin/{name}{}{channel}", if name == "session" { "?uri=" } else { "?channel=" })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_tells_what_runs_and_draws_what_was_written() {
    let Some(chromium) = Chromium::start().await else { return };
    let mut host = Served::open();
    let window = furnished(&chromium, &host, "").await;
    let chat = chat_of("ahp-session:/docs");
    let mut steps = vec![serde_json::json!({ "method": "subscribe", "params": { "channel": chat } })];
    steps.push(serde_json::json!({ "chat": chat, "turn": "long", "say": "/sleep 600000", "begins": true }));
    window.talk(steps).await;
    window.goto(&host.page("admin/")).await;
    shown(&window, "overview").await;
    window.shows("At work (1)").await;
    window.shows("Events are taken, and no limit is near.").await;
    assert_eq!(window.js::<usize>("document.querySelectorAll('.plot svg').length").await, 6);
    window.is_for_everybody("overview").await;
    // A host that is gone under the page is told of, and is there again when it is.
    window.allow("ERR_CONNECTION_REFUSED");
    host.kill();
    window.shows("The host cannot be reached. It is asked again.").await;
    host.start();
    window.shows("Events are taken, and no limit is near.").await;
    // Lines are drawn of what was sampled: of the start there is something above the bottom.
    let heights = "[...(document.querySelector('.plot polyline')?.points ?? [])].map((point) => point.y)";
    window.until(&format!("(({heights}).length >= 2 && Math.min(...{heights}) < 100)")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_searched_and_a_session_shows_where_its_chats_came_from() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = furnished(&chromium, &host, "").await;
    window.goto(&host.page("admin/sessions")).await;
    window.shows("3 sessions.").await;
    window.shows("Why is the nightly run red?").await;
    window.is_for_everybody("sessions").await;
    window.fill("#search", "parser").await;
    window.shows("1 found.").await;
    assert!(window.js::<String>("location.search").await.contains("search=parser"));
    window.press_named("Fix the parser").await;
    shown(&window, "session").await;
    window.shows("Chats (4)").await;
    for words in ["Fork", "Side chat", "Worker", "2 turns that a rewind dropped"] {
        window.shows(words).await;
    }
    // The side chat hangs under the fork that it came from.
    let under: String =
        window.js("[...document.querySelectorAll('.tree .tree .tree .uri')].map((e) => e.innerText).join()").await;
    assert_eq!(under, "ahp-chat:/parser-side");
    window.is_for_everybody("session").await;
    window.js::<bool>("(history.back(), true)").await;
    window.shows("1 found.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_filtered_followed_live_and_shows_an_event_whole() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = furnished(&chromium, &host, "").await;
    let chat = chat_of(S);
    window.goto(&host.page(&page("log", &chat))).await;
    shown(&window, "log").await;
    window.shows("chat/turnComplete").await;
    window.fill("#by-type", "chat/turnStarted").await;
    window.press_named("Filter").await;
    window.until("document.querySelectorAll('tbody tr').length === 5").await;
    assert!(window.js::<String>("location.search").await.contains("type=chat%2FturnStarted"));
    window.click("tbody tr:first-child .seq").await;
    window.shows("Which parser do we have?").await;
    let seq: String = window.js("document.querySelector('tbody tr').dataset.seq").await;
    window.shows(&format!("Event {seq}")).await;
    window.is_for_everybody("log").await;
    // A link to it shows the same.
    let address: String = window.js("location.href").await;
    let other = chromium.window().await;
    other.goto(&address).await;
    other.shows("The state right after it").await;
    other.press_named("The state right after it").await;
    shown(&other, "time").await;
    // Live, with the filter.
    window.press_named("Close").await;
    window.click("#follow").await;
    window.until("document.querySelector('[data-live=open]')").await;
    other
        .talk(vec![
            serde_json::json!({ "method": "subscribe", "params": { "channel": chat } }),
            say(&chat, "live", "/say said meanwhile"),
        ])
        .await;
    window.until("document.querySelectorAll('tbody tr').length === 6").await;
    window.shows("said meanwhile").await;
    // What the host notes for itself comes too, and more at once than one page of it has.
    window.press_named("Clear").await;
    window.click("#follow").await;
    window.click("#follow").await;
    window.until("document.querySelector('[data-live=open]')").await;
    let drafts = (0..250).map(|n| {
        serde_json::json!({ "type": "chat/draftChanged",
        "draft": { "text": format!("draft {n}"), "origin": { "kind": "user" } } })
    });
    other
        .talk(vec![
            serde_json::json!({ "method": "subscribe", "params": { "channel": chat } }),
            serde_json::json!({ "channel": chat, "actions": drafts.collect::<Vec<_>>() }),
        ])
        .await;
    let drafts =
        "[...document.querySelectorAll('tbody tr')].filter((row) => row.innerText.includes('chat/draftChanged'))";
    window.until(&format!("{drafts}.length === 250")).await;
    assert!(window.js::<bool>("document.querySelector('#follow').checked").await);
    window.goto(&host.page("admin/log?type=host/*")).await;
    window.shows("host/sessionCreated").await;
    window.click("#follow").await;
    other
        .talk(vec![serde_json::json!({ "method": "createSession", "params": { "channel": "ahp-session:/100%" } })])
        .await;
    window.shows("100%").await;
    // The log of everything, by whom it was.
    window.goto(&host.page("admin/log?by=agent:demo&type=chat/error")).await;
    window.shows("the build machine is gone").await;
    window.until("document.querySelectorAll('tbody tr').length === 1").await;
    // What is older is a page away.
    window.goto(&host.page("admin/log?event=40")).await;
    window.shows("Event 40").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_is_seen_as_it_was_compared_and_forked_from_there() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = furnished(&chromium, &host, "").await;
    window.goto(&host.page(&page("time", &chat_of(S)))).await;
    shown(&window, "time").await;
    window.shows("Then skip the comments first.").await;
    window.press_named("First event").await;
    window.shows("Nothing had been said.").await;
    window.press_named("Compare from here").await;
    for _ in 0..3 {
        window.press_named("Next turn").await;
    }
    window.shows("A rewrite would take a day.").await;
    window.shows("added").await;
    let state: String = window.text(".raw pre").await;
    assert!(state.contains("\"turns\""), "{state}");
    window.is_for_everybody("time-travel").await;
    window.press_named("End the comparison").await;
    // What comes meanwhile is there when one goes to the end.
    let chat = chat_of(S);
    let more = vec![
        serde_json::json!({ "method": "subscribe", "params": { "channel": chat } }),
        say(&chat, "t6", "/say And test them."),
    ];
    window.talk(more).await;
    window.press_named("Last event").await;
    window.shows("And test them.").await;
    window.shows("· now").await;
    window.press_named("Previous turn").await;
    window.press_named("Previous turn").await;
    window.until("!document.querySelector('.then').innerText.includes('And test them.')").await;
    window.until("new URLSearchParams(location.search).get('at') === document.querySelector('#seq').value").await;
    let at: String = window.js("new URLSearchParams(location.search).get('at')").await;
    window.press_named("Fork from here").await;
    window.shows(&format!("had ended at event {at}")).await;
    window.press_named("Fork").await;
    shown(&window, "session").await;
    window.shows("Chats (5)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_are_added_granted_and_removed_and_a_token_is_shown_once() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("root");
    let window = chromium.window().await;
    window.goto(&host.page("admin/people?tkn=root")).await;
    shown(&window, "people").await;
    window.press_named("Add somebody").await;
    window.insert("ada").await;
    window.click("dialog #role-member").await;
    window.shot("people-add").await;
    window.press_named("Add").await;
    window.shows("It is shown this once").await;
    let token: String = window.js("document.querySelector('#made-token').value").await;
    assert!(token.starts_with("sbt_"), "{token}");
    window.press_named("I have it").await;
    window.until("document.querySelector('tr[data-name=ada]')").await;
    window.until("!document.querySelector('dialog')").await;
    let has_it = "document.body.innerText + [...document.querySelectorAll('input, textarea')].map((one) => one.value)";
    assert!(!window.js::<String>(has_it).await.contains(&token));
    window.press_named("Grant ada more").await;
    window.fill("dialog textarea", "log:read").await;
    window.press_named("Grant").await;
    window.press_named("Take log:read from ada").await;
    window.shows("It ends at once").await;
    window.press_named("Take it").await;
    window.shows("ada has log:read no more.").await;
    window.until("document.activeElement.closest('tr')?.dataset.name === 'ada'").await;
    window.press_named("Make a token for ada").await;
    window.press_named("Make it").await;
    window.press_named("I have it").await;
    window.until("document.querySelectorAll('tr[data-name=ada] td:nth-child(4) li').length === 2").await;
    // What is done by keyboard goes on where it was.
    window.until("document.activeElement.getAttribute('aria-label') === 'Make a token for ada'").await;
    window.is_for_everybody("people").await;
    // The token is good, and not any more when she is gone.
    let other = chromium.window().await;
    other.goto(&host.page(&format!("admin/sessions?tkn={token}"))).await;
    other.shows("There is no session yet.").await;
    window.press_named("Remove ada").await;
    window.press_named("Remove").await;
    window.shows("There is nobody yet").await;
    window.until("document.activeElement.innerText === 'Add somebody'").await;
    other.allow("401 (Unauthorized)");
    other.goto(&host.page("admin/sessions")).await;
    other.shows("Token needed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_is_searched_and_says_where_each_value_came_from() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("a secret of this host");
    let window = chromium.window().await;
    window.goto(&host.page("admin/configuration?tkn=a%20secret%20of%20this%20host")).await;
    window.shows("max_message").await;
    assert!(!window.js::<bool>("document.body.innerText.includes('a secret of this host')").await);
    window.click("#set").await;
    window.shows("flag --listen").await;
    window.fill("#key", "token").await;
    window.shows("flag --token-file").await;
    window.is_for_everybody("configuration").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_sees_sessions_and_states_and_is_told_what_the_rest_needs() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("root");
    drop(furnished(&chromium, &host, "?tkn=root").await);
    let token = host.person("gus", &["--role", "guest"]);
    let window = chromium.window().await;
    window.allow("403 (Forbidden)");
    window.goto(&host.page(&format!("admin/sessions?tkn={token}"))).await;
    window.shows("3 sessions.").await;
    assert!(!window.js::<bool>("Boolean(document.querySelector('#disposed'))").await);
    let links: String = window
        .js("[...document.querySelectorAll('.top nav a')].filter((a) => !a.hidden).map((a) => a.innerText).join()")
        .await;
    assert_eq!(links, "Chat,Sessions");
    window.press_named("Fix the parser").await;
    window.shows("Forking needs chat:fork.").await;
    window.shows("The log of a session needs log:read.").await;
    window.is_for_everybody("session-guest").await;
    window.press_named("Time travel").await;
    window.shows("Then skip the comments first.").await;
    window.shows("What each event was needs log:read.").await;
    for (path, operation) in [
        ("admin/", "host:read"),
        ("admin/log", "log:read"),
        ("admin/people", "user:read"),
        ("admin/configuration", "config:read"),
    ] {
        window.goto(&host.page(path)).await;
        window.shows("Not for you").await;
        window.shows(&format!("needs {operation}")).await;
    }
    let reader = host.person("rita", &["--grant", "user:read"]);
    let window = chromium.window().await;
    window.goto(&host.page(&format!("admin/people?tkn={reader}"))).await;
    window.shows("Changing people needs user:change.").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_keyboard_alone_a_chat_is_found_gone_back_in_and_forked() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = furnished(&chromium, &host, "").await;
    window.goto(&host.page("admin/")).await;
    shown(&window, "overview").await;
    window.tab_to("Sessions").await;
    window.key("Enter").await;
    // The field has the focus.
    window.until("document.activeElement?.id === 'search'").await;
    window.insert("fix parser").await;
    window.shows("1 found.").await;
    window.tab_to("Fix the parser").await;
    window.key("Enter").await;
    shown(&window, "session").await;
    window.tab_to("Time travel").await;
    window.key("Enter").await;
    shown(&window, "time").await;
    window.shows("Then skip the comments first.").await;
    window.tab_to("Moment").await;
    window.key("Home").await;
    window.shows("Nothing had been said.").await;
    window.tab_to("Next turn").await;
    window.key("Enter").await;
    window.shows("Which parser do we have?").await;
    window.tab_to("Fork from here").await;
    window.key("Enter").await;
    window.tab_to("Fork").await;
    window.key("Enter").await;
    shown(&window, "session").await;
    window.shows("Chats (5)").await;
}
