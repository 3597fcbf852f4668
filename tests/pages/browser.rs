//! Chromium without a window of its own, and the pages in it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chromiumoxide::cdp::browser_protocol::emulation::SetFocusEmulationEnabledParams;
use chromiumoxide::cdp::browser_protocol::log::{EventEntryAdded, LogEntryLevel};
use chromiumoxide::cdp::js_protocol::runtime::{
    ConsoleApiCalledType, EventConsoleApiCalled, EventExceptionThrown, RemoteObject,
};
use chromiumoxide::{Browser, BrowserConfig, Page};
use futures_util::StreamExt;
use scrollback::config::Environment;
use tempfile::TempDir;

use super::window::Window;

/// Set to `1`, the variable that makes a missing Chromium a failure.
const MUST: &str = "SCROLLBACK_TEST_BROWSER";
/// What the program is called, from the first that is there.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
/// What every wait may take at most. Nothing is ever waited for by its time.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running Chromium. It ends with the test.
pub struct Chromium {
    browser: Browser,
    _profile: TempDir,
}

fn program() -> Option<PathBuf> {
    let environment = Environment::of_process();
    let folders = environment.get("PATH").unwrap_or_default();
    let found = NAMES.iter().flat_map(|name| std::env::split_paths(folders).map(move |folder| folder.join(name)));
    let found = found.into_iter().find(|program| program.is_file());
    if found.is_none() {
        assert_ne!(environment.get(MUST), Some("1"), "Chromium is not installed");
        println!("skipped: Chromium is not installed (scripts/test.sh installs it)");
    }
    found
}

impl Chromium {
    /// Starts one; `None` where there is none and there need not be one.
    pub async fn start() -> Option<Self> {
        let program = program()?;
        let profile = tempfile::tempdir().unwrap();
        let config = BrowserConfig::builder()
            .chrome_executable(program)
            .new_headless_mode()
            // Root has no sandbox, and the pages are our own.
            .no_sandbox()
            .user_data_dir(profile.path())
            .env("HOME", profile.path().to_string_lossy())
            .arg("disable-gpu")
            .viewport(None)
            .launch_timeout(PATIENCE)
            .request_timeout(PATIENCE)
            .build()
            .unwrap();
        let (browser, mut handler) = Browser::launch(config).await.unwrap();
        // Messages of a protocol newer than the library are none of ours.
        tokio::spawn(async move { while handler.next().await.is_some() {} });
        Some(Self { browser, _profile: profile })
    }

    /// An empty window, as wide as a desk's.
    pub async fn window(&self) -> Window {
        let page = self.browser.new_page("about:blank").await.unwrap();
        let complaints = listen(&page).await;
        page.execute(SetFocusEmulationEnabledParams::new(true)).await.unwrap();
        let window = Window { page, complaints, allowed: Mutex::default() };
        window.sized(1280, 800).await;
        window
    }
}

/// Collects what a page complains of: errors and warnings in its console, and exceptions that nobody caught.
async fn listen(page: &Page) -> Arc<Mutex<Vec<String>>> {
    let complaints = Arc::<Mutex<Vec<String>>>::default();
    let (mut thrown, mut said, mut logged) = (
        page.event_listener::<EventExceptionThrown>().await.unwrap(),
        page.event_listener::<EventConsoleApiCalled>().await.unwrap(),
        page.event_listener::<EventEntryAdded>().await.unwrap(),
    );
    page.enable_runtime().await.unwrap();
    page.enable_log().await.unwrap();
    let note = {
        let complaints = Arc::clone(&complaints);
        move |text: String| complaints.lock().unwrap().push(text)
    };
    let noted = note.clone();
    tokio::spawn(async move {
        while let Some(event) = thrown.next().await {
            let details = &event.exception_details;
            let what = details.exception.as_ref().and_then(|object| object.description.clone());
            noted(format!("exception: {} {}", details.text, what.unwrap_or_default()));
        }
    });
    let noted = note.clone();
    tokio::spawn(async move {
        while let Some(event) = said.next().await {
            if matches!(event.r#type, ConsoleApiCalledType::Error | ConsoleApiCalledType::Warning) {
                let words: Vec<String> = event.args.iter().map(spoken).collect();
                noted(format!("console: {}", words.join(" ")));
            }
        }
    });
    tokio::spawn(async move {
        while let Some(event) = logged.next().await {
            if matches!(event.entry.level, LogEntryLevel::Error | LogEntryLevel::Warning) {
                note(format!("log: {} {}", event.entry.text, event.entry.url.clone().unwrap_or_default()));
            }
        }
    });
    complaints
}

fn spoken(object: &RemoteObject) -> String {
    let value = object.value.as_ref().map(ToString::to_string);
    value.or_else(|| object.description.clone()).unwrap_or_default()
}
