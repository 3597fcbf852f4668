//! Something to look at: sessions that are made, and said something in, over the protocol from within a page.

use scrollback::actors::registry::first_chat_uri;
use serde_json::{Value, json};

use super::window::Window;

/// Speaks the protocol as any client: the steps one after the other, each awaited; the `actions` of one step go out at once.
const TALK: &str = r#"
(steps) => new Promise((resolve, reject) => {
  const address = new URL('/', location.href);
  address.protocol = 'ws:';
  const token = sessionStorage.getItem('scrollback.token');
  if (token) address.searchParams.set('tkn', token);
  const socket = new WebSocket(address);
  const waiting = [];
  const until = (fits) => new Promise((done) => waiting.push([fits, done]));
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    for (const entry of [...waiting]) if (entry[0](message)) { waiting.splice(waiting.indexOf(entry), 1); entry[1](message); }
  };
  let id = 0;
  let clientSeq = 0;
  const ask = async (method, params) => {
    const mine = ++id;
    const answered = until((message) => message.id === mine);
    socket.send(JSON.stringify({ jsonrpc: '2.0', id: mine, method, params }));
    const { error } = await answered;
    if (error) throw new Error(`${method}: ${error.message}`);
  };
  const dispatch = (channel, action) => {
    const mine = ++clientSeq;
    const echoed = until((message) => message.params?.origin?.clientSeq === mine);
    socket.send(JSON.stringify({ jsonrpc: '2.0', method: 'dispatchAction', params: { channel, clientSeq: mine, action } }));
    return echoed;
  };
  socket.onerror = () => reject(new Error('no socket'));
  socket.onopen = async () => {
    try {
      await ask('initialize', { channel: 'ahp-root://', protocolVersions: ['1.0.0'], clientId: `test-${Math.random()}` });
      for (const step of steps) {
        if (step.method) await ask(step.method, step.params);
        else if (step.say) {
          const over = step.begins ? null : until(({ params }) => ['chat/turnComplete', 'chat/error'].includes(params?.action?.type) && params.action.turnId === step.turn);
          const message = { text: step.say, origin: { kind: 'user' } };
          await dispatch(step.chat, { type: 'chat/turnStarted', turnId: step.turn, startedAt: '2026-01-01T00:00:00Z', message });
          await over;
        } else if (step.actions) await Promise.all(step.actions.map((action) => dispatch(step.channel, action)));
        else await dispatch(step.channel, step.action);
      }
      socket.close();
      resolve(true);
    } catch (error) {
      reject(error);
    }
  };
})"#;

/// The first chat of a session.
pub fn chat_of(session: &str) -> String {
    first_chat_uri(session)
}

/// Steps that make a session with this title, and hear its first chat.
pub fn session(uri: &str, title: &str) -> Vec<Value> {
    vec![
        json!({ "method": "createSession", "params": { "channel": uri, "provider": "demo" } }),
        json!({ "method": "subscribe", "params": { "channel": uri } }),
        json!({ "method": "subscribe", "params": { "channel": chat_of(uri) } }),
        json!({ "channel": uri, "action": { "type": "session/titleChanged", "title": title } }),
    ]
}

/// A step that says something in a chat that is heard, and waits for the end of the turn.
pub fn say(chat: &str, turn: &str, text: &str) -> Value {
    json!({ "chat": chat, "turn": turn, "say": text })
}

/// A session with all that has a lineage: forks, a side chat, a worker, and turns that a rewind dropped.
pub fn lineage(uri: &str, title: &str) -> Vec<Value> {
    let chat = chat_of(uri);
    let made = |new: &str, kind: &str, of: &str, turn: &str| {
        let source = json!({ "kind": kind, "chat": of, "turnId": turn });
        json!({ "method": "createChat", "params": { "channel": uri, "chat": new, "source": source } })
    };
    let mut steps = session(uri, title);
    steps.extend([
        say(&chat, "t1", "Which parser do we have?\n/tool read src/parser.rs"),
        say(&chat, "t2", "/think It could be the tokens.\n/say The parser stops at the first comment."),
        say(&chat, "t3", "/say A rewrite would take a day."),
        say(&chat, "t4", "/subagent /say three tests fail"),
        made("ahp-chat:/parser-fork", "fork", &chat, "t2"),
        json!({ "method": "subscribe", "params": { "channel": "ahp-chat:/parser-fork" } }),
        say("ahp-chat:/parser-fork", "f1", "/say Comments are skipped now."),
        made("ahp-chat:/parser-side", "sideChat", "ahp-chat:/parser-fork", "f1"),
        json!({ "channel": chat, "action": { "type": "chat/truncated", "turnId": "t2" } }),
        say(&chat, "t5", "/say Then skip the comments first."),
    ]);
    steps
}

impl Window {
    /// Makes and says all of it. The page has to be one of the host's.
    pub async fn talk(&self, steps: Vec<Value>) {
        assert!(self.js::<bool>(&format!("({TALK})({})", Value::from(steps))).await);
    }
}
