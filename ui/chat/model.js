// What the chat window shows, and what somebody can do in it: sessions, the one that is open, its chats, the one that is shown.
//
// Everything that is shown comes from the connection's states; the address names what is open, so that a link, a reload and
// the way back lead to the same place. Nothing is changed here ahead of the host.

import { get } from '../shared/api.js';
import { Connection, newId, Refusal, ROOT } from '../shared/ahp.js';
import { isRead } from '../shared/states.js';

/** How many of the newest turns are asked for; older ones come page by page. */
const TURNS = 30;
const SESSIONS = 100;
export const ENDED = 'This chat is not in its session any more: somebody ended it, or moved it.';

export class Model extends EventTarget {
  connection = new Connection();
  /** Summaries by URI. */
  sessions = new Map();
  moreSessions = null;
  listed = false;
  session = null;
  chat = null;
  /** Who looks, and what they may do in the session that is open. */
  me = { principal: '', may: new Set(), maySomewhere: new Set() };
  /** Pages that agents published in the chat that is shown. */
  visuals = [];
  /** What went wrong with what is open, for people. */
  problem = null;
  /** Whether the shown chat is in its session no more: it was ended, or moved to another one. */
  ended = false;
  #canvases;
  #opening = 0;
  #wasListed = false;
  #listing = null;

  constructor() {
    super();
    const connection = this.connection;
    connection.addEventListener('state', () => this.#state());
    connection.addEventListener('resumed', () => this.#guard(this.#resumed()));
    connection.addEventListener('change', ({ detail }) => this.#changed(detail));
    connection.addEventListener('gone', ({ detail }) => this.#gone(detail));
    connection.addEventListener('notification', ({ detail }) => this.#notified(detail));
    addEventListener('hashchange', () => this.#guard(this.#follow()));
    document.addEventListener('visibilitychange', () => this.#seen());
  }

  get root() {
    return this.connection.get(ROOT);
  }
  get sessionState() {
    return this.session && this.connection.get(this.session);
  }
  get chatState() {
    return this.chat && this.connection.get(this.chat);
  }
  /** The entry of the shown chat in its session. */
  get chatSummary() {
    return this.sessionState?.chats.find((chat) => chat.resource === this.chat);
  }
  get isOpen() {
    return this.connection.state === 'open';
  }
  /** Whether the one who looks may do it here, now. */
  may(operation) {
    const isThere = !this.ended || !operation.startsWith('chat:') || operation === 'chat:create';
    return this.isOpen && isThere && this.me.may.has(operation);
  }
  /** Whether the agent of the open session can do it. */
  can(capability) {
    const agent = this.root?.agents.find((one) => one.provider === this.sessionState?.provider);
    return Boolean(agent?.capabilities?.multipleChats?.[capability]);
  }
  /** What the agent of the open session can do that the protocol has no field for. */
  get agentExtras() {
    return this.root?._meta?.['scrollback.agents']?.[this.sessionState?.provider] ?? {};
  }
  /** The sessions to choose from: the open one is among them, also where it is older than those that were listed. */
  get listedSessions() {
    const { session, sessionState: state } = this;
    if (!state || this.sessions.has(session)) return this.sessions.values();
    return [...this.sessions.values(), { resource: session, title: state.title, status: state.status, modifiedAt: state.modifiedAt ?? '' }];
  }
  get isPaused() {
    return Boolean(this.sessionState?._meta?.['scrollback.pausedQueues']?.includes(this.chat));
  }

  #tell() {
    this.dispatchEvent(new Event('change'));
  }

  #guard(promise) {
    return promise.catch((error) => {
      if (error.code !== 'not-connected') this.dispatchEvent(new CustomEvent('fault', { detail: error }));
    });
  }

  #state() {
    if (this.isOpen && !this.listed) this.#guard(this.#begin());
    this.#tell();
  }

  async #begin() {
    this.listed = true;
    await this.#around();
    await this.#follow();
  }

  async #resumed() {
    await this.#around();
    const isWhole = this.sessionState && (this.chatState || !this.sessionState.chats.length);
    if (this.session && !isWhole && !this.problem) await this.#follow();
    await this.#visuals();
  }

  /** The list and the rights. A link leads to its chat without either, as for who may see one session alone. */
  #around() {
    const list = this.#list().catch((error) => error.code !== 'not-permitted' && Promise.reject(error));
    return Promise.all([this.#guard(list), this.#guard(this.#whoAmI())]);
  }

  async #whoAmI() {
    const session = this.session;
    const said = await get('api/me', { channel: session });
    if (session !== this.session) return;
    this.me = { principal: said.principal, may: new Set(said.may), maySomewhere: new Set(said.maySomewhere) };
    this.#tell();
  }

  async #list(cursor) {
    const page = await this.connection.request('listSessions', { channel: ROOT, limit: SESSIONS, ...(cursor ? { cursor } : {}) });
    const sessions = new Map(cursor ? this.sessions : []);
    for (const summary of page.items) sessions.set(summary.resource, summary);
    this.sessions = sessions;
    this.moreSessions = page.nextCursor ?? null;
    this.#tell();
  }

  /**
   * The newest ones once more, for one that changed and is not among those that are listed. One asking at a time; what changes
   * while it is on its way is asked for behind it.
   */
  async #listNewest() {
    if (this.#listing) return void (this.#listing = 'again');
    this.#listing = 'once';
    try {
      const page = await this.connection.request('listSessions', { channel: ROOT, limit: SESSIONS });
      this.sessions = new Map([...this.sessions, ...page.items.map((summary) => [summary.resource, summary])]);
      this.#tell();
    } finally {
      const again = this.#listing === 'again';
      this.#listing = null;
      if (again) this.#guard(this.#listNewest());
    }
  }

  /** What somebody may do can change while they look. */
  askAgainWhoIAm() {
    return this.#guard(this.#whoAmI());
  }

  listMore() {
    return this.#list(this.moreSessions);
  }

  /** Goes where the address says. */
  async #follow() {
    const place = new URLSearchParams(location.hash.slice(1));
    await this.#open(place.get('session'), place.get('chat'));
  }

  /** Opens a session, and its default chat where none is named; in the address first. */
  open(session, chat = null) {
    const place = session ? new URLSearchParams({ session, ...(chat ? { chat } : {}) }) : '';
    if (location.hash === `#${place}`) return this.#guard(this.#follow());
    location.hash = place;
    return Promise.resolve();
  }

  async #open(session, chat) {
    const opening = ++this.#opening;
    const { connection } = this;
    if (this.session && this.session !== session) connection.unsubscribe(this.session);
    if (this.chat) connection.unsubscribe(this.chat);
    const moved = this.session !== session;
    [this.session, this.chat, this.visuals, this.#canvases] = [session, null, [], undefined];
    [this.problem, this.ended, this.#wasListed] = [null, false, false];
    this.#tell();
    if (!session) return;
    try {
      if (moved || !connection.get(session)) await Promise.all([connection.subscribe(session), this.#guard(this.#whoAmI())]);
      // Somebody went elsewhere meanwhile.
      if (opening !== this.#opening) return;
      const state = this.sessionState;
      const shown = chat ?? state.defaultChat ?? state.chats[0]?.resource;
      this.chat = shown ?? null;
      this.#stillListed();
      if (shown) await connection.subscribe(shown, { turns: TURNS });
    } catch (error) {
      if (opening !== this.#opening) return;
      if (!(error instanceof Refusal) || error.code === 'not-connected') throw error;
      this.problem = error.message;
    }
    this.#tell();
    this.#seen();
  }

  /** A chat that somebody ended is gone from its session, and nothing that is sent to it has an answer. */
  #stillListed() {
    const isListed = Boolean(this.chatSummary);
    this.ended = this.#wasListed && !isListed;
    this.#wasListed ||= isListed;
    if (this.ended) this.connection.giveUp(this.chat, ENDED);
  }

  #changed(channel) {
    if (channel === this.chat) {
      const canvases = this.chatState?.canvases;
      if (canvases !== this.#canvases) {
        this.#canvases = canvases;
        this.#guard(this.#visuals());
      }
      this.#seen();
    } else if (channel === this.session) this.#stillListed();
    this.#tell();
  }

  async #visuals() {
    const chat = this.chat;
    if (!this.chatState) return;
    const none = !this.chatState.canvases?.length;
    const { visuals } = none ? { visuals: [] } : await this.connection.request('x-scrollback/listVisuals', { channel: chat });
    if (chat === this.chat) this.visuals = visuals;
    this.#tell();
  }

  #gone(channel) {
    if (channel === this.chat) this.problem = 'This chat is not there any more.';
    if (channel === this.session) this.problem = 'This session is not there any more.';
    this.#tell();
  }

  #notified({ method, params }) {
    if (method === 'root/sessionAdded') this.sessions = new Map(this.sessions).set(params.summary.resource, params.summary);
    else if (method === 'root/sessionRemoved') {
      this.sessions = new Map(this.sessions);
      this.sessions.delete(params.session);
      if (params.session === this.session) this.open(null);
    } else if (method === 'root/sessionSummaryChanged') {
      const known = this.sessions.get(params.session);
      if (known) this.sessions = new Map(this.sessions).set(params.session, { ...known, ...params.changes });
      else this.#guard(this.#listNewest());
    }
    this.#tell();
  }

  /** What somebody has before their eyes is read. */
  #seen() {
    const [chat, session] = [this.chatState, this.sessionState];
    if (document.hidden || !chat || !session || chat.activeTurn) return;
    if (!isRead(chat.status) && this.may('chat:mark')) this.#quietly(this.chat, { type: 'chat/isReadChanged', isRead: true });
    if (!isRead(session.status) && this.may('session:mark')) this.#quietly(this.session, { type: 'session/isReadChanged', isRead: true });
  }

  #marking = new Set();

  #quietly(channel, action) {
    const key = channel + action.type;
    if (this.#marking.has(key)) return;
    this.#marking.add(key);
    this.connection.dispatch(channel, action).catch(() => {}).finally(() => this.#marking.delete(key));
  }

  // What somebody can do. Each resolves when the host took it and rejects with its refusal.

  #act(action, chat = this.chat) {
    return this.connection.dispatch(chat, action);
  }
  #ask(method, params, channel = this.chat) {
    return this.connection.request(method, { channel, ...params });
  }

  async createSession({ provider, directory }) {
    const session = `ahp-session:/${newId()}`;
    const directories = directory ? { workingDirectories: [directory] } : {};
    await this.#ask('createSession', { ...(provider ? { provider } : {}), ...directories }, session);
    await this.open(session);
  }

  renameSession(title) {
    return this.connection.dispatch(this.session, { type: 'session/titleChanged', title });
  }
  configureSession(config) {
    return this.connection.dispatch(this.session, { type: 'session/configChanged', config });
  }
  archiveSession(isArchived) {
    return this.connection.dispatch(this.session, { type: 'session/isArchivedChanged', isArchived });
  }
  async disposeSession() {
    await this.#ask('disposeSession', {}, this.session);
    await this.open(null);
  }

  async createChat(source) {
    const chat = `ahp-chat:/${newId()}`;
    await this.#ask('createChat', { chat, ...(source ? { source } : {}) }, this.session);
    await this.open(this.session, chat);
  }
  fork(turnId) {
    return this.createChat({ kind: 'fork', chat: this.chat, turnId });
  }
  sideChat(turnId, selected) {
    return this.createChat({ kind: 'sideChat', chat: this.chat, turnId, ...(selected ? { selection: { text: selected } } : {}) });
  }
  async disposeChat() {
    const session = this.session;
    await this.#ask('disposeChat', {});
    await this.open(session);
  }
  renameChat(title) {
    return this.#act({ type: 'session/titleChanged', title });
  }

  send(text, chat, attachments) {
    const startedAt = new Date().toISOString();
    return this.#act({ type: 'chat/turnStarted', turnId: newId(), startedAt, message: written(text, attachments) }, chat);
  }
  wait(kind, text, chat, attachments) {
    return this.#act({ type: 'chat/pendingMessageSet', kind, id: newId(), message: written(text, attachments) }, chat);
  }
  takeBack(kind, id) {
    return this.#act({ type: 'chat/pendingMessageRemoved', kind, id });
  }
  reorder(order) {
    return this.#act({ type: 'chat/queuedMessagesReordered', order });
  }
  sendNow(id) {
    return this.#ask('x-scrollback/sendNow', { id });
  }
  completions(text, offset) {
    return this.#ask('completions', { kind: 'userMessage', text, offset });
  }
  draft(text) {
    return this.#act({ type: 'chat/draftChanged', ...(text ? { draft: written(text) } : {}) });
  }
  cancel() {
    return this.#act({ type: 'chat/turnCancelled', turnId: this.chatState.activeTurn.id, duration: 0 });
  }
  resume(turnId) {
    return this.#act({ type: 'chat/turnResume', turnId });
  }
  /** Resolves with the number of the event before which the dropped turns were there. */
  rewind(turnId) {
    return this.#act({ type: 'chat/truncated', turnId });
  }
  /** A fork of `source`, which is in `session`, as it was after an event. */
  async forkAt(session, source, serverSeq) {
    const chat = `ahp-chat:/${newId()}`;
    await this.#ask('x-scrollback/forkAt', { chat, serverSeq }, source);
    await this.open(session, chat);
  }
  clear() {
    return this.#ask('x-scrollback/clear', { force: true });
  }
  compact() {
    return this.#ask('x-scrollback/compact', {});
  }
  stopBackground(id) {
    return this.#ask('x-scrollback/stopBackgroundWork', { id });
  }
  olderTurns() {
    return this.#ask('fetchTurns', { cursor: this.chatState.turnsNextCursor });
  }

  confirm(turnId, toolCallId, option, { edited, reason } = {}) {
    const approved = option.kind === 'approve';
    return this.#act({
      type: 'chat/toolCallConfirmed',
      turnId,
      toolCallId,
      approved,
      ...(option.id ? { selectedOptionId: option.id } : {}),
      ...(approved ? { confirmed: 'user-action' } : { reason: 'denied' }),
      ...(edited === undefined ? {} : { editedToolInput: edited }),
      ...(reason ? { reasonMessage: reason } : {}),
    });
  }
  confirmResult(turnId, toolCallId, approved) {
    return this.#act({ type: 'chat/toolCallResultConfirmed', turnId, toolCallId, approved });
  }
  answer(requestId, questionId, answer) {
    return this.#act({ type: 'chat/inputAnswerChanged', requestId, questionId, ...(answer ? { answer } : {}) });
  }
  complete(requestId, response, answers) {
    return this.#act({ type: 'chat/inputCompleted', requestId, response, ...(answers ? { answers } : {}) });
  }
}

const written = (text, attachments = []) => ({ text, origin: { kind: 'user' }, ...(attachments.length ? { attachments } : {}) });
