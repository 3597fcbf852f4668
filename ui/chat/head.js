// Above the conversation: which chat it is, what it is at, and what can be done with it as a whole.

import { h, icon, iconButton, replace, text } from '../shared/dom.js';
import { ask, field } from '../shared/dialog.js';
import { activityOf, isArchived } from '../shared/states.js';
import { askForSettings, changeable } from './settings.js';
import { ACTIVITIES, plain, titleOfChat, titleOfSession } from './words.js';

export class Head {
  constructor(model) {
    this.model = model;
    this.title = h('h1');
    this.chip = h('span.chip', { role: 'status' });
    this.about = h('p.hint');
    this.waits = h('p.waits-elsewhere', { hidden: true });
    const item = (label, run, needs, where = 'chat') => ({ where, needs, button: h('button.quiet', { type: 'button', onclick: () => (this.#close(), run()) }, label) });
    this.items = [
      item('Rename the chat', () => this.#rename('chat'), 'chat:rename'),
      item('New chat in this session', () => model.act(model.createChat()), 'chat:create'),
      item('Make the context smaller', () => model.act(model.compact()), 'chat:send'),
      item('Clear the chat', () => this.#clear(), 'chat:truncate'),
      item('End the chat', () => this.#end('chat'), 'chat:dispose'),
      item('Rename the session', () => this.#rename('session'), 'session:rename', 'session'),
      item('Settings of the session', () => this.#settings(), 'session:configure', 'session'),
      item('Archive the session', () => model.act(model.archiveSession(!isArchived(model.sessionState.status))), 'session:mark', 'session'),
      item('End the session', () => this.#end('session'), 'session:dispose', 'session'),
    ];
    const of = (where) => this.items.filter((one) => one.where === where).map((one) => one.button);
    this.menu = h(
      'details.menu',
      {},
      h('summary.button.icon-button', { aria: { label: 'What to do with this chat' }, title: 'What to do with this chat' }, icon('dots')),
      h('div.menu-items', {}, of('chat'), h('hr'), of('session')),
    );
    document.addEventListener('click', (event) => this.menu.contains(event.target) || this.#close());
    this.menu.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      this.#close();
      this.menu.firstElementChild.focus();
    });
    this.fresh = iconButton('plus', 'New chat in this session', () => model.act(model.createChat()));
    this.element = h('header.chat-head', {}, h('div.chat-title', {}, h('div.title-line', {}, this.title, this.chip), this.about), this.fresh, this.menu, this.waits);
  }

  update() {
    const { model } = this;
    const { sessionState: session, chatState: chat, chatSummary } = model;
    this.element.hidden = !session || !chat;
    if (this.element.hidden) return;
    text(this.title, titleOfChat(chatSummary ?? chat));
    const activity = activityOf(chat.status);
    text(this.chip, ACTIVITIES[activity]);
    this.chip.hidden = !ACTIVITIES[activity];
    this.chip.dataset.kind = activity;
    const agent = model.root?.agents.find((one) => one.provider === session.provider);
    const own = session.chats.length === 1 && (!session.title || session.title === chatSummary?.title);
    const parts = [own ? null : titleOfSession(session), agent?.displayName ?? session.provider, chat.activity];
    text(this.about, parts.filter(Boolean).join(' · '));
    for (const { needs, button } of this.items) button.disabled = !model.may(needs);
    this.items.find((one) => one.needs === 'session:configure').button.hidden = !changeable(session).length;
    this.fresh.disabled = !model.may('chat:create');
    const archive = this.items.find((one) => one.needs === 'session:mark').button;
    text(archive, isArchived(session.status) ? 'Bring the session back' : 'Archive the session');
    this.#elsewhere(session);
  }

  /** What waits for an answer in other chats of the session. */
  #elsewhere(session) {
    const others = (session.inputNeeded ?? []).filter((one) => one.chat !== this.model.chat && one.kind !== 'toolClientExecution');
    this.waits.hidden = !others.length;
    const key = JSON.stringify(others.map((one) => one.id));
    if (this.waits.dataset.key === key) return;
    this.waits.dataset.key = key;
    const place = (chat) => `#${new URLSearchParams({ session: this.model.session, chat })}`;
    const name = (chat) => titleOfChat(session.chats.find((one) => one.resource === chat));
    replace(this.waits, 'Also waits for you: ', others.map((one) => h('a', { href: place(one.chat) }, name(one.chat), one.toolCall ? ` (${plain(one.toolCall.displayName)})` : '')));
  }

  #close() {
    this.menu.open = false;
  }

  async #rename(what) {
    const { model } = this;
    const old = what === 'chat' ? model.chatSummary?.title : model.sessionState.title;
    const name = h('input', { type: 'text', value: old ?? '', required: true, maxLength: 200 });
    const title = await ask({ title: `Rename the ${what}`, fields: [field('Name', name)], confirm: 'Rename', read: () => name.value.trim() });
    if (title) model.act(what === 'chat' ? model.renameChat(title) : model.renameSession(title));
  }

  async #settings() {
    const { model } = this;
    const config = await askForSettings(model.sessionState);
    if (config) model.act(model.configureSession(config));
  }

  async #clear() {
    const lead = 'Its turns go, and the agent begins a new conversation. The log keeps what was.';
    if (await ask({ title: 'Clear the chat?', lead, confirm: 'Clear', danger: true })) this.model.act(this.model.clear());
  }

  async #end(what) {
    const { model } = this;
    const lead = `The ${what} goes off every list. What was said in it stays in the log.`;
    if (!(await ask({ title: `End the ${what}?`, lead, confirm: 'End it', danger: true }))) return;
    model.act(what === 'chat' ? model.disposeChat() : model.disposeSession());
  }
}
