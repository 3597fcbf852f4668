//! The wire between a page and its host, held and cut where a network would do it.

use super::window::Window;

/// What the page sends is noted in `sent`. `held`, a list, takes what comes until `release()`; `cut`, a function, says at which
/// text the socket closes in its place, once. While `deaf`, no socket opens.
const HAND: &str = "
window.sent = [];
window.WebSocket = class extends WebSocket {
  constructor(address) { super(window.deaf ? new URL('healthz', address) : address); }
  set onmessage(hear) {
    super.onmessage = hear && ((event) => (window.held ? window.held.push(() => hear(event)) : hear(event)));
  }
  send(text) {
    if (window.cut?.(text)) { window.cut = null; return this.close(); }
    window.sent.push(JSON.parse(text));
    super.send(text);
  }
};
window.release = () => { const held = window.held; window.held = null; for (const hear of held) hear(); };
";

impl Window {
    /// Takes the wire of every page that this window goes to from now on in hand; `more` is run before the page.
    pub async fn takes_the_wire(&self, more: &str) {
        self.page.evaluate_on_new_document(format!("{HAND}{more}")).await.unwrap();
    }

    /// Runs a statement in the page.
    pub async fn does(&self, statement: &str) {
        assert!(self.js::<bool>(&format!("(() => {{ {statement}; return true; }})()")).await);
    }
}
