// Where somebody writes: the message, the draft that everybody in the chat sees, what waits, and the way to stop.

import { h, icon, iconButton, keyed, set, text } from '../shared/dom.js';
import { tellError } from '../shared/dialog.js';
import { Completions } from './complete.js';

const DRAFT_AFTER = 400;
/** What to try with the demo, for who has never seen it. */
const TRIES = [
  ['Say hello', 'hello'],
  ['A tool that asks first', '/ask-tool rm notes.txt\n/say that was it'],
  ['A question', '/question Tea or coffee? | tea | coffee'],
  ['A long answer', '/words 120 60'],
  ['Thinking', '/think First I weigh it up.\n/say Then I answer.'],
  ['A worker', '/subagent /say I am a worker'],
  ['A picture', '/visual Circle <svg width="160" height="160"><circle cx="80" cy="80" r="70" fill="teal"/></svg>'],
];

export class Composer {
  constructor(model) {
    this.model = model;
    this.field = h('textarea', { id: 'message', rows: 1, placeholder: 'Write a message', aria: { label: 'Message', describedby: 'message-hint' } });
    this.field.addEventListener('input', () => this.#written());
    this.field.addEventListener('keydown', (event) => this.#key(event));
    this.completions = new Completions(this.field, model);
    this.send = h('button.primary', { type: 'button', onclick: () => this.#send() }, icon('send'), h('span', {}, 'Send'));
    this.steer = h('button', { type: 'button', title: 'Into the running turn', onclick: () => this.#send('steering') }, 'Steer');
    this.stop = h('button.danger', { type: 'button', onclick: () => model.act(model.cancel()) }, icon('stop'), 'Stop');
    this.hint = h('p.hint', { id: 'message-hint' });
    this.queue = h('ul.queue', { aria: { label: 'Waiting messages' } });
    this.background = h('ul.queue', { aria: { label: 'Background work' } });
    this.paused = h('p.hint.paused', {}, 'The queue is paused: it goes on with the next message that you send or queue.');
    this.tries = h('div.tries', { role: 'group', aria: { label: 'Things to try with the demo' } }, TRIES.map(([label, script]) => h('button.small', { type: 'button', onclick: () => this.#put(script) }, label)));
    this.element = h(
      'section.composer',
      { aria: { label: 'Your message' } },
      h('div.column', {}, this.background, this.queue, this.paused, this.tries, this.completions.list, this.completions.said, h('div.write', {}, this.field, h('div.write-buttons', {}, this.stop, this.steer, this.send)), this.hint),
    );
    this.chat = null;
    /** The draft of everybody as it is known here, what of it was looked at, and what of this page is on its way to the host. */
    this.draft = '';
    this.seen = null;
    this.onWay = new Set();
    /** What was written in other chats and not sent. */
    this.kept = new Map();
    this.timer = null;
  }

  update() {
    const { model } = this;
    const state = model.chatState;
    const readOnly = model.chatSummary?.interactivity === 'read-only';
    // What was written into a chat that is gone stays before who wrote it.
    const isOver = model.ended || !state;
    this.element.hidden = isOver && !(this.chat === model.chat && this.field.value);
    if (this.element.hidden) return;
    if (this.chat !== model.chat) this.#moved(state);
    if (state) this.#drafted(state.draft);
    const running = Boolean(state?.activeTurn);
    const may = model.may('chat:send') && !readOnly && !isOver;
    this.field.disabled = !may && model.isOpen && !isOver;
    this.field.readOnly = isOver;
    this.send.disabled = !may || !this.field.value.trim();
    text(this.send.lastChild, running ? 'Queue' : 'Send');
    this.steer.hidden = !running || !model.agentExtras.steering || readOnly;
    this.steer.disabled = this.send.disabled;
    this.stop.hidden = !running;
    this.stop.disabled = !model.may('chat:cancel');
    this.paused.hidden = !model.isPaused;
    const isDemo = model.sessionState?.provider === 'demo';
    this.tries.hidden = !(isDemo && may && !this.field.value);
    text(this.hint, hint({ model, readOnly, running, may, isOver }));
    this.#waiting(state ?? {}, may);
    keyed(this.background, state?.backgroundWork ?? [], (work) => work.id, () => h('li'), (item, work) => this.#backgroundItem(item, work));
    for (const button of this.background.querySelectorAll('button')) button.disabled = !model.may('chat:cancel');
  }

  focus() {
    this.field.focus();
  }

  /** Puts a text before somebody, to be sent or changed. */
  #put(value) {
    this.field.value = value;
    this.#written();
    this.focus();
  }

  /** Another chat: what was written there, else its draft. What was not sent in the one before is kept. */
  #moved(state) {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.chat && this.field.value !== this.draft) this.kept.set(this.chat, this.field.value);
    this.completions.close();
    this.chat = this.model.chat;
    this.seen = state.draft;
    this.draft = state.draft?.text ?? '';
    const kept = this.kept.get(this.chat);
    this.kept.delete(this.chat);
    this.field.value = kept ?? this.draft;
    this.#fit();
    if (kept !== undefined) this.#tellSoon();
  }

  /**
   * What somebody else wrote into the draft shows here, unless something is being written. What comes back of this page's own
   * words is older than what stands here.
   */
  #drafted(draft) {
    if (draft === this.seen) return;
    this.seen = draft;
    const words = draft?.text ?? '';
    if (words === this.draft || [...this.onWay].some(({ chat }) => chat === this.chat)) return;
    const untouched = this.field.value === this.draft && !this.timer;
    this.draft = words;
    if (untouched) {
      this.field.value = words;
      this.#fit();
    }
  }

  /** Sends something of this page into `chat`. */
  async #under(chat, promise) {
    const way = { chat };
    this.onWay.add(way);
    try {
      await promise;
    } finally {
      this.onWay.delete(way);
    }
  }

  #written() {
    this.#fit();
    this.#tellSoon();
    this.update();
  }

  #tellSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#flush(), DRAFT_AFTER);
  }

  #flush() {
    this.timer = null;
    const written = this.field.value;
    if (written === this.draft || !this.model.may('chat:draft') || this.chat !== this.model.chat) return;
    this.draft = written;
    this.#under(this.chat, this.model.draft(written)).catch((error) => error.code !== 'not-connected' && tellError(error));
  }

  #fit() {
    this.field.style.height = 'auto';
    this.field.style.height = `${Math.min(this.field.scrollHeight + 2, 240)}px`;
  }

  #key(event) {
    if (this.completions.key(event)) return;
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.send.disabled) this.#send();
  }

  async #send(kind) {
    const { chat } = this;
    const written = this.field.value;
    if (!written.trim()) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.field.value = '';
    this.draft = '';
    this.#fit();
    this.completions.close();
    const sent = this.#under(chat, this.#sent(kind, written, chat));
    this.update();
    try {
      await sent;
    } catch (error) {
      this.#giveBack(chat, written);
      tellError(error);
    }
  }

  #sent(kind, written, chat) {
    const { model } = this;
    const attachments = this.completions.attachments(written, chat);
    if (kind || model.chatState.activeTurn) return model.wait(kind ?? 'queued', written, chat, attachments);
    return model.send(written, chat, attachments).catch((error) => {
      if (error.code !== 'turn-in-progress') throw error;
      // Somebody else was quicker: it waits its turn.
      return model.wait('queued', written, chat, attachments);
    });
  }

  /** Nothing that was written is lost: it is before who wrote it again, in the chat that it was for. */
  #giveBack(chat, written) {
    if (this.chat === chat) return this.#put([written, this.field.value].filter(Boolean).join('\n'));
    this.kept.set(chat, [written, this.kept.get(chat)].filter(Boolean).join('\n'));
  }

  #waiting(state, may) {
    const items = [...(state.steeringMessage ? [{ kind: 'steering', ...state.steeringMessage }] : []), ...(state.queuedMessages ?? []).map((one) => ({ kind: 'queued', ...one }))];
    const focused = this.queue.contains(document.activeElement) ? document.activeElement : null;
    const [row, place] = focused ? [[...this.queue.children].indexOf(focused.closest('li')), [...focused.parentElement.children].indexOf(focused)] : [];
    const same = items.map((item) => (this.queue.keyed?.get(item.id)?.item?.message === item.message && this.queue.keyed.get(item.id).item.kind === item.kind ? this.queue.keyed.get(item.id).item : item));
    keyed(this.queue, same, (item) => item.id, () => h('li'), (li, item) => this.#waitingItem(li, item));
    for (const button of this.queue.querySelectorAll('button')) button.disabled = !may;
    const ups = [...this.queue.querySelectorAll('[data-up]')];
    ups.forEach((button, at) => (button.disabled ||= at === 0));
    if (focused) this.#keepFocus(focused, row, place);
  }

  /** A message that moved takes the focus along; in the place of one that is gone the next one has it. */
  #keepFocus(focused, row, place) {
    const next = this.queue.contains(focused) ? focused : this.queue.children[Math.min(row, this.queue.children.length - 1)]?.children[place];
    const able = next?.disabled ? next.nextElementSibling : next;
    (able ?? this.field).focus();
  }

  #waitingItem(li, { id, kind, message }) {
    const { model } = this;
    const queued = kind === 'queued';
    li.replaceChildren(
      h('span.chip', { data: { kind: 'running' } }, queued ? 'queued' : 'steering'),
      h('span.waiting-text', {}, message.text),
      ...(queued
        ? [
            h('button.quiet.small', { type: 'button', onclick: () => model.act(model.sendNow(id)) }, 'Send now'),
            iconButton('up', `Move up: ${message.text}`, () => this.#up(id), { data: { up: true } }),
          ]
        : []),
      iconButton('edit', `Edit: ${message.text}`, () => this.#edit(kind, id, message.text)),
      iconButton('close', `Take back: ${message.text}`, () => model.act(model.takeBack(kind, id))),
    );
  }

  #up(id) {
    const order = this.model.chatState.queuedMessages.map((one) => one.id);
    const at = order.indexOf(id);
    if (at < 1) return;
    [order[at - 1], order[at]] = [order[at], order[at - 1]];
    this.model.act(this.model.reorder(order));
  }

  /** Out of the queue and back before whoever wrote it. */
  async #edit(kind, id, written) {
    const { chat } = this;
    try {
      await this.model.takeBack(kind, id);
      this.#giveBack(chat, written);
    } catch (error) {
      tellError(error);
    }
  }

  #backgroundItem(li, work) {
    const { model } = this;
    const label = work.label ?? work.title ?? work.command ?? work.kind;
    li.replaceChildren(
      h('span.chip', { data: { kind: 'running' } }, 'in the background'),
      h('span.waiting-text', {}, label),
      set(iconButton('close', `Stop: ${label}`, () => model.act(model.stopBackground(work.id))), {}),
    );
  }
}

function hint({ model, readOnly, running, may, isOver }) {
  if (isOver) return 'What you wrote here was not sent.';
  if (!model.isOpen) return 'There is no connection. What you write is kept here.';
  if (readOnly) return 'This chat belongs to an agent. It can be read, answered and stopped.';
  if (!may) return 'You may read here, and not write.';
  return running ? 'A turn is running: Enter queues the message behind it.' : 'Enter sends, Shift and Enter begin a new line.';
}
