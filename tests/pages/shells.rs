//! The shells: what every page has around it.

use super::browser::Chromium;
use super::keys::SHIFT;
use super::served::Served;
use super::window::Window;

/// The admin pages, by address and heading.
const ADMIN: [(&str, &str); 6] = [
    ("admin/", "Overview"),
    ("admin/sessions", "Sessions"),
    ("admin/log", "Log"),
    ("admin/people", "People"),
    ("admin/agents", "Agents"),
    ("admin/configuration", "Configuration"),
];

/// Waits until an admin page is there.
async fn heading_is(window: &Window, heading: &str) {
    window.until(&format!("document.querySelector('main[data-shown] h1')?.innerText === '{heading}'")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_admin_page_comes_up_and_is_for_everybody() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    for (path, heading) in ADMIN {
        window.goto(&host.page(path)).await;
        heading_is(&window, heading).await;
        let name = path.trim_end_matches('/').replace('/', "-");
        window.is_for_everybody(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_pages_are_walked_without_loading_the_shell_again() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.goto(&host.page("admin")).await;
    heading_is(&window, "Overview").await;
    window.js::<bool>("window.kept = true").await;
    // Too low for any page, which is shown from its top.
    window.sized(1000, 200).await;
    for (path, heading) in ADMIN.into_iter().rev() {
        window.press_named(heading).await;
        heading_is(&window, heading).await;
        let there: String = window.js("location.href").await;
        assert_eq!(there, host.page(path));
        let focused = "document.activeElement.closest('#main')";
        window.until(&format!("({focused} && ({focused} !== document.activeElement || scrollY === 0))")).await;
    }
    window.js::<bool>("(history.back(), true)").await;
    heading_is(&window, "Sessions").await;
    assert!(window.js::<bool>("window.kept").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_address_is_taken_and_removed_and_one_that_is_missing_is_asked_for() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("open sesame");
    let window = chromium.window().await;
    window.goto(&host.page("admin/agents?tkn=open%20sesame&x=1")).await;
    window.shows("starts here").await;
    assert_eq!(window.js::<String>("location.href").await, host.page("admin/agents?x=1"));

    let other = chromium.window().await;
    other.allow("401 (Unauthorized)");
    other.goto(&host.page("admin/agents")).await;
    other.fill("#token", "wrong").await;
    other.key("Enter").await;
    other.shows("not, or no longer, good").await;
    // The question stays where one goes on meanwhile, and what is asked then waits for the same answer.
    other.js::<bool>("(history.pushState(null, '', 'people'), dispatchEvent(new PopStateEvent('popstate')))").await;
    other.fill("#token", "open sesame").await;
    other.key("Enter").await;
    other.shows("There is nobody yet").await;
    other.press_named("Forget the token").await;
    other.shows("Token needed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_see_a_page_is_told_so() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::with_token("root");
    let token = host.person("gus", &["--role", "guest"]);
    let window = chromium.window().await;
    window.allow("403 (Forbidden)");
    window.goto(&host.page(&format!("admin/agents?tkn={token}"))).await;
    window.shows("needs host:read, which was not granted").await;
    window.is_for_everybody("admin-refused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn light_and_dark_are_chosen_and_kept() {
    let Some(chromium) = Chromium::start().await else { return };
    let host = Served::open();
    let window = chromium.window().await;
    window.goto(&host.page("admin/")).await;
    heading_is(&window, "Overview").await;
    window.press_named("Dark colours").await;
    window.until("getComputedStyle(document.body).backgroundColor === 'rgb(22, 21, 19)'").await;
    window.goto(&host.page("admin/agents")).await;
    window.until("getComputedStyle(document.body).backgroundColor === 'rgb(22, 21, 19)'").await;
    window.press_named("Light colours").await;
    window.until("getComputedStyle(document.body).backgroundColor === 'rgb(246, 242, 234)'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_are_walked_by_keyboard_alone() {
    let Some(chromium) = Chromium::start().await else { return };
    let mut host = Served::open();
    let window = chromium.window().await;
    window.goto(&host.page("admin/")).await;
    heading_is(&window, "Overview").await;
    window.key("Tab").await;
    assert_eq!(window.text(":focus").await, "To the content");
    window.tab_to("Agents").await;
    window.key_with("Tab", SHIFT).await;
    assert_eq!(window.text(":focus").await, "People");
    window.key("Tab").await;
    window.key("Enter").await;
    heading_is(&window, "Agents").await;

    // A host that is gone is told of in words, and is there again when it is.
    window.allow("ERR_CONNECTION_REFUSED");
    host.kill();
    window.tab_to("Agents").await;
    window.key("Enter").await;
    window.shows("The host cannot be reached.").await;
    host.start();
    window.press_named("Try again").await;
    window.shows("starts here").await;
}
