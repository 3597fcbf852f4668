// A connection to the host over AHP: it shakes hands, keeps the states of what it is subscribed to, and comes back by itself.
//
// Always: an envelope is folded into a channel's state once, in order, and only when it is newer than the snapshot. After a drop
// `reconnect` brings what was missed, as a replay or as snapshots. Actions that had no echo when the connection dropped are sent
// again under their old number, which the host applies once. States are never changed ahead of the host.
// Source: AHP 1.0.0, transport and lifecycle.

import { base, get } from './api.js';
import { reduce } from './reducers.js';
import { token } from './token.js';

export const ROOT = 'ahp-root://';
const VERSIONS = ['1.0.0'];
const WAITS = [200, 500, 1000, 2000, 4000, 8000];
const SILENCE = 20_000;
/** What a handshake may take: its answer holds all that was missed, in one message. */
const HANDSHAKE = 60_000;

/** A refusal by the host, of an action or a command: `code` is its stable word. */
export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** A new name that nobody has had. Without a secure origin there is no `randomUUID`. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/**
 * Events: `state` (of the connection: `connecting`, `open`, `lost`, `refused`), `change` (detail: the channel whose state
 * changed), `notification` (detail: the message), `gone` (detail: a channel that is no more), `resumed` (after a drop).
 */
export class Connection extends EventTarget {
  /** Fresh for each load of a page: numbers of actions begin at 1 with it. */
  clientId = `page-${newId()}`;
  state = 'connecting';
  /** Why it is lost or refused, for people. */
  problem = null;
  /** What each channel that is subscribed to is: `{state, seq}`. */
  channels = new Map();
  lastSeen = 0;
  /** Of each channel that is wanted, the view that was asked for. */
  #wishes = new Map();
  #socket = null;
  #cut = () => {};
  #greeted = false;
  /** Whether the host knows this client, so that it can come back. */
  #known = false;
  #nextRequest = 1;
  #nextSeq = 1;
  #requests = new Map();
  /** Actions without an echo, by their number. */
  #pending = new Map();
  #tries = 0;
  #wake = null;
  #closed = false;
  #heard = 0;

  constructor() {
    super();
    addEventListener('online', () => this.tryNow());
    addEventListener('pagehide', () => this.close());
    addEventListener('pageshow', (event) => event.persisted && location.reload());
    setInterval(() => this.#feel(), SILENCE / 2);
    this.#run();
  }

  /** The state of a channel, or null while there is none. */
  get(channel) {
    return this.channels.get(channel)?.state ?? null;
  }

  tryNow() {
    this.#tries = 0;
    this.#wake?.();
  }

  /** Cuts the socket as a network would; it comes back by itself. */
  drop() {
    this.#socket?.close(4000, 'dropped');
  }

  close() {
    this.#closed = true;
    this.#socket?.close(1000);
  }

  /** Asks the host; resolves with the result, rejects with a Refusal. */
  request(method, params = {}) {
    if (this.state !== 'open') return Promise.reject(new Refusal('not-connected', 'There is no connection to the host.'));
    return this.#ask(method, params);
  }

  /**
   * Subscribes; resolves with the state, or with null where it was unsubscribed from meanwhile. `turns` is how many of the
   * newest turns are wanted.
   */
  async subscribe(channel, { turns } = {}) {
    const wish = turns ? { view: { turns } } : {};
    this.#wishes.set(channel, wish);
    try {
      const { snapshot } = await this.request('subscribe', { channel, ...wish });
      if (!this.#wishes.has(channel)) this.#leave(channel);
      else if (snapshot) this.#take(snapshot, channel);
    } catch (error) {
      if (this.#wishes.get(channel) === wish && !this.channels.has(channel)) this.#wishes.delete(channel);
      throw error;
    }
    return this.get(channel);
  }

  /** What is still on its way is left when it arrives. */
  unsubscribe(channel) {
    this.#wishes.delete(channel);
    if (this.channels.delete(channel)) this.#leave(channel);
  }

  #leave(channel) {
    if (this.state === 'open') this.#send({ method: 'unsubscribe', params: { channel } });
  }

  /** What was sent to a channel that is no more has no answer: it is refused with this sentence. */
  giveUp(channel, reason) {
    for (const [clientSeq, pending] of this.#pending) {
      if (pending.channel !== channel) continue;
      this.#pending.delete(clientSeq);
      pending.reject(new Refusal('gone', reason));
    }
  }

  /**
   * Sends an action; resolves when the host accepted it, rejects with its refusal. While there is no connection nothing is
   * taken: who wrote it still has it.
   */
  dispatch(channel, action) {
    if (this.state !== 'open') return Promise.reject(new Refusal('not-connected', 'There is no connection to the host.'));
    const clientSeq = this.#nextSeq++;
    return new Promise((resolve, reject) => {
      this.#pending.set(clientSeq, { channel, action, resolve, reject, again: false });
      this.#send({ method: 'dispatchAction', params: { channel, clientSeq, action } });
    });
  }

  #say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #become(state, problem = null) {
    if (this.state === state && this.problem === problem) return;
    this.state = state;
    this.problem = problem;
    this.#say('state', state);
  }

  /** Connects, and again after each drop, until the page is left. */
  async #run() {
    while (!this.#closed) {
      try {
        // Asks for a token where one is missing, and says in words what a socket does not.
        await get('api/me');
        const ended = this.#dial();
        await this.#meet(ended);
        this.#tries = 0;
        const reason = await ended;
        this.#become(this.#closed ? 'closed' : 'lost', reason || 'The connection dropped.');
      } catch (error) {
        if (error.status === 401 || error.status === 403) this.#become('refused', error.message);
        else this.#become(this.#greeted ? 'lost' : 'connecting', error.message);
      }
      this.#cut();
      this.#fail();
      if (this.#closed) return;
      const wait = WAITS[Math.min(this.#tries++, WAITS.length - 1)];
      await new Promise((resolve) => {
        this.#wake = resolve;
        // Who may not come in is not asked again and again.
        if (this.state !== 'refused') setTimeout(resolve, wait);
      });
    }
  }

  /** Opens a socket; resolves with the reason when it is over, also where the network does not say so and it is cut here. */
  #dial() {
    const address = new URL(base);
    address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
    if (token()) address.searchParams.set('tkn', token());
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onmessage = (event) => this.#hear(JSON.parse(event.data));
    return new Promise((resolve) => {
      socket.onclose = (event) => resolve(event.reason);
      this.#cut = (reason) => {
        socket.onmessage = null;
        socket.close();
        resolve(reason);
      };
    });
  }

  /** The handshake. The socket may end at any point in it. */
  async #meet(ended) {
    const over = ended.then((reason) => Promise.reject(new Error(reason || 'The host does not answer.')));
    const late = setTimeout(this.#cut, HANDSHAKE);
    try {
      await Promise.race([this.#shakeHands(), over]);
    } finally {
      clearTimeout(late);
    }
    this.#become('open');
    this.#sendAgain();
    if (this.#greeted) this.#say('resumed');
    this.#greeted = true;
  }

  async #shakeHands() {
    const socket = this.#socket;
    await new Promise((resolve) => (socket.onopen = resolve));
    if (!this.#known) return this.#greet();
    await this.#resume().catch((error) => {
      if (error.code === 'not-permitted') this.#beAnother();
      throw error;
    });
  }

  /** Who may not come back, such as with somebody else's token, is a new client: what had no echo may have been taken or not. */
  #beAnother() {
    this.clientId = `page-${newId()}`;
    this.#known = false;
    for (const { reject } of this.#pending.values()) reject(new Refusal('not-known', 'The host does not know this page any more: it may have taken this or not.'));
    this.#pending.clear();
  }

  async #greet() {
    const result = await this.#ask('initialize', {
      channel: ROOT,
      protocolVersions: VERSIONS,
      clientId: this.clientId,
      clientInfo: { name: 'scrollback-page', title: 'Scrollback in a browser' },
      initialSubscriptions: [ROOT],
      locale: navigator.language,
    });
    this.lastSeen = result.serverSeq;
    for (const snapshot of result.snapshots) this.#take(snapshot);
    const again = [...this.#wishes].map(async ([channel, wish]) => {
      const answer = await this.#ask('subscribe', { channel, ...wish }).catch((error) => (error.code === 'not-connected' ? Promise.reject(error) : null));
      if (answer?.snapshot) this.#take(answer.snapshot, channel);
      else this.#lose(channel);
    });
    await Promise.all(again);
    this.#known = true;
  }

  async #resume() {
    const wanted = [...this.channels.keys()];
    const result = await this.#ask('reconnect', {
      channel: ROOT,
      clientId: this.clientId,
      lastSeenServerSeq: this.lastSeen,
      subscriptions: wanted,
    });
    if (result.type === 'replay') {
      for (const envelope of result.actions) this.#apply(envelope);
      for (const channel of result.missing) this.#lose(channel);
      return;
    }
    // What was seen may be ahead of a host that lost its end: the snapshots are the truth now.
    this.lastSeen = 0;
    for (const snapshot of result.snapshots) this.#take(snapshot);
    const there = new Set(result.snapshots.map((snapshot) => snapshot.resource));
    for (const channel of wanted) if (!there.has(channel)) this.#lose(channel);
    for (const pending of this.#pending.values()) pending.again = true;
  }

  /** What had no echo goes out again under its old number: the host knows whether it took it. */
  #sendAgain() {
    for (const [clientSeq, { channel, action }] of this.#pending) {
      this.#send({ method: 'dispatchAction', params: { channel, clientSeq, action } });
    }
  }

  /** Requests of a connection that is gone have no answer. */
  #fail() {
    for (const { reject } of this.#requests.values()) reject(new Refusal('not-connected', 'The connection dropped.'));
    this.#requests.clear();
  }

  /** A connection that says nothing for long is asked, and given up when it stays silent. */
  async #feel() {
    const cut = this.#cut;
    if (this.state !== 'open' || performance.now() - this.#heard < SILENCE) return;
    const answered = this.#ask('ping', { channel: ROOT }).then(() => true, () => true);
    const silent = new Promise((resolve) => setTimeout(resolve, SILENCE / 2, false));
    if (!(await Promise.race([answered, silent]))) cut();
  }

  #ask(method, params) {
    const id = this.#nextRequest++;
    return new Promise((resolve, reject) => {
      this.#requests.set(id, { resolve, reject });
      this.#send({ id, method, params });
    });
  }

  #send(message) {
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }

  #hear(message) {
    this.#heard = performance.now();
    if (message.method === 'action') return this.#apply(message.params);
    if (message.method && message.id !== undefined) {
      // The host asks for files of this client, which has none.
      return this.#send({ id: message.id, error: { code: -32601, message: `${message.method} is not served by a page` } });
    }
    if (message.method) return this.#say('notification', message);
    const asked = this.#requests.get(message.id);
    this.#requests.delete(message.id);
    if (!asked) return;
    if (message.error) asked.reject(new Refusal(message.error.data?.code ?? String(message.error.code), message.error.message));
    else asked.resolve(message.result);
  }

  #apply(envelope) {
    const own = envelope.origin?.clientId === this.clientId ? this.#pending.get(envelope.origin.clientSeq) : null;
    if (own) this.#pending.delete(envelope.origin.clientSeq);
    if (envelope.rejectionReason) {
      const [, code, reason] = /^([a-z-]+): (.*)$/s.exec(envelope.rejectionReason) ?? [null, 'refused', envelope.rejectionReason];
      own?.reject(new Refusal(code, reason));
      return;
    }
    this.#see(envelope.serverSeq);
    if (own?.again) {
      // The snapshot may hold it already, and its echo does not say: the state is asked for once more, in the same view.
      if (this.channels.has(envelope.channel)) this.subscribe(envelope.channel, this.#wishes.get(envelope.channel)?.view).catch(() => {});
    } else {
      const known = this.channels.get(envelope.channel);
      if (known && envelope.serverSeq > known.seq) {
        known.state = reduce(envelope.channel, known.state, envelope.action);
        known.seq = envelope.serverSeq;
        this.#say('change', envelope.channel);
      }
    }
    own?.resolve(envelope.serverSeq);
  }

  #take(snapshot, channel = snapshot.resource) {
    this.#see(snapshot.fromSeq);
    this.channels.set(channel, { state: snapshot.state, seq: snapshot.fromSeq });
    this.#say('change', channel);
  }

  #lose(channel) {
    this.channels.delete(channel);
    this.#wishes.delete(channel);
    this.giveUp(channel, 'This is not there any more.');
    this.#say('gone', channel);
  }

  #see(seq) {
    this.lastSeen = Math.max(this.lastSeen, seq);
  }
}
