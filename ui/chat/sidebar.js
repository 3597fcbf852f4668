// The sessions, the newest first, and under the open one its chats as they came from each other.

import { h, icon, keyed, replace, set, text } from '../shared/dom.js';
import { when } from '../shared/format.js';
import { activityOf, isArchived, isRead } from '../shared/states.js';
import { ask, field, tellError } from '../shared/dialog.js';
import { ACTIVITIES, ORIGIN_ICONS, titleOfChat, titleOfSession } from './words.js';

export class Sidebar {
  constructor(model, { onNavigate }) {
    this.model = model;
    this.looked = [];
    this.create = h('button.primary.new-session', { type: 'button', onclick: () => newSession(model).catch(tellError) }, icon('plus'), 'New session');
    this.list = h('ul.sessions');
    this.more = h('button.quiet.small', { type: 'button', onclick: () => model.listMore().catch(tellError) }, 'More sessions');
    this.archived = h('ul.sessions');
    this.archive = h('details.archive', {}, h('summary', {}, 'Archived'), this.archived);
    this.element = h('nav.sidebar', { id: 'sessions', aria: { label: 'Sessions' } }, this.create, this.list, this.more, this.archive);
    this.element.addEventListener('click', (event) => event.target.closest('a') && onNavigate());
  }

  update() {
    const { model } = this;
    // What streams into a chat changes nothing here.
    const looked = [model.sessions, model.session, model.sessionState, model.chat, model.isOpen, model.me, model.root, model.moreSessions];
    if (looked.every((one, at) => one === this.looked[at])) return;
    this.looked = looked;
    const all = [...model.listedSessions].sort((a, b) => (a.modifiedAt < b.modifiedAt ? 1 : -1));
    const shown = all.map((summary) => ({ summary, open: summary.resource === model.session, state: model.sessionState, chat: model.chat }));
    this.create.disabled = !(model.isOpen && model.me.maySomewhere.has('session:create'));
    this.more.hidden = !model.moreSessions;
    const archived = shown.filter(({ summary }) => isArchived(summary.status));
    this.archive.hidden = !archived.length;
    const draw = (place, items) => keyed(place, items, ({ summary }) => summary.resource, makeSession, (item, it) => item.show(it));
    draw(this.list, shown.filter(({ summary }) => !isArchived(summary.status)));
    draw(this.archived, archived);
  }
}

const place = (session, chat) => `#${new URLSearchParams({ session, ...(chat ? { chat } : {}) })}`;

/** A session and its chats. It is told of everything and changes what is another: what has the focus keeps it. */
function makeSession() {
  const at = h('time');
  const link = makeLink('session', at);
  const chats = h('ul.chats');
  const item = h('li', {}, link.element, chats);
  item.show = ({ summary, open, state, chat }) => {
    const status = open && state ? (summary.status & 31) | (state.status & 32) : summary.status;
    link.show({ href: place(summary.resource), title: titleOfSession(summary), status, current: open });
    at.dateTime = summary.modifiedAt;
    text(at, summary.modifiedAt && when(summary.modifiedAt));
    const listed = open && state?.chats.length > 1 ? inTree(state.chats) : [];
    chats.hidden = !listed.length;
    const show = (li, { chat: one, depth }) => li.show(one, depth, summary.resource, chat);
    keyed(chats, listed, ({ chat: one }) => one.resource, makeChat, show);
  };
  return item;
}

function makeChat() {
  const link = makeLink('chat-link');
  const item = h('li', {}, link.element);
  item.show = (chat, depth, session, shown) => {
    // Beyond a few levels there is no room.
    item.style.paddingLeft = `${Math.min(depth, 5) * 14}px`;
    link.show({
      href: place(session, chat.resource),
      title: titleOfChat(chat),
      status: chat.status,
      current: chat.resource === shown,
      iconName: ORIGIN_ICONS[chat.origin?.kind] ?? 'chat',
    });
  };
  return item;
}

function makeLink(className, more) {
  const picture = h('span.picture', { hidden: true });
  const name = h('span.name');
  const chip = h('span.chip');
  const unread = h('span.said', {}, ' unread');
  const element = h('a', { class: className }, picture, name, chip, unread, more);
  const show = ({ href, title, status, current, iconName }) => {
    if (element.getAttribute('href') !== href) element.setAttribute('href', href);
    const activity = activityOf(status);
    set(element, { aria: { current: current ? 'true' : null }, data: { activity } });
    if (iconName && picture.hidden) replace(picture, icon(iconName)).hidden = false;
    text(name, title);
    text(chip, ACTIVITIES[activity]);
    chip.hidden = !ACTIVITIES[activity];
    chip.dataset.kind = activity;
    unread.hidden = isRead(status) || activity !== 'idle' || current;
    set(element, { data: { unread: !unread.hidden } });
  };
  return { element, show };
}

/** Chats in the order of a tree: each below the one that it was made out of, with how deep it stands. */
function inTree(chats) {
  const known = new Set(chats.map((chat) => chat.resource));
  const children = Map.groupBy(chats, (chat) => (known.has(chat.origin?.chat) ? chat.origin.chat : null));
  const below = (parent, depth) => (children.get(parent) ?? []).flatMap((chat) => [{ chat, depth }, ...below(chat.resource, depth + 1)]);
  return below(null, 0);
}

/** A session at once where there is one agent; else it is asked which. */
export async function newSession(model) {
  const agents = model.root?.agents ?? [];
  if (agents.length < 2) return model.createSession({});
  const agent = h('select', { name: 'agent' }, agents.map((one) => h('option', { value: one.provider }, one.displayName)));
  const about = h('p.hint');
  const say = () => text(about, agents.find((one) => one.provider === agent.value)?.description ?? '');
  agent.addEventListener('change', say);
  say();
  const directory = h('input', { name: 'directory', placeholder: 'file:///srv/projects/one', type: 'text' });
  const chosen = await ask({
    title: 'New session',
    fields: [field('Agent', agent), about, field('Directory', directory, 'Where the agent works. Empty: the default directory of the host.')],
    confirm: 'Begin',
    read: () => ({ provider: agent.value, directory: directory.value.trim() }),
  });
  if (chosen) await model.createSession(chosen);
}
