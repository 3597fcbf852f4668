//! One page as somebody sees it: its parts are found by what they are called, and waited for.

use std::sync::{Arc, Mutex};

use chromiumoxide::Page;
use chromiumoxide::cdp::browser_protocol::emulation::{MediaFeature, SetDeviceMetricsOverrideParams};
use chromiumoxide::cdp::browser_protocol::input::InsertTextParams;
use chromiumoxide::cdp::browser_protocol::page::CaptureScreenshotFormat;
use chromiumoxide::page::ScreenshotParams;
use scrollback::config::Environment;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::browser::PATIENCE;

/// The accessibility checker, run in the page.
const AXE: &str = include_str!("vendor/axe.min.js");
/// How wide a telephone is.
const PHONE: (i64, i64) = (390, 844);
const DESK: (i64, i64) = (1280, 800);

/// A page in a window of its own. It fails its test when it complained of something.
pub struct Window {
    pub page: Page,
    pub complaints: Arc<Mutex<Vec<String>>>,
    pub allowed: Mutex<Vec<String>>,
}

impl Window {
    /// Goes to an address and returns when the page is loaded.
    pub async fn goto(&self, address: &str) -> &Self {
        timeout(PATIENCE, self.page.goto(address)).await.expect("a page in time").unwrap();
        self
    }

    /// The value of an expression, awaited where it is a promise. Fails where it throws.
    pub async fn js<T: DeserializeOwned>(&self, expression: &str) -> T {
        let value = self.page.evaluate_expression(expression).await;
        let value = value.unwrap_or_else(|error| panic!("{expression}: {error}"));
        value.into_value().unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Waits until `condition`, an expression, holds; fails with what the page shows instead.
    pub async fn until(&self, condition: &str) {
        let asked = format!(
            "new Promise((done) => {{ const look = () => {{ let holds = false; try {{ holds = Boolean({condition}); }} \
             catch {{}} if (holds) done(true); else setTimeout(look, 10); }}; look(); setTimeout(() => done(false), 5000); }})"
        );
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            // A page that is being loaded has no answer: it is asked again.
            let answer = self.page.evaluate_expression(asked.as_str()).await;
            if answer.ok().and_then(|value| value.into_value::<bool>().ok()) == Some(true) {
                return;
            }
        }
        let shown: String = self.js("document.body.innerText").await;
        panic!("never: {condition}\nthe page shows:\n{shown}\nand complained: {:?}", self.complaints());
    }

    /// Waits until the page shows this text.
    pub async fn shows(&self, text: &str) {
        self.until(&format!("document.body.innerText.includes({})", quoted(text))).await;
    }

    /// Waits for the one element that `selector` names and gets its text.
    pub async fn text(&self, selector: &str) -> String {
        self.until(&format!("document.querySelector({})", quoted(selector))).await;
        self.js(&format!("document.querySelector({}).innerText", quoted(selector))).await
    }

    /// Presses what `selector` names with the mouse, once it is there and can be pressed.
    pub async fn click(&self, selector: &str) {
        let found = format!("document.querySelector({})", quoted(selector));
        self.until(&format!("{found} && !{found}.disabled && {found}.getClientRects().length")).await;
        let end = Instant::now() + PATIENCE;
        loop {
            let pressed = async {
                let element = self.page.find_element(selector).await?;
                element.scroll_into_view().await?.click().await.map(|_| ())
            };
            match pressed.await {
                Ok(()) => return,
                // It was drawn anew in between.
                Err(_) if Instant::now() < end => {}
                Err(error) => panic!("{selector}: {error}"),
            }
        }
    }

    /// Presses the button or link that is called so, by what a screen reader says.
    pub async fn press_named(&self, name: &str) {
        let mark = format!(
            "(() => {{ const all = [...(document.querySelector('dialog[open]') ?? document).querySelectorAll('button, a, [role=button], summary, [role=menuitem]')]; \
             const shown = all.filter((e) => !e.disabled && e.getClientRects().length); \
             const named = shown.find((e) => (e.getAttribute('aria-label') ?? e.textContent).trim() === {0}); \
             if (!named) return false; document.querySelector('[data-found]')?.removeAttribute('data-found'); \
             named.setAttribute('data-found', ''); return true; }})()",
            quoted(name)
        );
        self.until(&mark).await;
        self.click("[data-found]").await;
    }

    /// Writes into what `selector` names, in place of what is there.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        let select = format!("document.querySelector({}).select(), true", quoted(selector));
        self.js::<bool>(&select).await;
        self.insert(text).await;
    }

    /// Writes where the focus is, at once.
    pub async fn insert(&self, text: &str) {
        self.page.execute(InsertTextParams::new(text)).await.unwrap();
    }

    pub async fn sized(&self, width: i64, height: i64) {
        let metrics = SetDeviceMetricsOverrideParams::new(width, height, 1.0, false);
        self.page.execute(metrics).await.unwrap();
    }

    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let feature = MediaFeature { name: "prefers-color-scheme".into(), value: value.into() };
        self.page.emulate_media_features(vec![feature]).await.unwrap();
    }

    /// Looks at the page in both colours, wide and narrow: everybody must be able to use it, and nothing may stick out. Writes
    /// pictures of all four, where they are asked for.
    pub async fn is_for_everybody(&self, name: &str) {
        self.page.evaluate_expression(AXE).await.expect("the checker loads");
        let mut faults = Vec::new();
        for ((width, height), size) in [(DESK, ""), (PHONE, "-phone")] {
            self.sized(width, height).await;
            for (dark, colours) in [(false, ""), (true, "-dark")] {
                self.dark(dark).await;
                self.settled().await;
                self.shot(&format!("{name}{size}{colours}")).await;
                let found: Vec<String> = self.js(LOOK).await;
                faults.extend(found.into_iter().map(|fault| format!("{name}{size}{colours}: {fault}")));
                let wide: i64 = self.js("document.documentElement.scrollWidth").await;
                if wide > width {
                    faults.push(format!("{name}{size}{colours}: it is {wide} wide"));
                }
            }
        }
        self.dark(false).await;
        self.sized(DESK.0, DESK.1).await;
        self.settled().await;
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// Two frames later, and no transition goes on; or a second later, where the browser has no reason to draw.
    async fn settled(&self) {
        let frames = "new Promise((done) => { setTimeout(done, 1000, true); \
                      requestAnimationFrame(() => requestAnimationFrame(async () => { \
                      const passing = document.getAnimations().filter((a) => a.effect?.getComputedTiming().iterations !== Infinity); \
                      await Promise.allSettled(passing.map((a) => a.finished)); done(true); })); })";
        self.js::<bool>(frames).await;
    }

    /// Writes a picture, where `SCROLLBACK_SCREENSHOTS` names a folder.
    pub async fn shot(&self, name: &str) {
        let Some(folder) = Environment::of_process().get("SCROLLBACK_SCREENSHOTS").map(str::to_owned) else { return };
        let params = ScreenshotParams::builder().format(CaptureScreenshotFormat::Png).build();
        let picture = self.page.screenshot(params).await.unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(std::path::Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }

    /// What the browser says by itself and this test brings about, such as that a host cannot be reached.
    pub fn allow(&self, words: &str) {
        self.allowed.lock().unwrap().push(words.to_owned());
    }

    fn complaints(&self) -> Vec<String> {
        let allowed = self.allowed.lock().unwrap();
        let complaints = self.complaints.lock().unwrap();
        complaints.iter().filter(|said| !allowed.iter().any(|words| said.contains(words))).cloned().collect()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.complaints(), Vec::<String>::new(), "the page complained");
        }
    }
}

/// A string as JavaScript writes it.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Every fault that the checker finds, with where it is.
const LOOK: &str = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.flatMap((fault) => \
                    fault.nodes.map((node) => `${fault.id}: ${node.target} ${node.failureSummary}`)))";
