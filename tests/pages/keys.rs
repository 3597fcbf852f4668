//! A keyboard.

use chromiumoxide::cdp::browser_protocol::input::{DispatchKeyEventParams, DispatchKeyEventType};

use super::window::Window;

/// Modifiers, as the browser counts them.
pub const CONTROL: i64 = 2;
pub const SHIFT: i64 = 8;

impl Window {
    /// Presses and releases a key, such as `Enter` or `Tab`.
    pub async fn key(&self, name: &str) {
        self.key_with(name, 0).await;
    }

    /// The same with modifiers held.
    pub async fn key_with(&self, name: &str, modifiers: i64) {
        let known = chromiumoxide::keys::get_key_definition(name).expect("a key of that name");
        let event = |kind| {
            let event = DispatchKeyEventParams::builder().r#type(kind).key(known.key).code(known.code);
            let event = event.windows_virtual_key_code(known.key_code).native_virtual_key_code(known.key_code);
            event.modifiers(modifiers)
        };
        let text = known.text.or((known.key.len() == 1).then_some(known.key));
        let down = match text {
            Some(text) if modifiers & CONTROL == 0 => event(DispatchKeyEventType::KeyDown).text(text),
            _ => event(DispatchKeyEventType::RawKeyDown),
        };
        self.page.execute(down.build().unwrap()).await.unwrap();
        self.page.execute(event(DispatchKeyEventType::KeyUp).build().unwrap()).await.unwrap();
    }

    /// Presses Tab until what has the focus is called so; fails when the focus comes round without it.
    pub async fn tab_to(&self, name: &str) {
        for _ in 0..200 {
            let focused: String = self.js(FOCUSED).await;
            if focused == name {
                return;
            }
            self.key("Tab").await;
        }
        panic!("Tab does not lead to {name}");
    }
}

/// What a screen reader says of the focus, as far as this needs it.
const FOCUSED: &str = "(() => { const e = document.activeElement; \
                       return (e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.textContent ?? '').trim(); })()";
